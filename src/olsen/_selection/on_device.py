r"""Risk curves from moments of folds that stay on a device: all orders, folds and sizes at once.

A permuted Gram matrix has one Cholesky factor, :math:`G = L L'`, and the members on the first m columns of the order
have the leading blocks of it: :math:`L_m' b_m = z_m` with :math:`L z = c`. Back substitution keeps zeros at the end of
a right-hand side, so all sizes are one triangular system with z, cut off after every size, on its right:

.. math:: L' (b_{m_1}, b_{m_2}, \dots) = (z\,1_{j \le m_1}, z\,1_{j \le m_2}, \dots)

Factors are made block by block from products of stacked matrices, which devices are fast at. Columns that add no rank
to those before them get zero, as on the host: they are met where a diagonal block has a small pivot, and such blocks
are factored column by column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._execution.arrays import Space
from .._moments import Moments
from .._trust import SMALLEST_PIVOT
from .curve import RiskCurve
from .paths import Paths

__all__ = ["curve_of_pairs", "fold_errors", "folded_ridge", "gcv_curve", "prefix_coefficients"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

BLOCK = 128  # columns that are factored together
BATCH_BYTES = 5e8  # permuted matrices at a time where a library does not say how much memory there is


def curve_of_pairs(
    folds: list[Moments], training: list[Moments], sizes: Indices, paths: Paths
) -> tuple[RiskCurve, Array]:
    """Risk curve of which the rows are folds, and mean coefficients (F, sizes, p, q) of the members it is of.

    Members are those that the host follows, all sizes of each along one path.
    """
    errors, mean = _errors_of_pairs(folds, training, sizes, paths)
    return _curve(folds, sizes, paths, errors, np.array([fold.weight for fold in folds])), mean


def gcv_curve(moments: Moments, sizes: Indices, paths: Paths, scale: float = 1.0) -> RiskCurve:
    """Generalised cross-validation from the moments of all rows, of members times a scale."""
    errors, _ = _errors_of_pairs([moments], [moments], sizes, paths, scale)
    left = 1 - scale * (sizes + moments.centred) / moments.n_rows
    return _curve([moments], sizes, paths, errors / left[:, None] ** 2, np.ones(1))


def _curve(folds: list[Moments], sizes: Indices, paths: Paths, errors: Array, weight: Array) -> RiskCurve:
    """From errors (., sizes, F) of k members, then of the means of k / 2 pairs, then of the mean of all."""
    k, (p, q) = 2 * (len(errors) - 1) // 3, folds[0].C.shape
    own = np.mean(errors[:k], axis=0)
    same = 2 * np.mean(errors[k:-1], axis=0) - own
    other = (k * k * errors[-1] - k * own - k * same) / (k * k - 2 * k)
    return RiskCurve.from_pairs(sizes, p, paths.design, weight, own, same, other, np.zeros((len(sizes), 0, q)))


def _errors_of_pairs(
    folds: list[Moments],
    training: list[Moments],
    sizes: Indices,
    paths: Paths,
    scale: float = 1.0,
) -> tuple[Array, Array]:
    """Errors (., sizes, F) of members, of the means of antithetic pairs and of the mean of all; and that mean."""
    space, p = folds[0].space, folds[0].C.shape[0]
    coefs = prefix_coefficients(training, np.stack(paths.orders(p, 0, paths.min_batches)), sizes)
    xp, coefs = space.xp, scale * coefs
    pairs = (coefs[:, :, ::2, :, :] + coefs[:, :, 1::2, :, :]) / 2
    everyone = xp.mean(coefs, axis=2, keepdims=True)
    errors = space.get(fold_errors(folds, training, xp.concat([coefs, pairs, everyone], axis=2)))
    return errors, space.get(xp.permute_dims(everyone[:, :, 0, :, :], (0, 2, 1, 3)))


def folded_ridge(folds: list[Moments], whole: Moments) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Ridge regression on standardised columns, tuned over folds: see ``ridge_penalty``.

    Eigenvalues (p,), rising, and squared eigenvectors (p, p) of all rows; and ``error(penalties)``, the mean squared
    error over the left-out folds.
    """
    space, xp, (p, q) = whole.space, whole.space.xp, whole.C.shape
    training, F = [Moments.merge_others(folds, f) for f in range(len(folds))], len(folds)
    length = xp.sqrt(xp.linalg.diagonal(whole.G))
    length = xp.where(length > 0, length, xp.ones_like(length))
    s2, E = xp.linalg.eigh(xp.stack([m.G for m in (whole, *training)]) / (length[:, None] * length[None, :]))
    own, back = s2[1:, :], E[1:, :, :] / length[None, :, None]
    real = space.cast(own > 1e-13 * own[:, -1:])  # directions that are rounding have no coefficient
    c = (xp.matrix_transpose(back) @ xp.stack([m.C for m in training])) * real[:, :, None]
    share = np.array([fold.weight for fold in folds]) / whole.weight

    def error(penalties: Array) -> Array:
        b = c[:, :, None, :] / (own[:, :, None, None] + space.put(penalties)[:, None])  # (F, p, penalties, q)
        coefs = back @ xp.reshape(b, (F, p, len(penalties) * q))
        found = fold_errors(folds, training, xp.reshape(coefs, (F, p, 1, len(penalties), q)))
        return np.asarray(space.get(found[0, :, :]) @ share)

    return space.get(s2[0, :]), space.get(E[0, :, :] ** 2), error


def fold_errors(folds: list[Moments], training: list[Moments], coefs: Any) -> Any:
    """Mean squared errors (K, sizes, F) on test folds of coefficients (F, p, K, sizes, q), averaged over targets."""
    space = folds[0].space
    xp, (F, p, K, S, q) = space.xp, coefs.shape
    weight = space.put(np.array([fold.weight for fold in folds]))[:, None, None, None]
    G, C, yy = (xp.stack([getattr(fold, name) for fold in folds]) for name in ("G", "C", "yy"))
    moved_x = xp.stack([a.mean_x - b.mean_x for a, b in zip(folds, training, strict=True)])
    moved_y = xp.stack([a.mean_y - b.mean_y for a, b in zip(folds, training, strict=True)])
    flat = xp.reshape(coefs, (F, p, K * S * q))
    fit = xp.reshape(xp.sum(flat * (G @ flat), axis=1), (F, K, S, q))
    cross = xp.sum(coefs * C[:, :, None, None, :], axis=1)
    offset = moved_y[:, None, None, :] - xp.sum(coefs * moved_x[:, :, None, None, None], axis=1)
    square = (yy[:, None, None, :] - 2 * cross + fit) / weight + offset**2
    return xp.permute_dims(xp.mean(square, axis=3), (1, 2, 0))


def prefix_coefficients(training: list[Moments], orders: Indices, sizes: Indices) -> Any:
    """Coefficients (F, p, K, S, q) of the first columns of K orders, for F sets of training moments.

    Sizes are (S,), or (K, S) where every order has its own.
    """
    space, (p, q), largest = training[0].space, training[0].C.shape, int(np.max(sizes))
    xp, F, S = space.xp, len(training), np.shape(sizes)[-1]
    G = xp.reshape(xp.stack([m.G for m in training]), (F, p * p))
    C = xp.stack([m.C for m in training])
    within = np.arange(largest)[:, None] < np.broadcast_to(sizes, (len(orders), S))[:, None, :]  # (K, largest, S)
    step = max(1, int(space.batch_bytes(BATCH_BYTES) // (40 * F * largest**2)))
    found = []
    for start in range(0, len(orders), step):
        own = orders[start : start + step]
        K, here = len(own), space.put(np.ascontiguousarray(own[:, :largest]))
        pairs = xp.reshape(here[:, :, None] * p + here[:, None, :], (-1,))
        factor = _Factor.of(xp.reshape(xp.take(G, pairs, axis=1), (F * K, largest, largest)), space)
        z = factor.forward(xp.reshape(xp.take(C, xp.reshape(here, (-1,)), axis=1), (F * K, largest, q)))
        cut = space.cast(space.put(within[start : start + step]))[None, :, :, :, None]
        Z = xp.reshape(z, (F, K, largest, 1, q)) * cut
        B = factor.backward(xp.reshape(Z, (F * K, largest, S * q)))
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


@dataclass(frozen=True)
class _Factor:
    """Stacked lower factors in blocks of columns; columns that add no rank are unit vectors, and marked."""

    L: Any  # (b, m, m), its upper triangle is not read
    inverses: list[Any]  # of the diagonal blocks
    alive: list[Any]  # (b, block), 0 or 1
    space: Space

    @classmethod
    def of(cls, A: Any, space: Space) -> _Factor:
        """The factor of stacked matrices, which are overwritten."""
        xp, diagonal = space.xp, space.xp.linalg.diagonal(A) + 0.0
        inverses, alive = [], []
        for here in _blocks(A.shape[1]):
            panel = A[:, here.start :, here]
            if here.start:
                panel = panel - A[:, here.start :, : here.start] @ xp.matrix_transpose(A[:, here, : here.start])
            width = here.stop - here.start
            lower, good = _factor_block(panel[:, :width, :], diagonal[:, here], space)
            inverse = space.inverse_of_lower(lower)
            A[:, here, here] = lower
            if here.stop < A.shape[1]:
                A[:, here.stop :, here] = (panel[:, width:, :] @ xp.matrix_transpose(inverse)) * good[:, None, :]
            inverses.append(inverse)
            alive.append(good)
        return cls(A, inverses, alive, space)

    def forward(self, C: Any) -> Any:
        """z of L z = C, (b, m, q)."""
        found: list[Any] = []
        for here, inverse, good in zip(_blocks(C.shape[1]), self.inverses, self.alive, strict=True):
            rest = C[:, here, :]
            if found:
                rest = rest - self.L[:, here, : here.start] @ self.space.xp.concat(found, axis=1)
            found.append((inverse @ rest) * good[:, :, None])
        return self.space.xp.concat(found, axis=1)

    def backward(self, Z: Any) -> Any:
        """B of L' B = Z, (b, m, c)."""
        xp, out, size = self.space.xp, self.space.xp.zeros_like(Z), Z.shape[1]
        parts = zip(_blocks(size), self.inverses, self.alive, strict=True)
        for here, inverse, good in reversed(list(parts)):
            rest = Z[:, here, :]
            if here.stop < size:
                rest = rest - xp.matrix_transpose(self.L[:, here.stop :, here]) @ out[:, here.stop :, :]
            out[:, here, :] = (xp.matrix_transpose(inverse) @ rest) * good[:, :, None]
        return out


def _blocks(size: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]


def _factor_block(D: Any, diagonal: Any, space: Space) -> tuple[Any, Any]:
    """Lower factors of stacked blocks and which columns add rank; `diagonal` is that of the matrices before."""
    xp, lower = space.xp, space.cholesky(D)
    if lower is not None:
        pivots = xp.linalg.diagonal(lower)
        if bool(xp.all(pivots * pivots > SMALLEST_PIVOT * diagonal)):
            return lower, xp.ones_like(diagonal)
    return _column_by_column(D + 0.0, diagonal, space)


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
