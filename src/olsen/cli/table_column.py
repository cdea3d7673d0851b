"""One column of a table as numbers, for scikit-learn: what it has no transformer for, such as money and dates."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from . import columns as kinds

__all__ = ["TableColumn"]


class TableColumn(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode one column as the command line does.

    Parameters
    ----------
    how : dict
        What to do with it; see the module `columns`.
    """

    def __init__(self, how: dict[str, Any]) -> None:
        self.how = how

    def fit(self, X: Any, y: Any = None) -> Self:
        """Nothing is left to learn.

        Parameters
        ----------
        X, y : object
            Ignored.

        Returns
        -------
        self : object
        """
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The encoded columns of one column.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, 1)
            Cells.

        Returns
        -------
        encoded : ndarray of shape (n_samples, n_encoded)
        """
        import pyarrow as pa

        cells = np.asarray(X, dtype=object).reshape(len(X), -1)[:, 0].tolist()
        column = pa.array(cells, from_pandas=True)
        column = column.cast("string") if pa.types.is_null(column.type) else column
        return kinds.encode(pa.chunked_array([column]), self.how)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the encoded columns.

        Parameters
        ----------
        input_features : object
            Ignored.

        Returns
        -------
        names : ndarray of str
        """
        return np.array(kinds.labels(self.how), dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True
