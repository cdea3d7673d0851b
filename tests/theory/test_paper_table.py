"""The page that lists every numbered statement of the paper, with what computes and what checks it."""

import inspect
import re
from pathlib import Path

import pytest

import olsen
from loops import case

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory" / "paper.md").read_text(encoding="utf-8")
RELATED = (ROOT / "docs" / "theory" / "related.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Counted from the paper's source: numbered rows of align and multline, and theorem-like statements,
# which share one counter per section. Of the appendix, the equations that have a label.
APPENDIX_EQUATIONS = [54, 55, 71, 76, 77, 78, 109, 112, 133, 144, 145, 148, 150]
EQUATIONS = [*range(1, 44), *APPENDIX_EQUATIONS]
STATEMENTS = [
    "Theorem (preview)",
    "Assumption 3.1",
    "Lemma 3.2",
    "Lemma 3.3",
    "Assumption 3.4",
    "Theorem 3.5",
    "Theorem 3.6",
    "Corollary 3.7",
    "Lemma A.1",
    "Lemma A.2",
    "Proposition D.1",
    *(f"Figure {number}" for number in (1, 2, 3, 4)),
    *(f"Section 5.{number}" for number in (1, 2, 3)),
]


def table_rows():
    """Cells of every row of the tables of the page."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells for cells in rows if cells[0] != "paper"]


def names_in(cells):
    """Functions and estimators that a row names."""
    names = re.findall(r"`([A-Za-z_.]+)`", cells[2])
    return [name for name in names if name != "shared_rows"]


def named(name):
    """The function or estimator of a name such as theory.ridge_risk."""
    value = olsen
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_every_numbered_statement_is_listed_once():
    labels = ", ".join(cells[0] for cells in table_rows()).split(", ")
    numbers = sorted(int(label[1:-1]) for label in labels if re.fullmatch(r"\(\d+\)", label))
    assert numbers == EQUATIONS
    others = [label for label in labels if not re.fullmatch(r"\(\d+\)", label)]
    assert sorted(others) == sorted(STATEMENTS)


def test_every_row_has_a_statement_and_a_status():
    words = ("definition", "theorem", "exact", "asymptotic", "heuristic")
    for cells in table_rows():
        assert len(cells) == 6 and cells[1], cells
        assert cells[3].split(",")[0].split(" ")[0] in words, cells


@pytest.mark.parametrize("cells", table_rows(), ids=lambda cells: cells[0])
def test_what_a_row_names_exists(cells):
    names = names_in(cells)
    assert names, cells
    for name in names:
        assert callable(named(name)), name


def test_what_readme_names_exists():
    """The short table of README, and the lines around it."""
    section = README.partition("## From the paper")[2].partition("\n## ")[0]
    names = re.findall(r"`((?:theory\.)?[A-Za-z_]{5,})[`(]", section)
    assert len(names) >= 10
    for name in names:
        with case(name):
            assert callable(named(name))


def test_docstrings_have_the_numbers_of_the_paper():
    """What computes a statement says one of its numbers; figures are named by their own names."""
    for cells in table_rows():
        labels = [label for label in cells[0].split(", ") if not label.startswith("Figure")]
        for name in names_in(cells):
            text = " ".join(inspect.getdoc(named(name)).split()).replace("section 5", "Section 5")
            with case(cells[0], name):
                assert not labels or any(label in text for label in labels)


def test_related_methods_have_their_papers():
    """Every method that cites a year has an entry of each of its first authors, and no two entries
    have the same key; the calls exist.
    """
    table, _, entries = RELATED.partition("## References")
    keys = re.findall(r"^@\w+\{(\w+),$", entries, flags=re.M)
    assert len(keys) == len(set(keys)) > 12
    plain = entries.replace("{\\'n}", "ń").replace("{\\l}", "ł")
    papers = {
        (re.search(r"author += \{(\w+)", entry)[1], re.search(r"year += \{(\d+)", entry)[1])
        for entry in plain.split("\n@")[1:]
    }
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "name":
            cited = re.search(r"\((.*)\)$", cells[0])[1].split("; ")
            with case(cells[0]):
                for citation in cited:
                    authors, year = re.fullmatch(r"(.*) (\d{4})", citation).groups()
                    assert (re.split(r",| and ", authors)[0], year) in papers
                for name in re.findall(r"`((?:theory\.)?[A-Za-z_]{5,})[(`.]", cells[2]):
                    assert callable(named(name)), name


def test_every_named_test_exists_and_its_file_has_the_functions_of_the_row():
    files = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"^def (test_\w+)", text, flags=re.M):
            files.setdefault(name, []).append(text)
    for cells in table_rows():
        texts = [text for name in re.findall(r"`(test_\w+)`", cells[5]) for text in files[name]]
        for name in names_in(cells):
            function = name.rpartition(".")[2]
            with case(cells[0], name):
                assert any(re.search(rf"\b{function}\b", text) for text in texts)
