r"""Every subset size of a member from one factorisation, with the leave-one-out residuals of each.

Take the columns in the order of a permutation, at most M of them, as rows of A: about their means, times the roots of
the weights. Let :math:`A = L Z` with :math:`Z Z' = I` (from a Cholesky factor of the Gram matrix, or from a QR of the
data where the Gram matrix is not trusted). The member of size m is the first m columns, its factor the leading block of
L, and with :math:`z = Z y`

.. math:: \hat y_l(m) = \sum_{j \le m} z_j Z_{jl}, \qquad h_l(m) = \sum_{j \le m} Z_{jl}^2, \qquad
          e_l(m) = \frac{y_l - \hat y_l(m)}{1 - h_l(m) - w_l/\sum w}

so all sizes cost one factorisation and running sums. Status: exact. A column that adds no rank to those before it gets
no direction of its own. Rows a member was not given have e = y - prediction ("generalised" leave-one-out).

Rows with :math:`1 - h_l` near zero need care. Where deleting the row costs a rank (a dummy that occurs once), all
solutions without it are :math:`b - t\, p_l`, :math:`p_l = L^{-T} Z_l`, and the shortest has :math:`t = p_l'b /
p_l'p_l = e_l` (Greville; status: exact for independent columns). Where it does not (a row far out, or of overwhelming
weight), r / (1 - h) is rounding over rounding, and the member is solved once more without that row.

Cost of a permutation: :math:`n M^2 + M^3/3` flops and :math:`n M` numbers.

**Pairs.** :func:`sum_pairs` sums residuals over antithetic pairs of members in compiled code: members of a batch are
factored, then threads share the rows, and the sums do not depend on threads. What the kernel does not trust (members
with nearly dependent columns, rows that a size fits exactly although others are like them) goes through
:func:`prefix_residuals`, one member after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._execution.threads import Threads, cached_property
from .._kernel import wrappers as kernels
from .._trust import EXACT_FIT, SMALLEST_PIVOT, constant_columns, costs_a_rank, rounding_of_factors
from .problem import LANES, Columns, Problem

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Rows = NDArray[np.int64] | None  # of a member; None: all

LARGEST_STORE = 1 << 26  # numbers that the factors at work take together


@dataclass(frozen=True)
class PathData:
    """Data of paths."""

    columns: Columns
    G: NDArray[np.float64] | None  # (p, p) Gram matrix of these rows, where one is shared
    rows: Rows = None  # of members that have none of their own, sorted; None: all

    @classmethod
    def from_problem(cls, problem: Problem, *, shared: bool = True, rows: Rows = None) -> PathData:
        """Copy the data once; `shared` makes the Gram matrix of the rows for members that use them."""
        columns = Columns.from_problem(problem, rows=rows)
        if not shared:
            return cls(columns, None, rows)
        return cls(columns, problem.moments.G if rows is None else columns.A[:, rows] @ columns.A[:, rows].T, rows)

    @cached_property
    def _products(self) -> tuple[Array, Array, Array]:
        """G and X'y, empty without a shared G, and the lengths of the columns."""
        A, Y = self.columns.A, self.columns.Y
        if self.G is None:
            return np.empty((0, 0)), np.zeros((0, Y.shape[1])), np.sqrt(np.einsum("jl,jl->j", A, A))
        return self.G, A @ Y, np.sqrt(np.diagonal(self.G))

    def factor(self, orders: list[Indices], store: Array, mapper: Threads) -> tuple[kernels.Lists, Array]:
        """Factors of members along their orders into `store`; the orders as lists, and the smallest pivot ratios."""
        columns = _lists(orders)
        ratios = np.empty(len(orders))
        G, C, scale = self._products

        def work(start: int, stop: int) -> None:
            kernels.factor_members(
                begin=start,
                end=stop,
                G=G,
                C=C,
                data=self.columns.for_kernels,
                n_rows=self.columns.n,
                scale=scale,
                columns=columns,
                store=store,
                ratios=ratios,
            )

        mapper(work, len(orders), uses_blas=False)
        return columns, ratios


@dataclass(frozen=True)
class _Path:
    """A = L Z on the columns that add rank, about the means of the member's rows."""

    Z: Array  # (M, n) with Z Z' = I on the member's rows; zero for columns that add no rank
    z: Array  # (M, q) Z y
    Y: Array  # (n, q) targets
    mean_x: Array  # (M,) of the member's rows, beyond the means of all
    mean_y: Array  # (q,) likewise
    L: Array  # (r, r) lower factor of the columns that add rank
    kept: Indices  # (r,) their positions
    given: Indices  # rows of the member, sorted
    share: Array  # (n,) of every row in the member's means; zeros without intercept

    @classmethod
    def along(cls, data: PathData, columns: Indices, rows: Rows) -> _Path:
        """The path of one member along its columns."""
        all_rows, n = data.columns, data.columns.n
        A, Y, root, share = all_rows.A[columns, :n], all_rows.Y[:n], all_rows.root[:n], all_rows.share[:n]
        own = data.rows if rows is None else np.sort(rows)
        given: Any = slice(None) if own is None else own
        mean_x, mean_y = np.zeros(len(A)), np.zeros(Y.shape[1])
        if rows is not None and share.any():  # with an intercept
            total, mean = float(root[given] @ root[given]), np.zeros(n)
            mean[given] = root[given] / total
            mean_x, mean_y, share = A @ mean, mean @ Y, root**2 / total
            A, Y = A - np.outer(mean_x, root), Y - np.outer(root, mean_y)
            A[constant_columns((A * A) @ (mean > 0), np.abs(mean_x) + np.abs(all_rows.mean_x[columns]), total)] = 0.0
        inside = A[:, given]
        G = data.G[np.ix_(columns, columns)] if rows is None and data.G is not None else inside @ inside.T
        L, kept = _trusted_cholesky(G), np.arange(len(columns))
        if L is not None:
            # row-major (M, n) is column-major (n, M): Z' L' = A'
            Z = la.blas.dtrsm(1.0, L, A.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
        else:
            Q, R, kept = _independent_qr(inside.T)
            Z, L = np.zeros_like(A), R.T
            Z[kept] = Q.T if own is None else la.solve_triangular(R, A[kept], trans="T")
        return cls(Z, Z[:, given] @ Y[given], Y, mean_x, mean_y, L, kept, np.arange(n)[given], share)

    def within(self, size: int) -> int:
        """Columns that add rank among the first `size`."""
        return int(np.searchsorted(self.kept, size))

    def coefficients(self, size: int, right: Array) -> Array:
        """Solution of L' b = right on the columns of a size that add rank."""
        m = self.within(size)
        return np.asarray(la.solve_triangular(self.L[:m, :m], right[self.kept[:m]], lower=True, trans="T"))

    def deletion_costs_a_rank(self, size: int, l: int) -> bool:
        """Whether a row that is fitted (nearly) exactly is the only one with something of its own.

        1 - h cancels; the sum of squares of the other entries of the row of the hat matrix, h (1 - h), does not.
        """
        kept = self.kept[: self.within(size)]
        hat = self.Z[kept, l] @ self.Z[np.ix_(kept, self.given)] + np.sqrt(self.share[self.given] * self.share[l])
        hat[np.searchsorted(self.given, l)] = 0.0
        return costs_a_rank(float(hat @ hat), len(hat))


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
    path, n = _Path.along(data, order[: sizes[-1]], rows), data.columns.n
    root, starts = data.columns.root[:n], np.concatenate([[0], sizes[:-1]])

    def running(products: Array) -> Array:
        """Sums over the first columns, for every size: (sizes, n)."""
        sums = np.add.reduceat(products, starts, axis=0)
        return sums if len(sums) == 1 else np.cumsum(sums, axis=0)

    left = np.ones((len(sizes), n))
    left[:, path.given] -= (path.share + running(path.Z * path.Z))[:, path.given]
    exact = left <= EXACT_FIT
    fitted = np.stack([running(path.Z * path.z[:, [t]]) for t in range(path.z.shape[1])], axis=2)
    out: Array = (path.Y - fitted) / np.where(exact, 1.0, left)[:, :, None]
    for l in np.flatnonzero(exact.any(axis=0)).tolist():  # rows that some sizes fit exactly, or nearly so
        some = np.flatnonzero(exact[:, l])
        if path.deletion_costs_a_rank(int(sizes[some[0]]), l):
            for s in some:
                P = path.coefficients(sizes[s], path.Z[:, [l]])
                out[s, l] = (P.T @ path.coefficients(sizes[s], path.z))[0] / np.sum(P * P)
        else:
            X, others = data.columns.A[:, [l]].T / root[l], path.given[path.given != l]
            Y = data.columns.Y[l] / root[l] + data.columns.mean_y
            out[some, l] = root[l] * (Y - prefix_predictions(data, X, order, sizes, others)[some, 0])
    return out / root[:, None]


def prefix_predictions(data: PathData, X: Array, order: Indices, sizes: Indices, rows: Rows = None) -> Array:
    """Predictions (sizes, rows of X, q) of all sizes of one member for rows about the means of `data`.

    Coefficients of the first m columns solve L' b = (z_1, ..., z_m, 0, ...): one triangular system for all sizes.
    """
    path = _Path.along(data, order[: sizes[-1]], rows)
    kept, q = path.kept, path.z.shape[1]
    cut = ((kept[:, None] < sizes)[:, :, None] * path.z[kept][:, None, :]).reshape(len(kept), -1)
    b = la.solve_triangular(path.L, cut, lower=True, trans="T", check_finite=False)  # (kept, sizes q)
    at: Array = (X[:, order[kept]] - path.mean_x[kept]) @ b
    return data.columns.mean_y + path.mean_y + at.reshape(len(X), len(sizes), q).transpose(1, 0, 2)


def pair_sums(first: Array, second: Array) -> Array:
    """What is summed over pairs of members, (3, ...): residuals, their squares, the squares of the pairs' means."""
    both = first + second
    return np.stack([both, first**2 + second**2, (both / 2) ** 2])


def sum_pairs(
    data: PathData, orders: list[Indices], sizes: Indices, batch: int, mapper: Threads, rows: Columns | None = None
) -> Array:
    """Sums over batches of so many pairs, (batches, 3, sizes, n, q), of :func:`pair_sums` of residuals.

    Members 2i and 2i + 1 are pair i. Residuals are of all rows, left out one at a time, or of `rows` that members were
    not given.
    """
    own, rows, k, n_sizes = rows is None, data.columns if rows is None else rows, len(orders), len(sizes)
    orders = [order[: sizes[-1]] for order in orders]
    flops = k * sizes[-1] * (1e4 + sizes[-1] * (2.0 * rows.n + sizes[-1] / 3))
    mapper = mapper.quiet() if flops > 2e7 else Threads()  # fewer are done before a second thread has begun
    (q, padded), slots = (rows.Y.shape[1], rows.A.shape[1]), np.arange(k // 2) // batch
    sums, states = np.zeros((3, (slots[-1] + 1) * n_sizes, q, padded)), np.zeros(padded, dtype=np.int64)
    numbers = kernels.member_size(int(sizes[-1]), q)
    step = 2 * max(1, LARGEST_STORE // (2 * numbers))  # members that are factored at a time
    store, trusted, n_panels = np.empty((min(step, k), numbers)), np.empty(k // 2, dtype=bool), padded // LANES
    count = min(32, -(-n_panels // (2 * mapper.n_threads)))  # panels at a time: one call works without a break
    for first in range(0, k, step):
        some, here, factors = orders[first : first + step], slice(first // 2, (first + step) // 2), store[: k - first]
        columns, ratios = data.factor(some, factors, mapper)
        trusted[here] = (ratios >= SMALLEST_PIVOT).reshape(-1, 2).all(axis=1)
        place = np.where(trusted[here], slots[here] * n_sizes, -1)
        add_pairs = partial(
            kernels.sum_pairs,
            A=rows.A,
            Y=rows.Y,
            share=rows.share,
            root=rows.root,
            n_rows=rows.n,
            own_rows=own,
            columns=columns,
            sizes=sizes,
            slots=place,
            store=factors,
            sums=sums,
            states=states,
        )

        def add(start: int, stop: int, add_pairs: Callable[..., None] = add_pairs) -> None:
            add_pairs(begin=start * count, end=min(stop * count, n_panels))

        mapper(add, -(-n_panels // count), uses_blas=False)
    out = np.moveaxis(sums.reshape(3, -1, n_sizes, q, padded)[..., : rows.n], (1, 4), (0, 3))
    again = np.flatnonzero(states[: rows.n])
    out[:, :, :, again] = 0.0

    def one(member: int) -> Array:
        if own:
            return prefix_residuals(data, orders[member], sizes)
        fitted = prefix_predictions(data, rows.A[:, : rows.n].T, orders[member], sizes)
        return rows.Y[: rows.n] + data.columns.mean_y - fitted

    singly = np.arange(k // 2) if len(again) else np.flatnonzero(~trusted)

    def follow(start: int, stop: int) -> list[Array]:
        return [pair_sums(one(2 * i), one(2 * i + 1)) for i in singly[start:stop]]

    found = [pair for chunk in mapper(follow, len(singly)) for pair in chunk]
    for i, pair in zip(singly, found, strict=True):
        some_rows = again if trusted[i] else slice(None)
        out[slots[i]][:, :, some_rows] += pair[:, :, some_rows]
    return out


def _lists(parts: list[Indices]) -> kernels.Lists:
    """Index arrays as the kernels take them."""
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return kernels.Lists.of(bounds, np.concatenate(parts).astype(np.int64, copy=False))
