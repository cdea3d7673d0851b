r"""Standard errors of tuned models, from refits.

Refits repeat the choice on a fraction s of the rows and vary about
their mean with
:math:`(1 - s) / s` times the desired variance (delete-d jackknife: exact for means, a heuristic after a choice).
Measured with 200 data sets of 100 rows and 50 columns: four fifths of the rows give .76 to 1.31
times the true spread of any coefficient, the different rows of a bootstrap sample .68 to 1.29,
weights of a bootstrap .60 to 1.10; deviations from the fit of all rows instead of the mean, up to
1.8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..chunks import dense_chunks

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Refits:
    """Fits that repeat the choice on a fraction of the rows."""

    coef: Array  # (B, q, p)
    intercept: Array  # (B, q)
    fraction: float  # of the rows in each refit

    def _standard_errors(self, refitted: Array) -> Array:
        """Standard errors of quantities from their values in the refits, (B, ...); infinite if
        there are no refits.
        """
        if not len(refitted):
            return np.full(refitted.shape[1:], np.inf)
        return np.asarray(
            math.sqrt(self.fraction / (1 - self.fraction)) * np.std(refitted, axis=0, ddof=1)
        )

    def coef_std(self) -> Array:
        """Standard errors of the coefficients, (p, q)."""
        return self._standard_errors(self.coef).T

    def std(self, X: Any, constant: float = 1.0) -> Array:
        """Standard errors of X b + constant * intercept, (rows, q)."""
        B, q, _ = self.coef.shape
        std = np.empty((X.shape[0], q))
        for chunk, rows in dense_chunks(X, 8.0 * B * q):
            refitted = rows @ self.coef.transpose(0, 2, 1) + constant * self.intercept[:, None]
            std[chunk] = self._standard_errors(refitted)
        return std
