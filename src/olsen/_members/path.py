r"""All subset sizes of a member from one factorisation, with the leave-one-out residuals of each
size.

Take the columns in the order of a permutation, at most M, as rows of A, centred and sqrt-weighted.
Let
:math:`A = L Z` with :math:`Z Z' = I` (from a Cholesky factor of the Gram matrix, or from a QR of the data where the
Gram matrix is not trusted). The member of size m is the first m columns, its factor is the leading
block of L, and with
:math:`z = Z y`

.. math:: \hat y_l(m) = \sum_{j \le m} z_j Z_{jl}, \qquad h_l(m) = \sum_{j \le m} Z_{jl}^2, \qquad
          e_l(m) = \frac{y_l - \hat y_l(m)}{1 - h_l(m) - w_l/\sum w}

so all sizes cost one factorisation and running sums. Status: exact. A column that adds no rank to
the columns before it gets no direction. Rows outside the member's sample have e = y - prediction
("generalised" leave-one-out).

Rows with :math:`1 - h_l` near zero need care. Where deleting the row costs a rank (a dummy that
occurs once), all solutions without it are :math:`b - t\, p_l`, :math:`p_l = L^{-T} Z_l`, and the
shortest has :math:`t = p_l'b / p_l'p_l = e_l` (Greville; status: exact for independent columns).
Where it does not (a row far out, or of overwhelming weight), r / (1 - h) is rounding over rounding,
and the member is refitted without that row.

Cost of a permutation: :math:`n M^2 + M^3/3` flops and :math:`n M` numbers.

**Pairs.** :func:`sum_pairs` sums residuals over antithetic pairs of members in compiled code:
members of a batch are factored, then threads divide the rows among themselves, so the sums do not
depend on the number of threads. Cases that the kernel does not trust (members with nearly dependent
columns, rows that a size fits exactly although similar rows exist) go through
:func:`prefix_residuals`, one member after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.columns import LANES, Columns
from .._data.moments import constant_columns
from .._data.rows import RowData
from .._execution.threads import Threads
from .._kernel import wrappers as kernels
from .._trust import EXACT_FIT, SMALLEST_PIVOT, costs_a_rank, rounding_of_factors
from .cholesky import trusted_cholesky

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Rows = NDArray[np.int64] | None  # row indices of a member; None: all rows


@dataclass(frozen=True)
class PathData:
    """Data shared by the paths of all members."""

    columns: Columns
    scale: NDArray[np.float64]  # (p,) lengths of the columns
    G: NDArray[np.float64]  # (p, p) Gram matrix of `rows`; empty where members share none
    C: NDArray[np.float64]  # (p, q) products with the targets; empty as well
    rows: Rows = None  # sorted rows of members without a separate sample; None: all rows

    @classmethod
    def from_problem(cls, problem: RowData, *, shared: bool = True, rows: Rows = None) -> PathData:
        """Copy the data once; `shared` asks for the Gram matrix of the rows that members share."""
        columns = Columns.from_problem(problem, rows=rows)
        A = columns.A
        Y = columns.Y
        if not shared:
            scale = np.sqrt(np.einsum("jl,jl->j", A, A))
            return cls(columns, scale, np.empty((0, 0)), np.empty((0, Y.shape[1])), rows)
        G = problem.moments.G if rows is None else A[:, rows] @ A[:, rows].T
        return cls(columns, np.sqrt(np.diagonal(G)), G, A @ Y, rows)

    def for_orders(self, orders: list[Indices], size: int) -> tuple[PathData, list[Indices]]:
        """The data, and the orders: all columns are here."""
        return self, orders

    def batches(self, orders: list[Indices], count: int) -> list[list[Indices]]:
        """Orders that are followed together: all."""
        return [orders]

    def factor(
        self, orders: list[Indices], store: Array, threads: Threads
    ) -> tuple[kernels.Lists, Array]:
        """Write members' factors along their orders, which have one length, to `store`.

        Returns the orders as lists, and the smallest pivot ratios.
        """
        starts = len(orders[0]) * np.arange(len(orders))
        columns = kernels.Lists(starts, starts + len(orders[0]), np.concatenate(orders))
        ratios = np.empty(len(orders))
        factor_members = partial(
            kernels.factor_members,
            G=self.G,
            C=self.C,
            data=self.columns.for_kernels,
            n_rows=self.columns.n,
            scale=self.scale,
            columns=columns,
            store=store,
            ratios=ratios,
        )
        threads(factor_members, len(orders), uses_blas=False)
        return columns, ratios


@dataclass(frozen=True)
class WidePathData:
    """Rows with too many columns for a copy of all: paths get a copy of the columns they lead through."""

    problem: RowData

    def for_orders(self, orders: list[Indices], size: int) -> tuple[PathData, list[Indices]]:
        """Data with the leading `size` columns of the orders, and the orders of these columns."""
        leading = [order[:size] for order in orders]
        used = np.unique(np.concatenate(leading))
        data = PathData.from_problem(self.problem.columns_at(used), shared=False)
        return data, [np.searchsorted(used, order) for order in leading]

    def batches(self, orders: list[Indices], count: int) -> list[list[Indices]]:
        """Orders that are followed together: `count` at a time."""
        return [orders[start : start + count] for start in range(0, len(orders), count)]


AnyPathData = PathData | WidePathData


@dataclass(frozen=True)
class _Centred:
    """Columns and targets of all rows, sqrt-weighted and centred at the means of a member's rows."""

    A: Array  # (M, n)
    Y: Array  # (n, q)
    mean_x: Array  # (M,) means of the member's rows minus the means of all rows
    mean_y: Array  # (q,) the corresponding difference of the target means
    mean_weights: Array  # (n,) weight of every row in the member's means; zeros without intercept

    @classmethod
    def at(cls, data: PathData, columns: Indices, rows: Rows) -> _Centred:
        """Centre columns at the means of some rows; None: they are centred already."""
        n = data.columns.n
        A = data.columns.A[columns, :n]
        Y = data.columns.Y[:n]
        root = data.columns.root[:n]
        mean_weights = data.columns.mean_weights[:n]
        if rows is None or not mean_weights.any():  # without intercept
            return cls(A, Y, np.zeros(len(A)), np.zeros(Y.shape[1]), mean_weights)
        in_rows = np.zeros(n, dtype=bool)
        in_rows[rows] = True
        total_weight = float(root[rows] @ root[rows])
        averaging = np.where(in_rows, root / total_weight, 0.0)
        mean_x = A @ averaging
        mean_y = averaging @ Y
        A = A - np.outer(mean_x, root)
        squares = (A * A) @ in_rows
        raw_mean = np.abs(mean_x) + np.abs(data.columns.mean_x[columns])
        A[constant_columns(squares, raw_mean, total_weight)] = 0.0
        return cls(A, Y - np.outer(root, mean_y), mean_x, mean_y, root**2 / total_weight)


@dataclass(frozen=True)
class _Path:
    """Factors A = L Z of the columns that add rank, centred at the means of the member's rows."""

    centred: _Centred
    Z: Array  # (M, n) with Z Z' = I on the member's rows; zero for columns that add no rank
    z: Array  # (M, q) Z y
    L: Array  # (r, r) lower factor of the columns that add rank
    ranked: Indices  # (r,) positions of the columns that add rank
    rows: Indices  # rows of the member, sorted

    @classmethod
    def along(cls, data: PathData, columns: Indices, rows: Rows) -> _Path:
        """Factor one member along its columns."""
        member_rows = data.rows if rows is None else np.sort(rows)
        centred = _Centred.at(data, columns, None if rows is None else member_rows)
        A = centred.A
        sample: Any = slice(None) if member_rows is None else member_rows
        A_sample = A[:, sample]
        share_gram = rows is None and data.G.size
        G = data.G[np.ix_(columns, columns)] if share_gram else A_sample @ A_sample.T
        L = trusted_cholesky(G)
        ranked = np.arange(len(columns))
        if L is not None:
            # row-major (M, n) is column-major (n, M): Z' L' = A'
            Z = la.blas.dtrsm(1.0, L, A.T, side=1, lower=1, trans_a=1).T
        else:
            Q, R, ranked = _independent_qr(A_sample.T)
            L = R.T
            Z = np.zeros_like(A)
            Z[ranked] = Q.T if member_rows is None else la.solve_triangular(R, A[ranked], trans="T")
        z = Z[:, sample] @ centred.Y[sample]
        all_rows = np.arange(A.shape[1])
        return cls(centred, Z=Z, z=z, L=L, ranked=ranked, rows=all_rows[sample])

    def coefficients(self, size: int, right: Array) -> Array:
        """Solution of L' b = right on the columns of a size that add rank."""
        m = np.searchsorted(self.ranked, size)
        return np.asarray(
            la.solve_triangular(self.L[:m, :m], right[self.ranked[:m]], lower=True, trans="T")
        )

    def deletion_costs_a_rank(self, size: int, l: int) -> bool:
        """Whether a row that is fitted (nearly) exactly is the only row with a part in some
        direction.

        1 - h cancels; the sum of squares of the off-diagonal entries in its row of the hat matrix,
        h (1 - h), does not.
        """
        Z = self.Z[:size]  # zero for columns that add no rank
        mean_weights = self.centred.mean_weights
        mean_part = np.sqrt(mean_weights[self.rows] * mean_weights[l])
        hat = Z[:, l] @ Z[:, self.rows] + mean_part
        hat[np.searchsorted(self.rows, l)] = 0.0
        return bool(costs_a_rank(hat @ hat, len(hat)))

    def deleted(self, size: int, l: int) -> Array:
        """Residual (q,) of a row whose deletion costs a rank, by Greville's formula."""
        P = self.coefficients(size, self.Z[:, [l]])
        return np.asarray((P.T @ self.coefficients(size, self.z))[0] / np.sum(P * P))


def _independent_qr(A: Array) -> tuple[Array, Array, Indices]:
    """QR of the columns of A that add rank to the columns before them, and their positions.

    Without pivoting a dependent column still gets an arbitrary column in Q, which later columns
    would use. The dependent columns must be removed and the others factored again. Each round
    removes all dependent columns it can see; the loop ends when all pivots count.
    """
    norm = np.linalg.norm(A, axis=0)
    ranked = np.flatnonzero(norm > 0)
    relative_rounding = rounding_of_factors(max(A.shape))
    while True:
        Q, R = np.linalg.qr(A[:, ranked])  # SciPy's would hold the interpreter lock
        if R.shape[0] < R.shape[1]:  # more columns than rows: the last ones cannot add rank
            ranked = ranked[: R.shape[0]]
            continue
        independent = np.abs(np.diagonal(R)) > relative_rounding * norm[ranked]
        if independent.all():
            return Q, R, ranked
        ranked = ranked[independent]


def prefix_residuals(data: PathData, order: Indices, sizes: Indices, rows: Rows = None) -> Array:
    """Leave-one-out residuals of all sizes of one member, shape (sizes, n, q).

    `order` lists at least ``sizes[-1]`` columns; `rows` are the member's rows, None for all.
    """
    root = data.columns.root[: data.columns.n]
    path = _Path.along(data, order[: sizes[-1]], rows)
    starts = np.concatenate([[0], sizes[:-1]])

    def running(products: Array) -> Array:
        """Sums over the first columns, for every size: (sizes, n)."""
        return np.cumsum(np.add.reduceat(products, starts, axis=0), axis=0)

    leverage = path.centred.mean_weights + running(path.Z * path.Z)
    remainder = np.ones(leverage.shape)
    remainder[:, path.rows] -= leverage[:, path.rows]
    exact = remainder <= EXACT_FIT
    fitted = np.stack([running(path.Z * z[:, None]) for z in path.z.T], axis=2)
    residuals: Array = (path.centred.Y - fitted) / np.where(exact, 1.0, remainder)[:, :, None]
    for l in np.flatnonzero(exact.any(axis=0)).tolist():
        exact_sizes = np.flatnonzero(exact[:, l])
        if path.deletion_costs_a_rank(int(sizes[exact_sizes[0]]), l):
            residuals[exact_sizes, l] = [path.deleted(sizes[s], l) for s in exact_sizes]
        else:
            x = data.columns.A[:, [l]].T / root[l]
            y = data.columns.Y[l] / root[l] + data.columns.mean_y
            training_rows = path.rows[path.rows != l]
            predicted = prefix_predictions(data, x, order, sizes, training_rows)[exact_sizes, 0]
            residuals[exact_sizes, l] = root[l] * (y - predicted)
    return residuals / root[:, None]


def prefix_predictions(
    data: PathData, X: Array, order: Indices, sizes: Indices, rows: Rows = None
) -> Array:
    """Predictions (sizes, rows of X, q) of all sizes of one member for rows centred at the means of
    `data`.

    Coefficients of the first m columns solve L' b = (z_1, ..., z_m, 0, ...): one triangular system
    for all sizes.
    """
    path = _Path.along(data, order[: sizes[-1]], rows)
    ranked = path.ranked
    q = path.z.shape[1]
    in_size = (ranked[:, None] < sizes)[:, :, None]
    right = (in_size * path.z[ranked][:, None, :]).reshape(len(ranked), -1)
    b = la.solve_triangular(path.L, right, lower=True, trans="T", check_finite=False)
    predicted = (X[:, order[ranked]] - path.centred.mean_x[ranked]) @ b  # (rows of X, sizes q)
    by_size = predicted.reshape(len(X), len(sizes), q).transpose(1, 0, 2)
    return np.asarray(data.columns.mean_y + path.centred.mean_y + by_size)


def pair_sums(first: Array, second: Array) -> Array:
    """Terms summed over pairs of members, (3, ...): residuals, their squares, the squares of the
    pairs' means.
    """
    total = first + second
    return np.stack([total, first**2 + second**2, (total / 2) ** 2])


def sum_pairs(
    data: PathData,
    orders: list[Indices],
    sizes: Indices,
    batch: int,
    threads: Threads,
    rows: Columns | None = None,
) -> Array:
    """Sums over batches of `batch` pairs, (batches, 3, sizes, n, q), of :func:`pair_sums` of
    residuals.

    Members 2i and 2i + 1 are pair i. Residuals are leave-one-out residuals of all rows, or
    residuals of held-out `rows`.
    """
    orders = [order[: sizes[-1]] for order in orders]
    pairs = _Pairs(data, orders, sizes, data.columns if rows is None else rows, rows is None)
    slots = np.arange(len(orders) // 2) // batch
    sums, close_rows, trusted = pairs.kernel_sums(slots, threads)
    refit_pairs = np.arange(len(slots)) if len(close_rows) else np.flatnonzero(~trusted)
    if not len(refit_pairs):
        return sums
    refits = threads(lambda i, _: pairs.terms(int(refit_pairs[i])), len(refit_pairs), chunk=1)
    for i, terms in zip(refit_pairs, refits, strict=True):
        pair_rows = close_rows if trusted[i] else slice(None)
        sums[slots[i]][:, :, pair_rows] += terms[:, :, pair_rows]
    return sums


@dataclass(frozen=True)
class _Pairs:
    """Pairs of members, and the rows where their residuals are summed."""

    data: PathData
    orders: list[Indices]
    sizes: Indices
    rows: Columns
    leave_one_out: bool

    def terms(self, i: int) -> Array:
        """Terms of one pair, (3, sizes, n, q), in double precision and from trusted factors."""
        return pair_sums(self._residuals(2 * i), self._residuals(2 * i + 1))

    def _residuals(self, member: int) -> Array:
        order = self.orders[member]
        if self.leave_one_out:
            return prefix_residuals(self.data, order, self.sizes)
        n = self.rows.n
        fitted = prefix_predictions(self.data, self.rows.A[:, :n].T, order, self.sizes)
        return self.rows.Y[:n] + self.data.columns.mean_y - fitted

    def kernel_sums(self, slots: Indices, threads: Threads) -> tuple[Array, Indices, Any]:
        """Sums by the kernel, without the pairs that are not trusted and the rows that a size fits
        exactly; indices of the rows, and flags of the trusted pairs.
        """
        n_sizes = len(self.sizes)
        q = self.rows.Y.shape[1]
        padded = self.rows.A.shape[1]
        sums = np.zeros((3, (slots[-1] + 1) * n_sizes, q, padded))
        states = np.zeros(padded, dtype=np.int64)
        numbers = kernels.member_size(int(self.sizes[-1]), q)
        # members that are factored at a time: their factors have at most 2^26 numbers
        step = 2 * max(1, (1 << 25) // numbers)
        store = np.empty((min(step, len(self.orders)), numbers))
        trusted = np.empty(len(slots), dtype=bool)
        # few panels of rows at a time: a call of the kernel cannot be interrupted
        panels = min(32, -(-padded // (2 * LANES * threads.n_threads)))
        for first in range(0, len(self.orders), step):
            orders = self.orders[first : first + step]
            pairs = slice(first // 2, (first + step) // 2)
            columns, ratios = self.data.factor(orders, store[: len(orders)], threads)
            trusted[pairs] = (ratios >= SMALLEST_PIVOT).reshape(-1, 2).all(axis=1)
            add = partial(
                kernels.sum_pairs,
                A=self.rows.A,
                Y=self.rows.Y,
                share=self.rows.mean_weights,
                root=self.rows.root,
                n_rows=self.rows.n,
                own_rows=self.leave_one_out,
                columns=columns,
                sizes=self.sizes,
                slots=np.where(trusted[pairs], slots[pairs] * n_sizes, -1),
                store=store[: len(orders)],
                sums=sums,
                states=states,
            )
            threads(add, padded // LANES, chunk=panels, uses_blas=False)
        close_rows = np.flatnonzero(states[: self.rows.n])
        by_batch = sums.reshape(3, -1, n_sizes, q, padded)[..., : self.rows.n]
        out = np.moveaxis(by_batch, (1, 4), (0, 3))
        out[:, :, :, close_rows] = 0.0
        return out, close_rows, trusted
