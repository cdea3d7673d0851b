"""Which inclusion probabilities to use.

**Uniform or ridge-matched**: by leave-one-out error. Both errors are exact for what they describe (an ensemble of given
size; ridge regression, which the matched ensemble mimics) and come almost free. Uniform probabilities must win by half
a standard error of the paired differences: where the two are level, ridge-matched ones are the safer choice on
collinear columns (over 17 real sets, any threshold between a quarter and one standard error served equally well).

**Adaptive**: leave-one-out residuals of an ensemble whose subsets follow y mean nothing, so candidates after 1 and 3
steps meet the better of the former two in 5 folds that repeat every step (15 steps were tried: no better). They must
win by two standard errors of the paired differences, because on dense signals they cost more than they gain (with one,
two of 17 real sets lost a little).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import _members, _selection, subsets
from ._inclusion import adapted_probabilities, ridge_match
from ._members.problem import Problem
from ._moments import weighted_mean

__all__ = ["Inclusion", "adaptive_or", "ridge_matched", "uniform_or_ridge"]

FOLDS = 5
STEPS = (1, 3)  # of adaptation that are tried
GATE = 2.0  # standard errors by which adaptive probabilities must win
TIE = 0.5  # standard errors by which uniform ones must win over ridge-matched ones
MEMBERS = 60  # in a fold


@dataclass(frozen=True)
class Inclusion:
    """The choice: probabilities None means uniform; residual None means that leave-one-out does not apply."""

    kind: str
    probabilities: NDArray | None
    residual: NDArray | None
    mse: float


def uniform_or_ridge(problem: Problem, uniform_residual: NDArray, uniform_mse: float) -> Inclusion:
    """Uniform probabilities where their leave-one-out error is clearly the smaller one, ridge-matched otherwise."""
    match = ridge_match(problem)
    mse = _mean_square(problem, match.residual)
    gain = np.mean(match.residual**2 - uniform_residual**2, axis=1)
    if mse - uniform_mse > TIE * gain.std(ddof=1) / np.sqrt(len(gain)):
        return Inclusion("uniform", None, uniform_residual, uniform_mse)
    return Inclusion("ridge", match.probabilities, match.residual, mse)


def ridge_matched(problem: Problem) -> Inclusion:
    """Ridge-matched probabilities, whatever uniform ones would give."""
    match = ridge_match(problem)
    return Inclusion("ridge", match.probabilities, match.residual, _mean_square(problem, match.residual))


def adaptive_or(base: Inclusion, problem: Problem, size: int, estimator, paths, *, with_ridge: bool) -> Inclusion:
    """Adaptive probabilities where cross-validation prefers them by two standard errors, `base` otherwise.

    `size` is the uniform one that adaptation starts from.
    """
    trial = _Trial(estimator, paths, with_ridge)
    errors = trial.cross_validate(problem)
    adaptive = _best_adaptive(errors)
    gain = errors["base"] - errors[adaptive]
    if gain.mean() <= GATE * gain.std(ddof=1) / np.sqrt(len(gain)):
        return base
    steps = int(adaptive.removeprefix("adaptive"))
    coef, error = trial.fit(problem, {"size": size})
    chance = trial.adapt(problem, coef, error, (steps,))[steps][0]
    return Inclusion("adaptive", chance, None, float(errors[adaptive].mean()))


def _best_adaptive(errors: dict[str, NDArray]) -> str:
    return min((name for name in errors if name != "base"), key=lambda name: errors[name].mean())


def _mean_square(problem: Problem, residual: NDArray) -> float:
    return float(np.average(np.mean(residual**2, axis=1), weights=problem.weight))


@dataclass(frozen=True)
class _Trial:
    """Candidates fitted on some rows."""

    estimator: object
    paths: _selection.Paths
    with_ridge: bool

    def cross_validate(self, problem: Problem) -> dict[str, NDArray]:
        """Squared errors of every candidate at every row, weighted, by the fold that left the row out."""
        n = problem.shape[0]
        fold_of = np.random.default_rng(self.paths.seed).permutation(n) % min(FOLDS, n)
        errors: dict[str, NDArray] = {}
        for f in range(fold_of.max() + 1):
            train, test = np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)
            for name, coef in self.candidates(problem.take(train)).items():
                errors.setdefault(name, np.empty(n))[test] = _squared_errors(problem, train, test, coef)
        return errors

    def candidates(self, problem: Problem) -> dict[str, NDArray]:
        """Coefficients (p, q) of the better of uniform and ridge-matched, and of adaptive ones after few steps."""
        size, curve = self.tuned(problem)
        coef, error = self.fit(problem, {"size": size})
        found = {f"adaptive{steps}": adapted for steps, (_, adapted) in self.adapt(problem, coef, error, STEPS).items()}
        found["base"] = coef
        if self.with_ridge:
            at = int(np.argmin(curve.mse(MEMBERS)))
            base = uniform_or_ridge(problem, curve.residual[at], float(curve.mse(MEMBERS)[at]))
            if base.probabilities is not None:
                found["base"] = self.fit(problem, {"probabilities": base.probabilities})[0]
        return found

    def tuned(self, problem: Problem) -> tuple[int, _selection.RiskCurve]:
        """Size with uniform probabilities by leave-one-out, and the curve."""
        sizes = self.estimator._sizes(problem.shape[1], problem.shape[0])  # type: ignore[attr-defined]
        curve = _selection.loo_curve(problem, sizes, self.paths)
        return int(curve.sizes[np.argmin(curve.mse(MEMBERS))]), curve

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
