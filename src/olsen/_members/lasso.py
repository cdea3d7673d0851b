"""The lasso along falling penalties: which columns least squares should look at. No member is penalised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .. import _kernel

__all__ = ["largest_penalty", "of_gram", "of_rows"]

Array = NDArray[np.float64]

TOL = 1e-7  # of the squared fit of the best column: coefficients only say where the signal lies
SWEEPS = 300  # at most, of collinear columns


def largest_penalty(C: Array) -> float:
    """The penalty from which on no column is in, from products (p, q) of columns and targets."""
    return float(np.linalg.norm(C, axis=1).max(initial=0.0))


def of_gram(G: Array, C: Array, shares: Array, most: float) -> Array:
    """Coefficients (penalties, p, q) at falling shares of the largest penalty, until more than `most` columns are in.

    G are products of columns with each other, C those with the targets.
    """
    return _path(np.ascontiguousarray(G), C, np.diagonal(G).copy(), C, shares, most, False)


def of_rows(A: Array, B: Array, C: Array, shares: Array, most: float) -> Array:
    """The same from columns A (n, p) in memory order and targets B (n, q), with C = A'B."""
    if not largest_penalty(C) > 0:
        return np.zeros((1, *C.shape))
    return _path(np.ascontiguousarray(A.T), B, np.einsum("lj,lj->j", A, A), C, shares, most, True)


def _path(M: Array, targets: Array, squares: Array, C: Array, shares: Array, most: float, from_rows: bool) -> Array:
    """Down to a squared change of a fit by one column that is small beside the largest fit by one."""
    top, found = largest_penalty(C), np.empty((len(shares), *C.shape))
    tol = TOL * top**2 / max(float(squares.max(initial=0.0)), 1e-300)
    left = np.array(targets.T, order="C")
    count = _kernel.lasso_path(M, left, squares, shares * top, float(most), tol, SWEEPS, from_rows, found)
    return found[:count]
