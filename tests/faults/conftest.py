"""Faults are counted: what was injected, how often, how it ended, what was lost. The table is printed at the end."""

from collections import Counter
from pathlib import Path

import pytest
from children import Ended

ROWS = pytest.StashKey[dict]()


class Fault:
    """One line of the table."""

    def __init__(self):
        self.outcomes, self.lost, self.slowest = Counter(), [], None

    def add(self, outcome, seconds=None):
        """Count a harmless end, and how long it took to come."""
        self.outcomes[outcome] += 1
        if seconds is not None:
            self.slowest = max(seconds, self.slowest or 0.0)

    def lose(self, what):
        """Count something that was lost, in words."""
        self.outcomes["LOST"] += 1
        self.lost.append(what)

    def judge(self, child, fine=(), words=""):
        """Count how a child ended: an answer that is none of the fine ones is lost, as is a child without any."""
        try:
            answer = child.answer()
        except Ended as error:
            return self.lose(f"{error} {words}")
        return self.add(answer) if answer in fine else self.lose(f"{answer} {words}")

    @property
    def times(self):
        return sum(self.outcomes.values())


def pytest_addoption(parser):
    parser.addoption("--faults-table", default=None, help="write the table of faults, as Markdown, to this file")


def pytest_configure(config):
    config.addinivalue_line("markers", "faults: real faults injected into fits and commands, run by `make test-faults`")
    config.stash[ROWS] = {}


@pytest.fixture
def fault(request):
    """``fault(words)`` is the line of the table with these words; the test fails if anything was lost."""
    rows, mine = request.config.stash[ROWS], []

    def line(words):
        mine.append(rows.setdefault(words, Fault()))
        return mine[-1]

    yield line
    lost = [what for row in mine for what in row.lost]
    assert not lost, lost[:5]


def _table(rows):
    yield "| fault | injected | ended as | slowest | lost |"
    yield "|---|---|---|---|---|"
    for words, row in rows.items():
        ended = ", ".join(f"{name} {count}" for name, count in sorted(row.outcomes.items()))
        slowest = "" if row.slowest is None else f"{row.slowest:.2f} s"
        yield f"| {words} | {row.times} | {ended} | {slowest} | {len(row.lost) or 'nothing'} |"


def pytest_terminal_summary(terminalreporter, config):
    rows = {words: row for words, row in config.stash[ROWS].items() if row.times}
    if not rows:
        return
    lines = list(_table(rows))
    terminalreporter.section("faults")
    for line in lines:
        terminalreporter.write_line(line)
    path = config.getoption("--faults-table", None)
    if path:
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
