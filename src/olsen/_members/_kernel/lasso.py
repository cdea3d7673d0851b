r"""The lasso along falling penalties, by coordinate descent: where the signal of some columns lies.

For targets B (n, q) it minimises :math:`\tfrac12 \|B - A b\|^2 + \lambda \sum_j |b_j|`, with :math:`|b_j|` the length
of a row of coefficients: columns come in for all targets. A step sets one row to its best value given the others,

.. math:: b_j = \frac{z}{s_j} \Bigl(1 - \frac{\lambda}{|z|}\Bigr)_+, \qquad z = a_j' (B - A b) + s_j b_j,
          \qquad s_j = a_j' a_j.

Sweeps over the columns that are in follow a sweep over all of them, until a sweep over all changes nothing.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from .factor import JIT
from .first_use import said_if_compiled

__all__ = ["lasso_of_gram", "lasso_of_rows"]

Array = NDArray[np.float64]


@njit(fastmath={"reassoc", "contract"}, **JIT)
def _dot(a, b):
    """In any order of the terms, so that they are summed several at a time."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@njit(**JIT)
def _sweep(M, squares, b, left, penalty, from_rows, inside, everything, z):
    """Set every row of coefficients that is in, or every one, to its best value; the largest change of the fit.

    From rows, ``M`` is (p, n) and ``left`` B - A b, (q, n); else ``M`` is A'A and ``left`` A'(B - A b), (q, p).
    """
    change = 0.0
    for j in range(b.shape[0]):
        if squares[j] <= 0.0 or not (everything or inside[j]):
            continue
        length = 0.0
        for t in range(z.size):
            z[t] = (_dot(M[j], left[t]) if from_rows else left[t, j]) + squares[j] * b[j, t]
            length += z[t] * z[t]
        length = np.sqrt(length)
        factor = 0.0 if length <= penalty else (1 - penalty / length) / squares[j]
        moved = 0.0
        for t in range(z.size):
            step = factor * z[t] - b[j, t]
            if step != 0.0:
                b[j, t] += step
                moved += step * step
                for i in range(M.shape[1]):
                    left[t, i] -= M[j, i] * step
        if moved > 0.0:
            inside[j] = True
            change = max(change, moved * squares[j])
    return change


@njit(**JIT)
def _path(M, left, squares, penalties, most, tol, sweeps, from_rows):
    p, q = M.shape[0], left.shape[0]
    found, b = np.zeros((penalties.size, p, q)), np.zeros((p, q))
    inside, z = np.zeros(p, np.bool_), np.zeros(q)
    for i in range(penalties.size):
        everything = True
        for _ in range(sweeps):
            settled = _sweep(M, squares, b, left, penalties[i], from_rows, inside, everything, z) <= tol
            if settled and everything:
                break
            everything = settled
        found[i] = b
        count = 0
        for j in range(p):
            count += np.any(b[j] != 0.0)
        if count > most:
            return found[: i + 1]
    return found


def lasso_of_gram(G: Array, C: Array, penalties: Array, most: float, tol: float, sweeps: int) -> Array:
    """Coefficients (penalties, p, q) from ``G = A'A`` and ``C = A'B``, until more than `most` columns are in.

    A sweep that changes no fit by more than `tol`, squared, is the last for a penalty.
    """
    left = np.array(C.T, order="C")
    with said_if_compiled(_path):
        return _path(np.ascontiguousarray(G), left, np.diagonal(G).copy(), penalties, float(most), tol, sweeps, False)


def lasso_of_rows(A: Array, B: Array, squares: Array, penalties: Array, most: float, tol: float, sweeps: int) -> Array:
    """The same from columns ``A`` (n, p) in memory order and targets ``B`` (n, q)."""
    left = np.array(B.T, order="C")
    with said_if_compiled(_path):
        return _path(np.ascontiguousarray(A.T), left, squares, penalties, float(most), tol, sweeps, True)
