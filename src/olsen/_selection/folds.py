r"""Risk curves from moments alone: cross-validation and GCV that read every row once.

Rows are thrown into F folds in the pass that sums them. The training moments of fold f are the other folds merged, and
the error of coefficients b on its test rows needs their moments only:

.. math:: \sum_l w_l (y_l - \hat y_l)^2 = y'y - 2 b'c + b'Gb
          + w\,\bigl(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b\bigr)^2

with the moments of the test fold about its own means. It is a quadratic form in b, so pairs of members have their
products as in ``curve``, and the curve of any ensemble size follows. Status: exact k-fold cross-validation.
Leave-one-out, which needs every leverage, would need the rows again.

**All sizes of a path at once.** With :math:`G = L L'` in the order of a path and :math:`z = L^{-1} c`, the coefficients
of its first m columns solve :math:`L' b = (z_1, \dots, z_m, 0, \dots)`: one triangular system whose right-hand sides
are z cut off at every size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from .._moments import Moments
from .._trust import SMALLEST_PIVOT
from . import on_device
from .curve import RiskCurve
from .paths import Paths

__all__ = [
    "FoldCurve",
    "LeftOut",
    "moment_gcv_curve",
    "moment_kfold_curve",
    "prefix_coefficients",
    "training_moments",
]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 64  # of a triangular solve
ON_TOP = 1e-10  # of its diagonal makes a Gram matrix of dependent columns definite, and leaves their pivots small


@dataclass(frozen=True)
class LeftOut:
    """Moments of a fold about the means of the rows outside it: d = y less their mean target, x less their means."""

    test: Moments
    shift_x: Array  # (p,)
    shift_y: Array  # (q,)

    @classmethod
    def of(cls, test: Moments, train: Moments) -> LeftOut:
        """A fold, seen from the rows outside."""
        test, get = test.on_host(), train.space.get
        return cls(test, test.mean_x - get(train.mean_x), test.mean_y - get(train.mean_y))

    @property
    def targets(self) -> Array:
        """Sum of d^2, (q,)."""
        return np.asarray(self.test.yy + self.test.weight * self.shift_y**2)

    def with_targets(self, b: Array) -> Array:
        """Sums of d x'b, (sizes, q), of coefficients (sizes, p, q)."""
        inside = np.einsum("spq,pq->sq", b, self.test.C)
        return np.asarray(inside + self.test.weight * self.shift_y * np.einsum("p,spq->sq", self.shift_x, b))

    def squares(self, b: Array) -> Array:
        """Sums of (x'b)^2, (sizes, q)."""
        offset = np.einsum("p,spq->sq", self.shift_x, b)
        return np.asarray(_quadratic(self.test.G, b) + self.test.weight * offset**2)

    def errors(self, b: Array) -> Array:
        """Mean squared errors (sizes,), averaged over targets."""
        squares = self.targets - 2 * self.with_targets(b) + self.squares(b)
        return np.asarray(squares.mean(axis=1) / self.test.weight)

    def products(self, b: Array) -> Array:
        """Mean products (sizes, sizes) of the errors, averaged over targets."""
        offset = np.einsum("p,spq->sq", self.shift_x, b)
        both = np.einsum("spq,pr,trq->st", b, self.test.G, b, optimize=True) + self.test.weight * offset @ offset.T
        cross = self.with_targets(b).sum(axis=1)
        return np.asarray((self.targets.sum() - cross - cross[:, None] + both) / (self.test.weight * b.shape[2]))


@dataclass(frozen=True)
class FoldCurve:
    """A risk curve of which the rows are folds, and the mean members that it is of."""

    curve: RiskCurve
    coef: Array  # (folds, sizes, p, q), before any scale
    left_out: list[LeftOut]

    def slope(self, at: int) -> tuple[float, float]:
        """Least-squares slope of targets on out-of-fold predictions at one size, and its variance.

        The same as from rows, of which the errors are taken to have one variance; one and zero without predictions.
        """
        top = bottom = squares = 0.0
        for fold, b in zip(self.left_out, self.coef[:, at], strict=True):
            top += float(fold.with_targets(b[None]).sum())
            bottom += float(fold.squares(b[None]).sum())
            squares += float(fold.targets.sum())
        count = sum(fold.test.n_rows for fold in self.left_out) * self.coef.shape[3]
        if not bottom > 1e-20 * squares or count < 3:
            return 1.0, 0.0
        slope = top / bottom
        return slope, max(0.0, squares - slope * top) / bottom / count

    def scaled(self, scale: float) -> RiskCurve:
        """The curve of members times a scale: an error e becomes (1 - scale) d + scale e."""
        square, cross = [], []
        for fold, b in zip(self.left_out, self.coef, strict=True):
            square.append(np.full(len(b), fold.targets.mean() / fold.test.weight))
            cross.append(square[-1] - fold.with_targets(b).mean(axis=1) / fold.test.weight)
        rest = 1 - scale
        fixed = rest**2 * np.stack(square, axis=1) + 2 * scale * rest * np.stack(cross, axis=1)
        own, same, other = (fixed + scale**2 * a for a in (self.curve.own, self.curve.same, self.curve.other))
        return replace(self.curve, own=own, same=same, other=other)


def training_moments(folds: list[Moments]) -> list[Moments]:
    """Moments of all folds but one, for each of them, by merging: subtracting from the total would cancel."""
    before = list(accumulate(folds[:-1], Moments.merge))
    after = list(accumulate(folds[:0:-1], Moments.merge))[::-1]
    inner = [a.merge(b) for a, b in zip(before[:-1], after[1:], strict=True)]
    return [after[0], *inner, before[-1]]


def moment_kfold_curve(folds: list[Moments], sizes: Indices, paths: Paths, scale: float = 1.0) -> FoldCurve:
    """Risk curve of uniform members from moments of folds, times a scale; the rows of the curve are the folds."""
    training = training_moments(folds)
    left_out = [LeftOut.of(test, train) for test, train in zip(folds, training, strict=True)]
    weight = np.array([fold.weight for fold in folds])

    def error(coefs: Array) -> Array:
        return np.stack([fold.errors(b) for fold, b in zip(left_out, coefs, strict=True)], axis=1)

    if folds[0].space.on_host:
        curve, coef = _curve_of_pairs(training, sizes, paths, weight, error)
    else:
        curve, coef = on_device.curve_of_pairs(folds, training, sizes, paths)
    found = FoldCurve(curve, coef, left_out)
    return found if scale == 1.0 else replace(found, curve=found.scaled(scale))


def moment_gcv_curve(moments: Moments, sizes: Indices, paths: Paths, scale: float = 1.0) -> RiskCurve:
    """GCV from the moments of all rows: no row is touched again, so n does not matter.

    Residual sums of squares of a coefficient vector b are y'y - 2 b'c + b'Gb. For n far above p, leverages are small
    and GCV and leave-one-out agree.
    """
    if not moments.space.on_host:
        return on_device.gcv_curve(moments, sizes, paths, scale)
    whole = LeftOut(moments, np.zeros(len(moments.G)), np.zeros(len(moments.yy)))
    rest = (1 - scale * (sizes + moments.centred) / moments.n_rows) ** 2

    def error(coefs: Array) -> Array:
        return (whole.errors(scale * coefs[0]) / rest)[:, None]

    return _curve_of_pairs([moments], sizes, paths, np.ones(1), error)[0]


def _curve_of_pairs(
    training: list[Moments],
    sizes: Indices,
    paths: Paths,
    weight: Array,
    error: Callable[[Array], Array],
) -> tuple[RiskCurve, Array]:
    """The curve from antithetic pairs of members, and their mean coefficients (training sets, sizes, p, q)."""
    own, same, other, mean = _products_of_pairs(training, sizes, paths, error)
    empty = np.zeros((len(sizes), 0, mean.shape[3]))
    p = len(training[0].G)
    return RiskCurve.from_pairs(sizes, p, paths.design, weight, own, same, other, empty), mean


def _products_of_pairs(
    training: list[Moments],
    sizes: Indices,
    paths: Paths,
    error: Callable[[Array], Array],
) -> tuple[Array, Array, Array, Array]:
    """A, S and C of antithetic pairs of members, (sizes, rows), and their mean coefficients.

    ``error(coefs) -> (sizes, rows)`` is a quadratic form, so that of a mean of members gives their pair products.
    """
    orders = paths.orders(len(training[0].G), 0, paths.min_batches)

    def solve(i: int) -> Array:
        return np.stack([prefix_coefficients(m, orders[i], sizes) for m in training])

    def follow(start: int, stop: int) -> list[tuple[Array, Array, Array]]:
        found = []
        for i in range(start, stop):
            first, second = solve(2 * i), solve(2 * i + 1)
            both = first + second
            found.append((error(first) + error(second), error(both / 2), both))
        return found

    pairs = paths.min_batches * paths.batch
    done = [pair for chunk in paths.mapper(follow, pairs) for pair in chunk]
    k = 2 * pairs
    total, together, coef = (np.asarray(sum(terms)) for terms in zip(*done, strict=True))
    own, same, mean = total / k, 2 * together / pairs - total / k, coef / k
    other = (k * k * error(mean) - k * own - k * same) / (k * k - 2 * k)
    return own, same, other, mean


def _quadratic(G: Array, b: Array) -> Array:
    """b'Gb for every size and target, (sizes, q), of coefficients (sizes, p, q)."""
    flat = np.moveaxis(b, 1, 2).reshape(-1, len(G))
    return np.asarray(np.einsum("ij,ij->i", flat @ G, flat).reshape(len(b), -1))


def prefix_coefficients(moments: Moments, order: Indices, sizes: Indices) -> Array:
    """Coefficients (sizes, p, q) of the first columns of an order; columns that add no rank get zero."""
    columns = order[: sizes[-1]]
    L, kept = _independent_cholesky(moments.G[np.ix_(columns, columns)])
    own = columns[kept]
    z = _forward(L, moments.C[own])
    inside = kept[:, None] < sizes  # (kept columns, sizes)
    q = z.shape[1]
    b = _backward(L, (inside[:, :, None] * z[:, None, :]).reshape(len(kept), -1))
    out = np.zeros((len(sizes), len(moments.G), q))
    out[:, own] = b.reshape(len(kept), len(sizes), q).transpose(1, 0, 2)
    return out


def _independent_cholesky(G: Array) -> tuple[Array, Indices]:
    """Lower factor of the columns that add rank to those before them, and their positions.

    A little on top of the diagonal, and dependent columns show by their pivots, all of them in one factorisation.
    """
    kept: Indices = np.flatnonzero(np.diagonal(G) > 0).astype(np.int64)
    on_top = 0.0
    while True:
        part = G[np.ix_(kept, kept)]
        square = np.diagonal(part).copy()
        np.einsum("ii->i", part)[:] += on_top * square
        try:
            L: Array = np.asarray(np.linalg.cholesky(part), dtype=np.float64)
        except np.linalg.LinAlgError:
            on_top = max(ON_TOP, 10 * on_top)
            continue
        good = np.diagonal(L) ** 2 > SMALLEST_PIVOT * square
        if good.all():
            return L, kept
        kept, on_top = kept[good], 0.0


def _forward(L: Array, c: Array) -> Array:
    """L z = c, in blocks: NumPy's products and small solves leave the interpreter to other threads, SciPy's do not."""
    z = np.array(c)
    for start in range(0, len(L), BLOCK):
        here = slice(start, start + BLOCK)
        z[here] = np.linalg.solve(L[here, here], z[here] - L[here, :start] @ z[:start])
    return z


def _backward(L: Array, z: Array) -> Array:
    """L' b = z, in blocks."""
    b = np.array(z)
    for start in range((len(L) - 1) // BLOCK * BLOCK, -1, -BLOCK):
        here, after = slice(start, start + BLOCK), slice(start + BLOCK, None)
        b[here] = np.linalg.solve(L[here, here].T, b[here] - L[after, here].T @ b[after])
    return b
