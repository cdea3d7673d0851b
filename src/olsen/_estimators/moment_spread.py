r"""How much coefficients and predictions vary over training sets, from moments alone: where rows are not in memory.

With :math:`B = \frac1k \sum_i P_i`, :math:`P_i` the inverse of member i's Gram matrix and zero outside its columns, the
ensemble's coefficients are :math:`\mu B X' y` and those of its predictions' variance come from

.. math:: \hat\sigma^2 = \frac{\|r\|^2}{n - 2 \mathrm{tr} H + \mathrm{tr}(H H')} , \qquad
          V = \mu^2 \hat\sigma^2 B G B , \qquad H = X \mu B X'

Status: asymptotic, for errors of one variance (inversely proportional to the weights where there are weights); in
memory ``uncertainty`` does without that assumption. It is the spread over training sets, without shrinkage bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray

from .._execution.threads import Sharing
from .._members.jackknife import inverses
from .._moments import Moments
from .._trust import LARGEST_INFLATION
from ..subsets import Subsets
from .left_out import steps

__all__ = ["MomentSpread", "mean_inverse"]

Array = NDArray[np.float64]
RANK = 1e-10  # of the largest eigenvalue of a correlation matrix, below which a direction is rounding
ROOM = 1 << 25  # bytes of rows at a time


@dataclass(frozen=True)
class MomentSpread:
    """Covariance of coefficients over training sets."""

    V: Array  # (p, p), for errors of variance one
    variance: Array  # (q,) of the errors
    mean_x: Array  # (p,)
    of_mean: float  # variance of the mean target, for errors of variance one
    coef: Array  # (p, q) as found here, without the scale

    @classmethod
    def of(cls, moments: Moments, B: Array, scale: float) -> MomentSpread:
        """From moments of all rows and the mean inverse of the members."""
        n, G, C = moments.n_rows, moments.G, moments.C
        BG = scale * (B @ G)
        coef = B @ C
        b = scale * coef
        residual = np.maximum(moments.yy - 2 * np.sum(b * C, axis=0) + np.sum(b * (G @ b), axis=0), 0.0)
        intercept = float(moments.centred)
        left = n - intercept - 2 * np.trace(BG) + np.sum(BG * BG.T)
        variance = residual / max(left, 1.0)
        return cls(scale * BG @ B, variance, moments.mean_x, intercept / moments.weight, coef)

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, (p, q)."""
        return np.sqrt(np.maximum(np.diagonal(self.V), 0.0)[:, None] * self.variance)

    def std(self, X: Any) -> Array:
        """Standard error of the expected prediction, (rows, q)."""
        out = np.empty((X.shape[0], len(self.variance)))
        for here in steps(X.shape[0], 8.0 * len(self.mean_x), ROOM):
            rows = (X[here].toarray() if sp.issparse(X) else np.asarray(X[here], dtype=float)) - self.mean_x
            spread = np.einsum("ij,ij->i", rows @ self.V, rows) + self.of_mean
            out[here] = np.sqrt(np.maximum(spread, 0.0)[:, None] * self.variance)
        return out


def mean_inverse(G: Array, features: Subsets, sharing: Sharing) -> Array:
    """Mean of the members' inverses, zero outside their columns."""
    p, k = len(G), len(features)

    def work(start: int, stop: int) -> Array:
        total = np.zeros((p, p))
        for i in range(start, stop):
            own = features[i]
            total[np.ix_(own, own)] += _inverse(G[np.ix_(own, own)])
        return total

    chunk = max(1, -(-k // 8))  # few: each is a matrix of all columns
    return np.asarray(sum(sharing.quiet()(work, k, chunk=chunk)) / k)


def _inverse(G: Array) -> Array:
    """Inverse of a Gram matrix; without the directions that are rounding where columns depend on each other."""
    P, inflation = inverses(G[None])
    if inflation[0] < LARGEST_INFLATION:
        alive = np.diagonal(G) > 0
        return np.asarray(P[0] * (alive[:, None] & alive))
    length = np.sqrt(np.diagonal(G))
    unit = np.where(length > 0, 1 / np.where(length > 0, length, 1.0), 0.0)
    return np.asarray(la.pinvh(G * unit[:, None] * unit, rtol=RANK) * unit[:, None] * unit)
