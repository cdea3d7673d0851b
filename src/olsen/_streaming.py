r"""Rows that arrive in batches: the triangular factor of everything seen so far.

.. math:: [\,1 \; X \; Y\,] = Q R

R, of p + q + 1 rows at most, is all that least squares on any columns can ask of the data, and unlike X'X it does not
square the condition number. A new batch is stacked under R and factored again, so memory does not grow with rows.
The first row of R holds the means, the rows below are a problem on centred data with the same members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from ._members import Problem

__all__ = ["Triangle"]


@dataclass(frozen=True)
class Triangle:
    """Triangular factor of the rows seen so far, weighted by the roots of their weights."""

    R: NDArray[np.float64]  # (min(n, 1 + p + q), 1 + p + q); the first column is zero without intercept
    n_rows: int
    n_targets: int

    @classmethod
    def empty(cls, p: int, q: int) -> Triangle:
        """No rows seen."""
        return cls(np.zeros((0, 1 + p + q)), 0, q)

    def add(self, problem: Problem) -> Triangle:
        """The factor with the rows of `problem` stacked under it."""
        X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
        ones = np.full((len(X), 1), 1.0 if problem.fit_intercept else 0.0)
        rows = np.hstack([ones, X, problem.Y]).astype(np.float64, copy=False)
        if problem.weight is not None:
            rows = rows * np.sqrt(problem.weight)[:, None]
        (R,) = la.qr(np.vstack([self.R, rows]), mode="r", check_finite=False, overwrite_a=True)
        return Triangle(R[: R.shape[1]], self.n_rows + len(rows), self.n_targets)

    def join(self, other: Triangle) -> Triangle:
        """The factor of both sets of rows."""
        (R,) = la.qr(np.vstack([self.R, other.R]), mode="r", check_finite=False, overwrite_a=True)
        return Triangle(R[: R.shape[1]], self.n_rows + other.n_rows, self.n_targets)

    def problem(self, like: Problem) -> tuple[Problem, NDArray, NDArray]:
        """The centred problem without intercept, and the means of X and y (zeros without intercept)."""
        q = self.n_targets
        X, Y = self.R[:, 1:-q], self.R[:, -q:]
        # rounding grows with the rows that went in, not with those of the factor: the cut-off is that of the data
        rcond = np.finfo(np.float64).eps * max(self.n_rows, X.shape[1]) if like.rcond is None else like.rcond
        if not like.fit_intercept:
            means = np.zeros(X.shape[1]), np.zeros(q)
            return Problem(X, Y, None, False, rcond, like.tol), *means
        means = X[0] / self.R[0, 0], Y[0] / self.R[0, 0]
        return Problem(X[1:], Y[1:], None, False, rcond, like.tol), *means
