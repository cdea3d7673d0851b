r"""Subsets of columns that repel each other as the geometry of the data asks: determinantal sampling.

With :math:`G = X^\top X` (centred with an intercept), spreads :math:`d_j > 0`, :math:`D = \mathrm{diag}(d)` and
:math:`L = D^{1/2} G D^{1/2} / \lambda`, a subset S is drawn with probability :math:`\det(L_{SS}) / \det(I + L)`. The
mean of least-squares fits on such subsets **is** generalised ridge regression, for every X, y, rank and penalty:

.. math:: E[b_S] = (G + \lambda D^{-1})^{-1} X^\top y, \qquad
          P(j \in S) = [L (I + L)^{-1}]_{jj}, \qquad E|S| = \mathrm{tr}\, L (I + L)^{-1} .

Proof: :math:`\det(I + L) = \sum_S \det(L_{SS})`; differentiate both sides with respect to L. Dependent columns have
determinant zero and are never drawn together. Status: theorem.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray
from scipy.optimize import brentq

from .. import _kernel
from ._compressed import Mapper, Subsets

__all__ = ["Determinantal", "penalty_of_size"]

Array = NDArray[np.float64]

ROUNDING = 1e-13  # of the largest eigenvalue, for each of the columns or rows: eigenvalues that are zeros
ALIKE = 1e-6  # of the larger: eigenvalues whose eigenvectors rounding could turn among each other
BATCH = 256  # members drawn at a time
STREAM = 3  # of a seed: columns are 0, rows 1, groups of rows 2


@dataclass(frozen=True, eq=False)
class Determinantal:
    """A determinantal process over columns, by the eigenvectors of its matrix.

    Parameters
    ----------
    vectors : ndarray of shape (n_columns, rank)
        Eigenvectors of :math:`D^{1/2} G D^{1/2}`.
    values : ndarray of shape (rank,)
        Its eigenvalues, positive.
    penalty : float
        Lambda.
    spreads : ndarray of shape (n_columns,)
        The diagonal of D; zero for columns that are never drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from olsen.subsets import Determinantal
    >>> X = np.random.default_rng(0).standard_normal((30, 5))
    >>> process = Determinantal.from_gram(X.T @ X, size=2.0)
    >>> round(float(process.probabilities.sum()), 10)
    2.0
    >>> len(process.draw(0, 100, seed=0))
    100
    """

    vectors: NDArray[np.float64]
    values: NDArray[np.float64]
    penalty: float
    spreads: NDArray[np.float64]

    @classmethod
    def from_gram(
        cls, G: NDArray[np.float64], size: float, spreads: NDArray[np.float64] | None = None
    ) -> Determinantal:
        """From products of the columns, for an expected `size`; spreads are one over the squared lengths by default.

        By default columns so count in units of their standard deviation, whatever their own units.
        """
        spreads = _spreads(np.diagonal(G), spreads)
        root = np.sqrt(spreads)
        values, vectors = la.eigh(root[:, None] * G * root, check_finite=False)
        return cls._of_spectrum(values, vectors, size, spreads, len(G))

    @classmethod
    def from_rows(
        cls, Z: NDArray[np.float64], size: float, spreads: NDArray[np.float64] | None = None
    ) -> Determinantal:
        """The same from rows (n, p), about their means with an intercept: for more columns than rows."""
        spreads = _spreads(np.einsum("lj,lj->j", Z, Z), spreads)
        scaled = Z * np.sqrt(spreads)
        values, left = la.eigh(scaled @ scaled.T, check_finite=False)
        kept = values > ROUNDING * len(values) * values[-1]
        vectors = scaled.T @ left[:, kept] / np.sqrt(values[kept])
        return cls._of_spectrum(values[kept], vectors, size, spreads, len(Z))

    @classmethod
    def _of_spectrum(cls, values: Array, vectors: Array, size: float, spreads: Array, dimension: int) -> Determinantal:
        kept = values > ROUNDING * dimension * max(float(values[-1]), 0.0)
        values, vectors = values[kept], vectors[:, kept]
        if not 0 < size < len(values):
            raise ValueError(
                f"members of {size:g} columns on average cannot be drawn: the columns have rank {len(values)} (about "
                f"their means, if an intercept is fitted), and determinantal members are smaller than that. Use a "
                f"smaller max_features."
            )
        vectors = _canonical(values, vectors)
        return cls(np.ascontiguousarray(vectors), values, penalty_of_size(values, size), spreads)

    @property
    def chances(self) -> NDArray[np.float64]:
        """Probability of every eigenvector to be kept, (rank,); their sum is the expected size."""
        return self.values / (self.values + self.penalty)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability of every column to be in a member, (n_columns,)."""
        return np.asarray(self.vectors**2 @ self.chances)

    def mean_coefficients(self, C: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of all members, (p, q), from products C = X'y: the exact limit of many members, ridge regression."""
        root = np.sqrt(self.spreads)[:, None]
        inner = (self.vectors.T @ (root * C)) / (self.values + self.penalty)[:, None]
        return np.asarray(root * (self.vectors @ inner))

    def draw(self, start: int, stop: int, *, seed: int, mapper: Mapper | None = None) -> Subsets:
        """Members `start` to `stop`: each a function of the process, the seed and its number."""
        key = np.random.SeedSequence(seed, spawn_key=(STREAM,)).generate_state(2, np.uint64).view(np.int64)
        chances = self.chances

        def work(first: int, last: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
            return [batch(a, min(a + BATCH, last)) for a in range(first, last, BATCH)]

        def batch(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            drawn = np.empty((last - first, len(chances)), dtype=np.int64)
            sizes = np.empty(last - first, dtype=np.int64)
            _kernel.draw_determinantal(start + first, start + last, key, self.vectors, chances, drawn, sizes)
            return sizes, drawn[np.arange(drawn.shape[1]) < sizes[:, None]]

        count = stop - start
        parts = [part for found in ([work(0, count)] if mapper is None else mapper(work, count)) for part in found]
        sizes = np.concatenate([np.zeros(1, dtype=np.int64), *(part[0] for part in parts)])
        indices = np.concatenate([np.empty(0, dtype=np.int64), *(part[1] for part in parts)])
        return Subsets(len(self.vectors), np.cumsum(sizes), indices)


def _spreads(squares: Array, spreads: Array | None) -> Array:
    """One over the squared lengths of the columns, zero for those that are constant; or as given."""
    if spreads is None:
        return np.divide(1.0, squares, out=np.zeros(len(squares)), where=squares > 0)
    spreads = np.asarray(spreads, dtype=np.float64)
    if spreads.shape != squares.shape or not np.all((spreads >= 0) & np.isfinite(spreads)):
        raise ValueError(f"spreads must be one finite number, at least 0, for each of {len(squares)} columns.")
    return np.where(squares > 0, spreads, 0.0)


def penalty_of_size(values: NDArray[np.float64], size: float) -> float:
    r"""The penalty at which ridge regression has so many degrees of freedom, given the eigenvalues of the Gram matrix.

    .. math:: \sum_k g_k / (g_k + \lambda) = m

    Examples
    --------
    >>> import numpy as np
    >>> from olsen.subsets import penalty_of_size
    >>> round(penalty_of_size(np.array([1.0, 1.0]), 0.5), 10)
    3.0
    """

    def excess(log_penalty: float) -> float:
        return float(np.sum(values / (values + np.exp(log_penalty))) - size)

    low, high = np.log(values.min()) - 60.0, np.log(values.sum() / size) + 1.0
    return float(np.exp(brentq(excess, low, high, xtol=1e-14)))


def _canonical(values: Array, vectors: Array) -> Array:
    """Eigenvectors of equal eigenvalues, which rounding may turn among each other, in a position of their own.

    What is drawn would otherwise depend on the order in which the products were summed. The projections of fixed random
    directions on their span, made orthonormal, depend on the span alone.
    """
    same = np.diff(values) <= ALIKE * values[1:]
    edges = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
    out = vectors.copy()
    directions = np.random.default_rng(20200608).standard_normal((len(vectors), int(np.diff(edges).max(initial=1))))
    for first, last in pairwise(edges.tolist()):
        if last - first > 1:
            own = vectors[:, first:last]
            out[:, first:last] = own @ la.qr(own.T @ directions[:, : last - first], mode="economic")[0]
    return out
