"""Intervals and standard errors of a fitted ensemble: the public methods, and the choice of their
data and method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._data.dask_rows import is_dask
from .._data.device_rows import lives_elsewhere
from .._data.fits import ChangedRows, FoldFit, NeedsRows
from .._data.moments import Moments
from .._data.splits import FOLD_SEED, counted_splits
from .._execution.arrays import space_of
from .._execution.threads import Threads
from .._members.ensemble import Refit, cross_fit, solve_ensemble
from .._members.limit import drawable
from .error_estimates import (
    AdaptiveWidth,
    CVPlus,
    Jackknife,
    JackknifeIntervals,
    MomentErrors,
    NewRows,
    NormalIntervals,
    Refits,
    at_predictions,
    mean_inverse,
    solve_draws,
)
from .inputs import check_arguments, on_host, options_of, probabilities, validate_new_rows
from .leverage import AnyLeverage, leverage_of, widening

Method = TypeVar("Method", bound=Callable[..., Any])
Array = NDArray[np.float64]

N_FOLDS_IN_MEMORY = 10
# data in blocks, on a cluster or on a device are read once more for all folds
N_FOLDS_ELSEWHERE = 5
# held-out errors behind an interval: their quantiles are good to a tenth of a per cent
MAX_ERROR_ROWS = 200_000
# drawn to measure the variance of single members where the fit has infinitely many
N_PILOT_MEMBERS = 200
COLUMNS_PER_BLOCK = 256  # made dense at a time


def once(method: Method) -> Method:
    """Decorate a method so that it is computed on first use and cached with the result of the fit."""

    @wraps(method)
    def cached(self: Any, *args: Any) -> Any:
        cache = self._result().computed
        if method.__name__ not in cache:
            cache[method.__name__] = method(self, *args)
        return cache[method.__name__]

    return cached  # type: ignore[return-value]


class UncertaintyMixin(BaseEstimator):
    """Standard errors and intervals from the result of a fit, cached with that result."""

    def predict_interval(
        self,
        X: Any,
        coverage: float | Sequence[float] = 0.9,
        method: str = "auto",
        *,
        adaptive_width: AdaptiveWidth = "auto",
    ) -> NDArray[np.float64]:
        r"""Intervals that hold new observations with the given probability.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        coverage : float or sequence of float, default=0.9
            Probability that a new observation falls inside; several probabilities give as many
            arrays of intervals.
        method : {"auto", "jackknife+", "jackknife", "cv+", "normal"}, default="auto"
            - ``"jackknife+"`` leaves out one training row at a time and moves the centre of the
              interval accordingly. It needs the rows in memory, and members of a given size, or
              uniform ones.
            - ``"jackknife"`` uses the same residuals around the prediction. It needs little more
              memory than the training rows take.
            - ``"cv+"`` leaves out folds: the folds in which schemes and weights were chosen, at no
              further cost; for other members the folds of `cv` (groups stay together); otherwise
              ten random folds, or five if the data are in blocks, on a cluster or on a device and
              have to be read again.
            - ``"normal"`` adds and subtracts the square root of the estimated error times a
              quantile of the normal distribution.
            - ``"auto"``: cv+ if schemes were chosen; otherwise jackknife+ if the rows are in
              memory, without groups, and memory allows; otherwise cv+.
        adaptive_width : bool or "auto", default="auto"
            Whether widths are scaled by a smooth function of the prediction, the size of held-out
            residuals there. ``"auto"``: where a test of the absolute residuals against the
            prediction is significant at 1 %, and not with ``method="normal"``.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_targets, 2)
            Lower and upper ends; infinite where there are too few training rows for the coverage.
            The lower end is never above the upper one: where the order statistics of a low coverage
            cross, the two ends are exchanged, which covers more. For several coverages there is a
            first axis more: ``interval[i]`` belongs to ``coverage[i]``.

        Notes
        -----
        Status: for exchangeable rows (or groups of rows), members that were not chosen with their
        targets and ``adaptive_width=False``, jackknife+ and cv+ cover at least 1 - 2 (1 - coverage)
        (theorem; for cv+ up to a term that vanishes with the rows of a fold). In simulation the
        coverage is close to `coverage`, also after tuning and with adaptive widths (asymptotic;
        residuals of schemes that were chosen with the targets are enlarged to the estimated error,
        a heuristic). The plain jackknife and ``"normal"`` carry no guarantee.

        Rows beyond the training rows have wider intervals: with the leverage h of :meth:`leverage`
        before it is divided by the largest, a residual counts
        :math:`\sqrt{(1 + h(x)) / (1 + \bar h)}` times, at least once, with
        :math:`\bar h = h_l / (1 - h_l)`, at most 1, of the training row that is farthest: the
        standard deviation of a prediction error is proportional to :math:`\sqrt{1 + h}` for
        penalised least squares with the prior variances that the penalty stands for. Data in blocks
        are read twice more for it; where the leverage is not known, after a pickle without training
        rows, residuals count once.

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
        check_arguments("predict_interval", method=method, adaptive_width=adaptive_width)
        coverages = probabilities("predict_interval", "coverage", coverage)
        self._interval_errors(
            method, adaptive_width, "predict_interval"
        )  # refuses before X is read
        rows, to_input_space = self._on_host(X)
        ends = self._intervals(rows, coverages, self._widening(rows), method, adaptive_width)
        return self._in_shape_of(coverage, ends, to_input_space)

    def predict_quantiles(
        self,
        X: Any,
        q: float | Sequence[float],
        method: str = "auto",
        *,
        adaptive_width: AdaptiveWidth = "auto",
    ) -> NDArray[np.float64]:
        """Quantiles of new observations, from signed held-out residuals.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.
        q : float or sequence of float
            Probabilities strictly between 0 and 1.
        method, adaptive_width
            As in :meth:`predict_interval`.

        Returns
        -------
        quantiles : ndarray of shape (n_samples,) or (n_samples, n_targets)
            Values below which new observations fall with probability `q`; infinite where there are
            too few training rows. For several probabilities there is a first axis more, so that
            ``low, median, high = model.predict_quantiles(X, [0.05, 0.5, 0.95])``.

        Notes
        -----
        Status: asymptotic. Residuals above and below the prediction are used separately, whereas
        :meth:`predict_interval` uses their absolute values: where the distribution of the target is
        skewed, quantiles of 5 and 95 % leave equal probabilities on both sides, and intervals do
        not.

        Examples
        --------
        >>> import numpy as np
        >>> from olsen import AdaptiveOLSEnsembleRegressor
        >>> X = np.random.default_rng(0).standard_normal((300, 2))
        >>> y = X[:, 0] + np.random.default_rng(1).exponential(size=300)
        >>> model = AdaptiveOLSEnsembleRegressor().fit(X, y)
        >>> low, median, high = model.predict_quantiles(X[:5], [0.05, 0.5, 0.95])
        >>> bool(np.all(high - median > median - low))
        True
        """
        check_arguments("predict_quantiles", method=method, adaptive_width=adaptive_width)
        levels = probabilities("predict_quantiles", "q", q)
        errors = self._interval_errors(method, adaptive_width, "predict_quantiles")
        rows, to_input_space = self._on_host(X)
        new = self._new_rows(rows, self._widening(rows), errors)
        quantiles = errors.quantiles(new, levels)
        return self._in_shape_of(q, quantiles, to_input_space)

    def _intervals(
        self,
        rows: Any,
        coverages: list[float],
        widening: Array,
        method: str = "auto",
        adaptive_width: AdaptiveWidth = "auto",
    ) -> Array:
        """Intervals (coverages, rows, q, 2) of checked rows with factors (rows,) on their widths."""
        errors = self._interval_errors(method, adaptive_width, "predict_interval")
        new = self._new_rows(rows, widening, errors)
        return np.sort(errors.interval(new, coverages), axis=3)

    def _interval_errors(self, method: str, adaptive_width: AdaptiveWidth, caller: str) -> Any:
        """Held-out errors by a method, cached with the result of the fit."""
        fitted = self._result()
        obstacle = self._why_no_jackknife(caller)
        if method == "auto":
            method = "jackknife+" if not obstacle and self._jackknife().plus_is_cheap else "cv+"
        elif method.startswith("jackknife") and obstacle:
            error_class = NeedsRows if fitted.rows is None else ValueError
            raise error_class(f"method={method!r} leaves out rows one at a time, but {obstacle}.")
        key = f"errors by {method} with adaptive_width={adaptive_width}"
        if key not in fitted.computed:
            fitted.computed[key] = self._errors_by(method, adaptive_width, obstacle, caller)
        return fitted.computed[key]

    def _errors_by(
        self, method: str, adaptive_width: AdaptiveWidth, obstacle: str, caller: str
    ) -> Any:
        match method:
            case "cv+":
                return replace(self._cv_plus(), adaptive_width=adaptive_width)
            case "normal":
                held_out_method = "cv+" if obstacle else "jackknife"
                held_out = None
                if adaptive_width is True:
                    held_out = self._errors_by(held_out_method, True, obstacle, caller)
                return NormalIntervals.of(self._error(f"{caller}(method='normal')"), held_out)
        return JackknifeIntervals(self._jackknife(), method == "jackknife+", adaptive_width)

    def _new_rows(self, rows: Any, widening: Array, errors: Any) -> NewRows:
        """Checked rows with their predictions, and the widths of their intervals in units of the
        residuals.
        """
        prediction = self._predict_on_host(rows)
        sizes = at_predictions(errors.sizes, prediction)
        return NewRows(rows, prediction, widening[:, None] * sizes)

    def _widening(self, rows: Any) -> Array:
        """Factors (rows,) on residuals by the leverage of rows; ones where the leverage is unknown."""
        try:
            leverage = self._leverage()
        except ChangedRows:
            raise
        except (NeedsRows, MemoryError):
            return np.ones(rows.shape[0])
        return widening(leverage, rows)

    def _training_leverage(self) -> Array:
        """Leverages (rows,) of training rows in memory."""
        rows = self._result().need_rows("the leverage of training rows")
        return self._leverage().absolute(rows.X)

    def _in_shape_of(self, levels: Any, values: Array, to_input_space: Any) -> NDArray[np.float64]:
        """Values (levels, rows, q, ...) without the axes of a single level and a single target."""
        values = values[:, :, 0] if self.coef_.ndim == 1 else values
        shaped: NDArray[np.float64] = to_input_space(values if np.ndim(levels) else values[0])
        return shaped

    def _why_no_jackknife(self, caller: str) -> str:
        """Reason why the jackknife does not apply to this fit, and what to do instead; empty if it
        applies.
        """
        fitted = self._result()
        if fitted.n_groups is not None:
            return (
                "the model was fitted with groups, whose other rows would stay. Use method='cv+',"
                " which leaves out the folds of whole groups that the fit used"
            )
        if fitted.folds is not None:
            return (
                "schemes and their weights were chosen from the same rows. Use method='cv+', in"
                " whose folds the choice was made"
            )
        if fitted.rows is not None:
            return ""
        rereadable = fitted.data is not None and fitted.data.can_be_read_again
        alternative = "; method='cv+' reads the data again" if rereadable else ""
        return f"{caller} has no training rows: {fitted.why_no_rows}{alternative}"

    def leverage(self, X: Any) -> NDArray[np.float64]:
        r"""Distance of rows from the training rows, in units of the training row that is farthest.

        The prediction of a row beyond all training rows is an extrapolation: a typing error in one
        cell, a sensor of another kind. From 2 on, ``olsen predict`` marks a row as far.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows to predict.

        Returns
        -------
        leverage : ndarray of shape (n_samples,)
            :math:`h(x) / \max_l h(x_l)`: at most 1 for training rows; zero if no column varies.

        Notes
        -----
        :math:`h(x) = (x - \bar x)' (G + \lambda D^{-1})^{-1} (x - \bar x)`, with G the centred
        products of the columns (not centred without intercept), is the mean leverage of the row in
        the determinantal members of a scheme with prior variances D (theorem if no drawable columns
        are dependent, otherwise the limit of nearly dependent columns). A mixture has the weighted
        mean over its schemes, and several targets have the mean over targets. For fixed sizes and
        coin flips the penalty is that of
        :func:`equivalence.determinantal_penalty <olsen.equivalence.determinantal_penalty>`
        (status: heuristic). Columns that no member uses do not count.

        The penalty is bounded from below: ridge regression with it has at most a third as many
        degrees of freedom as there are rows, otherwise every new row of a wide table would be
        beyond all training rows.

        The first call factorises the products of the columns, or of the rows if those are fewer;
        data in blocks or on a cluster are read twice for it. After a pickle or a model file it
        needs the training rows, unless ``keep_rows=True`` and they were too many to be stored.

        Examples
        --------
        >>> import numpy as np
        >>> from olsen import AdaptiveOLSEnsembleRegressor
        >>> X = np.random.default_rng(0).standard_normal((100, 3))
        >>> model = AdaptiveOLSEnsembleRegressor().fit(X, X[:, 0] + X[:, 1])
        >>> bool(np.isclose(model.leverage(X).max(), 1))
        True
        >>> bool(model.leverage([[30.0, 0.0, 0.0]])[0] > 2)
        True
        """
        rows, to_input_space = self._on_host(X)
        leverage = self._leverage()
        in_units = leverage.absolute(rows) / (leverage.largest or 1.0)
        return np.asarray(to_input_space(in_units))

    def members_needed(self, share: float = 0.01) -> int:
        """Number of members from which on another random draw of the members would hardly change
        the predictions.

        Parameters
        ----------
        share : float, default=0.01
            Largest tolerated variance over draws, as a fraction of the mean squared error of
            prediction.

        Returns
        -------
        n_members : int
            A multiple of the group size of a balanced design, because errors cancel within whole
            groups only. Status: exact up to the noise of the two estimates.
        """
        check_arguments("members_needed", share=share)
        variance, group_size = self._draw_variance("members_needed")
        mse = float(np.sum(self._error("members_needed")))
        if variance > 0 and share * mse <= 0:
            raise ValueError(
                f"no number of members varies by as little as share={share!r} of an error of"
                f" {mse:.3g}."
            )
        n_groups = max(1, math.ceil(variance / (share * mse))) if variance > 0 else 1
        return group_size * n_groups

    def coef_std(self) -> NDArray[np.float64]:
        """Compute standard errors of the *expected* coefficients.

        A standard error measures how much a coefficient would vary over training sets. It does not
        include shrinkage bias, so it does not tell how far a coefficient is from the truth.

        Returns
        -------
        std : ndarray of shape (n_features,) or (n_targets, n_features)
            Infinite where rows are too few to estimate it: for a tuned model of two rows, or three
            with an intercept, and for members of data in blocks, on a cluster or on a device that
            fit every row and leave no residual.

        Notes
        -----
        Status: asymptotic; with fixed sizes below the number of rows within 3 % of simulation, an
        upper bound (40 % too large at 30 x 60) for members that fit every row. For rows in memory
        the errors may be heteroskedastic; for data in blocks, on a cluster or on a device their
        variance is assumed to be constant. If a column is constant but for a few rows, its standard
        error rests on the residuals of those few rows.

        A tuned model repeats the whole choice on 30 parts of the rows, which takes the time of 30
        fits, once (status: heuristic; see the user guide for how close). A signal at the edge of
        being selected is hard for every method.
        """
        std = self._standard_errors("coef_std").coef_std()
        return np.asarray(std[:, 0] if self.coef_.ndim == 1 else std.T)

    def coef_interval(self, coverage: float = 0.9) -> NDArray[np.float64]:
        """Intervals for the expected coefficients: ``coef_`` plus and minus a normal quantile of
        :meth:`coef_std`.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability that the interval holds the expected coefficient for this number of rows. It
            holds the true coefficient less often, because members are shrunk.

        Returns
        -------
        interval : ndarray of shape (n_features, 2) or (n_targets, n_features, 2)
            Lower and upper ends. Status: asymptotic, see :meth:`coef_std`.
        """
        check_arguments("coef_interval", coverage=coverage)
        coef = on_host(self.coef_)
        half_width = NormalDist().inv_cdf((1 + coverage) / 2) * self.coef_std()
        return np.stack([coef - half_width, coef + half_width], axis=-1)

    def _standard_errors(self, purpose: str) -> Refits | Jackknife | MomentErrors:
        """Source of standard errors: refits for a tuned model, otherwise the rows in memory,
        otherwise moments.
        """
        refits = self._refits(purpose)
        if refits is not None:
            return refits
        return self._moment_errors(purpose) if self._result().rows is None else self._jackknife()

    def _effects(
        self, groups: list[list[int]], errors: bool = True, moments: Moments | None = None
    ) -> Array:
        """Effects of groups of columns and their standard errors, (2, groups), or (2, targets,
        groups).

        The effect of a group is the standard deviation over training rows of its part of the
        predictions, s = sqrt(b'Cb) with C the covariance of its columns; the effect of a single
        column has the sign of its coefficient. The gradient of s is Cb / s.

        Standard errors are NaN without `errors`: for a tuned model their computation takes thirty
        fits. `moments` replace training rows that are not in memory.
        """
        coef = np.atleast_2d(on_host(self.coef_))
        fitted = self._result()
        rows = None if fitted.rows is None else fitted.need_rows("the size of effects")
        moments = self._moments("effects") if rows is None and moments is None else moments
        standard_errors = self._standard_errors("effects") if errors else None
        coef_std = np.atleast_2d(self.coef_std()) if errors else np.full_like(coef, np.nan)
        effects = np.full((2, len(coef), len(groups)), np.nan)
        column_std = _column_std(rows, moments, coef.shape[1])
        for g, columns in enumerate(groups):
            if len(columns) == 1:
                effects[0, :, g] = column_std[columns] * coef[:, columns[0]]
                effects[1, :, g] = column_std[columns] * coef_std[:, columns[0]]
                continue
            slope = _covariance_times(rows, moments, columns, coef[:, columns])  # C b, (q, columns)
            size = np.sqrt(np.maximum(np.sum(coef[:, columns] * slope, axis=1), 0.0))
            effects[0, :, g] = size
            if standard_errors is not None:
                gradient = np.zeros_like(coef)
                gradient[:, columns] = slope / np.where(size > 0, size, 1.0)[:, None]
                effects[1, :, g] = np.diagonal(standard_errors.std(gradient, 0.0))
        return effects[:, 0] if self.coef_.ndim == 1 else effects

    def _contrast_std(self, contrasts: Array) -> Array:
        """Standard errors (contrasts, q) of linear combinations of the coefficients."""
        return self._standard_errors("effects").std(contrasts, 0.0)

    # New rows

    def _predict_with_std(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Predictions and standard errors of the expected prediction."""
        rows, to_input_space = self._on_host(X)
        prediction = self._predict_on_host(rows)
        std = self._standard_errors("predict(return_std=True)").std(rows)
        if self.coef_.ndim == 1:
            prediction = prediction[:, 0]
            std = std[:, 0]
        return to_input_space(prediction), to_input_space(std)

    def _error(self, purpose: str) -> Array:
        """Mean squared error of prediction for each target: the error estimated in tuning if there
        is one target.
        """
        fitted = self._result()
        tuned_score = getattr(self, "best_score_", -math.inf)
        if self.coef_.ndim == 1 and math.isfinite(tuned_score):
            return np.full(1, -tuned_score)
        if fitted.rows is not None and fitted.folds is None:
            return np.asarray(np.mean(self._jackknife().residuals ** 2, axis=0))
        fitted.need_data(purpose)
        return self._cv_plus().mse

    def _keep_errors(self, folds: list[FoldFit]) -> None:
        """Store the fits of the folds with residuals of held-out rows, which the result of a fit
        from sums does not have.
        """
        self._fitted = replace(self._result(), folds=folds)

    # Computed once

    @once
    def _jackknife(self) -> Jackknife:
        """The ensemble without each of its training rows, which must be in memory."""
        return Jackknife(self._result(), options_of(self).quietly)

    @once
    def _cv_plus(self) -> CVPlus:
        """The ensemble without each fold: folds of the choice of the mixture, folds of `cv`, or
        random folds.
        """
        fitted = self._result()
        fits = fitted.folds
        design = fitted.design
        purpose = "predict_interval(method='cv+')"
        if fits is None:
            return self._refit_folds(purpose)
        if (
            fits[0].residual is None
        ):  # the fit saw sums only, so the residuals take another pass over the data
            data = fitted.need_data(purpose)
            n_rows = design.n_given or design.n_rows
            return CVPlus.from_folds(data.with_errors(fits, FOLD_SEED, MAX_ERROR_ROWS, n_rows))
        n_groups = fitted.n_groups
        if n_groups is None and sum(len(fit.residual) for fit in fits) > design.n_rows:
            n_groups = (
                design.n_rows
            )  # folds were drawn repeatedly: the residuals of one row form a group
        return CVPlus.from_folds(fits, n_groups)

    def _refit_folds(self, purpose: str) -> CVPlus:
        """Fit the ensemble again without each fold: the folds of `cv` where there are any,
        otherwise random folds.
        """
        fitted = self._result()
        data = fitted.need_data(purpose)
        design = fitted.design
        if not data.can_be_read_again:
            fitted.need_rows("predict_interval")
        refit = Refit(design, np.asarray(fitted.members.weights), fitted.scale)
        options = self._options_of_fit()
        in_memory = data.host_rows is not None
        n_folds = N_FOLDS_IN_MEMORY if in_memory else N_FOLDS_ELSEWHERE
        groups = data.in_groups(n_folds, design.seed)
        splits = fitted.splits if in_memory else None
        if splits is None:
            splits = counted_splits(design.n_rows, n_folds, design.seed)
        fits = cross_fit(groups, refit, splits, options, max_rows=MAX_ERROR_ROWS)
        if in_memory:
            return CVPlus.from_folds(fits, fitted.n_groups)
        n_rows = sum(len(np.asarray(fit.residual)) for fit in fits)
        if design.n_rows <= MAX_ERROR_ROWS and n_rows != design.n_rows:
            raise NeedsRows(
                f"the data had {design.n_rows} rows in the fit and have {n_rows} now. Fit again."
            )
        on_all_rows = solve_ensemble(groups, design, 0, refit.number, options=options)
        fitted.check_unchanged("predict_interval", on_all_rows.on_host().coef)
        return CVPlus.from_folds(fits)

    @once
    def _leverage(self) -> AnyLeverage:
        fitted = self._result()
        stored: AnyLeverage | None = fitted.leverage
        if stored is not None:
            return stored
        data = fitted.need_data("leverage")
        if not data.can_be_read_again:
            fitted.need_rows("leverage")
        return leverage_of(data, fitted.designs)

    @once
    def _moments(self, purpose: str) -> Moments:
        moments: Moments = self._result().need_data(purpose).total_moments()
        return moments

    @once
    def _moment_errors(self, purpose: str) -> MomentErrors:
        """Standard errors where rows are not in memory."""
        fitted = self._result()
        design = fitted.design
        members = fitted.members
        if not design.all_rows:
            fitted.need_rows(f"a standard error of members with max_samples={design.max_samples!r}")
        moments = self._moments(purpose)
        if members.number < np.inf:
            inverse = mean_inverse(moments.G, design.draw(0, len(members))[0], Threads())
        else:
            inverse = design.process[0].mean_inverse()
        errors = MomentErrors.from_moments(moments, inverse, fitted.scale)
        fitted.check_unchanged(purpose, errors.coef)
        return errors

    @once
    def _draw_variance(self, purpose: str) -> tuple[float, int]:
        """Variance of predictions over draws of one group of members, summed over targets, and the
        group size.
        """
        fitted = self._result()
        data = fitted.need_data(purpose)
        weights = fitted.members.weights  # empty if there are infinitely many members
        if len(weights) and np.ptp(weights) > 0:
            raise ValueError(
                "members are stacked, and another draw would get other weights. Use mixing='mean'."
            )
        n_members = len(weights) or N_PILOT_MEMBERS
        draws = [
            solve_draws(
                data,
                drawable(data, design),
                n_members,
                fitted.scale,
                options=self._options_of_fit(),
            )
            for design in fitted.designs
        ]
        target_draws = (
            draws if len(draws) > 1 else draws * self._n_targets
        )  # one design may serve all targets
        if len(weights):
            coef = np.stack([draw.coef[:, t] for t, draw in enumerate(target_draws)], axis=1)
            fitted.check_unchanged(purpose, coef, fitted.scale)
        group_size = max(draw.group for draw in draws)
        total_variance = sum(float(draw.variance[t]) for t, draw in enumerate(target_draws))
        return total_variance * n_members / group_size, group_size

    def _refits(self, purpose: str) -> Refits | None:
        """Fits of parts of the rows that repeat the choice; None if nothing was chosen."""
        return None

    # Location of the data

    @property
    def _n_targets(self) -> int:
        return 1 if self.coef_.ndim == 1 else len(self.coef_)

    def _on_host(self, X: Any) -> tuple[Any, Any]:
        """Checked rows on the host, and a function that moves results to the array library and
        device of X.
        """
        if is_dask(X):
            raise ValueError(
                f"X is of type {type(X).__name__}, but standard errors, intervals and leverages are computed"
                " in memory. Give X.compute(), or a part at a time: X.partitions[i].compute()."
            )
        space = space_of(X) if lives_elsewhere(X) else None
        if space is None:
            return validate_new_rows(self, X), lambda result: result
        return validate_new_rows(self, space.get(X)), space.put

    def _predict_on_host(self, X: Any) -> NDArray[np.float64]:
        """Predictions (rows, q) of checked rows."""
        coef = np.atleast_2d(on_host(self.coef_))
        intercept = np.atleast_1d(on_host(self.intercept_))
        return np.asarray(np.asarray(X @ coef.T) + intercept, dtype=np.float64)


def _column_std(rows: Any, moments: Moments | None, p: int) -> Array:
    """Standard deviations of all columns over the training rows, computed in blocks of columns."""
    if moments is not None:
        return np.asarray(np.sqrt(np.maximum(np.diagonal(moments.G), 0.0) / moments.weight))
    starts = range(0, p, COLUMNS_PER_BLOCK)
    blocks = (rows.submatrix(np.arange(i, min(i + COLUMNS_PER_BLOCK, p)), None).A for i in starts)
    return np.concatenate([np.sqrt((A * A).sum(axis=0) / rows.total_weight) for A in blocks])


def _covariance_times(rows: Any, moments: Moments | None, columns: list[int], b: Array) -> Array:
    """Covariance of `columns` over the training rows, times coefficients b of shape (q, columns)."""
    if moments is not None:
        return np.asarray(b @ moments.G[np.ix_(columns, columns)] / moments.weight)
    A = rows.submatrix(np.array(columns), None).A
    return np.asarray((b @ A.T) @ A / rows.total_weight)
