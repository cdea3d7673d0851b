"""Simulation: problems have the moments they claim, methods are the estimators they name, runs
resume exactly.
"""

import math
from itertools import product

import numpy as np
import pytest
from sklearn.linear_model import Ridge as SklearnRidge

from loops import case
from olsen import OLSEnsembleRegressor, simulation, theory
from olsen.simulation import Dropout, Ensemble, Estimator, LinearProblem, Ridge, montecarlo
from olsen.simulation.problems import COVARIANCES


def test_rows_have_the_covariance(seed):
    """Every entry of the sample covariance of 4000 rows within 5.5 standard errors (36 entries,
    five covariances).
    """
    for covariance in COVARIANCES:
        problem = LinearProblem(4000, 6, covariance=covariance)
        X, Sigma = problem.draw(np.random.default_rng(seed)).X, problem.covariance_matrix()
        products = np.einsum("ni,nj->nij", X, X)
        error = products.std(axis=0) / math.sqrt(len(X))
        assert np.all(np.abs(products.mean(axis=0) - Sigma) < 5.5 * error), covariance


def test_coefficients_are_of_norm_one_and_of_their_kind(seed):
    rng = np.random.default_rng(seed)
    for kind in ("gaussian", "fixed", "sparse"):
        problem = LinearProblem(5, 40, coefficients=kind, nonzeros=7)
        first, second = problem.draw(rng).beta, problem.draw(rng).beta
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


def test_problems_refuse_what_they_cannot_be():
    for wrong, words in [
        ({"covariance": "toeplitz"}, "identity"),
        ({"coefficients": "unit"}, "sparse"),
        ({"noise": "cauchy"}, "student"),
        ({"nonzeros": 9}, "nonzeros=9.*4 columns"),
        ({"sigma": -1.0}, r"sigma.*-1"),
        ({"degrees": 2.0}, r"degrees.*2"),
    ]:
        with case(wrong), pytest.raises(ValueError, match=words):
            LinearProblem(5, 4, **wrong)


def test_all_numbers_of_members_from_one_solve_are_the_estimators():
    sample = LinearProblem(30, 16, 0.5, "ar1").draw(np.random.default_rng(1))
    ks = (1, 2, 5, 6, 20)
    for design, max_samples in product(["independent", "balanced"], [1.0, 20]):
        found = Ensemble(6, max_samples, k=ks, design=design, scale=0.9).evaluate(sample, seed=4)
        for k, parts in zip(ks, found, strict=True):
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
                np.testing.assert_allclose(
                    parts, [e @ sample.covariance @ e for e in errors], rtol=1e-9
                )


def test_pooled_values_are_means_over_members_and_pairs():
    sample = LinearProblem(30, 16, 0.5).draw(np.random.default_rng(2))
    one, ten, many = Ensemble(6, k=(1, 10, math.inf), members=10).evaluate(sample, seed=3)[:, 0]
    model = OLSEnsembleRegressor(10, 6, design="independent", fit_intercept=False, random_state=3)
    errors = model.fit(sample.X, sample.y).member_coefs().toarray() - sample.beta
    gram = errors @ errors.T
    assert one == pytest.approx(np.trace(gram) / 10)
    assert many == pytest.approx((gram.sum() - np.trace(gram)) / 90)
    assert ten == pytest.approx(gram.mean())


def test_ridge_and_dropout_are_their_formulas():
    for shape in [(30, 12), (12, 30)]:
        sample = LinearProblem(*shape, 0.5).draw(np.random.default_rng(0))
        G, c = sample.X.T @ sample.X, sample.X.T @ sample.y
        ridge = SklearnRidge(3.0, fit_intercept=False).fit(sample.X, sample.y).coef_
        coef = np.linalg.solve(G + (0.6 / 0.4) * np.diag(np.diag(G)), c) / 0.4
        same = Estimator("sklearn.linear_model.Ridge", (("alpha", 3.0), ("fit_intercept", False)))
        ways = (
            (Ridge(3.0), ridge),
            (same, ridge),
            (Dropout(0.4), coef),
            (Dropout(0.4, True), 0.4 * coef),
        )
        for method, expected in ways:
            with case(shape, method):
                found = method.evaluate(sample, 0)[0]
                assert found[0] == pytest.approx(np.sum((expected - sample.beta) ** 2))
                assert np.isnan(found[1]) == (method is same)


CELLS = [
    (LinearProblem(20, 10), Ensemble(4, k=(1, 8))),
    (LinearProblem(20, 10), Ridge(5.0)),
    (LinearProblem(20, 10, covariance="ar1"), Ensemble(k=(8,), penalty=3.0, sampling="bernoulli")),
]


def test_numbers_do_not_depend_on_threads_or_company(seed):
    alone = [simulation.run([cell], trials=7, rng=seed)[0] for cell in CELLS]
    seen = []
    together = simulation.run(
        CELLS, trials=7, rng=seed, n_jobs=2, progress=lambda *counts: seen.append(counts)
    )
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    assert not np.array_equal(
        alone[0].values, simulation.run(CELLS[:1], trials=7, rng=seed + 1)[0].values
    )
    assert seen[0] == (0, 21) and seen[-1] == (21, 21) and seen == sorted(seen)
    again = simulation.run([(CELLS[1][0], Ridge(5.0 + 1e-9))], trials=7, rng=seed)[
        0
    ]  # another method, the same data
    np.testing.assert_allclose(again.values, alone[1].values, rtol=1e-6)


def test_a_stopped_run_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    whole = simulation.run(CELLS, trials=12, rng=3)
    calls = []
    trial = montecarlo._trial

    def dies(*arguments):
        calls.append(arguments)
        if len(calls) == 23:
            raise KeyboardInterrupt
        return trial(*arguments)

    monkeypatch.setattr(montecarlo, "_trial", dies)
    with pytest.raises(KeyboardInterrupt):
        simulation.run(CELLS, trials=12, rng=3, store=tmp_path)
    kept = len(calls)
    resumed = simulation.run(CELLS, trials=12, rng=3, store=tmp_path)
    for one, other in zip(whole, resumed, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    assert len(calls) - kept == 12 * (len(CELLS) - 1), "finished cells are not run again"
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")], (
        "no half-written file is left"
    )


def test_simulated_risk_matches_finite_sample_theory(seed):
    """Within 4 standard errors for every k; the two packages share no code."""
    ks = (1, 4, 16)
    (found,) = simulation.run(
        [(LinearProblem(40, 24, 0.8), Ensemble(8, k=ks))], trials=400, rng=seed
    )
    expected = theory.expected_risk(40, 24, 8, 0.8, k=np.array(ks))
    assert np.all(np.abs(found.mean[:, 0] - expected) < 4 * found.standard_error[:, 0])
