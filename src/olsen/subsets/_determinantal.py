r"""Determinantal sampling: subsets of columns in which similar columns repel each other.

With :math:`G = X^\top X` (centred with an intercept), prior variances :math:`d_j > 0`, :math:`D =
\mathrm{diag}(d)` and
:math:`L = D^{1/2} G D^{1/2} / \lambda`, a subset S is drawn with probability :math:`\det(L_{SS}) / \det(I + L)`. The
mean of least-squares fits on such subsets **is** generalised ridge regression, for every X, y, rank
and penalty:

.. math:: E[b_S] = (G + \lambda D^{-1})^{-1} X^\top y, \qquad
          P(j \in S) = [L (I + L)^{-1}]_{jj}, \qquad E|S| = \mathrm{tr}\, L (I + L)^{-1} .

Proof: :math:`\det(I + L) = \sum_S \det(L_{SS})`; differentiate both sides with respect to L.
Dependent columns have determinant zero and are never drawn together. Status: theorem.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray
from scipy.optimize import brentq

from .._execution.arrays import row_products
from .._execution.threads import cached_property
from .._kernel import wrappers as kernels
from ._compressed import Subsets, Threads
from ._drawing import Stream, integer_seed, philox_key

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """A symmetric matrix A = Q T Q' with T tridiagonal and Q a product of reflections, enough for
    ridge regression.
    """

    reflections: Array
    diagonal: Array
    beside: Array
    factors: Array

    @classmethod
    def of(cls, A: Array) -> Tridiagonal:
        """Reduce a matrix in column order, which is overwritten."""
        return cls(*la.lapack.dsytrd(A, lower=1, lwork=64 * len(A), overwrite_a=1)[:4])

    def times_q(self, C: Array, trans: str) -> Array:
        """Q C, or Q'C."""
        below = np.asfortranarray(self.reflections[1:, :-1])
        rotated = C[1:]
        if len(below):
            rotated = la.lapack.dormqr(
                "L", trans, below, self.factors, C[1:], lwork=64 * max(C.shape)
            )[0]
        return np.concatenate([C[:1], rotated])


@dataclass(frozen=True, eq=False)
class Determinantal:
    """A determinantal process over columns, represented by the eigenvalues and eigenvectors of its
    matrix.

    Parameters
    ----------
    values : ndarray of shape (rank,)
        Eigenvalues of :math:`D^{1/2} G D^{1/2}`, positive and ascending.
    penalty : float
        Lambda.
    prior_variances : ndarray of shape (n_columns,)
        Prior variances, the diagonal of D; zero for columns that are never drawn.
    eigenvectors : ndarray of shape (n_columns, rank) or Tridiagonal
        Eigenvectors of the same matrix, or its tridiagonal form, from which eigenvectors are
        computed on access: the limit of infinitely many members does not need eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> from olsen.subsets import Determinantal
    >>> X = np.random.default_rng(0).standard_normal((30, 5))
    >>> process = Determinantal.from_gram(X.T @ X, size=2.0)
    >>> round(float(process.probabilities.sum()), 10)
    2.0
    >>> len(process.draw(0, 100, rng=0))
    100
    """

    values: Array
    penalty: float
    prior_variances: Array
    eigenvectors: Array | Tridiagonal

    @classmethod
    def from_gram(
        cls,
        G: Array,
        size: float | None = None,
        prior_variances: Array | None = None,
        *,
        penalty: float | None = None,
    ) -> Determinantal:
        """Build the process from products of the columns, for an expected `size` or a penalty.

        By default `prior_variances` are one over the squared lengths, so that units of the columns do not
        matter.
        """
        prior_variances = _prior_variances(np.diagonal(G), prior_variances)
        root = np.sqrt(prior_variances)
        scaled = (root[:, None] * G).T  # in column order, as LAPACK expects
        scaled *= root[:, None]
        form = Tridiagonal.of(scaled)
        values = la.eigvalsh_tridiagonal(form.diagonal, form.beside, check_finite=False)
        values = _above_rounding(values)
        penalty = _penalty(values, size) if penalty is None else penalty
        return cls(values, penalty, prior_variances, form)

    @classmethod
    def from_rows(
        cls,
        Z: Array,
        size: float | None = None,
        prior_variances: Array | None = None,
        *,
        penalty: float | None = None,
    ) -> Determinantal:
        """Build the process from rows (n, p), centred with an intercept: for more columns than
        rows.

        Singular values are used where the penalty is too small for the accuracy of a Gram matrix.
        """
        squares = np.einsum("lj,lj->j", Z, Z)
        prior_variances = _prior_variances(squares, prior_variances)
        scaled = Z * np.sqrt(prior_variances)

        def process_of(values: Array, vectors: Array) -> Determinantal:
            resolved = _penalty(values, size) if penalty is None else penalty
            return cls(
                values, resolved, prior_variances, np.ascontiguousarray(_canonical(values, vectors))
            )

        if len(Z) <= Z.shape[1]:
            values, left_vectors = la.eigh(row_products(scaled), check_finite=False)
            values = _above_rounding(values)
            left_vectors = left_vectors[:, len(left_vectors) - len(values) :]
            vectors = scaled.T @ left_vectors / np.sqrt(values)
            with suppress(ValueError):  # products may show too low a rank for the size
                process = process_of(values, vectors)
                if not process.doubtful:
                    return process
        _, singular_values, right = la.svd(scaled, full_matrices=False, check_finite=False)
        rounding = np.finfo(float).eps * max(Z.shape) * singular_values.max(initial=0.0)
        rank = int(np.sum(singular_values > rounding))
        values = singular_values[:rank][::-1] ** 2
        return process_of(values, right[:rank][::-1].T)

    @property
    def doubtful(self) -> bool:
        """Whether the penalty is too small for the accuracy of a Gram matrix in double precision."""
        return bool(len(self.values) and self.penalty < 1e-9 * self.values[-1])

    @cached_property
    def vectors(self) -> Array:
        """Eigenvectors, (n_columns, rank)."""
        form = self.eigenvectors
        if isinstance(form, np.ndarray):
            return form
        _, inner = la.eigh_tridiagonal(form.diagonal, form.beside, check_finite=False)
        vectors = form.times_q(inner, "N")
        vectors = vectors[:, len(vectors) - len(self.values) :]
        return np.ascontiguousarray(_canonical(self.values, vectors))

    @property
    def chances(self) -> NDArray[np.float64]:
        """Probability of every eigenvector to be selected, (rank,); the sum is the expected size."""
        return self.values / (self.values + self.penalty)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability of every column to be in a member, (n_columns,)."""
        return np.asarray(self.vectors**2 @ self.chances)

    def mean_coefficients(self, C: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean of all members, (p, q), from products C = X'y: the exact limit of many members,
        ridge regression.
        """
        root = np.sqrt(self.prior_variances)[:, None]
        scaled = root * C
        form = self.eigenvectors
        has_band = len(C) > 1 and not self.doubtful  # SciPy has no band of one number
        if isinstance(form, Tridiagonal) and has_band:
            banded = np.stack([form.diagonal + self.penalty, np.append(form.beside, 0.0)])
            rotated = form.times_q(scaled, "T")
            solved = la.solveh_banded(banded, rotated, lower=True, check_finite=False)
            return np.asarray(root * form.times_q(solved, "N"))
        inner = (self.vectors.T @ scaled) / (self.values + self.penalty)[:, None]
        return np.asarray(root * (self.vectors @ inner))

    def mean_inverse(self) -> NDArray[np.float64]:
        """Mean over members of the inverses of their Gram matrices, zero outside their columns, (p,
        p).
        """
        half = (
            np.sqrt(self.prior_variances)[:, None]
            * self.vectors
            / np.sqrt(self.values + self.penalty)
        )
        return row_products(half)

    def draw(
        self,
        start: int,
        stop: int,
        *,
        rng: np.random.Generator | int | None,
        threads: Threads | None = None,
        scheme: int = 0,
    ) -> Subsets:
        """Members `start` to `stop`: each a function of the process, the integer `rng`, its number and
        the number of its sampling scheme. A numpy Generator gives one such integer.
        """
        spawn = (Stream.DETERMINANTAL, scheme) if scheme else (Stream.DETERMINANTAL,)
        key = philox_key(integer_seed(rng), *spawn).view(np.int64)
        p = len(self.prior_variances)
        chances = self.chances

        def draw_batch(first: int, last: int) -> Subsets:
            drawn = np.empty((last - first, len(chances)), np.int64)
            sizes = np.empty(last - first, np.int64)
            kernels.draw_determinantal(
                begin=start + first,
                end=start + last,
                key=key,
                vectors=self.vectors,
                chances=chances,
                subsets=drawn,
                sizes=sizes,
            )
            is_drawn = np.arange(drawn.shape[1]) < sizes[:, None]
            return Subsets._of_sizes(sizes, [drawn[is_drawn]], p)

        def draw_part(first: int, last: int) -> Subsets:
            starts = range(first, last, 256)
            return Subsets._joined([draw_batch(a, min(a + 256, last)) for a in starts], p)

        count = stop - start
        if threads is None:
            return draw_part(0, count)
        return Subsets._joined(threads(draw_part, count), p)


def _prior_variances(squares: Array, prior_variances: Array | None) -> Array:
    """Checked prior variances; by default one over the squared lengths of the columns, zero for
    constant columns.
    """
    varies = squares > 0
    if prior_variances is None:
        return np.divide(1.0, squares, out=np.zeros(len(squares)), where=varies)
    prior_variances = np.asarray(prior_variances, dtype=np.float64)
    if prior_variances.shape != squares.shape or not np.all(
        (prior_variances >= 0) & np.isfinite(prior_variances)
    ):
        raise ValueError(
            f"prior_variances must be one finite number, at least 0, for each of {len(squares)} columns."
        )
    return np.where(varies, prior_variances, 0.0)


def _above_rounding(values: Array) -> Array:
    """Eigenvalues, ascending, without rounding errors of zeros."""
    largest = max(float(values[-1]), 0.0)
    rounding = 1e-13 * len(values) * largest
    return values[values > rounding]


def _penalty(values: Array, size: float | None) -> float:
    if size is None:
        raise ValueError("give an expected size, or a penalty.")
    if not 0 < size < len(values):
        raise ValueError(
            f"members of {size:g} columns on average cannot be drawn: determinantal members are"
            f" smaller than the rank of the columns, {len(values)} (centred, if an intercept is"
            " fitted). Use a smaller max_features."
        )
    return penalty_of_size(values, size)


def penalty_of_size(values: NDArray[np.float64], size: float) -> float:
    r"""The penalty at which ridge regression has `size` degrees of freedom, from the eigenvalues of
    the Gram matrix.

    .. math:: \sum_k g_k / (g_k + \lambda) = m

    Examples
    --------
    >>> import numpy as np
    >>> from olsen.subsets import penalty_of_size
    >>> round(penalty_of_size(np.array([1.0, 1.0]), 0.5), 10)
    3.0
    """

    def excess(log_penalty: float) -> float:
        degrees = np.sum(values / (values + np.exp(log_penalty)))
        return float(degrees - size)

    low = np.log(values.min()) - 60.0
    high = np.log(values.sum() / size) + 1.0
    log_penalty = brentq(excess, low, high, xtol=1e-14)
    return float(np.exp(log_penalty))


def _canonical(values: Array, vectors: Array) -> Array:
    """Eigenvectors in a canonical basis: equal eigenvalues have eigenvectors that rounding may
    rotate in their span.

    Members would otherwise depend on the order in which the products were summed. The projections
    of fixed random directions on the span, made orthonormal, depend on the span alone.
    """
    is_equal = np.diff(values) <= 1e-6 * values[1:]  # rounding could rotate their eigenvectors
    edges = np.flatnonzero(np.concatenate([[True], ~is_equal, [True]]))
    max_multiplicity = int(np.diff(edges).max(initial=1))
    rng = np.random.default_rng(20200608)
    directions = rng.standard_normal((len(vectors), max_multiplicity))
    canonical = vectors.copy()
    for first, last in pairwise(edges.tolist()):
        if last - first > 1:
            basis = vectors[:, first:last]
            projections = basis.T @ directions[:, : last - first]
            rotation, _ = la.qr(projections, mode="economic")
            canonical[:, first:last] = basis @ rotation
    return canonical
