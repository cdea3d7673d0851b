r"""CV+ intervals, from fits without each fold (Barber, Candes, Ramdas, Tibshirani 2021).

With K folds, row l in fold f(l), the interval spans order statistics of
:math:`\hat y_{-f(l)}(x_0) \pm |e_l|`. Status: theorem, coverage at least 1 - 2(1 - coverage) -
min(2(1 - 1/K)/(n/K + 1), (1 - K/n)/(K + 1)) for rows, or groups, that are exchangeable, when the
sampling scheme was not chosen from the same rows; close to `coverage` in simulation. With G groups
the order statistic is that of the fraction coverage (G + 1) / G of the rows, because a new row
belongs to a new group and there are fewer groups than rows (status: heuristic for groups of one
size).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._data.fits import FoldFit
from ..._execution.caching import cached_property
from ..chunks import dense_chunks, order_statistic_rank
from .widths import AdaptiveWidth, NewRows, ResidualSize, signed_rank, sizes_of_targets

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CVPlus:
    """The ensemble without each of K folds."""

    coef: Array  # (K, q, p)
    intercept: Array  # (K, q)
    residuals: list[Array]  # (rows, q) of every fold
    predictions: list[Array]  # (rows, q) of every fold
    # number of groups of rows that belong together; None: rows are exchangeable
    n_groups: int | None = None
    adaptive_width: AdaptiveWidth = False

    @classmethod
    def from_folds(cls, fits: list[FoldFit], n_groups: int | None = None) -> CVPlus:
        """Build from the fits without each fold, whose residuals are those of the held-out rows."""
        return cls(
            np.stack([fit.coef for fit in fits]),
            np.stack([fit.intercept for fit in fits]),
            [np.asarray(fit.residual) for fit in fits],
            [np.asarray(fit.prediction) for fit in fits],
            n_groups,
        )

    @property
    def n_rows(self) -> int:
        """Number of held-out residuals."""
        return sum(map(len, self.residuals))

    @property
    def mse(self) -> Array:
        """Mean squared error of the held-out rows, for each target."""
        return np.asarray(np.mean(np.concatenate(self.residuals) ** 2, axis=0))

    @cached_property
    def sizes(self) -> list[ResidualSize]:
        """Size of the residuals of each target as a function of the prediction."""
        residuals = np.concatenate(self.residuals)
        n_units = self.n_groups or len(residuals)
        return sizes_of_targets(self.held_out_predictions, residuals, n_units, self.adaptive_width)

    @property
    def held_out_predictions(self) -> Array:
        """Predictions of all held-out rows, (rows, q)."""
        return np.concatenate(self.predictions)

    def interval(self, new: NewRows, coverages: Sequence[float]) -> Array:
        """Lower and upper ends, shape (coverages, rows, q, 2)."""
        ends = np.empty((len(coverages), *new.widths.shape, 2))
        for chunk, t, predicted in self._fold_predictions(new.X):
            width = new.widths[chunk, t]
            errors = self._absolute[t]
            for c, coverage in enumerate(coverages):
                rank = self._rank(coverage, self.n_rows)
                ends[c, chunk, t, 1] = _order_statistic(predicted, errors, rank, width)
                ends[c, chunk, t, 0] = -_order_statistic(-predicted, errors, rank, width)
        return ends

    def quantiles(self, new: NewRows, levels: Sequence[float]) -> Array:
        """Quantiles of new observations, shape (levels, rows, q), from signed residuals."""
        quantiles = np.empty((len(levels), *new.widths.shape))
        for chunk, t, predicted in self._fold_predictions(new.X):
            width = new.widths[chunk, t]
            for i, level in enumerate(levels):
                rank = signed_rank(level, self.n_rows, self._rank)
                quantiles[i, chunk, t] = _order_statistic(predicted, self._signed[t], rank, width)
        return quantiles

    def _rank(self, coverage: float, n: int) -> int:
        """Rank of the order statistic that covers new observations with this probability."""
        rank = order_statistic_rank(coverage, n)
        if self.n_groups is None:
            return rank
        # groups are exchangeable, rows are not: a new row belongs to a new group
        return max(rank, math.ceil(coverage * (self.n_groups + 1) / self.n_groups * n - 1e-9))

    @cached_property
    def _absolute(self) -> list[list[Array]]:
        return self._normalised(np.abs)

    @cached_property
    def _signed(self) -> list[list[Array]]:
        return self._normalised(np.asarray)

    def _normalised(self, part: Callable[[Array], Array]) -> list[list[Array]]:
        """A `part` of the residuals divided by their sizes, by target and fold, ascending."""
        return [
            [
                np.sort(part(residual[:, t]) / size.at(prediction[:, t]))
                for residual, prediction in zip(self.residuals, self.predictions, strict=True)
            ]
            for t, size in enumerate(self.sizes)
        ]

    def _fold_predictions(self, X: Any) -> Iterator[tuple[slice, int, Array]]:
        """Chunks of rows, targets, and predictions (rows, K) without each fold."""
        K, q, _ = self.coef.shape
        for chunk, rows in dense_chunks(X, 64.0 * K * q):
            for t in range(q):
                yield chunk, t, rows @ self.coef[:, t].T + self.intercept[:, t]


def _order_statistic(
    shift: Array, errors: list[Array], rank: int, width: Array, n_bisections: int = 80
) -> Array:
    """Order statistic of the values shift[i, k] + width[i] errors[k], over all k, for each row i;
    (rows, K) -> (rows,). Infinite if the rank is beyond the values.

    Bisection over the sorted lists of errors takes little memory, however many errors there are.
    After 80 halvings no float lies between the two bounds.
    """
    if not 0 < rank <= sum(map(len, errors)):
        return np.full(len(shift), np.inf if rank > 0 else -np.inf)
    known = [fold_errors for fold_errors in errors if len(fold_errors)]
    smallest = min(float(fold_errors[0]) for fold_errors in known)
    largest = max(float(fold_errors[-1]) for fold_errors in known)
    # fewer than `rank` values are at or below the lower bound
    low = np.nextafter(shift.min(axis=1) + width * min(smallest, 0.0), -np.inf)
    high = shift.max(axis=1) + width * largest
    for _ in range(n_bisections):
        middle = (low + high) / 2
        counts = [
            np.searchsorted(e, (middle - s) / width, side="right")
            for e, s in zip(errors, shift.T, strict=True)
        ]
        enough = sum(counts) >= rank
        low = np.where(enough, low, middle)
        high = np.where(enough, middle, high)
    return np.asarray(high)
