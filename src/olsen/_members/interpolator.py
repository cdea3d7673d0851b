r"""Members with fewer rows than columns: the minimum-norm interpolator.

.. math:: b = A' (A A')^{-1} B

With an intercept the rows are centred, :math:`r' A = 0` for the vector r of root weights, so :math:`A A'` is singular
by construction. Adding :math:`c\, r r'` makes it definite and changes nothing: r' B = 0 as well.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._trust import nothing_but_rounding, pivots_are_trusted, power_of_two
from ..subsets import Subsets
from . import orthogonal
from .problem import Problem, Solution

__all__ = ["minimum_norm", "solve"]

Array = NDArray[np.float64]

NAME = "interpolator"


def solve(problem: Problem, features: Subsets, samples: Subsets | None, mapper: Sharing) -> Solution:
    """Minimum-norm solution of every member."""

    def solve_one(i: int) -> tuple[Array, Array, bool]:
        part = problem.submatrix(features[i], None if samples is None else samples[i])
        coef = minimum_norm(part.A, part.B, part.root if problem.fit_intercept else None)
        refit = coef is None
        if coef is None:
            coef = orthogonal.least_squares(part.A, part.B, problem.cutoff(part, features[i]))
        return coef, part.intercept(coef), refit

    return Solution.member_by_member(solve_one, features.sizes, problem.Y.shape[1], NAME, mapper)


def minimum_norm(A: Array, B: Array, null: Array | None = None) -> Array | None:
    """Shortest b with A b = B, or None when the rows are too close to dependent for their Gram matrix.

    `null` is the vector that centring made orthogonal to all columns of A and B.
    """
    if not len(A):
        return np.zeros((A.shape[1], B.shape[1]))
    unit, of_B = (power_of_two(float(np.max(np.abs(M), initial=0.0))) for M in (A, B))  # K^-1 B leaves the range first
    if unit != 1.0 or of_B != 1.0:
        coef = minimum_norm(A / unit, B / of_B, null)
        return None if coef is None else coef / unit * of_B
    K = A @ A.T
    if null is not None:
        K += (np.trace(K) / len(K)) * np.outer(null, null) / (null @ null)
    if nothing_but_rounding(np.diagonal(K), max(A.shape)):
        return None
    L, info = la.lapack.dpotrf(K, lower=True, clean=False)
    if info or not pivots_are_trusted(np.diagonal(L), np.diagonal(K)):
        return None
    dual: Array = la.lapack.dpotrs(L, B, lower=True)[0]
    return A.T @ dual
