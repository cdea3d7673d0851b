r"""Standard errors from moments, where rows are not in memory.

With :math:`B = \frac1k \sum_i P_i`, :math:`P_i` the
inverse of member i's Gram matrix and zero outside its columns, the ensemble's coefficients are
:math:`\mu B X' y`, and

.. math:: \hat\sigma^2 = \frac{\|r\|^2}{n - 2 \mathrm{tr} H + \mathrm{tr}(H H')} , \qquad
          V = \mu^2 \hat\sigma^2 B G B , \qquad H = X \mu B X'

Status: asymptotic, for errors of one variance (inversely proportional to the weights where there
are weights); in memory the jackknife does without that assumption. Shrinkage bias is not included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from ..._data.moments import Moments
from ..._execution.threads import Threads
from ..._members.jackknife import inverses
from ..._trust import LARGEST_INFLATION
from ...subsets import Subsets
from ..chunks import dense_chunks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MomentErrors:
    """Covariance of coefficients over training sets, from moments."""

    V: Array  # (p, p) covariance of the coefficients for errors of variance one
    variance: Array  # (q,) variance of the errors
    mean_x: Array  # (p,)
    mean_variance: float  # variance of the mean target for errors of variance one
    coef: Array  # (p, q) coefficients from the moments, without the scale

    @classmethod
    def from_moments(cls, moments: Moments, B: Array, scale: float) -> MomentErrors:
        """Build from the moments of all rows and the mean B of the members' inverse Gram matrices."""
        n = moments.n_rows
        G = moments.G
        C = moments.C
        BG = scale * (B @ G)
        coef = B @ C
        b = scale * coef
        residual = np.maximum(
            moments.yy - 2 * np.sum(b * C, axis=0) + np.sum(b * (G @ b), axis=0), 0.0
        )
        intercept = float(moments.centred)
        freedom = (
            n - intercept - 2 * np.trace(BG) + np.sum(BG * BG.T)
        )  # residual degrees of freedom
        # members that fit every row leave no residuals from which to estimate the variance: their
        # degrees of freedom are rounding
        variance = residual / freedom if freedom > 1e-9 * n else np.full(len(residual), np.inf)
        return cls(scale * BG @ B, variance, moments.mean_x, intercept / moments.weight, coef)

    def coef_std(self) -> Array:
        """Standard error of the expected coefficients, (p, q)."""
        return self._standard_errors(np.diagonal(self.V))

    def _standard_errors(self, unit_variance: Array) -> Array:
        """Standard errors, (..., q), of quantities from their variance for errors of variance one.

        A quantity that does not depend on the targets does not vary, even if the error variance is
        unknown (infinite).
        """
        positive = np.maximum(unit_variance, 0.0)[:, None]
        with np.errstate(invalid="ignore"):  # zero times infinity
            return np.where(positive > 0, np.sqrt(positive * self.variance), 0.0)

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard error of the expected X b + constant * intercept, (rows, q)."""
        std = np.empty((X.shape[0], len(self.variance)))
        for chunk, rows in dense_chunks(X, 8.0 * len(self.mean_x)):
            deviations = rows - constant * self.mean_x
            slope_variance = np.einsum("ij,ij->i", deviations @ self.V, deviations)
            std[chunk] = self._standard_errors(slope_variance + constant**2 * self.mean_variance)
        return std


def mean_inverse(G: Array, features: Subsets, threads: Threads) -> Array:
    """Mean of the inverses of the members' Gram matrices, zero outside their columns."""
    p = len(G)
    k = len(features)

    def work(start: int, stop: int) -> Array:
        total = np.zeros((p, p))
        for i in range(start, stop):
            block = np.ix_(features[i], features[i])
            total[block] += _inverse(G[block])
        return total

    chunk = max(1, -(-k // 8))  # at most eight chunks, because each one allocates a p x p matrix
    return np.asarray(sum(threads.quiet()(work, k, chunk=chunk)) / k)


def _inverse(G: Array) -> Array:
    """Inverse of a Gram matrix; for dependent columns a pseudo-inverse, without directions that are
    rounding.
    """
    P, inflation = inverses(G[None])
    if inflation[0] < LARGEST_INFLATION:
        varies = np.diagonal(G) > 0
        return np.asarray(P[0] * (varies[:, None] & varies))
    norms = np.sqrt(np.diagonal(G))
    unit = np.where(norms > 0, 1 / np.where(norms > 0, norms, 1.0), 0.0)
    eigenvalues, eigenvectors = la.eigh(G * unit[:, None] * unit)
    nonzero = eigenvalues > 1e-10 * eigenvalues[-1]
    scaled = unit[:, None] * eigenvectors[:, nonzero]
    null_space, _ = la.qr(
        np.where(unit > 0, unit, 1.0)[:, None] * eigenvectors[:, ~nonzero], mode="economic"
    )
    projection = (
        np.eye(len(G)) - null_space @ null_space.T
    )  # onto solutions of minimum norm, as the solvers return
    return np.asarray(projection @ (scaled / eigenvalues[nonzero]) @ scaled.T @ projection)
