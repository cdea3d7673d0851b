r"""Risk curves from moments alone: cross-validation and GCV that read every row once.

Rows are thrown into F folds in the pass that sums them. The training moments of fold f are the other folds merged, and
the error of coefficients b on its test rows needs their moments only:

.. math:: \sum_l w_l (y_l - \hat y_l)^2 = y'y - 2 b'c + b'Gb
          + w\,\bigl(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b\bigr)^2

with the moments of the test fold about its own means. It is a quadratic form in b, so pairs of members have their
products as in ``curve``, and the curve of any ensemble size follows. Status: exact k-fold cross-validation.
Leave-one-out, which needs every leverage, would need the rows again.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from .._moments import Moments
from .._trust import SMALLEST_PIVOT
from .curve import RiskCurve, curve_of_coefficients
from .paths import Paths

__all__ = ["moment_gcv_curve", "moment_kfold_curve"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


def moment_kfold_curve(folds: list[Moments], sizes: Indices, paths: Paths, scale: float = 1.0) -> RiskCurve:
    """Risk curve from moments of folds, of members times a scale; the rows of the curve are the folds."""
    p = len(folds[0].G)
    training = [Moments.merge_others(folds, f) for f in range(len(folds))]
    orders = paths.orders(p, 0, paths.min_batches)

    def solve(start: int, stop: int) -> list[Array]:
        return [scale * np.stack([_prefixes(m, order, sizes) for m in training]) for order in orders[start:stop]]

    coefs = paths.run(solve, len(orders))
    weight = np.array([fold.weight for fold in folds])
    return curve_of_coefficients(sizes, p, paths.design, weight, coefs, partial(_fold_errors, folds, training))


def moment_gcv_curve(moments: Moments, sizes: Indices, paths: Paths, scale: float = 1.0) -> RiskCurve:
    """GCV from the moments of all rows: no row is touched again, so n does not matter.

    Residual sums of squares of a coefficient vector b are y'y - 2 b'c + b'Gb. For n far above p, leverages are small
    and GCV and leave-one-out agree.
    """
    n, p = moments.n_rows, len(moments.G)

    def error(coef: Array) -> Array:
        """(sizes, 1): GCV of coefficients (sizes, p, q), averaged over targets."""
        mean_square = _residual_squares(moments, coef).mean(axis=1) / moments.weight
        found: Array = (mean_square / (1 - scale * (sizes + moments.centred) / n) ** 2)[:, None]
        return found

    orders = paths.orders(p, 0, paths.min_batches)
    coefs = paths.run(lambda a, b: [scale * _prefixes(moments, order, sizes) for order in orders[a:b]], len(orders))
    return curve_of_coefficients(sizes, p, paths.design, np.ones(1), coefs, error)


def _residual_squares(moments: Moments, b: Array) -> Array:
    """Sums of squared residuals (sizes, q) about the means, of coefficients (sizes, p, q): y'y - 2 b'c + b'Gb."""
    fit = np.einsum("spq,spq->sq", b, np.einsum("pr,srq->spq", moments.G, b, optimize=True))
    return np.asarray(moments.yy - 2 * np.einsum("spq,pq->sq", b, moments.C) + fit)


def _fold_errors(folds: list[Moments], training: list[Moments], coefs: Array) -> Array:
    """Mean squared errors (sizes, F) on the test folds of coefficients (F, sizes, p, q), averaged over targets."""
    found = []
    for test, train, b in zip(folds, training, coefs, strict=True):
        offset = test.mean_y - train.mean_y - np.einsum("p,spq->sq", test.mean_x - train.mean_x, b)
        found.append((_residual_squares(test, b) / test.weight + offset**2).mean(axis=1))
    return np.stack(found, axis=1)


def _prefixes(moments: Moments, order: Indices, sizes: Indices) -> Array:
    """Coefficients (sizes, p, q) of the first columns of an order; columns that add no rank get zero."""
    columns = order[: sizes[-1]]
    L, kept = _independent_cholesky(moments.G[np.ix_(columns, columns)])
    z = la.solve_triangular(L, moments.C[columns[kept]], lower=True)
    out = np.zeros((len(sizes), len(moments.G), moments.C.shape[1]))
    for s, size in enumerate(sizes):
        m = int(np.searchsorted(kept, size))
        out[s, columns[kept[:m]]] = la.solve_triangular(L[:m, :m], z[:m], lower=True, trans="T")
    return out


def _independent_cholesky(G: Array) -> tuple[Array, Indices]:
    """Lower factor of the columns that add rank to those before them, and their positions."""
    kept = np.flatnonzero(np.diagonal(G) > 0)
    while True:
        part = G[np.ix_(kept, kept)]
        L, info = la.lapack.dpotrf(part, lower=1, clean=1)
        good = np.ones(len(kept), dtype=bool)
        if info:
            good[info - 1] = False  # the leading columns before this one are independent
        else:
            good = np.diagonal(L) ** 2 > SMALLEST_PIVOT * np.diagonal(part)
        if good.all():
            return L, kept
        kept = kept[good]
