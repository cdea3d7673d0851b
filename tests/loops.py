"""Loops over many cases, whose failures name the case that they happened in; and refusals."""

import warnings
from contextlib import contextmanager

import pytest


@contextmanager
def case(*description):
    """Name the case in which a check fails: ``for n in sizes: with case(n): ...``."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, description))}")
        raise


def assert_refused(model, fit_arguments, *facts, error=ValueError):
    """A fit ends in a message with all facts, warns of nothing and leaves the estimator unchanged."""
    before = dict(vars(model))
    with warnings.catch_warnings(), pytest.raises(error) as raised:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Dask currently has limited support")
        model.fit(*fit_arguments)
    assert all(str(fact) in str(raised.value) for fact in facts), raised.value
    assert vars(model) == before
