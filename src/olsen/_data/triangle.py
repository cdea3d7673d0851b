r"""Triangular factor of rows that arrive in batches.

.. math:: [\,1 \; X \; Y\,] = Q R

R, of p + q + 1 rows at most, determines least squares on any columns, and unlike X'X it does not
square the condition number. A new batch is stacked under R and factored again, so memory does not
grow with rows. The first row of R holds the means, the rows below are centred data with the same
least-squares solutions. With an intercept the means of the first batch are subtracted from all rows
beforehand: rounding is then relative to the standard deviation of a column, not to its distance
from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._trust import Cutoff
from .moments import constant_columns


@dataclass(frozen=True)
class Triangle:
    """Triangular factor of the rows seen so far, sqrt-weighted."""

    # (min(n, 1 + p + q), 1 + p + q); the first column is zero without intercept
    R: NDArray[np.float64]
    n_rows: int
    n_targets: int
    shift: NDArray[np.float64]  # (p + q,) subtracted from X and Y

    @classmethod
    def empty(cls, p: int, q: int) -> Triangle:
        """Factor of no rows."""
        return cls(np.zeros((0, 1 + p + q)), 0, q, np.zeros(p + q))

    def add(
        self, X: Any, Y: NDArray[np.float64], weight: NDArray[np.float64] | None, centre: bool
    ) -> Triangle:
        """Factor with further rows stacked under it; `centre` for members that fit an intercept."""
        X = X.toarray() if sp.issparse(X) else X
        rows = np.hstack([np.ones((len(X), 1)), X, Y]).astype(np.float64, copy=False)
        shift = self.shift
        if centre:
            shift = shift if self.n_rows else rows[:, 1:].mean(axis=0)
            rows[:, 1:] -= shift
        else:
            rows[:, 0] = 0.0
        if weight is not None:
            rows = rows * np.sqrt(weight)[:, None]
        return self._stack(rows, len(rows), shift)

    def join(self, other: Triangle) -> Triangle:
        """Factor of both sets of rows."""
        if not self.n_rows:
            return other
        shifted = other.R.copy()
        shifted[:, 1:] += shifted[:, :1] * (other.shift - self.shift)
        return self._stack(shifted, other.n_rows, self.shift)

    def _stack(self, rows: NDArray[np.float64], count: int, shift: NDArray[np.float64]) -> Triangle:
        (R,) = la.qr(np.vstack([self.R, rows]), mode="r", check_finite=False, overwrite_a=True)
        return Triangle(R[: R.shape[1]], self.n_rows + count, self.n_targets, shift)

    def centred(self, fit_intercept: bool) -> CentredRows:
        """Few rows with the same least-squares solutions as all rows added."""
        q = self.n_targets
        X = self.R[:, 1:-q]
        Y = self.R[:, -q:]
        mean = np.zeros(len(self.shift))
        if fit_intercept:
            mean = self.shift + self.R[0, 1:] / self.R[0, 0]
            X = X[1:].copy()
            Y = Y[1:]
        mean_x = mean[:-q]
        mean_y = mean[-q:]
        weight = float(self.R[0, 0] ** 2)
        length = np.linalg.norm(X, axis=0)
        if fit_intercept:
            constant = constant_columns(length**2, mean_x, weight)
            X[:, constant] = 0.0
            length[constant] = 0.0
        # rounding grows with the rows that were added, not with the rows of the factor
        cutoff = Cutoff.of(max(self.n_rows, X.shape[1]), length, mean_x, weight)
        return CentredRows(X=X, Y=Y, mean_x=mean_x, mean_y=mean_y, cutoff=cutoff)


class CentredRows(NamedTuple):
    """Centred rows (means are zeros without intercept), and the threshold below which a direction
    is rounding.
    """

    X: NDArray[np.float64]
    Y: NDArray[np.float64]
    mean_x: NDArray[np.float64]
    mean_y: NDArray[np.float64]
    cutoff: Cutoff
