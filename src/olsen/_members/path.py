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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._moments import Moments, weighted_mean
from .._trust import (
    EPS,
    EXACT_FIT,
    SMALLEST_PIVOT,
    constant_columns,
    costs_a_rank,
    rounding_of_factors,
)
from .problem import Problem

__all__ = [
    "LANES",
    "Laid",
    "LaidRows",
    "PathData",
    "left_out_residuals",
    "predictions",
    "prefix_coefficients",
    "prefix_residuals",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

LANES = 8  # rows of a panel of the kernel

DEPENDENT_ROWS = (
    "rows are dependent: {} of them span fewer directions, and minimum-norm members cannot fit them all. Use "
    "tune='max_features', or standardise columns in very different units."
)


@dataclass(frozen=True)
class PathData:
    """A problem laid out for paths: columns of X as rows, about their means if an intercept is fitted."""

    Xt: NDArray[np.float64]  # (p, n)
    Y: NDArray[np.float64]  # (n, q)
    weight: NDArray[np.float64]  # (n,), ones without weights
    G: NDArray[np.float64] | None  # (p, p) Gram matrix of all rows, where one is shared
    fit_intercept: bool
    mean_x: NDArray[np.float64] | None = None  # (p,) that were taken out; None: none

    @classmethod
    def from_problem(cls, problem: Problem, *, shared: bool = True, G: Array | None = None) -> PathData:
        """Copy the data once; `shared` makes the Gram matrix of all rows for members that use them, or give it as G."""
        n = problem.shape[0]
        weight = np.ones(n) if problem.weight is None else problem.weight
        X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
        whole = np.zeros((X.shape[1], -(-n // LANES) * LANES))  # whole panels of the kernel
        Xt, mean = whole[:, :n], None
        Xt[:] = X.T
        if problem.fit_intercept:
            mean = weighted_mean(problem.X, problem.weight)
            Xt -= mean[:, None]
            squares = np.einsum("jl,jl->j", Xt, Xt) if problem.weight is None else (Xt * Xt) @ weight
            Xt[constant_columns(squares, mean, weight.sum())] = 0.0
        return cls(Xt, problem.Y, weight, problem.moments.G if shared else G, problem.fit_intercept, mean)

    @property
    def mean_y(self) -> NDArray[np.float64]:
        """Mean target, (q,); zeros without intercept."""
        return _mean(self, self.Y, None)

    @cached_property
    def laid_out(self) -> Laid:
        """The same for the kernel."""
        return Laid.of(self)


@dataclass(frozen=True)
class LaidRows:
    """Columns and targets about their means, times the roots of the weights, rows padded by zeros to whole panels."""

    A: NDArray[np.float64]  # (p, rows)
    Y: NDArray[np.float64]  # (rows, q)
    share: NDArray[np.float64]  # (rows,) of every row in the means, zero without intercept
    root: NDArray[np.float64]  # (rows,) of the weights, one in the padding
    n: int  # rows without padding
    own: bool  # whether members were given these rows

    @classmethod
    def to_predict(cls, X: NDArray[np.float64], Y: NDArray[np.float64]) -> LaidRows:
        """Rows that members were not given, X (n, p) and Y (n, q) about the means of those that they were."""
        (n, p), q = X.shape, Y.shape[1]
        rows = -(-n // LANES) * LANES
        A, targets = np.zeros((p, rows)), np.zeros((rows, q))
        A[:, :n], targets[:n] = X.T, Y
        return cls(A, targets, np.zeros(rows), np.ones(rows), n, False)


@dataclass(frozen=True)
class Laid:
    """What members are factored from, and their rows."""

    rows: LaidRows
    G: NDArray[np.float64] | None
    C: NDArray[np.float64]  # (p, q)
    scale: NDArray[np.float64]  # (p,) lengths of the columns
    far: NDArray[np.float64]  # (p,) what taking the means out has rounded
    relative: float  # of a relation among columns: below, it is rounding

    @classmethod
    def of(cls, data: PathData) -> Laid:
        """Columns are laid out already where rows have no weights."""
        (p, n), q = data.Xt.shape, data.Y.shape[1]
        rows = -(-n // LANES) * LANES
        Y, root, share = np.zeros((rows, q)), np.ones(rows), np.zeros(rows)
        root[:n] = np.sqrt(data.weight)
        Y[:n] = _centred_target(data, None, root[:n])
        if data.fit_intercept:
            share[:n] = data.weight / data.weight.sum()
        whole = data.Xt.base
        if whole is None or whole.shape != (p, rows):
            whole = np.zeros((p, rows))
            whole[:, :n] = data.Xt
        A = whole if np.all(data.weight == 1.0) else whole * root
        scale = np.sqrt(np.einsum("jl,jl->j", A, A)) if data.G is None else np.sqrt(np.diagonal(data.G))
        mean = np.zeros(p) if data.mean_x is None else data.mean_x
        far = 4 * EPS * np.abs(mean) * np.sqrt(data.weight.sum())
        laid = LaidRows(A, Y, share, root, n, True)
        return cls(laid, data.G, A @ Y, scale, far, rounding_of_factors(max(n, p)))

    @classmethod
    def sample(cls, problem: Problem, moments: Moments, rows: NDArray[np.int64]) -> Laid:
        """Some of the rows, of members on all of them."""
        n, (count, p) = problem.shape[0], (len(rows), problem.shape[1])
        padded = -(-count // LANES) * LANES
        X = problem.X[rows]
        X = X.toarray() if sp.issparse(X) else X
        root, share = np.ones(padded), np.zeros(padded)
        weight = np.ones(count) if problem.weight is None else problem.weight[rows]
        root[:count] = np.sqrt(weight)
        A, Y = np.zeros((p, padded)), np.zeros((padded, problem.Y.shape[1]))
        centre = problem.fit_intercept
        A[:, :count] = ((X - moments.mean_x if centre else X) * root[:count, None]).T
        Y[:count] = (problem.Y[rows] - moments.mean_y if centre else problem.Y[rows]) * root[:count, None]
        if centre:
            share[:count] = weight / moments.weight
        scale = np.sqrt(np.diagonal(moments.G))
        A[scale == 0] = 0.0
        far = 4 * EPS * np.abs(moments.mean_x) * np.sqrt(moments.weight) if centre else np.zeros(p)
        laid = LaidRows(A, Y, share, root, count, True)
        return cls(laid, moments.G, moments.C, scale, far, rounding_of_factors(max(n, p)))


def prefix_residuals(data: PathData, order: Indices, sizes: Indices, rows: Indices | None = None) -> Array:
    """Leave-one-out residuals of all sizes of one member, shape (sizes, n, q).

    `order` lists columns, at least ``sizes[-1]`` of them; `rows` are those of the member, None for all.
    """
    n, q = data.Y.shape
    path = _directions(data, order[: sizes[-1]], rows)
    Z, z, mean_y = path.Z, path.z, path.mean_y
    inside = np.ones(n, dtype=bool)
    if rows is not None:
        inside[:] = False
        inside[rows] = True
    share = data.weight / data.weight[inside].sum() if data.fit_intercept else np.zeros(n)
    starts = np.concatenate([[0], sizes[:-1]])

    def running(products: Array) -> Array:
        """Sums over the first columns, for every size: (sizes, n)."""
        return np.cumsum(np.add.reduceat(products, starts, axis=0), axis=0)

    left = 1 - share - data.weight * running(Z * Z)
    residual = np.stack([data.Y[:, t] - mean_y[t] - running(Z * z[:, t, None]) for t in range(q)], axis=2)
    usable = (left > EXACT_FIT) | ~inside
    out = residual / np.where(inside & usable, left, 1.0)[:, :, None]
    if not usable.all():
        _fill_exact_fits(out, usable, data, order, sizes, rows, path)
    return out


def _fill_exact_fits(
    out: Array,
    usable: NDArray[np.bool_],
    data: PathData,
    order: Indices,
    sizes: Indices,
    rows: Indices | None,
    path: _Directions,
) -> None:
    """Residuals of left-out rows that some sizes fit exactly, or nearly so."""
    exact = np.flatnonzero(~usable.all(axis=0))
    first = np.argmin(usable[:, exact], axis=0)  # size at which it begins
    lost = np.array(
        [_deletion_costs_a_rank(data, path, int(sizes[s]), int(l)) for s, l in zip(first, exact, strict=True)]
    )
    for s in np.flatnonzero(~usable.all(axis=1)):
        here = exact[lost & ~usable[s, exact]]
        if len(here):
            out[s, here] = _greville(data, path, int(sizes[s]), here)
    for l in exact[~lost]:
        others = np.setdiff1d(np.arange(len(data.Y)) if rows is None else rows, l)
        (fitted,) = predictions(data, data.Xt[:, [l]].T, [order], sizes, [others])
        out[~usable[:, l], l] = data.Y[l] - fitted[~usable[:, l], 0]


def _deletion_costs_a_rank(data: PathData, path: _Directions, size: int, l: int) -> bool:
    """Whether a row that is fitted (nearly) exactly is the only one with something of its own.

    1 - h cancels; the sum of squares of the other entries of the row of the hat matrix, h (1 - h), does not.
    """
    root = np.sqrt(data.weight if path.rows is None else data.weight[path.rows])
    own = root[l] if path.rows is None else root[np.searchsorted(path.rows, l)]
    kept = path.kept[: np.searchsorted(path.kept, size)]
    others = path.Z[kept] if path.rows is None else path.Z[np.ix_(kept, path.rows)]
    hat = (path.Z[kept, l] @ others) * root * own
    if data.fit_intercept:
        hat = hat + root * own / (root @ root)
    hat[l if path.rows is None else np.searchsorted(path.rows, l)] = 0.0
    return costs_a_rank(float(hat @ hat), len(root))


def _greville(data: PathData, path: _Directions, size: int, rows: Indices) -> Array:
    """Residuals (rows, q) of left-out rows whose deletion costs a rank."""
    m = int(np.searchsorted(path.kept, size))
    L, Z, z = path.L[:m, :m], path.Z[path.kept[:m]], path.z[path.kept[:m]]
    P = la.solve_triangular(L, Z[:, rows], lower=True, trans="T")
    b = la.solve_triangular(L, z, lower=True, trans="T")
    return np.asarray((P.T @ b) / (data.weight[rows] * (P * P).sum(axis=0))[:, None])


def left_out_residuals(
    data: PathData,
    orders: list[NDArray[np.int64]],
    sizes: NDArray[np.int64] | None,
    rows: list[NDArray[np.int64] | None],
) -> list[NDArray[np.float64]]:
    """The same for several members, each with its order and rows; sizes None: one size, the whole order."""
    return [
        prefix_residuals(data, order, np.array([len(order)]) if sizes is None else sizes, own)
        for order, own in zip(orders, rows, strict=True)
    ]


def predictions(
    data: PathData,
    X: NDArray[np.float64],
    orders: list[NDArray[np.int64]],
    sizes: NDArray[np.int64] | None,
    rows: list[NDArray[np.int64] | None],
) -> list[NDArray[np.float64]]:
    """Predictions (sizes, rows of X, q) of several members for rows about the means of `data`; sizes as above."""
    found = []
    for order, own in zip(orders, rows, strict=True):
        coef = prefix_coefficients(data, order, np.array([len(order)]) if sizes is None else sizes, own)
        centre = _mean(data, data.Y, own)
        shift = np.zeros(len(data.Xt)) if own is None else _mean(data, data.Xt.T, own)
        found.append(np.stack([centre + (X - shift) @ b for b in coef]))
    return found


def _mean(data: PathData, values: NDArray[np.float64], rows: NDArray[np.int64] | None) -> NDArray[np.float64]:
    if not data.fit_intercept:
        return np.zeros(values.shape[1])
    weight = data.weight if rows is None else data.weight[rows]
    return np.asarray(weight @ (values if rows is None else values[rows]) / weight.sum())


def prefix_coefficients(data: PathData, order: Indices, sizes: Indices, rows: Indices | None = None) -> Array:
    """Coefficients of all sizes of one member, shape (sizes, p, q): back substitution with each leading block.

    Columns that add no rank get coefficient zero.
    """
    columns = order[: sizes[-1]]
    _, root, AT = _member(data, columns, rows)
    target = _centred_target(data, rows, root)
    L, kept = _lower_factor(data, columns, AT, rows)
    z = la.solve_triangular(L, AT[kept] @ target, lower=True)
    out = np.zeros((len(sizes), len(data.Xt), data.Y.shape[1]))
    for s, size in enumerate(sizes):
        m = int(np.searchsorted(kept, size))  # kept columns among the first `size`
        out[s, columns[kept[:m]]] = la.solve_triangular(L[:m, :m], z[:m], lower=True, trans="T")
    return out


def _member(data: PathData, columns: Indices, rows: Indices | None) -> tuple[Array, Array, Array]:
    """Columns about the member's means (M, n), roots of its weights, and its own rows times these (M, rows)."""
    A = data.Xt[columns]
    weight = data.weight if rows is None else data.weight[rows]
    root = np.sqrt(weight)
    if rows is not None and data.fit_intercept:
        A -= (A[:, rows] @ weight / weight.sum())[:, None]
    part = A if rows is None else A[:, rows]
    return A, root, part * root


def _centred_target(data: PathData, rows: Indices | None, root: Array) -> Array:
    Y = data.Y if rows is None else data.Y[rows]
    if data.fit_intercept:
        Y = Y - (root**2) @ Y / (root**2).sum()
    return Y * root[:, None]


@dataclass(frozen=True)
class _Directions:
    """A = L Z on the columns that add rank."""

    Z: Array  # (M, n) with Z W Z' = I on the member's rows; zero for columns that add no rank
    z: Array  # (M, q) Z W y
    mean_y: Array  # (q,) of the member's rows
    L: Array  # (r, r) lower factor of the columns that add rank
    kept: Indices  # (r,) their positions
    rows: Indices | None  # of the member, sorted; None: all


def _directions(data: PathData, columns: Indices, rows: Indices | None) -> _Directions:
    A, root, AT = _member(data, columns, rows)
    Y = data.Y if rows is None else data.Y[rows]
    mean_y = (root**2) @ Y / (root**2).sum() if data.fit_intercept else np.zeros(Y.shape[1])
    G = data.G[np.ix_(columns, columns)] if rows is None and data.G is not None else AT @ AT.T
    L, kept = _trusted_cholesky(G), np.arange(len(columns))
    if L is not None:
        # row-major (M, n) is column-major (n, M): Z' L' = A'
        Z = la.blas.dtrsm(1.0, L, A.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
    else:
        Z, L, kept = _orthogonal_directions(A, AT, root, rows)
    ZT = Z if rows is None else Z[:, rows]
    return _Directions(Z, (ZT * root**2) @ (Y - mean_y), mean_y, L, kept, None if rows is None else np.sort(rows))


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


def _orthogonal_directions(A: Array, AT: Array, root: Array, rows: Indices | None) -> tuple[Array, Array, Indices]:
    """Z from a QR of the member's rows, without the columns that add no rank; their factor and positions."""
    Q, R, kept = _independent_qr(AT.T)
    Z = np.zeros_like(A)
    Z[kept] = Q.T / root if rows is None else la.solve_triangular(R, A[kept], trans="T")
    return Z, R.T, kept


def _lower_factor(data: PathData, columns: Indices, AT: Array, rows: Indices | None) -> tuple[Array, Indices]:
    """Lower factor of the Gram matrix of the columns that add rank, and their positions."""
    G = data.G[np.ix_(columns, columns)] if rows is None and data.G is not None else AT @ AT.T
    L = _trusted_cholesky(G)
    if L is not None and np.all(np.diagonal(G) > 0):
        return L, np.arange(len(columns))
    _, R, kept = _independent_qr(AT.T)
    return R.T, kept


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
