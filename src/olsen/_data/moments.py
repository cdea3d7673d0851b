r"""Sufficient statistics of a least-squares problem: count, means, X'X, X'y, y'y.

For members on all rows, a member on columns :math:`S` needs only :math:`G_{SS}` and :math:`c_S`.
Once the moments exist the number of rows no longer matters, and data in pieces are moments that
merge.

Numerical price: :math:`G` squares the condition number of X. Solvers that work on it watch their
pivots and go back to the data when it is not trusted (see ``_members.gram``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution import memory
from .._execution.arrays import HOST, Space, add_row_products, is_large_product, row_products
from .._execution.threads import Threads, cached_property, one_blas_thread
from .._trust import EPS

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Real = TypeVar("Real", bound=np.floating[Any])

MIN_BLAS_FLOPS = 2e8  # a smaller Gram matrix gains nothing from threads of BLAS
ALONE = Threads()
DEVICE_BLOCK_BYTES = 1 << 31  # few large products: every block adds a p x p matrix
BLOCK_BYTES = (
    1 << 25
)  # rows are centred and squared in blocks of this size, so no second copy of X is made
MAX_COPIED_COLUMNS = 64  # columns that are copied to be centred a second time


@dataclass(frozen=True)
class Moments:
    """Moments of weighted rows (x, y), centred if ``centred`` and about zero otherwise.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    weight : float
        Sum of the sample weights; ``n_rows`` without weights.
    mean_x, mean_y : ndarray of shape (p,), (q,)
        Weighted means; zeros when not centred.
    G : ndarray of shape (p, p)
        :math:`\\sum_l w_l (x_l - \\bar x)(x_l - \\bar x)'`.
    C : ndarray of shape (p, q)
        :math:`\\sum_l w_l (x_l - \\bar x)(y_l - \\bar y)'`.
    yy : ndarray of shape (q,)
        :math:`\\sum_l w_l (y_l - \\bar y)^2`.
    centred : bool
        Whether means were subtracted.
    space : Space, default=HOST
        Where the arrays live.
    """

    n_rows: int
    weight: float
    mean_x: NDArray[np.float64]
    mean_y: NDArray[np.float64]
    G: NDArray[np.float64]
    C: NDArray[np.float64]
    yy: NDArray[np.float64]
    centred: bool
    space: Space = HOST

    @property
    def null_rank(self) -> int:
        """Rank of the columns that are always in: one with an intercept."""
        return int(self.centred)

    def merge(self, other: Moments) -> Moments:
        r"""Moments of both sets of rows together (Chan, Golub and LeVeque's update).

        .. math:: G = G_1 + G_2 + \frac{w_1 w_2}{w_1 + w_2} (\bar x_1 - \bar x_2)(\bar x_1 - \bar x_2)'
        """
        weight = self.weight + other.weight
        fraction = other.weight / weight if weight else 0.0  # no rows on either side
        dx = other.mean_x - self.mean_x  # zero when not centred
        dy = other.mean_y - self.mean_y
        between = self.weight * fraction
        return Moments(
            n_rows=self.n_rows + other.n_rows,
            weight=weight,
            mean_x=self.mean_x + fraction * dx,
            mean_y=self.mean_y + fraction * dy,
            G=self.G + other.G + between * (dx[:, None] * dx[None, :]),
            C=self.C + other.C + between * (dx[:, None] * dy[None, :]),
            yy=self.yy + other.yy + between * dy**2,
            centred=self.centred,
            space=self.space,
        )

    def targets_at(self, which: Indices | slice) -> Moments:
        """Moments for some of the targets."""
        return replace(self, mean_y=self.mean_y[which], C=self.C[:, which], yy=self.yy[which])

    def columns(self, columns: NDArray[np.int64]) -> Moments:
        """Moments of some columns in the given order."""
        take = self.space.xp.take
        indices = columns if self.space.on_host else self.space.put(columns)
        return replace(
            self,
            mean_x=take(self.mean_x, indices, axis=0),
            G=take(take(self.G, indices, axis=0), indices, axis=1),
            C=take(self.C, indices, axis=0),
        )

    def on_host(self) -> Moments:
        """Moments in NumPy arrays; itself if its arrays are."""
        return self if self.space.on_host else self._copied

    @cached_property
    def _copied(self) -> Moments:
        """Copy on the host, made once."""
        arrays = (self.mean_x, self.mean_y, self.G, self.C, self.yy)
        mean_x, mean_y, G, C, yy = (
            self.space.get(a).astype(np.float64, copy=False) for a in arrays
        )
        return replace(self, mean_x=mean_x, mean_y=mean_y, G=G, C=C, yy=yy, space=HOST)

    @staticmethod
    def merge_all(parts: list[Moments]) -> Moments:
        """Moments of several sets of rows together, merged in their order."""
        return reduce(Moments.merge, parts)


def training_moments(folds: list[Moments], n_repeats: int = 1) -> list[Moments]:
    """Moments of all folds of a repeat but one, for each fold, by merging: subtracting from the
    total would cancel.
    """
    if n_repeats > 1:
        n_folds = len(folds) // n_repeats
        repeats = [folds[i : i + n_folds] for i in range(0, len(folds), n_folds)]
        return [train for repeat in repeats for train in training_moments(repeat)]
    first_folds = list(accumulate(folds[:-1], Moments.merge))
    last_folds = list(accumulate(folds[:0:-1], Moments.merge))[::-1]
    inner = [
        first.merge(last) for first, last in zip(first_folds[:-1], last_folds[1:], strict=True)
    ]
    return [last_folds[0], *inner, first_folds[-1]]


def from_data(
    X: Any,
    Y: Any,
    weight: Any,
    *,
    centre: bool,
    space: Space = HOST,
    threads: Threads | None = None,
) -> Moments:
    """Moments of X (dense or sparse, any float type) and Y of shape (n, q), accumulated in float64.

    Two passes over dense rows, means first: sums of raw squares would cancel when means are large.
    Arrays of other libraries stay in their `space`. `threads` divides the work among threads.

    BLAS has one thread, so that the rounding of sums does not depend on the number of threads;
    large products ask for more.
    """
    with one_blas_thread():
        return _from_data(X, Y, weight, centre=centre, space=space, threads=threads)


def of_row_sets(
    X: Any,
    Y: Array,
    weight: Array | None,
    row_sets: list[Indices],
    *,
    centre: bool,
    threads: Threads | None = None,
) -> list[Moments]:
    """Moments of several sets of rows of X and Y on the host."""
    with one_blas_thread():
        return [
            _from_data(
                X[rows],
                Y[rows],
                None if weight is None else weight[rows],
                centre=centre,
                threads=threads,
            )
            for rows in row_sets
        ]


def _from_data(
    X: Any, Y: Any, weight: Any, *, centre: bool, space: Space = HOST, threads: Threads | None
) -> Moments:
    xp = space.xp
    n, p = X.shape
    if space.on_host and n * float(p) ** 2 > MIN_BLAS_FLOPS:
        instead = "solver='auto' forms one small Gram matrix for each member, and 'masked_cg' none."
        memory.require(8.0 * p * p, f"The Gram matrix of {p} columns", instead)
    total_weight = float(n) if weight is None else float(xp.sum(weight))
    sum_squares: Callable[..., tuple[Any, Any, Any]] = _sparse_squares
    if not space.on_host:
        sum_squares = partial(_squares_elsewhere, space=space)
    elif not sp.issparse(X):
        sum_squares = partial(_dense_squares, threads=threads)
    mean_x = weighted_mean(X, weight, space) if centre else space.zeros(p)
    mean_y = weighted_mean(Y, weight, space) if centre else space.zeros(Y.shape[1])
    G, C, yy = sum_squares(X, Y, weight, mean_x=mean_x, mean_y=mean_y)
    constant = constant_columns(
        xp.linalg.diagonal(G), mean_x, total_weight, float(xp.finfo(space.dtype).eps)
    )
    if bool(xp.any(constant)):  # by products: not all array libraries allow assignment
        alive = space.cast(~constant)
        G = G * alive[:, None] * alive[None, :]
        C = C * alive[:, None]
    return Moments(
        n_rows=n,
        weight=total_weight,
        mean_x=mean_x,
        mean_y=mean_y,
        G=G,
        C=C,
        yy=yy,
        centred=centre,
        space=space,
    )


def constant_columns(sum_of_squares: Any, mean: Any, weight: float, eps: float = EPS) -> Any:
    """Constant columns, whose centred sum of squares is rounding only and must not look like a
    direction.

    Written with operators only, so that it serves arrays of any library.
    """
    return sum_of_squares <= weight * (16 * eps * abs(mean)) ** 2


def weighted_mean(A: Any, weight: Any, space: Space = HOST) -> Any:
    """Column means in float64, for A dense in any namespace, or sparse.

    The mean of a constant column is its value: a sum over n rows may be off by n units in the last
    place, and the remainder of the column after centring would look like a direction.
    """
    xp = space.xp
    n, p = A.shape
    sparse = sp.issparse(A)
    get = np.asarray if space.on_host else space.get
    dtype = (
        np.result_type(A.dtype, np.float64) if space.on_host else space.dtype
    )  # extended stays extended
    total_weight = n if weight is None else xp.sum(weight)

    def total(part: Any, rows: slice = slice(None)) -> Any:
        if weight is None:
            return xp.sum(part, axis=0, dtype=dtype)
        return weight[rows] @ xp.astype(part, dtype, copy=False)

    if sparse:
        mean = (
            np.asarray(A.T @ (np.ones(n) if weight is None else weight), dtype=dtype) / total_weight
        )
    else:
        block_totals = (total(A[rows, :], rows) for rows in _row_blocks(n, p, DEVICE_BLOCK_BYTES))
        mean = np.array(get(sum(block_totals) / total_weight))
    first = get(A[[0]].toarray()[0] if sparse else A[0, :]).astype(mean.dtype)
    eps = EPS if space.on_host else float(xp.finfo(dtype).eps)
    may_be_constant = (np.abs(mean - first) <= 4 * n * eps * np.abs(first)) & (first != 0)
    candidates = np.flatnonzero(may_be_constant)
    for start in range(0, len(candidates), MAX_COPIED_COLUMNS):
        j = candidates[start : start + MAX_COPIED_COLUMNS]
        part = A[:, j].toarray() if sparse else xp.take(A, space.put(j), axis=1)
        differences = xp.astype(part, dtype, copy=False) - xp.asarray(
            first[j], dtype=dtype, device=space.device
        )
        mean[j] = first[j] + get(total(differences) / total_weight)
    return mean if space.on_host else space.put(mean)


def _squares_elsewhere(
    X: Any, Y: Any, weight: Any, *, mean_x: Any, mean_y: Any, space: Space
) -> tuple[Any, Any, Any]:
    """X'X, X'y and y'y, centred, in the namespace of X."""
    n, p = X.shape
    q = Y.shape[1]
    G = space.zeros((p, p))
    C = space.zeros((p, q))
    yy = space.zeros(q)
    for rows in _row_blocks(n, p, DEVICE_BLOCK_BYTES):
        x = space.cast(X[rows, :]) - mean_x
        y = Y[rows, :] - mean_y
        wx, wy = (a if weight is None else a * weight[rows][:, None] for a in (x, y))
        G += wx.T @ x
        C += wx.T @ y
        yy += space.xp.sum(wy * y, axis=0)
    return G, C, yy


def _row_blocks(n: int, p: int, n_bytes: int) -> list[slice]:
    rows = max(1, n_bytes // (8 * max(p, 1)))  # a member may have no columns
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _dense_squares(
    X: NDArray[Any],
    Y: Array,
    weight: Array | None,
    *,
    mean_x: Array,
    mean_y: Array,
    threads: Threads | None = None,
) -> tuple[Array, Array, Array]:
    """X'X, X'y and y'y, centred; the rounding of small products does not depend on the number of
    threads.

    Threads of BLAS would spin for milliseconds after a product and take the cores from the members
    that come next, so products of middle size are computed in two halves by our threads.
    """
    n, p = X.shape
    flops = n * float(p) ** 2
    threads = threads or ALONE
    # with several threads a Gram matrix of less than 4e9 flops is shared by two of our own
    if 8 * n * p > BLOCK_BYTES or flops >= (MIN_BLAS_FLOPS if threads.n_threads == 1 else 4e9):
        with threads.blas():
            return _sum_of_blocks(X, Y, weight, mean_x=mean_x, mean_y=mean_y)
    x, y = centred_rows(X, Y, weight, mean_x=mean_x, mean_y=mean_y, buffer=np.empty(X.shape))
    if flops < 1e7:  # not worth threads, and too small a product for tiles
        G = x.T @ x
    elif n < 100:
        G = row_products(x.T)
    else:
        halves = [x[: n // 2], x[n // 2 :]]
        G, G_second = threads.quiet()(
            lambda i, _: row_products(halves[i].T), 2, chunk=1, uses_blas=False
        )
        G += G_second
    return G, x.T @ y, (y * y).sum(axis=0)


def centred_rows(
    X: NDArray[Any], Y: Array, weight: Array | None, *, mean_x: Array, mean_y: Array, buffer: Array
) -> tuple[Array, Array]:
    """Centred, sqrt-weighted rows in float64, whatever the type of X."""
    x = np.subtract(X, mean_x, out=buffer)
    y = Y - mean_y
    if weight is not None:
        root = np.sqrt(weight)[:, None]
        x *= root
        y = y * root
    return x, y


def _sum_of_blocks(
    X: NDArray[Any], Y: Array, weight: Array | None, *, mean_x: Array, mean_y: Array
) -> tuple[Array, Array, Array]:
    n, p = X.shape
    q = Y.shape[1]
    blocks = _row_blocks(n, p, BLOCK_BYTES)
    G = np.zeros((p, p), order="F")
    C = np.zeros((p, q))
    yy = np.zeros(q)
    buffer = np.empty((blocks[0].stop, p))
    for block in blocks:
        x, y = centred_rows(
            X[block],
            Y[block],
            None if weight is None else weight[block],
            mean_x=mean_x,
            mean_y=mean_y,
            buffer=buffer[: block.stop - block.start],
        )
        # adds to one triangle in place: x.T @ x would mirror, allocate and add a whole matrix for
        # every block
        if is_large_product((p, len(x))):
            add_row_products(G, x.T)
        else:
            G = la.blas.dsyrk(1.0, x.T, beta=1.0, c=G, lower=1, overwrite_c=1)
        with one_blas_thread():
            C += x.T @ y
        yy += (y * y).sum(axis=0)
    return mirror_lower(G).T, C, yy


def mirror_lower(G: NDArray[Real]) -> NDArray[Real]:
    """Copy the lower triangle to the upper one, in place and block by block."""
    p = len(G)
    step = 64
    for start in range(0, p, step):
        stop = min(start + step, p)
        corner = G[start:stop, start:stop]
        corner[:] = np.tril(corner) + np.tril(corner, -1).T
        G[start:stop, stop:] = G[stop:, start:stop].T
    return G


def _sparse_squares(
    X: Any, Y: Array, weight: Array | None, *, mean_x: Array, mean_y: Array
) -> tuple[Array, Array, Array]:
    """X'X, X'y and y'y, centred after the products: centring a sparse matrix would fill it."""
    X = X.astype(np.float64, copy=False)
    weights = np.ones(X.shape[0]) if weight is None else weight
    y = Y - mean_y
    # in row order, which the kernels need; SciPy's default for X stored by rows would be column
    # order
    G = (X.T @ X.multiply(weights[:, None])).toarray(order="C") - weights.sum() * np.outer(
        mean_x, mean_x
    )
    C = np.asarray(X.T @ (weights[:, None] * y)) - np.outer(mean_x, weights @ y)
    cancelled = np.flatnonzero(np.diagonal(G) < 1e-3 * weights.sum() * mean_x**2)
    for start in range(
        0, len(cancelled), MAX_COPIED_COLUMNS
    ):  # centre columns far from zero, or their digits are lost
        j = cancelled[start : start + MAX_COPIED_COLUMNS]
        x = X[:, j].toarray() - mean_x[j]
        wx = weights[:, None] * x
        G[:, j] = X.T @ wx - np.outer(mean_x, wx.sum(axis=0))
        G[j] = G[:, j].T
        G[np.ix_(j, j)] = x.T @ wx
        C[j] = wx.T @ y
    return G, C, weights @ (y * y)
