"""Loops over many cases, whose failures name the case that they happened in; data and refusals of many tests."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest


@contextmanager
def case(*what):
    """Add to whatever fails inside in which case it did: ``for n in sizes: with case(n): ...``."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, what))}")
        raise


def linear_data(seed, n, p, q=None, *, far=20.0):
    """X with columns about means far from zero, y (n,) or Y (n, q) of a linear model, and weights of 0, 1 and 2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + far * rng.standard_normal(p)
    Y = X @ rng.standard_normal((p, q or 1)) + rng.standard_normal((n, q or 1)) + 7
    return X, Y if q else Y[:, 0], rng.integers(0, 3, n).astype(float)


def assert_refused(model, given, *facts, error=ValueError):
    """With words that hold these facts, and an estimator that is as it was; no warning comes before."""
    before = dict(vars(model))
    with warnings.catch_warnings(), pytest.raises(error) as raised:
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Dask currently has limited support")
        model.fit(*given)
    assert all(str(fact) in str(raised.value) for fact in facts), raised.value
    assert vars(model) == before
