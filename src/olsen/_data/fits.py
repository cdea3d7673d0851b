"""An ensemble fitted without a fold, and requests for rows that are not kept."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class NeedsRows(ValueError):
    """Error of a request that needs the training rows when the rows are not kept."""


class ChangedRows(NeedsRows):
    """Error of a request that needs the training rows when the user has changed the arrays in place
    since the fit.
    """


class FoldFit(NamedTuple):
    """Ensemble fitted without a fold, and its held-out errors on the fold; on the host."""

    coef: Array  # (q, p)
    intercept: Array  # (q,)
    residual: Array | None  # (rows, q); None: not computed yet

    def residuals(self, X: Any, Y: Any) -> Array:
        """Residuals of rows on the host, (rows, q)."""
        return np.asarray(Y - (np.asarray(X @ self.coef.T) + self.intercept), dtype=float)
