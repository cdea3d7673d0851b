r"""Columns that depend on others of their member: confirmed on the data, and the shortest solution.

The factorisation skips columns whose pivot is rounding. With I the kept columns and D the skipped ones, row c of the
factor holds :math:`L_{II}^{-1} G_{Ic}`, so that the coefficients of a skipped column on the kept ones,
:math:`w_c = G_{II}^{-1} G_{Ic}`, cost one back substitution. A Gram matrix cannot tell a column that depends on others
from one that nearly does: it sees squares. So :math:`x_c - X_I w_c` is computed from the data and must be rounding by
the very rule that an SVD of the member would be cut off by. Of w only what matters is kept: of one-hot columns the
levels of one factor, whatever else the member holds.

All solutions are then :math:`b_I = b^0 - W b_D`, and the shortest has

.. math:: b_D = (1 + W'W)^{-1}\, W' b^0

It is unique, whichever column of a dependent set was skipped. Status: exact.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .factor import JIT, layout, panel_size
from .refined import needs_data, refine
from .registers import LANES, RECORD, TILE, substitute_back_three

__all__ = ["AT_ONCE", "confirmed", "count_skipped", "mend", "relations"]

AT_ONCE = 3  # back substitutions in one pass
NEGLIGIBLE = 1e-9  # of the length of a relation: entries of w that are rounding of zeros, or part of no exact relation
LARGEST_SQUARE = 1e6  # of W in the users' units: 1 + W'W then keeps ten digits


@njit(**JIT)
def count_skipped(work, m, q, skipped):
    """Write the positions of the skipped columns into ``skipped`` and return their number."""
    records = layout(m, q)[2]
    count = 0
    for j in range(m):
        if work[records + RECORD * (j // LANES) + TILE + j % LANES] == 0.0:
            skipped[count] = j
            count += 1
    return count


@njit(**JIT)
def relations(work, m, q, skipped, count, spare):
    """Return W' (count, m): coefficients of every skipped column on the kept ones before it.

    ``spare`` is the offset of room for ``AT_ONCE`` solutions.
    """
    n_blocks, _, records, _, panels, _ = layout(m, q)
    length = LANES * n_blocks
    W = np.zeros((count, m), work.dtype)
    for first in range(0, count, AT_ONCE):
        now = min(AT_ONCE, count - first)
        work[spare : spare + AT_ONCE * length] = 0.0
        for t in range(now):
            c = skipped[first + t]
            row = panels + panel_size(c // LANES, n_blocks) + c % LANES
            for j in range(c):
                work[spare + length * t + j] = work[row + LANES * j]
        last = skipped[first + now - 1] // LANES
        for s in range(last, -1, -1):
            record, tile = records + RECORD * s, panels + panel_size(last, n_blocks) + TILE * s
            substitute_back_three(work, (record, tile, TILE * last, last - s, spare + LANES * s, length))
        for t in range(now):
            c, x = skipped[first + t], spare + length * t
            W[first + t, :c] = work[x : x + c]
    return W


@njit(**JIT)
def _keep_what_matters(w, c, lengths):
    """Set negligible coefficients of column ``c`` to zero; return the squared length of the relation.

    Lengths are those of the columns, so that the relation is one of columns of unit length.
    """
    total = lengths[c] ** 2
    for j in range(c):
        total += (w[j] * lengths[j]) ** 2
    limit = NEGLIGIBLE * np.sqrt(total)
    for j in range(c):
        if abs(w[j]) * lengths[j] <= limit:
            w[j] = 0.0
    return total


@njit(**JIT)
def _holds(A, own, w, c, square, relative, far, residual):
    """Whether column ``c`` less ``w`` of the others is rounding: ``A`` (p, n) holds columns about their means.

    The rule is that of ``_trust.Cutoff``: below ``relative`` of the relation's length, or below what taking the means
    out has rounded, ``far``.
    """
    noise = far[own[c]] ** 2
    residual[:] = A[own[c]]
    for j in range(c):
        if w[j] != 0.0:
            noise += (far[own[j]] * w[j]) ** 2
            column, factor = A[own[j]], w[j]
            for l in range(residual.size):
                residual[l] -= factor * column[l]
    left = 0.0
    for l in range(residual.size):
        left += residual[l] * residual[l]
    return left <= max(relative * relative * square, noise)


@njit(**JIT)
def _refine(A, own, w, c, residual):
    """Correct ``w`` by least squares of the residual on the columns that matter: what the Gram matrix had rounded."""
    kept = np.flatnonzero(w[:c])
    size = kept.size
    if size == 0 or size > 64:
        return
    G, right = np.zeros((size, size)), np.zeros(size)
    for a in range(size):
        column = A[own[kept[a]]]
        for l in range(residual.size):
            right[a] += column[l] * residual[l]
        for b in range(a + 1):
            other = A[own[kept[b]]]
            for l in range(residual.size):
                G[a, b] += column[l] * other[l]
    if _solve_lower(G, right):
        for a in range(size):
            w[kept[a]] += right[a]


@njit(**JIT)
def _solve_lower(G, x):
    """Overwrite ``x`` by G^-1 x, given the lower triangle of G, which is lost; False where that breaks down."""
    d = x.size
    for i in range(d):
        for j in range(i + 1):
            value = G[i, j]
            for k in range(j):
                value -= G[i, k] * G[j, k]
            if i == j:
                if not value > 0.0:
                    return False
                G[i, i] = np.sqrt(value)
            else:
                G[i, j] = value / G[j, j]
    for i in range(d):
        for k in range(i):
            x[i] -= G[i, k] * x[k]
        x[i] /= G[i, i]
    for i in range(d - 1, -1, -1):
        for k in range(i + 1, d):
            x[i] -= G[k, i] * x[k]
        x[i] /= G[i, i]
    return True


@njit(**JIT)
def confirmed(A, own, W, skipped, lengths, relative, far, residual):
    """Whether all relations hold on the data; refined, and without their negligible parts, where they do."""
    for i in range(W.shape[0]):
        c, w = skipped[i], W[i]
        square = _keep_what_matters(w, c, lengths)
        if _holds(A, own, w, c, square, relative, far, residual):
            continue
        _refine(A, own, w, c, residual)
        if not _holds(A, own, w, c, square, relative, far, residual):
            return False
    return True


@njit(**JIT)
def mend(work, m, q, A, own, Y, lengths, relative, far, values, ratio, probed, skipped, count, spare):
    """Finish on the data what the Gram matrix alone does not tell: refine the solution, and make it the shortest.

    Returns whether it is to be believed.
    """
    if needs_data(ratio, probed) and not refine(work, m, q, A, own, Y, lengths, values, probed, spare):
        return False
    if count == 0:
        return True
    W = relations(work, m, q, skipped, count, spare)
    return confirmed(A, own, W, skipped, lengths, relative, far, np.empty(A.shape[1])) and _shorten(W, skipped, values)


@njit(**JIT)
def _shorten(W, skipped, values):
    """Turn solutions that are zero at the skipped columns, (m, q), into the shortest ones; False: not trusted."""
    d, m = W.shape
    T = np.zeros((d, d))
    total = 0.0
    for a in range(d):
        for b in range(a + 1):
            product = 1.0 if a == b else 0.0
            for j in range(m):
                product += W[a, j] * W[b, j]
            T[a, b] = product
        total += T[a, a] - 1.0
    if not total <= LARGEST_SQUARE:
        return False
    for t in range(values.shape[1]):
        x, own = np.zeros(d), T.copy()
        for a in range(d):
            for j in range(m):
                x[a] += W[a, j] * values[j, t]
        if not _solve_lower(own, x):
            return False
        for a in range(d):
            for j in range(m):
                values[j, t] -= W[a, j] * x[a]
            values[skipped[a], t] += x[a]
    return True
