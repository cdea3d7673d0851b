r"""Where the signal of some rows lies, and the penalised fits that follow it.

Columns are standardised. With spreads :math:`d_j^2` given to them, penalised least squares

.. math:: \min_b \|B - A b\|^2 + \lambda \sum_j b_j^2 / d_j^2

has the degrees of freedom :math:`\alpha_j = d_j^2\, a_j' (A D^2 A' + \lambda)^{-1} a_j` in column j. It is the mean of
all determinantal members with these spreads, which take column j with probability :math:`\alpha_j` (status: theorem,
see ``subsets.Determinantal``). One family of fits:

- :math:`d_j = 1`: ridge regression;
- :math:`d_j^2 = |b_j|^q` from coefficients b of an earlier fit, powers of the signal: one step of reweighting;
- :math:`d_j^2 = |b_j|` from the lasso's own coefficients, with the lasso's penalty: that step goes nowhere, so the fit
  is the lasso (status: exact).

Penalties are in units of :math:`\sum_j d_j^2 \|a_j\|^2 / w` (w: the weight of all rows), in which the best one is the
ratio of noise to signal, however many rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members import gram
from .._members.penalised import largest_lasso_penalty, lasso_of_gram, lasso_of_rows
from .._members.problem import Problem
from .._moments import Moments
from ..subsets import Subsets

__all__ = [
    *("LASSO", "LASSO_SHARES", "NAMES", "NOTHING", "POWER", "RIDGE", "SPARSE", "UNIFORM"),
    *("Penalised", "Penalties", "SchemeFits", "Signal", "SignalOfGram", "SignalOfRows", "lasso_penalty"),
]

Array = NDArray[np.float64]

NAMES = ("ridge", "power", "lasso", "sparse", "uniform", "nothing")
RIDGE, POWER, LASSO, SPARSE, UNIFORM, NOTHING = range(len(NAMES))
PENALTIES = 10.0 ** np.array([1.0, 0.25, -0.5, -1.25, -2.0])  # of ridge regression's, for power and sparse
# of the lasso's largest penalty: fine where few columns come in, then every second one
LASSO_SHARES = np.geomspace(1.0, 2e-3, 21)[[*range(8), *range(8, 21, 2)]]
ON_TOP = 1e-8  # of its diagonal makes a Gram matrix of dependent columns definite
SPECTRAL = 20  # penalties from which on one eigendecomposition is cheaper than a factor for each
TOGETHER = 256  # columns up to which systems of all penalties are solved at once, without the interpreter's lock


@dataclass(frozen=True)
class SignalOfGram:
    """Standardised, centred columns of some rows, and targets, from their Gram matrix."""

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

    def penalised(self, spread: Array) -> Penalised:
        """Penalised least squares with spreads d_j^2, (p,)."""
        S, d = _support(spread)
        part = self.G if len(S) == len(self.G) else self.G[np.ix_(S, S)]
        M = part * d
        M *= d[:, None]
        return _Primal(M, d[:, None] * self.C[S], S, d, len(spread), float(spread @ self.squares) / self.weight)

    def members(self, features: Subsets) -> Array:
        """Coefficients of least-squares members, laid out like their columns, (entries, q)."""
        p, q = self.C.shape
        G = self.G.copy()
        np.einsum("ii->i", G)[:] *= 1 + ON_TOP
        moments = Moments(self.n_rows, self.weight, np.zeros(p), np.zeros(q), G, self.C, np.zeros(q), False)
        return gram.from_moments(moments, features, Sharing()).values

    def lasso(self, shares: Array) -> Array:
        """Coefficients (penalties, p, q) of the lasso at shares of the largest penalty, until half as many columns as
        there are rows are in."""
        return lasso_of_gram(self.G, self.C, shares, self.n_rows / 2)


@dataclass(frozen=True)
class SignalOfRows:
    """The same from the rows themselves, for more columns than rows."""

    A: Array  # (n, p) in column order, times the roots of the weights
    B: Array  # (n, q) likewise
    root: Array  # (n,) of the weights
    centred: bool
    known: Array | None = None  # A A', where it is

    @property
    def weight(self) -> float:
        """Of all rows."""
        return float(self.root @ self.root)

    @property
    def n_rows(self) -> int:
        """Rows there are."""
        return len(self.A)

    @cached_property
    def products(self) -> Array:
        """Of the rows, A A', (n, n)."""
        return np.asarray(self.A @ self.A.T) if self.known is None else self.known

    def take(self, rows: NDArray[np.int64]) -> SignalOfRows:
        """Some of the rows about their own means: with P = I - r r'/r'r of their root weights r, P A and P A A' P."""
        A, B, K, r = self.A.T[:, rows].T, self.B[rows], self.products[np.ix_(rows, rows)], self.root[rows]
        if self.centred:
            own = r / (r @ r)
            A -= r[:, None] * (own @ A)
            B -= r[:, None] * (own @ B)
            u = K @ own
            K -= np.outer(r, u)
            K -= np.outer(u, r)
            K += (own @ u) * np.outer(r, r)
        return SignalOfRows(A, B, r, self.centred, K)

    @cached_property
    def C(self) -> Array:
        """(p, q)."""
        return np.asarray(self.A.T @ self.B)

    @cached_property
    def squares(self) -> Array:
        """Of the columns, (p,)."""
        return np.asarray(np.einsum("lj,lj->j", self.A, self.A))

    def penalised(self, spread: Array) -> Penalised:
        S, d = _support(spread)
        unit = float(spread @ self.squares) / self.weight
        if len(S) <= len(self.A):
            Z = self.A[:, S] * d
            return _Primal(Z.T @ Z, Z.T @ self.B, S, d, len(spread), unit)
        return _Dual(self.A, self.B, spread, unit, self.products if np.all(spread == 1) else None)

    def members(self, features: Subsets) -> Array:
        return gram.solve_own(Problem(self.A, self.B, None, False), features, None, Sharing()).values

    def lasso(self, shares: Array) -> Array:
        return lasso_of_rows(self.A, self.B, self.C, shares, len(self.A) / 2)


Signal = SignalOfGram | SignalOfRows


@dataclass(frozen=True)
class _Primal:
    """b_S = d x with (M + penalty) x = d C_S and M = D G D on the columns S that have a spread."""

    M: Array  # (k, k)
    right: Array  # (k, q)
    S: NDArray[np.int64]
    d: Array  # (k,)
    p: int
    unit: float

    def coefficients(self, penalties: Array) -> Array:
        """(penalties, p, q) for penalties in units."""
        out = np.zeros((len(penalties), self.p, self.right.shape[1]))
        if len(self.S):
            out[:, self.S] = self.d[:, None] * _solved(self.M, self.right, penalties * self.unit)
        return out

    def probabilities(self, penalty: float) -> Array:
        """Degrees of freedom of every column, (p,): the diagonal of M (M + penalty)^-1."""
        out = np.zeros(self.p)
        if len(self.S):
            factor = _cholesky(_shifted(self.M, penalty * self.unit))
            inverse = la.lapack.dpotri(factor, lower=1)[0]
            out[self.S] = np.clip(1 - penalty * self.unit * np.diagonal(inverse), 0.0, 1.0)
        return out


@dataclass(frozen=True)
class _Dual:
    """b = D^2 A'(K + penalty)^-1 B with K = A D^2 A'."""

    A: Array  # (n, p)
    B: Array  # (n, q)
    spread: Array  # (p,)
    unit: float
    known: Array | None  # K, if it is

    @cached_property
    def K(self) -> Array:
        """(n, n)."""
        if self.known is not None:
            return self.known
        Z = self.A * np.sqrt(self.spread)
        return np.asarray(Z @ Z.T)

    def coefficients(self, penalties: Array) -> Array:
        dual = _solved(self.K, self.B, penalties * self.unit)  # (penalties, n, q)
        return np.asarray(np.moveaxis(np.tensordot(dual, self.A, axes=(1, 0)), 1, 2) * self.spread[:, None])

    def probabilities(self, penalty: float) -> Array:
        """d_j^2 a_j'(K + penalty)^-1 a_j."""
        level = ON_TOP * float(np.trace(self.K)) / len(self.K)
        if not level > 0:
            return np.zeros(len(self.spread))
        factor = _cholesky(_shifted(self.K, penalty * self.unit + level))
        seen = la.blas.dtrsm(1.0, factor, self.A, lower=1)  # L^-1 A
        return np.asarray(np.clip(self.spread * np.einsum("lj,lj->j", seen, seen), 0.0, 1.0))


Penalised = _Primal | _Dual


def _support(spread: Array) -> tuple[NDArray[np.int64], Array]:
    """Columns with a spread, and its root."""
    S = np.flatnonzero(spread > 0).astype(np.int64)
    return S, np.sqrt(spread[S])


def _shifted(M: Array, by: float) -> Array:
    out = M.copy()
    np.einsum("ii->i", out)[:] += by
    return out


def _solved(M: Array, right: Array, penalties: Array) -> Array:
    """(M + penalty)^-1 right for every penalty, (penalties, k, q)."""
    level = float(np.trace(M)) / len(M)
    if not level > 0:
        return np.zeros((len(penalties), *right.shape))
    shifts = penalties + ON_TOP * level
    if len(shifts) >= SPECTRAL:
        values, E = np.linalg.eigh(M)
        return np.asarray(E @ ((E.T @ right) / (np.maximum(values, 0.0)[:, None] + shifts[:, None, None])))
    if len(M) <= TOGETHER:
        systems = np.repeat(M[None], len(shifts), axis=0)
        np.einsum("sii->si", systems)[:] += shifts[:, None]
        return np.asarray(np.linalg.solve(systems, np.broadcast_to(right, (len(shifts), *right.shape))))
    factors = (_cholesky(_shifted(M, float(shift))) for shift in shifts)
    return np.stack([la.cho_solve((factor, True), right, check_finite=False) for factor in factors])


def _cholesky(M: Array) -> Array:
    """Lower factor, with as little on top of the diagonal as it takes, in units of each column's own."""
    own, on_top = np.diagonal(M).copy(), 0.0
    own[own <= 0] = max(float(own.max(initial=0.0)), 1.0)
    while True:
        shifted = M.copy()
        np.einsum("ii->i", shifted)[:] += on_top * own
        try:
            return np.asarray(np.linalg.cholesky(shifted))  # NumPy's leaves the interpreter to other threads
        except np.linalg.LinAlgError:
            on_top = max(ON_TOP, 10 * on_top)


def lasso_penalty(signal: Signal, coef: Array, share: float) -> float:
    """The penalty, in units, that gives the lasso's coefficients (p, q) again, with spreads |b_j| / max |b|.

    A'(B - A b) = l b / |b| where columns are in, so that l is the penalty of spreads |b|.
    """
    b = np.linalg.norm(coef, axis=1)
    return share * largest_lasso_penalty(signal.C) / float(b @ signal.squares) * signal.weight if b.any() else 0.0


@dataclass(frozen=True)
class Penalties:
    """One position for each scheme: among PENALTIES times that of ridge regression, or among LASSO_SHARES."""

    power: int
    lasso: int
    sparse: int


@dataclass(frozen=True, eq=False)
class SchemeFits:
    """Penalised fits of some rows, one target; coefficients (count, p) in common units."""

    signal: Signal
    ridge_penalty: float
    lasso_steps: int = len(LASSO_SHARES)  # at most, of the path

    @cached_property
    def ridge(self) -> Array:
        """At its penalty, (1, p)."""
        return _coefficients(self.signal.penalised(np.ones(len(self.signal.squares))), np.array([self.ridge_penalty]))

    @cached_property
    def power(self) -> Array:
        """At all penalties, (penalties, p)."""
        return _coefficients(self.signal.penalised(_powers(self.ridge[0], 1.0)), self.ridge_penalty * PENALTIES)

    @cached_property
    def lasso(self) -> Array:
        """Along its path, (shares, p)."""
        return np.asarray(self.signal.lasso(LASSO_SHARES[: self.lasso_steps])[:, :, 0])

    @cache  # noqa: B019 - as long-lived as the fits of a fold
    def sparse(self, at: int) -> Array:
        """After a step of the lasso's path, at all penalties, (penalties, p)."""
        return _coefficients(self.signal.penalised(_powers(self.lasso[at], 2.0)), self.ridge_penalty * PENALTIES)

    def chosen(self, found: Penalties) -> Array:
        """Of the four schemes, (4, p)."""
        power, sparse = self.power[[found.power]], self.sparse(found.lasso)[[found.sparse]]
        return np.concatenate([self.ridge, power, self.lasso[[found.lasso]], sparse])

    def spread(self, scheme: int, found: Penalties) -> Array:
        """Of the columns in a scheme, (p,)."""
        if scheme == RIDGE:
            return np.ones(len(self.signal.squares))
        return _powers(
            *((self.ridge[0], 1.0), (self.lasso[found.lasso], 1.0), (self.lasso[found.lasso], 2.0))[scheme - 1]
        )

    def penalty(self, scheme: int, found: Penalties) -> float:
        """Of a scheme, in units of its spreads."""
        if scheme == LASSO:
            return lasso_penalty(self.signal, self.lasso[found.lasso][:, None], float(LASSO_SHARES[found.lasso]))
        times = {RIDGE: 1.0, POWER: PENALTIES[found.power], SPARSE: PENALTIES[found.sparse]}[scheme]
        return self.ridge_penalty * float(times)

    def spreads(self, scheme: int, found: Penalties) -> tuple[Array, float]:
        """Of a scheme, with its penalty on columns in common units."""
        spread = self.spread(scheme, found)
        return spread, self.penalty(scheme, found) * float(spread @ self.signal.squares) / self.signal.weight

    def inclusion(self, scheme: int, found: Penalties) -> Array:
        """Probability of every column to be in a determinantal member: its degrees of freedom."""
        return self.signal.penalised(self.spread(scheme, found)).probabilities(self.penalty(scheme, found))


def _coefficients(fit: Penalised, penalties: Array) -> Array:
    """(penalties, p) of one target."""
    return np.asarray(fit.coefficients(penalties)[:, :, 0])


def _powers(coef: Array, q: float) -> Array:
    """|b_j|^q, the largest one."""
    top = float(np.abs(coef).max(initial=0.0))
    return (np.abs(coef) / top) ** q if top > 0 else np.zeros(len(coef))
