r"""Moments summed block by block.

.. math:: Z = [\,x - s,\; y - t,\; 1\,] , \qquad M = \sum Z' W Z

with s, t the means of the first block: one symmetric product a block gives squares, cross products and sums. The shift
costs at most a factor of the number of blocks in rounding, because a column whose later blocks lie far from its first
has a spread to match; every ``MERGE`` blocks the sums are closed and merged by Chan's formula, which bounds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._trust import constant_columns, refuse_extremes
from .moments import Moments, weighted_mean

Array = NDArray[np.float64]
MERGE = 32  # blocks summed about one shift


class Accumulator:
    """Moments of the blocks added so far, about the mean of each run's first block."""

    def __init__(self, p: int, q: int, centre: bool) -> None:
        self.p, self.q, self.centre = p, q, centre
        self._done: Moments | None = None
        self._M: Array | None = None
        self._shift = np.zeros(p + q + 1)  # the last one, of the ones, stays zero
        self._rows = self._blocks = 0

    @np.errstate(invalid="ignore", over="ignore")
    def add(self, X: NDArray[Any], Y: NDArray[Any], weight: Array | None = None) -> bool:
        """Add rows: X (rows, p), Y (rows, q), weights or None, of any real type. Whether they were all finite."""
        if self._blocks == MERGE:
            self._close()
        if self._M is None:
            self._M = np.zeros((self.p + self.q + 1,) * 2)
            if self.centre:  # with the weights: a row far out that counts little must not move the shift
                self._shift[:-1] = np.r_[weighted_mean(X, weight), weighted_mean(Y, weight)]
        # rows that stay in a cache while they are centred and squared; enough of them to pay for adding a square matrix
        step = max((1 << 21) // (8 * len(self._M)), 3 * len(self._M))
        for start in range(0, len(X), step):
            here = slice(start, start + step)
            Z = np.empty((len(X[here]), len(self._M)))
            Z[:, : self.p], Z[:, self.p : -1], Z[:, -1] = X[here], Y[here], 1.0
            Z -= self._shift  # after the cast: numpy casts and subtracts at once at half the speed
            if weight is not None:
                Z *= np.sqrt(weight[here])[:, None]
            self._M += Z.T @ Z
            tiny = np.diagonal(self._M)[:-1] < 1e-300
            if tiny.any():  # constant columns, mostly; else squares have left the range of double precision
                self._refuse(np.where(tiny, np.abs(Z[:, :-1]).max(axis=0, initial=0.0), 0.0))
        self._rows += len(X)
        self._blocks += 1
        return bool(np.isfinite(np.diagonal(self._M)).all())  # a number that is not spoils its square

    def absorb(self, other: Accumulator) -> None:
        """Add the rows of another one, which come after these."""
        self._close()
        self._merge(other._close())

    def moments(self) -> Moments:
        """Of all rows so far, constant columns set to zero."""
        p, q, m = self.p, self.q, self._close()
        if m is None:
            zeros = (np.zeros(p), np.zeros(q), np.zeros((p, p)), np.zeros((p, q)), np.zeros(q))
            return Moments(0, 0.0, *zeros, self.centre)
        squares = np.maximum(np.r_[np.diagonal(m.G), m.yy], 0.0) / m.weight
        self._refuse(np.hypot(np.sqrt(squares), np.r_[m.mean_x, m.mean_y]))
        dead = constant_columns(np.diagonal(m.G), m.mean_x, m.weight) if self.centre else np.diagonal(m.G) == 0
        m.G[dead], m.G[:, dead], m.C[dead] = 0.0, 0.0, 0.0
        return m

    def _refuse(self, sizes: Array) -> None:
        """Raise for columns of X and y whose entries are of a size that is not ordinary."""
        refuse_extremes(sizes[: self.p], "X")
        refuse_extremes(sizes[self.p :], "y")

    @np.errstate(invalid="ignore", over="ignore")
    def _close(self) -> Moments | None:
        """End a run of blocks about one shift."""
        if self._M is not None:
            p, weight, M = self.p, float(self._M[-1, -1]), self._M
            offset = M[-1, :-1] / weight if self.centre else np.zeros(p + self.q)
            M, mean = M[:-1, :-1] - weight * np.outer(offset, offset), self._shift[:-1] + offset
            sums = (mean[:p], mean[p:], M[:p, :p], M[:p, p:], np.diagonal(M)[p:].copy())
            self._merge(Moments(self._rows, weight, *sums, self.centre))
            self._M, self._rows, self._blocks = None, 0, 0
        return self._done

    @np.errstate(invalid="ignore", over="ignore")
    def _merge(self, more: Moments | None) -> None:
        if more is not None:
            self._done = more if self._done is None else self._done.merge(more)
