"""What every fitted ensemble can do, however its members were chosen: predict, say how sure it is, show its members."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from . import _members, _uncertainty
from ._inputs import check_choice, validate_new_rows

__all__ = ["FittedEnsembleMixin"]


class FittedEnsembleMixin(MultiOutputMixin, RegressorMixin):
    """Methods of a fitted ensemble.

    They rest on ``coef_``, ``intercept_``, ``n_estimators_``, ``weights_``, ``scale_``, on ``_draw`` and ``_solve`` of
    :class:`olsen._fitting.FitMembersMixin` and, while it lasts, on ``_training`` (the Problem).
    """

    coef_: np.ndarray
    intercept_: np.ndarray | float
    n_estimators_: int
    weights_: np.ndarray
    scale_: float
    _design: dict
    _kept_rows: np.ndarray | None
    _training: _members.Problem
    _deletions: _uncertainty.Deletions
    _draw: Callable
    _solve: Callable

    def predict(self, X, return_std=False):
        """Predict by one product with ``coef_``.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        return_std : bool, default=False
            Whether to return standard errors of the *expected* prediction: how much it would vary over training sets.
            Shrinkage bias is not in them; for the spread of new observations use :meth:`predict_interval`.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions.
        std : ndarray of the same shape
            Only if `return_std`.
        """
        check_is_fitted(self)
        X = validate_new_rows(self, X)
        y = np.asarray(X @ self.coef_.T) + self.intercept_
        if not return_std:
            return y
        std = _uncertainty.prediction_std(self._deleted(), X)
        return y, std.reshape(y.shape)

    def predict_interval(self, X, coverage=0.9, method="jackknife+"):
        """Intervals that hold new observations with the given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Probability that a new observation falls inside.
        method : {"jackknife+", "jackknife"}, default="jackknife+"
            Jackknife+ moves the centre with every deleted row and carries a guarantee; the plain jackknife gives all
            rows one width.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper ends; infinite where there are too few training rows for the coverage.
        """
        check_is_fitted(self)
        if not 0 < coverage < 1:
            raise ValueError(f"coverage={coverage} must lie strictly between 0 and 1.")
        check_choice("method", method, ("jackknife+", "jackknife"))
        X = validate_new_rows(self, X)
        y = (np.asarray(X @ self.coef_.T) + self.intercept_).reshape(X.shape[0], -1)
        ends = _uncertainty.jackknife_interval(self._deleted(), X, y, coverage, method == "jackknife+")
        return ends[:, 0] if self.coef_.ndim == 1 else ends

    def member_coefs(self):
        """Coefficients of the single members, solved again from the training data.

        Returns
        -------
        coefs : csr_array of shape (n_estimators_, n_features), or a list of them, one for each target
            Zero outside each member's columns; neither scale nor weights are applied.
        """
        check_is_fitted(self)
        features, samples = self._draw(0, self.n_estimators_)
        solution = self._solve(self._data(), features, samples)
        shape = (len(features), features.n_items)
        coefs = [sp.csr_array((v, features.indices, features.indptr), shape=shape) for v in solution.values.T]
        return coefs[0] if self.coef_.ndim == 1 else coefs

    @property
    def feature_subsets_(self):
        """Columns of every member, a sequence of arrays, drawn again from the seed."""
        check_is_fitted(self)
        return self._draw(0, self.n_estimators_)[0]

    @property
    def sample_subsets_(self):
        """Rows of every member, a list of arrays, drawn again from the seed."""
        check_is_fitted(self)
        samples = self._draw(0, self.n_estimators_)[1]
        rows = np.arange(self._design["n_rows"]) if self._kept_rows is None else self._kept_rows
        return [rows] * self.n_estimators_ if samples is None else [rows[s] for s in samples]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self):
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_training", "_deletions")}

    def _data(self):
        if not hasattr(self, "_training"):
            raise ValueError(
                "this needs the training data, which pickles and partial_fit leave out. Call fit on them again, or use "
                "olsen.member_coefficients(X, y, model.feature_subsets_)."
            )
        return self._training

    def _deleted(self):
        if not hasattr(self, "_deletions"):
            features, samples = self._draw(0, self.n_estimators_)
            self._deletions = _uncertainty.sum_deletions(self._data(), features, samples, self.weights_, self.scale_)
        return self._deletions
