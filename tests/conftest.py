"""Shared by all tests. Every test is valid for any seed; `pytest --seeds 0-9` tries several.

Hypothesis draws the same examples in every run; with ``HYPOTHESIS_PROFILE=random`` new ones, and it
remembers failures.
"""

import json
import os

import pytest
from hypothesis import settings

from loops import case
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
    """Run the command line in this process: exit code, standard output, error stream.

    Options may be keywords: ``olsen("fit", path, target="y", json=True)``.
    """

    def run(*arguments, **options):
        words = [str(argument) for argument in arguments]
        for name, value in options.items():
            words.append("--" + name.replace("_", "-"))
            if value is not True:
                words.append(str(value))
        code = cli.main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def olsen_json(olsen):
    """Run a command with --json, which must succeed without a message; its output, parsed."""

    def run(*arguments, **options):
        code, out, err = olsen(*arguments, "--json", **options)
        assert (code, err) == (0, ""), err
        return json.loads(out)

    return run


@pytest.fixture
def olsen_refuses(olsen):
    """Run a command, which must end with an exit code and one line that holds all words."""

    def run(*arguments, words, code=1, **options):
        actual_code, out, err = olsen(*arguments, **options)
        with case(arguments, options, err):
            assert (actual_code, out) == (code, "")
            assert_one_line(err)
            assert all(word in err for word in ([words] if isinstance(words, str) else words))
        return err

    return run


def assert_one_line(text):
    """A message of the command is one line that names it; problems of a table and the command that
    would work follow in lines of their own, which are indented.
    """
    first, *others = text.splitlines()
    assert first.startswith("olsen: ") and text.endswith("\n") and "Traceback" not in text, text
    assert all(line.startswith("  ") for line in others), text


@pytest.fixture
def pipe_in():
    """Function that makes a pipe with given content the standard input of this process."""
    standard_input = os.dup(0)

    def put(content):
        read, write = os.pipe()
        os.write(write, content)  # fewer bytes than the buffer of a pipe
        os.close(write)
        os.dup2(read, 0)
        os.close(read)

    yield put
    os.dup2(standard_input, 0)
    os.close(standard_input)


@pytest.fixture
def until_closed():
    """Function that reads a pseudo-terminal until its other side is closed."""
    return _read_until_closed


def _read_until_closed(terminal):
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
