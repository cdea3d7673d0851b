"""Leave-one-out from a sample of the rows, against all of them."""

from dataclasses import replace

import numpy as np
import pytest

from olsen import OLSEnsembleRegressorCV
from olsen._execution.threads import Sharing
from olsen._members.problem import Problem
from olsen._selection import paths, sampled_rows
from olsen._selection.folds import moment_gcv_curve

HOW = replace(paths.Paths(0, "balanced", Sharing()), max_batches=3)


def elliptical(seed, n, p, q=1):
    """Rows of very different lengths, errors that grow with them: GCV takes the leverages for equal."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.standard_t(4, (n, 1)) + 3.0
    noise = rng.standard_normal((n, q)) * (1 + np.abs(X - 3).mean(axis=1, keepdims=True))
    return X, X @ rng.standard_normal((p, q)) / np.sqrt(p) + noise


def all_rows(problem, sizes, scale=1.0):
    curve = HOW.nested(problem.shape[1], sizes, paths.leave_one_out(problem, sizes, HOW))
    if scale == 1.0:
        return curve
    weight = np.ones(len(problem.Y)) if problem.weight is None else problem.weight
    share = (weight / weight.sum())[:, None]
    mean = (weight @ problem.Y / weight.sum() - share * problem.Y) / (1 - share) if problem.fit_intercept else 0.0
    return curve.scaled(scale, problem.Y - mean)


@pytest.mark.parametrize("scale", [1.0, 0.8])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_sample_of_all_rows_is_leave_one_out(scale, weighted, fit_intercept, seed, monkeypatch):
    """Dependent columns and a dummy that occurs once included; the control variate must cancel."""
    X, Y = elliptical(seed, 150, 12, 2)
    X[:, 3], X[:, 5] = 2 * X[:, 1], 0.0
    X[40, 5] = 1.0
    weight = np.random.default_rng(seed).uniform(0.3, 3.0, 150) if weighted else None
    problem, sizes = Problem(X, Y, weight, fit_intercept), np.arange(1, 13)
    monkeypatch.setattr(sampled_rows, "ROWS", 150)
    found = sampled_rows.sampled_leave_one_out(problem, sizes, HOW, scale)
    expected = all_rows(problem, sizes, scale)
    kept = len(expected.sizes)
    for k in (20, np.inf):
        np.testing.assert_allclose(found.curve.mse(k)[:kept], expected.mse(k), rtol=1e-7)


def test_the_sample_tells_what_gcv_misses(monkeypatch):
    """Within four of its own standard errors of all rows, at every size, for several samples; GCV is further off."""
    monkeypatch.setattr(sampled_rows, "ROWS", 300)
    monkeypatch.setattr(sampled_rows, "FAR", 300)
    X, Y = elliptical(0, 3000, 60)
    problem, sizes = Problem(X, Y), np.array([5, 15, 30, 45, 60])
    expected = all_rows(problem, sizes).mse(np.inf)
    sizes = sizes[: len(expected)]
    rough = moment_gcv_curve(problem.moments, sizes, HOW, 1.0).mse(np.inf)
    errors = []
    for seed in range(12):
        found = sampled_rows.sampled_leave_one_out(problem, sizes, replace(HOW, seed=seed), 1.0)
        # members differ with the seed, so compare with all rows of the same members
        same = replace(HOW, seed=seed)
        full = same.nested(60, sizes, paths.leave_one_out(problem, sizes, same)).mse(np.inf)
        errors.append((found.curve.mse(np.inf)[: len(full)] - full) / found.sampling_error[: len(full)])
    assert np.abs(errors).max() < 6  # of 60 correlated standard scores with heavy tails
    assert abs(np.mean(errors)) < 1.5
    assert (expected - rough)[-1] > 0  # GCV underestimates


def test_many_rows_are_judged_by_a_sample(seed):
    X, Y = elliptical(seed, 12_000, 10)
    model = OLSEnsembleRegressorCV(50, random_state=seed).fit(X, Y[:, 0])
    again = OLSEnsembleRegressorCV(50, random_state=seed, n_jobs=2).fit(X, Y[:, 0])
    assert model.criterion_ == "loo" and model.loo_prediction_.size == 0
    np.testing.assert_array_equal(model.cv_results_["mse"], again.cv_results_["mse"])
    rest = OLSEnsembleRegressorCV(50, random_state=seed, cv=5).fit(X, Y[:, 0])
    best = rest.cv_results_["mse"].min()
    at = np.flatnonzero(rest.cv_results_["size"] == model.max_features_)[0]
    assert rest.cv_results_["mse"][at] <= best + 2 * rest.cv_results_["standard_error"][at]
