"""Faults are counted: what was injected, how often, how it ended, what was lost. The table is
printed at the end.
"""

from collections import Counter
from pathlib import Path

import pytest
from children import Child, Ended, one_line

ROWS = pytest.StashKey[dict]()


class Fault:
    """One line of the table."""

    def __init__(self):
        self.outcomes = Counter()
        self.lost = []
        self.slowest = None

    def add(self, outcome, seconds=None):
        """Count a harmless end, and how long it took to come."""
        self.outcomes[outcome] += 1
        if seconds is not None:
            self.slowest = max(seconds, self.slowest or 0.0)

    def lose(self, loss):
        """Count something that was lost, in words."""
        self.outcomes["LOST"] += 1
        self.lost.append(loss)

    def judge(self, child, fine, words="", longest=120.0):
        """Count how a child ended: an answer that is none of the fine ones is lost, as is a child
        without any.
        """
        try:
            answer = child.answer(longest)
        except Ended as error:
            return self.lose(f"{error} {words}")
        return self.add(answer) if answer in fine else self.lose(f"{answer} {words}")

    def command(self, folder, damage, function, *arguments):
        """Count how a command in a child ended: well, or with one line; ``damage(code)`` names what
        it left behind.
        """
        try:
            code = Child(function, *arguments, stderr=str(folder / "err")).answer()
        except Ended as error:
            return self.lose(str(error))
        message = (folder / "err").read_text()
        (folder / "err").unlink()
        damaged = damage(code)
        if damaged or not (code == 0 or one_line(code, message)):
            return self.lose(f"{damaged}, {code}: {message[-300:]}")
        return self.add("right" if code == 0 else "one line, exit code 1")


def pytest_addoption(parser):
    parser.addoption(
        "--faults-table", default=None, help="write the table of faults, as Markdown, to this file"
    )


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "faults: real faults injected into fits and commands, run by `make test-faults`"
    )
    config.stash[ROWS] = {}


@pytest.fixture
def fault(request):
    """``fault(words)`` is the line of the table with the words; the test fails if anything was lost."""
    rows = request.config.stash[ROWS]
    mine = []

    def line(words):
        mine.append(rows.setdefault(words, Fault()))
        return mine[-1]

    yield line
    lost = [loss for row in mine for loss in row.lost]
    assert not lost, lost[:5]


def _table(rows):
    yield "| fault | injected | ended as | slowest | lost |"
    yield "|---|---|---|---|---|"
    for words, row in rows.items():
        ended = ", ".join(f"{name} {count}" for name, count in sorted(row.outcomes.items()))
        slowest = "" if row.slowest is None else f"{row.slowest:.2f} s"
        yield (
            f"| {words} | {row.outcomes.total()} | {ended} | {slowest} |"
            f" {len(row.lost) or 'nothing'} |"
        )


def pytest_terminal_summary(terminalreporter, config):
    rows = {words: row for words, row in config.stash[ROWS].items() if row.outcomes}
    if not rows:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line("\n".join(_table(rows)))
    path = config.getoption("--faults-table", None)
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("\n".join([*_table(rows), ""]), encoding="utf-8")
