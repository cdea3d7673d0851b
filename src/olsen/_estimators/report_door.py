"""The one door from the estimators up to the command: its report page, for models that were fitted in Python.

The page is made by `cli.report`, which knows the estimators, so nothing here may be imported before it is needed. It is
the only import that goes upwards, and ``tests/test_architecture.py`` lists it by name.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._engines import NeedsRows
from .._execution.files import atomically

__all__ = ["AsReported", "write_report"]

Array = NDArray[np.float64]


class AsReported:
    """A fitted model as the page asks it: rows are arrays without names, numbers are on the host.

    Parameters
    ----------
    model : OLSEnsembleRegressorCV
        Fitted to one target.
    left_out : ndarray of shape (n_rows,) or (0,)
        Predictions of the rows of the page by ensembles that have not seen them; empty where they are not known.
    """

    def __init__(self, model: Any, left_out: Array) -> None:
        plain = model.to_linear_regression()
        self.coef_, self.intercept_ = np.ravel(plain.coef_), float(np.ravel(plain.intercept_)[0])
        self.loo_prediction_ = left_out
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def predict(self, X: Array) -> Array:
        """Predictions."""
        return np.asarray(X @ self.coef_ + self.intercept_)

    @property
    def coef_std_(self) -> Array:
        """Standard errors, NaN where the training rows are gone."""
        try:
            return np.ravel(self._model.coef_std_)
        except NeedsRows as error:
            if self._model._result().rows is not None:  # they were changed: all else on the page would be wrong too
                raise NeedsRows(*error.args) from None
            return np.full(len(self.coef_), np.nan)


def write_report(
    path: str | os.PathLike[str], model: AsReported, X: Array, y: Array, names: list[str], **about: Any
) -> None:
    """Write the page of a model and the rows it was fitted to; `about` as in `cli.report.summarise`."""
    from ..cli.report import render, summarise
    from ..simulation.storage import versions

    seen: Any = model
    page = render(summarise(seen, X, y, names, versions=versions(), **about))
    atomically(path, lambda file: file.write_text(page, encoding="utf-8"))
