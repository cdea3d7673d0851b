r"""Risk curves from moments alone: cross-validation and GCV that read every row once, on the host or on a device.

Rows are thrown into F folds in the pass that sums them. The training moments of fold f are the other folds merged, and
the error of coefficients b on its test rows needs their moments only:

.. math:: \sum_l w_l (y_l - \hat y_l)^2 = y'y - 2 b'c + b'Gb
          + w\,\bigl(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b\bigr)^2

with the moments of the test fold about its own means. It is a quadratic form in b, so pairs of members have their
products as in ``risk_curves``, and the curve of any ensemble size follows. Status: exact k-fold cross-validation.
Leave-one-out, which needs every leverage, would need the rows again.

**All sizes of a path at once.** With :math:`G = L L'` in the order of a path and :math:`z = L^{-1} c`, the coefficients
of its first m columns solve :math:`L' b = (z_1, \dots, z_m, 0, \dots)`: one triangular system whose right-hand sides
are z cut off at every size. Factors of many orders and folds are made together, block by block from products of stacked
matrices. Columns that add no rank to those before them get zero: they are met where a diagonal block has a small pivot,
and such blocks are factored column by column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space
from .._moments.moments import Moments, training_moments
from .._trust import SMALLEST_PIVOT
from .risk_curves import Paths, RowCurve, pair_means, require_rows_left

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 64  # columns that are factored together
BATCH_BYTES = 5e8  # permuted matrices at a time where a library does not say how much memory there is


@dataclass(frozen=True)
class LeftOut:
    """Moments of a fold about the means of the rows outside it: d = y less their mean target, x less their means."""

    test: Moments
    shift_x: Any  # (p,)
    shift_y: Any  # (q,)

    @classmethod
    def from_moments(cls, test: Moments, train: Moments) -> LeftOut:
        """A fold, seen from the rows outside."""
        return cls(test, test.mean_x - train.mean_x, test.mean_y - train.mean_y)

    @property
    def targets(self) -> Any:
        """Sum of d^2, (q,)."""
        return self.test.yy + self.test.weight * self.shift_y**2

    def with_targets(self, b: Any) -> Any:
        """Sums of d x'b, (sizes, q), of coefficients (p, sizes, q)."""
        inside = self.test.space.xp.sum(b * self.test.C[:, None, :], axis=0)
        return inside + self.test.weight * self.shift_y * self._offset(b)

    def squares(self, b: Any) -> Any:
        """Sums of (x'b)^2, (sizes, q)."""
        xp, flat = self.test.space.xp, self.test.space.xp.reshape(b, (b.shape[0], -1))
        quadratic = xp.reshape(xp.sum(flat * (self.test.G @ flat), axis=0), b.shape[1:])
        return quadratic + self.test.weight * self._offset(b) ** 2

    def errors(self, b: Any) -> Any:
        """Mean squared errors (sizes,), averaged over targets."""
        squares = self.targets - 2 * self.with_targets(b) + self.squares(b)
        return self.test.space.xp.mean(squares, axis=1) / self.test.weight

    def products(self, b: Array) -> Array:
        """Mean products (sizes, sizes) of the errors of one target, on the host."""
        offset, flat = self._offset(b)[:, 0], b[:, :, 0]
        both = flat.T @ self.test.G @ flat + self.test.weight * np.outer(offset, offset)
        cross = self.with_targets(b)[:, 0]
        return np.asarray((self.targets[0] - cross - cross[:, None] + both) / self.test.weight)

    def _offset(self, b: Any) -> Any:
        return self.test.space.xp.tensordot(self.shift_x, b, axes=1)


@dataclass(frozen=True)
class FoldCurve:
    """A risk curve of which the rows are folds, and the mean members that it is of."""

    curve: RowCurve
    coef: Any  # (folds, p, sizes, q), before any scale
    left_out: list[LeftOut]

    def slope(self, at: int) -> tuple[float, float]:
        """Least-squares slope of targets on out-of-fold predictions at one size, and its variance.

        The same as from rows, of which the errors are taken to have one variance; one and zero without predictions.
        """
        top = bottom = squares = 0.0
        for f, fold in enumerate(self.left_out):
            b = self.coef[f, :, at : at + 1, :]
            total = fold.test.space.xp.sum
            top += float(total(fold.with_targets(b)))
            bottom += float(total(fold.squares(b)))
            squares += float(total(fold.targets))
        count = sum(fold.test.n_rows for fold in self.left_out) * self.coef.shape[3]
        if not bottom > 1e-20 * squares or count < 3:
            return 1.0, 0.0
        slope = top / bottom
        return slope, max(0.0, squares - slope * top) / bottom / count

    def scaled(self, scale: float) -> RowCurve:
        """The curve of members times a scale: an error e becomes (1 - scale) d + scale e."""
        square, cross = [], []
        for f, fold in enumerate(self.left_out):
            get = fold.test.space.get
            square.append(np.full(self.coef.shape[2], get(fold.targets).mean() / fold.test.weight))
            cross.append(square[-1] - get(fold.with_targets(self.coef[f, :, :, :])).mean(axis=1) / fold.test.weight)
        rest = 1 - scale
        fixed = rest**2 * np.stack(square, axis=1) + 2 * scale * rest * np.stack(cross, axis=1)
        products = fixed + scale**2 * self.curve.products
        coefs = (scale * self.coef[f, :, :, :] for f in range(len(self.left_out)))
        errors = [fold.test.space.get(fold.errors(b)) for fold, b in zip(self.left_out, coefs, strict=True)]
        mean_square = np.stack(errors, axis=1) @ (self.curve.weight / self.curve.weight.sum())
        return self.curve.with_products(products, self.curve.residual).raised(mean_square)


def moment_kfold_curve(folds: list[Moments], sizes: Indices, paths: Paths, scale: float = 1.0) -> FoldCurve:
    """Risk curve of uniform members from moments of folds, times a scale; the rows of the curve are the folds."""
    training = training_moments(folds)
    left_out = [LeftOut.from_moments(test, train) for test, train in zip(folds, training, strict=True)]
    products, coef = _pair_means(left_out, training, sizes, paths)
    found = FoldCurve(_curve(folds, sizes, paths, products), coef, left_out)
    return found if scale == 1.0 else replace(found, curve=found.scaled(scale))


def moment_gcv_curve(moments: Moments, sizes: Indices, paths: Paths, scale: float = 1.0) -> RowCurve:
    """GCV from the moments of all rows: no row is touched again, so n does not matter.

    Residual sums of squares of a coefficient vector b are y'y - 2 b'c + b'Gb. For n far above p, leverages are small
    and GCV and leave-one-out agree.
    """
    whole = LeftOut(moments, 0.0 * moments.mean_x, 0.0 * moments.mean_y)
    require_rows_left(moments.n_rows, sizes, int(moments.centred))
    rest = (1 - scale * (sizes + moments.centred) / moments.n_rows)[:, None] ** 2
    return _curve([moments], sizes, paths, _pair_means([whole], [moments], sizes, paths, scale)[0] / rest)


def _curve(folds: list[Moments], sizes: Indices, paths: Paths, products: Array) -> RowCurve:
    (p, q), weight = folds[0].C.shape, np.array([fold.weight for fold in folds])
    no_rows = np.zeros((len(sizes), 0, q))
    count = 2 * paths.batch * paths.min_batches  # members, whose mean residual has these squares
    mean_square = (products[0] + products[1] + (count - 2) * products[2]) / count @ (weight / weight.sum())
    return RowCurve.from_products(sizes, p, paths.design, weight, products, no_rows).raised(mean_square)


def _pair_means(
    left_out: list[LeftOut], training: list[Moments], sizes: Indices, paths: Paths, scale: float = 1.0
) -> tuple[Array, Any]:
    """A, S and C of antithetic pairs of members, (3, sizes, folds), and mean coefficients (folds, p, sizes, q)."""
    space, p = training[0].space, training[0].C.shape[0]
    xp, orders = space.xp, np.stack(paths.orders(p, 0, paths.min_batches))

    def errors(coefs: Any) -> Array:
        """Sums over members of their errors, (sizes, folds), of coefficients (folds, p, members, sizes, q)."""
        _, _, K, S, q = coefs.shape
        found = [fold.errors(xp.reshape(coefs[f, ...], (p, K * S, q))) for f, fold in enumerate(left_out)]
        return np.stack([space.get(e).reshape(K, S).sum(axis=0) for e in found], axis=1)

    def follow(start: int, stop: int) -> tuple[Array, Array, Any]:
        coefs = scale * _prefix_coefficients(training, orders[2 * start : 2 * stop], sizes)
        pairs = (coefs[:, :, ::2, :, :] + coefs[:, :, 1::2, :, :]) / 2
        return errors(coefs), errors(pairs), xp.sum(coefs, axis=2)

    count = len(orders) // 2
    done = paths.mapper(follow, count) if space.on_host else [follow(0, count)]
    own, pair, coef = (sum(terms) for terms in zip(*done, strict=True))
    mean = coef / len(orders)
    return pair_means(own / len(orders), pair / count, errors(mean[:, :, None, :, :]), count), mean


def _prefix_coefficients(training: list[Moments], orders: Indices, sizes: Indices) -> Any:
    """Coefficients (F, p, K, S, q) of the first columns of K orders, for F sets of training moments."""
    space, (p, q), largest = training[0].space, training[0].C.shape, int(sizes[-1])
    xp, F, S = space.xp, len(training), len(sizes)
    G = xp.reshape(xp.stack([m.G for m in training]), (F, p * p))
    C = xp.stack([m.C for m in training])
    cut = space.cast(space.put(np.arange(largest)[:, None] < sizes))[:, :, None]  # (largest, S, 1)
    step = max(1, int(space.batch_bytes(BATCH_BYTES) // (40 * F * largest**2)))
    found = []
    for start in range(0, len(orders), step):
        own = orders[start : start + step]
        K, here = len(own), space.put(np.ascontiguousarray(own[:, :largest]))
        pairs = xp.reshape(here[:, :, None] * p + here[:, None, :], (-1,))
        G_here = xp.reshape(xp.take(G, pairs, axis=1), (F * K, largest, largest))
        C_here = xp.reshape(xp.take(C, xp.reshape(here, (-1,)), axis=1), (F * K, largest, q))
        A, blocks = _factored(G_here, C_here, space)
        z = xp.reshape(xp.matrix_transpose(A[:, largest:, :]), (F, K, largest, 1, q))
        B = _backward(A, blocks, xp.reshape(z * cut, (F * K, largest, S * q)), space)
        found.append(_by_column(xp.reshape(B, (F, K, largest, S * q)), own, p, space))
    whole = xp.concat(found, axis=2) if len(found) > 1 else found[0]
    return xp.reshape(whole, (F, p, len(orders), S, q))


def _by_column(B: Any, orders: Indices, p: int, space: Space) -> Any:
    """Coefficients (F, K, largest, c) in the order of the columns, (F, p, K, c); zero for columns left out."""
    xp, (F, K, largest, c) = space.xp, B.shape
    if largest < p:
        B = xp.concat([B, space.zeros((F, K, 1, c))], axis=2)
    rows = B.shape[2]
    places = np.full((K, p), rows - 1)
    np.put_along_axis(places, orders[:, :largest], np.arange(largest)[None, :], axis=1)
    flat = (np.arange(K) * rows + places.T).reshape(-1)
    return xp.reshape(xp.take(xp.reshape(B, (F, K * rows, c)), space.put(flat), axis=1), (F, p, K, c))


def _factored(A: Any, C: Any, space: Space) -> tuple[Any, list[tuple[slice, Any, Any]]]:
    """Stacked lower factors, under them (L^-1 C)', and blocks: columns, inverse of the diagonal block, which add rank.

    Columns that add no rank are unit vectors. What is above the diagonal is not to be read.
    """
    xp, diagonal, size = space.xp, space.xp.linalg.diagonal(A), A.shape[1]
    A, blocks = xp.concat([A, xp.matrix_transpose(C)], axis=1), []
    for start in range(0, size, BLOCK):
        here = slice(start, min(start + BLOCK, size))
        panel = A[:, start:, here]
        if start:
            panel = panel - A[:, start:, :start] @ xp.matrix_transpose(A[:, here, :start])
        lower, good = _factor_block(panel[:, : here.stop - start, :], diagonal[:, here], space)
        inverse = space.inverse_of_lower(lower)
        A[:, here, here] = lower
        A[:, here.stop :, here] = (panel[:, here.stop - start :, :] @ xp.matrix_transpose(inverse)) * good[:, None, :]
        blocks.append((here, inverse, good))
    return A, blocks


def _backward(A: Any, blocks: list[tuple[slice, Any, Any]], Z: Any, space: Space) -> Any:
    """B of L' B = Z, (b, m, c)."""
    xp, size = space.xp, Z.shape[1]
    out = xp.zeros_like(Z)
    for here, inverse, good in reversed(blocks):
        rest = Z[:, here, :]
        if here.stop < size:
            rest = rest - xp.matrix_transpose(A[:, here.stop : size, here]) @ out[:, here.stop :, :]
        out[:, here, :] = (xp.matrix_transpose(inverse) @ rest) * good[:, :, None]
    return out


def _factor_block(D: Any, diagonal: Any, space: Space) -> tuple[Any, Any]:
    """Lower factors of stacked blocks and which columns add rank; `diagonal` is that of the matrices before.

    The blocks may be overwritten.
    """
    xp, lower = space.xp, space.cholesky(D)
    if lower is not None:
        pivots = xp.linalg.diagonal(lower)
        if bool(xp.all(pivots * pivots > SMALLEST_PIVOT * diagonal)):
            return lower, xp.ones_like(diagonal)
    return _column_by_column(D, diagonal, space)


def _column_by_column(D: Any, diagonal: Any, space: Space) -> tuple[Any, Any]:
    """The same where some columns depend on those before them; D is overwritten."""
    xp, good = space.xp, []
    for j in range(D.shape[1]):
        pivot, rest = D[:, j, j], slice(j + 1, None)
        adds = pivot > SMALLEST_PIVOT * diagonal[:, j]
        root = xp.sqrt(xp.where(adds, pivot, xp.ones_like(pivot)))
        column = D[:, rest, j] / root[:, None]
        column = xp.where(adds[:, None], column, xp.zeros_like(column))
        D[:, rest, rest] -= column[:, :, None] * column[:, None, :]
        D[:, j, j], D[:, rest, j] = root, column
        good.append(space.cast(adds))
    return xp.tril(D), xp.stack(good, axis=1)
