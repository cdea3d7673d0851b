r"""Moments summed block by block.

.. math:: Z = [\,x - s,\; y - t,\; 1\,] , \qquad M = \sum Z' W Z

with s, t the means of the first block: one symmetric product a block gives squares, cross products
and sums. The shift costs at most a factor of the number of blocks in rounding, because a column
whose later blocks lie far from its first has a variance to match. Every 32
blocks the sums are closed and merged by Chan's formula, which bounds the factor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import row_products
from .._trust import refuse_extremes
from .moments import Moments, constant_columns, weighted_mean

Array = NDArray[np.float64]

BLOCK_ENTRIES = 1 << 18  # numbers in a block of rows, which stays in a cache


class Accumulator:
    """Moments of the blocks added so far, summed about the mean of the first block of each run."""

    def __init__(self, p: int, q: int, centre: bool) -> None:
        self.p = p
        self.q = q
        self.centre = centre
        self._closed: Moments | None = None  # of the runs before
        self._M: Array | None = None
        self._shift = np.zeros(p + q + 1)  # the last entry, of the column of ones, stays zero
        self._rows = 0
        self._blocks = 0

    @np.errstate(invalid="ignore", over="ignore")
    def add(self, X: NDArray[Any], Y: NDArray[Any], weight: Array | None = None) -> bool:
        """Add X (rows, p), Y (rows, q) and weights or None, of any real type; returns whether all
        were finite.
        """
        if self._blocks == 32:  # blocks summed about one shift
            self._close()
        if self._M is None:
            self._M = np.zeros((self.p + self.q + 1,) * 2)
            if self.centre:  # with the weights: a far row of small weight must not move the shift
                self._shift[:-1] = np.r_[weighted_mean(X, weight), weighted_mean(Y, weight)]
        # rows that stay in a cache while being centred and squared; enough rows to pay for adding a
        # square matrix
        step = max((1 << 21) // (8 * len(self._M)), 3 * len(self._M))
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            Z = np.empty((len(X[rows]), len(self._M)))
            Z[:, : self.p] = X[rows]
            Z[:, self.p : -1] = Y[rows]
            Z[:, -1] = 1.0
            Z -= self._shift  # after the cast: numpy casts and subtracts at once at half the speed
            if weight is not None:
                Z *= np.sqrt(weight[rows])[:, None]
            self._M += row_products(Z.T)
            tiny = np.diagonal(self._M)[:-1] < 1e-300
            if (
                tiny.any()
            ):  # mostly constant columns; otherwise squares have left the range of double precision
                largest = np.abs(Z[:, :-1]).max(axis=0, initial=0.0)
                self._refuse(np.where(tiny, largest, 0.0))
        self._rows += len(X)
        self._blocks += 1
        return bool(
            np.isfinite(np.diagonal(self._M)).all()
        )  # an entry that is not finite spoils its square

    def absorb(self, other: Accumulator) -> None:
        """Add the rows of another accumulator, which come after the rows of this one."""
        self._close()
        self._merge(other._close())

    def moments(self) -> Moments:
        """Moments of all rows so far, with constant columns set to zero."""
        p = self.p
        q = self.q
        moments = self._close()
        if moments is None:
            return Moments(
                n_rows=0,
                weight=0.0,
                mean_x=np.zeros(p),
                mean_y=np.zeros(q),
                G=np.zeros((p, p)),
                C=np.zeros((p, q)),
                yy=np.zeros(q),
                centred=self.centre,
            )
        diagonal = np.diagonal(moments.G)
        mean_squares = np.maximum(np.r_[diagonal, moments.yy], 0.0) / moments.weight
        self._refuse(np.hypot(np.sqrt(mean_squares), np.r_[moments.mean_x, moments.mean_y]))
        constant = (
            constant_columns(diagonal, moments.mean_x, moments.weight)
            if self.centre
            else diagonal == 0
        )
        moments.G[constant] = 0.0
        moments.G[:, constant] = 0.0
        moments.C[constant] = 0.0
        return moments

    def _refuse(self, sizes: Array) -> None:
        """Raise for columns of X and y whose entries are too large or too small."""
        refuse_extremes(sizes[: self.p], "X")
        refuse_extremes(sizes[self.p :], "y")

    @np.errstate(invalid="ignore", over="ignore")
    def _close(self) -> Moments | None:
        """End a run of blocks about one shift, and return the moments of all runs."""
        if self._M is not None:
            p = self.p
            weight = float(self._M[-1, -1])
            offset = self._M[-1, :-1] / weight if self.centre else np.zeros(p + self.q)
            mean = self._shift[:-1] + offset
            M = self._M[:-1, :-1] - weight * np.outer(offset, offset)
            run = Moments(
                n_rows=self._rows,
                weight=weight,
                mean_x=mean[:p],
                mean_y=mean[p:],
                G=M[:p, :p],
                C=M[:p, p:],
                yy=np.diagonal(M)[p:].copy(),
                centred=self.centre,
            )
            self._merge(run)
            self._M = None
            self._rows = 0
            self._blocks = 0
        return self._closed

    @np.errstate(invalid="ignore", over="ignore")
    def _merge(self, moments: Moments | None) -> None:
        if moments is not None:
            self._closed = moments if self._closed is None else self._closed.merge(moments)


def fold_sums(
    X: NDArray[Any],
    Y: Array,
    weight: Array | None,
    *,
    fold: NDArray[np.int16],
    count: int,
    centre: bool,
) -> list[Moments]:
    """Moments of folds of rows in memory: `fold` holds the number of each row's fold.

    Rows are gathered by fold inside blocks that stay in a cache.
    """
    n, p = X.shape
    accumulators = [Accumulator(p, Y.shape[1], centre) for _ in range(count)]
    step = max(BLOCK_ENTRIES // (p + Y.shape[1]), 3 * count * (p + Y.shape[1]))
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        x = X[block]
        y = Y[block]
        for f, accumulator in enumerate(accumulators):
            rows = np.flatnonzero(fold[block] == f)
            if len(rows):
                w = None if weight is None else weight[block][rows]
                accumulator.add(x.take(rows, axis=0), y.take(rows, axis=0), w)
    return [accumulator.moments() for accumulator in accumulators]
