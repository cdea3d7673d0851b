"""The pages as readers use them: their code runs and prints what they say, their links lead
somewhere.

A fenced block of ``python`` runs, all of a page in one namespace and in an empty folder; one of the
directive ``{picture}`` runs in a namespace of its own, as on the site. If the next block is
``output``, that is what it prints, with ``...`` for what differs between machines. In a block of
``console`` the lines ``$ olsen ...`` run, and what they print stands below them. What cannot run
here says so itself, in its first line: ``# not run here: why``.

    python tests/test_docs.py --write      # puts what blocks print into the pages that are named after it, or into all
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re
import shlex
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import olsen

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN_BY_THE_BUILD = {DOCS / "_build", DOCS / "auto_examples", DOCS / "api" / "generated"}
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL
)
NOT_RUN = "# not run here: "
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def pages():
    """Everything that is written by hand for readers, the README first."""
    paths = [
        path for path in sorted(DOCS.rglob("*.md")) if not WRITTEN_BY_THE_BUILD & set(path.parents)
    ]
    return [ROOT / "README.md", *paths]


def name_of(path):
    return str(path.relative_to(ROOT))


@dataclass
class Block:
    """A fenced block of a page, and what the page says that it prints."""

    kind: str
    code: str
    line: int
    said: str | None = None
    output_span: tuple[int, int] | None = None  # of the printed output, in the text of the page


def blocks_of(page):
    """What runs on a page, in its order."""
    blocks = []
    text = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(text):
        info = match["info"].strip()
        line = text.count("\n", 0, match.start()) + 1
        if info in ("python", "{picture}", "console"):
            code = re.sub(
                r"\A(:[\w-]+:.*\n|\s*\n)+", "", match["text"]
            )  # without the options of a directive
            if not code.startswith(NOT_RUN):
                # what a picture prints is nobody's business; a block of Python without output
                # prints nothing
                blocks.append(Block(info, code, line, {"python": "", "console": code}.get(info)))
        elif info == "output":
            assert blocks and blocks[-1].output_span is None, (
                f"line {line}: output without a block that prints it"
            )
            blocks[-1].said = match["text"]
            blocks[-1].output_span = match.span("text")
    return blocks


def run(block, namespace, page):
    """What a block prints. Tracebacks name the line of the page."""
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("error")
        if block.kind == "console":
            return "".join(
                _run_command(line)
                for line in block.code.splitlines(keepends=True)
                if line[:2] == "$ "
            )
        code = compile("\n" * block.line + block.code, name_of(page), "exec")
        exec(code, {} if block.kind == "{picture}" else namespace)
    return printed.getvalue()


def _run_command(line):
    """A line of a terminal, and what it prints if it is a command of ours."""
    if not line.startswith("$ olsen "):
        return line
    from olsen.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
        main(shlex.split(line, comments=True)[2:])
    return line + printed.getvalue()


def fitted_table(folder):
    """docs/cli.md goes on from ``olsen fit wine.csv --target quality --out wine.skops``."""
    import numpy as np
    import pandas as pd

    import olsen

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.standard_normal((80, 3)).round(3), columns=["acidity", "sugar", "alcohol"]
    )
    frame["colour"] = rng.choice(["red", "rose", "white"], 80)
    frame["quality"] = (
        5 + frame["alcohol"] - 0.5 * frame["acidity"] + 0.5 * rng.standard_normal(80)
    ).round(3)
    frame.to_csv(folder / "wine.csv", index=False)
    _run_command("$ olsen fit wine.csv --target quality --out wine.skops --members 50")
    return {"olsen": olsen, "frame": frame, "pipeline": olsen.load("wine.skops")}


def differences(page, folder):
    """Blocks whose output is not what the page says, and what they print; run in an empty folder,
    without windows.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with contextlib.chdir(folder):
        namespace = {"__name__": "__main__"} | (
            fitted_table(folder) if page == DOCS / "cli.md" else {}
        )
        for block in blocks_of(page):
            printed = run(block, namespace, page)
            if block.said is not None and not doctest.OutputChecker().check_output(
                block.said, printed, SAME
            ):
                yield block, printed
        plt.close("all")


WITH_CODE = [page for page in pages() if blocks_of(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_runs_and_prints_what_the_page_says(page, tmp_path):
    for block, printed in differences(page, tmp_path):
        pytest.fail(
            f"{name_of(page)}, line {block.line}: the page says\n{block.said}\nbut the block"
            f" prints\n{printed}"
        )


def test_the_pages_that_must_have_code_have_it():
    for name in (
        "README.md",
        "docs/getting_started.md",
        "docs/guide/uncertainty.md",
        "docs/theory/pictures.md",
    ):
        assert ROOT / name in WITH_CODE, f"{name} has no code that runs"


def test_code_fits_the_column_of_the_site():
    """The formatter breaks code, but no strings; other blocks go on below (docs/_ext/wrapped.py)."""
    for page in pages():
        for block in FENCE.finditer(page.read_text(encoding="utf-8")):
            if block["info"].strip() in ("python", "{picture}"):
                code = [line for line in block["text"].splitlines() if not line.startswith(":")]
                long = [line for line in code if len(line) > 88]
                assert not long, (name_of(page), long)


# Links

LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(\s*<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\s*\)")
LISTED = re.compile(r"^   (\w+)$", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}[ ]+(.+?)[ ]*$", re.MULTILINE)


def anchors_of(path):
    """Names that links into a page can end with, as GitHub and the site make them from its
    headings.
    """
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    anchors = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchors.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return anchors


def test_links_between_pages_lead_somewhere():
    for page in (*pages(), ROOT / "CONTRIBUTING.md"):
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for link in LINK.findall(text):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue  # other sites are not asked
            destination = page if not target else (page.parent / target).resolve()
            assert destination.exists(), f"{name_of(page)}: {link} leads nowhere"
            if anchor and destination.suffix == ".md":
                assert anchor in anchors_of(destination), (
                    f"{name_of(page)}: {target or 'the page'} has no heading #{anchor}"
                )


# The reference

MODULES = (
    "theory",
    "equivalence",
    "subsets",
    "simulation",
    "figures",
    "displays",
    "explorer",
    "onnx",
    "datasets",
)


def test_the_reference_has_everything_public():
    """Under the module it stands below, or named in full."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md"))
    )
    parts = re.split(r"^\.\. currentmodule:: (\S+)$", text, flags=re.MULTILINE)[1:]
    listed = {
        f"{at}.{name}"
        for at, part in zip(parts[::2], parts[1::2], strict=True)
        for name in LISTED.findall(part)
    }
    for module in (
        importlib.import_module(name) for name in ("olsen", *(f"olsen.{name}" for name in MODULES))
    ):
        public = [
            name for name in module.__all__ if name not in MODULES and not name.startswith("__")
        ]
        assert public
        for full in (f"{module.__name__}.{name}" for name in public):
            assert full in listed or f"`{full}`" in text, f"docs/api does not list {full}"


def test_badges_come_from_the_sentence_about_the_status(monkeypatch):
    pytest.importorskip("sphinx", reason="needs the extra docs")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    words_of = importlib.import_module("status").words_of
    for docstring, words in (
        ("Status: theorem for k = inf, asymptotic above.", ["theorem", "asymptotic"]),
        ("More. Status: exact. A heuristic is elsewhere.", ["exact"]),
        (
            "Status: asymptotically exact.\n\nStatus: heuristic",
            ["asymptotic", "exact", "heuristic"],
        ),
        ("An exact formula without a status.", []),
    ):
        assert words_of(docstring) == words, docstring


def test_names_of_other_projects_lead_to_them(monkeypatch):
    """The guide says `Ridge` and means scikit-learn's, though olsen.simulation has one, too."""
    monkeypatch.syspath_prepend(DOCS / "_ext")
    elsewhere = importlib.import_module("elsewhere")
    known = elsewhere.known_names()
    for full in (
        "sklearn.cross_decomposition.PLSRegression",
        "sklearn.ensemble.BaggingRegressor",
        "sklearn.ensemble.StackingRegressor",
        "sklearn.linear_model.LassoCV",
        "sklearn.linear_model.Ridge",
        "sklearn.linear_model.RidgeCV",
        "sklearn.model_selection.GroupKFold",
        "sklearn.pipeline.make_pipeline",
    ):
        assert known[full] == known[full.rpartition(".")[2]] == full
    assert not {"scale", "report", *olsen.__all__} & set(known)
    assert {"numpy.linalg.lstsq", "numpy.memmap", "sklearn.config_context"} <= set(known)
    for full in elsewhere.full_names("sklearn"):
        module, _, name = full.rpartition(".")
        assert hasattr(importlib.import_module(module), name), full


# The built site


SITES = {  # what stands on a page, and how the complaint about it ends
    "<p id='here'><a href='#here'>up</a> <a href='https://example.org/x'>away</a> <img src='own.png'></p>": (
        None
    ),
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
        (tmp_path / "index.html").write_text(
            f"<!doctype html><title>x</title>{body}", encoding="utf-8"
        )
        complaints = list(importlib.import_module("check_site").complaints(tmp_path))
        assert [line.endswith(complaint or "") for line in complaints] == [True] * (
            complaint is not None
        ), (body, complaints)


def test_a_site_whose_ridge_is_the_wrong_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    check_site = importlib.import_module("check_site")
    (tmp_path / "guide").mkdir()
    right = check_site.MEANT[("guide/choosing.html", "Ridge")]
    for address, complaints in ((f"{right}#sklearn.linear_model.Ridge", 0), ("#own", 1)):
        links = "".join(
            f"<a href='{address if text == 'Ridge' else meant}'><code>{text}</code></a>"
            for (name, text), meant in check_site.MEANT.items()
            if name == "guide/choosing.html"
        )
        (tmp_path / "guide" / "choosing.html").write_text(
            f"<!doctype html><title>x</title><p id='own'>{links}</p>", encoding="utf-8"
        )
        assert len(list(check_site.complaints(tmp_path))) == complaints


if __name__ == "__main__":
    if sys.argv[1:2] != ["--write"]:
        sys.exit(__doc__)
    for chosen in [Path(name).resolve() for name in sys.argv[2:]] or WITH_CODE:
        with tempfile.TemporaryDirectory() as place:
            changes = [
                (block.output_span, printed)
                for block, printed in differences(chosen, Path(place))
                if block.output_span
            ]
        written = chosen.read_text(encoding="utf-8")
        for (start, stop), printed in reversed(changes):
            written = written[:start] + printed + written[stop:]
        chosen.write_text(written, encoding="utf-8")
