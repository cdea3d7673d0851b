"""Determinantal members: the mean of all of them is ridge regression, exactly, and what is drawn
follows that law.
"""

import itertools
import pickle
from itertools import chain, combinations

import numpy as np
import pytest
import sklearn
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import olsen
from loops import case
from nist.certified import nist
from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen.datasets import load_soil_carbon
from olsen.subsets import Determinantal, Subsets


def dependent_columns(rng, n=40, p=8):
    """A sum of two others, a copy in another unit, a constant column."""
    X = (rng.standard_normal((n, p)) + 0.3) * np.logspace(-2, 2, p)
    X[:, 3] = X[:, 0] / 0.01 + X[:, 1]
    X[:, 6] = 1e3 * X[:, 2]
    X[:, 7] = 5.0
    return X


def centred(X, Y, weight, fit_intercept):
    """Rows about their means, times the roots of the weights."""
    root = np.sqrt(weight)[:, None]
    if fit_intercept:
        X, Y = X - np.average(X, axis=0, weights=weight), Y - np.average(Y, axis=0, weights=weight)
        X[:, np.abs(X).max(axis=0) < 1e-10] = 0.0
    return X * root, Y * root


def test_the_mean_over_all_subsets_is_ridge_regression(seed):
    """Enumeration of all 256 subsets, with two targets: det(L_SS) times least squares on S."""
    cases = itertools.product(
        (True, False), (True, False), (True, False), (40, 6), ("from_gram", "from_rows")
    )
    for fit_intercept, weighted, given_spreads, n, made in cases:
        rng = np.random.default_rng(seed)
        X, Y = dependent_columns(rng, n), rng.standard_normal((n, 2))
        A, B = centred(X, Y, rng.uniform(0.3, 3, n) if weighted else np.ones(n), fit_intercept)
        G = A.T @ A
        spreads = rng.uniform(0.1, 2.0, 8) / np.maximum(np.diag(G), 1.0) if given_spreads else None
        process = getattr(Determinantal, made)(G if made == "from_gram" else A, 3.3, spreads)
        with case(fit_intercept, weighted, given_spreads, n, made):
            mean, inclusion = enumerated(A, B, process)
            found, root = process.mean_coefficients(A.T @ B), np.sqrt(process.spreads)[:, None]
            scaled = np.divide(
                found, root, out=np.zeros_like(found), where=root > 0
            )  # of columns alike
            expected = np.divide(mean, root, out=np.zeros_like(mean), where=root > 0)
            np.testing.assert_allclose(scaled, expected, rtol=0, atol=1e-12 * np.abs(scaled).max())
            np.testing.assert_allclose(process.probabilities, inclusion, atol=1e-10)
            assert process.probabilities.sum() == pytest.approx(3.3, abs=1e-9)
            live = process.spreads > 0
            ridged = G[np.ix_(live, live)] + process.penalty * np.diag(1 / process.spreads[live])
            np.testing.assert_allclose(
                found[live], np.linalg.solve(ridged, (A.T @ B)[live]), rtol=1e-7, atol=1e-9
            )


def enumerated(A, B, process):
    """Mean coefficients and inclusion probabilities, over all subsets of the columns."""
    p, root = A.shape[1], np.sqrt(process.spreads)
    L = root[:, None] * (A.T @ A) * root / process.penalty
    total, mean, inclusion = 0.0, np.zeros((p, B.shape[1])), np.zeros(p)
    for S in map(list, chain.from_iterable(combinations(range(p), m) for m in range(p + 1))):
        if np.linalg.matrix_rank(A[:, S] * root[S], tol=1e-9) < len(S):
            continue  # determinant zero: never drawn
        weight = np.linalg.det(L[np.ix_(S, S)]) if S else 1.0
        total += weight
        inclusion[S] += weight
        if S:
            mean[S] += weight * np.linalg.lstsq(A[:, S] * root[S], B, rcond=None)[0] * root[S, None]
    return mean / total, inclusion / total


def test_columns_pairs_and_sizes_are_drawn_as_often_as_the_law_says(seed):
    """100 000 draws: within four standard errors; the marginal kernel gives pairs as its 2 x 2
    minors.
    """
    rng = np.random.default_rng(seed)
    A, _ = centred(dependent_columns(rng), np.zeros((40, 1)), np.ones(40), True)
    process, k = Determinantal.from_gram(A.T @ A, 2.7), 100_000
    members = process.draw(0, k, seed=seed)
    mask = members.mask().astype(float)
    K = process.vectors @ (process.chances[:, None] * process.vectors.T)
    minors = np.outer(np.diag(K), np.diag(K)) - K**2
    np.fill_diagonal(minors, np.diag(K))
    error = np.sqrt(np.maximum(minors * (1 - minors), 1e-12) / k)
    assert np.all(np.abs(mask.T @ mask / k - minors) <= 4 * error + 1e-9)
    assert not np.any(mask[:, 2] * mask[:, 6]), "a column and its copy"
    assert not np.any(mask[:, 7]), "a constant column"
    spread = np.sum(process.chances * (1 - process.chances))  # sizes: a sum of independent coins
    assert abs(members.sizes.mean() - 2.7) < 4 * np.sqrt(spread / k)
    assert abs(members.sizes.var() - spread) < 4 * spread * np.sqrt(3 / k)


def test_members_are_functions_of_the_seed_and_their_number(seed):
    A = np.random.default_rng(seed).standard_normal((60, 20))
    process = Determinantal.from_gram(A.T @ A, 7.0)
    whole = process.draw(0, 700, seed=seed)

    def mapper(function, n_items):
        return [function(start, min(start + 37, n_items)) for start in range(0, n_items, 37)]

    for part in (
        process.draw(300, 700, seed=seed),
        process.draw(300, 700, seed=seed, threads=mapper),
    ):
        assert np.array_equal(part.indices, whole.slice(300, 700).indices)
    assert not np.array_equal(process.draw(0, 700, seed=seed + 1).indices, whole.indices)
    assert all(np.all(np.diff(member) > 0) for member in whole if len(member) > 1)


def test_what_is_drawn_does_not_depend_on_rounding(seed):
    """Balanced factors have equal eigenvalues, whose eigenvectors rounding turns among each other."""
    rng = np.random.default_rng(seed)
    factors = np.hstack([np.eye(4)[rng.permutation(np.repeat(np.arange(4), 25))] for _ in range(3)])
    A = block_diag(factors - factors.mean(axis=0), np.linalg.qr(rng.standard_normal((50, 6)))[0])
    G, order = A.T @ A, rng.permutation(len(A))
    again = sum(np.outer(row, row) for row in A[order])
    first, second = (
        Determinantal.from_gram(gram, 6.0).draw(0, 500, seed=seed) for gram in (G, again)
    )
    assert np.array_equal(first.indices, second.indices)
    dual = Determinantal.from_rows(A, 6.0).draw(0, 500, seed=seed)
    assert np.array_equal(first.indices, dual.indices)


def one_hot_table(rng, n=400):
    factors = [np.eye(levels)[rng.integers(0, levels, n)] for levels in (2, 2, 3, 5)]
    return np.hstack([rng.standard_normal((n, 4)), *factors])


def one_hot_problem(seed, n=400):
    rng = np.random.default_rng(seed)
    X = one_hot_table(rng, n)
    return X, X @ rng.standard_normal(16) + rng.standard_normal(n), rng.uniform(0.5, 2.0, n)


def tables(seed):
    rng = np.random.default_rng(seed)
    spectra, carbon = load_soil_carbon(return_X_y=True)
    yield "spectra", spectra[:300, ::7], carbon[:300], 12
    X = one_hot_table(rng)
    yield "one-hot", X, X @ rng.standard_normal(16) + rng.standard_normal(400), 8
    X = rng.standard_normal((40, 300))
    yield "more columns than rows", X, X[:, 0] + rng.standard_normal(40), 15
    for name, size in (("Longley", 3), ("Wampler1", 2)):
        problem = nist(name)
        yield name, problem.X, problem.y, size
    x = np.linspace(1, 3, 30)[:, None]
    yield "powers", x ** np.arange(1, 8), np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(30), 3


def test_members_reach_ridge_regression_and_coins_with_their_probabilities_do_not(seed):
    """Distance of fitted values from ridge regression's, in standard errors of the mean of the
    members.
    """
    missed = 0
    for name, X, y, size in tables(seed):
        A, B = centred(X.astype(float), y[:, None], np.ones(len(y)), True)
        process = Determinantal.from_rows(A, size)
        limit = A @ process.mean_coefficients(A.T @ B)[:, 0]
        for k in (100, 1000, 10_000):
            model = OLSEnsembleRegressor(
                k, float(size) / X.shape[1], sampling="determinantal", random_state=seed
            )
            model.fit(X, y)
            assert model.n_fallbacks_ == 0, name
            assert distance(A, model, limit) < 4, (name, k)
        coins = OLSEnsembleRegressor(
            10_000, process.probabilities, sampling="bernoulli", random_state=seed
        )
        missed += distance(A, coins.fit(X, y), limit) > 4
    assert missed >= 5  # of six: independent coins reach another mean


def distance(A, model, limit):
    """Root mean square of (fit - limit) over its standard error, from the spread of the first
    members.
    """
    few = A @ model.member_coefs(min(model.n_estimators_, 1000)).toarray().T
    error = np.sqrt(np.mean(np.var(few, axis=1, ddof=1)) / model.n_estimators_)
    return np.sqrt(np.mean((A @ model.coef_ - limit) ** 2)) / error


def engines(X, y, weight):
    """The same rows, wherever they are."""
    yield "memory", (X, y, weight)
    yield "fortran", (np.asfortranarray(X), y, weight)

    def blocks():
        for start in range(0, len(X), 37):
            rows = slice(start, start + 37)
            yield X[rows], y[rows], weight[rows]

    yield "blocks", (blocks, None, None)
    da = pytest.importorskip("dask.array")
    chunked = [da.from_array(a, chunks=(50, *a.shape[1:])) for a in (X, y, weight)]
    yield "dask", chunked
    torch = pytest.importorskip("torch")
    yield "torch", [torch.asarray(a) for a in (X, y, weight)]


def limit(max_features, **others):
    return OLSEnsembleRegressor(
        np.inf, max_features, sampling="determinantal", random_state=0, **others
    )


def ridge_by_hand(model, X, Y, weight):
    """Ridge regression at the penalty of a fitted limit: coefficients (p, q) and intercept."""
    process = model._fitted.design.process[0]
    mean_x, mean_y = np.average(X, axis=0, weights=weight), np.average(Y, axis=0, weights=weight)
    A, B = (X - mean_x) * np.sqrt(weight)[:, None], (Y - mean_y) * np.sqrt(weight)[:, None]
    coef = np.linalg.solve(A.T @ A + np.diag(process.penalty / process.spreads), A.T @ B)
    return coef, mean_y - mean_x @ coef


@pytest.mark.parametrize("shape", [(60, 12), (25, 40)])
def test_the_limit_is_ridge_regression_and_so_is_all_that_is_said_of_it(shape, seed):
    """Two targets, weights, a dependent column: coefficients, jackknife+ by refits, standard errors
    beside members'.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 3, shape[1]) + 3.0
    X[:, 4] = 2 * X[:, 2]
    Y = X[:, :1] / X[:, 0].std() + rng.standard_normal((shape[0], 2)) * [1.0, 100.0]
    weight = rng.uniform(0.5, 2.0, shape[0])
    model = limit(7).fit(X, Y, weight)
    coef, intercept = ridge_by_hand(model, X, Y, weight)
    np.testing.assert_allclose(model.coef_.T, coef, rtol=1e-7, atol=1e-9 * np.abs(coef).max())
    np.testing.assert_allclose(model.intercept_, intercept, rtol=1e-7)
    assert model.inclusion_.sum() == pytest.approx(7)
    alone = limit(0.5).fit(X[:, :1], Y).coef_  # of one column: its share of least squares
    np.testing.assert_allclose(alone, LinearRegression().fit(X[:, :1], Y).coef_ / 2, rtol=1e-9)
    assert (model.n_estimators_, len(model.weights_), model.n_fallbacks_) == (np.inf, 0, 0)

    ends, n = [], len(X)
    for row in range(n):
        rest = np.arange(n) != row
        b, b0 = ridge_by_hand(model, X[rest], Y[rest], weight[rest])
        off = np.abs(Y[row] - X[row] @ b - b0)
        ends.append([X[:4] @ b + b0 - off, X[:4] @ b + b0 + off])
    ends, rank = np.sort(ends, axis=0), int(np.ceil(0.8 * (n + 1)))
    found = model.predict_interval(X[:4], 0.8, method="jackknife+")
    np.testing.assert_allclose(found[..., 0], ends[n - rank, 0], rtol=1e-8)
    np.testing.assert_allclose(found[..., 1], ends[rank - 1, 1], rtol=1e-8)

    many = OLSEnsembleRegressor(4000, 7, sampling="determinantal", random_state=seed).fit(
        X, Y, weight
    )
    np.testing.assert_allclose(many.coef_std(), model.coef_std(), rtol=0.25)
    batches = (
        np.stack([coefs.toarray() for coefs in many.member_coefs()])
        .reshape(2, 100, 40, -1)
        .mean(axis=2)
    )
    assert np.all(np.abs(many.coef_ - model.coef_) < 0.5 * batches.std(axis=1, ddof=1))
    assert np.all(np.isfinite(model.predict_interval(X[:4])))
    assert model.members_needed() == pytest.approx(many.members_needed(), rel=1)
    assert np.all(np.isfinite(model.predict_interval(X[:4], method="cv+")))
    assert (
        len(model.summary().coefficients) == 2 * shape[1]
        and "infinitely many" in model._repr_html_()
    )


def test_members_and_their_limit_are_the_same_in_every_engine(seed, monkeypatch):
    """With standard errors and intervals of the limit, which are computed from the rows or from
    moments.
    """
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y, weight = one_hot_problem(seed, 200)
    members, endless = (
        OLSEnsembleRegressor(200, 7, sampling="determinantal", random_state=seed),
        limit(7),
    )
    expected, memory = clone(members).fit(X, y, weight), clone(endless).fit(X, y, weight)
    for model, known in ((clone(members), expected), (clone(endless), memory)):
        for rows in np.array_split(np.arange(200), 3):
            model.partial_fit(X[rows], y[rows], weight[rows])
        np.testing.assert_allclose(model.inclusion_, known.inclusion_, rtol=1e-9)
        np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-7, atol=1e-9)
    for name, data in engines(X, y, weight):
        with case(name), sklearn.config_context(array_api_dispatch=name == "torch"):
            found = clone(members).fit(*data)
            assert np.array_equal(found.inclusion_, expected.inclusion_)
            np.testing.assert_allclose(
                np.asarray(found.coef_), expected.coef_, rtol=1e-7, atol=1e-9
            )
            model, new = clone(endless).fit(*data), data[0] if name == "torch" else X
            np.testing.assert_allclose(np.asarray(model.coef_), memory.coef_, rtol=1e-9)
            np.testing.assert_allclose(np.asarray(model.predict(new)), memory.predict(X), rtol=1e-9)
            np.testing.assert_allclose(model.inclusion_, memory.inclusion_, rtol=1e-9)
            np.testing.assert_allclose(model.coef_std(), memory.coef_std(), rtol=0.35)
            low, high = np.asarray(model.predict_interval(new, 0.9, method="cv+")).T
            assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.97


def test_members_and_their_limit_after_pickling_in_files_and_refitted(seed, tmp_path):
    X, y, _ = one_hot_problem(seed)
    path, how = tmp_path / "model.skops", {"sampling": "determinantal", "random_state": 0}
    model = limit(7).fit(X, y)
    whole = model.coef_
    few = OLSEnsembleRegressor(50, 7, **how).fit(X, y)
    for given in (model, few):
        olsen.save(given, path)
        for copy in (pickle.loads(pickle.dumps(given)), olsen.load(path)):
            assert (
                np.array_equal(copy.predict(X), given.predict(X))
                and copy.n_estimators_ == given.n_estimators_
            )
            assert np.array_equal(copy.inclusion_, given.inclusion_)
            assert all(map(np.array_equal, copy.feature_subsets_[:20], given.feature_subsets_[:20]))
            third = next(itertools.islice(copy.feature_subsets_, 3, None))
            assert (
                np.array_equal(third, copy.feature_subsets_[3])
                and len(copy.sample_subsets_[0]) == 400
            )
    members = model.member_coefs(50)
    assert members.shape == (50, 16) and np.array_equal(
        members.indices[: members.indptr[1]], model.feature_subsets_[0]
    )
    np.testing.assert_allclose(few.member_coefs().toarray(), members.toarray())
    low, high = few.predict_interval(X, 0.9).T
    assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.97
    assert np.all(few.predict(X[:5], return_std=True)[1] > 0) and np.all(few.coef_std() > 0)
    for ask in (
        model.member_coefs,
        lambda: model.feature_subsets_[-1],
        lambda: model.feature_subsets_[5:],
    ):
        with pytest.raises((ValueError, IndexError), match="infinitely many"):
            ask()
    np.testing.assert_allclose(
        model.set_params(n_estimators=50).fit(X, y).coef_, few.coef_
    )  # both ways
    np.testing.assert_allclose(
        model.set_params(n_estimators=np.inf).fit(X, y).coef_, whole, rtol=1e-9
    )
    whole = OLSEnsembleRegressor(80, 7, **how).fit(X, y)
    np.testing.assert_allclose(
        few.set_params(n_estimators=80).fit(X, y).coef_, whole.coef_, rtol=1e-10
    )


def test_a_penalty_that_products_of_columns_do_not_tell_comes_from_singular_values(seed):
    """Powers up to the tenth of a narrow range: condition 1e10, of which the products keep nothing."""
    rng = np.random.default_rng(seed)
    x = np.linspace(1.0, 2.0, 40)[:, None]
    X, y = x ** np.arange(1, 11), np.sin(9 * x[:, 0]) + 0.01 * rng.standard_normal(40)
    model = limit(6).fit(X, y)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    lengths, vectors = np.linalg.svd(Z, full_matrices=False)[1:]
    penalty = model._fitted.design.process[0].penalty  # of columns of length one
    shrunk = lengths**2 / (lengths**2 + penalty * len(X))
    assert shrunk.sum() == pytest.approx(6, rel=1e-6)
    coef = vectors.T @ (shrunk / lengths**2 * (vectors @ (Z.T @ (y - y.mean()))))
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), coef, rtol=1e-4)
    with pytest.raises(ValueError, match="smaller max_features"):
        limit(6).fit(lambda: iter([(X, y)]), None)


def test_units_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    X, units = rng.standard_normal((80, 10)), 10.0 ** rng.integers(-6, 6, 10)
    y = X[:, 0] + rng.standard_normal(80)
    ours, scaled = (
        OLSEnsembleRegressor(40, 0.4, sampling="determinantal", random_state=seed).fit(Z, y)
        for Z in (X, X * units)
    )
    np.testing.assert_allclose(scaled.coef_ * units, ours.coef_, rtol=1e-7, atol=1e-12)


def test_what_cannot_be_combined_is_refused_with_the_reason():
    X, y = np.random.default_rng(0).standard_normal((20, 30)), np.arange(20.0)
    determinantal = {"sampling": "determinantal", "random_state": 0}
    for how, words in (
        ({"max_samples": 0.5}, "max_samples=0.5"),
        ({"max_features": np.full(30, 0.2)}, "probabilities"),
        ({"max_features": 19}, "rank of the columns, 19"),
        ({"max_features": 0.9}, "27 columns"),
        ({"n_estimators": np.inf, "mixing": "stacking"}, "stacking"),
    ):
        with pytest.raises(ValueError, match=words):
            OLSEnsembleRegressor(
                **{"n_estimators": 10, **determinantal, "max_features": 5, **how}
            ).fit(X, y)
    for sampling in ("fixed", "bernoulli"):
        with pytest.raises(ValueError, match="sampling='determinantal'"):
            OLSEnsembleRegressor(np.inf, 5, sampling=sampling).fit(X, y)
    for make in (OLSEnsembleRegressor, OLSEnsembleRegressorCV):
        with pytest.raises(
            ValueError, match="design='independent' has no meaning for sampling='determinantal'"
        ):
            make(10, design="independent", **determinantal).fit(X, y)
    for how, words in (
        ({"max_samples": 0.5}, "max_samples=0.5"),
        ({"cv": "oob"}, "cv='oob'.*determinantal"),
    ):
        with pytest.raises(ValueError, match=words):
            OLSEnsembleRegressorCV(10, **determinantal, **how).fit(X, y)
    with pytest.raises(ValueError, match="spreads"):
        Determinantal.from_rows(X, 5.0, -np.ones(30))
    assert isinstance(Determinantal.from_rows(X, 5.0).draw(0, 0, seed=0), Subsets)


def test_penalty_and_size_are_each_others_inverse(seed):
    """With dependent columns, and with more columns than rows."""
    rng = np.random.default_rng(seed)
    for X, size in ((dependent_columns(rng)[:, :7], 3), (rng.standard_normal((12, 40)), 0.2)):
        penalty = olsen.equivalence.determinantal_penalty(X, size)
        chances = olsen.equivalence.inclusion_probabilities(X, penalty, check_collinear=False)
        expected = size if isinstance(size, int) else size * X.shape[1]
        assert chances.sum() == pytest.approx(expected, abs=1e-9)
        y = rng.standard_normal(len(X))
        A, B = centred(X, y[:, None], np.ones(len(y)), True)
        process = Determinantal.from_rows(A, expected)
        ridge = np.linalg.solve(A.T @ A + np.diag(penalty), A.T @ B)
        np.testing.assert_allclose(process.mean_coefficients(A.T @ B), ridge, rtol=1e-7, atol=1e-9)


def test_the_risk_on_given_rows_is_that_of_ridge_regression_and_of_simulated_members(seed):
    """Brute force: 4000 noises on ridge regression; then members on the same rows, at three numbers
    of them.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((25, 8))
    X[:, 7] = X[:, 6] + 0.2 * X[:, 7]
    beta, Sigma, sigma = rng.standard_normal(8), np.diag(np.linspace(0.5, 2.0, 8)), 0.8
    process = Determinantal.from_rows(X, 3.5)
    Y = (X @ beta)[:, None] + sigma * rng.standard_normal((25, 4000))
    off = process.mean_coefficients(X.T @ Y) - beta[:, None]
    energy = np.sum(off * (Sigma @ off), axis=0)
    exact = olsen.equivalence.determinantal_risk(X, beta, 3.5 / 8, sigma, Sigma=Sigma, center=False)
    assert abs(energy.mean() - exact) < 4 * energy.std() / np.sqrt(4000)

    ks = np.array([1, 5, 40])
    how = {"Sigma": Sigma, "center": False, "n_subsets": 20_000}
    risks = olsen.equivalence.determinantal_risk(X, beta, 3.5 / 8, sigma, k=ks, **how)
    for k, risk in zip(ks, risks, strict=True):
        energies = []
        for i in range(400):
            model = OLSEnsembleRegressor(
                int(k), 3.5 / 8, sampling="determinantal", fit_intercept=False, random_state=i
            )
            error = model.fit(X, Y[:, i]).coef_ - beta
            energies.append(error @ Sigma @ error)
        assert abs(np.mean(energies) - risk) < 4 * np.std(energies) / 20, k
