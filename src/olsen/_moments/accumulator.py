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

from .._execution.blas import add_gram
from .._trust import LARGEST, SMALLEST, constant_columns, refuse_extremes
from .moments import Moments, mirror_lower, weighted_mean

__all__ = ["Accumulator"]

MERGE = 32  # blocks summed about one shift
SLICE_BYTES = 1 << 21  # rows centred and squared at a time: they stay in a cache in between


class Accumulator:
    """Moments of the blocks added so far, about the mean of each run's first block."""

    def __init__(self, p: int, q: int, centre: bool) -> None:
        self.p, self.q, self.centre = p, q, centre
        self._done: Moments | None = None
        self._M: NDArray[np.float64] | None = None
        self._shift = np.zeros(p + q + 1)  # the last one, of the ones, stays zero
        self._rows = self._blocks = self.n_rows = 0

    def add(self, X: NDArray[Any], Y: NDArray[Any], weight: NDArray[np.float64] | None = None) -> None:
        """Add rows: X (rows, p), Y (rows, q), weights or None, of any real type."""
        if not len(X):
            return
        if self._blocks == MERGE:
            self._close()  # not before: whether the numbers were finite is asked after they were added
        M = self._open(X, Y, weight) if self._M is None else self._M
        width = self.p + self.q + 1
        step = min(len(X), max(1, SLICE_BYTES // (8 * width)))
        Z = np.empty((step, width))  # not kept: there may be many accumulators
        for start in range(0, len(X), step):
            here = slice(start, start + step)
            z = self._fill(Z[: len(X[here])], X[here], Y[here], None if weight is None else weight[here])
            add_gram(z, M)
            self._refuse_tiny(z, M)
        self._rows += len(X)
        self.n_rows += len(X)
        self._blocks += 1

    def _open(self, X: NDArray[Any], Y: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        self._M = np.zeros((self.p + self.q + 1,) * 2, order="F")
        if self.centre:  # with the weights: a row far out that counts little must not move the shift
            self._shift[:-1] = np.r_[weighted_mean(X, weight), weighted_mean(Y, weight)]
        return self._M

    def _fill(
        self, Z: NDArray[np.float64], X: NDArray[Any], Y: NDArray[Any], weight: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """Z = [x - s, y - t, 1], rows times the root of their weight."""
        Z[:, : self.p], Z[:, self.p : -1], Z[:, -1] = X, Y, 1.0
        Z -= self._shift  # after the cast: numpy casts and subtracts at once at half the speed
        if weight is not None:
            Z *= np.sqrt(weight)[:, None]
        return Z

    def _refuse_tiny(self, z: NDArray[np.float64], M: NDArray[np.float64]) -> None:
        """Raise for columns that vary although their sum of squares has left the range of double precision."""
        tiny = np.flatnonzero(np.diagonal(M)[: self.p] < SMALLEST**2)
        if len(tiny):  # constant columns, mostly
            refuse_extremes(np.abs(z[:, tiny]).max(axis=0, initial=0.0), numbers=tiny)

    def absorb(self, other: Accumulator) -> None:
        """Add the rows of another one, which come after these."""
        self._close()
        other._close()
        if other._done is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # `moments` has the words
                self._done = other._done if self._done is None else self._done.merge(other._done)
        self.n_rows += other.n_rows

    def finite(self) -> bool:
        """Whether all numbers added to the present run were finite: one that is not spoils its square."""
        return self._M is None or bool(np.isfinite(np.diagonal(self._M)).all())

    def moments(self) -> Moments:
        """Of all rows so far, constant columns set to zero."""
        self._close()
        if self._done is None:
            raise ValueError("no rows were added.")
        m = self._done
        if not np.all(np.diagonal(m.G) < LARGEST**2):
            raise ValueError("X holds numbers whose squares overflow; rescale the columns.")
        refuse_extremes(np.where(np.abs(m.mean_x) > LARGEST, np.abs(m.mean_x), 0.0))  # squares about them may be small
        dead = constant_columns(np.diagonal(m.G), m.mean_x, m.weight) if self.centre else np.diagonal(m.G) == 0
        m.G[dead], m.G[:, dead], m.C[dead] = 0.0, 0.0, 0.0
        return m

    def _close(self) -> None:
        if self._M is None:
            return
        p, weight, M = self.p, float(self._M[-1, -1]), mirror_lower(self._M).T
        with np.errstate(over="ignore", invalid="ignore"):  # `moments` has the words
            offset = M[-1, :-1] / weight if self.centre else np.zeros(p + self.q)
            M = M[:-1, :-1] - weight * np.outer(offset, offset)
        mean = self._shift[:-1] + offset
        new = Moments(
            self._rows, weight, mean[:p], mean[p:], M[:p, :p], M[:p, p:], np.diagonal(M)[p:].copy(), self.centre
        )
        with np.errstate(over="ignore", invalid="ignore"):
            self._done = new if self._done is None else self._done.merge(new)
        self._M, self._rows, self._blocks = None, 0, 0
