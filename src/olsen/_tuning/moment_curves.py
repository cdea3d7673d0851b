r"""Risk curves from moments alone: cross-validation and GCV that read every row once, on the host
or on a device.

Rows are assigned to F folds in the pass that sums their products. The training moments of fold f
are the other folds merged, and the error of coefficients b on its test rows needs the moments of
the test rows only:

.. math:: \sum_l w_l (y_l - \hat y_l)^2 = y'y - 2 b'c + b'Gb
          + w\,\bigl(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b\bigr)^2

with the moments of the test fold centred at its means. It is a quadratic form in b, so pairs of
members have products as in ``risk_curves``, and the curve of any ensemble size follows. Status:
exact k-fold cross-validation. Leave-one-out, which needs every leverage, would need the rows again.

**All sizes of a path at once.** With :math:`G = L L'` in the order of a path and :math:`z = L^{-1}
c`, the coefficients of its first m columns solve :math:`L' b = (z_1, \dots, z_m, 0, \dots)`: one
triangular system whose right-hand sides are z cut off at every size. Factors of many orders and
folds are computed together, block by block from products of stacked matrices. A column that adds no
rank to the earlier ones gets a coefficient of zero: a diagonal block with a small pivot has such a
column, and is factored column by column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._data.columns import Columns
from .._data.folds import Fold, FoldData, HeldOutMoments
from .._data.moments import Moments, training_moments
from .._data.rows import RowData
from .._execution.arrays import Space
from .._members.path import PathData, sum_pairs
from .._trust import EPS, SMALLEST_PIVOT
from .risk_curves import Paths, RiskCurve, RowCurve, balanced_groups, pair_means, require_rows_left

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK_COLUMNS = 64  # columns of a factor that are computed in one block
# permuted matrices of a batch, where the array library does not report its free memory
BATCH_BYTES = 5e8


@dataclass(frozen=True)
class FoldCurve:
    """A risk curve whose rows are folds, and the mean coefficients of the members in each fold."""

    curve: RowCurve
    coef: Any  # (folds, p, sizes, q), before any scale
    held_out: list[HeldOutMoments]

    def slope(self, at: int) -> tuple[float, float]:
        """Least-squares slope of targets on out-of-fold predictions at one size, and its variance.

        Errors of all rows are assumed to have equal variance. Without predictions the slope is one,
        its variance zero.
        """
        top = bottom = squares = 0.0
        for f, fold in enumerate(self.held_out):
            b = self.coef[f, :, at : at + 1, :]
            total = fold.test.space.xp.sum
            top += float(total(fold.with_targets(b)))
            bottom += float(total(fold.squares(b)))
            squares += float(total(fold.targets))
        count = sum(fold.test.n_rows for fold in self.held_out) * self.coef.shape[3]
        if not bottom > 1e-20 * squares or count < 3:
            return 1.0, 0.0
        slope = top / bottom
        return slope, max(0.0, squares - slope * top) / bottom / count

    def scaled(self, scale: float) -> RowCurve:
        """Scale the members: an error e becomes (1 - scale) d + scale e."""
        square = []
        cross = []
        for f, fold in enumerate(self.held_out):
            get = fold.test.space.get
            square.append(np.full(self.coef.shape[2], get(fold.targets).mean() / fold.test.weight))
            cross.append(
                square[-1]
                - get(fold.with_targets(self.coef[f, :, :, :])).mean(axis=1) / fold.test.weight
            )
        shrinkage = 1 - scale
        target_terms = shrinkage**2 * np.stack(square, axis=1) + 2 * scale * shrinkage * np.stack(
            cross, axis=1
        )
        products = target_terms + scale**2 * self.curve.products
        coefs = (scale * self.coef[f, :, :, :] for f in range(len(self.held_out)))
        errors = [
            fold.test.space.get(fold.errors(b)).mean(axis=1)
            for fold, b in zip(self.held_out, coefs, strict=True)
        ]
        mean_square = np.stack(errors, axis=1) @ (self.curve.weight / self.curve.weight.sum())
        return self.curve.with_products(products, self.curve.residual).raised(mean_square)


def moment_kfold_curve(
    folds: list[Moments], sizes: Indices, paths: Paths, scale: float = 1.0
) -> FoldCurve:
    """Risk curve of uniform members from moments of folds, times a scale; the rows of the curve are
    the folds.
    """
    training = training_moments(folds)
    held_out = [
        HeldOutMoments.from_moments(test, train)
        for test, train in zip(folds, training, strict=True)
    ]
    products, coef = _pair_means(held_out, training, sizes, paths)
    unscaled = FoldCurve(_curve(folds, sizes, paths, products.mean(axis=3)), coef, held_out)
    return unscaled if scale == 1.0 else replace(unscaled, curve=unscaled.scaled(scale))


def moment_kfold_curves(folds: list[Moments], sizes: Indices, paths: Paths) -> list[RiskCurve]:
    """Risk curve of uniform members for each target, from moments of folds."""
    training = training_moments(folds)
    held_out = [
        HeldOutMoments.from_moments(test, train)
        for test, train in zip(folds, training, strict=True)
    ]
    products, _ = _pair_means(held_out, training, sizes, paths)
    curves = (_curve(folds, sizes, paths, products[:, :, :, t]) for t in range(products.shape[3]))
    return [curve.average for curve in curves]


def curves_of_many_targets(data: FoldData, sizes: Indices, paths: Paths) -> list[RiskCurve]:
    """Risk curve of uniform members for each of many targets, from folds of moments.

    The factors of the members are computed once for all targets. Moments G, C and y'y are those of
    at most p + 2 rows: with G = E S E' the rows are S^1/2 E', their targets S^-1/2 E'C, and a row of
    zeros has the remainder of y'y. Errors at these rows are errors at the held-out rows.
    """
    orders = paths.orders(len(data.unit), 0, paths.min_batches)
    n_pairs = len(orders) // 2
    step = max(1, int(BATCH_BYTES) // (24 * len(sizes) * (len(data.unit) + 2)))
    curves = []
    for start in range(0, data.n_targets, step):
        targets = np.arange(start, min(start + step, data.n_targets))
        single, pair, mean = np.sum(
            [_pair_sums(fold, targets, orders, sizes, paths) for fold in data.folds], axis=0
        )
        weight = data.weight.sum()
        products = pair_means(
            single / len(orders) / weight, pair / n_pairs / weight, mean / weight, n_pairs
        )
        group_sizes = balanced_groups(sizes, paths.n_items(len(data.unit)))
        for t in range(len(targets)):
            curve = RiskCurve(sizes, group_sizes, paths.design, products[:, :, t])
            corrections = curve.lower_bound_corrections(mean[:, t] / weight)
            curves.append(replace(curve, products=curve.products + corrections))
    return curves


def _pair_sums(
    fold: Fold, targets: Indices, orders: list[Indices], sizes: Indices, paths: Paths
) -> Array:
    """Sums (3, sizes, targets) over the members and held-out rows of a fold: squares of residuals,
    of those of pairs, and of those of the mean of all members.
    """
    train = fold.train
    test = fold.test
    assert isinstance(test, HeldOutMoments)
    values, E = train.eigen
    root, Y = _rows_of(values, E, train.C[:, targets])
    root[:, train.squares == 0] = 0.0  # constant columns, which are rounding in the eigenvectors
    problem = RowData(root, Y, None, fit_intercept=False)
    no_means = np.zeros(len(E)), np.zeros(len(targets))
    problem.keep_moments(
        Moments(
            n_rows=len(root),
            weight=float(len(root)),
            mean_x=no_means[0],
            mean_y=no_means[1],
            G=train.products,
            C=train.C[:, targets],
            yy=np.sum(Y * Y, axis=0),
            centred=False,
        )
    )
    moments = test.test.targets_at(targets)
    held_out, Y_held_out = _rows_of(*np.linalg.eigh(moments.G), moments.C)
    remainder = np.maximum(moments.yy - np.sum(Y_held_out**2, axis=0), 0.0)
    shift = np.sqrt(moments.weight)
    columns = Columns.plain(
        np.vstack([held_out, shift * test.shift_x, 0.0 * test.shift_x]).T,
        np.vstack([Y_held_out, shift * test.shift_y[targets], np.sqrt(remainder)]),
    )
    data = PathData.from_problem(problem)
    n_pairs = len(orders) // 2
    ((total, square, pair_square),) = sum_pairs(
        data, orders, sizes, n_pairs, paths.threads.quiet(), rows=columns
    )
    mean = total / len(orders)
    return np.stack([square.sum(axis=1), pair_square.sum(axis=1), np.sum(mean**2, axis=1)])


def _rows_of(values: Array, E: Array, C: Array) -> tuple[Array, Array]:
    """Rows (r, p) and targets (r, q) with the products E diag(values) E' and C; eigenvalues that are
    rounding have none.
    """
    keep = values > max(1e-13, 8 * EPS * len(values)) * max(float(values.max(initial=0.0)), 0.0)
    root = np.sqrt(values[keep])
    return root[:, None] * E[:, keep].T, (E[:, keep].T @ C) / root[:, None]


def moment_gcv_curve(
    moments: Moments, sizes: Indices, paths: Paths, scale: float = 1.0
) -> RowCurve:
    """GCV from the moments of all rows: the rows are not read again, so the cost does not depend on
    n.

    The residual sum of squares of coefficients b is y'y - 2 b'c + b'Gb. For n far above p,
    leverages are small and GCV and leave-one-out agree.
    """
    all_rows = HeldOutMoments(moments, 0.0 * moments.mean_x, 0.0 * moments.mean_y)
    require_rows_left(moments.n_rows, sizes, moments.null_rank)
    denominator = (1 - scale * (sizes + moments.null_rank) / moments.n_rows)[:, None] ** 2
    products, _ = _pair_means([all_rows], [moments], sizes, paths, scale=scale)
    return _curve([moments], sizes, paths, products.mean(axis=3) / denominator)


def _curve(folds: list[Moments], sizes: Indices, paths: Paths, products: Array) -> RowCurve:
    """Risk curve whose rows are folds, from A, S and C (3, sizes, folds)."""
    p, q = folds[0].C.shape
    weight = np.array([fold.weight for fold in folds])
    k = 2 * paths.batch * paths.min_batches  # members in the mean residual
    mean_square = (products[0] + products[1] + (k - 2) * products[2]) / k @ (weight / weight.sum())
    curve = RowCurve.from_products(
        sizes=sizes,
        group_sizes=balanced_groups(sizes, paths.n_items(p)),
        design=paths.design,
        weight=weight,
        products=products,
        residual=np.zeros((len(sizes), 0, q)),  # moments have no residuals of rows
    )
    return curve.raised(mean_square)


def _pair_means(
    held_out: list[HeldOutMoments],
    training: list[Moments],
    sizes: Indices,
    paths: Paths,
    scale: float = 1.0,
) -> tuple[Array, Any]:
    """A, S and C of antithetic pairs of members, (3, sizes, folds, q), and mean coefficients (folds,
    p, sizes, q).
    """
    space = training[0].space
    xp = space.xp
    p = training[0].C.shape[0]
    orders = np.stack(paths.orders(p, 0, paths.min_batches))

    def errors(coefs: Any) -> Array:
        """Errors (sizes, folds, q), summed over members, of coefficients (folds, p, members, sizes,
        q).
        """
        _, _, K, S, q = coefs.shape
        fold_errors = [
            fold.errors(xp.reshape(coefs[f, ...], (p, K * S, q))) for f, fold in enumerate(held_out)
        ]
        return np.stack([space.get(e).reshape(K, S, q).sum(axis=0) for e in fold_errors], axis=1)

    def follow(start: int, stop: int) -> tuple[Array, Array, Any]:
        coefs = scale * _prefix_coefficients(training, orders[2 * start : 2 * stop], sizes)
        pairs = (coefs[:, :, ::2, :, :] + coefs[:, :, 1::2, :, :]) / 2
        return errors(coefs), errors(pairs), xp.sum(coefs, axis=2)

    n_pairs = len(orders) // 2
    chunks = paths.threads(follow, n_pairs) if space.on_host else [follow(0, n_pairs)]
    single, pair, coef = (sum(terms) for terms in zip(*chunks, strict=True))
    mean_coef = coef / len(orders)
    mean_errors = errors(mean_coef[:, :, None, :, :])
    return pair_means(single / len(orders), pair / n_pairs, mean_errors, n_pairs), mean_coef


def _prefix_coefficients(training: list[Moments], orders: Indices, sizes: Indices) -> Any:
    """Coefficients (F, p, K, S, q) of the first columns of K orders, for F sets of training
    moments.
    """
    space = training[0].space
    xp = space.xp
    p, q = training[0].C.shape
    F = len(training)
    S = len(sizes)
    largest = int(sizes[-1])
    G = xp.reshape(xp.stack([m.G for m in training]), (F, p * p))
    C = xp.stack([m.C for m in training])
    cut = space.cast(space.put(np.arange(largest)[:, None] < sizes))[:, :, None]  # (largest, S, 1)
    step = max(1, int(space.batch_bytes(BATCH_BYTES) // (40 * F * largest**2)))
    batches = []
    for start in range(0, len(orders), step):
        batch_orders = orders[start : start + step]
        K = len(batch_orders)
        columns = space.put(np.ascontiguousarray(batch_orders[:, :largest]))
        pairs = xp.reshape(columns[:, :, None] * p + columns[:, None, :], (-1,))
        ordered_G = xp.reshape(xp.take(G, pairs, axis=1), (F * K, largest, largest))
        ordered_C = xp.reshape(xp.take(C, xp.reshape(columns, (-1,)), axis=1), (F * K, largest, q))
        A, blocks = _factored(ordered_G, ordered_C, space)
        z = xp.reshape(xp.matrix_transpose(A[:, largest:, :]), (F, K, largest, 1, q))
        B = _backward(A, blocks, xp.reshape(z * cut, (F * K, largest, S * q)), space)
        batches.append(_by_column(xp.reshape(B, (F, K, largest, S * q)), batch_orders, p, space))
    coefs = xp.concat(batches, axis=2) if len(batches) > 1 else batches[0]
    return xp.reshape(coefs, (F, p, len(orders), S, q))


def _by_column(B: Any, orders: Indices, p: int, space: Space) -> Any:
    """Coefficients (F, K, largest, c) in the order of the columns, (F, p, K, c); zero for columns
    outside a path.
    """
    xp = space.xp
    F, K, largest, c = B.shape
    if largest < p:
        B = xp.concat([B, space.zeros((F, K, 1, c))], axis=2)
    n_positions = B.shape[2]
    positions = np.full(
        (K, p), n_positions - 1
    )  # the appended zero, unless the column is on the path
    np.put_along_axis(positions, orders[:, :largest], np.arange(largest)[None, :], axis=1)
    flat = (np.arange(K) * n_positions + positions.T).reshape(-1)
    return xp.reshape(
        xp.take(xp.reshape(B, (F, K * n_positions, c)), space.put(flat), axis=1), (F, p, K, c)
    )


def _factored(A: Any, C: Any, space: Space) -> tuple[Any, list[tuple[slice, Any, Any]]]:
    """Stacked lower factors with (L^-1 C)' below, and their blocks.

    A block holds its columns, the inverse of its diagonal block, and ones for columns that add
    rank. Columns that add no rank are unit vectors. Entries above the diagonal are undefined.
    """
    xp = space.xp
    diagonal = xp.linalg.diagonal(A)
    size = A.shape[1]
    A = xp.concat([A, xp.matrix_transpose(C)], axis=1)
    blocks = []
    for start in range(0, size, BLOCK_COLUMNS):
        stop = min(start + BLOCK_COLUMNS, size)
        block = slice(start, stop)
        panel = A[:, start:, block]
        if start:
            panel = panel - A[:, start:, :start] @ xp.matrix_transpose(A[:, block, :start])
        lower, adds_rank = _factor_block(panel[:, : stop - start, :], diagonal[:, block], space)
        inverse = space.inverse_of_lower(lower)
        A[:, block, block] = lower
        A[:, stop:, block] = (
            panel[:, stop - start :, :] @ xp.matrix_transpose(inverse)
        ) * adds_rank[:, None, :]
        blocks.append((block, inverse, adds_rank))
    return A, blocks


def _backward(A: Any, blocks: list[tuple[slice, Any, Any]], Z: Any, space: Space) -> Any:
    """Solution B of L' B = Z, (b, m, c)."""
    xp = space.xp
    size = Z.shape[1]
    out = xp.zeros_like(Z)
    for block, inverse, adds_rank in reversed(blocks):
        right = Z[:, block, :]
        if block.stop < size:
            right = (
                right
                - xp.matrix_transpose(A[:, block.stop : size, block]) @ out[:, block.stop :, :]
            )
        out[:, block, :] = (xp.matrix_transpose(inverse) @ right) * adds_rank[:, :, None]
    return out


def _factor_block(D: Any, diagonal: Any, space: Space) -> tuple[Any, Any]:
    """Lower factors of stacked blocks, and ones for columns that add rank.

    `diagonal` is that of the matrices before elimination. The blocks may be overwritten.
    """
    xp = space.xp
    lower = space.cholesky(D)
    if lower is not None:
        pivots = xp.linalg.diagonal(lower)
        if bool(xp.all(pivots * pivots > SMALLEST_PIVOT * diagonal)):
            return lower, xp.ones_like(diagonal)
    return _column_by_column(D, diagonal, space)


def _column_by_column(D: Any, diagonal: Any, space: Space) -> tuple[Any, Any]:
    """Factor blocks in which some columns depend on earlier ones, see `_factor_block`; D is
    overwritten.
    """
    xp = space.xp
    adds_rank = []
    for j in range(D.shape[1]):
        pivot = D[:, j, j]
        below = slice(j + 1, None)
        is_large = pivot > SMALLEST_PIVOT * diagonal[:, j]
        root = xp.sqrt(xp.where(is_large, pivot, xp.ones_like(pivot)))
        column = D[:, below, j] / root[:, None]
        column = xp.where(is_large[:, None], column, xp.zeros_like(column))
        D[:, below, below] -= column[:, :, None] * column[:, None, :]
        D[:, j, j] = root
        D[:, below, j] = column
        adds_rank.append(space.cast(is_large))
    return xp.tril(D), xp.stack(adds_rank, axis=1)
