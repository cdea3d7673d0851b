r"""Members, and sums over an ensemble of them, without each of their rows in turn.

**One member.** With (centred, root-weighted) submatrix A, targets B and :math:`Z = A^{+}`, deleting row l gives

.. math:: b_{-l} = b - Z_{:,l}\, e_l , \qquad
          e_l = \frac{r_l}{1 - h_l} \;\text{if } h_l < 1, \qquad
          e_l = \frac{Z_{:,l}' b}{Z_{:,l}' Z_{:,l}} \;\text{if } h_l = 1

with residual r and leverage :math:`h_l = (A Z)_{ll} + w_l / \sum w` (the last term only with an intercept). The second
case (Greville) is a row that is fitted exactly, as all rows of a minimum-norm member are. Status: exact. Rows a member
was not given keep :math:`e_l = y_l - \hat y_l` and change nothing. Z comes from the inverse of the smaller Gram matrix,
A'A or AA', where that is trusted, and from a QR or SVD of the data otherwise.

**Members on all rows.** With rows :math:`a_l` about their means, shares :math:`s_l = w_l / \sum w` (zero without an
intercept) and :math:`P_i = G_{SS}^{-1}`, zero outside the columns of member i,

.. math:: e_{il} = \frac{y_l - \bar y - a_l' b_i}{1 - s_l - w_l a_l' P_i a_l} , \qquad
          b_i - b_{i,-l} = w_l P_i a_l e_{il}

so a block of rows and a batch of members of one size are one stacked product :math:`P_i A`: :math:`2 m^2` flops a row
and member, and nothing larger than a batch is kept. Threads share the rows, so that sums over members do not depend on
them. For members of most columns, with P the inverse of the whole Gram matrix, C the columns left out and :math:`g_l =
P a_l`, :math:`P_i a_l = g_l - P_{:C} P_{CC}^{-1} g_{l,C}`: the same product of size p - m (complement form). Rows that
a member fits too closely for this, members on some rows, of more columns than rows or with an inverse that is not
trusted are deleted from one by one.

**Infinitely many determinantal members** are ridge regression with the mean inverse :math:`M = (G + \lambda
D^{-1})^{-1}` (``subsets.Determinantal``) in place of :math:`P_i`. Status: exact for a given penalty; that the penalty
of an expected size is another one without row l is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.threads import Threads, cached_property
from .._trust import EPS, EXACT_FIT, LARGEST_INFLATION, costs_a_rank, nothing_but_rounding
from ..subsets import Determinantal, Subsets
from .orthogonal import basis_and_inverse, least_squares
from .problem import Problem, Submatrix, gather

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

# Called with coefficient changes summed over some members, (q, columns, rows), times the members' weights. Several
# times for the same rows, but never by two threads at once.
Visit = Callable[[Indices, Any, NDArray[np.float64]], None]

BLOCK_BYTES = 1 << 18  # of rows: they stay in the cache of a core while members are applied to them
GROUP_BYTES = 1 << 26  # of inverses at a time


@dataclass(frozen=True)
class _MemberDeletion:
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
    refits: dict[int, NDArray[np.float64]]  # (m, q) changes of coefficients that were found by a refit without the row

    def coef_change(self) -> NDArray[np.float64]:
        """Coefficients minus those without row l, (q, m, tau)."""
        change: Array = self.pinv * self.residual[self.rows].T[:, None, :]
        for l, own in self.refits.items():
            change[:, :, l] = own.T
        return change


class _Inverse(NamedTuple):
    """Pseudo-inverse Z (m, tau), and the hat matrix A Z as a product of two matrices."""

    Z: Array
    left: Array  # (tau, r)
    right: Array  # (r, tau)
    doubt: float  # what is left of a row, 1 - h, below which its residual is not trusted
    interpolates: bool  # every row is fitted: that is known, while 1 - h is rounding, which grows with the offset


def delete_each_row(problem: Problem, columns: Indices, rows: Indices | None) -> _MemberDeletion:
    """Leave-one-out of one member by the formulas of this module."""
    n, part = len(problem.Y), problem.submatrix(columns, rows)
    given = np.arange(n) if rows is None else rows
    share = part.root**2 / (part.root @ part.root) if problem.fit_intercept else np.zeros(len(given))
    Z, deleted, near = _inverse_and_residuals(problem, part, columns, share)
    coef = Z @ part.B
    intercept = part.intercept(coef)
    residual = problem.Y - np.asarray(problem.X[:, columns] @ coef, dtype=np.float64) - intercept
    residual[given] = deleted / part.root[:, None]
    refits = {}
    for l in near.tolist():
        others = problem.submatrix(columns, np.delete(given, l))
        own = least_squares(others.A, others.B, problem.cutoff(others, columns))
        row = gather(problem.X, columns, given[l : l + 1])[0]
        predicted = row @ own + others.intercept(own)
        residual[given[l]], refits[l] = problem.Y[given[l]] - predicted, coef - own
    mean_y = np.tile(part.mean_y, (n, 1))
    mean_y[given] = (part.mean_y - share[:, None] * problem.Y[given]) / (1 - share)[:, None]
    pinv = Z * part.root  # with respect to raw targets: rows of A and B carry the root of their weight
    return _MemberDeletion(given, coef, intercept, residual, part.mean_x, part.mean_y, mean_y, share, pinv, refits)


def _inverse_and_residuals(
    problem: Problem, part: Submatrix, columns: Indices, share: Array
) -> tuple[Array, Array, Indices]:
    """Pseudo-inverse, and :func:`_residuals`; from the Gram matrix where that tells them all, else from the data."""
    inverse = _from_gram(problem, part, share)
    if inverse is not None:
        found, near = _residuals(part, share, inverse)
        if not len(near):
            return inverse.Z, found, near
    freedom = len(part.A) - problem.fit_intercept
    Q, Z = basis_and_inverse(part.A, problem.cutoff(part, columns), freedom)  # by QR or SVD
    return Z, *_residuals(part, share, _Inverse(Z, Q, Q.T, EXACT_FIT, Q.shape[1] >= freedom))


def _residuals(part: Submatrix, share: Array, inverse: _Inverse) -> tuple[Array, Indices]:
    """Residuals (tau, q) of deleted rows in the (root-weighted) units of B, and rows that only a refit would tell.

    Rows of leverage near one: Greville's formula where they are alone in a direction, a refit where they are not.
    """
    Z, left, right, doubt, interpolates = inverse
    remainder = 1 - np.einsum("lr,rl->l", left, right) - share
    close = np.arange(len(left)) if interpolates else np.flatnonzero(remainder <= doubt)
    remainder[close] = 1.0
    out = (part.B - left @ (right @ part.B)) / remainder[:, None]
    alone = np.ones(len(close), dtype=bool)
    if not interpolates and len(close):
        hat = left[close] @ right + np.sqrt(np.outer(share[close], share))
        hat[np.arange(len(close)), close] = 0.0
        alone = np.array([costs_a_rank(float(one @ one), len(left)) for one in hat], dtype=bool)
    exact = Z[:, close[alone]]
    out[close[alone]] = (exact.T @ (Z @ part.B)) / np.sum(exact * exact, axis=0)[:, None]
    return out, close[~alone]


def _from_gram(problem: Problem, part: Submatrix, share: Array) -> _Inverse | None:
    """From the inverse of the smaller Gram matrix, of the columns or the rows; None where that is not trusted."""
    A = part.A
    if not min(A.shape):
        return None
    if A.shape[1] < len(A) - problem.fit_intercept:
        (P,), inflation = inverses((A.T @ A)[None])
        if not inflation[0] < LARGEST_INFLATION:
            return None
        return _Inverse(Z := P @ A.T, A, Z, float(_doubtful_below(inflation)[0]), False)
    # a minimum-norm member; the root weights, orthogonal to centred rows, get a place of their own in K
    K = A @ A.T
    unit, null = np.trace(K) / len(K), np.sqrt(share)  # of length one with an intercept, else zero
    K += unit * np.outer(null, null)
    if nothing_but_rounding(np.diagonal(K), max(A.shape)):
        return None
    (P,), inflation = inverses(K[None])
    P = P - np.outer(null, null) / unit
    trusted = (
        inflation[0] < LARGEST_INFLATION and np.min(np.diagonal(P) * np.diagonal(K)) > _doubtful_below(inflation)[0]
    )
    return _Inverse(Z := A.T @ P, A, Z, 0.0, True) if trusted else None


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


@dataclass(frozen=True)
class _Operator:
    """Derivative of the ensemble with respect to the targets.

    Of coefficients it is :math:`M A' W + F`, with rows A about the means of all, of predictions at them `centre`.
    """

    M: NDArray[np.float64]  # (p, p)
    F: NDArray[np.float64] | None  # (p, n), of members that have no place in M; None: zero
    centre: NDArray[np.float64]  # (n,) without the scale: share of the mean
    moved: NDArray[np.float64]  # (n,) what the scale applies to


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a problem about their means, read in blocks."""

    problem: Problem
    dead: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # columns that are constant

    @cached_property
    def share(self) -> NDArray[np.float64]:
        """Share of every row in the mean, (n,); zeros without an intercept."""
        return self.problem.weights / self.problem.total_weight * self.problem.fit_intercept

    @cached_property
    def _X(self) -> Any:
        return sp.csr_array(self.problem.X) if sp.issparse(self.problem.X) else self.problem.X

    def blocks(self) -> list[slice]:
        """Consecutive rows; how they are cut depends on the shape alone, and so do sums."""
        n, p = self.problem.shape
        most = int(np.clip(BLOCK_BYTES // (8 * p), 64, 2048))
        count = -(-n // min(most, max(64, -(-n // 4))))
        edges = np.linspace(0, n, count + 1).astype(int)
        return [slice(a, b) for a, b in pairwise(edges)]

    def block(self, rows: slice) -> NDArray[np.float64]:
        """Columns about their means of some rows, (p, rows)."""
        part = self._X[rows]
        x = np.empty((self.problem.shape[1], rows.stop - rows.start))
        np.subtract(part.toarray().T if sp.issparse(part) else part.T, self.problem.means[0][:, None], out=x)
        x[self.dead] = 0.0
        return x


@dataclass(frozen=True)
class Deleted:
    """Sums over members, times their weights; the scale is not in them."""

    coef: NDArray[np.float64]  # (p, q)
    intercept: NDArray[np.float64]  # (q,)
    residual: NDArray[np.float64]  # (n, q) y_l minus the prediction for row l without row l
    mean_y: NDArray[np.float64]  # (n, q) mean target without row l
    mean_change: NDArray[np.float64]  # (n, q) mean target minus the same without row l
    moved: NDArray[np.float64]  # (n, q) what row l changes of the prediction at the means of all rows
    operator: _Operator | None
    visit: Visit | None

    @classmethod
    def zeros(cls, problem: Problem, operator: bool, visit: Visit | None) -> Deleted:
        """Sums to begin with."""
        (n, p), q = problem.shape, problem.Y.shape[1]
        empty = _Operator(np.zeros((p, p)), None, np.zeros(n), np.zeros(n)) if operator else None
        a, b, c, d = np.zeros((4, n, q))
        return cls(np.zeros((p, q)), np.zeros(q), a, b, c, d, empty, visit)

    def add_shared(self, rows: TrainingRows, coef: Array, weight: float) -> None:
        """Members on all rows, of weight together: their coefficients and means."""
        self.coef[:] += coef
        share, (mean_x, mean_y) = rows.share[:, None], rows.problem.means
        self.intercept[:] += weight * mean_y - mean_x @ coef
        change = share / (1 - share) * (rows.problem.Y - mean_y)
        self.mean_change[:] += weight * change
        self.mean_y[:] += weight * (mean_y - change)
        if self.operator is not None:
            self.operator.centre[:] += weight * rows.share

    def add_residuals(self, rows: TrainingRows, here: Any, residual: Array, change: Array | None) -> None:
        """The same: residuals (rows, q) without each of some rows, and changes of all coefficients (q, p, rows)."""
        self.residual[here] += residual
        self.moved[here] += rows.share[here, None] * residual
        if self.visit is not None and change is not None:
            self.visit(np.arange(len(self.coef)), here, change)

    def add_member(self, rows: TrainingRows, columns: Indices, one: _MemberDeletion, weight: float) -> None:
        """A member with rows, means or an inverse of its own."""
        away = one.mean_x - rows.problem.means[0][columns]  # zero where it was given all rows
        self.coef[columns] += weight * one.coef
        self.intercept[:] += weight * one.intercept
        self.residual[:] += weight * one.residual
        self.mean_y[:] += weight * one.mean_y
        self.mean_change[:] += weight * (one.mean_all - one.mean_y)
        self.moved[one.rows] += weight * one.share[:, None] * one.residual[one.rows]
        if away.any():
            self.moved[one.rows] -= weight * (away @ one.coef_change()).T
        if self.visit is not None:
            self.visit(columns, one.rows, weight * one.coef_change())
        if self.operator is not None:
            assert self.operator.F is not None
            self.operator.F[np.ix_(columns, one.rows)] += weight * one.pinv
            self.operator.centre[one.rows] += weight * one.share
            self.operator.moved[one.rows] -= weight * (away @ one.pinv)


def delete_rows(
    problem: Problem,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    sharing: Threads,
    *,
    visit: Visit | None = None,
    operator: bool = False,
) -> tuple[Deleted, TrainingRows]:
    """All sums; `visit` is called with the changes of coefficients, which may not fit into memory at once."""
    (n, p), members, sums = problem.shape, np.flatnonzero(weights), Deleted.zeros(problem, operator, visit)
    tall = members[features.sizes[members] < n - problem.fit_intercept] if samples is None else members[:0]
    sizes = features.sizes[tall]
    # one Gram matrix of all columns is less work than one for each member, or saves copies of many rows
    many_rows = p <= n and 32.0 * n * float(sizes.max(initial=0)) > GROUP_BYTES
    if len(tall) and (many_rows or float(p) ** 2 <= 2 * float(np.sum(sizes.astype(float) ** 2))):
        rows = TrainingRows(problem, np.flatnonzero(np.diagonal(problem.moments_by(sharing).G) <= 0))
        for form, part in _forms(problem, features, tall):
            done = _add_batches(rows, form, weights, part, sharing.quiet(), sums)
            members = np.setdiff1d(members, done)
    else:  # no Gram matrix is made: members centre their columns themselves
        rows = TrainingRows(problem)
    if len(members):
        sums = _add_one_by_one(rows, features, samples, weights, members, sharing.quiet(), sums)
    return sums, rows


@dataclass(frozen=True)
class _Form:
    """Members by principal submatrices: of the Gram matrix, or what they leave out by submatrices of its inverse."""

    features: Subsets  # columns of all members
    subsets: Subsets  # these, or what they leave out
    M: Array  # (p, p) Gram matrix, or its inverse
    C: Array  # (p, q) right-hand sides, or the solution of all columns
    complement: bool = False
    inflation: float = 1.0  # of all columns, in the complement form


def _forms(problem: Problem, features: Subsets, members: Indices) -> list[tuple[_Form, Indices]]:
    """Members in the form that is less work."""
    n, p = problem.shape
    G, C, sizes = problem.moments.G, problem.moments.C, features.sizes[members]
    direct, large = _Form(features, features, G, C), sizes > p - sizes
    saved = 2.0 * n * np.sum(sizes[large] ** 2.0 - (p - sizes[large]) ** 2.0)
    if saved > 3.0 * p**3 + 4.0 * n * p**2:
        (P,), inflation = inverses(G[None])
        if inflation[0] < LARGEST_INFLATION**0.5:  # the form multiplies by it once more
            other = _Form(features, features.complement(), P, P @ C, True, float(inflation[0]))
            return [(other, members[large]), (direct, members[~large])]
    return [(direct, members)]


@dataclass(frozen=True)
class _Batch:
    """Some members of one size with their inverses."""

    members: Indices  # (b,)
    weights: Array  # (b,) of the members in the ensemble
    columns: Indices  # (b, m)
    inverse: Array  # (b, m, m)
    coef: Array  # (b, q, m)
    doubt: Array  # (b, 1) what is left of a row below which its residual is not trusted
    adder: sp.csc_array  # (p, b m) adds what members have in their columns

    @classmethod
    def inverted(cls, problem: Problem, form: _Form, weights: Array, members: Indices) -> _Batch:
        """The members whose inverse is trusted."""
        columns = np.stack([form.subsets[i] for i in members])
        P, inflation = inverses(form.M[columns[:, :, None], columns[:, None, :]])
        inflation *= form.inflation
        good = inflation < LARGEST_INFLATION
        if not good.all():
            members, columns, P, inflation = members[good], columns[good], P[good], inflation[good]
        coef = (P @ form.C[columns]).transpose(0, 2, 1)
        ones = np.ones(columns.size), columns.ravel(), np.arange(columns.size + 1)
        adder = sp.csc_array(ones, shape=(len(form.M), columns.size))
        return cls(members, weights[members], columns, P, coef, _doubtful_below(inflation)[:, None], adder)


def _add_batches(
    rows: TrainingRows, form: _Form, weights: Array, members: Indices, sharing: Threads, sums: Deleted
) -> Indices:
    """Add members on all rows from one Gram matrix; those whose inverse was trusted."""
    blocks, sizes, done = rows.blocks(), form.subsets.sizes[members], [members[:0]]
    batches: list[Indices] = []
    for size in np.unique(sizes):
        # a batch of members stays in that cache too
        same, step = members[sizes == size], max(1, int((3 << 17) // (8 * max(1, size) * blocks[0].stop)))
        batches += [same[first : first + step] for first in range(0, len(same), step)]
    taken = np.cumsum([8 * len(one) * int(form.subsets.sizes[one[0]]) ** 2 for one in batches]) // GROUP_BYTES
    for number in np.unique(taken):
        group = [batches[b] for b in np.flatnonzero(taken == number)]

        def invert(start: int, stop: int, group: list[Indices] = group) -> list[_Batch]:
            return [_Batch.inverted(rows.problem, form, weights, one) for one in group[start:stop]]

        found = list(chain.from_iterable(sharing(invert, len(group))))
        close: list[tuple[Indices, Indices]] = []

        def work(start: int, stop: int, found: list[_Batch] = found, close: list[Any] = close) -> None:
            for here in blocks[start:stop]:
                sums.add_residuals(rows, here, *_on_block(rows, form, here, found, sums.visit is not None, close))

        _add_members(rows, form, found, sums)
        sharing(work, len(blocks), chunk=1)
        _add_close_rows(rows, form.features, weights, close, sums)
        done += [batch.members for batch in found]
    return np.concatenate(done)


def _add_members(rows: TrainingRows, form: _Form, batches: list[_Batch], sums: Deleted) -> None:
    """Coefficients, intercepts, and what else does not take the rows."""
    coef, M, weight = np.zeros(form.C.shape), np.zeros(form.M.shape), sum(float(one.weights.sum()) for one in batches)
    for batch in batches:
        for share, own, P, b in zip(batch.weights, batch.columns, batch.inverse, batch.coef, strict=True):
            coef[own] += share * b.T
            if sums.operator is not None:
                M[np.ix_(own, own)] += share * P
    if form.complement:
        coef = weight * form.C - form.M @ coef
    sums.add_shared(rows, coef, weight)
    if sums.operator is not None:
        sums.operator.M[:] += weight * form.M - form.M @ M @ form.M if form.complement else M


def _on_block(
    rows: TrainingRows, form: _Form, here: slice, batches: list[_Batch], changes: bool, close: list[Any]
) -> tuple[Array, Array | None]:
    """Sums over members of residuals without each of these rows, (rows, q), and of changes, (q, p, rows).

    Zero where members fit a row too closely: these go to `close`, as members and rows.
    """
    a, weight, q = rows.block(here), rows.problem.weights[here], form.C.shape[1]
    g = form.M @ a if form.complement else a
    total, change = np.zeros((q, a.shape[1])), np.zeros((q, *a.shape)) if changes else None
    for batch in batches:
        A = np.take(g, batch.columns, axis=0)
        D = batch.inverse @ A
        leverage, fitted = np.einsum("bjl,bjl->bl", A, D), batch.coef @ A
        if form.complement:
            leverage, fitted = np.einsum("jl,jl->l", a, g) - leverage, form.C.T @ a - fitted
        left = 1 - rows.share[here] - weight * leverage
        doubtful = left <= batch.doubt
        if doubtful.any():
            left[doubtful] = np.inf
            which, places = np.nonzero(doubtful)
            close.append((batch.members[which], here.start + places))
        residual = ((rows.problem.Y[here] - rows.problem.means[1]).T - fitted) / left[:, None]
        residual *= batch.weights[:, None, None]
        total += residual.sum(axis=0)
        if change is not None:
            for t in range(q):
                own = np.multiply(D, (residual[:, t] * weight)[:, None], out=D if t == q - 1 else None)
                change[t] += batch.adder @ own.reshape(-1, a.shape[1])
    if change is not None and form.complement:
        change = g * (weight * total)[:, None] - form.M @ change
    return total.T, change


def _add_close_rows(
    rows: TrainingRows, features: Subsets, weights: Array, close: list[tuple[Indices, Indices]], sums: Deleted
) -> None:
    """Add residuals and changes of members without rows that they fit too closely for their inverse."""
    if not close:
        return
    members, places = (np.concatenate(one) for one in zip(*close, strict=True))
    for i in np.unique(members):
        one, here = delete_each_row(rows.problem, features[i], None), np.sort(places[members == i])
        change = None
        if sums.visit is not None:
            change = np.zeros((sums.coef.shape[1], len(sums.coef), len(here)))
            change[:, features[i]] = weights[i] * one.coef_change()[:, :, here]
        sums.add_residuals(rows, here, weights[i] * one.residual[here], change)


def _add_one_by_one(
    rows: TrainingRows,
    features: Subsets,
    samples: Subsets | None,
    weights: Array,
    members: Indices,
    sharing: Threads,
    sums: Deleted,
) -> Deleted:
    """Add members that are deleted from on their own, a few at a time, in their order."""
    n, sizes = len(rows.share), features.sizes[members]
    if sums.operator is not None:
        memory.require(
            8.0 * features.n_items * n,
            f"The derivative of {features.n_items} coefficients with respect to {n} targets",
            "Standard errors need it for members on some of the rows, dependent columns or more columns than rows; "
            "predict_interval(method='jackknife') does not.",
        )
        sums = replace(sums, operator=replace(sums.operator, F=np.zeros((features.n_items, n))))
    each = 32.0 * max(1.0, float(np.max(sizes * (n if samples is None else samples.sizes[members]))))
    memory.require(each, f"Deleting rows from a member of {sizes.max()} columns", "Use fewer columns or rows a member.")
    step = int(np.clip(min(4 * GROUP_BYTES, memory.available_bytes() / 4) / each, 1, 16 * sharing.n_threads))
    for first in range(0, len(members), step):
        few = members[first : first + step]

        def work(start: int, stop: int, few: Indices = few) -> list[_MemberDeletion]:
            own = [None if samples is None else samples[i] for i in few[start:stop]]
            return [delete_each_row(rows.problem, features[i], r) for i, r in zip(few[start:stop], own, strict=True)]

        for i, one in zip(few, chain.from_iterable(sharing(work, len(few), chunk=1)), strict=True):
            sums.add_member(rows, features[i], one, float(weights[i]))
    return sums


def delete_rows_of_limit(
    problem: Problem, process: Determinantal, *, visit: Visit | None = None, operator: bool = False
) -> tuple[Deleted, TrainingRows]:
    """What :func:`delete_rows` sums over members, for infinitely many determinantal ones."""
    rows, sums = TrainingRows(problem, np.flatnonzero(process.spreads == 0)), Deleted.zeros(problem, operator, visit)
    half = np.sqrt(process.spreads)[:, None] * process.vectors / np.sqrt(process.values + process.penalty)  # M = hh'
    weight, Y, coef = problem.weights, problem.Y - problem.means[1], np.zeros(sums.coef.shape)
    for here in rows.blocks():
        coef += half @ ((half.T @ rows.block(here)) @ (weight[here, None] * Y[here]))
    sums.add_shared(rows, coef, 1.0)
    if sums.operator is not None:
        sums.operator.M[:] += half @ half.T
    for here in rows.blocks():
        x = rows.block(here)
        inner = half.T @ x  # (rank, rows)
        left = 1 - rows.share[here] - weight[here] * np.sum(inner**2, axis=0)
        error = (Y[here] - x.T @ coef) / left[:, None]
        change = None if visit is None else weight[here] * (half @ inner) * error.T[:, None]
        sums.add_residuals(rows, here, error, change)
    return sums, rows
