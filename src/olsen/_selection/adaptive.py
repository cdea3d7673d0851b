"""Probabilities that follow the signal, used only where cross-validation prefers them.

Leave-one-out residuals of an ensemble whose subsets follow y mean nothing, so candidates after 1 and 3 steps meet the
better of uniform and ridge-matched probabilities in 5 folds that repeat every step (15 steps were tried: no better).
They must win by two standard errors of the paired differences, because on dense signals they cost more than they gain
(with one, two of 17 real sets lost a little).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import _members
from .._members.mean import member_sum
from .._members.problem import Problem, Solution
from .._moments import weighted_mean
from ..subsets import Subsets, antithetic_pairs, draw
from .curve import PairSums, RiskCurve
from .inclusion import RidgeFamily, adapted_probabilities, brought_to
from .paths import Paths

__all__ = ["Adapted", "judge"]

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

FOLDS = 5
STEPS = (1, 3)  # of adaptation that are tried
GATE = 2.0  # standard errors by which adaptive probabilities must win
MEMBERS = 60  # in a fold


@dataclass(frozen=True)
class Adapted:
    """Probabilities that have won, and their risk curve of one size, from the folds."""

    probabilities: Array
    curve: RiskCurve


@dataclass(frozen=True)
class _Trial:
    """An ensemble on some of the rows."""

    features: Subsets
    solution: Solution
    coef: Array  # (p, q) mean
    error: float  # by generalised cross-validation: it only sets the level at which coefficients count as noise
    probabilities: Array | None


def judge(
    problem: Problem,
    uniform: RiskCurve,
    curve_of: Callable[[Problem], RiskCurve],
    paths: Paths,
    *,
    with_ridge: bool,
    sizes: Indices | None,
) -> Adapted | None:
    """Adaptive probabilities where cross-validation prefers them by two standard errors, None otherwise.

    `uniform` is the curve on all rows, ``curve_of(problem)`` makes it on some of them. Where `sizes` are given,
    probabilities sum to the nearest of them.
    """
    n = problem.shape[0]
    fold_of = np.random.default_rng(paths.seed).permutation(n) % min(FOLDS, n)
    errors: dict[str, Array] = {name: np.empty(n) for name in ("base", *map(str, STEPS))}
    pairs = {str(steps): np.empty((3, n)) for steps in STEPS}
    for f in range(fold_of.max() + 1):
        train, test = np.flatnonzero(fold_of != f), np.flatnonzero(fold_of == f)
        part = problem.take(train)
        curve = curve_of(part)
        start = _fit_size(part, _best_size(curve), paths)
        base = _ridge_if_better(part, curve, paths) if with_ridge else None
        errors["base"][test] = _squared_errors(problem, part, test, (base or start).coef)
        for steps, trial in _adapt(part, start, paths, STEPS, sizes).items():
            errors[str(steps)][test] = _squared_errors(problem, part, test, trial.coef)
            pairs[str(steps)][:, test] = _pair_rows(problem, part, test, trial)
    best = min(map(str, STEPS), key=lambda name: errors[name].mean())
    gain = errors["base"] - errors[best]
    if gain.mean() <= GATE * gain.std(ddof=1) / np.sqrt(n):
        return None
    steps = int(best)
    found = _adapt(problem, _fit_size(problem, _best_size(uniform), paths), paths, (steps,), sizes)[steps].probabilities
    assert found is not None
    weight = np.ones(n) if problem.weight is None else problem.weight
    own, same, other = pairs[best][:, None, :]
    size = np.array([max(1, round(float(found.sum())))])
    empty = np.zeros((1, 0, problem.Y.shape[1]))
    p = problem.shape[1]
    return Adapted(found, RiskCurve.from_pairs(size, p, paths.design, weight, own, same, other, empty))


def _best_size(curve: RiskCurve) -> int:
    return int(curve.sizes[np.argmin(curve.mse(MEMBERS))])


def _ridge_if_better(problem: Problem, curve: RiskCurve, paths: Paths) -> _Trial | None:
    """Ridge-matched members, unless uniform ones have the smaller leave-one-out error."""
    family = RidgeFamily.of(problem)
    size = round(family.best_size)
    if family.best_error > float(curve.mse(MEMBERS).min()):
        return None
    return _fit_law(problem, family.probabilities(max(1, size)), paths)


def _fit_size(problem: Problem, size: int, paths: Paths) -> _Trial:
    features = draw(problem.shape[1], MEMBERS, seed=paths.seed, design=paths.design, size=size)
    return _fit(problem, features, None)


def _fit_law(problem: Problem, probabilities: Array, paths: Paths) -> _Trial:
    return _fit(problem, antithetic_pairs(probabilities, MEMBERS // 2, seed=paths.seed), probabilities)


def _fit(problem: Problem, features: Subsets, probabilities: Array | None) -> _Trial:
    solution = _members.solve(problem, features, None)
    coef = member_sum(features, solution.values) / MEMBERS
    rows = np.arange(len(problem.Y))
    df = (features.sizes.mean() + problem.fit_intercept) / len(rows)
    error = float(_squared_errors(problem, problem, rows, coef).mean() / (1 - df) ** 2)
    return _Trial(features, solution, coef, error, probabilities)


def _adapt(
    problem: Problem, start: _Trial, paths: Paths, stops: tuple[int, ...], sizes: Indices | None
) -> dict[int, _Trial]:
    """The ensembles after each number of steps in `stops`."""
    found, trial = {}, start
    for step in range(1, max(stops) + 1):
        chance = adapted_probabilities(problem, trial.coef, trial.error)
        if sizes is not None:
            chance = brought_to(chance, int(sizes[np.argmin(np.abs(sizes - chance.sum()))]))
        trial = _fit_law(problem, chance, paths)
        if step in stops:
            found[step] = trial
    return found


def _squared_errors(problem: Problem, train: Problem, test: Indices, coef: Array) -> Array:
    """Weighted squared errors at the test rows, intercepts from the training means, averaged over targets."""
    error = np.mean((problem.Y[test] - _predictions(problem, train, test, coef)) ** 2, axis=1)
    found: Array = error if problem.weight is None else error * problem.weight[test] / problem.weight.mean()
    return found


def _predictions(problem: Problem, train: Problem, test: Indices, coef: Array) -> Array:
    fitted = np.asarray(problem.X[test] @ coef)
    if problem.fit_intercept:
        fitted = fitted + weighted_mean(train.Y, train.weight) - weighted_mean(train.X, train.weight) @ coef
    return fitted


def _pair_rows(problem: Problem, train: Problem, test: Indices, trial: _Trial) -> Array:
    """A, S and C of the trial's members at the test rows, (3, rows), averaged over targets."""
    sums = PairSums()
    residuals = []
    for i, columns in enumerate(trial.features):
        coef = np.zeros((problem.shape[1], problem.Y.shape[1]))
        coef[columns] = trial.solution.values[trial.features.indptr[i] : trial.features.indptr[i + 1]]
        residuals.append((problem.Y[test] - _predictions(problem, train, test, coef))[None])
    sums.add(list(zip(residuals[::2], residuals[1::2], strict=True)), np.ones(len(test)))
    return np.stack([mean[0].mean(axis=1) for mean in sums.pair_means()])
