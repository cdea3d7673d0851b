"""The page that lists the statements and equations of the paper, with what computes and checks them."""

import ast
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
# which share one counter per section. Of the 107 equations of the appendix, those that have a label, and
# those of Lemma A.1 (44, 45), Lemma A.2 (46, 47) and Proposition D.1 (74).
LABELLED_EQUATIONS = [54, 55, 71, 76, 77, 78, 109, 112, 133, 144, 145, 148, 150]
APPENDIX_EQUATIONS = sorted([44, 45, 46, 47, 74, *LABELLED_EQUATIONS])
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


def test_the_page_says_what_it_lists_and_what_it_leaves_out():
    """Ranges such as (44) to (47) and single numbers, of the sentence on the appendix."""
    sentence = " ".join(PAGE.partition("of the appendix the equations")[2].split())
    listed, _, rest = sentence.partition(". ")
    numbers = []
    for first, last in re.findall(r"\((\d+)\)(?: to \((\d+)\))?", listed):
        numbers += range(int(first), int(last or first) + 1)
    assert sorted(numbers) == APPENDIX_EQUATIONS
    assert f"The other {107 - len(APPENDIX_EQUATIONS)} equations" in rest


def test_every_row_has_a_statement_and_a_status():
    words = ("definition", "theorem", "exact", "asymptotic", "heuristic")
    for cells in table_rows():
        assert len(cells) == 6 and cells[1], cells
        assert cells[3].startswith(words), cells


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
                assert len(re.findall(r"[.](?= |$)", cells[1])) == 2, "two sentences"
                for citation in cited:
                    authors, year = re.fullmatch(r"(.*) (\d{4})", citation).groups()
                    assert (re.split(r",| and ", authors)[0], year) in papers
                for name in re.findall(r"`((?:theory\.)?[A-Za-z_]{5,})[(`.]", cells[2]):
                    assert callable(named(name)), name


class TestFile:
    """The functions of a test file, and the public names of olsen that each of them uses."""

    __test__ = False  # no class of tests

    def __init__(self, path):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.aliases = {}  # local name -> dotted name below olsen; olsen itself is ""
        self.definitions = {}  # functions and constants of the module
        for node in tree.body:
            if isinstance(node, ast.Import):
                for name in node.names:
                    if name.name == "olsen":
                        self.aliases[name.asname or name.name] = ""
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "olsen":
                package = node.module.partition(".")[2]
                for name in node.names:
                    dotted = f"{package}.{name.name}" if package else name.name
                    self.aliases[name.asname or name.name] = dotted
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.definitions[node.name] = node
            elif isinstance(node, ast.Assign):
                targets = [target for target in node.targets if isinstance(target, ast.Name)]
                self.definitions |= {target.id: node for target in targets}

    def used_by(self, function):
        """Dotted names that a function uses itself, or through helpers, fixtures and constants of
        the same file.
        """
        used = set()
        visited = set()
        waiting = [function]
        while waiting:
            name = waiting.pop()
            if name in visited or name not in self.definitions:
                continue
            visited.add(name)
            for node in ast.walk(self.definitions[name]):
                if isinstance(node, ast.Name):
                    waiting.append(node.id)
                elif isinstance(node, ast.arg):  # fixtures are arguments
                    waiting.append(node.arg)
                used.add(self.dotted(node))
        return used - {None}

    def dotted(self, node):
        """The name below olsen of an expression such as theory.ridge_risk; None: another one."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return None if owner is None else f"{owner}.{node.attr}".lstrip(".")
        return None


def test_the_paper_is_cited_in_the_same_way_everywhere():
    pattern = r"@inproceedings\{lejeune2020implicit,.*?\n\}"
    pages = (ROOT / "docs" / "cite.md", ROOT / "docs" / "theory" / "related.md")
    entries = {re.search(pattern, page.read_text(encoding="utf-8"), re.S)[0] for page in pages}
    assert len(entries) == 1
    (entry,) = entries
    for fact in ("volume    = {108}", "pages     = {3525--3535}", "year      = {2020}"):
        assert fact in entry


def test_every_named_test_is_one_test_whose_body_uses_the_functions_of_the_row():
    files = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        file = TestFile(path)
        for name in file.definitions:
            if name.startswith("test_"):
                files.setdefault(name, []).append(file)
    for cells in table_rows():
        used = set()
        for test in re.findall(r"`(test_\w+)`", cells[5]):
            with case(cells[0], test):
                (file,) = files[test]  # names of tests are unique
                used |= file.used_by(test)
        for name in names_in(cells):
            with case(cells[0], name):
                assert name in used


def test_names_used_by_a_test_are_found_through_helpers_and_not_in_its_neighbours(tmp_path):
    path = tmp_path / "test_example.py"
    path.write_text(
        "from olsen import theory\n"
        "from olsen.theory import limits as of_limits\n"
        "import olsen\n"
        "CASES = [olsen.OLSEnsembleRegressor]\n"
        "def helper():\n    return theory.ridge_risk\n"
        "def fixture():\n    return helper()\n"
        "def test_one(fixture):\n    return CASES, of_limits.optimal_alpha\n"
        "def test_two(other):\n    ridge_risk = other.theory.ridge_risk\n"
    )
    file = TestFile(path)
    names = {"theory.ridge_risk", "OLSEnsembleRegressor", "theory.limits.optimal_alpha"}
    assert names <= file.used_by("test_one")
    assert file.used_by("test_two") == set()
