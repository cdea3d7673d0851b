"""Shared by all tests. Every test is valid for any seed; `pytest --seeds 0-9` tries several."""


def pytest_addoption(parser):
    parser.addoption("--seeds", default="0", help="seeds of the `seed` fixture: 7, or 0-9")


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        first, _, last = metafunc.config.getoption("--seeds").partition("-")
        metafunc.parametrize("seed", range(int(first), int(last or first) + 1))
