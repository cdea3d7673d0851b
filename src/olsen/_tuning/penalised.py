r"""Penalised least squares: the mean of all determinantal members, and the lasso to find columns for them.

With spreads d of the columns, :math:`\min_b \|B - A b\|^2 + \lambda \sum_j b_j^2 / d_j` is the mean of all
determinantal members with these spreads, which take column j with probability
:math:`\alpha_j = d_j\, a_j' (A D A' + \lambda)^{-1} a_j`, its degrees of freedom (status: theorem, see
``subsets.Determinantal``); no member itself is penalised.

- :math:`d_j = 1`: ridge regression;
- :math:`d_j = |b_j|^q` from coefficients b of an earlier fit: one step of reweighting;
- :math:`d_j = |b_j|` from the lasso's own coefficients, with the lasso's penalty: the lasso, a fixed point of that step
  (status: exact).

Penalties of :class:`GramFits` and :class:`RowFits` are in units of :math:`\sum_j d_j \|a_j\|^2 / w` (w: the weight of
all rows), in which the best one is the ratio of noise to signal, however many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.arrays import row_products
from .._execution.threads import Threads, cached_property
from .._kernel import wrappers as kernels
from .._members import Members, gram
from .._members.problem import Problem, Solution
from .._moments.moments import Moments
from .._trust import require_finite
from ..subsets import Subsets
from .arrangement import TIE_TOL, Copies, random_numbers

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

JITTER = 1e-8  # of its diagonal makes a Gram matrix of dependent columns definite
LASSO_TOL = 1e-7  # of the squared fit of the best column: coefficients only say where the signal lies
SPECTRAL = 20  # penalties from which on one eigendecomposition is cheaper than a factor for each
TOGETHER = 256  # columns up to which systems of all penalties are solved at once, without the interpreter's lock
DIRECT = 64  # columns up to which members are small whatever their size


def limit_members(coef: Array, mean_x: Array, mean_y: Array) -> Members:
    """Infinitely many members with these mean coefficients."""
    require_finite(coef)
    return Members(coef, mean_y - mean_x @ coef, mean_y, np.empty(0, dtype=np.int64), np.empty(0), "limit", 0)


@dataclass(frozen=True)
class System:
    """(M + penalty) x = right, on the columns that have a spread, or on the rows where these are fewer."""

    M: Array  # D^1/2 A'A D^1/2, or A D A'
    right: Array  # D^1/2 A'B, or B
    spreads: Array  # (p,)
    A: Array | None = None  # (n, p), where the system is that of the rows

    @classmethod
    def from_gram(cls, G: Array, C: Array, spreads: Array) -> System:
        """From products of the columns with each other and with the targets."""
        S, root = _support(spreads)
        M = (G if len(S) == len(G) else G[np.ix_(S, S)]) * root
        M *= root[:, None]
        return cls(M, root[:, None] * C[S], spreads)

    @classmethod
    def from_rows(cls, A: Array, B: Array, spreads: Array, products: Array | None = None) -> System:
        """From the rows, for more columns than rows; `products` are A A', where they are known."""
        S, root = _support(spreads)
        if products is not None and len(S) > len(A) and np.all(spreads == 1):
            return cls(products, B, spreads, A)
        Z = (A if len(S) == A.shape[1] else A[:, S]) * root
        if len(S) > len(A):
            return cls(row_products(Z), B, spreads, A)
        return cls(row_products(Z.T), Z.T @ B, spreads)

    def coefficients(self, penalties: Array, jitter: float = 0.0) -> Array:
        """(penalties, p, q)."""
        x = _solved(self.M, self.right, penalties, jitter)
        if self.A is not None:  # b = D A' x
            return np.asarray(np.moveaxis(np.tensordot(x, self.A, axes=(1, 0)), 1, 2) * self.spreads[:, None])
        out, (S, root) = np.zeros((len(penalties), len(self.spreads), x.shape[2])), _support(self.spreads)
        out[:, S] = root[:, None] * x
        return out

    def jittered_solution(self) -> Array:
        """Solution (k, q) without a penalty, but for JITTER of each diagonal entry."""
        diagonal = np.diagonal(self.M)
        shifted = self.M + np.diag(np.where(diagonal > 0, JITTER * diagonal, 1.0))  # constant columns: coefficient zero
        return np.asarray(np.linalg.solve(shifted, self.right))

    def degrees_of_freedom(self, penalty: float) -> Array:
        """Of every column, (p,): the probability to be in a determinantal member."""
        out, level = np.zeros(len(self.spreads)), JITTER * float(np.trace(self.M)) / max(1, len(self.M))
        if self.A is None and len(self.M):  # the diagonal of M (M + penalty)^-1
            inverse = la.lapack.dpotri(_cholesky(self.M, penalty), lower=1)[0]
            out[_support(self.spreads)[0]] = 1 - penalty * np.diagonal(inverse)
        elif self.A is not None and level > 0:  # d_j a_j'(M + penalty)^-1 a_j
            seen = la.blas.dtrsm(1.0, _cholesky(self.M, penalty + level), self.A, lower=1)
            out = self.spreads * np.einsum("lj,lj->j", seen, seen)
        return np.asarray(np.clip(out, 0.0, 1.0))


def _support(spreads: Array) -> tuple[Indices, Array]:
    """Columns with a spread, and its root."""
    S = np.flatnonzero(spreads > 0)
    return S, np.sqrt(spreads[S])


def _solved(M: Array, right: Array, penalties: Array, jitter: float) -> Array:
    """(M + penalty)^-1 right for every penalty, (penalties, k, q); `jitter` of the mean diagonal comes on top."""
    level = float(np.trace(M)) / max(1, len(M))
    if not level > 0:
        return np.zeros((len(penalties), *right.shape))
    shifts = penalties + jitter * level
    if len(shifts) >= SPECTRAL:
        values, E = np.linalg.eigh(M)
        return np.asarray(E @ ((E.T @ right) / (np.maximum(values, 0.0)[:, None] + shifts[:, None, None])))
    if len(M) <= TOGETHER:
        systems = np.repeat(M[None], len(shifts), axis=0)
        np.einsum("sii->si", systems)[:] += shifts[:, None]
        return np.asarray(np.linalg.solve(systems, np.broadcast_to(right, (len(shifts), *right.shape))))
    factors = (_cholesky(M, float(shift)) for shift in shifts)
    return np.stack([la.cho_solve((factor, True), right, check_finite=False) for factor in factors])


def _cholesky(M: Array, shift: float) -> Array:
    """Lower factor of M + shift, with as little on top of the diagonal as it takes, in units of each column's own."""
    own, jitter = np.diagonal(M) + shift, 0.0
    own = np.where(own > 0, own, max(float(own.max(initial=0.0)), 1.0))
    while True:
        shifted = M.copy()
        np.einsum("ii->i", shifted)[:] += shift + jitter * own
        try:
            return np.asarray(np.linalg.cholesky(shifted))  # NumPy's leaves the interpreter to other threads
        except np.linalg.LinAlgError:
            jitter = max(JITTER, 10 * jitter)


@dataclass(frozen=True)
class GramFits:
    """Fits of standardised, centred columns of some rows, from their Gram matrix."""

    G: Array  # (p, p)
    C: Array  # (p, q)
    n_rows: int
    weight: float

    @property
    def products(self) -> Array:
        """Of the columns, (p, p)."""
        return self.G

    @cached_property
    def squares(self) -> Array:
        """Of the columns, (p,)."""
        return np.ascontiguousarray(np.diagonal(self.G))

    @property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.G @ random_numbers(len(self.G), 2))

    def system(self, spreads: Array) -> System:
        """For every penalty."""
        return System.from_gram(self.G, self.C, spreads)

    def members(self, columns: Indices) -> Array:
        """Coefficients (k, p) of least squares on sets of columns (k, m), which are sorted; of the first target."""
        (k, m), p, G = columns.shape, len(self.G), self.G.copy()
        np.einsum("ii->i", G)[:] *= 1 + JITTER
        starts, values = m * np.arange(k + 1), np.empty((k * m, 1))
        if 2 * m > p > DIRECT:  # what is left out may be less work
            moments = Moments(self.n_rows, self.weight, np.zeros(p), np.zeros(1), G, self.C, np.zeros(1), False)
            values = gram.from_moments(moments, Subsets(p, starts, columns.ravel()), Threads()).values
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

    def lasso(self, shares: Array) -> Array:
        """Coefficients (penalties, p, q) of the lasso at falling shares of the largest penalty, until half as many
        columns as there are rows are in."""
        return _lasso(np.ascontiguousarray(self.G), self.C, self.squares, self.C, shares, self.n_rows / 2, False)


@dataclass(frozen=True)
class RowFits:
    """The same from the rows themselves, for more columns than rows."""

    A: Array  # (n, p) in column order, times the roots of the weights
    B: Array  # (n, q) likewise
    root: Array  # (n,) of the weights
    centred: bool
    known: Array | None = None  # A A', where it is

    @property
    def n_rows(self) -> int:
        """Rows there are."""
        return len(self.A)

    @cached_property
    def weight(self) -> float:
        """Of all rows."""
        return float(self.root @ self.root)

    @cached_property
    def products(self) -> Array:
        """Of the rows, A A', (n, n)."""
        return row_products(self.A) if self.known is None else self.known

    @cached_property
    def C(self) -> Array:
        """(p, q)."""
        return np.asarray(self.A.T @ self.B)

    @cached_property
    def squares(self) -> Array:
        """Of the columns, (p,)."""
        return np.asarray(np.einsum("lj,lj->j", self.A, self.A))

    def take(self, rows: Indices, constant_tol: float) -> RowFits:
        """Some of the rows about their own means: with P = I - r r'/r'r of their root weights r, P A and P A A' P.

        A column with less than `constant_tol` of its sum of squares in these rows counts as constant there. Otherwise a
        level of a factor that does not occur in them would be a column of rounding errors with a coefficient of any
        size.
        """
        A, B, K, r = self.A.T[:, rows].T, self.B[rows], self.products[np.ix_(rows, rows)], self.root[rows]
        if self.centred:
            own = r / (r @ r)
            A -= r[:, None] * (own @ A)
            B -= r[:, None] * (own @ B)
            u = K @ own
            K -= np.outer(r, u)
            K -= np.outer(u, r)
            K += (own @ u) * np.outer(r, r)
        constant = np.flatnonzero(np.einsum("lj,lj->j", A, A) <= constant_tol * self.squares)
        if len(constant):
            K -= A[:, constant] @ A[:, constant].T
            A[:, constant] = 0.0
            if len(constant) == A.shape[1]:
                K[:] = 0.0  # without the rounding that is left of it
        return RowFits(A, B, r, self.centred, K)

    @property
    def copies(self) -> Copies:
        """Columns that are copies of each other."""
        return Copies.of(self.A.T @ random_numbers(len(self.A), 2))

    def system(self, spreads: Array) -> System:
        return System.from_rows(self.A, self.B, spreads, self.products)

    def members(self, columns: Indices) -> Array:
        (k, m), p = columns.shape, self.A.shape[1]
        features = Subsets(p, m * np.arange(k + 1), columns.ravel())
        return _by_column(self.solve_members(features, Threads()).values, columns, p)

    def solve_members(self, features: Subsets, threads: Threads) -> Solution:
        """Least squares on subsets of the columns, all targets.

        Members whose Gram matrix cannot be trusted get a little on its diagonal, as all members of :class:`GramFits`
        do: the shortest solution in units of the columns, but for a relative error of JITTER.
        """
        solution = gram.from_submatrices(Problem(self.A, self.B, None, False), features, None, threads)
        doubtful = np.flatnonzero(solution.refitted)

        def solve_again(start: int, stop: int) -> None:
            for i in doubtful[start:stop].tolist():
                A = self.A[:, features[i]]
                system = System(A.T @ A, A.T @ self.B, np.ones(A.shape[1]))
                solution.values[features.indptr[i] : features.indptr[i + 1]] = system.jittered_solution()

        threads(solve_again, len(doubtful))
        return solution

    def lasso(self, shares: Array) -> Array:
        if not np.any(self.C):
            return np.zeros((1, *self.C.shape))
        return _lasso(np.ascontiguousarray(self.A.T), self.B, self.squares, self.C, shares, len(self.A) / 2, True)


Fits = GramFits | RowFits


def penalised(fits: Fits, spreads: Array, penalties: Array) -> Array:
    """Coefficients (penalties, p) of the first target, for penalties in units."""
    return fits.system(spreads).coefficients(penalties * penalty_unit(fits, spreads), JITTER)[:, :, 0]


def inclusion(fits: Fits, spreads: Array, penalty: float) -> Array:
    """Probability of every column to be in a determinantal member, (p,), for a penalty in units."""
    return fits.system(spreads).degrees_of_freedom(penalty * penalty_unit(fits, spreads))


def penalty_unit(fits: Fits, spreads: Array) -> float:
    """What penalties are in units of, for these spreads."""
    return float(spreads @ fits.squares) / fits.weight


def lasso_path(fits: Fits, shares: Array) -> Array:
    """Coefficients (penalties, p) of the lasso of the first target, see there."""
    return fits.lasso(shares)[:, :, 0]


def members(fits: Fits, columns: Indices) -> Array:
    """Coefficients (k, p) of least-squares members, see there."""
    return fits.members(columns)


def lasso_penalty(fits: Fits, coef: Array, share: float) -> float:
    """The penalty, in units, that gives the lasso's coefficients (p, q) again, with spreads |b_j| / max |b|.

    A'(B - A b) = l b / |b| where columns are in, so that l is the penalty of spreads |b|.
    """
    b = np.linalg.norm(coef, axis=1)
    return share * _largest_penalty(fits.C) / penalty_unit(fits, b) if b.any() else 0.0


def _by_column(values: Array, columns: Indices, p: int) -> Array:
    """Coefficients of the first target of members with columns (k, m), as (k, p)."""
    out = np.zeros((len(columns), p))
    np.put_along_axis(out, columns, values[:, 0].reshape(columns.shape), axis=1)
    return out


def _largest_penalty(C: Array) -> float:
    """The penalty of the lasso from which on no column is in, from products (p, q) of columns and targets."""
    return float(np.linalg.norm(C, axis=1).max(initial=0.0))


def _lasso(M: Array, targets: Array, squares: Array, C: Array, shares: Array, most: float, from_rows: bool) -> Array:
    """Down to a squared change of a fit by one column that is small beside the largest fit by one."""
    # a little above the largest penalty, at which rounding would decide whether the first column is in
    top = (1 + TIE_TOL) * _largest_penalty(C)
    return kernels.lasso_path(
        M=M,
        targets=targets,
        squares=squares,
        penalties=shares * top,
        max_columns=float(most),
        tol=LASSO_TOL * top**2 / max(float(squares.max(initial=0.0)), 1e-300),
        from_rows=from_rows,
    )
