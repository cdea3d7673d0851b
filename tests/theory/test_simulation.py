"""Simulation: problems have their moments, methods are the named estimators, runs resume
exactly.
"""

import math
from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge as SklearnRidge

from loops import case
from olsen import OLSEnsembleRegressor, simulation, theory
from olsen.simulation import Dropout, Ensemble, Estimator, LinearProblem, Ridge, montecarlo
from olsen.simulation.problems import COEFFICIENTS, COVARIANCES, ROWS


def test_rows_have_the_covariance(seed):
    """Means and every entry of the sample covariance of 4000 rows within 5.5 standard errors, for
    every distribution of rows and every covariance (27 numbers each, 48 combinations).
    """
    given_covariance = np.diag(np.arange(1.0, 7.0)) + 0.5
    for rows, covariance in product(ROWS, [*COVARIANCES, given_covariance]):
        problem = LinearProblem(4000, 6, covariance=covariance, rows=rows)
        X = problem.draw(np.random.default_rng(seed)).X
        Sigma = problem.covariance_matrix()
        products = np.einsum("ni,nj->nij", X, X)
        error = products.std(axis=0) / math.sqrt(len(X)) + 1e-12  # squares of signs are constant
        mean_error = np.sqrt(np.diag(Sigma) / len(X))
        with case(rows, covariance):
            assert np.all(np.abs(products.mean(axis=0) - Sigma) < 5.5 * error)
            assert np.all(np.abs(X.mean(axis=0)) < 5.5 * mean_error)


def test_rows_are_of_their_kind():
    def draw(rows, p=6, **parameters):
        return LinearProblem(300, p, rows=rows, **parameters).draw(rng=3).X

    assert np.array_equal(np.unique(draw("rademacher")), [-1.0, 1.0])
    assert all(len(np.unique(column)) == 2 for column in draw("sparse").T)
    assert np.mean(draw("sparse", row_parameter=0.02) > 0) < 0.05
    indicators = draw("one-hot", row_parameter=4) > 0  # two factors of three indicators each
    assert {0, 1} == set(np.add.reduceat(indicators, [0, 3], axis=1).ravel())
    lengths = {rows: np.linalg.norm(draw(rows, 60), axis=1) for rows in ("student", "elliptical")}
    assert lengths["elliptical"].std() > 1.5 * lengths["student"].std()
    assert np.array_equal(draw("gaussian"), np.random.default_rng(3).standard_normal((300, 6)))


def test_given_covariances_and_coefficients_are_used_as_they_are():
    named = LinearProblem(20, 5, covariance="ar1")
    beta = np.arange(5.0)
    given = LinearProblem(20, 5, covariance=named.covariance_matrix(), coefficients=beta)
    assert_array_equal(given.draw(rng=0).X, named.draw(rng=0).X)
    assert_array_equal(given.draw(rng=0).beta, beta)
    (estimate,) = simulation.run([(given, Ridge(1.0))], trials=3, rng=0)
    again = LinearProblem(20, 5, covariance=named.covariance_matrix().tolist(), coefficients=beta)
    assert again == given
    assert_array_equal(estimate.values, simulation.run([(again, Ridge(1.0))], trials=3)[0].values)


def test_aligned_coefficients_are_along_large_variances(seed):
    rng = np.random.default_rng(seed)
    for covariance in ("diagonal", "ar1", "spiked"):
        variances = {
            kind: [
                sample.energy(sample.beta)
                for sample in (
                    LinearProblem(5, 40, covariance=covariance, coefficients=kind).draw(rng)
                    for _ in range(20)
                )
            ]
            for kind in ("aligned", "gaussian", "misaligned")
        }
        aligned, gaussian, misaligned = map(np.mean, variances.values())
        assert aligned > 1.5 * gaussian > 1.5 * misaligned, covariance


def test_coefficients_are_of_norm_one_and_of_their_kind(seed):
    rng = np.random.default_rng(seed)
    for kind in COEFFICIENTS:
        problem = LinearProblem(5, 40, covariance="ar1", coefficients=kind, nonzeros=7)
        first = problem.draw(rng).beta
        second = problem.draw(rng).beta
        assert first @ first == pytest.approx(1) and second @ second == pytest.approx(1)
        assert np.count_nonzero(first) == (7 if kind == "sparse" else 40)
        assert np.array_equal(first, second) == (kind == "fixed")


def test_noise_has_its_standard_deviation(seed):
    for noise in ("gaussian", "student"):
        drawn = (
            LinearProblem(40_000, 1, 0.7, noise=noise, degrees=8.0)
            .draw(np.random.default_rng(seed))
            .noise
        )
        squares = drawn**2
        assert abs(squares.mean() - 0.49) < 5 * squares.std() / math.sqrt(len(squares)), noise


def test_impossible_problems_are_refused():
    for wrong, words in [
        ({"covariance": "toeplitz"}, "identity"),
        ({"coefficients": "unit"}, "sparse"),
        ({"noise": "cauchy"}, "student"),
        ({"nonzeros": 9}, "nonzeros=9.*4 columns"),
        ({"sigma": -1.0}, r"sigma.*-1"),
        ({"degrees": 2.0}, r"degrees.*2"),
        ({"rows": "cauchy"}, "elliptical"),
        ({"rows": "student", "row_parameter": 2.0}, r"row_parameter.*2"),
        ({"rows": "one-hot", "row_parameter": 2.5}, r"row_parameter.*2\.5"),
        ({"covariance": np.eye(3)}, r"covariance.*\(4, 4\).*\(3, 3\)"),
        ({"covariance": np.ones((4, 4))}, "positive definite"),
        ({"covariance": np.triu(np.ones((4, 4)))}, "symmetric"),
        ({"covariance": "equicorrelated", "strength": -0.5}, r"equicorrelated.*-0\.5"),
        ({"coefficients": [1.0, 2.0]}, r"coefficients.*\(4,\).*\(2,\)"),
    ]:
        with case(wrong), pytest.raises(ValueError, match=words):
            LinearProblem(5, 4, **wrong)


def test_all_numbers_of_members_from_one_solve_are_the_estimators():
    sample = LinearProblem(30, 16, 0.5, "ar1").draw(np.random.default_rng(1))
    ks = (1, 2, 5, 6, 20)
    for design, max_samples, members in product(["independent", "balanced"], [1.0, 20], [None, 23]):
        evaluated = Ensemble(
            6, max_samples, k=ks, members=members, design=design, scale=0.9
        ).evaluate(sample, rng=4)
        for k, parts in zip(ks, evaluated, strict=True):
            model = OLSEnsembleRegressor(
                k, 6, max_samples, design=design, fit_intercept=False, random_state=4
            )
            errors = [
                0.9 * model.fit(sample.X, y).coef_ - truth
                for y, truth in (
                    (sample.y, sample.beta),
                    (sample.signal, sample.beta),
                    (sample.noise, 0),
                )
            ]
            with case(design, max_samples, k):
                assert_allclose(parts, [e @ sample.covariance @ e for e in errors], rtol=1e-9)


def test_pooled_values_are_means_over_members_and_pairs():
    sample = LinearProblem(30, 16, 0.5).draw(np.random.default_rng(2))
    single, ten, infinite = Ensemble(6, k=(1, 10, math.inf), members=10).evaluate(sample, rng=3)[
        :, 0
    ]
    model = OLSEnsembleRegressor(10, 6, design="independent", fit_intercept=False, random_state=3)
    errors = model.fit(sample.X, sample.y).member_coefs().toarray() - sample.beta
    gram = errors @ errors.T
    assert single == pytest.approx(np.trace(gram) / 10)
    assert infinite == pytest.approx((gram.sum() - np.trace(gram)) / 90)
    assert ten == pytest.approx(gram.mean())


def test_ridge_and_dropout_are_their_formulas():
    for shape in [(30, 12), (12, 30)]:
        sample = LinearProblem(*shape, 0.5).draw(np.random.default_rng(0))
        G = sample.X.T @ sample.X
        c = sample.X.T @ sample.y
        ridge = SklearnRidge(3.0, fit_intercept=False).fit(sample.X, sample.y).coef_
        coef = np.linalg.solve(G + (0.6 / 0.4) * np.diag(np.diag(G)), c) / 0.4
        sklearn_ridge = Estimator(
            "sklearn.linear_model.Ridge", (("alpha", 3.0), ("fit_intercept", False))
        )
        ways = (
            (Ridge(3.0), ridge),
            (Ridge(0.0), np.linalg.pinv(sample.X) @ sample.y),
            (sklearn_ridge, ridge),
            (Dropout(0.4), coef),
            (Dropout(0.4, True), 0.4 * coef),
        )
        for method, expected in ways:
            with case(shape, method):
                risks = method.evaluate(sample, 0)[0]
                assert risks[0] == pytest.approx(np.sum((expected - sample.beta) ** 2))
                assert np.isnan(risks[1]) == (method is sklearn_ridge)


CELLS = [
    (LinearProblem(20, 10), Ensemble(4, k=(1, 8))),
    (LinearProblem(20, 10), Ridge(5.0)),
    (LinearProblem(20, 10, covariance="ar1"), Ensemble(k=(8,), penalty=3.0, sampling="bernoulli")),
]


def test_results_do_not_depend_on_threads_or_other_cells(seed):
    alone = [simulation.run([cell], trials=7, rng=seed)[0] for cell in CELLS]
    seen = []
    together = simulation.run(
        CELLS, trials=7, rng=seed, n_jobs=2, progress=lambda *counts: seen.append(counts)
    )
    for cell, threaded_cell in zip(alone, together, strict=True):
        assert_array_equal(cell.values, threaded_cell.values)
    assert not np.array_equal(
        alone[0].values, simulation.run(CELLS[:1], trials=7, rng=seed + 1)[0].values
    )
    assert seen[0] == (0, 21) and seen[-1] == (21, 21) and seen == sorted(seen)
    other_method = simulation.run([(CELLS[1][0], Ridge(5.0 + 1e-9))], trials=7, rng=seed)[
        0
    ]  # another method, the same data
    assert_allclose(other_method.values, alone[1].values, rtol=1e-6)


def test_a_stopped_run_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    uninterrupted = simulation.run(CELLS, trials=12, rng=3)
    calls = []
    trial = montecarlo._trial

    def dies(*arguments):
        calls.append(arguments)
        if len(calls) == 16:
            raise KeyboardInterrupt
        return trial(*arguments)

    monkeypatch.setattr(montecarlo, "_trial", dies)
    with pytest.raises(KeyboardInterrupt):
        simulation.run(CELLS, trials=12, rng=3, store=tmp_path)
    n_calls_before = len(calls)
    resumed = simulation.run(CELLS, trials=12, rng=3, store=tmp_path)
    for expected, cell in zip(uninterrupted, resumed, strict=True):
        assert_array_equal(expected.values, cell.values)
    assert len(calls) - n_calls_before == 12, "the finished problem is not run again"
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")], (
        "no half-written file is left"
    )


def test_simulated_risk_matches_finite_sample_theory(seed):
    """Within 4 standard errors for every k; the two packages share no code."""
    ks = (1, 4, 16)
    (simulated,) = simulation.run(
        [(LinearProblem(40, 24, 0.8), Ensemble(8, k=ks))], trials=400, rng=seed
    )
    expected = theory.expected_risk(40, 24, 8, 0.8, k=np.array(ks))
    assert np.all(np.abs(simulated.mean[:, 0] - expected) < 4 * simulated.standard_error[:, 0])
