r"""Members on principal submatrices of a Gram matrix, by Cholesky.

.. math:: G_{SS}\, b = c_S , \qquad G_{SS} = L L'

The fastest way and the least accurate one: G squares the condition number of X. So every factor is watched: with
:math:`D = \mathrm{diag}(G)^{1/2}`, the norm of :math:`D G^{-1} D` (the inverse correlation matrix, whose diagonal holds
the variance inflation factors) is estimated by one more solve. Members above ``LIMIT``, or whose factorisation breaks
down, may have lost more than five digits; they are solved again from the data, never from this matrix, and counted.

The smallest pivot alone is not enough: :math:`L_{jj}^2 / G_{jj}` is the share of column j that the columns *before* it
leave unexplained, and the later ones can hide it too. On NIST's Wampler polynomials it is 3e-5 where the norm is 6e5.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from . import orthogonal
from .problem import Problem, Solution

__all__ = ["solve_own", "solve_shared"]

LIMIT = 1e5  # largest trusted norm of the inverse correlation matrix


def solve_shared(problem: Problem, features, samples, mapper) -> Solution:
    """All members from the Gram matrix of all rows."""
    moments = problem.moments
    alive = np.diagonal(moments.G) > 0
    G = moments.G if alive.all() else moments.G + np.diag((~alive).astype(float))  # constant columns: coefficient 0

    def solve_one(i):
        S = features[i]
        coef = _cholesky_solve(G[np.ix_(S, S)], moments.C[S])
        refit = coef is None
        if refit:
            part = problem.submatrix(S, None)
            coef = orthogonal.least_squares(part.A, part.B, problem.rcond)
        return coef, moments.mean_y - moments.mean_x[S] @ coef, refit

    return Solution.member_by_member(solve_one, features.sizes, problem.Y.shape[1], "gram", mapper)


def solve_own(problem: Problem, features, samples, mapper) -> Solution:
    """Each member from the Gram matrix of its own rows and columns."""

    def solve_one(i):
        part = problem.submatrix(features[i], None if samples is None else samples[i])
        G = part.A.T @ part.A
        G[np.diagonal(G) == 0, np.diagonal(G) == 0] = 1.0
        coef = _cholesky_solve(G, part.A.T @ part.B)
        refit = coef is None
        if refit:
            coef = orthogonal.least_squares(part.A, part.B, problem.rcond)
        return coef, part.intercept(coef), refit

    return Solution.member_by_member(solve_one, features.sizes, problem.Y.shape[1], "member_gram", mapper)


def _cholesky_solve(G, C):
    """Solution of G b = C, or None when G is not to be trusted."""
    if not len(G):
        return np.zeros_like(C)
    L, info = la.lapack.dpotrf(G, lower=True, clean=False)
    if info:
        return None
    b = la.lapack.dpotrs(L, C, lower=True)[0]
    return b if _inverse_norm(L, np.sqrt(np.diagonal(G)), b[:, 0]) < LIMIT else None


def _inverse_norm(L, D, b):
    """Lower estimate of the norm of D G^-1 D: one step of the power method.

    The start is the solution itself, already rich in the directions G^-1 blows up, plus alternating signs in case it
    happens to have none; these weigh half, so that the two cannot cancel.
    """
    t = D * b
    t = t / (np.linalg.norm(t) or 1.0) + np.resize([0.5, -0.5], len(b)) / np.sqrt(len(b))
    w = D * la.lapack.dpotrs(L, D * t, lower=True)[0]
    return np.linalg.norm(w) / np.linalg.norm(t)
