"""Shared by all tests. Every test is valid for any seed; `pytest --seeds 0-9` tries several.

Hypothesis draws the same examples in every run; with ``HYPOTHESIS_PROFILE=random`` new ones, and it
remembers failures.
"""

import os

import pytest
from hypothesis import settings

from olsen import cli

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("random", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_addoption(parser):
    parser.addoption("--seeds", default="0", help="seeds of the `seed` fixture: 7, or 0-9")


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        first, _, last = metafunc.config.getoption("--seeds").partition("-")
        metafunc.parametrize("seed", range(int(first), int(last or first) + 1))


@pytest.fixture
def olsen(capsys):
    """Run the command line in this process: exit code, standard output, error stream."""

    def run(*arguments):
        code = cli.main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def pipe_in():
    """Make a pipe that holds these bytes the standard input of this process."""
    kept = os.dup(0)

    def put(content):
        read, write = os.pipe()
        os.write(write, content)  # fewer than a pipe takes before somebody reads
        os.close(write)
        os.dup2(read, 0)
        os.close(read)

    yield put
    os.dup2(kept, 0)
    os.close(kept)


@pytest.fixture
def until_closed():
    """A function that gives all that is written to a pseudo-terminal until its other side is
    closed.
    """
    return _until_closed


def _until_closed(terminal):
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux says so when the other side is closed
            part = b""
        if not part:
            os.close(terminal)
            return b"".join(parts).decode()
        parts.append(part)
