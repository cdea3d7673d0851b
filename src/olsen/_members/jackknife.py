r"""Jackknife quantities: members, and sums over an ensemble of them, without each of their rows in turn.

**One member.** With (centred, root-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an intercept). The second
case (Greville) is a row that is fitted exactly, as all rows of a minimum-norm member are; there it equals
:math:`(K^{+} B)_l / (K^{+})_{ll}` with :math:`K = A A'`. Status: exact. Rows a member was not given keep
:math:`e_l = y_l - \hat y_l` and change nothing. Z comes from the inverse of the smaller Gram matrix, A'A or K, where
that is trusted and no row is fitted too closely for its rounding, and from a QR or SVD of the data otherwise.

**Members on all rows.** With rows :math:`a_l` about their means, shares :math:`s_l = w_l / \sum w` (zero without an
intercept) and :math:`P_i = G_{SS}^{-1}`, zero outside the columns of member i,

.. math:: e_{il} = \frac{y_l - \bar y - a_l' b_i}{1 - s_l - w_l a_l' P_i a_l} , \qquad
          b_i - b_{i,-l} = w_l P_i a_l e_{il}

so a block of rows and a batch of members are one stacked product :math:`P_i A`: :math:`2 m^2` flops a row and member,
and nothing larger than a batch is kept. Threads share the rows, so that sums over members do not depend on them.
For members of most columns, with P the inverse of the whole Gram matrix, C the columns left out and :math:`g_l = P
a_l`, :math:`P_i a_l = g_l - P_{:C} P_{CC}^{-1} g_{l,C}`: the same product of size p - m (complement form).

**Infinitely many determinantal members** are ridge regression with the mean inverse :math:`M = (G + \lambda
D^{-1})^{-1}` (``subsets.Determinantal``) in place of :math:`P_i`. Status: exact for a given penalty; that the penalty
of an expected size is another one without row l is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.threads import Sharing
from .._moments import weighted_mean
from .._trust import EPS, EXACT_FIT, LARGEST_INFLATION, costs_a_rank, nothing_but_rounding
from ..subsets import Determinantal, Subsets
from .orthogonal import basis_and_inverse, least_squares
from .problem import Problem, Submatrix

__all__ = [
    "Deleted",
    "MemberDeletion",
    "Operator",
    "TrainingRows",
    "Visit",
    "delete_each_row",
    "delete_rows",
    "delete_rows_of_limit",
    "inverses",
    "rows_of",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Called with coefficient changes summed over some members, (q, columns, rows), times the members' weights. Several
# times for the same rows, but never by two threads at once.
Visit = Callable[[Indices, Any, NDArray[np.float64]], None]

BLOCK_BYTES = 1 << 18  # of rows: they stay in the cache of a core while members are applied to them
BATCH_BYTES = 3 << 17  # of a batch of members, for the same reason
GROUP_BYTES = 1 << 26  # of inverses at a time
LARGEST_WHOLE_INFLATION = LARGEST_INFLATION**0.5  # of all columns: the complement form multiplies by it once more


@dataclass(frozen=True)
class MemberDeletion:
    """One member with each row deleted in turn; row indices are those of the whole problem."""

    rows: NDArray[np.int64]  # (tau,) rows the member was given
    coef: NDArray[np.float64]  # (m, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_x: NDArray[np.float64]  # (m,) mean of the member's rows; zeros without intercept
    mean_all: NDArray[np.float64]  # (q,) the same of its targets
    mean_y: NDArray[np.float64]  # (n, q) the same without row l
    share: NDArray[np.float64]  # (tau,) of its rows in these means
    pinv: NDArray[np.float64]  # (m, tau) derivative of the coefficients with respect to the targets
    refits: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # (m, q) changes that were found by a refit

    def coef_change(self) -> NDArray[np.float64]:
        """Coefficients minus those without row l, (q, m, tau)."""
        change: Array = self.pinv * self.residual[self.rows].T[:, None, :]
        for l, own in self.refits.items():
            change[:, :, l] = own.T
        return change


def delete_each_row(problem: Problem, columns: Indices, rows: Indices | None) -> MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    n = len(problem.Y)
    part = problem.submatrix(columns, rows)
    given = np.arange(n) if rows is None else rows
    freedom = len(given) - problem.fit_intercept
    share = part.root**2 / (part.root @ part.root) if problem.fit_intercept else np.zeros(len(given))
    found = _from_gram(problem, part, share, freedom) or _from_data(problem, part, columns, share, freedom)
    Z, coef, deleted, near = found
    intercept = part.intercept(coef)
    residual = problem.Y - _predict(problem.X, columns, coef) - intercept
    residual[given] = deleted / part.root[:, None]
    refits = {}
    for l in near.tolist():  # a refit without the row
        others = problem.submatrix(columns, np.delete(given, l))
        own = least_squares(others.A, others.B, problem.cutoff(others, columns))
        predicted = _predict(problem.X[given[l : l + 1]], columns, own)[0] + others.intercept(own)
        residual[given[l]], refits[l] = problem.Y[given[l]] - predicted, coef - own
    mean_y = np.tile(part.mean_y, (n, 1))
    mean_y[given] = (part.mean_y - share[:, None] * problem.Y[given]) / (1 - share)[:, None]
    # with respect to raw targets: rows of A and B carry the root of their weight
    pinv = Z * part.root
    return MemberDeletion(given, coef, intercept, residual, part.mean_x, part.mean_y, mean_y, share, pinv, refits)


def _predict(X: Any, columns: Indices, coef: Array) -> Array:
    return np.asarray(X[:, columns] @ coef, dtype=np.float64)


# What a factorisation of a member gives: pseudo-inverse (m, tau), coefficients (m, q), residuals (tau, q) of deleted
# rows in the (root-weighted) units of B, and rows whose residual only a refit would tell.
_Factored = tuple[Array, Array, Array, Indices]


def _from_gram(problem: Problem, part: Submatrix, share: Array, freedom: int) -> _Factored | None:
    """From the inverse of the smaller Gram matrix, of the columns or the rows; None where that is not trusted."""
    A, B, none = part.A, part.B, np.empty(0, dtype=np.int64)
    if not min(A.shape):
        return None
    if A.shape[1] < freedom:
        P, inflation = inverses((A.T @ A)[None])
        if not (inflation[0] < LARGEST_INFLATION and _keeps_all_directions(problem, A.shape[1], inflation)[0]):
            return None
        Z = P[0] @ A.T
        left = 1 - np.einsum("lj,jl->l", A, Z) - share
        coef = Z @ B
        return (Z, coef, (B - A @ coef) / left[:, None], none) if left.min() > _doubtful_below(inflation)[0] else None
    # a minimum-norm member; the root weights, orthogonal to centred rows, get a place of their own in K
    K = A @ A.T
    unit, null = np.trace(K) / len(K), np.sqrt(share)  # of length one with an intercept, else zero
    K += unit * np.outer(null, null)
    if problem.rcond is not None or nothing_but_rounding(np.diagonal(K), max(A.shape)):
        return None
    P, inflation = inverses(K[None])
    inverse = P[0] - np.outer(null, null) / unit
    own = np.diagonal(inverse)
    trusted = inflation[0] < LARGEST_INFLATION and np.min(own * np.diagonal(K)) > _doubtful_below(inflation)[0]
    Z = A.T @ inverse
    return (Z, Z @ B, (inverse @ B) / own[:, None], none) if trusted else None


def _from_data(problem: Problem, part: Submatrix, columns: Indices, share: Array, freedom: int) -> _Factored:
    """By QR or SVD; rows of leverage near one are deleted by Greville's formula or, with others like them, by a refit.

    A member of full row rank fits every row: that is known, while 1 - h is rounding, which grows with the offset.
    """
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), freedom)
    coef = Z @ part.B
    left = 1 - (Q * Q).sum(axis=1) - share
    alone, near = np.ones(len(Q), dtype=bool), np.empty(0, dtype=np.int64)
    if Q.shape[1] < freedom:
        exact = np.flatnonzero(left <= EXACT_FIT)
        hat = Q[exact] @ Q.T + np.sqrt(np.outer(share[exact], share))
        hat[np.arange(len(exact)), exact] = 0.0
        lost = np.array([costs_a_rank(float(one @ one), len(Q)) for one in hat], dtype=bool)
        alone[:] = False
        alone[exact[lost]], near = True, exact[~lost]
    out = (part.B - Q @ (Q.T @ part.B)) / np.where(left <= EXACT_FIT, 1.0, left)[:, None]
    if alone.any():
        out[alone] = (Z[:, alone].T @ coef) / (Z[:, alone] ** 2).sum(axis=0)[:, None]
    return Z, coef, out, near


def inverses(G: Array) -> tuple[Array, Array]:
    """Inverses of Gram matrices (b, m, m), and the largest entry of each in units of the columns: their inflation.

    On the diagonal these are the variance inflation factors, and of a positive definite matrix the largest entry is
    there; one that rounding has made indefinite shows beside it. Infinite where there is no inverse. Columns of zeros,
    which have no direction, get one of their own, with a zero in all products.

    NumPy's functions let other threads work meanwhile; SciPy's do not.
    """
    diagonal = np.diagonal(G, axis1=1, axis2=2)
    zero = diagonal <= 0
    if zero.any():
        G = G + zero[:, :, None] * np.eye(G.shape[1])
        diagonal = np.diagonal(G, axis1=1, axis2=2)
    try:
        P: Array = np.asarray(np.linalg.inv(G), dtype=np.float64)
    except np.linalg.LinAlgError:
        if len(G) == 1:
            return np.zeros_like(G), np.full(1, np.inf)
        found = [inverses(one[None]) for one in G]
        return np.concatenate([P for P, _ in found]), np.concatenate([inflation for _, inflation in found])
    length = np.sqrt(diagonal)
    scaled = P * length[:, :, None]
    scaled *= length[:, None, :]
    largest = np.maximum(scaled.max(axis=(1, 2), initial=0.0), -scaled.min(axis=(1, 2), initial=0.0))
    return P, np.where(np.isfinite(largest), largest, np.inf)


def _doubtful_below(inflation: Array) -> Array:
    """What is left of a row, 1 - h, from which on r / (1 - h) keeps eight digits: h is good to eps times inflation."""
    return np.maximum(EXACT_FIT, 1e8 * EPS * inflation)


def _keeps_all_directions(problem: Problem, n_columns: int, inflation: Array) -> NDArray[np.bool_]:
    """Whether no direction of members of so many columns is below the cut-off that a user gave.

    Singular values of columns of unit length are between 1 / sqrt(m inflation) and sqrt(m).
    """
    if problem.rcond is None:
        return np.ones(len(inflation), dtype=bool)
    return np.asarray(problem.rcond * n_columns * np.sqrt(inflation) < 1)


@dataclass(frozen=True)
class Operator:
    """Derivative of the ensemble with respect to the targets.

    Of coefficients it is :math:`M A' W + F`, with rows A about the means of all, of predictions at them `centre`.
    """

    M: NDArray[np.float64]  # (p, p)
    F: NDArray[np.float64] | None  # (p, n), of members that have no place in M; None: zero
    centre: NDArray[np.float64]  # (n,) without the scale: share of the mean
    moved: NDArray[np.float64]  # (n,) what the scale applies to


@dataclass(frozen=True)
class Deleted:
    """Sums over members, times their weights; the scale is not in them."""

    coef: NDArray[np.float64]  # (p, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_y: NDArray[np.float64]  # (n, q) mean target without row l
    mean_change: NDArray[np.float64]  # (n, q) mean target minus the same without row l
    moved: NDArray[np.float64]  # (n, q) what row l changes of the prediction at the means of all rows
    operator: Operator | None

    @classmethod
    def zeros(cls, problem: Problem, operator: bool) -> Deleted:
        """Sums to begin with."""
        (n, p), q = problem.shape, problem.Y.shape[1]
        empty = Operator(np.zeros((p, p)), None, np.zeros(n), np.zeros(n)) if operator else None
        a, b, c, d = np.zeros((4, n, q))
        return cls(np.zeros((p, q)), np.zeros(q), a, b, c, d, empty)

    def add_shared(self, rows: TrainingRows, coef: Array, weight: float, M: Array | None) -> None:
        """Members on all rows, of weight together: their coefficients, means, and inverses M where these are wanted."""
        self.coef[:] += coef
        self.intercept[:] += weight * rows.mean_y - rows.mean_x @ coef
        share = rows.share[:, None]
        change = share / (1 - share) * (rows.problem.Y - rows.mean_y)
        self.mean_change[:] += weight * change
        self.mean_y[:] += weight * (rows.mean_y - change)
        if self.operator is not None:
            assert M is not None
            self.operator.M[:] += M
            self.operator.centre[:] += weight * rows.share


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a problem about their means, read in blocks."""

    problem: Problem
    mean_x: NDArray[np.float64]  # (p,)
    mean_y: NDArray[np.float64]  # (q,)
    dead: NDArray[np.int64]  # columns that are constant

    @cached_property
    def weight(self) -> NDArray[np.float64]:
        """Weights of the rows, (n,)."""
        return np.ones(len(self.problem.Y)) if self.problem.weight is None else self.problem.weight

    @cached_property
    def share(self) -> NDArray[np.float64]:
        """Share of every row in the mean, (n,); zeros without an intercept."""
        return self.weight / self.weight.sum() if self.problem.fit_intercept else np.zeros(len(self.weight))

    @cached_property
    def _X(self) -> Any:
        return sp.csr_array(self.problem.X) if sp.issparse(self.problem.X) else self.problem.X

    def blocks(self) -> list[slice]:
        """Consecutive rows; how they are cut depends on the shape alone, and so do sums."""
        n, p = self.problem.shape
        most = int(np.clip(BLOCK_BYTES // (8 * (p + 1)), 64, 2048))
        count = -(-n // min(most, max(64, -(-n // 4))))
        edges = np.linspace(0, n, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(edges)]

    def block(self, rows: slice) -> NDArray[np.float64]:
        """Columns about their means of some rows, (p + 1, rows); the last one is zero, to fill up members."""
        part = self._X[rows]
        x = np.zeros((self.problem.shape[1] + 1, rows.stop - rows.start))
        np.subtract(part.toarray().T if sp.issparse(part) else part.T, self.mean_x[:, None], out=x[:-1])
        x[self.dead] = 0.0
        return x


def rows_of(problem: Problem, dead: Indices | None = None) -> TrainingRows:
    """Rows about plain means; where no Gram matrix is made, members centre their columns themselves."""
    mean_x, mean_y = np.zeros(problem.shape[1]), np.zeros(problem.Y.shape[1])
    if problem.fit_intercept:
        mean_x, mean_y = weighted_mean(problem.X, problem.weight), weighted_mean(problem.Y, problem.weight)
    return TrainingRows(problem, mean_x, mean_y, np.empty(0, dtype=np.int64) if dead is None else dead)


def delete_rows(
    problem: Problem,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    sharing: Sharing,
    *,
    visit: Visit | None = None,
    operator: bool = False,
) -> tuple[Deleted, TrainingRows]:
    """All sums; `visit` is called with the changes of coefficients, which may not fit into memory at once.

    Members that are not on all rows, interpolate them, or whose inverse is not trusted are deleted from one by one.
    """
    (n, p), members, sums = problem.shape, np.flatnonzero(weights), Deleted.zeros(problem, operator)
    tall = members[features.sizes[members] < n - problem.fit_intercept] if samples is None else members[:0]
    sizes = features.sizes[tall]
    # one Gram matrix of all columns is less work than one for each member, or saves copies of many rows
    many_rows = p <= n and 32.0 * n * float(sizes.max(initial=0)) > GROUP_BYTES
    if len(tall) and (many_rows or float(p) ** 2 <= 2 * float(np.sum(sizes.astype(float) ** 2))):
        rows, done = _add_batches(problem, features, weights, tall, sharing, sums, visit)
        members = np.setdiff1d(members, done)
    else:
        rows = rows_of(problem)
    if len(members):
        sums = _add_one_by_one(rows, features, samples, weights, members, sharing, sums, visit)
    return sums, rows


@dataclass(frozen=True)
class _Form:
    """Members as principal submatrices: of the Gram matrix, or what they leave out as submatrices of its inverse."""

    features: Subsets  # columns of all members
    subsets: Subsets  # these, or what they leave out
    G: Array  # (p + 1, p + 1), the last row and column zero
    C: Array  # (p + 1, q)
    whole: tuple[Array, Array] | None = None  # complement form: inverse (p, p) and solution (p, q) of all columns
    inflation: float = 1.0  # of all columns, in the complement form

    def complement(self) -> _Form | None:
        """The other form; None where the inverse of the whole matrix is not trusted."""
        P, inflation = inverses(self.G[None, :-1, :-1])
        if not inflation[0] < LARGEST_WHOLE_INFLATION:
            return None
        solution = P[0] @ self.C[:-1]
        G, C = np.pad(P[0], (0, 1)), np.pad(solution, ((0, 1), (0, 0)))
        return _Form(self.features, self.features.complement(), G, C, (P[0], solution), float(inflation[0]))

    def split(self, members: Indices, n: int) -> list[tuple[_Form, Indices]]:
        """Members in the form that is less work, largest first: a batch fills up to its largest."""
        members = members[np.argsort(-self.features.sizes[members], kind="stable")]
        p, sizes = self.features.n_items, self.features.sizes[members]
        large = sizes > p - sizes
        saved = 2.0 * n * np.sum(sizes[large] ** 2.0 - (p - sizes[large]) ** 2.0)
        form = self.complement() if saved > 3.0 * p**3 + 4.0 * n * p**2 else None
        parts = [(self, members)] if form is None else [(form, members[large][::-1]), (self, members[~large])]
        return [(one, part) for one, part in parts if len(part)]


@dataclass(frozen=True)
class _Batch:
    """Some members with their inverses, filled up to the same size by columns of zeros."""

    form: _Form
    members: Indices  # (b,)
    weights: Array  # (b,) of the members in the ensemble
    columns: Indices  # (b, m)
    solver: Array  # (b, m + q, m) inverses and, below, coefficients: one product serves both
    doubt: Array  # (b,) what is left of a row below which its residual is not trusted

    @classmethod
    def inverted(cls, problem: Problem, form: _Form, weights: Array, members: Indices) -> _Batch:
        """The members whose inverse is trusted."""
        subsets, filler = form.subsets, form.subsets.n_items
        sizes, starts = subsets.sizes[members, None], subsets.indptr[members, None]
        place = np.arange(sizes.max())
        columns = np.where(place < sizes, subsets.indices.take(starts + place, mode="clip"), filler)
        P, inflation = inverses(form.G[columns[:, :, None], columns[:, None, :]])
        inflation = inflation * form.inflation
        solver = np.concatenate([P, (P @ form.C[columns]).transpose(0, 2, 1)], axis=1)
        doubt = _doubtful_below(inflation)
        good = (inflation < LARGEST_INFLATION) & _keeps_all_directions(problem, filler, inflation)
        if good.all():
            return cls(form, members, weights[members], columns, solver, doubt)
        return cls(form, members[good], weights[members[good]], columns[good], solver[good], doubt[good])

    @property
    def coef(self) -> Array:
        """Coefficients (b, q, m)."""
        return self.solver[:, self.columns.shape[1] :]

    def adder(self, n_columns: int) -> sp.csc_array:
        """Adds what members have in their columns to all columns and, of no use, what is below to one more."""
        columns = np.full(self.solver.shape[:2], n_columns, dtype=np.int32)
        columns[:, : self.columns.shape[1]] = self.columns
        ends = np.arange(columns.size + 1, dtype=np.int32)
        return sp.csc_array((np.ones(columns.size), columns.ravel(), ends), shape=(n_columns + 1, columns.size))

    def inverse_sum(self, p: int) -> Array:
        """Sum over members of their inverses, zero outside their columns, (p + 1, p + 1)."""
        wide = np.zeros((*self.solver.shape[:2], p + 1))
        m, columns = self.columns.shape[1], self.columns[:, None, :]
        own = self.solver[:, :m] * self.weights[:, None, None]
        np.put_along_axis(wide[:, :m], np.broadcast_to(columns, own.shape), own, axis=2)
        return np.asarray(self.adder(p) @ wide.reshape(-1, p + 1))

    def residuals(self, rows: TrainingRows, here: slice, x: Array, data: Array) -> tuple[Array, Array]:
        """Residuals without each row of a block, (b, q, rows), and solvers times data, (b, m + q, rows)."""
        A = np.take(data, self.columns, axis=0)
        D, m = self.solver @ A, A.shape[1]
        leverage, fitted = np.einsum("bjl,bjl->bl", A, D[:, :m]), D[:, m:]
        if self.form.whole is not None:
            leverage = np.einsum("jl,jl->l", x, data) - leverage
            fitted = self.form.whole[1].T @ x[:-1] - fitted
        left = 1 - rows.share[here] - rows.weight[here] * leverage
        close = left <= self.doubt[:, None]
        residual = (rows.problem.Y[here] - rows.mean_y).T - fitted
        residual /= np.where(close, 1.0, left)[:, None, :] if close.any() else left[:, None, :]
        if close.any():
            self._delete_close_rows(residual, D[:, :m], data, rows, here, *np.nonzero(close))
        return residual, D

    def _delete_close_rows(
        self, residual: Array, D: Array, data: Array, rows: TrainingRows, here: slice, which: Indices, places: Indices
    ) -> None:
        """Residuals of rows that members fit too closely for rounding: by Greville's formula, or from the data."""
        count, p = len(which), rows.problem.shape[1]
        wide = np.zeros((count, 1 + residual.shape[1], p + 1))  # fillers all write a zero to the last place
        own = np.concatenate([D[which, :, places][:, None], self.coef[which]], axis=1)
        np.put_along_axis(wide, np.broadcast_to(self.columns[which][:, None], own.shape), own, axis=2)
        direction, coef = wide[:, 0, :-1], wide[:, 1:, :-1]
        if self.form.whole is not None:
            P, solution = self.form.whole
            direction, coef = data[:-1, places].T - direction @ P, solution.T - coef @ P
        beside, number = np.zeros(count), here.start + places
        root, share = np.sqrt(rows.weight), np.sqrt(rows.share)
        for block in rows.blocks():  # rows of the hat matrices beside the diagonal
            hat = direction @ rows.block(block)[:-1] * root[block] * root[number][:, None]
            hat += share[block] * share[number][:, None]
            inside = (number >= block.start) & (number < block.stop)
            hat[inside, number[inside] - block.start] = 0.0
            beside += np.einsum("il,il->i", hat, hat)
        length = rows.weight[number] * np.einsum("ij,ij->i", direction, direction)
        greville = np.einsum("iqj,ij->iq", coef, direction) / length[:, None]
        again: dict[int, Array] = {}
        for k, (i, l) in enumerate(zip(which.tolist(), places.tolist(), strict=True)):
            if costs_a_rank(float(beside[k]), len(root)):
                residual[i, :, l] = greville[k]
                continue
            if i not in again:
                again[i] = delete_each_row(rows.problem, self.form.features[int(self.members[i])], None).residual
            residual[i, :, l] = again[i][here.start + l]


def _add_batches(
    problem: Problem,
    features: Subsets,
    weights: Array,
    members: Indices,
    sharing: Sharing,
    sums: Deleted,
    visit: Visit | None,
) -> tuple[TrainingRows, Indices]:
    """Add members on all rows from one Gram matrix; the rows, and the members that were trusted."""
    moments, p, quiet = problem.moments_by(sharing), features.n_items, sharing.quiet()
    rows = TrainingRows(problem, moments.mean_x, moments.mean_y, np.flatnonzero(np.diagonal(moments.G) <= 0))
    blocks, done = rows.blocks(), [members[:0]]
    direct = _Form(features, features, np.pad(moments.G, (0, 1)), np.pad(moments.C, ((0, 1), (0, 0))))
    for form, part in direct.split(members, problem.shape[0]):
        largest = max(1, int(form.subsets.sizes[part[0]]))
        step = max(1, BATCH_BYTES // (8 * largest * blocks[0].stop))
        count = step * max(1, GROUP_BYTES // (8 * largest**2) // step)
        for first in range(0, len(part), count):
            group = part[first : first + count]
            few = [group[start : start + step] for start in range(0, len(group), step)]

            def invert(start: int, stop: int, form: _Form = form, few: list[Indices] = few) -> list[_Batch]:
                return [_Batch.inverted(problem, form, weights, one) for one in few[start:stop]]

            batches = list(chain.from_iterable(quiet(invert, len(few))))
            done += [batch.members for batch in batches]
            _add_members(rows, form, batches, quiet, sums)
            adders = [batch.adder(p) for batch in batches] if visit is not None else []

            def work(
                start: int,
                stop: int,
                form: _Form = form,
                batches: list[_Batch] = batches,
                adders: list[sp.csc_array] = adders,
            ) -> None:
                for here in blocks[start:stop]:
                    total, change = _on_block(rows, form, here, batches, adders)
                    sums.residual[here] += total.T
                    sums.moved[here] += (rows.share[here] * total).T
                    if visit is not None:
                        visit(np.arange(p), here, change)

            quiet(work, len(blocks), chunk=1)
    return rows, np.concatenate(done)


def _add_members(rows: TrainingRows, form: _Form, batches: list[_Batch], sharing: Sharing, sums: Deleted) -> None:
    """Coefficients, intercepts, and what else does not take the rows."""
    (p, q), weight, M = sums.coef.shape, sum(float(batch.weights.sum()) for batch in batches), None
    coef = np.zeros((p, q))
    for batch in batches:
        for t in range(q):
            own = batch.weights[:, None] * batch.coef[:, t]
            coef[:, t] += np.bincount(batch.columns.ravel(), weights=own.ravel(), minlength=p + 1)[:-1]
    if sums.operator is not None:

        def work(start: int, stop: int) -> Array:
            return np.asarray(sum(batch.inverse_sum(p) for batch in batches[start:stop]))

        M = np.asarray(sum(sharing(work, len(batches), chunk=max(1, -(-len(batches) // 8)))))[:-1, :-1]
    if form.whole is not None:
        P, solution = form.whole
        coef, M = weight * solution - P @ coef, None if M is None else weight * P - P @ M @ P
    sums.add_shared(rows, coef, weight, M)


def _on_block(
    rows: TrainingRows, form: _Form, here: slice, batches: list[_Batch], adders: list[sp.csc_array]
) -> tuple[Array, Array]:
    """Sums over members of residuals without each of these rows, (q, rows), and of changes, (q, p, rows)."""
    x, q = rows.block(here), rows.problem.Y.shape[1]
    data, size = x if form.whole is None else form.G @ x, x.shape[1]
    total, change = np.zeros((q, size)), np.zeros((q, len(x), size if adders else 0))
    for number, batch in enumerate(batches):
        residual, D = batch.residuals(rows, here, x, data)
        residual *= batch.weights[:, None, None]
        total += residual.sum(axis=0)
        if adders:
            for t in range(q):
                by_row = (residual[:, t] * rows.weight[here])[:, None, :]
                own = np.multiply(D, by_row, out=D if t == q - 1 else None)
                change[t] += adders[number] @ own.reshape(-1, size)
    if form.whole is None or not adders:
        return total, change[:, :-1]
    return total, data[:-1] * (rows.weight[here] * total)[:, None, :] - form.whole[0] @ change[:, :-1]


def _add_one_by_one(
    rows: TrainingRows,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    members: Indices,
    sharing: Sharing,
    sums: Deleted,
    visit: Visit | None,
) -> Deleted:
    """Add members that are deleted from on their own, a few at a time, in their order."""
    n, sizes = len(rows.weight), features.sizes[members]
    if sums.operator is not None:
        memory.require(
            8.0 * features.n_items * n,
            f"The derivative of {features.n_items} coefficients with respect to {n} targets",
            "Standard errors need it for members on some of the rows, dependent columns or more columns than rows; "
            "predict_interval(method='jackknife') does not.",
        )
        sums = replace(sums, operator=replace(sums.operator, F=np.zeros((features.n_items, n))))
    entries = sizes * (n if samples is None else samples.sizes[members])
    each = 32.0 * max(1.0, float(entries.max()))
    memory.require(each, f"Deleting rows from a member of {sizes.max()} columns", "Use fewer columns or rows a member.")
    step = int(np.clip(min(4 * GROUP_BYTES, memory.available_bytes() / 4) / each, 1, 16 * sharing.n_threads))
    for first in range(0, len(members), step):
        few = members[first : first + step]

        def work(start: int, stop: int, few: Indices = few) -> list[MemberDeletion]:
            own = [None if samples is None else samples[i] for i in few[start:stop]]
            return [delete_each_row(rows.problem, features[i], r) for i, r in zip(few[start:stop], own, strict=True)]

        found = chain.from_iterable(sharing.quiet()(work, len(few), chunk=1))
        for i, one in zip(few, found, strict=True):
            _add(rows, features[i], one, float(weights[i]), sums, visit)
    return sums


def _add(
    rows: TrainingRows, columns: Indices, one: MemberDeletion, weight: float, sums: Deleted, visit: Visit | None
) -> None:
    """Add one member to the sums."""
    away = one.mean_x - rows.mean_x[columns]  # zero where it was given all rows
    sums.coef[columns] += weight * one.coef
    sums.intercept[:] += weight * one.intercept
    sums.residual[:] += weight * one.residual
    sums.mean_y[:] += weight * one.mean_y
    sums.mean_change[:] += weight * (one.mean_all - one.mean_y)
    sums.moved[one.rows] += weight * one.share[:, None] * one.residual[one.rows]
    if away.any():
        sums.moved[one.rows] -= weight * (away @ one.coef_change()).T
    if visit is not None:
        visit(columns, one.rows, weight * one.coef_change())
    if sums.operator is not None:
        assert sums.operator.F is not None
        sums.operator.F[np.ix_(columns, one.rows)] += weight * one.pinv
        sums.operator.centre[one.rows] += weight * one.share
        sums.operator.moved[one.rows] -= weight * (away @ one.pinv)


def delete_rows_of_limit(
    problem: Problem, process: Determinantal, *, visit: Visit | None = None, operator: bool = False
) -> tuple[Deleted, TrainingRows]:
    """What :func:`delete_rows` sums over members, for infinitely many determinantal ones."""
    rows, sums = rows_of(problem, np.flatnonzero(process.spreads == 0)), Deleted.zeros(problem, operator)
    half = np.sqrt(process.spreads)[:, None] * process.vectors / np.sqrt(process.values + process.penalty)  # M = hh'
    weight, Y, coef = rows.weight, problem.Y - rows.mean_y, np.zeros(sums.coef.shape)
    for here in rows.blocks():
        coef += half @ ((half.T @ rows.block(here)[:-1]) @ (weight[here, None] * Y[here]))
    sums.add_shared(rows, coef, 1.0, half @ half.T if operator else None)
    for here in rows.blocks():
        x = rows.block(here)[:-1]
        inner = half.T @ x  # (rank, rows)
        left = 1 - rows.share[here] - weight[here] * np.sum(inner**2, axis=0)
        error = (Y[here] - x.T @ coef) / left[:, None]
        sums.residual[here], sums.moved[here] = error, rows.share[here, None] * error
        if visit is not None:
            by_row: Any = weight[here] * (half @ inner)  # (p, rows)
            visit(np.arange(len(x)), here, by_row * error.T[:, None])
    return sums, rows
