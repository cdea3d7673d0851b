"""The lasso along falling penalties: which columns least squares should look at. No member is penalised.

Compiled, or scikit-learn's where nothing is compiled.
"""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lasso_path

from . import compiled

__all__ = ["largest_penalty", "of_gram", "of_rows"]

Array = NDArray[np.float64]

TOL = 1e-7  # of the squared fit of the best column: coefficients only say where the signal lies
GAP = 1e-4  # of scikit-learn's, likewise
SWEEPS = 300  # at most, of collinear columns


def largest_penalty(C: Array) -> float:
    """The penalty from which on no column is in, from products (p, q) of columns and targets."""
    return float(np.linalg.norm(C, axis=1).max(initial=0.0))


def of_gram(G: Array, C: Array, shares: Array, most: float) -> Array:
    """Coefficients (penalties, p, q) at falling shares of the largest penalty, until more than `most` columns are in.

    G are products of columns with each other, C those with the targets.
    """
    from ._kernel.lasso import lasso_of_gram

    top, squares = largest_penalty(C), np.diagonal(G)
    return np.asarray(lasso_of_gram(G, C, shares * top, most, _tolerance(top, squares), SWEEPS))


def of_rows(A: Array, B: Array, C: Array, shares: Array, most: float) -> Array:
    """The same from columns A (n, p) in memory order and targets B (n, q), with C = A'B."""
    top = largest_penalty(C)
    if not top > 0:
        return np.zeros((1, *C.shape))
    if not compiled.there():
        return _of_scikit_learn(A, B, shares * top, most)
    from ._kernel.lasso import lasso_of_rows

    squares = np.einsum("lj,lj->j", A, A)
    return np.asarray(lasso_of_rows(A, B, squares, shares * top, most, _tolerance(top, squares), SWEEPS))


def _tolerance(top: float, squares: Array) -> float:
    """Of the squared change of a fit by one column; the largest fit by one is about this without the factor."""
    return TOL * top**2 / max(float(squares.max(initial=0.0)), 1e-300)


def _of_scikit_learn(A: Array, B: Array, penalties: Array, most: float) -> Array:
    single = B.shape[1] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # where the signal lies is all that is asked
        coefs = lasso_path(A, B[:, 0] if single else B, alphas=penalties / len(A), tol=GAP, max_iter=SWEEPS)[1]
    found = (coefs[None] if single else coefs).transpose(2, 1, 0)  # (penalties, p, q)
    many = np.flatnonzero(np.count_nonzero(np.any(found, axis=2), axis=1) > most)
    return np.asarray(found[: many[0] + 1] if len(many) else found)
