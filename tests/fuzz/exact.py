r"""Least squares in extended precision: the oracle of the fuzz suite.

Householder QR with column pivoting in long double (64 bits of mantissa on x86), columns of unit
length, the solution of minimum norm in the users' units where columns are dependent. Problems of
the suite are dependent exactly or not at all, so the rank is read off the pivots with twelve digits
to spare.
"""

from __future__ import annotations

import numpy as np

LONG = np.longdouble
EPS = float(np.finfo(np.float64).eps)
# pivot of columns of unit length; exact dependence leaves 1e-18, the closest others 1e-10
DEPENDENT = 1e-15


def householder(A, B, tolerance=DEPENDENT):
    """Pivoted QR: R (r, m), Q'B (r, q), order of the columns, and the residual sum of squares of B."""
    A = A.copy()
    B = B.copy()
    order = np.arange(A.shape[1])
    first = 0
    rank = 0
    for j in range(min(A.shape)):
        norms = (A[j:, j:] ** 2).sum(axis=0)
        best = j + int(np.argmax(norms))
        length = np.sqrt(norms.max())
        first = first or length
        if not length > tolerance * first:
            break
        A[:, [j, best]], order[[j, best]] = A[:, [best, j]], order[[best, j]]
        v = A[j:, j].copy()
        v[0] += length if v[0] >= 0 else -length
        v /= np.sqrt(v @ v)
        A[j:, j:] -= 2 * np.outer(v, v @ A[j:, j:])
        B[j:] -= 2 * np.outer(v, v @ B[j:])
        rank += 1
    return A[:rank], B[:rank], order, (B[rank:] ** 2).sum(axis=0)


def back_substitute(R, C):
    out = np.zeros((R.shape[1], C.shape[1]), dtype=LONG)
    for i in range(R.shape[0] - 1, -1, -1):
        out[i] = (C[i] - R[i, i + 1 :] @ out[i + 1 :]) / R[i, i]
    return out


def least_squares(A, B):
    """Solution of minimum norm (m, q), rank, condition number of the columns at unit length, and
    the residual sum of squares of B.
    """
    length = np.sqrt((A**2).sum(axis=0))
    live = np.flatnonzero(length > 0)
    coef = np.zeros((A.shape[1], B.shape[1]), dtype=LONG)
    if not len(live) or not len(A):
        return coef, 0, 1.0, (B**2).sum(axis=0)
    R, QB, order, remaining = householder(A[:, live] / length[live], B)
    rank = len(R)
    if rank < len(live):
        coef[live] = shortest(R, QB, order, length[live])
    else:
        coef[live[order]] = back_substitute(R, QB) / length[live][order][:, None]
    s = np.linalg.svd(R.astype(float), compute_uv=False)
    return coef, rank, float(s[0] / s[-1]), remaining


def shortest(R, QB, order, length):
    """Minimum norm of b with R (length * b) = QB, R (r, m) of full row rank, columns of R in the
    given order.

    From M = diag(length) R', rows in falling order, by Householder with column pivoting: M P = Q
    [T; 0], b = Q [T'^-1 P' QB; 0]. The order of the rows makes it accurate in any units.
    """
    M = R.T * length[order][:, None]
    falling = np.argsort(-np.abs(M).max(axis=1), kind="stable")
    T, Q, pivots, _ = householder(M[falling], np.eye(len(M), dtype=LONG), 0.0)
    w = np.zeros((len(T), QB.shape[1]), dtype=LONG)
    for i in range(len(T)):  # forward substitution with T'
        w[i] = (QB[pivots[i]] - T[:i, i] @ w[:i]) / T[i, i]
    b = np.zeros((len(M), QB.shape[1]), dtype=LONG)
    b[order[falling]] = Q.T @ w
    return b


class Member:
    """One least-squares fit in extended precision."""

    def __init__(self, X, Y, weight, fit_intercept):
        X = X.astype(LONG)
        Y = Y.astype(LONG)
        w = np.ones(len(X), dtype=LONG) if weight is None else weight.astype(LONG) / weight.max()
        total = w.sum()
        mean_x, mean_y = (w @ X / total, w @ Y / total) if fit_intercept else (0 * X[0], 0 * Y[0])
        root = np.sqrt(w)[:, None]
        self.A = (X - mean_x) * root
        self.B = (Y - mean_y) * root
        if fit_intercept:  # a constant column is exactly zero
            self.A[:, (X[:1] == X).all(axis=0)] = 0
        self.coef, self.rank, self.condition, self.left = least_squares(self.A, self.B)
        self.intercept = mean_y - mean_x @ self.coef if fit_intercept else 0 * mean_y
        self.mean_y = mean_y
        self.length = np.sqrt((self.A**2).sum(axis=0))
        live = self.length > 0
        offsets = np.abs(mean_x) * np.sqrt(total) / np.where(live, self.length, 1)
        self.offset = float(np.max(offsets[live], initial=0.0)) if fit_intercept else 0.0

    def size(self):
        """Size of the solution in the units of the targets, (q,)."""
        return np.sqrt(((self.coef * self.length[:, None]) ** 2).sum(axis=0))
