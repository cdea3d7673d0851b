"""Determinantal members: their limit is ridge regression, exactly, and draws follow the distribution."""

import pickle
from itertools import chain, combinations, islice, product

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import olsen
from loops import case
from nist.certified import nist
from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon
from olsen.subsets import Determinantal, Subsets


def members(n_estimators, max_features, random_state=0, **parameters):
    return OLSEnsembleRegressor(
        n_estimators,
        max_features,
        sampling="determinantal",
        random_state=random_state,
        **parameters,
    )


def limit(max_features):
    return members(np.inf, max_features)


def dependent_columns(rng, n=40, p=8):
    """A sum of two others, a copy in another unit, a constant column."""
    X = (rng.standard_normal((n, p)) + 0.3) * np.logspace(-2, 2, p)
    X[:, 3] = X[:, 0] / 0.01 + X[:, 1]
    X[:, 6] = 1e3 * X[:, 2]
    X[:, 7] = 5.0
    return X


def centred(X, Y, weight=None, fit_intercept=True):
    """Centred rows, sqrt-weighted; constant columns are zero."""
    if fit_intercept:
        X = X - np.average(X, axis=0, weights=weight)
        Y = Y - np.average(Y, axis=0, weights=weight)
        X[:, np.abs(X).max(axis=0) < 1e-10] = 0.0
    root = np.sqrt(np.ones(len(X)) if weight is None else weight)[:, None]
    return X * root, Y * root


@pytest.mark.parametrize("n", [40, 6])
@pytest.mark.parametrize("constructor", ["from_gram", "from_rows"])
def test_the_mean_over_all_subsets_is_ridge_regression(constructor, n, seed):
    """All 256 subsets are enumerated, with two targets: det(L_SS) times least squares on S."""
    for fit_intercept, weighted, with_variances in product((True, False), repeat=3):
        rng = np.random.default_rng(seed)
        X = dependent_columns(rng, n)
        Y = rng.standard_normal((n, 2))
        weight = rng.uniform(0.3, 3, n) if weighted else None
        A, B = centred(X, Y, weight, fit_intercept)
        G = A.T @ A
        C = A.T @ B
        variances = rng.uniform(0.1, 2.0, 8) / np.maximum(np.diag(G), 1.0)
        process = getattr(Determinantal, constructor)(
            G if constructor == "from_gram" else A, 3.3, variances if with_variances else None
        )
        with case(fit_intercept, weighted, with_variances):
            mean, inclusion = enumerated(A, B, process)
            coef = process.mean_coefficients(C)
            live = process.prior_variances > 0
            root = np.sqrt(process.prior_variances[live])[:, None]
            scaled = coef[live] / root
            tolerance = 1e-12 * np.abs(scaled).max()
            assert_allclose(scaled, mean[live] / root, rtol=0, atol=tolerance)
            assert_allclose(process.probabilities, inclusion, atol=1e-10)
            assert process.probabilities.sum() == pytest.approx(3.3, abs=1e-9)
            ridged = G[np.ix_(live, live)] + np.diag(
                process.penalty / process.prior_variances[live]
            )
            assert_allclose(coef[live], np.linalg.solve(ridged, C[live]), rtol=1e-7, atol=1e-9)
            assert not coef[~live].any()


def enumerated(A, B, process):
    """Mean coefficients and inclusion probabilities, over all subsets of the columns."""
    p = A.shape[1]
    root = np.sqrt(process.prior_variances)
    L = root[:, None] * (A.T @ A) * root / process.penalty
    total = 0.0
    mean = np.zeros((p, B.shape[1]))
    inclusion = np.zeros(p)
    for S in map(list, chain.from_iterable(combinations(range(p), m) for m in range(p + 1))):
        if np.linalg.matrix_rank(A[:, S] * root[S], tol=1e-9) < len(S):
            continue  # determinant zero: never drawn
        weight = np.linalg.det(L[np.ix_(S, S)]) if S else 1.0
        total += weight
        inclusion[S] += weight
        if S:
            mean[S] += weight * np.linalg.lstsq(A[:, S] * root[S], B, rcond=None)[0] * root[S, None]
    return mean / total, inclusion / total


def test_columns_pairs_and_sizes_are_drawn_as_often_as_they_should_be(seed):
    """The marginal kernel gives pairs as its 2 x 2 minors; tolerances are four standard errors."""
    rng = np.random.default_rng(seed)
    k = 100_000
    A, _ = centred(dependent_columns(rng), np.zeros((40, 1)))
    process = Determinantal.from_gram(A.T @ A, 2.7)
    subsets = process.draw(0, k, rng=seed)
    mask = subsets.mask().astype(float)
    K = process.vectors @ (process.chances[:, None] * process.vectors.T)
    minors = np.outer(np.diag(K), np.diag(K)) - K**2
    np.fill_diagonal(minors, np.diag(K))
    error = np.sqrt(np.maximum(minors * (1 - minors), 1e-12) / k)
    assert np.all(np.abs(mask.T @ mask / k - minors) <= 4 * error + 1e-9)
    assert not np.any(mask[:, 2] * mask[:, 6]), "a column and its copy"
    assert not np.any(mask[:, 7]), "a constant column"
    variance = np.sum(process.chances * (1 - process.chances))  # sizes are sums of coin flips
    assert abs(subsets.sizes.mean() - 2.7) < 4 * np.sqrt(variance / k)
    assert abs(subsets.sizes.var() - variance) < 4 * variance * np.sqrt(3 / k)


def test_members_are_functions_of_the_seed_and_their_number(seed):
    A = np.random.default_rng(seed).standard_normal((60, 20))
    process = Determinantal.from_gram(A.T @ A, 7.0)
    subsets = process.draw(0, 700, rng=seed)

    def in_chunks(function, n_items):
        return [function(start, min(start + 37, n_items)) for start in range(0, n_items, 37)]

    for threads in ({}, {"threads": in_chunks}):
        part = process.draw(300, 700, rng=seed, **threads)
        assert_array_equal(part.indices, subsets.slice(300, 700).indices)
    assert not np.array_equal(process.draw(0, 700, rng=seed + 1).indices, subsets.indices)
    assert all(np.all(np.diff(columns) > 0) for columns in subsets)


def test_draws_do_not_depend_on_rounding(seed):
    """Balanced factors have equal eigenvalues, whose eigenvectors rounding turns among each other."""
    rng = np.random.default_rng(seed)
    factors = np.hstack([np.eye(4)[rng.permutation(np.repeat(np.arange(4), 25))] for _ in range(3)])
    A = block_diag(factors - factors.mean(axis=0), np.linalg.qr(rng.standard_normal((50, 6)))[0])
    rounded_otherwise = sum(np.outer(row, row) for row in A[rng.permutation(len(A))])
    expected = Determinantal.from_gram(A.T @ A, 6.0).draw(0, 500, rng=seed)
    for process in (
        Determinantal.from_gram(rounded_otherwise, 6.0),
        Determinantal.from_rows(A, 6.0),
    ):
        assert_array_equal(process.draw(0, 500, rng=seed).indices, expected.indices)


def one_hot_problem(seed, n=400):
    rng = np.random.default_rng(seed)
    factors = [np.eye(levels)[rng.integers(0, levels, n)] for levels in (2, 2, 3, 5)]
    X = np.hstack([rng.standard_normal((n, 4)), *factors])
    return X, X @ rng.standard_normal(16) + rng.standard_normal(n), rng.uniform(0.5, 2.0, n)


def tables(seed):
    """Names, columns, targets and sizes of members."""
    rng = np.random.default_rng(seed)
    spectra, carbon = load_soil_carbon(return_X_y=True)
    yield "spectra", spectra[:300, ::7], carbon[:300], 12
    yield "one-hot", *one_hot_problem(seed)[:2], 8
    X = rng.standard_normal((40, 300))
    yield "more columns than rows", X, X[:, 0] + rng.standard_normal(40), 15
    for name, size in (("Longley", 3), ("Wampler1", 2)):
        problem = nist(name)
        yield name, problem.X, problem.y, size
    x = np.linspace(1, 3, 30)
    yield "powers", np.vander(x, 8)[:, :7], np.sin(3 * x) + 0.1 * rng.standard_normal(30), 3


def test_members_reach_ridge_regression_and_coins_with_their_probabilities_do_not(seed):
    """Distances of fitted values are in standard errors of the mean of the members."""
    n_missed = 0
    for name, X, y, size in tables(seed):
        A, B = centred(X.astype(float), y[:, None])
        process = Determinantal.from_rows(A, size)
        ridge_fit = A @ process.mean_coefficients(A.T @ B)[:, 0]
        for k in (100, 1000, 10_000):
            model = members(k, float(size) / X.shape[1], random_state=seed).fit(X, y)
            with case(name, k):
                assert model.n_fallbacks_ == 0
                assert distance(A, model, ridge_fit) < 4
        coins = OLSEnsembleRegressor(
            10_000, process.probabilities, sampling="bernoulli", random_state=seed
        )
        n_missed += distance(A, coins.fit(X, y), ridge_fit) > 4
    assert n_missed >= 5  # of six: independent coins reach another mean


def distance(A, model, fit):
    """Root mean square distance of the fit over its standard error, by the first 1000 members."""
    member_fits = A @ model.member_coefs(min(model.n_estimators_, 1000)).toarray().T
    error = np.sqrt(np.mean(np.var(member_fits, axis=1, ddof=1)) / model.n_estimators_)
    return np.sqrt(np.mean((A @ model.coef_ - fit) ** 2)) / error


def engines(X, y, weight):
    """Yield the rows as arrays of either order, blocks, Dask arrays and tensors."""
    yield "memory", (X, y, weight)
    yield "fortran", (np.asfortranarray(X), y, weight)
    blocks = [np.array_split(array, 6) for array in (X, y, weight)]
    yield "blocks", (lambda: zip(*blocks, strict=True), None, None)
    da = pytest.importorskip("dask.array")
    yield "dask", [da.from_array(a, chunks=(50, *a.shape[1:])) for a in (X, y, weight)]
    torch = pytest.importorskip("torch")
    yield "torch", [torch.asarray(a) for a in (X, y, weight)]


def ridge_by_hand(model, X, Y, weight):
    """Ridge regression at the penalty of a fitted limit: coefficients (p, q) and intercept."""
    process = model._fitted.design.process[0]
    A, B = centred(X, Y, weight)
    coef = np.linalg.solve(A.T @ A + np.diag(process.penalty / process.prior_variances), A.T @ B)
    means = np.average(X, axis=0, weights=weight)
    return coef, np.average(Y, axis=0, weights=weight) - means @ coef


@pytest.mark.parametrize("shape", [(60, 12), (25, 40)])
def test_the_limit_is_ridge_regression_with_jackknife_intervals_of_refits(shape, seed):
    """Two targets, weights and a dependent column; standard errors are those of many members."""
    rng = np.random.default_rng(seed)
    n, p = shape
    X = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, p) + 3.0
    X[:, 4] = 2 * X[:, 2]
    Y = X[:, :1] / X[:, 0].std() + rng.standard_normal((n, 2)) * [1.0, 100.0]
    weight = rng.uniform(0.5, 2.0, n)
    model = limit(7).fit(X, Y, weight)
    coef, intercept = ridge_by_hand(model, X, Y, weight)
    assert_allclose(model.coef_.T, coef, rtol=1e-7, atol=1e-9 * np.abs(coef).max())
    assert_allclose(model.intercept_, intercept, rtol=1e-7)
    assert model.inclusion_.sum() == pytest.approx(7)
    assert (model.n_estimators_, len(model.weights_), model.n_fallbacks_) == (np.inf, 0, 0)

    ends = []
    for row in range(n):
        training = np.arange(n) != row
        coef, intercept = ridge_by_hand(model, X[training], Y[training], weight[training])
        residual = np.abs(Y[row] - X[row] @ coef - intercept)
        prediction = X[:4] @ coef + intercept
        ends.append([prediction - residual, prediction + residual])
    ends = np.sort(ends, axis=0)
    rank = int(np.ceil(0.8 * (n + 1)))
    expected = np.stack([ends[n - rank, 0], ends[rank - 1, 1]], axis=-1)
    assert_allclose(model.predict_interval(X[:4], 0.8, method="jackknife+"), expected, rtol=1e-8)

    drawn = members(4000, 7, random_state=seed).fit(X, Y, weight)
    assert_allclose(drawn.coef_std(), model.coef_std(), rtol=0.25)
    assert model.members_needed() == pytest.approx(drawn.members_needed(), rel=1)
    assert len(model.summary().coefficients) == 2 * p
    assert "infinitely many" in model._repr_html_()


def test_the_limit_of_one_column_is_a_fraction_of_least_squares(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 1))
    Y = X + rng.standard_normal((60, 2))
    least_squares = LinearRegression().fit(X, Y).coef_
    assert_allclose(limit(0.5).fit(X, Y).coef_, least_squares / 2, rtol=1e-9)


def test_members_and_their_limit_are_the_same_in_every_engine(seed, monkeypatch):
    """Standard errors and intervals of the limit are computed from the rows or from moments."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y, weight = one_hot_problem(seed, 200)
    drawn = members(200, 7, random_state=seed).fit(X, y, weight)
    ridge = limit(7).fit(X, y, weight)
    for expected in (drawn, ridge):
        stream = clone(expected)
        for rows in np.array_split(np.arange(200), 3):
            stream.partial_fit(X[rows], y[rows], weight[rows])
        assert_allclose(stream.inclusion_, expected.inclusion_, rtol=1e-9)
        assert_allclose(stream.coef_, expected.coef_, rtol=1e-7, atol=1e-9)
    for name, data in engines(X, y, weight):
        with case(name), sklearn.config_context(array_api_dispatch=name == "torch"):
            model = clone(drawn).fit(*data)
            assert_array_equal(model.inclusion_, drawn.inclusion_)
            assert_allclose(np.asarray(model.coef_), drawn.coef_, rtol=1e-7, atol=1e-9)
            model = clone(ridge).fit(*data)
            new_X = data[0] if name == "torch" else X
            assert_allclose(np.asarray(model.coef_), ridge.coef_, rtol=1e-9)
            assert_allclose(np.asarray(model.predict(new_X)), ridge.predict(X), rtol=1e-9)
            assert_allclose(model.inclusion_, ridge.inclusion_, rtol=1e-9)
            assert_allclose(model.coef_std(), ridge.coef_std(), rtol=0.35)
            low, high = np.asarray(model.predict_interval(new_X, 0.9, method="cv+")).T
            assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.97


@pytest.mark.parametrize("n_estimators", [50, np.inf])
def test_copies_from_pickles_and_files_draw_the_same_members(n_estimators, seed, tmp_path):
    X, y, _ = one_hot_problem(seed)
    model = members(n_estimators, 7).fit(X, y)
    olsen.save(model, tmp_path / "model.skops")
    for copy in (pickle.loads(pickle.dumps(model)), olsen.load(tmp_path / "model.skops")):
        assert_array_equal(copy.predict(X), model.predict(X))
        assert copy.n_estimators_ == model.n_estimators_
        assert_array_equal(copy.inclusion_, model.inclusion_)
        assert all(map(np.array_equal, copy.feature_subsets_[:20], model.feature_subsets_[:20]))
        (third,) = islice(copy.feature_subsets_, 3, 4)
        assert_array_equal(third, copy.feature_subsets_[3])
        assert len(copy.sample_subsets_[0]) == 400


def test_refits_with_other_numbers_of_members_are_fresh_fits(seed):
    X, y, _ = one_hot_problem(seed)
    model = limit(7)
    for n_estimators in (np.inf, 50, 80, np.inf):
        expected = members(n_estimators, 7).fit(X, y).coef_
        model.set_params(n_estimators=n_estimators).fit(X, y)
        assert_allclose(model.coef_, expected, rtol=1e-9)


def test_infinitely_many_members_are_a_sequence_without_an_end(seed):
    X, y, _ = one_hot_problem(seed)
    model = limit(7).fit(X, y)
    drawn = members(50, 7).fit(X, y)
    coefs = model.member_coefs(50)
    assert_array_equal(coefs.indices[: coefs.indptr[1]], model.feature_subsets_[0])
    assert_allclose(drawn.member_coefs().toarray(), coefs.toarray())
    for endless in (
        model.member_coefs,
        lambda: model.feature_subsets_[-1],
        lambda: model.feature_subsets_[5:],
    ):
        with pytest.raises((ValueError, IndexError), match="infinitely many"):
            endless()
    low, high = drawn.predict_interval(X, 0.9).T
    assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.97
    assert np.all(drawn.predict(X[:5], return_std=True)[1] > 0)
    assert np.all(drawn.coef_std() > 0)


def test_a_penalty_below_the_digits_of_the_gram_matrix_comes_from_singular_values(seed):
    """Powers up to the tenth of a narrow range: condition 1e10, of which products keep nothing."""
    rng = np.random.default_rng(seed)
    x = np.linspace(1.0, 2.0, 40)
    X = x[:, None] ** np.arange(1, 11)
    y = np.sin(9 * x) + 0.01 * rng.standard_normal(40)
    model = limit(6).fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    lengths, vectors = np.linalg.svd(Z, full_matrices=False)[1:]
    penalty = model._fitted.design.process[0].penalty  # of columns of length one
    shrinkage = lengths**2 / (lengths**2 + penalty * len(X))
    assert shrinkage.sum() == pytest.approx(6, rel=1e-6)
    coef = vectors.T @ (shrinkage / lengths**2 * (vectors @ (Z.T @ (y - y.mean()))))
    assert_allclose(model.coef_ * X.std(axis=0), coef, rtol=1e-4)
    with pytest.raises(ValueError, match="smaller max_features"):
        limit(6).fit(lambda: iter([(X, y)]), None)


def test_units_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((80, 10))
    units = 10.0 ** rng.integers(-6, 6, 10)
    y = X[:, 0] + rng.standard_normal(80)
    plain = members(40, 0.4, random_state=seed).fit(X, y)
    scaled = members(40, 0.4, random_state=seed).fit(X * units, y)
    assert_allclose(scaled.coef_ * units, plain.coef_, rtol=1e-7, atol=1e-12)


def tuned(**parameters):
    return OLSEnsembleRegressorCV(10, sampling="determinantal", **parameters)


DESIGN = "design='independent' has no meaning for sampling='determinantal'"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (members(10, 5, max_samples=0.5), "max_samples=0.5"),
        (members(10, np.full(30, 0.2)), "probabilities"),
        (members(10, 19), "rank of the columns, 19"),
        (members(10, 0.9), "27 columns"),
        (members(np.inf, 5, mixing="stacking"), "stacking"),
        (members(10, 5, design="independent"), DESIGN),
        (OLSEnsembleRegressor(np.inf, 5, sampling="fixed"), "sampling='determinantal'"),
        (OLSEnsembleRegressor(np.inf, 5, sampling="bernoulli"), "sampling='determinantal'"),
        (tuned(design="independent"), DESIGN),
        (tuned(max_samples=0.5), "max_samples=0.5"),
        (tuned(cv="oob"), "cv='oob'.*determinantal"),
    ],
    ids=str,
)
def test_parameters_that_exclude_each_other_are_refused(model, message):
    X = np.random.default_rng(0).standard_normal((20, 30))
    with pytest.raises(ValueError, match=message):
        model.fit(X, np.arange(20.0))


def test_negative_prior_variances_are_refused_and_no_members_are_subsets():
    X = np.random.default_rng(0).standard_normal((20, 30))
    with pytest.raises(ValueError, match="prior_variances"):
        Determinantal.from_rows(X, 5.0, -np.ones(30))
    assert isinstance(Determinantal.from_rows(X, 5.0).draw(0, 0, rng=0), Subsets)


def test_penalty_and_size_are_inverse_to_each_other(seed):
    """Columns are dependent, or more than the rows."""
    rng = np.random.default_rng(seed)
    dependent = dependent_columns(rng)[:, :7]
    wide = rng.standard_normal((12, 40))
    for X, max_features, size in ((dependent, 3, 3), (wide, 0.2, 8)):
        penalty = olsen.equivalence.determinantal_penalty(X, max_features)
        chances = olsen.equivalence.inclusion_probabilities(X, penalty, check_collinear=False)
        assert chances.sum() == pytest.approx(size, abs=1e-9)
        A, B = centred(X, rng.standard_normal((len(X), 1)))
        process = Determinantal.from_rows(A, float(size))
        ridge = np.linalg.solve(A.T @ A + np.diag(penalty), A.T @ B)
        assert_allclose(process.mean_coefficients(A.T @ B), ridge, rtol=1e-7, atol=1e-9)


def test_the_risk_of_given_rows_is_that_of_simulated_ridge_regression_and_members(seed):
    """Ridge regression is simulated with 4000 draws of the noise, members with 400, at three
    numbers of members.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((25, 8))
    X[:, 7] = X[:, 6] + 0.2 * X[:, 7]
    beta = rng.standard_normal(8)
    sigma = 0.8
    Y = (X @ beta)[:, None] + sigma * rng.standard_normal((25, 4000))
    covariance = np.diag(np.linspace(0.5, 2.0, 8))
    settings = {"Sigma": covariance, "center": False}

    def assert_mean_risk(coefs, expected):
        errors = coefs - beta
        risks = np.sum(errors @ covariance * errors, axis=1)
        assert abs(risks.mean() - expected) < 4 * risks.std() / np.sqrt(len(risks))

    ridge = Determinantal.from_rows(X, 3.5).mean_coefficients(X.T @ Y).T
    risk = olsen.equivalence.determinantal_risk(X, beta, 3.5 / 8, sigma, **settings)
    assert_mean_risk(ridge, risk)
    ks = np.array([1, 5, 40])
    risks = olsen.equivalence.determinantal_risk(
        X, beta, 3.5 / 8, sigma, k=ks, n_subsets=20_000, **settings
    )
    for k, risk in zip(ks, risks, strict=True):
        coefs = [
            members(int(k), 3.5 / 8, random_state=i, fit_intercept=False).fit(X, Y[:, i]).coef_
            for i in range(400)
        ]
        with case(k):
            assert_mean_risk(np.array(coefs), risk)
