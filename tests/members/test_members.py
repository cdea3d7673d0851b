"""Members against independent oracles: scikit-learn on the same indices, NIST, problems whose
answer is algebra.
"""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression

from loops import case
from nist.certified import nist
from nist.digits import by_olsen, digits
from olsen import member_coefficients
from olsen._data.rows import RowData
from olsen._members import ASKED_FOR, cheapest_solver, gram, solve
from olsen.subsets import Subsets, draw
from random_problems import random_problem, relative_error


def test_members_equal_bagging_of_linear_regression(seed):
    """Members have few columns, or more columns than rows, where the solution is the shortest."""
    shapes = [(60, 24, 9, 1.0), (60, 24, 9, 0.5), (30, 80, 50, 0.5)]
    for (n, p, columns, rows), solver, fit_intercept in product(shapes, ASKED_FOR, [True, False]):
        with case(n, rows, solver, fit_intercept):
            X, y = random_problem(seed, n, p)
            peer = BaggingRegressor(
                LinearRegression(fit_intercept=fit_intercept, tol=1e-12),
                n_estimators=20,
                max_features=columns,
                max_samples=rows,
                bootstrap=False,
                random_state=seed,
            ).fit(X, y)
            features = [np.sort(f) for f in peer.estimators_features_]
            samples = peer.estimators_samples_
            options = {"fit_intercept": fit_intercept, "solver": solver}
            coef, intercept = member_coefficients(
                X, y, features, None if rows == 1.0 else samples, **options
            )
            for i, (member, S) in enumerate(
                zip(peer.estimators_, peer.estimators_features_, strict=True)
            ):
                assert relative_error(coef[i, S], member.coef_) < 1e-9
                assert intercept[i] == pytest.approx(member.intercept_, rel=1e-8, abs=1e-9)
                assert np.count_nonzero(coef[i]) == len(S)


def test_every_solver_equals_linear_regression(seed):
    """All rows, drawn rows, too few rows; weights; dense, sparse, single precision: one answer."""
    weights = np.random.default_rng(seed).uniform(0.2, 3.0, 60)
    features = draw(24, 8, rng=seed, size=10)
    convert = {"dense": np.asarray, "csr": sp.csr_array, "csc": sp.csc_array, "float32": np.float32}
    for kind, rows, weight, fit_intercept in product(
        convert, [None, 35, 8], [None, weights], [True, False]
    ):
        X, y = random_problem(seed)
        converted = convert[kind](np.where(np.abs(X) < 0.8, 0.0, X))
        X = converted.toarray() if sp.issparse(converted) else converted.astype(np.float64)
        samples = None if rows is None else draw(60, 8, rng=seed, size=rows, stream=1)
        rows_of_members = [np.arange(60) if samples is None else samples[i] for i in range(8)]
        fitted = [
            LinearRegression(fit_intercept=fit_intercept, tol=1e-13).fit(
                X[np.ix_(T, S)], y[T], None if weight is None else weight[T]
            )
            for T, S in zip(rows_of_members, features, strict=True)
        ]
        for solver in ASKED_FOR:
            with case(kind, solver, rows, weight is not None, fit_intercept):
                options = {
                    "sample_weight": weight,
                    "fit_intercept": fit_intercept,
                    "solver": solver,
                }
                coef, intercept = member_coefficients(converted, y, features, samples, **options)
                for i, oracle in enumerate(fitted):
                    assert relative_error(coef[i, features[i]], oracle.coef_) < 1e-9
                    assert intercept[i] == pytest.approx(oracle.intercept_, rel=1e-8, abs=1e-9)


def test_every_size_and_number_of_targets(seed):
    """Up to three tiles of eight columns and a bit: targets have tiles of their own, half ones, or
    share one.
    """
    features = Subsets.from_lists(
        [np.random.default_rng((seed, m)).permutation(27)[:m] for m in range(1, 28)], 27
    )
    for solver, q in product(["gram", "member_gram"], [1, 2, 3, 4, 6]):
        with case(solver, q):
            X, Y = random_problem(seed, n=70, p=27, q=q)
            solution = solve(RowData(X, Y), features, None, solver=solver)
            assert not solution.refitted.any()
            for i, S in enumerate(features):
                oracle = LinearRegression().fit(X[:, S], Y)
                slots = slice(features.indptr[i], features.indptr[i + 1])
                assert_allclose(solution.values[slots], oracle.coef_.T, rtol=1e-9, atol=1e-10)
                assert_allclose(solution.intercepts[i], oracle.intercept_, rtol=1e-9, atol=1e-10)


def test_certified_digits():
    for (name, min_digits), solver in product(
        {"Norris": 10, "NoInt1": 10, "Longley": 9, "Wampler1": 9}.items(), ASKED_FOR
    ):
        with case(name, solver):
            assert digits(nist(name), by_olsen(nist(name), solver)) >= min_digits


def test_ill_conditioned_members_are_as_accurate_as_qr(seed):
    """A consistent system with a known answer: a backward stable method errs by a small multiple of
    eps * condition.
    """
    for solver, log_condition in product(ASKED_FOR, [2, 5, 8, 10, 12]):
        with case(solver, log_condition):
            rng = np.random.default_rng(seed)
            U, V = (np.linalg.qr(rng.standard_normal((n, 15)))[0] for n in (120, 15))
            X = (U * np.logspace(0, -log_condition, 15)) @ V.T
            b = rng.standard_normal(15)
            coef, _ = member_coefficients(X, X @ b, [range(15)], fit_intercept=False, solver=solver)
            gram_trusted = 1e-8  # what six trusted digits of a squared pivot leave
            assert relative_error(coef[0], b) < max(
                gram_trusted, 200 * np.finfo(float).eps * 10.0**log_condition
            )


def test_fallbacks_are_counted_and_only_where_needed(seed):
    X, y = random_problem(seed)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]  # not dependent, and too near to be refined
    subsets = Subsets.from_lists([[0, 1, 2], [0, 2, 3], [1, 5], [0, 1]], X.shape[1])
    solutions = {
        name: solve(RowData(X, y[:, None]), subsets, None, solver=name)
        for name in ("gram", "member_gram")
    }
    for name, solution in solutions.items():
        assert_array_equal(solution.refitted, [True, False, False, True], name)
    assert not solve(RowData(X, y[:, None]), subsets, None, solver="orthogonal").refitted.any()


def test_members_of_both_kinds_in_one_batch(seed):
    """Some with more rows than columns, some with fewer, which fit every row."""
    X, y = random_problem(seed, n=20, p=40)
    columns = [range(5), range(30), range(3, 9), range(40), []]
    coef, intercept = member_coefficients(X, y, columns)
    for i, S in enumerate(columns[:4]):
        oracle = LinearRegression(tol=1e-13).fit(X[:, list(S)], y)
        assert relative_error(coef[i, list(S)], oracle.coef_) < 1e-9
    assert_allclose(X @ coef[[1, 3]].T + intercept[[1, 3]], np.tile(y[:, None], 2), atol=1e-9)
    assert not coef[4].any() and intercept[4] == pytest.approx(y.mean())


def test_choice_follows_the_table():
    assert cheapest_solver(1000, 200, 500, m=50) == "gram"
    assert cheapest_solver(1000, 200, 500, m=50, rows=300) == "member_gram"
    assert cheapest_solver(500, 20_000, 100, m=50) == "member_gram"
    assert cheapest_solver(50, 200, 100, m=60) == "interpolator"
    assert cheapest_solver(500, 200, 100, m=60, rows=40) == "interpolator"
    assert cheapest_solver(20_000, 200, 20, m=20) == "gram"
    assert cheapest_solver(8000, 4000, 64, m=2000) == "gram"
    assert cheapest_solver(100_000, 20_000, 50, m=2000, nnz=2e6) == "masked_cg"
    assert cheapest_solver(2000, 300, 100, m=50, nnz=6e3) == "gram"


def test_complement_form_equals_plain_solves(seed, monkeypatch):
    """Large subsets are solved through their missing columns, which is forced: at this size it does
    not pay. Collinear data are solved otherwise.
    """
    for size, q, distance in [*product([13, 20, 23, 24], [1, 3], [1.0]), (20, 1, 1e-6)]:
        with case(size, q, distance):
            X, Y = random_problem(seed, q=q)
            X[:, 3] = X[:, 3] if distance == 1.0 else X[:, 2] + distance * X[:, 3]
            problem = RowData(X, Y)
            features = draw(24, 12, rng=seed, size=size)
            plain = solve(
                problem, features, None, solver="gram" if distance == 1.0 else "orthogonal"
            )
            with monkeypatch.context() as patch:
                patch.setattr(gram, "_complement_pays", lambda G, features: True)
                complement = solve(problem, features, None, solver="gram")
            tight = (
                {"rtol": 1e-9, "atol": 1e-11} if distance == 1.0 else {"rtol": 1e-6, "atol": 1e-8}
            )
            assert_allclose(complement.values, plain.values, **tight)
            assert distance < 1.0 or not complement.refitted.any()
