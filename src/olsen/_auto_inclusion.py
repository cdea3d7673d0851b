"""Which inclusion probabilities to use, judged by cross-validation that repeats every step inside the folds.

Leave-one-out residuals of an ensemble whose subsets follow y mean nothing, so candidates meet in 5 folds: uniform
probabilities with the size tuned by leave-one-out, ridge-matched ones with their penalty tuned by leave-one-out, and
adaptive ones after 1, 3 and, if these were not worse, 15 steps. Uniform or ridge-matched: the smaller error wins.
Adaptive ones must beat that by one standard error of the paired differences, because on dense signals they cost more
than they gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from . import _members, _selection, subsets
from ._inclusion import adapted_probabilities, ridge_matched_probabilities
from ._members.problem import Problem
from ._moments import weighted_mean

__all__ = ["Inclusion", "choose_inclusion"]

FOLDS = 5
FIRST_STEPS, ALL_STEPS = (1, 3), (15,)
GATE = 1.0
MEMBERS = 60  # in a fold


@dataclass(frozen=True)
class Inclusion:
    """The choice: probabilities None means uniform; scale None leaves it to leave-one-out over the members."""

    kind: str
    probabilities: NDArray | None
    scale: float | None
    mse: float


def choose_inclusion(problem: Problem, kind: str, estimator, paths, uniform_size: int) -> Inclusion:
    """Probabilities for ``inclusion=kind``; `uniform_size` is the size tuned with uniform ones."""
    if kind == "ridge":
        chance, _, error = ridge_matched_probabilities(problem)
        return Inclusion("ridge", chance, None, error)
    trial = _Trial(estimator, paths)
    errors = trial.cross_validate(problem, partial(trial.candidates, with_ridge=kind == "auto"))
    base, adaptive = _best(errors, "uniform", "ridge"), _best(errors, "adaptive")
    if errors[adaptive].mean() < errors[base].mean():
        errors |= trial.cross_validate(problem, trial.more_steps)
        adaptive = _best(errors, "adaptive")
    gain = errors[base] - errors[adaptive]
    mse = {name: float(e.mean()) for name, e in errors.items()}
    if gain.mean() > GATE * gain.std(ddof=1) / np.sqrt(len(gain)):
        steps = int(adaptive.removeprefix("adaptive"))
        coef, error = trial.uniform(problem, uniform_size)
        chance = trial.adapt(problem, coef, error, (steps,))[steps][0]
        return Inclusion("adaptive", chance, 1.0, mse[adaptive])
    if base == "ridge":
        chance, _, _ = ridge_matched_probabilities(problem)
        return Inclusion("ridge", chance, None, mse["ridge"])
    return Inclusion("uniform", None, None, mse["uniform"])


def _best(errors: dict[str, NDArray], *kinds: str) -> str:
    """Name of the candidate of these kinds with the smallest mean error."""
    return min((name for name in errors if name.startswith(kinds)), key=lambda name: errors[name].mean())


@dataclass(frozen=True)
class _Trial:
    """Candidates fitted on some rows."""

    estimator: object
    paths: _selection.Paths

    def cross_validate(self, problem: Problem, candidates) -> dict[str, NDArray]:
        """Squared errors of ``candidates(training problem) -> {name: coef}`` at every row, weighted."""
        n = problem.shape[0]
        fold_of = np.random.default_rng(self.paths.seed).permutation(n) % min(FOLDS, n)
        errors: dict[str, NDArray] = {}
        for f in range(fold_of.max() + 1):
            train, test = np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)
            for name, coef in candidates(problem.take(train)).items():
                errors.setdefault(name, np.empty(n))[test] = _squared_errors(problem, train, test, coef)
        return errors

    def candidates(self, problem: Problem, with_ridge: bool) -> dict[str, NDArray]:
        """Coefficients (p, q) of uniform, ridge-matched and, after few steps, adaptive ensembles."""
        coef, error = self.tuned_uniform(problem)
        found = {"uniform": coef}
        if with_ridge:
            found["ridge"] = self.fit(problem, {"probabilities": ridge_matched_probabilities(problem)[0]})[0]
        for steps, (_, adapted) in self.adapt(problem, coef, error, FIRST_STEPS).items():
            found[f"adaptive{steps}"] = adapted
        return found

    def more_steps(self, problem: Problem) -> dict[str, NDArray]:
        """Adaptive ensembles after many steps."""
        found = self.adapt(problem, *self.tuned_uniform(problem), ALL_STEPS)
        return {f"adaptive{steps}": adapted for steps, (_, adapted) in found.items()}

    def tuned_uniform(self, problem: Problem) -> tuple[NDArray, float]:
        sizes = self.estimator._sizes(problem.shape[1], problem.shape[0])  # type: ignore[attr-defined]
        curve = _selection.loo_curve(problem, sizes, self.paths)
        return self.uniform(problem, int(curve.sizes[np.argmin(curve.mse(MEMBERS))]))

    def uniform(self, problem: Problem, size: int) -> tuple[NDArray, float]:
        return self.fit(problem, {"size": size})

    def fit(self, problem: Problem, law: dict) -> tuple[NDArray, float]:
        """Mean coefficients of an ensemble and its error by generalised cross-validation.

        The error only sets the level at which coefficients count as noise; leave-one-out would cost far more.
        """
        features = subsets.draw(problem.shape[1], MEMBERS, seed=self.paths.seed, design=self.paths.design, **law)
        solution = _members.solve(problem, features, None)
        coef = np.stack([np.bincount(features.indices, v, features.n_items) for v in solution.values.T], 1) / MEMBERS
        rows = np.arange(len(problem.Y))
        df = (features.sizes.mean() + problem.fit_intercept) / len(rows)
        return coef, float(_squared_errors(problem, rows, rows, coef).mean() / (1 - df) ** 2)

    def adapt(self, problem: Problem, coef: NDArray, error: float, stops) -> dict[int, tuple[NDArray, NDArray]]:
        """Probabilities and coefficients after each number of steps in `stops`."""
        found = {}
        for step in range(1, max(stops) + 1):
            chance = adapted_probabilities(problem, coef, error)
            coef, error = self.fit(problem, {"probabilities": chance})
            if step in stops:
                found[step] = (chance, coef)
        return found


def _squared_errors(problem: Problem, train, test, coef) -> NDArray:
    """Weighted squared errors at the test rows, intercepts from the training means, averaged over targets."""
    fitted = np.asarray(problem.X[test] @ coef)
    if problem.fit_intercept:
        rest = problem.take(train)
        fitted = fitted + weighted_mean(rest.Y, rest.weight) - weighted_mean(rest.X, rest.weight) @ coef
    error = np.mean((problem.Y[test] - fitted) ** 2, axis=1)
    return error if problem.weight is None else error * problem.weight[test] / problem.weight.mean()
