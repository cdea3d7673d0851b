"""The pages as readers use them: their code runs and prints what they say, their links lead somewhere.

A fenced block of ``python`` runs, all of a page in one namespace and in an empty folder; one of the directive
``{picture}`` runs in a namespace of its own, as on the site. If the next block is ``output``, that is what it prints,
with ``...`` for what differs between machines. In a block of ``console`` the lines ``$ olsen ...`` run, and what they
print stands below them. What cannot run here says so itself, in its first line: ``# not run here: why``.

    python tests/test_docs.py --write      # puts what blocks print into the pages that are named after it, or into all
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import os
import re
import shlex
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN_BY_THE_BUILD = {DOCS / "_build", DOCS / "auto_examples", DOCS / "api" / "generated"}
FENCE = re.compile(r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
NOT_RUN = "# not run here: "
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def pages():
    """Everything that is written by hand for readers, the README first."""
    found = [path for path in sorted(DOCS.rglob("*.md")) if not WRITTEN_BY_THE_BUILD & set(path.parents)]
    return [ROOT / "README.md", *found]


def name_of(path):
    return str(path.relative_to(ROOT))


@dataclass
class Block:
    """A fenced block of a page, and what the page says that it prints."""

    kind: str
    code: str
    line: int
    printed: str | None = None
    where: tuple[int, int] | None = None  # of what it prints, in the text of the page


def blocks_of(text):
    """What runs on a page, in its order."""
    found = []
    for match in FENCE.finditer(text):
        info, line = match["info"].strip(), text.count("\n", 0, match.start()) + 1
        if info in ("python", "{picture}", "console"):
            found.append(Block(info, _without_options(match["text"]), line))
        elif info == "output":
            assert found and found[-1].printed is None, f"line {line}: output without a block that prints it"
            found[-1].printed, found[-1].where = match["text"], match.span("text")
    return found


def _without_options(code):
    """The lines ``:name: value`` at the head of a directive are not code."""
    lines = code.splitlines(keepends=True)
    while lines and (re.match(r":[\w-]+:", lines[0]) or not lines[0].strip()):
        lines.pop(0)
    return "".join(lines)


def run(block, namespace, page):
    """What a block prints; None where it says that it cannot run here."""
    if block.code.startswith(NOT_RUN):
        return None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("error")
        if block.kind == "console":
            return "".join(_run_command(line) for line in block.code.splitlines(keepends=True))
        padded = "\n" * block.line + block.code  # tracebacks name the line of the page
        exec(compile(padded, name_of(page), "exec"), {} if block.kind == "{picture}" else namespace)
    return printed.getvalue()


def _run_command(line):
    """A line of a terminal: a command of ours with what it prints below, or what stands there already."""
    if not line.startswith("$ olsen "):
        return line if line.startswith("$ ") else ""
    from olsen.cli import main

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(shlex.split(line, comments=True)[2:])
    return line + printed.getvalue()


# What pages assume to be there


def a_table(folder):
    """A table with numbers and a category, for the pages that begin with one."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((80, 3)).round(3), columns=["acidity", "sugar", "alcohol"])
    table["colour"] = rng.choice(["red", "rose", "white"], 80)
    table["quality"] = (5 + table["alcohol"] - 0.5 * table["acidity"] + 0.5 * rng.standard_normal(80)).round(3)
    table.to_csv(folder / "wine.csv", index=False)
    return table


def for_command_line(folder):
    """docs/cli.md goes on from ``olsen fit wine.csv --target quality --out wine.skops``."""
    import olsen
    from olsen.cli import main

    frame = a_table(folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["fit", "wine.csv", "--target", "quality", "--out", "wine.skops", "--members", "50"])
    return {"olsen": olsen, "frame": frame, "pipeline": olsen.load("wine.skops")}


def for_nothing(folder):
    return {}


PREPARED = {"docs/cli.md": for_command_line}


@contextlib.contextmanager
def a_place(folder, page):
    """An empty folder, no windows, and the names that a page takes for granted."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    before = Path.cwd()
    os.chdir(folder)
    try:
        yield {"__name__": "__main__"} | PREPARED.get(name_of(page), for_nothing)(folder)
    finally:
        plt.close("all")
        os.chdir(before)


WITH_CODE = [page for page in pages() if blocks_of(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_runs_and_prints_what_the_page_says(page, tmp_path):
    checker = doctest.OutputChecker()
    with a_place(tmp_path, page) as namespace:
        for block in blocks_of(page.read_text(encoding="utf-8")):
            printed = run(block, namespace, page)
            said = block.code if block.kind == "console" else block.printed
            if printed is None or (said is None and block.kind != "python"):
                continue
            assert checker.check_output(said or "", printed, SAME), (
                f"{name_of(page)}, line {block.line}: the page says\n{said}\nbut the block prints\n{printed}"
            )


def test_the_pages_that_must_have_code_have_it():
    for name in ("README.md", "docs/getting_started.md", "docs/guide/uncertainty.md", "docs/theory/pictures.md"):
        assert ROOT / name in WITH_CODE, f"{name} has no code that runs"


# Links

LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}[ ]+(.+?)[ ]*$", re.MULTILINE)


def anchors_of(path):
    """Names that links into a page can end with, as GitHub and the site make them from its headings."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def test_links_between_pages_lead_somewhere():
    for page in (*pages(), ROOT / "CONTRIBUTING.md"):
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for link in LINK.findall(text):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue  # other sites are not asked
            found = page if not target else (page.parent / target).resolve()
            assert found.exists(), f"{name_of(page)}: {link} leads nowhere"
            if anchor and found.suffix == ".md":
                assert anchor in anchors_of(found), f"{name_of(page)}: {target or 'the page'} has no heading #{anchor}"


# The reference

MODULES = ("theory", "equivalence", "subsets", "simulation", "figures", "displays", "explorer", "onnx", "datasets")


def test_the_reference_has_everything_public():
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md")))
    listed = {f"{at}.{name}" for at, name in _listed(text)}
    for module in (importlib.import_module(name) for name in ("olsen", *(f"olsen.{name}" for name in MODULES))):
        public = [name for name in module.__all__ if name not in MODULES and not name.startswith("__")]
        assert public
        for full in (f"{module.__name__}.{name}" for name in public):
            assert full in listed or f"`{full}`" in text, f"docs/api does not list {full}"


def _listed(text):
    """Names in lists of the reference, with the module they are looked up in."""
    module = ""
    for line in text.splitlines():
        if line.startswith(".. currentmodule:: "):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            yield module, line.strip()


def test_badges_come_from_the_sentence_about_the_status(monkeypatch):
    pytest.importorskip("sphinx", reason="needs the extra docs")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    words_of = importlib.import_module("status").words_of
    for docstring, words in (
        ("Status: theorem for k = inf, asymptotic above.", ["theorem", "asymptotic"]),
        ("More. Status: exact. A heuristic is elsewhere.", ["exact"]),
        ("Status: asymptotically exact.\n\nStatus: heuristic", ["asymptotic", "exact", "heuristic"]),
        ("An exact formula without a status.", []),
    ):
        assert words_of(docstring) == words, docstring


# The built site


SITES = {  # what stands on a page, and how the complaint about it ends
    "<p id='here'><a href='#here'>up</a> <a href='https://example.org/x'>away</a> <img src='own.png'></p>": None,
    "<script src='https://cdn.example.org/a.js'></script>": "loads https://cdn.example.org/a.js",
    "<img src='//cdn.example.org/a.png'>": "loads //cdn.example.org/a.png",
    "<style>@import 'https://example.org/font.css';</style>": "loads https://example.org/font.css",
    "<link rel='stylesheet' href='http://example.org/a.css'>": "loads http://example.org/a.css",
    "<img src='gone.png'>": "gone.png, which is not there",
    "<a href='gone.html'>on</a>": "gone.html, which is not there",
    "<a href='#gone'>on</a>": "#gone, a page without that anchor",
}


def test_a_site_that_needs_other_sites_or_leads_nowhere_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    (tmp_path / "own.png").write_bytes(b"")
    for body, complaint in SITES.items():
        (tmp_path / "index.html").write_text(f"<!doctype html><title>x</title>{body}", encoding="utf-8")
        found = list(importlib.import_module("check_site").complaints(tmp_path))
        assert [line.endswith(complaint or "") for line in found] == [True] * (complaint is not None), (body, found)


# The pages, written anew


def write(page, folder):
    """Put what blocks print into a page that has a place for it."""
    text = page.read_text(encoding="utf-8")
    changes = []
    with a_place(folder, page) as namespace:
        for block in blocks_of(text):
            printed = run(block, namespace, page)
            if printed is not None and block.where is not None:
                said = block.printed or ""
                if not doctest.OutputChecker().check_output(said, printed, SAME):
                    changes.append((block.where, printed))
    for (start, stop), printed in reversed(changes):
        text = text[:start] + printed + text[stop:]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    for chosen in [Path(name).resolve() for name in sys.argv[2:]] or WITH_CODE:
        with tempfile.TemporaryDirectory() as place:
            write(chosen, Path(place))
