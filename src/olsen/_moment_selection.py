r"""Choosing the member size from moments of folds: cross-validation that reads every row once.

Rows are thrown into F folds in the pass that sums them. The training moments of fold f are the other folds merged, and
the error of coefficients b on its test rows needs their moments only:

.. math:: \sum_l w_l (y_l - \hat y_l)^2 = y'y - 2 b'c + b'Gb
          + w\,\bigl(\bar y - \bar y_{-f} - (\bar x - \bar x_{-f})'b\bigr)^2

with the moments of the test fold about its own means. It is a quadratic form in b, so pairs of members have their
products as in ``_risk_curve``, and the curve of any ensemble size follows. Status: exact k-fold cross-validation.
Leave-one-out, which needs every leverage, would need the rows again.
"""

from __future__ import annotations

from functools import partial, reduce

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from . import _selection
from ._execution import pools
from ._moments import Moments
from ._risk_curve import RiskCurve
from ._selection import Paths

__all__ = ["kfold_curve", "tune"]

FOLDS = 5
TRUST = 1e-5  # smallest squared pivot, relative to its diagonal entry, at which a column counts


def tune(estimator, folds: list[Moments], seed: int) -> tuple[int, int]:
    """Set what cross-validation found on an OLSEnsembleRegressorCV; the size and the number of members."""
    mapper = partial(pools.map_chunks, n_threads=pools.count_threads(estimator.n_jobs))
    paths = Paths(seed, estimator.design, mapper)
    n, p = sum(fold.n_rows for fold in folds), len(folds[0].G)
    if estimator.cv == "gcv":
        estimator.criterion_ = "gcv"
        curve = _selection.moment_gcv_curve(reduce(Moments.merge, folds), estimator._sizes(p, n), paths)
    else:
        estimator.criterion_ = "kfold"
        smallest = n - max(fold.n_rows for fold in folds)
        curve = kfold_curve(folds, estimator._sizes(p, smallest), paths)
    at = estimator._choose(curve)
    k = curve.members_for(at, 0.01) if estimator.n_estimators == "auto" else estimator.n_estimators
    estimator._report(curve, at, k, _Rows(n))
    size = int(curve.sizes[at])
    estimator.max_features_, estimator.feature_ratio_, estimator.max_samples_ = size, size / p, n
    estimator.inclusion_kind_, estimator.loo_prediction_ = "uniform", np.empty(0)
    return size, k


class _Rows:
    """The one thing a report asks of a problem: its number of rows."""

    def __init__(self, n):
        self.shape = (n, 0)


def kfold_curve(folds: list[Moments], sizes: NDArray, paths: Paths) -> RiskCurve:
    """Risk curve from moments of folds; the rows of the curve are the folds."""
    p = len(folds[0].G)
    training = [reduce(Moments.merge, folds[:f] + folds[f + 1 :]) for f in range(len(folds))]
    orders = [order for b in range(paths.min_batches) for pair in paths.pairs(p, b) for order in pair]
    coefs = paths._run(lambda i: np.stack([_prefixes(m, orders[i], sizes) for m in training]), len(orders))
    error = partial(_errors, folds, training)
    own = np.mean([error(c) for c in coefs], axis=0)
    pairs = zip(coefs[::2], coefs[1::2], strict=True)
    same = 2 * np.mean([error((a + b) / 2) for a, b in pairs], axis=0) - own
    k = len(orders)
    other = (k * k * error(np.mean(coefs, axis=0)) - k * own - k * same) / (k * k - 2 * k)
    weight = np.array([fold.weight for fold in folds])
    empty = np.zeros((len(sizes), 0, folds[0].C.shape[1]))
    return RiskCurve.from_pairs(sizes, p, paths.design, weight, own, same, other, empty)


def _errors(folds, training, coefs):
    """Mean squared errors (sizes, F) on the test folds of coefficients (F, sizes, p, q), averaged over targets."""
    found = []
    for test, train, b in zip(folds, training, coefs, strict=True):
        inside = test.yy - 2 * np.einsum("spq,pq->sq", b, test.C)
        inside += np.einsum("spq,spq->sq", b, np.einsum("pr,srq->spq", test.G, b, optimize=True))
        offset = test.mean_y - train.mean_y - np.einsum("p,spq->sq", test.mean_x - train.mean_x, b)
        found.append((inside / test.weight + offset**2).mean(axis=1))
    return np.stack(found, axis=1)


def _prefixes(moments: Moments, order: NDArray, sizes: NDArray) -> NDArray:
    """Coefficients (sizes, p, q) of the first columns of an order; columns that add no rank get zero."""
    columns = order[: sizes[-1]]
    L, kept = _independent_cholesky(moments.G[np.ix_(columns, columns)])
    z = la.solve_triangular(L, moments.C[columns[kept]], lower=True)
    out = np.zeros((len(sizes), len(moments.G), moments.C.shape[1]))
    for s, size in enumerate(sizes):
        m = int(np.searchsorted(kept, size))
        out[s, columns[kept[:m]]] = la.solve_triangular(L[:m, :m], z[:m], lower=True, trans="T")
    return out


def _independent_cholesky(G):
    """Lower factor of the columns that add rank to those before them, and their positions."""
    kept = np.flatnonzero(np.diagonal(G) > 0)
    while True:
        part = G[np.ix_(kept, kept)]
        L, info = la.lapack.dpotrf(part, lower=1, clean=1)
        good = np.ones(len(kept), dtype=bool)
        if info:
            good[info - 1] = False  # the leading columns before this one are independent
        else:
            good = np.diagonal(L) ** 2 > TRUST * np.diagonal(part)
        if good.all():
            return L, kept
        kept = kept[good]
