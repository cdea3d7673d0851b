r"""Penalised least squares: the mean of all determinantal members, and the lasso to find their
columns.

With prior variances d of the columns, :math:`\min_b \|B - A b\|^2 + \lambda \sum_j b_j^2 / d_j` is
the mean of all determinantal members with the same prior variances, which take column j with
probability
:math:`\alpha_j = d_j\, a_j' (A D A' + \lambda)^{-1} a_j`, its degrees of freedom (status: theorem, see
``subsets.Determinantal``); no member itself is penalised.

- :math:`d_j = 1`: ridge regression;
- :math:`d_j = |b_j|^q` from coefficients b of an earlier fit: one step of reweighting;
- :math:`d_j = |b_j|` from the lasso's own coefficients, with the lasso's penalty: the lasso, a
  fixed point of that step (status: exact).

Penalties of :class:`GramFits` and :class:`RowFits` are in units of :math:`\sum_j d_j \|a_j\|^2 / w`
(w: the weight of all rows), in which the best one is the ratio of noise to signal, however many
rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._data.arrangement import TIE_TOL, Copies, random_numbers
from .._data.moments import Moments
from .._data.rows import RowData
from .._execution.arrays import row_products
from .._execution.threads import Threads, cached_property
from .._kernel import wrappers as kernels
from .._trust import constant_columns, require_finite
from ..subsets import Subsets
from . import gram
from .mean import Members
from .solution import Solution

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

JITTER = 1e-8  # fraction of its diagonal that makes a Gram matrix of dependent columns definite
# fraction of the squared fit of the best column: coefficients only show where the signal lies
LASSO_TOL = 1e-7
MIN_SPECTRAL_PENALTIES = (
    20  # number from which on one eigendecomposition is cheaper than a factor per penalty
)
MAX_BATCHED_SOLVE_COLUMNS = (
    256  # up to which all penalties are solved in one call, without the interpreter's lock
)
MAX_GRAM_COLUMNS_PER_ROW = 2 / 3  # up to which Gram matrices are cheaper than rows
# fraction of a column's sum of squares: with less in the training rows, it is constant there
CONSTANT_TOL = 1e-5
MAX_DIRECT_COLUMNS = 64  # up to which members of any size are solved on their columns


def limit_members(coef: Array, mean_x: Array, mean_y: Array) -> Members:
    """Infinitely many members, of which only the mean coefficients are known."""
    require_finite(coef)
    no_sizes = np.empty(0, dtype=np.int64)
    return Members(
        coef, mean_y - mean_x @ coef, mean_y, no_sizes, np.empty(0), solver="limit", n_fallbacks=0
    )


@dataclass(frozen=True)
class System:
    """The system (M + penalty) x = right of the columns with a positive prior variance, or of the
    rows if fewer.
    """

    M: Array  # D^1/2 A'A D^1/2, or A D A'
    right: Array  # D^1/2 A'B, or B
    prior_variances: Array  # (p,)
    A: Array | None = None  # (n, p), if the system is that of the rows

    @classmethod
    def from_gram(cls, G: Array, C: Array, prior_variances: Array) -> System:
        """Build the system from products of the columns with each other and with the targets."""
        S, root = _support(prior_variances)
        M = (G if len(S) == len(G) else G[np.ix_(S, S)]) * root
        M *= root[:, None]
        return cls(M, root[:, None] * C[S], prior_variances)

    @classmethod
    def from_rows(
        cls, A: Array, B: Array, prior_variances: Array, products: Array | None = None
    ) -> System:
        """Build the system from the rows, for more columns than rows; `products` are A A', if
        known.
        """
        S, root = _support(prior_variances)
        if products is not None and len(S) > len(A) and np.all(prior_variances == 1):
            return cls(products, B, prior_variances, A)
        Z = (A if len(S) == A.shape[1] else A[:, S]) * root
        if len(S) > len(A):
            return cls(row_products(Z), B, prior_variances, A)
        return cls(row_products(Z.T), Z.T @ B, prior_variances)

    def coefficients(self, penalties: Array, jitter: float = 0.0) -> Array:
        """Coefficients (penalties, p, q)."""
        x = _solved(self.M, self.right, penalties, jitter)
        if self.A is not None:  # b = D A' x
            return np.asarray(
                np.moveaxis(np.tensordot(x, self.A, axes=(1, 0)), 1, 2)
                * self.prior_variances[:, None]
            )
        S, root = _support(self.prior_variances)
        out = np.zeros((len(penalties), len(self.prior_variances), x.shape[2]))
        out[:, S] = root[:, None] * x
        return out

    def jittered_solution(self) -> Array:
        """Solution (k, q) without a penalty, except for JITTER of each diagonal entry."""
        diagonal = np.diagonal(self.M)
        shifted = self.M + np.diag(
            np.where(diagonal > 0, JITTER * diagonal, 1.0)
        )  # constant columns: coefficient zero
        return np.asarray(np.linalg.solve(shifted, self.right))

    def degrees_of_freedom(self, penalty: float) -> Array:
        """Degrees of freedom of every column, (p,): its probability to be in a determinantal
        member.
        """
        out = np.zeros(len(self.prior_variances))
        jitter = JITTER * float(np.trace(self.M)) / max(1, len(self.M))
        if self.A is None and len(self.M):  # the diagonal of M (M + penalty)^-1
            inverse = la.lapack.dpotri(_cholesky(self.M, penalty), lower=1)[0]
            out[_support(self.prior_variances)[0]] = 1 - penalty * np.diagonal(inverse)
        elif self.A is not None and jitter > 0:  # d_j a_j'(M + penalty)^-1 a_j
            half = la.blas.dtrsm(1.0, _cholesky(self.M, penalty + jitter), self.A, lower=1)
            out = self.prior_variances * np.einsum("lj,lj->j", half, half)
        return np.asarray(np.clip(out, 0.0, 1.0))


def _support(prior_variances: Array) -> tuple[Indices, Array]:
    """Columns with a positive prior variance, and its square root."""
    S = np.flatnonzero(prior_variances > 0)
    return S, np.sqrt(prior_variances[S])


def _solved(M: Array, right: Array, penalties: Array, jitter: float) -> Array:
    """Solutions (M + penalty)^-1 right, (penalties, k, q); `jitter` times the mean diagonal is
    added to penalties.
    """
    mean_diagonal = float(np.trace(M)) / max(1, len(M))
    if not mean_diagonal > 0:
        return np.zeros((len(penalties), *right.shape))
    shifts = penalties + jitter * mean_diagonal
    if len(shifts) >= MIN_SPECTRAL_PENALTIES:
        values, E = np.linalg.eigh(M)
        denominators = np.maximum(values, 0.0)[:, None] + shifts[:, None, None]
        return np.asarray(E @ ((E.T @ right) / denominators))
    if len(M) <= MAX_BATCHED_SOLVE_COLUMNS:
        systems = np.repeat(M[None], len(shifts), axis=0)
        np.einsum("sii->si", systems)[:] += shifts[:, None]
        return np.asarray(
            np.linalg.solve(systems, np.broadcast_to(right, (len(shifts), *right.shape)))
        )
    factors = (_cholesky(M, float(shift)) for shift in shifts)
    return np.stack([la.cho_solve((factor, True), right, check_finite=False) for factor in factors])


def _cholesky(M: Array, shift: float) -> Array:
    """Lower factor of M + shift, with the smallest jitter, relative to each diagonal entry, that
    makes it definite.
    """
    diagonal = np.diagonal(M) + shift
    diagonal = np.where(diagonal > 0, diagonal, max(float(diagonal.max(initial=0.0)), 1.0))
    jitter = 0.0
    while True:
        shifted = M.copy()
        np.einsum("ii->i", shifted)[:] += shift + jitter * diagonal
        try:
            return np.asarray(
                np.linalg.cholesky(shifted)
            )  # NumPy's version releases the interpreter lock
        except np.linalg.LinAlgError:
            jitter = max(JITTER, 10 * jitter)


@dataclass(frozen=True)
class GramFits:
    """Fits of standardised, centred columns of a set of rows, from their Gram matrix."""

    G: Array  # (p, p)
    C: Array  # (p, q)
    n_rows: int
    weight: float

    @property
    def products(self) -> Array:
        """Products of the columns, (p, p)."""
        return self.G

    @cached_property
    def squares(self) -> Array:
        """Sums of squares of the columns, (p,)."""
        return np.ascontiguousarray(np.diagonal(self.G))

    @property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.G @ random_numbers(len(self.G), 2))

    def system(self, prior_variances: Array) -> System:
        """System of penalised least squares, for any penalty."""
        return System.from_gram(self.G, self.C, prior_variances)

    def members(self, columns: Indices) -> Array:
        """Coefficients (k, p) of the first target, by least squares on sets of sorted columns (k,
        m).
        """
        k, m = columns.shape
        p = len(self.G)
        G = self.G.copy()
        np.einsum("ii->i", G)[:] *= 1 + JITTER
        starts = m * np.arange(k + 1)
        values = np.empty((k * m, 1))
        if (
            2 * m > p > MAX_DIRECT_COLUMNS
        ):  # a large member may be cheaper to solve on the columns it lacks
            moments = Moments(
                n_rows=self.n_rows,
                weight=self.weight,
                mean_x=np.zeros(p),
                mean_y=np.zeros(1),
                G=G,
                C=self.C,
                yy=np.zeros(1),
                centred=False,
            )
            values = gram.from_moments(
                moments, Subsets(p, starts, columns.ravel()), Threads()
            ).values
        else:
            np.einsum("ii->i", G)[self.squares == 0] = 1.0  # constant columns: coefficient zero
            kernels.solve_principal(
                begin=0,
                end=k,
                G=G,
                C=self.C,
                scale=np.ones(p),
                data=kernels.MemberData.none(p),
                columns=kernels.Lists.of(starts, columns.ravel()),
                values=values,
                ratios=np.empty(k),
                probed=np.empty(k),
            )
        return _by_column(values, columns, p)

    def lasso(self, fractions: Array) -> Array:
        """Coefficients (penalties, p, q) of the lasso at falling fractions of the largest penalty.

        The path ends when the number of columns reaches half the number of rows.
        """
        return _lasso(
            M=np.ascontiguousarray(self.G),
            targets=self.C,
            squares=self.squares,
            C=self.C,
            fractions=fractions,
            max_columns=self.n_rows / 2,
            from_rows=False,
        )


@dataclass(frozen=True)
class RowFits:
    """Fits of standardised, centred columns from the rows themselves, for more columns than rows."""

    A: Array  # (n, p) in column order, sqrt-weighted
    B: Array  # (n, q) sqrt-weighted
    root: Array  # (n,) square roots of the weights
    centred: bool
    known_products: Array | None = None  # A A', if it was computed before

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.A)

    @cached_property
    def weight(self) -> float:
        """Total weight of the rows."""
        return float(self.root @ self.root)

    @cached_property
    def products(self) -> Array:
        """Products of the rows, A A', (n, n)."""
        return row_products(self.A) if self.known_products is None else self.known_products

    @cached_property
    def C(self) -> Array:
        """Products of columns and targets, (p, q)."""
        return np.asarray(self.A.T @ self.B)

    @cached_property
    def squares(self) -> Array:
        """Sums of squares of the columns, (p,)."""
        return np.asarray(np.einsum("lj,lj->j", self.A, self.A))

    def take(self, rows: Indices, constant_tol: float) -> RowFits:
        """Fits of a subset of rows, centred: P A and P A A' P, with P = I - r r'/r'r and r the
        roots of the weights.

        A column with less than `constant_tol` of its sum of squares in the subset counts as
        constant there. Otherwise a level of a factor that does not occur in the subset would be a
        column of rounding errors with a coefficient of any size.
        """
        A = self.A.T[:, rows].T
        B = self.B[rows]
        K = self.products[np.ix_(rows, rows)]
        r = self.root[rows]
        if self.centred:
            mean_weights = r / (r @ r)
            A -= r[:, None] * (mean_weights @ A)
            B -= r[:, None] * (mean_weights @ B)
            u = K @ mean_weights
            K -= np.outer(r, u)
            K -= np.outer(u, r)
            K += (mean_weights @ u) * np.outer(r, r)
        constant = np.flatnonzero(np.einsum("lj,lj->j", A, A) <= constant_tol * self.squares)
        if len(constant):
            K -= A[:, constant] @ A[:, constant].T
            A[:, constant] = 0.0
            if len(constant) == A.shape[1]:
                K[:] = 0.0  # exact zeros instead of rounding errors
        return RowFits(A, B, r, self.centred, K)

    @property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.A.T @ random_numbers(len(self.A), 2))

    def system(self, prior_variances: Array) -> System:
        """System of penalised least squares, for any penalty."""
        return System.from_rows(self.A, self.B, prior_variances, self.products)

    def members(self, columns: Indices) -> Array:
        """Coefficients (k, p) of the first target, by least squares on sets of sorted columns (k,
        m).
        """
        k, m = columns.shape
        p = self.A.shape[1]
        features = Subsets(p, m * np.arange(k + 1), columns.ravel())
        return _by_column(self.solve_members(features, Threads()).values, columns, p)

    def solve_members(self, features: Subsets, threads: Threads) -> Solution:
        """Least squares on subsets of the columns, all targets.

        Members whose Gram matrix cannot be trusted get JITTER on its diagonal, as all members of
        :class:`GramFits` do: the shortest solution in units of the columns, up to a relative error
        of JITTER.
        """
        solution = gram.from_submatrices(
            RowData(self.A, self.B, None, False), features, None, threads
        )
        doubtful = np.flatnonzero(solution.refitted)

        def refit(start: int, stop: int) -> None:
            for i in doubtful[start:stop].tolist():
                A = self.A[:, features[i]]
                system = System(A.T @ A, A.T @ self.B, np.ones(A.shape[1]))
                solution.values[features.indptr[i] : features.indptr[i + 1]] = (
                    system.jittered_solution()
                )

        threads(refit, len(doubtful))
        return solution

    def lasso(self, fractions: Array) -> Array:
        """Coefficients (penalties, p, q) of the lasso, see :meth:`GramFits.lasso`."""
        if not np.any(self.C):
            return np.zeros((1, *self.C.shape))
        return _lasso(
            M=np.ascontiguousarray(self.A.T),
            targets=self.B,
            squares=self.squares,
            C=self.C,
            fractions=fractions,
            max_columns=len(self.A) / 2,
            from_rows=True,
        )


Fits = GramFits | RowFits


def penalised(fits: Fits, prior_variances: Array, penalties: Array) -> Array:
    """Coefficients (penalties, p) of the first target, for penalties in units."""
    return fits.system(prior_variances).coefficients(
        penalties * penalty_unit(fits, prior_variances), JITTER
    )[:, :, 0]


def inclusion(fits: Fits, prior_variances: Array, penalty: float) -> Array:
    """Probability of every column to be in a determinantal member, (p,), for a penalty in units."""
    return fits.system(prior_variances).degrees_of_freedom(
        penalty * penalty_unit(fits, prior_variances)
    )


def penalty_unit(fits: Fits, prior_variances: Array) -> float:
    """Unit of penalties for given prior variances, see the module."""
    return float(prior_variances @ fits.squares) / fits.weight


def lasso_path(fits: Fits, fractions: Array) -> Array:
    """Coefficients (penalties, p) of the lasso of the first target, see :meth:`GramFits.lasso`."""
    return fits.lasso(fractions)[:, :, 0]


def members(fits: Fits, columns: Indices) -> Array:
    """Coefficients (k, p) of least-squares members, see :meth:`GramFits.members`."""
    return fits.members(columns)


def lasso_penalty(fits: Fits, coef: Array, fraction: float) -> float:
    """The penalty, in units, that reproduces the lasso's coefficients (p, q) with prior variances
    |b_j| / max |b|.

    A'(B - A b) = l b / |b| for columns with b != 0, so that l is the penalty for prior variances
    |b|.
    """
    b = np.linalg.norm(coef, axis=1)
    return fraction * _largest_penalty(fits.C) / penalty_unit(fits, b) if b.any() else 0.0


def _by_column(values: Array, columns: Indices, p: int) -> Array:
    """Coefficients of the first target of members with columns (k, m), as (k, p)."""
    out = np.zeros((len(columns), p))
    np.put_along_axis(out, columns, values[:, 0].reshape(columns.shape), axis=1)
    return out


def _largest_penalty(C: Array) -> float:
    """The lasso penalty at which all coefficients become zero, from products (p, q) of columns and
    targets.
    """
    return float(np.linalg.norm(C, axis=1).max(initial=0.0))


def _lasso(
    *,
    M: Array,
    targets: Array,
    squares: Array,
    C: Array,
    fractions: Array,
    max_columns: float,
    from_rows: bool,
) -> Array:
    """Lasso path, iterated until one column changes the squared fit by less than LASSO_TOL of the
    largest such fit.
    """
    # a little above the largest penalty, at which rounding would decide whether the first column
    # enters
    top = (1 + TIE_TOL) * _largest_penalty(C)
    return kernels.lasso_path(
        M=M,
        targets=targets,
        squares=squares,
        penalties=fractions * top,
        max_columns=float(max_columns),
        tol=LASSO_TOL * top**2 / max(float(squares.max(initial=0.0)), 1e-300),
        from_rows=from_rows,
    )


def few_columns(shape: tuple[int, int]) -> bool:
    """Whether Gram matrices are cheaper than rows."""
    n, p = shape
    return p <= MAX_GRAM_COLUMNS_PER_ROW * n


def standardised_fits(problem: RowData, threads: Threads) -> tuple[Fits, Array]:
    """Fits of all rows, from the Gram matrix or from the rows where columns are more, and standard
    deviations.
    """
    if not few_columns(problem.shape):
        return standardised_rows(problem)
    moments = problem.moments_by(threads)
    unit = standard_deviations(np.diagonal(moments.G) / moments.weight)
    return gram_fits(moments, unit, moments), unit


def standard_deviations(variance: Array) -> Array:
    """Roots of variances; one for constant columns."""
    return np.where(variance > 0, np.sqrt(np.maximum(variance, 0.0)), 1.0)


def gram_fits(moments: Moments, unit: Array, total: Moments) -> GramFits:
    """Normal equations of a subset of rows; columns with almost no variance there count as
    constant.
    """
    G = moments.G / unit / unit[:, None]
    C = moments.C / unit[:, None]
    constant = np.diagonal(moments.G) <= CONSTANT_TOL * np.diagonal(total.G)
    if constant.any():
        G[constant] = 0.0
        G[:, constant] = 0.0
        C[constant] = 0.0
    return GramFits(G, C, moments.n_rows, moments.weight)


def standardised_rows(problem: RowData) -> tuple[RowFits, Array]:
    """Fits of all rows, and the standard deviations of the columns; constant columns are zero."""
    dense = (
        problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X, dtype=np.float64)
    )
    root = np.ones(len(dense)) if problem.weight is None else np.sqrt(problem.weight)
    mean_x, mean_y = problem.means
    total = problem.total_weight
    A = np.subtract(dense, mean_x, order="F")
    if problem.weight is not None:
        A *= root[:, None]
    squares = np.einsum("lj,lj->j", A, A)
    if problem.fit_intercept:
        squares[constant_columns(squares, mean_x, total)] = 0.0
    A[:, squares == 0] = 0.0
    unit = standard_deviations(squares / total)
    A /= unit
    return RowFits(A, (problem.Y - mean_y) * root[:, None], root, problem.fit_intercept), unit
