r"""Every subset size of a member from one factorisation, with the leave-one-out residuals of each.

Take the columns in the order of a permutation, at most M of them, and let :math:`A = L Z` with :math:`Z Z' = I` (from a
Cholesky factor of the Gram matrix, or from a QR of the data where that is not to be trusted). The member of size m is
the first m columns, its factor the leading block of L, and with :math:`z = Z y`

.. math:: \hat y_l(m) = \sum_{j \le m} z_j Z_{jl}, \qquad h_l(m) = \sum_{j \le m} Z_{jl}^2, \qquad
          e_l(m) = \frac{y_l - \hat y_l(m)}{1 - h_l(m) - w_l/\sum w}

so all sizes cost one factorisation and running sums. Status: exact. A column that adds no rank to those before it gets
no direction of its own. Rows a member was not given have e = y - prediction ("generalised" leave-one-out).

Rows with :math:`1 - h_l` near zero need care. Where deleting the row costs a rank (a dummy that occurs once), all
solutions without it are :math:`b - t\, p_l`, :math:`p_l = L^{-T} Z_l`, and the shortest has :math:`t = p_l'b / (w_l
p_l'p_l) = e_l` (Greville; status: exact for independent columns). Where it does not (a row far out, or of overwhelming
weight), r / (1 - h) is rounding over rounding, and the member is solved once more without that row.

Cost of a permutation: :math:`n M^2 + M^3/3` flops and :math:`n M` numbers.

**Pairs.** :func:`sum_pairs` sums residuals over antithetic pairs of members in compiled code: members of a batch are
factored, then threads share the rows, and the sums do not depend on threads. What the kernel does not trust (members
with nearly dependent columns, rows that a size fits exactly although others are like them) goes through
:func:`prefix_residuals`, one member after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .. import _kernel
from .._execution.threads import Sharing
from .._moments import weighted_mean
from .._trust import EPS, EXACT_FIT, SMALLEST_PIVOT, constant_columns, costs_a_rank, rounding_of_factors
from .problem import Problem

__all__ = [
    "PackedRows",
    "Pairs",
    "PathData",
    "Sums",
    "left_out_residuals",
    "predictions",
    "prefix_coefficients",
    "prefix_residuals",
    "sum_pairs",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Rows = NDArray[np.int64] | None  # of a member; None: all

LANES = 8  # rows of a panel of the kernel
LARGEST_STORE = 1 << 26  # numbers that the factors at work take together
SMALL_FLOPS = 2e7  # that are done before a second thread has begun
MOST_PANELS = 32  # of rows that a thread takes at a time: what one call works on without a break


@dataclass(frozen=True)
class PackedRows:
    """Columns and targets about their means, times the roots of the weights, rows padded by zeros to whole panels."""

    A: NDArray[np.float64]  # (p, rows)
    Y: NDArray[np.float64]  # (rows, q)
    share: NDArray[np.float64]  # (rows,) of every row in the means, zero without intercept
    root: NDArray[np.float64]  # (rows,) of the weights, one in the padding
    n: int  # rows without padding
    own: bool  # whether members were given these rows

    @classmethod
    def to_predict(cls, X: NDArray[np.float64], Y: NDArray[np.float64]) -> PackedRows:
        """Rows that members were not given, X (n, p) and Y (n, q) about the means of those that they were."""
        A, targets = _padded(X.T), _padded(Y.T).T
        return cls(A, np.ascontiguousarray(targets), np.zeros(A.shape[1]), np.ones(A.shape[1]), len(X), False)


def _padded(values: Array, fill: float = 0.0) -> Array:
    """Copy with the last axis padded to whole panels of the kernel."""
    n = values.shape[-1]
    out = np.full((*values.shape[:-1], -(-n // LANES) * LANES), fill)
    out[..., :n] = values
    return out


@dataclass(frozen=True)
class PathData:
    """Data of paths: columns of X as rows, about their means if an intercept is fitted."""

    Xt: NDArray[np.float64]  # (p, n)
    Y: NDArray[np.float64]  # (n, q)
    weight: NDArray[np.float64]  # (n,), ones without weights
    G: NDArray[np.float64] | None  # (p, p) Gram matrix of all rows, where one is shared
    fit_intercept: bool
    mean_x: NDArray[np.float64]  # (p,) that were taken out, zeros without intercept

    @classmethod
    def from_problem(cls, problem: Problem, *, shared: bool = True, G: Array | None = None) -> PathData:
        """Copy the data once; `shared` makes the Gram matrix of all rows for members that use them, or give it as G."""
        n, p = problem.shape
        weight = np.ones(n) if problem.weight is None else problem.weight
        X, mean = problem.X.toarray() if sp.issparse(problem.X) else problem.X, np.zeros(p)
        Xt = _padded(X.T)[:, :n]
        if problem.fit_intercept:
            mean = weighted_mean(problem.X, problem.weight)
            Xt -= mean[:, None]
            squares = np.einsum("jl,jl->j", Xt, Xt) if problem.weight is None else (Xt * Xt) @ weight
            Xt[constant_columns(squares, mean, weight.sum())] = 0.0
        return cls(Xt, problem.Y, weight, problem.moments.G if shared else G, problem.fit_intercept, mean)

    @property
    def mean_y(self) -> NDArray[np.float64]:
        """Mean target, (q,); zeros without intercept."""
        return self.mean(self.Y, None)

    def mean(self, values: NDArray[np.float64], rows: Rows) -> NDArray[np.float64]:
        """Weighted mean of values (n, c) over some rows; zeros without intercept."""
        if not self.fit_intercept:
            return np.zeros(values.shape[1])
        weight = self.weight if rows is None else self.weight[rows]
        return np.asarray(weight @ (values if rows is None else values[rows]) / weight.sum())

    @cached_property
    def rows(self) -> PackedRows:
        """All rows for the kernel; columns are packed already where rows have no weights."""
        base = self.Xt.base
        A = base if base is not None and base.shape[1] == -(-len(self.Y) // LANES) * LANES else _padded(self.Xt)
        root, share = np.sqrt(self.weight), np.zeros(len(self.weight))
        if self.fit_intercept:
            share = self.weight / self.weight.sum()
        Y = _padded(((self.Y - self.mean_y) * root[:, None]).T).T
        padded = _padded(root, 1.0)
        A = A if np.all(self.weight == 1.0) else A * padded
        return PackedRows(A, np.ascontiguousarray(Y), _padded(share), padded, len(root), True)

    @cached_property
    def factored_from(self) -> tuple[Array, Array, Array, Array, int, Array, Array, float]:
        """What the kernel factors members from: G, C, A, Y, n, scale, far, relative."""
        rows, n = self.rows, len(self.Y)
        if self.G is None:
            G, C, squares = np.empty((0, 0)), np.zeros((0, rows.Y.shape[1])), np.einsum("jl,jl->j", rows.A, rows.A)
        else:
            G, C, squares = self.G, rows.A @ rows.Y, np.diagonal(self.G)
        far = 4 * EPS * np.abs(self.mean_x) * np.sqrt(self.weight.sum())  # what taking the means out has rounded
        return G, C, rows.A, rows.Y, n, np.sqrt(squares), far, rounding_of_factors(max(n, len(self.Xt)))


@dataclass(frozen=True)
class _Path:
    """A = L Z on the columns that add rank."""

    Z: Array  # (M, n) with Z W Z' = I on the member's rows; zero for columns that add no rank
    z: Array  # (M, q) Z W y
    mean_y: Array  # (q,) of the member's rows
    L: Array  # (r, r) lower factor of the columns that add rank
    kept: Indices  # (r,) their positions
    given: Indices  # rows of the member, sorted

    @classmethod
    def along(cls, data: PathData, columns: Indices, rows: Rows) -> _Path:
        """The path of one member along its columns."""
        A, given = data.Xt[columns], np.arange(len(data.Y)) if rows is None else rows
        weight = data.weight[given]
        if rows is not None and data.fit_intercept:
            A -= (A[:, rows] @ weight / weight.sum())[:, None]
        own = (A if rows is None else A[:, rows]) * np.sqrt(weight)
        G = data.G[np.ix_(columns, columns)] if rows is None and data.G is not None else own @ own.T
        L, kept = _trusted_cholesky(G), np.arange(len(columns))
        if L is not None:
            # row-major (M, n) is column-major (n, M): Z' L' = A'
            Z = la.blas.dtrsm(1.0, L, A.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
        else:
            Q, R, kept = _independent_qr(own.T)
            Z, L = np.zeros_like(A), R.T
            Z[kept] = Q.T / np.sqrt(weight) if rows is None else la.solve_triangular(R, A[kept], trans="T")
        mean_y = data.mean(data.Y, rows)
        z = (Z[:, given] * weight) @ (data.Y[given] - mean_y)
        return cls(Z, z, mean_y, L, kept, np.sort(given))

    def within(self, size: int) -> int:
        """Columns that add rank among the first `size`."""
        return int(np.searchsorted(self.kept, size))

    def coefficients(self, size: int, right: Array) -> Array:
        """Solution of L' b = right on the columns of a size that add rank."""
        m = self.within(size)
        return np.asarray(la.solve_triangular(self.L[:m, :m], right[self.kept[:m]], lower=True, trans="T"))


def _trusted_cholesky(G: Array) -> Array | None:
    """Lower factor, or None; columns that are zero get a pivot of one and so no direction."""
    L: Array
    zero = np.diagonal(G) <= 0
    if zero.any():
        G = G + np.diag(zero.astype(float))
    L, info = la.lapack.dpotrf(G, lower=1, clean=1)
    if info or not np.min(np.diagonal(L) ** 2 / np.diagonal(G), initial=1.0) >= SMALLEST_PIVOT:
        return None
    return L


def _independent_qr(A: Array) -> tuple[Array, Array, Indices]:
    """QR of the columns of A that add rank to those before them, and their positions.

    Without pivoting a dependent column still gets a column in Q, an arbitrary one that later columns then share in, so
    it must be taken out and the rest factored again. Several are found at once; the loop ends when all pivots count.
    """
    norm = np.linalg.norm(A, axis=0)
    kept = np.flatnonzero(norm > 0)
    tiny = rounding_of_factors(max(A.shape))
    while True:
        Q, R = np.linalg.qr(A[:, kept])  # SciPy's would hold the interpreter lock
        if R.shape[0] < R.shape[1]:  # more columns than rows: the last ones cannot add rank
            kept = kept[: R.shape[0]]
            continue
        good = np.abs(np.diagonal(R)) > tiny * norm[kept]
        if good.all():
            return Q, R, kept
        kept = kept[good]


def prefix_residuals(data: PathData, order: Indices, sizes: Indices, rows: Rows = None) -> Array:
    """Leave-one-out residuals of all sizes of one member, shape (sizes, n, q).

    `order` lists columns, at least ``sizes[-1]`` of them; `rows` are those of the member, None for all.
    """
    n, q = data.Y.shape
    path = _Path.along(data, order[: sizes[-1]], rows)
    inside = np.zeros(n, dtype=bool)
    inside[path.given] = True
    share = data.weight / data.weight[inside].sum() if data.fit_intercept else np.zeros(n)
    starts = np.concatenate([[0], sizes[:-1]])

    def running(products: Array) -> Array:
        """Sums over the first columns, for every size: (sizes, n)."""
        return np.cumsum(np.add.reduceat(products, starts, axis=0), axis=0)

    left = 1 - share - data.weight * running(path.Z * path.Z)
    fitted = [path.mean_y[t] + running(path.Z * path.z[:, t, None]) for t in range(q)]
    usable = (left > EXACT_FIT) | ~inside
    out: Array = (data.Y - np.stack(fitted, axis=2)) / np.where(inside & usable, left, 1.0)[:, :, None]
    for l in np.flatnonzero(~usable.all(axis=0)).tolist():  # rows that some sizes fit exactly, or nearly so
        exact = np.flatnonzero(~usable[:, l])
        if _deletion_costs_a_rank(data, path, int(sizes[exact[0]]), l):
            for s in exact:
                P = path.coefficients(sizes[s], path.Z[:, [l]])
                out[s, l] = (P.T @ path.coefficients(sizes[s], path.z))[0] / (data.weight[l] * np.sum(P * P))
        else:
            others = [path.given[path.given != l]]
            out[exact, l] = data.Y[l] - predictions(data, data.Xt[:, [l]].T, [order], sizes, others)[0][exact, 0]
    return out


def _deletion_costs_a_rank(data: PathData, path: _Path, size: int, l: int) -> bool:
    """Whether a row that is fitted (nearly) exactly is the only one with something of its own.

    1 - h cancels; the sum of squares of the other entries of the row of the hat matrix, h (1 - h), does not.
    """
    root, here = np.sqrt(data.weight[path.given]), int(np.searchsorted(path.given, l))
    kept = path.kept[: path.within(size)]
    hat = (path.Z[kept, l] @ path.Z[np.ix_(kept, path.given)]) * root * root[here]
    if data.fit_intercept:
        hat = hat + root * root[here] / (root @ root)
    hat[here] = 0.0
    return costs_a_rank(float(hat @ hat), len(root))


def prefix_coefficients(data: PathData, order: Indices, sizes: Indices, rows: Rows = None) -> Array:
    """Coefficients of all sizes of one member, shape (sizes, p, q); zero for columns that add no rank.

    Those of the first m columns solve L' b = (z_1, ..., z_m, 0, ...): one triangular system for all sizes.
    """
    path = _Path.along(data, order[: sizes[-1]], rows)
    kept, q = path.kept, data.Y.shape[1]
    cut = (kept[:, None] < sizes)[:, :, None] * path.z[kept][:, None, :]  # (kept, sizes, q)
    b = la.solve_triangular(path.L, cut.reshape(len(kept), -1), lower=True, trans="T", check_finite=False)
    out = np.zeros((len(sizes), len(data.Xt), q))
    out[:, order[kept]] = b.reshape(cut.shape).transpose(1, 0, 2)
    return out


def left_out_residuals(
    data: PathData, orders: list[NDArray[np.int64]], sizes: NDArray[np.int64], rows: Sequence[Rows]
) -> list[NDArray[np.float64]]:
    """:func:`prefix_residuals` of several members, each with its order and rows."""
    return [prefix_residuals(data, order, sizes, own) for order, own in zip(orders, rows, strict=True)]


def predictions(
    data: PathData,
    X: NDArray[np.float64],
    orders: list[NDArray[np.int64]],
    sizes: NDArray[np.int64],
    rows: Sequence[Rows],
) -> list[NDArray[np.float64]]:
    """Predictions (sizes, rows of X, q) of several members for rows about the means of `data`."""
    found = []
    for order, own in zip(orders, rows, strict=True):
        coef, centre = prefix_coefficients(data, order, sizes, own), data.mean(data.Y, own)
        shift = np.zeros(len(data.Xt)) if own is None else data.mean(data.Xt.T, own)
        at = (X - shift) @ coef.transpose(1, 0, 2).reshape(X.shape[1], -1)
        found.append(centre + at.reshape(len(X), len(sizes), -1).transpose(1, 0, 2))
    return found


@dataclass(frozen=True)
class Pairs:
    """Members 2i and 2i + 1 are pair i, whose sizes go to the sums from place `slots[i]` on."""

    orders: list[NDArray[np.int64]]  # columns of each member
    sizes: NDArray[np.int64]
    slots: NDArray[np.int64]
    n_slots: int

    @classmethod
    def nested(cls, orders: list[NDArray[np.int64]], sizes: NDArray[np.int64]) -> Pairs:
        """All sizes of every member along its order."""
        return cls([o[: sizes[-1]] for o in orders], sizes, np.zeros(len(orders) // 2, int), len(sizes))

    def in_batches(self, count: int) -> Pairs:
        """The same with sums of their own for every `count` pairs, one batch after the other."""
        batch = np.arange(len(self)) // count
        return Pairs(self.orders, self.sizes, self.slots + self.n_slots * batch, self.n_slots * (int(batch[-1]) + 1))

    def __len__(self) -> int:
        return len(self.slots)

    def take(self, start: int, stop: int) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.orders[2 * start : 2 * stop], self.sizes, self.slots[start:stop], self.n_slots)


@dataclass
class Sums:
    """Sums (sizes, n, q) over pairs: of residuals, of their squares, of the squares of the pairs' means."""

    total: NDArray[np.float64]
    square: NDArray[np.float64]
    pair_square: NDArray[np.float64]

    @classmethod
    def zero(cls, n_slots: int, n: int, q: int) -> Sums:
        """Of no pair."""
        return cls(*(np.zeros((n_slots, n, q)) for _ in range(3)))

    def split(self, n_slots: int) -> Iterator[Sums]:
        """Sums of batches, of so many sizes each."""
        for start in range(0, len(self.total), n_slots):
            here = slice(start, start + n_slots)
            yield Sums(self.total[here], self.square[here], self.pair_square[here])

    def add(self, slot: int, first: Array, second: Array, rows: Indices | slice = slice(None)) -> None:
        """One pair's residuals (sizes, n, q), at some rows only or at all."""
        a, b = first[:, rows], second[:, rows]
        here = slice(slot, slot + len(first))
        self.total[here, rows] += a + b
        self.square[here, rows] += a**2 + b**2
        self.pair_square[here, rows] += ((a + b) / 2) ** 2

    def clear(self, rows: Indices) -> None:
        """Forget some rows."""
        for sums in (self.total, self.square, self.pair_square):
            sums[:, rows] = 0.0


def sum_pairs(data: PathData, pairs: Pairs, mapper: Sharing, rows: PackedRows | None = None) -> Sums:
    """The sums of all pairs: on all rows, left out one at a time, or on `rows` that members were not given."""
    rows = data.rows if rows is None else rows
    longest = max((len(order) for order in pairs.orders), default=0)
    flops = sum(len(order) * (1e4 + len(order) * (2.0 * rows.n + len(order) / 3)) for order in pairs.orders)
    mapper = mapper.quiet() if flops > SMALL_FLOPS else Sharing()
    padded, q = rows.A.shape[1], rows.Y.shape[1]
    sums, states = np.zeros((3, pairs.n_slots, q, padded)), np.zeros(padded, dtype=np.int64)
    numbers = _kernel.member_size(longest, q)
    step = max(1, LARGEST_STORE // (2 * numbers))
    store = np.empty((2 * min(step, len(pairs)), numbers))
    untrusted = []
    for start in range(0, len(pairs), step):
        part = pairs.take(start, min(start + step, len(pairs)))
        untrusted.append(start + _add_compiled(sums, states, data, rows, part, store[: 2 * len(part)], mapper))
    out = Sums(*(np.moveaxis(one[:, :, : rows.n], 1, 2) for one in sums))
    singly, again = np.concatenate(untrusted), np.flatnonzero(states[: rows.n])
    if len(again):
        out.clear(again)
        _add_uncompiled(out, data, rows, pairs, np.setdiff1d(np.arange(len(pairs)), singly), again, mapper)
    _add_uncompiled(out, data, rows, pairs, singly, slice(None), mapper)
    return out


def _add_compiled(
    sums: Array, states: Indices, data: PathData, rows: PackedRows, pairs: Pairs, store: Array, mapper: Sharing
) -> Indices:
    """Add pairs; the numbers of those that are not trusted, which were left out."""
    k = len(pairs.orders)
    columns, sizes, ratios = _lists(pairs.orders), _lists([pairs.sizes] * k), np.empty(k)

    def factor(start: int, stop: int) -> None:
        _kernel.factor_members(start, stop, *data.factored_from, *columns, store, ratios)

    mapper(factor, k, uses_blas=False)
    trusted = (ratios >= SMALLEST_PIVOT).reshape(-1, 2).all(axis=1)
    use = np.flatnonzero(trusted)
    n_panels = rows.A.shape[1] // LANES
    count = min(MOST_PANELS, -(-n_panels // (2 * mapper.n_threads)))

    def add(start: int, stop: int) -> None:
        _kernel.sum_pairs(
            start * count, min(stop * count, n_panels), rows.A, rows.Y, rows.share, rows.root, rows.n, rows.own,
            *columns, *sizes, pairs.slots, use, store, sums[0], sums[1], sums[2], states,
        )  # fmt: skip

    mapper(add, -(-n_panels // count), uses_blas=False)
    return np.flatnonzero(~trusted)


def _lists(parts: list[Indices]) -> tuple[Indices, Indices, Indices]:
    """Starts, stops and indices of lists, as the kernel takes them."""
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return bounds[:-1], bounds[1:], np.concatenate(parts).astype(np.int64, copy=False)


def _add_uncompiled(
    out: Sums, data: PathData, rows: PackedRows, pairs: Pairs, which: Indices, some: Indices | slice, mapper: Sharing
) -> None:
    """Add pairs one by one, at some of the rows or at all."""

    def one(member: int) -> Array:
        if rows.own:
            return prefix_residuals(data, pairs.orders[member], pairs.sizes)
        (fitted,) = predictions(data, rows.A[:, : rows.n].T, [pairs.orders[member]], pairs.sizes, [None])
        return rows.Y[: rows.n] + data.mean_y - fitted

    def follow(start: int, stop: int) -> list[tuple[int, Array, Array]]:
        return [(int(pairs.slots[i]), one(2 * i), one(2 * i + 1)) for i in which[start:stop]]

    for found in mapper(follow, len(which)):
        for slot, first, second in found:
            out.add(slot, first, second, some)
