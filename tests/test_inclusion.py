"""Laws of inclusion: ridge-matched sizes against scikit-learn's ridge regression, adaptive ones where columns depend on
each other, and one choice wherever the rows are."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV, PredefinedSplit

from olsen import OLSEnsembleRegressorCV
from olsen._engines import sources
from olsen._execution.threads import Sharing
from olsen._members.problem import Problem
from olsen._selection import adaptive
from olsen._selection.grounds import grounds_of_rows

INCLUSIONS = ("uniform", "ridge", "loo", "adaptive", "auto")


def collinear(seed, n=150, p=25, sigma=1.0, nonzero=None):
    """Columns that share factors, in units of their own."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 2 * rng.standard_normal((n, 3)) @ rng.standard_normal((3, p))
    beta = rng.standard_normal(p)
    if nonzero is not None:
        beta[nonzero:] = 0.0
    y = X @ beta + sigma * np.linalg.norm(beta) * rng.standard_normal(n)
    return X * np.exp(rng.standard_normal(p)) + 5 * rng.standard_normal(p), y + 3


def standardised(X):
    """Columns of unit length about their means: for those a penalty of ridge regression means the same."""
    return (X - X.mean(axis=0)) / (X.std(axis=0) * np.sqrt(len(X)))


def degrees(X, penalty):
    s2 = np.linalg.svd(standardised(X), compute_uv=False) ** 2
    return np.sum(s2 / (s2 + penalty))


def blocks_of(X, y, size=40):
    return iter([(X[i : i + size], y[i : i + size]) for i in range(0, len(X), size)])


@pytest.mark.parametrize(("n", "p"), [(150, 25), (60, 140)])
def test_ridge_matched_members_have_the_size_of_tuned_ridge_regression(n, p, seed):
    X, y = collinear(seed, n, p)
    # not beyond 70 % of the rows, where members are not tried
    grid = [a for a in np.geomspace(1e-6, 1e4, 400) if degrees(X, a) < 0.7 * (n - 1)]
    ridge = RidgeCV(grid).fit(standardised(X), y)
    model = OLSEnsembleRegressorCV(20, inclusion="ridge", random_state=seed).fit(X, y)
    near = [degrees(X, ridge.alpha_ * factor) for factor in (1 / 1.2, 1.2)]  # half a step of our grid
    assert min(near) - 0.5 <= model.max_features_ <= max(near) + 0.5


def test_ridge_regression_is_tuned_over_folds_of_moments(seed):
    X, y = collinear(seed)
    fold = sources.row_groups(0, len(y), 5, seed).astype(int)
    search = GridSearchCV(
        Ridge(), {"alpha": np.geomspace(1e-6, 1e3, 300)}, cv=PredefinedSplit(fold), scoring=total_error(fold)
    )
    penalty = search.fit(standardised(X), y).best_params_["alpha"]
    model = OLSEnsembleRegressorCV(20, inclusion="ridge", random_state=seed).fit(blocks_of(X, y), None)
    near = [degrees(X, penalty * factor) for factor in (1 / 1.2, 1.2)]
    assert min(near) - 0.5 <= model.max_features_ <= max(near) + 0.5


def total_error(fold):
    """Minus the sum of squared errors: folds of random rows differ in size, and every row counts the same."""

    def score(model, X, y):
        return -np.sum((y - model.predict(X)) ** 2)

    return score


@pytest.mark.parametrize("inclusion", INCLUSIONS)
@pytest.mark.parametrize("nonzero", [None, 3], ids=["dense", "sparse"])
@pytest.mark.parametrize("p", [25, 60])
def test_the_choice_does_not_depend_on_where_the_rows_are(p, nonzero, inclusion, seed):
    """Blocks are read once and only summed; in memory the same folds are given as a splitter."""
    X, y = collinear(seed, p=p, nonzero=nonzero)
    fold = sources.row_groups(0, len(y), 5, seed).astype(int)
    there = OLSEnsembleRegressorCV(30, inclusion=inclusion, random_state=seed).fit(blocks_of(X, y), None)
    here = OLSEnsembleRegressorCV(30, inclusion=inclusion, cv=PredefinedSplit(fold), random_state=seed).fit(X, y)
    assert (there.inclusion_kind_, there.max_features_) == (here.inclusion_kind_, here.max_features_)
    assert there.criterion_ == here.criterion_ == "kfold"
    assert there.scale_ == pytest.approx(here.scale_, rel=1e-6)
    assert there.best_score_ == pytest.approx(here.best_score_, rel=1e-6)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-6, atol=1e-9 * np.abs(here.coef_).max())


def test_several_targets_and_weights_are_chosen_alike(seed):
    X, y = collinear(seed)
    rng = np.random.default_rng(seed)
    Y, weight = np.column_stack([y, rng.permutation(y)]), rng.integers(1, 4, len(y)).astype(float)
    fold = sources.row_groups(0, len(y), 4, seed).astype(int)
    parts = [(X[i : i + 30], Y[i : i + 30], weight[i : i + 30]) for i in range(0, len(y), 30)]
    there = OLSEnsembleRegressorCV(30, cv=4, inclusion="auto", random_state=seed).fit(iter(parts), None)
    here = OLSEnsembleRegressorCV(30, cv=PredefinedSplit(fold), inclusion="auto", random_state=seed).fit(X, Y, weight)
    assert (there.inclusion_kind_, there.max_features_) == (here.inclusion_kind_, here.max_features_)
    assert there.scale_ == pytest.approx(here.scale_, rel=1e-6)


def test_ridge_matched_members_of_blocks_by_generalised_cross_validation(seed):
    X, y = collinear(seed)
    there = OLSEnsembleRegressorCV(30, inclusion="ridge", cv="gcv", random_state=seed).fit(blocks_of(X, y), None)
    here = OLSEnsembleRegressorCV(30, inclusion="ridge", cv="gcv", random_state=seed).fit(X, y)
    assert there.criterion_ == here.criterion_ == "gcv" and there.inclusion_kind_ == "ridge"
    assert abs(there.max_features_ - here.max_features_) <= 3  # tuned over folds there, by leave-one-out here


def one_hot(seed, n=150):
    """Factors with all their levels, two of which count: a member with two whole factors has dependent columns."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, levels, n) for levels in (2, 2, *[3] * 30)]
    X = np.column_stack([np.eye(code.max() + 1)[code] for code in codes])
    return X, 4 * codes[0] - 4 * codes[1] + rng.standard_normal(n)


def spectra(seed, n=120, p=90):
    """Smooth curves: neighbouring columns are all but equal, and Gram matrices are not to be trusted."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 1, p)
    peaks = np.exp(-((grid[:, None] - np.linspace(0, 1, 12)) ** 2) / 0.01)
    X = rng.standard_normal((n, 12)) @ peaks.T + 1e-5 * rng.standard_normal((n, p))
    return X, X[:, 30] - X[:, 60] + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("table", [one_hot, spectra])
def test_trials_on_dependent_columns_agree_with_an_svd(table, seed):
    """Members of a trial only judge. With 1e-8 on the diagonal of their correlations they are what an SVD gives."""
    X, y = table(seed)
    n = len(y)
    train, test = np.arange(n) % 5 != 0, np.arange(n) % 5 == 0
    problem = Problem(X, y[:, None])
    splits = [(np.flatnonzero(train), np.flatnonzero(test))] * 2
    grounds = grounds_of_rows(problem, splits, seed, 20, Sharing())
    rows, _ = next(grounds.folds)
    law = adaptive._Trials.of(grounds.whole, 20, 20, None, seed)
    trial = law.rivals(rows)
    A, b = X[train] - X[train].mean(axis=0), y[train] - y[train].mean()
    length = np.linalg.norm(A, axis=0)
    exact = np.zeros(X.shape[1])
    for columns in trial.features:
        V, s, W = np.linalg.svd(A[:, columns] / length[columns], full_matrices=False)
        exact[columns] += W.T @ (s / (s**2 + 1e-8) * (V.T @ b)) / length[columns] / len(trial.features)
    away = X[test] - X[train].mean(axis=0)
    spread = np.std(away @ exact)
    np.testing.assert_allclose(away @ trial.coef[:, 0], away @ exact, atol=1e-5 * spread)


def test_laws_that_follow_the_signal_find_the_factors_that_count(seed):
    X, y = one_hot(seed)
    model = OLSEnsembleRegressorCV(60, inclusion="auto", random_state=seed).fit(X, y)
    plain = OLSEnsembleRegressorCV(60, inclusion="loo", random_state=seed).fit(X, y)
    fresh, truth = one_hot(seed + 1000, 4000)
    assert model.inclusion_kind_ == "mixed"
    assert model.score(fresh, truth) > plain.score(fresh, truth)


def test_adaptive_probabilities_from_blocks(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 60))
    y = X[:, :4].sum(axis=1) + rng.standard_normal(120)
    model = OLSEnsembleRegressorCV(60, inclusion="adaptive", random_state=seed).fit(blocks_of(X, y), None)
    assert model.inclusion_kind_ == "adaptive"
    assert model.inclusion_[:4].mean() > 3 * model.inclusion_[4:].mean()


def test_sizes_stay_two_columns_clear_of_the_peak(seed):
    """Of six rows less a mean, 85 % are four: next to five, where members fit every row."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((6, 30)), rng.standard_normal(6)
    model = OLSEnsembleRegressorCV(20, inclusion="uniform", random_state=seed).fit(X, y)
    assert model.cv_results_["size"].max() <= 3
