"""Loops over many cases, whose failures name the case that they happened in; and refusals."""

import warnings
from contextlib import contextmanager

import pytest


@contextmanager
def case(*what):
    """Add to whatever fails inside in which case it did: ``for n in sizes: with case(n): ...``."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, what))}")
        raise


def assert_refused(model, given, *facts, error=ValueError):
    """With words that hold these facts, and an estimator that is as it was; no warning comes
    before.
    """
    before = dict(vars(model))
    with warnings.catch_warnings(), pytest.raises(error) as raised:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Dask currently has limited support")
        model.fit(*given)
    assert all(str(fact) in str(raised.value) for fact in facts), raised.value
    assert vars(model) == before
