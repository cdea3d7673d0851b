"""Intervals and standard errors of a fitted ensemble: which data they are computed from, and how."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from .._engines.dask import is_dask
from .._engines.determinantal import drawable
from .._engines.device import lives_elsewhere
from .._engines.engine import NeedsRows, Refit
from .._engines.memory import Memory, Stream
from .._execution.arrays import space_of
from .._execution.threads import Threads
from .._moments.moments import Moments
from .._tuning.fold_data import SEED as FOLD_SEED
from .error_estimates import CVPlus, Jackknife, MomentErrors, Refits, mean_inverse, solve_draws
from .inputs import check_arguments, on_host, options_of, validate_new_rows

Method = TypeVar("Method", bound=Callable[..., Any])
Array = NDArray[np.float64]

FOLDS_IN_MEMORY, FOLDS = 10, 5
MOST_ROWS = 200_000  # whose errors make intervals: their quantiles are good to a tenth of a per cent
PILOT = 200  # members that tell how much infinitely many vary one by one


def once(method: Method) -> Method:
    """Decorator for what is computed from a fit the first time it is asked for, and kept with its result."""

    @wraps(method)
    def found(self: Any, *args: Any) -> Any:
        kept = self._result().computed
        if method.__name__ not in kept:
            kept[method.__name__] = method(self, *args)
        return kept[method.__name__]

    return found  # type: ignore[return-value]


class UncertaintyMixin(BaseEstimator):
    """Standard errors and intervals from the result of a fit; what is computed is kept with it."""

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
            Lower and upper ends; infinite where there are too few training rows for the coverage. The lower end is
            never above the upper one: where the order statistics of a low coverage cross, they are exchanged, which
            covers more.

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
        check_arguments("predict_interval", coverage=coverage, method=method)
        why_not = self._why_no_jackknife()
        if method == "auto":
            method = "jackknife+" if not why_not and self._jackknife().plus_is_cheap else "cv+"
        elif method.startswith("jackknife") and why_not:
            kind = NeedsRows if fitted.rows is None else ValueError
            raise kind(f"method={method!r} leaves out rows one at a time, but {why_not}.")
        rows, back = self._on_host(X)
        if method == "cv+":
            ends = self._cv_plus().interval(rows, coverage)
        elif method == "normal":
            y, error = self._predict_on_host(rows), self._error("predict_interval(method='normal')")
            half = NormalDist().inv_cdf((1 + coverage) / 2) * np.sqrt(error)
            ends = np.stack([y - half, y + half], axis=2)
        else:
            ends = self._jackknife().interval(rows, self._predict_on_host(rows), coverage, method == "jackknife+")
        ends = np.sort(ends, axis=2)
        intervals: NDArray[np.float64] = back(ends[:, 0] if self.coef_.ndim == 1 else ends)
        return intervals

    def _why_no_jackknife(self) -> str:
        """Why rows are not left out one at a time, and what to do; empty where they can be."""
        fitted = self._result()
        if fitted.n_groups is not None:
            why = "the model was fitted with groups, whose other rows would stay"
            return f"{why}. Use method='cv+', which leaves out the folds of whole groups that the fit used"
        if fitted.folds is not None:
            why = "schemes and their shares were chosen with these rows in"
            return f"{why}. Use method='cv+', in whose folds the choice was made"
        if fitted.rows is not None:
            return ""
        other = "" if fitted.data is None or isinstance(fitted.data, Stream) else "; method='cv+' reads the data again"
        return f"predict_interval has no training rows: {fitted.why_no_rows}{other}"

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
        check_arguments("members_needed", share=share)
        variance, group = self._draw_variance("members_needed")
        error = float(np.sum(self._error("members_needed")))
        if variance > 0 and share * error <= 0:
            raise ValueError(f"no number of members varies by as little as share={share!r} of an error of {error:.3g}.")
        return group * max(1, math.ceil(variance / (share * error))) if variance > 0 else group

    def coef_std(self) -> NDArray[np.float64]:
        """Compute standard errors of the *expected* coefficients.

        They say how much coefficients would vary over training sets. Shrinkage is not in them: they do not say how far
        a coefficient is from the truth.

        Returns
        -------
        std : ndarray of shape (n_features,) or (n_targets, n_features)
            Infinite where rows are too few to tell: for a tuned model of two rows, or three with an intercept, and for
            members of data in blocks, on a cluster or on a device that fit every row and leave no residual.

        Notes
        -----
        Status: asymptotic; with fixed sizes below the number of rows within 3 % of simulation, an upper bound (40 % too
        large at 30 x 60) for members that fit every row. In memory errors may have any variance; of data in blocks, on
        a cluster or on a device they are taken to have one. A column that differs from a constant in a few rows only
        rests on the residuals of these rows.

        A tuned model repeats the whole choice on 30 parts of the rows, which takes the time of as many fits, once
        (status: heuristic; see the user guide for how close). A signal at the edge of being selected is hard for every
        method.
        """
        std = self._standard_errors("coef_std").coef_std()
        return np.asarray(std[:, 0] if self.coef_.ndim == 1 else std.T)

    def coef_interval(self, coverage: float = 0.9) -> NDArray[np.float64]:
        """Intervals for the expected coefficients: ``coef_`` plus and minus a normal quantile of :meth:`coef_std`.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability that the expected coefficient of as many rows falls inside; the truth, from which members are
            shrunk, falls inside less often.

        Returns
        -------
        interval : ndarray of shape (n_features, 2) or (n_targets, n_features, 2)
            Lower and upper ends. Status: asymptotic, see :meth:`coef_std`.
        """
        check_arguments("coef_interval", coverage=coverage)
        coef, half = on_host(self.coef_), NormalDist().inv_cdf((1 + coverage) / 2) * self.coef_std()
        return np.stack([coef - half, coef + half], axis=-1)

    def _standard_errors(self, what: str) -> Refits | Jackknife | MomentErrors:
        """By refits of a tuned model, from the rows where they are in memory, or from moments."""
        refits = self._refits(what)
        if refits is not None:
            return refits
        return self._moment_errors(what) if self._result().rows is None else self._jackknife()

    def _effects(self, groups: list[list[int]], errors: bool = True, moments: Moments | None = None) -> Array:
        """Effects of groups of columns and their standard errors, (2, groups), or (2, targets, groups).

        Without `errors` these are NaN: for a tuned model they take thirty fits. `moments` stand for the training rows.

        The standard deviation over training rows of the group's part of the predictions, s = sqrt(b'Cb) with C the
        covariance of its columns; that of a single column has the sign of its coefficient. The gradient of s is Cb / s.
        """
        coef, fitted = np.atleast_2d(on_host(self.coef_)), self._result()
        rows = None if fitted.rows is None else fitted.need_rows("the size of effects")
        moments = self._moments("effects") if rows is None and moments is None else moments
        known = self._standard_errors("effects") if errors else None
        single = np.atleast_2d(self.coef_std()) if errors else np.full_like(coef, np.nan)
        found = np.full((2, len(coef), len(groups)), np.nan)
        spread = _spread(rows, moments, coef.shape[1])
        for g, own in enumerate(groups):
            if len(own) == 1:
                found[:, :, g] = spread[own] * coef[:, own[0]], spread[own] * single[:, own[0]]
                continue
            slope = _covariance_times(rows, moments, own, coef[:, own])  # C b, (q, columns)
            size = np.sqrt(np.maximum(np.sum(coef[:, own] * slope, axis=1), 0.0))
            found[0, :, g] = size
            if known is not None:
                gradient = np.zeros_like(coef)
                gradient[:, own] = slope / np.where(size > 0, size, 1.0)[:, None]
                found[1, :, g] = np.diagonal(known.std(gradient, 0.0))
        return found[:, 0] if self.coef_.ndim == 1 else found

    # Of new rows

    def _predict_with_std(self, X: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Predictions and standard errors of the expected prediction."""
        rows, back = self._on_host(X)
        y, std = self._predict_on_host(rows), self._standard_errors("predict(return_std=True)").std(rows)
        return (back(y[:, 0]), back(std[:, 0])) if self.coef_.ndim == 1 else (back(y), back(std))

    def _error(self, what: str) -> Array:
        """Mean squared error of prediction for each target: as tuning found it where there is one target."""
        tuned, fitted = getattr(self, "best_score_", -math.inf), self._result()
        if self.coef_.ndim == 1 and math.isfinite(tuned):
            return np.full(1, -tuned)
        if fitted.rows is not None and fitted.folds is None:
            return np.asarray(np.mean(self._jackknife().residuals ** 2, axis=0))
        fitted.need_data(what)
        return self._cv_plus().mse

    def _keep_errors(self, errors: list[Array]) -> None:
        """Keep errors of some left-out rows of each fold with the result of a fit that was made without them."""
        folds = self._result().folds or []
        kept = [fit._replace(residual=own) for fit, own in zip(folds, errors, strict=True)]
        self._fitted = replace(self._result(), folds=kept)

    # Computed once

    @once
    def _jackknife(self) -> Jackknife:
        """The ensemble without each of its rows; these must be in memory."""
        return Jackknife(self._result(), options_of(self).quietly)

    @once
    def _cv_plus(self) -> CVPlus:
        """The ensemble without folds of rows: those in which the mixture was chosen, those of `cv`, or random ones."""
        fitted = self._result()
        what, fits, design = "predict_interval(method='cv+')", fitted.folds, fitted.design
        if fits is None:
            return self._refit_folds(what)
        if fits[0].residual is None:  # of data that were summed, errors are read
            data = fitted.need_data(what)
            return CVPlus.from_folds(data.errors_of(fits, FOLD_SEED, MOST_ROWS, design.n_given or design.n_rows))
        repeated = sum(len(fit.residual) for fit in fits) > design.n_rows and fitted.n_groups is None
        return CVPlus.from_folds(fits, design.n_rows if repeated else fitted.n_groups)  # every row is in several folds

    def _refit_folds(self, what: str) -> CVPlus:
        fitted = self._result()
        data, design, members = fitted.need_data(what), fitted.design, fitted.members
        in_memory, refit = isinstance(data, Memory), Refit(design, np.asarray(members.weights), fitted.scale)
        if isinstance(data, Stream) or (in_memory and fitted.splits is not None):
            fitted.need_rows("predict_interval")
            return CVPlus.from_folds(data.left_out_of(list(fitted.splits), refit), fitted.n_groups)
        whole, fits = data.left_out(refit, FOLDS_IN_MEMORY if in_memory else FOLDS, design.seed, MOST_ROWS)
        n = sum(len(np.asarray(fit.residual)) for fit in fits)
        if design.n_rows <= MOST_ROWS and n != design.n_rows:
            raise NeedsRows(f"the data gave {design.n_rows} rows when they were fitted and {n} now. Fit again.")
        fitted.check_unchanged("predict_interval", whole.on_host().coef)
        return CVPlus.from_folds(fits)

    @once
    def _moments(self, what: str) -> Moments:
        moments: Moments = self._result().need_data(what).moments()
        return moments

    @once
    def _moment_errors(self, what: str) -> MomentErrors:
        """Standard errors where rows are not in memory."""
        fitted = self._result()
        design, members = fitted.design, fitted.members
        if not design.all_rows:
            fitted.need_rows(f"a standard error of members with max_samples={design.max_samples!r}")
        moments = self._moments(what)
        if members.number < np.inf:
            inverse = mean_inverse(moments.G, design.draw(0, len(members))[0], Threads())
        else:
            inverse = design.process[0].mean_inverse()
        errors = MomentErrors.from_moments(moments, inverse, fitted.scale)
        fitted.check_unchanged(what, errors.coef)
        return errors

    @once
    def _draw_variance(self, what: str) -> tuple[float, int]:
        """Variance of predictions over draws of one group of members, summed over targets, and members in a group."""
        fitted = self._result()
        data, members, count = (
            fitted.need_data(what),
            fitted.members,
            len(fitted.members) or PILOT,
        )  # of infinitely many, some
        if len(members) and np.ptp(members.weights) > 0:
            raise ValueError("members are stacked, and another draw would get weights of its own. Use mixing='mean'.")
        draws = [solve_draws(data, drawable(data, design), count, fitted.scale) for design in fitted.designs]
        of_targets = draws if len(draws) > 1 else draws * self._n_targets  # whether or not they have their own schemes
        if len(members):
            coef = np.stack([own.coef[:, t] for t, own in enumerate(of_targets)], axis=1)
            fitted.check_unchanged(what, coef, fitted.scale)
        group = max(own.group for own in draws)
        return sum(float(own.variance[t]) for t, own in enumerate(of_targets)) * count / group, group

    def _refits(self, what: str) -> Refits | None:
        """Fits of parts of the rows that repeat the choice; None where nothing was chosen."""
        return None

    # Where data are

    @property
    def _n_targets(self) -> int:
        return 1 if self.coef_.ndim == 1 else len(self.coef_)

    def _on_host(self, X: Any) -> tuple[Any, Any]:
        """Checked rows on the host, and what brings results back to where they came from."""
        if is_dask(X):
            raise ValueError(
                f"X is of type {type(X).__name__}, but standard errors and intervals are computed in memory. Give "
                f"X.compute(), or a part at a time: X.partitions[i].compute()."
            )
        space = space_of(X) if lives_elsewhere(X) else None
        if space is None:
            return validate_new_rows(self, X), lambda found: found
        return validate_new_rows(self, space.get(X)), space.put

    def _predict_on_host(self, X: Any) -> NDArray[np.float64]:
        """Predictions (rows, q) of checked rows."""
        coef, intercept = np.atleast_2d(on_host(self.coef_)), np.atleast_1d(on_host(self.intercept_))
        return np.asarray(np.asarray(X @ coef.T) + intercept, dtype=np.float64)


def _spread(rows: Any, moments: Moments | None, p: int) -> Array:
    """Standard deviations of all columns of the training rows, some columns at a time."""
    if moments is not None:
        return np.asarray(np.sqrt(np.maximum(np.diagonal(moments.G), 0.0) / moments.weight))
    parts = (rows.submatrix(np.arange(i, min(i + 256, p)), None).A for i in range(0, p, 256))
    return np.concatenate([np.sqrt((A * A).sum(axis=0) / rows.total_weight) for A in parts])


def _covariance_times(rows: Any, moments: Moments | None, own: list[int], b: Array) -> Array:
    """Covariance of some columns of the training rows, times coefficients, (q, columns)."""
    if moments is not None:
        return np.asarray(b @ moments.G[np.ix_(own, own)] / moments.weight)
    A = rows.submatrix(np.array(own), None).A
    return np.asarray((b @ A.T) @ A / rows.total_weight)
