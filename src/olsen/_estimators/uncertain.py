"""How sure a fitted ensemble is: of its coefficients, of its predictions, and of the draw of its members."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _engines
from .._engines import NeedsRows
from .._execution.arrays import space_of
from .draws import Replicates
from .inputs import check_choice, check_coverage, check_number, options_of, validate_new_rows

__all__ = ["NotThere", "Uncertain"]

METHODS = ("auto", "jackknife+", "jackknife", "cv+", "normal")
GROUPED = (
    "method={method!r} leaves out rows one at a time, but the model was fitted with groups, whose other rows would "
    "stay. Use method='cv+', which leaves out the folds of whole groups that the fit used."
)


class Uncertain:
    """Standard errors and intervals; `FittedEnsemble` gives them the result of a fit."""

    coef_: Any
    n_estimators_: float
    _result: Any

    # Predictions

    def predict_interval(self, X: Any, coverage: float = 0.9, method: str = "auto") -> NDArray[np.float64]:
        """Intervals that hold new observations with the given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        coverage : float, default=0.9
            Probability that a new observation falls inside.
        method : {"auto", "jackknife+", "jackknife", "cv+", "normal"}, default="auto"
            - ``"jackknife+"`` leaves out every training row, and moves the centre with it. Needs the rows in memory,
              and members of a given size, or uniform ones.
            - ``"jackknife"`` gives all rows one width, from the same residuals, and serves any number of training rows
              with little more memory than they take.
            - ``"cv+"`` leaves out folds: those in which schemes and shares were chosen, at no further cost; for other
              members those of `cv` (groups stay together), otherwise ten random ones, or five of data in blocks, on a
              cluster or on a device, which are read again.
            - ``"normal"`` adds and subtracts the root of the estimated error times a quantile of the normal
              distribution.
            - ``"auto"``: cv+ where schemes were chosen; otherwise jackknife+ where rows are in memory, not in groups,
              and leave room for it, else cv+.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper ends; infinite where there are too few training rows for the coverage.

        Notes
        -----
        Status: for exchangeable rows (or groups of them), and members that were not chosen with their targets,
        jackknife+ and cv+ cover at least 1 - 2 (1 - coverage) (theorem; for cv+ up to a term that vanishes with the
        rows of a fold). In simulation they are close to `coverage`, also after tuning (asymptotic; residuals of schemes
        that were chosen with the targets are enlarged to the estimated error, a heuristic). The plain jackknife and
        ``"normal"`` carry no guarantee. No interval is narrower where the noise is, unless rows there differ.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from olsen import OLSEnsembleRegressorCV
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = OLSEnsembleRegressorCV(200, random_state=0).fit(X[:300], y[:300])
        >>> low, high = model.predict_interval(X[300:], coverage=0.9).T
        >>> round(float(((low <= y[300:]) & (y[300:] <= high)).mean()), 1)
        0.9
        """
        fitted = self._result()
        check_coverage(coverage)
        check_choice("method", method, METHODS)
        if method == "auto":
            method = fitted.certainty.default_intervals
        if method.startswith("jackknife") and fitted.n_groups is not None:
            raise ValueError(GROUPED.format(method=method))
        rows, back = self._on_host(X)
        ends = self._interval(rows, coverage, method)
        found: NDArray[np.float64] = back(ends[:, 0] if self.coef_.ndim == 1 else ends)
        return found

    def _interval(self, X: Any, coverage: float, method: str) -> NDArray[np.float64]:
        """Ends (rows, q, 2) for checked rows on the host."""
        sure, sharing = self._result().certainty, options_of(self).quietly
        if method == "cv+":
            return np.asarray(sure.folded.interval(X, coverage))
        y = self._predict_on_host(X)
        if method == "normal":
            half = NormalDist().inv_cdf((1 + coverage) / 2) * np.sqrt(self._error("predict_interval(method='normal')"))
            return np.stack([y - half, y + half], axis=2)
        rows = sure.without_each_row(method)
        return np.asarray(rows.interval(X, y, coverage, method == "jackknife+", sharing))

    def _replicates(self, what: str) -> Replicates | None:
        """Fits of parts of the rows that repeat the choice; None where nothing was chosen."""
        return None

    def _std(self, X: Any) -> NDArray[np.float64]:
        """Standard error of the expected prediction, (rows, q)."""
        repeated = self._replicates("predict(return_std=True)")
        if repeated is not None:
            return repeated.std(X)
        return np.asarray(self._result().certainty.std("predict(return_std=True)", X, options_of(self).quietly))

    def monte_carlo_std(self, X: Any) -> NDArray[np.float64]:
        """How much predictions would move with another draw of as many subsets.

        Members are solved again, in batches. Where they are in memory this takes about the time of the fit.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        std : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Standard deviation over draws; it falls with the root of the number of members. Status: as of
            ``monte_carlo_std_``.
        """
        rows, back = self._on_host(X)
        found = self._result().certainty.noise("monte_carlo_std").std(rows)
        std: NDArray[np.float64] = back(found[:, 0] if self.coef_.ndim == 1 else found)
        return std

    def members_needed(self, share: float = 0.01) -> int:
        """Number of members with which another draw of them would not matter.

        Parameters
        ----------
        share : float, default=0.01
            Of the mean squared error of prediction, that the variance over draws may take.

        Returns
        -------
        n_members : int
            With a balanced design whole groups of members that avoid each other; with fewer than one, errors do not
            cancel. Status: exact up to the noise of the two estimates.
        """
        check_number("share", share, "a positive number", 0.0)
        if not share > 0:
            raise ValueError(f"share={share!r} must be a positive number.")
        fitted = self._result()
        draws = fitted.certainty.draws("members_needed")
        needed: float = draws.members_for(share * float(np.sum(self._error("members_needed"))), fitted.data)
        if not math.isfinite(needed):
            raise ValueError(
                f"share={share!r} of an error of {float(np.sum(self._error('members_needed'))):.3g} is nothing: no "
                f"number of members varies so little over draws."
            )
        return math.ceil(needed)

    def _error(self, what: str) -> NDArray[np.float64]:
        """Mean squared error of prediction for each target: as tuning found it where there is one target."""
        tuned = getattr(self, "best_score_", -math.inf)
        if self.coef_.ndim == 1 and math.isfinite(tuned):
            return np.full(1, -tuned)
        return np.asarray(self._result().certainty.error(what, options_of(self).quietly))

    # Coefficients

    @property
    def coef_std_(self) -> NDArray[np.float64]:
        """Standard errors of the *expected* coefficients, in the shape of ``coef_``.

        How much coefficients would vary over training sets. Shrinkage is not in them: they do not say how far a
        coefficient is from the truth. Status: asymptotic; with fixed sizes below the number of rows within 3 % of
        simulation, an upper bound (40 % too large at 30 x 60) for members that fit every row. In memory errors may have
        any variance; of data in blocks, on a cluster or on a device they are taken to have one. A column that differs
        from a constant in a few rows only rests on the residuals of these rows.

        A tuned model repeats the whole choice on 30 parts of the rows, which takes the time of as many fits, once
        (status: heuristic; see the user guide for how close). A signal at the edge of being selected is hard for every
        method.
        """
        with _missing_attribute():
            repeated = self._replicates("coef_std_")
            sure = self._result().certainty
            found = sure.coef_std("coef_std_", options_of(self).quietly) if repeated is None else repeated.coef_std()
        return np.asarray(found[:, 0] if self.coef_.ndim == 1 else found.T)

    def coef_interval(self, coverage: float = 0.9) -> NDArray[np.float64]:
        """Intervals for the expected coefficients: ``coef_`` plus and minus a normal quantile of ``coef_std_``.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability that the expected coefficient of as many rows falls inside; the truth, from which members are
            shrunk, falls inside less often.

        Returns
        -------
        interval : ndarray of shape (n_features, 2) or (n_targets, n_features, 2)
            Lower and upper ends. Status: asymptotic, see ``coef_std_``.
        """
        check_coverage(coverage)
        coef, half = _host(self.coef_), NormalDist().inv_cdf((1 + coverage) / 2) * self.coef_std_
        return np.stack([coef - half, coef + half], axis=-1)

    @property
    def monte_carlo_std_(self) -> NDArray[np.float64]:
        """How much coefficients would move with another draw of as many subsets, in the shape of ``coef_``.

        Status: exact up to the noise of a variance from five to a hundred batches of members, each of whole groups of
        a balanced design. Not for stacked members, which another draw would weigh anew.
        """
        with _missing_attribute():
            found = self._result().certainty.noise("monte_carlo_std_").coef_std()
        return np.asarray(found[:, 0] if self.coef_.ndim == 1 else found.T)

    @property
    def limit_coef_(self) -> NDArray[np.float64]:
        """Coefficients of infinitely many members like these, in the shape of ``coef_``: ridge regression.

        With ``sampling="determinantal"`` only. What ``coef_`` is away from it is the error that more members remove,
        of which ``monte_carlo_std_`` is the size to expect. Status: theorem.
        """
        if self._result().design.sampling != "determinantal":
            raise AttributeError("limit_coef_ is known for sampling='determinantal' only.")
        with _missing_attribute():
            found = self._result().certainty.limit_coef()
        return np.asarray(found[:, 0] if self.coef_.ndim == 1 else found.T)

    # Where rows are

    def _on_host(self, X: Any) -> tuple[Any, Any]:
        """Checked rows on the host, and what brings results back to where they came from."""
        if _engines.is_dask(X):
            raise ValueError(
                f"X is of type {type(X).__name__}, but standard errors and intervals are computed in memory. Give X as "
                f"an array (X.compute()), if it is large a part at a time (X.partitions[i].compute())."
            )
        space = space_of(X) if _engines.lives_elsewhere(X) else None
        if space is None:
            return validate_new_rows(self, X), lambda found: found
        return validate_new_rows(self, space.get(X)), space.put

    def _predict_on_host(self, X: Any) -> NDArray[np.float64]:
        """Predictions (rows, q) of checked rows."""
        coef, intercept = np.atleast_2d(_host(self.coef_)), np.atleast_1d(_host(self.intercept_))  # type: ignore[attr-defined]
        return np.asarray(np.asarray(X @ coef.T) + intercept, dtype=np.float64)


class NotThere(NeedsRows, AttributeError):
    """An attribute that is computed from training rows that are not kept: for `hasattr` there is none."""


@contextmanager
def _missing_attribute() -> Iterator[None]:
    try:
        yield
    except NeedsRows as error:
        raise NotThere(*error.args) from None


def _host(array: Any) -> NDArray[Any]:
    space = space_of(array) if _engines.lives_elsewhere(array) else None
    return np.asarray(array) if space is None else np.asarray(space.get(array))
