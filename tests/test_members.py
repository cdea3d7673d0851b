"""Members against independent oracles: scikit-learn on the same indices, NIST, problems whose answer is algebra."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression

from loops import case
from nist.certified import nist
from nist.digits import by_olsen, digits
from olsen import OLSEnsembleRegressor, member_coefficients
from olsen._members import ASKED_FOR, Problem, choose, gram, solve
from olsen._members.problem import Solution
from olsen.subsets import Subsets, draw

THIN = ASKED_FOR[1:]


def relative_error(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


def random_problem(seed, n=60, p=24, q=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + rng.standard_normal(p)
    y = X @ rng.standard_normal((p, q or 1)) + rng.standard_normal((n, q or 1)) + 3
    return X, y if q else y[:, 0]


def test_members_equal_bagging_of_linear_regression(seed):
    for solver, max_samples, fit_intercept in product(["auto", *THIN], [1.0, 0.5], [True, False]):
        with case(solver, max_samples, fit_intercept):
            X, y = random_problem(seed)
            peer = BaggingRegressor(
                LinearRegression(fit_intercept=fit_intercept, tol=1e-12),
                n_estimators=25, max_features=9, max_samples=max_samples, bootstrap=False, random_state=seed,
            ).fit(X, y)  # fmt: skip
            rows = None if max_samples == 1.0 else peer.estimators_samples_
            columns = [np.sort(f) for f in peer.estimators_features_]
            coef, intercept = member_coefficients(X, y, columns, rows, fit_intercept=fit_intercept, solver=solver)
            for i, (member, features) in enumerate(zip(peer.estimators_, peer.estimators_features_, strict=True)):
                assert relative_error(coef[i, features], member.coef_) < 1e-9
                assert intercept[i] == pytest.approx(member.intercept_, rel=1e-9, abs=1e-12)
                assert np.count_nonzero(coef[i]) == len(features)


def test_minimum_norm_members_equal_bagging(seed):
    for fit_intercept in [True, False]:
        with case(fit_intercept):
            X, y = random_problem(seed, n=30, p=80)
            peer = BaggingRegressor(
                LinearRegression(fit_intercept=fit_intercept, tol=1e-12),
                n_estimators=20, max_features=50, max_samples=0.5, bootstrap=False, random_state=seed,
            ).fit(X, y)  # fmt: skip
            columns = [np.sort(f) for f in peer.estimators_features_]
            coef, intercept = member_coefficients(X, y, columns, peer.estimators_samples_, fit_intercept=fit_intercept)
            for i, (member, features) in enumerate(zip(peer.estimators_, peer.estimators_features_, strict=True)):
                assert relative_error(coef[i, features], member.coef_) < 1e-9
                assert intercept[i] == pytest.approx(member.intercept_, rel=1e-8, abs=1e-9)


def test_every_solver_equals_linear_regression(seed):
    """All rows, drawn rows, too few rows; weights; dense, sparse, single precision: one answer."""
    for kind in ["dense", "csr", "csc", "float32"]:
        with case(kind):
            X, y = random_problem(seed)
            if kind in ("csr", "csc"):
                X[np.abs(X) < 0.8] = 0.0
            convert = {"csr": sp.csr_array, "csc": sp.csc_array, "float32": lambda a: a.astype(np.float32)}
            given = convert.get(kind, np.asarray)(X)
            X = given.toarray() if sp.issparse(given) else np.asarray(given, dtype=np.float64)
            weights = np.random.default_rng(seed).uniform(0.2, 3.0, len(y))
            features = draw(X.shape[1], 8, seed=seed, size=10)
            for rows, weighted, fit_intercept in product([None, 35, 8], [False, True], [True, False]):
                weight = weights if weighted else None
                samples = None if rows is None else draw(len(y), 8, seed=seed, size=rows, stream=1)
                own = [np.arange(len(y)) if samples is None else samples[i] for i in range(8)]
                fitted = [
                    LinearRegression(fit_intercept=fit_intercept, tol=1e-13).fit(
                        X[np.ix_(T, S)], y[T], weights[T] if weighted else None
                    )
                    for T, S in zip(own, features, strict=True)
                ]
                for solver in ("auto", *THIN):
                    what = f"{solver}, {rows} rows, weights {weighted}, intercept {fit_intercept}"
                    coef, intercept = member_coefficients(
                        given, y, features, samples, sample_weight=weight, fit_intercept=fit_intercept, solver=solver
                    )
                    for i, oracle in enumerate(fitted):
                        assert relative_error(coef[i, features[i]], oracle.coef_) < 1e-9, what
                        assert intercept[i] == pytest.approx(oracle.intercept_, rel=1e-8, abs=1e-9), what


def test_several_targets_are_solved_as_each_alone(seed):
    for solver in ["auto", *THIN]:
        with case(solver):
            X, Y = random_problem(seed, q=3)
            together = OLSEnsembleRegressor(20, 0.4, random_state=seed, solver=solver).fit(X, Y)
            for t in range(3):
                alone = OLSEnsembleRegressor(20, 0.4, random_state=seed, solver=solver).fit(X, Y[:, t])
                np.testing.assert_allclose(together.coef_[t], alone.coef_, rtol=1e-12, atol=1e-13)
                np.testing.assert_allclose(together.intercept_[t], alone.intercept_, rtol=1e-10)


def test_every_size_and_number_of_targets(seed):
    """Up to three tiles of eight columns and a bit: targets have tiles of their own, half ones, or share one."""
    for solver, q in product(["gram", "member_gram"], [1, 2, 3, 4, 6]):
        with case(solver, q):
            X, Y = random_problem(seed, n=70, p=27, q=q)
            features = Subsets.from_lists(
                [np.random.default_rng((seed, m)).permutation(27)[:m] for m in range(1, 28)], 27
            )
            solution = solve(Problem(X, Y), features, None, solver=solver)
            assert not solution.refitted.any()
            for i, S in enumerate(features):
                oracle = LinearRegression().fit(X[:, S], Y)
                here = slice(features.indptr[i], features.indptr[i + 1])
                np.testing.assert_allclose(solution.values[here], oracle.coef_.T, rtol=1e-9, atol=1e-10)
                np.testing.assert_allclose(solution.intercepts[i], oracle.intercept_, rtol=1e-9, atol=1e-10)


def test_zero_weight_equals_a_dropped_row(seed):
    X, y = random_problem(seed)
    weight = np.random.default_rng(seed).integers(0, 3, len(y)).astype(float)
    columns = draw(X.shape[1], 6, seed=seed, size=9)
    with_zeros = member_coefficients(X, y, columns, sample_weight=weight)
    keep = weight > 0
    without = member_coefficients(X[keep], y[keep], columns, sample_weight=weight[keep])
    np.testing.assert_allclose(with_zeros[0], without[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(with_zeros[1], without[1], rtol=1e-10)


def test_certified_digits():
    least = {"Norris": 10, "NoInt1": 10, "Longley": 9, "Wampler1": 9}
    for name, solver in product(least, ["auto", *THIN]):
        with case(name, solver):
            problem = nist(name)
            assert digits(problem, by_olsen(problem, solver)) >= least[name]


def test_dependent_columns_get_the_minimum_norm_solution(seed):
    """Duplicated, constant, zero and summed columns; the answer of a full SVD."""
    for solver, fit_intercept in product(["auto", *THIN], [True, False]):
        with case(solver, fit_intercept):
            rng = np.random.default_rng(seed)
            base = rng.standard_normal((40, 5)) + 2
            X = np.column_stack([base, base[:, 0], base[:, 1] + base[:, 2], np.zeros(40), np.full(40, 7.3)])
            y = rng.standard_normal(40)
            coef, intercept = member_coefficients(X, y, [range(9)], fit_intercept=fit_intercept, solver=solver)
            centred = X - X.mean(axis=0) if fit_intercept else X
            if fit_intercept:
                centred[:, 8] = 0.0
            expected = np.linalg.pinv(centred, rcond=1e-11) @ (y - y.mean() if fit_intercept else y)
            np.testing.assert_allclose(coef[0], expected, rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(
                intercept[0], y.mean() - X.mean(axis=0) @ expected if fit_intercept else 0, atol=1e-9
            )


def test_ill_conditioned_members_are_as_accurate_as_qr(seed):
    """A consistent system with a known answer: a backward stable method errs by a small multiple of eps * condition."""
    for solver, log_condition in product(["auto", *THIN], [2, 5, 8, 10, 12]):
        with case(solver, log_condition):
            rng = np.random.default_rng(seed)
            U, _ = np.linalg.qr(rng.standard_normal((120, 15)))
            V, _ = np.linalg.qr(rng.standard_normal((15, 15)))
            X = (U * np.logspace(0, -log_condition, 15)) @ V.T
            b = rng.standard_normal(15)
            coef, _ = member_coefficients(X, X @ b, [range(15)], fit_intercept=False, solver=solver)
            gram_trusted = 1e-8  # what six trusted digits of a squared pivot leave
            assert relative_error(coef[0], b) < max(gram_trusted, 200 * np.finfo(float).eps * 10.0**log_condition)


def test_units_of_columns_do_not_matter(seed):
    for solver, fit_intercept in product(["auto", *THIN], [True, False]):
        with case(solver, fit_intercept):
            X, y = random_problem(seed, n=50, p=17)
            scale = np.logspace(-8, 8, 17)
            columns = [range(17), range(0, 17, 2)]
            plain = member_coefficients(X, y, columns, fit_intercept=fit_intercept, solver=solver)
            scaled = member_coefficients(X * scale, y, columns, fit_intercept=fit_intercept, solver=solver)
            np.testing.assert_allclose(scaled[0] * scale, plain[0], rtol=1e-8, atol=1e-12)
            np.testing.assert_allclose(scaled[1], plain[1], rtol=1e-8, atol=1e-9)


def test_far_away_means_do_not_cost_digits(seed):
    for own_rows in [False, True]:
        with case(own_rows):
            X, y = random_problem(seed)
            how = {"sample_subsets": [range(len(y))] if own_rows else None, "solver": "gram"}
            near = member_coefficients(X, y, [range(9)], **how)[0]
            far = member_coefficients(X + 1e6, y, [range(9)], **how)[0]
            np.testing.assert_allclose(far, near, rtol=1e-7, atol=1e-8)
            sparse = member_coefficients(sp.csr_array(X + 1e6), y, [range(9)], **how)[0]
            np.testing.assert_allclose(sparse, near, rtol=1e-7, atol=1e-8)


def test_repeated_rows_far_from_zero_get_the_shortest_solution(seed):
    """Taking out means of 1e4 leaves rounding that must not count as a direction."""
    for solver in ["auto", "gram", "orthogonal"]:
        with case(solver):
            rng = np.random.default_rng(seed)
            base = rng.standard_normal((6, 8))
            X, y = np.repeat(base, 4, axis=0), rng.standard_normal(24)
            near = member_coefficients(X, y, [range(8)], solver=solver)[0]
            far = member_coefficients(X + 1e4, y, [range(8)], solver=solver)[0]
            np.testing.assert_allclose(far, near, rtol=1e-6, atol=1e-7)


def test_fallbacks_are_counted_and_only_where_needed(seed):
    X, y = random_problem(seed)
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 1]  # not dependent, and too near to be refined
    subsets = Subsets.from_lists([[0, 1, 2], [0, 2, 3], [1, 5], [0, 1]], X.shape[1])
    for name in ("gram", "member_gram"):
        solution = solve(Problem(X, y[:, None]), subsets, None, solver=name)
        assert isinstance(solution, Solution)
        np.testing.assert_array_equal(solution.refitted, [True, False, False, True])
    assert not solve(Problem(X, y[:, None]), subsets, None, solver="orthogonal").refitted.any()


def test_members_of_both_kinds_in_one_batch(seed):
    """Some with more rows than columns, some with fewer."""
    X, y = random_problem(seed, n=20, p=40)
    columns = [range(5), range(30), range(3, 9), range(40), []]
    coef, intercept = member_coefficients(X, y, columns)
    for i, S in enumerate(columns[:4]):
        oracle = LinearRegression(tol=1e-13).fit(X[:, list(S)], y)
        assert relative_error(coef[i, list(S)], oracle.coef_) < 1e-9
    assert not coef[4].any() and intercept[4] == pytest.approx(y.mean())


def test_interpolators_interpolate(seed):
    X, y = random_problem(seed, n=15, p=60)
    coef, intercept = member_coefficients(X, y, draw(60, 10, seed=seed, size=30))
    np.testing.assert_allclose(X @ coef.T + intercept, np.tile(y[:, None], 10), atol=1e-9)


def test_choice_follows_the_table():
    assert choose(1000, 200, 500, m=50) == "gram"
    assert choose(1000, 200, 500, m=50, rows=300) == "member_gram"
    assert choose(500, 20_000, 100, m=50) == "member_gram"
    assert choose(50, 200, 100, m=60) == "interpolator"
    assert choose(500, 200, 100, m=60, rows=40) == "interpolator"
    assert choose(20_000, 200, 20, m=20) == "gram"
    assert choose(8000, 4000, 64, m=2000) == "masked_cg"
    assert choose(100_000, 20_000, 50, m=2000, nnz=2e6) == "masked_cg"
    assert choose(2000, 300, 100, m=50, nnz=6e3) == "gram"


def test_complement_form_equals_plain_solves(seed, monkeypatch):
    """Large subsets through their left-out columns; forced, because at this size it does not pay."""
    for size, q in product([13, 20, 23, 24], [None, 3]):
        with case(size, q):
            X, Y = random_problem(seed, q=q)
            features = draw(24, 12, seed=seed, size=size)
            problem = Problem(X, Y.reshape(len(Y), -1))
            plain = solve(problem, features, None, solver="gram")
            with monkeypatch.context() as patch:
                patch.setattr(gram, "_complement_pays", lambda G, features: True)
                complement = solve(problem, features, None, solver="gram")
            np.testing.assert_allclose(complement.values, plain.values, rtol=1e-9, atol=1e-11)
            assert not complement.refitted.any()


def test_complement_form_is_left_alone_on_collinear_data(seed, monkeypatch):
    X, y = random_problem(seed)
    X[:, 3] = X[:, 2] + 1e-6 * X[:, 3]
    monkeypatch.setattr(gram, "_complement_pays", lambda G, features: True)
    features = draw(24, 12, seed=seed, size=20)
    solution = solve(Problem(X, y[:, None]), features, None, solver="gram")
    exact = solve(Problem(X, y[:, None]), features, None, solver="orthogonal")
    np.testing.assert_allclose(solution.values, exact.values, rtol=1e-6, atol=1e-8)
