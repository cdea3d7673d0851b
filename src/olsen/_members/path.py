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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._data.columns import LANES, Columns
from .._data.rows import RowData
from .._execution.threads import Threads, cached_property
from .._kernel import wrappers as kernels
from .._trust import EXACT_FIT, SMALLEST_PIVOT, constant_columns, costs_a_rank, rounding_of_factors
from .cholesky import trusted_cholesky

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Rows = NDArray[np.int64] | None  # row indices of a member; None: all rows

MAX_STORED_NUMBERS = 1 << 26  # entries of all factors that are stored at a time
MIN_THREADED_FLOPS = 2e7  # fewer are done before a second thread has begun


@dataclass(frozen=True)
class PathData:
    """Data shared by the paths of all members."""

    columns: Columns
    G: NDArray[np.float64] | None  # (p, p) Gram matrix of `rows`, where members share one
    rows: Rows = None  # sorted rows of members without a separate sample; None: all rows

    @classmethod
    def from_problem(cls, problem: RowData, *, shared: bool = True, rows: Rows = None) -> PathData:
        """Copy the data once; `shared` asks for the Gram matrix of the rows that members share."""
        columns = Columns.from_problem(problem, rows=rows)
        if not shared:
            return cls(columns, None, rows)
        G = problem.moments.G if rows is None else columns.A[:, rows] @ columns.A[:, rows].T
        return cls(columns, G, rows)

    @cached_property
    def _products(self) -> tuple[Array, Array, Array]:
        """G and X'y (both empty without a shared G), and the lengths of the columns."""
        A = self.columns.A
        Y = self.columns.Y
        if self.G is None:
            return np.empty((0, 0)), np.zeros((0, Y.shape[1])), np.sqrt(np.einsum("jl,jl->j", A, A))
        return self.G, A @ Y, np.sqrt(np.diagonal(self.G))

    def factor(
        self, orders: list[Indices], store: Array, threads: Threads
    ) -> tuple[kernels.Lists, Array]:
        """Write members' factors along their orders to `store`; the orders as lists, and smallest
        pivot ratios.
        """
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

        threads(work, len(orders), uses_blas=False)
        return columns, ratios


@dataclass(frozen=True)
class _Path:
    """Factors A = L Z of the columns that add rank, centred at the means of the member's rows."""

    Z: Array  # (M, n) with Z Z' = I on the member's rows; zero for columns that add no rank
    z: Array  # (M, q) Z y
    Y: Array  # (n, q) targets
    mean_x: Array  # (M,) means of the member's rows minus the means of all rows
    mean_y: Array  # (q,) the corresponding difference of the target means
    L: Array  # (r, r) lower factor of the columns that add rank
    ranked: Indices  # (r,) positions of the columns that add rank
    rows: Indices  # rows of the member, sorted
    mean_weights: Array  # (n,) weight of every row in the member's means; zeros without intercept

    @classmethod
    def along(cls, data: PathData, columns: Indices, rows: Rows) -> _Path:
        """Factor one member along its columns."""
        n = data.columns.n
        A = data.columns.A[columns, :n]
        Y = data.columns.Y[:n]
        root = data.columns.root[:n]
        mean_weights = data.columns.mean_weights[:n]
        row_indices = data.rows if rows is None else np.sort(rows)
        sample: Any = slice(None) if row_indices is None else row_indices
        mean_x = np.zeros(len(A))
        mean_y = np.zeros(Y.shape[1])
        if rows is not None and mean_weights.any():  # with an intercept
            total_weight = float(root[sample] @ root[sample])
            averaging = np.zeros(n)
            averaging[sample] = root[sample] / total_weight
            mean_x = A @ averaging
            mean_y = averaging @ Y
            mean_weights = root**2 / total_weight
            A = A - np.outer(mean_x, root)
            Y = Y - np.outer(root, mean_y)
            squares = (A * A) @ (averaging > 0)
            raw_mean = np.abs(mean_x) + np.abs(data.columns.mean_x[columns])
            A[constant_columns(squares, raw_mean, total_weight)] = 0.0
        A_sample = A[:, sample]
        G = (
            data.G[np.ix_(columns, columns)]
            if rows is None and data.G is not None
            else A_sample @ A_sample.T
        )
        L = trusted_cholesky(G)
        ranked = np.arange(len(columns))
        if L is not None:
            # row-major (M, n) is column-major (n, M): Z' L' = A'
            Z = la.blas.dtrsm(1.0, L, A.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
        else:
            Q, R, ranked = _independent_qr(A_sample.T)
            L = R.T
            Z = np.zeros_like(A)
            Z[ranked] = Q.T if row_indices is None else la.solve_triangular(R, A[ranked], trans="T")
        return cls(
            Z=Z,
            z=Z[:, sample] @ Y[sample],
            Y=Y,
            mean_x=mean_x,
            mean_y=mean_y,
            L=L,
            ranked=ranked,
            rows=np.arange(n)[sample],
            mean_weights=mean_weights,
        )

    def rank(self, size: int) -> int:
        """Number of columns that add rank among the first `size`."""
        return int(np.searchsorted(self.ranked, size))

    def coefficients(self, size: int, right: Array) -> Array:
        """Solution of L' b = right on the columns of a size that add rank."""
        m = self.rank(size)
        return np.asarray(
            la.solve_triangular(self.L[:m, :m], right[self.ranked[:m]], lower=True, trans="T")
        )

    def deletion_costs_a_rank(self, size: int, l: int) -> bool:
        """Whether a row that is fitted (nearly) exactly is the only row with a part in some
        direction.

        1 - h cancels; the sum of squares of the off-diagonal entries in its row of the hat matrix,
        h (1 - h), does not.
        """
        ranked = self.ranked[: self.rank(size)]
        mean_part = np.sqrt(self.mean_weights[self.rows] * self.mean_weights[l])
        hat = self.Z[ranked, l] @ self.Z[np.ix_(ranked, self.rows)] + mean_part
        hat[np.searchsorted(self.rows, l)] = 0.0
        return bool(costs_a_rank(hat @ hat, len(hat)))


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
    n = data.columns.n
    root = data.columns.root[:n]
    path = _Path.along(data, order[: sizes[-1]], rows)
    starts = np.concatenate([[0], sizes[:-1]])

    def running(products: Array) -> Array:
        """Sums over the first columns, for every size: (sizes, n)."""
        sums = np.add.reduceat(products, starts, axis=0)
        return sums if len(sums) == 1 else np.cumsum(sums, axis=0)

    remainder = np.ones((len(sizes), n))
    leverage = path.mean_weights + running(path.Z * path.Z)
    remainder[:, path.rows] -= leverage[:, path.rows]
    exact = remainder <= EXACT_FIT
    fitted = np.stack([running(path.Z * path.z[:, [t]]) for t in range(path.z.shape[1])], axis=2)
    residuals: Array = (path.Y - fitted) / np.where(exact, 1.0, remainder)[:, :, None]
    for l in np.flatnonzero(
        exact.any(axis=0)
    ).tolist():  # rows that at least one size fits exactly, or nearly so
        exact_sizes = np.flatnonzero(exact[:, l])
        if path.deletion_costs_a_rank(int(sizes[exact_sizes[0]]), l):
            for s in exact_sizes:
                P = path.coefficients(sizes[s], path.Z[:, [l]])
                residuals[s, l] = (P.T @ path.coefficients(sizes[s], path.z))[0] / np.sum(P * P)
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
    b = la.solve_triangular(
        path.L, right, lower=True, trans="T", check_finite=False
    )  # (rank, sizes q)
    centred: Array = (X[:, order[ranked]] - path.mean_x[ranked]) @ b
    return (
        data.columns.mean_y
        + path.mean_y
        + centred.reshape(len(X), len(sizes), q).transpose(1, 0, 2)
    )


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
    mapper: Threads,
    rows: Columns | None = None,
) -> Array:
    """Sums over batches of `batch` pairs, (batches, 3, sizes, n, q), of :func:`pair_sums` of
    residuals.

    Members 2i and 2i + 1 are pair i. Residuals are leave-one-out residuals of all rows, or
    residuals of held-out `rows`.
    """
    leave_one_out = rows is None
    rows = data.columns if rows is None else rows
    k = len(orders)
    n_sizes = len(sizes)
    largest = sizes[-1]
    q = rows.Y.shape[1]
    padded = rows.A.shape[1]
    orders = [order[:largest] for order in orders]
    flops = k * largest * (1e4 + largest * (2.0 * rows.n + largest / 3))
    mapper = mapper.quiet() if flops > MIN_THREADED_FLOPS else Threads()
    slots = np.arange(k // 2) // batch
    sums = np.zeros((3, (slots[-1] + 1) * n_sizes, q, padded))
    states = np.zeros(padded, dtype=np.int64)
    numbers = kernels.member_size(int(largest), q)
    step = 2 * max(1, MAX_STORED_NUMBERS // (2 * numbers))  # members that are factored at a time
    store = np.empty((min(step, k), numbers))
    trusted = np.empty(k // 2, dtype=bool)
    n_panels = padded // LANES
    count = min(
        32, -(-n_panels // (2 * mapper.n_threads))
    )  # panels at a time: a kernel call cannot be interrupted
    for first in range(0, k, step):
        pairs = slice(first // 2, (first + step) // 2)
        factors = store[: k - first]
        columns, ratios = data.factor(orders[first : first + step], factors, mapper)
        trusted[pairs] = (ratios >= SMALLEST_PIVOT).reshape(-1, 2).all(axis=1)
        pair_slots = np.where(trusted[pairs], slots[pairs] * n_sizes, -1)
        add_pairs = partial(
            kernels.sum_pairs,
            A=rows.A,
            Y=rows.Y,
            share=rows.mean_weights,
            root=rows.root,
            n_rows=rows.n,
            own_rows=leave_one_out,
            columns=columns,
            sizes=sizes,
            slots=pair_slots,
            store=factors,
            sums=sums,
            states=states,
        )

        def add(start: int, stop: int, add_pairs: Callable[..., None] = add_pairs) -> None:
            add_pairs(begin=start * count, end=min(stop * count, n_panels))

        mapper(add, -(-n_panels // count), uses_blas=False)
    out = np.moveaxis(sums.reshape(3, -1, n_sizes, q, padded)[..., : rows.n], (1, 4), (0, 3))
    refit_rows = np.flatnonzero(states[: rows.n])
    out[:, :, :, refit_rows] = 0.0

    def member_residuals(member: int) -> Array:
        if leave_one_out:
            return prefix_residuals(data, orders[member], sizes)
        fitted = prefix_predictions(data, rows.A[:, : rows.n].T, orders[member], sizes)
        return rows.Y[: rows.n] + data.columns.mean_y - fitted

    refit_pairs = np.arange(k // 2) if len(refit_rows) else np.flatnonzero(~trusted)

    def refit(start: int, stop: int) -> list[Array]:
        return [
            pair_sums(member_residuals(2 * i), member_residuals(2 * i + 1))
            for i in refit_pairs[start:stop]
        ]

    refits = [pair for chunk in mapper(refit, len(refit_pairs)) for pair in chunk]
    for i, pair in zip(refit_pairs, refits, strict=True):
        pair_rows = refit_rows if trusted[i] else slice(None)
        out[slots[i]][:, :, pair_rows] += pair[:, :, pair_rows]
    return out


def _lists(parts: list[Indices]) -> kernels.Lists:
    """Index arrays in the form of the kernels."""
    bounds = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return kernels.Lists.of(bounds, np.concatenate(parts).astype(np.int64, copy=False))
