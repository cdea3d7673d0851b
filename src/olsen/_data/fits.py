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
    prediction: Array | None = None  # (rows, q) of the rows with residuals

    def tested(self, X: Any, Y: Any) -> FoldFit:
        """The fit with predictions and residuals of held-out rows on the host."""
        prediction = np.asarray(np.asarray(X @ self.coef.T) + self.intercept, dtype=float)
        return self._replace(
            residual=np.asarray(Y - prediction, dtype=float), prediction=prediction
        )
