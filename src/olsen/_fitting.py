"""From parameters and data to averaged members: the steps that every ensemble takes when it is fitted."""

from __future__ import annotations

from functools import partial

import numpy as np

from . import _combining, _members, subsets
from ._execution import callbacks, memory, pools, tasks
from ._inputs import check_choice, resolve_seed, warn_at_the_peak
from ._moments import weighted_mean

__all__ = ["FitMembersMixin", "mean_coefficients"]


class FitMembersMixin:
    """Draw, solve, combine and store members.

    Rests on the estimator's parameters `sampling`, `design`, `scale`, `mixing`, `fit_intercept`, `solver`, `n_jobs`,
    `random_state`.
    """

    sampling: str
    design: str
    scale: float | str
    mixing: str
    fit_intercept: bool
    solver: str
    n_jobs: int | None
    random_state: object
    n_features_in_: int
    inclusion_: np.ndarray
    n_fallbacks_: int
    _design: dict
    _mean: tuple

    def _check_member_parameters(self):
        check_choice("sampling", self.sampling, ("fixed", "bernoulli"))
        check_choice("design", self.design, ("balanced", "independent"))
        check_choice("mixing", self.mixing, ("mean", "stacking"))
        check_choice("solver", self.solver, ("auto", *_members.SOLVERS))
        if self.scale != "loo" and (isinstance(self.scale, str) or not np.isfinite(self.scale)):
            raise ValueError(f"scale={self.scale!r} must be a finite number, or 'loo' to estimate it.")

    def _reset_draw(self, given, max_features, max_samples, *, n_rows=None, seed=None):
        """Remember how members are drawn: parameters may be changed on the object later, the members may not."""
        self._kept_rows = given.kept_rows
        repeats_matter = self.sampling == "bernoulli" and n_rows is None
        self._design = {
            "n_rows": given.problem.shape[0] if n_rows is None else n_rows,
            "n_columns": self.n_features_in_,
            "seed": resolve_seed(self.random_state) if seed is None else seed,
            "max_features": np.array(max_features) if np.ndim(max_features) else max_features,
            "max_samples": max_samples,
            "sampling": self.sampling,
            "design": self.design,
            "fit_intercept": self.fit_intercept,
            "distinct_rows": given.problem.distinct_rows() if repeats_matter else None,
        }

    def _draw(self, start, stop):
        memory.keep_freed_memory()
        mapper = partial(pools.map_chunks, n_threads=pools.count_threads(self.n_jobs), uses_blas=False)
        return subsets.draw_members(start=start, stop=stop, mapper=mapper, **self._design)

    def _fit_members(self, given, n_estimators, start=0, scale=None):
        """Solve members `start` to `n_estimators`, merge them with the first `start`, set the fitted attributes."""
        problem = given.problem
        features, samples = self._draw(start, n_estimators)
        self._warn_sizes(features, samples)
        solution = self._solve(problem, features, samples)
        weights, self.scale_ = self._combine(problem, n_estimators, scale)
        new = np.full(len(features), 1 / max(1, len(features))) if start else weights
        coef = mean_coefficients(features, solution, new)
        intercept = np.tensordot(new, solution.intercepts, 1)
        self._store((coef, intercept, _mean_target(problem, samples, new)), solution, features, start)
        self.weights_ = weights
        self._set_coefficients(problem.X.dtype, given.single_target)
        self._training = problem

    def _warn_sizes(self, features, samples):
        if self.sampling == "fixed" and len(features) and features.sizes.min() == features.sizes.max():
            rows = self._design["n_rows"] if samples is None else int(samples.sizes[0])
            warn_at_the_peak(int(features.sizes[0]), rows, self.fit_intercept)

    def _solve(self, problem, features, samples):
        report = callbacks.progress(self, "members", len(features))
        threads, spread = pools.count_threads(self.n_jobs), tasks.wanted(self.n_jobs)
        return _members.solve(
            problem, features, samples, solver=self.solver, n_threads=threads, report=report, spread=spread
        )

    def _combine(self, problem, n_estimators, scale):
        """Weights of all members and the scale, from leave-one-out residuals where they are asked for."""
        weights = np.full(n_estimators, 1 / n_estimators)
        self.stacking_advantage_ = None
        scale = self.scale if scale is None else scale
        if scale != "loo" and self.mixing != "stacking":
            return weights, float(scale)
        mapper = partial(pools.map_chunks, n_threads=pools.count_threads(self.n_jobs))
        features, samples = self._draw(0, n_estimators)
        residual, centre = _combining.member_residuals(problem, features, samples, mapper)
        if self.mixing == "stacking":
            seed = self._design["seed"]
            found = _combining.stacking_weights(problem, features, samples, residual, seed, mapper)
            weights, self.stacking_advantage_ = found
        if scale == "loo":
            mean, middle = (np.tensordot(weights, a, 1) for a in (residual, centre))
            scale = _combining.loo_scale(problem, mean, middle)
        return weights, float(scale)

    def _store(self, mean, solution, features, start):
        """Merge the mean of new members with that of `start` old ones."""
        k = start + len(features)
        counts = features.counts()
        fallbacks = int(solution.refitted.sum())
        if start:
            share = len(features) / k
            mean = tuple(old + share * (new - old) for old, new in zip(self._mean, mean, strict=True))
            counts = counts + np.rint(self.inclusion_ * start).astype(np.int64)
            fallbacks += self.n_fallbacks_
        self._mean = mean
        self.n_estimators_, self.n_fallbacks_ = k, fallbacks
        self.weights_, self.inclusion_ = np.full(k, 1 / k), counts / k
        self.solver_ = solution.solver

    def _set_coefficients(self, dtype, single):
        """Scale the mean member about its mean target: m + scale (x - mean_x)' b."""
        coef, intercept, mean_y = self._mean
        coef = (self.scale_ * coef).T.astype(dtype)
        intercept = (self.scale_ * intercept + (1 - self.scale_) * mean_y).astype(dtype)
        self.coef_ = coef[0] if single else coef
        self.intercept_ = (intercept[0] if single else intercept) if self.fit_intercept else 0.0

    def _forget(self, *names):
        for name in names:
            self.__dict__.pop(name, None)


def mean_coefficients(features, solution, weights):
    """Weighted mean (p, q) of the members' coefficients, summed in the members' order."""
    equal = len(weights) and weights.min() == weights.max()
    factor = weights[0] if equal else 1.0
    values = solution.values if equal else solution.values * np.repeat(weights, features.sizes)[:, None]
    columns = [np.bincount(features.indices, weights=v, minlength=features.n_items) for v in values.T]
    return factor * np.stack(columns, axis=1)


def _mean_target(problem, samples, weights):
    """Weighted mean over members of the mean target of their rows; zeros without intercept."""
    if not problem.fit_intercept:
        return np.zeros(problem.Y.shape[1])
    if samples is None:
        return weighted_mean(problem.Y, problem.weight) * (1.0 if len(weights) else 0.0)
    if not len(samples):
        return np.zeros(problem.Y.shape[1])
    weight = np.ones(len(problem.Y)) if problem.weight is None else problem.weight
    starts = samples.indptr[:-1]
    totals = np.add.reduceat((weight[:, None] * problem.Y)[samples.indices], starts, axis=0)
    return weights @ (totals / np.add.reduceat(weight[samples.indices], starts)[:, None])
