"""Loops over many cases: the failure names the case that it happened in."""

from contextlib import contextmanager


@contextmanager
def case(*what):
    """Add to whatever fails inside in which case it did: ``for n in sizes: with case(n): ...``."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, what))}")
        raise
