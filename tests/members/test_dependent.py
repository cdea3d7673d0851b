"""Members with columns that depend on each other: the shortest solution, as from an SVD."""

from itertools import product

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    member_coefficients,
)
from olsen._data.columns import Columns
from olsen._data.rows import RowData
from olsen._execution.threads import Threads
from olsen._members.path import PathData, pair_sums, prefix_predictions, prefix_residuals, sum_pairs


def table(seed, n=120, factors=(3, 4, 6), numeric=5, *, standardised=True):
    """Numeric columns, factors with all levels, a duplicate, a sum, a constant and a column of
    zeros.
    """
    rng = np.random.default_rng(seed)
    codes = [
        np.r_[np.arange(levels), rng.integers(0, levels, n - levels)] for levels in factors
    ]  # each at least once
    X = np.hstack(
        [rng.standard_normal((n, numeric)), *(np.eye(len(set(code)))[code] for code in codes)]
    )
    X = np.hstack([X, 3 * X[:, :1], X[:, 1:2] - X[:, 2:3]])
    if standardised:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = np.hstack([X, np.full((n, 1), 7.0), np.zeros((n, 1))])
    return X[:, rng.permutation(X.shape[1])], rng


def shortest(X, y, weight, fit_intercept):
    """The shortest solution, by an SVD of the data; constant columns get zero."""
    root = np.sqrt(np.ones(len(X)) if weight is None else weight)
    if fit_intercept:
        X = X - np.average(X, axis=0, weights=root**2)
        y = y - np.average(y, weights=root**2)
        X = np.where(np.abs(X).max(axis=0) > 1e-10, X, 0.0)
    return np.linalg.lstsq(X * root[:, None], y * root, rcond=1e-11)[0]


def test_members_have_the_shortest_solution(seed):
    for rows, weighted, fit_intercept, standardised in product([None, 60], *[[True, False]] * 3):
        with case(
            f"{rows} rows, weights {weighted}, intercept {fit_intercept}, standardised"
            f" {standardised}"
        ):
            X, rng = table(seed, standardised=standardised)
            n, p = X.shape
            y = rng.standard_normal(n)
            weight = rng.uniform(0.3, 3.0, n) if weighted else None
            features = [np.sort(rng.permutation(p)[: rng.integers(1, p + 1)]) for _ in range(20)]
            samples = (
                None if rows is None else [np.sort(rng.permutation(n)[:rows]) for _ in range(20)]
            )
            coef, _ = member_coefficients(
                X, y, features, samples, sample_weight=weight, fit_intercept=fit_intercept
            )
            for i, S in enumerate(features):
                T = np.arange(n) if samples is None else samples[i]
                expected = shortest(
                    X[np.ix_(T, S)], y[T], None if weight is None else weight[T], fit_intercept
                )
                assert_allclose(coef[i, S], expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def test_no_member_of_a_one_hot_table_is_refitted(seed):
    """No member of a tuned fit is refitted, either; its choice does not depend on threads."""
    X, rng = table(seed, n=300)
    Y = rng.standard_normal((300, 2))
    for max_samples in (1.0, 0.5):
        model = OLSEnsembleRegressor(40, 0.7, max_samples, random_state=seed, n_jobs=2).fit(X, Y)
        assert model.n_fallbacks_ == 0
        mean = np.zeros((2, X.shape[1]))
        for columns, rows in zip(model.feature_subsets_, model.sample_subsets_, strict=True):
            for t in range(2):
                mean[t, columns] += shortest(X[np.ix_(rows, columns)], Y[rows, t], None, True) / 40
        assert_allclose(model.coef_, mean, rtol=1e-8, atol=1e-9)
    y = X @ rng.standard_normal(X.shape[1]) + Y[:, 0]
    for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        one_thread, two_threads = (
            make(n_estimators=50, random_state=seed, n_jobs=jobs).fit(X, y) for jobs in (1, 2)
        )
        with case(make):
            assert one_thread.n_fallbacks_ == 0
            assert_array_equal(
                one_thread.cv_results_["mean_test_score"],
                two_threads.cv_results_["mean_test_score"],
            )
            assert_allclose(one_thread.coef_, two_threads.coef_, rtol=1e-10, atol=1e-12)


def test_columns_that_nearly_depend_keep_their_direction(seed):
    """Refined on the data or solved from there, never taken for dependent; a QR is the yardstick."""
    for distance, rows in product([1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10], [None, [range(80)]]):
        with case(distance, rows):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((100, 12))
            X[:, 5] = X[:, 2] - 2 * X[:, 3] + distance * X[:, 5]
            y = X @ rng.standard_normal(12) + 0.1 * rng.standard_normal(100)
            refined, expected = (
                member_coefficients(X, y, [range(12)], rows, solver=solver)[0]
                for solver in ("gram", "orthogonal")
            )
            # coefficients move by eps / distance, relative to the largest, and by its square times
            # the residual
            largest = np.abs(expected).max()
            bound = 1e3 * np.finfo(float).eps / distance * (1 + 0.1 / distance / largest)
            assert np.abs(refined - expected).max() <= bound * largest
            assert largest * distance > 1e-3  # the direction is there


def test_compiled_paths_equal_paths_by_hand(seed):
    """Tables have rows that one dummy singles out, dependent columns and a row of high leverage.
    Paths are compared at the training rows, then at new rows.
    """
    for weighted, fit_intercept, shared, n in product(*[[False, True]] * 3, [64, 101]):
        with case(f"weights {weighted}, intercept {fit_intercept}, shared {shared}, {n} rows"):
            X, rng = table(seed, n=n)
            X[:, 3] = 0.0
            X[n // 2, 3] = 1.0
            X[5] *= 1e7 if seed % 2 else 1.0
            weight = rng.uniform(0.3, 3.0, n) if weighted else None
            data = PathData.from_problem(
                RowData(X, rng.standard_normal((n, 2)), weight, fit_intercept), shared=shared
            )
            orders = [rng.permutation(X.shape[1]) for _ in range(6)]
            sizes = np.array([1, 2, 7, 8, 9, X.shape[1]])
            compiled = sum_pairs(data, orders, sizes, 2, Threads())
            members = [prefix_residuals(data, order, sizes) for order in orders]
            a, b, c = (pair_sums(*members[i : i + 2]) for i in (0, 2, 4))
            for sums, expected in zip(
                compiled.swapaxes(0, 1), np.stack([a + b, c], axis=1), strict=True
            ):
                assert_allclose(sums, expected, rtol=1e-7, atol=1e-8 * np.median(np.abs(expected)))
            assert_array_equal(sum_pairs(data, orders, sizes, 2, Threads(2)), compiled)
            if seed % 2:
                continue
            new = rng.permutation(X[:40]) - data.columns.mean_x
            Y = rng.standard_normal((40, 2))
            new_columns = Columns.plain(new.T, Y - data.columns.mean_y)
            compiled = sum_pairs(data, orders[:2], sizes, 1, Threads(), new_columns)[0, 0]
            first, second = (prefix_predictions(data, new, order, sizes) for order in orders[:2])
            assert_allclose(compiled, 2 * Y - first - second, atol=1e-8)
