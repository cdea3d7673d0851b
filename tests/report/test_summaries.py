"""What people look at: tables of coefficients, facts in a notebook, the report page, a plain linear
model.
"""

import pickle
import re
import sys
import warnings
from html import unescape
from html.parser import HTMLParser
from itertools import product

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

import olsen
from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data.fits import NeedsRows

N, P = 60, 5
MARKUP = ["<script>alert(1)</script>", '"><img src=x>', "a & b", "plain", "<b>"]
UNCERTAIN = ["std", "lower", "upper"]
OF_MEMBERS = ["member_mean", "member_spread", "same_sign"]


def data(seed, q=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 3
    Y = X @ rng.standard_normal((P, q or 1)) + rng.standard_normal((N, q or 1))
    return X, Y if q else Y[:, 0]


def ensemble(seed, **settings):
    return OLSEnsembleRegressor(
        **{"n_estimators": 30, "max_features": 3, "random_state": seed, **settings}
    )


def tuned(seed, **settings):
    return AdaptiveOLSEnsembleRegressor(**{"n_estimators": 30, "random_state": seed, **settings})


def tuned_size(seed, **settings):
    return OLSEnsembleRegressorCV(**{"n_estimators": 30, "random_state": seed, **settings})


def frame_of(library, X, names=None):
    names = names or [f"c{j}" for j in range(X.shape[1])]
    return pytest.importorskip(library).DataFrame(dict(zip(names, X.T, strict=True)))


def in_blocks(X, y):
    return lambda: ((X[i : i + 20], y[i : i + 20]) for i in range(0, len(X), 20))


class Parts(HTMLParser):
    """Tags of a page, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, words):
        self.text += words


def facts(model):
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td></tr>', model._repr_html_())
    return {unescape(name): unescape(fact) for name, fact in rows}


# The table of coefficients


def test_coefficients_and_their_uncertainty(seed):
    X, y = data(seed)
    for make in (ensemble, tuned, tuned_size):
        model = make(seed).fit(X, y)
        wide, narrow = model.summary(0.99).coefficients, model.summary(0.5).coefficients
        assert wide["feature"].tolist() == ["x0", "x1", "x2", "x3", "x4"]
        np.testing.assert_array_equal(wide["coef"], model.coef_)
        np.testing.assert_array_equal(wide["drawn"], model.inclusion_)
        np.testing.assert_allclose(wide["std"], model.coef_std())
        np.testing.assert_allclose(wide[["lower", "upper"]], model.coef_interval(0.99))
        assert (wide["lower"] < narrow["lower"]).all() and (narrow["upper"] < wide["upper"]).all()
        assert (narrow["lower"] < narrow["coef"]).all() and (narrow["coef"] < narrow["upper"]).all()
    for what in ("summary", "to_linear_regression"):
        with pytest.raises(sklearn.exceptions.NotFittedError):
            getattr(OLSEnsembleRegressor(), what)()


@pytest.mark.parametrize("q", [None, 1, 3])
def test_members_are_those_that_hold_the_column(q, seed):
    X, y = data(seed, q)
    model = ensemble(seed, max_features=2, n_estimators=25, scale=0.7).fit(X, y)
    frame = model.summary().coefficients
    targets = frame["target"].tolist() if q else []
    assert targets == np.repeat(range(q or 0), P).tolist() and (
        frame.columns[0] == "target"
    ) == bool(q)
    for t, coef in enumerate(np.atleast_2d(model.coef_)):
        target, rows = y.reshape(N, -1)[:, t], frame.iloc[t * P : (t + 1) * P]
        fits = [(S, LinearRegression().fit(X[:, S], target).coef_) for S in model.feature_subsets_]
        for j in range(P):
            found = np.array([b[list(S).index(j)] for S, b in fits if j in S])
            assert rows["feature"].iloc[j] == f"x{j}" and rows["drawn"].iloc[j] == len(found) / 25
            np.testing.assert_allclose(
                rows["member_mean"].iloc[j], found.mean(), rtol=1e-6, atol=1e-9
            )
            np.testing.assert_allclose(
                rows["member_spread"].iloc[j], found.std(), rtol=1e-6, atol=1e-9
            )
            assert rows["same_sign"].iloc[j] == np.mean(np.sign(found) == np.sign(coef[j]))
        np.testing.assert_array_equal(rows["coef"], coef)
        np.testing.assert_array_equal(rows["std"], np.atleast_2d(model.coef_std())[t])


def test_what_is_not_known_is_left_empty(seed, tmp_path):
    """Of a column that no member holds; of rows that are gone; of members of blocks."""
    X, y = data(seed)
    frame = (
        ensemble(seed, max_features=np.array([0.0, 0.5, 0.5, 0.5, 1.0]))
        .fit(X, y)
        .summary()
        .coefficients
    )
    assert frame["drawn"][0] == 0 and frame.loc[0, OF_MEMBERS].isna().all()
    assert frame.loc[1:, OF_MEMBERS].notna().all().all()
    pytest.importorskip("skops")
    whole = ensemble(seed).fit(frame_of("pandas", X), y)
    olsen.save(whole, tmp_path / "m.skops", intervals=False)
    for model in (
        ensemble(seed).fit(iter(list(in_blocks(X, y)())), None),
        olsen.load(tmp_path / "m.skops"),
        pickle.loads(pickle.dumps(whole.set_params(keep_rows=False))),
    ):
        frame = model.summary().coefficients
        np.testing.assert_array_equal(frame["coef"], model.coef_)
        np.testing.assert_array_equal(frame["drawn"], model.inclusion_)
        assert frame[UNCERTAIN + OF_MEMBERS].isna().all().all()
    model = ensemble(seed).fit(in_blocks(X, y), None)  # blocks that can be read again
    frame = model.summary().coefficients
    np.testing.assert_allclose(frame["std"], model.coef_std())
    assert frame["std"].notna().all() and frame[OF_MEMBERS].isna().all().all()


def test_the_library_is_remembered_and_forgotten(seed, tmp_path, monkeypatch):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("skops")
    X, y = data(seed)
    for library in ("pandas", "polars"):
        model = tuned(seed).fit(frame_of(library, X), y)
        frame = model.summary().coefficients
        assert isinstance(frame, sys.modules[library].DataFrame)
        assert list(frame.columns) == [
            "feature",
            "coef",
            *UNCERTAIN,
            "effect",
            "drawn",
            *OF_MEMBERS,
        ]
        olsen.save(model, tmp_path / "m.skops")
        for one in (model, olsen.load(tmp_path / "m.skops")):
            assert list(one.summary().coefficients["feature"]) == [f"c{j}" for j in range(P)]
    model = ensemble(seed).fit(frame_of("polars", X), y)
    assert isinstance(pickle.loads(pickle.dumps(model)).summary().coefficients, polars.DataFrame)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((N, P), np.nan), y)
    assert isinstance(model.summary().coefficients, polars.DataFrame), (
        "a fit that fails changes nothing"
    )
    assert isinstance(model.fit(X, y).summary().coefficients, pandas.DataFrame), (
        "arrays come from no such library"
    )
    assert isinstance(
        ensemble(seed).partial_fit(frame_of("polars", X), y).summary().coefficients,
        polars.DataFrame,
    )
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        _ = model.summary().effects


# Facts in a notebook


@pytest.mark.parametrize("make", [tuned, tuned_size])
def test_facts_of_a_tuned_model(make, seed):
    X, y = data(seed)
    model = make(seed).fit(X, y)
    found = facts(model)
    words = {"loo": "leave-one-out", "kfold": "k-fold cross-validation"}
    assert found["members"] == "30" and found["estimated by"] == words[model.criterion_]
    size = model.inclusion_.sum()
    assert found["columns in a member"].startswith(
        f"all {P}" if size == P else f"{size:.4g} of {P}"
    )
    error, spread = found["error of prediction"].split(" (")[0].split(" ± ")
    assert float(error) == pytest.approx(np.sqrt(-model.best_score_), rel=1e-3)
    mse, se = -model.best_score_, model.cv_results_["std_test_score"][model.best_index_]
    assert float(spread) == pytest.approx(
        (np.sqrt(mse + se / 100) - np.sqrt(mse)) * 100, rel=0.06
    )  # two digits
    assert ("sampling schemes" in found) == (make is tuned)
    for scheme in model.scheme_weights_ if make is tuned else ():
        assert scheme in found["sampling schemes"]
    assert (
        float(found["scale"]) == pytest.approx(model.scale_, rel=1e-3)
        and found["solver"] == model.solver_
    )


def test_explained_variance_is_weighted_like_the_error(seed):
    X, y = data(seed, 2)
    weights = np.ones(N), np.random.default_rng(seed).integers(0, 4, N).astype(float)
    for make, weight in product((tuned, tuned_size), weights):
        model = make(seed).fit(X, y, sample_weight=weight)
        share = weight / weight.sum()
        spread = np.mean(
            [
                sum(
                    s * (v - (share @ t - s * v) / (1 - s)) ** 2
                    for s, v in zip(share, t, strict=True)
                )
                for t in y.T
            ]
        )
        assert facts(model)["R² of held-out rows"] == f"{1 + model.best_score_ / spread:.3f}"


def test_facts_of_a_given_size_and_of_fallbacks(seed):
    X, y = data(seed)
    found = facts(ensemble(seed, max_features=2, max_samples=0.5).fit(X, y))
    assert (
        found["columns in a member"] == "2 of 5 (40%)"
        and found["rows in a member"] == "30 of 60 (50%)"
    )
    assert "error of prediction" not in found and "sampling schemes" not in found
    found = facts(ensemble(seed, mixing="stacking").fit(X, y))
    assert found["weights"].startswith(("equal", "stacked")) and "rows in a member" not in found
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 2]
    model = ensemble(seed, max_features=4).fit(X, y)
    assert model.n_fallbacks_ > 0
    assert (
        facts(model)["solver"]
        == f"{model.solver_}; {model.n_fallbacks_} members refitted from the data"
    )


def test_nobody_elses_text_is_markup_and_we_close_what_we_open(seed):
    X, y = data(seed)
    model = tuned(seed).fit(frame_of("pandas", X, MARKUP), y)
    html, diagram = model._repr_html_(), estimator_html_repr(model)
    assert (
        "<script>alert" not in html
        and "<img" not in html
        and html.count("<script") == diagram.count("<script")
    )
    start, table = html.split("<body>")[0], html.split("</body>")[1]
    assert start.count("<div") == 2 and table.count("</div>") == 2
    assert (
        table.count("<tr>") == table.count("</tr>") == table.count('<th scope="row">')
        and "<caption>" in table
    )
    model.solver_ = "<img src=x>"  # as a pickle may have it
    assert facts(model)["solver"] == "<img src=x>" and "<img" not in model._repr_html_()


def test_diagrams_before_the_fit_inside_of_others_and_as_text(seed):
    X, y = data(seed)
    for cls in (OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
        assert facts(cls()) == {} and cls.__name__ in cls()._repr_html_()
    pipeline = make_pipeline(StandardScaler(), ensemble(seed)).fit(X, y)
    search = GridSearchCV(ensemble(seed), {"max_features": [1, 2]}).fit(X, y)
    for outer in (
        pipeline,
        search,
        pickle.loads(pickle.dumps(pipeline)),
        pickle.loads(pickle.dumps(search)),
    ):
        assert (
            "OLSEnsembleRegressor" in outer._repr_html_()
            and "StandardScaler" in pipeline._repr_html_()
        )
    model = ensemble(seed).fit(X, y)
    assert "olsen-facts" in model._repr_mimebundle_()["text/html"]
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_") and list(model._repr_mimebundle_()) == [
            "text/plain"
        ]


def test_a_pickle_shows_what_it_holds(seed):
    model = tuned(seed).fit(*data(seed))
    again = facts(pickle.loads(pickle.dumps(model)))
    assert again == facts(model)
    without = facts(pickle.loads(pickle.dumps(model.set_params(keep_rows=False))))
    assert without == {name: fact for name, fact in again.items() if not name.startswith("R²")}


def test_looking_computes_nothing(seed):
    """From 1.8 on scikit-learn asks for every attribute there is, even those that would read all
    data again.
    """
    X, y = data(seed)
    calls = []

    def blocks():
        calls.append(1)
        return in_blocks(X, y)()

    model = ensemble(seed).fit(blocks, None)
    before = len(calls)
    for look in (dir, lambda model: model._repr_html_()):
        look(model)
        assert len(calls) == before
        look(pickle.loads(pickle.dumps(model)))


def test_names_that_can_be_completed(seed):
    streaming, other = ensemble(seed).fit(*data(seed)), ensemble(seed, max_samples=0.5)
    assert {"coef_", "coef_std", "feature_subsets_", "summary", "partial_fit"} <= set(
        dir(streaming)
    )
    assert "partial_fit" not in dir(other) and "coef_" not in dir(other) and "summary" in dir(other)


# The page


def page_of(place):
    return Parts(place.read_text(encoding="utf-8"))


@pytest.mark.parametrize("make", [tuned, tuned_size])
def test_the_page_of_a_fit(make, seed, tmp_path):
    X, y = data(seed)
    model = make(seed, cv=4).fit(frame_of("polars", X, MARKUP), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.report(tmp_path / "made" / "page.html")
    html = (tmp_path / "made" / "page.html").read_text(encoding="utf-8")
    page = Parts(html)
    assert (
        "<img" not in html and [tag for tag, _ in page.tags].count("script") == 1
    )  # the page's own
    assert all(name in page.text for name in MARKUP)
    assert f"{N} rows" in page.text and f"{np.sqrt(-model.best_score_):.4g}" in page.text
    assert f"n_estimators=30, random_state={seed}).fit(X, y).report('page.html')" in page.text
    assert "plus and minus two standard errors" in page.text and "cv=4" in page.text
    assert not [a for _, a in page.tags if "src" in a or a.get("href", "data:,") != "data:,"], (
        "it needs no other file"
    )


def test_the_page_says_how_wide_intervals_are_and_that_rows_are_few(seed, tmp_path):
    X, y = data(seed)
    for rows in (N, 20, 6):
        model = AdaptiveOLSEnsembleRegressor().fit(X[:rows], y[:rows])
        model.report(tmp_path / "page.html")
        text, wide = (
            page_of(tmp_path / "page.html").text,
            np.mean(np.diff(model.predict_interval(X[:rows]))),
        )
        if np.isfinite(wide):
            assert float(text.split("within ± ")[1].split()[0]) == pytest.approx(wide / 2, rel=1e-3)
        else:
            assert "too few for an interval" in text
        assert (f"{rows} rows are few" in text) == (rows < 30) == ("caution" in facts(model))


def test_the_page_needs_the_rows(seed, tmp_path):
    X, y = data(seed)
    place, sparse = tmp_path / "page.html", pytest.importorskip("scipy.sparse")
    many = np.random.default_rng(seed).standard_normal((1200, P + 1))  # fewer rows would be loaded
    blocks = tuned(seed).fit(iter([(many[:, 1:], many[:, 0])]), None)
    for model in (blocks, pickle.loads(pickle.dumps(tuned(seed, keep_rows=False).fit(X, y)))):
        with pytest.raises(NeedsRows, match="report needs"):
            model.report(place)
        assert not place.exists()
    for model in (
        tuned(seed).fit(sparse.csr_array(X), y),
        pickle.loads(pickle.dumps(tuned(seed).fit(X, y))),
    ):
        model.report(place)
        assert f"{N} rows" in page_of(place).text
    weight = np.ones(N)
    weight[[0, 7]] = 0
    y[0] = 1e9
    tuned(seed).fit(X, y, sample_weight=weight).report(
        place
    )  # rows of weight zero are not on the page
    text = page_of(place).text
    assert f"{N - 2} rows" in text and "Cross-validated predictions" in text


def test_a_page_that_cannot_be_made_leaves_the_old_one(seed, tmp_path):
    place = tmp_path / "page.html"
    for make, settings in ((tuned, {}), (tuned_size, {}), (tuned_size, {"max_samples": 0.5})):
        X, y = data(seed)
        model = make(seed, **settings).fit(X, y)
        model.report(place)
        before = place.read_bytes()
        X[:30] += 1.0
        with case(make.__name__, settings), pytest.raises(NeedsRows, match="changed in place"):
            model.report(place)
        assert place.read_bytes() == before and list(tmp_path.iterdir()) == [place]
    X, y = data(seed)
    place = tmp_path / "none.html"
    with pytest.raises(TypeError, match=r"max_features=\[3\]"):
        olsen.report(ensemble(seed).fit(X, y), place)
    assert not hasattr(ensemble(seed), "report")
    for make in (tuned, tuned_size):
        with pytest.raises(ValueError, match="2"):
            make(seed).fit(*data(seed, 2)).report(place)
    assert not place.exists()


# The plain model


def test_the_plain_model_predicts_the_same(seed):
    for q, settings in product((None, 1, 2), ({}, {"fit_intercept": False}, {"scale": 0.5})):
        X, y = data(seed, q)
        model = ensemble(seed, **settings).fit(X, y)
        plain, peer = (
            model.to_linear_regression(),
            LinearRegression(fit_intercept=model.fit_intercept).fit(X, y),
        )
        with case(q, settings):
            np.testing.assert_allclose(plain.predict(X), model.predict(X), rtol=1e-13)
            for name in ("coef_", "intercept_", "n_features_in_"):
                assert np.shape(getattr(plain, name)) == np.shape(getattr(peer, name)), name
            assert type(plain) is LinearRegression and plain.get_params() == peer.get_params()
            assert not {"rank_", "singular_", "feature_names_in_"} & set(vars(plain))
            model.coef_[...] = 0
            assert np.abs(plain.coef_).min() > 0, "it is a copy"


def test_the_plain_model_knows_its_columns_and_can_be_kept(seed):
    X, y = data(seed)
    frame = frame_of("pandas", X)
    model = tuned(seed).fit(frame.astype("float32"), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model)).to_linear_regression()))
        np.testing.assert_allclose(plain.predict(frame), model.predict(frame), rtol=1e-5)
    assert plain.coef_.dtype == np.float64
    with pytest.raises(ValueError, match="feature names"):
        plain.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_models_fitted_elsewhere_come_to_the_host(library, seed, monkeypatch):
    xp = pytest.importorskip(library)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y = data(seed)
    with sklearn.config_context(array_api_dispatch=True):
        there = tuned(seed).fit(xp.asarray(X), xp.asarray(y))
    plain, frame = there.to_linear_regression(), there.summary().coefficients
    assert type(plain.coef_) is np.ndarray and type(plain.intercept_) is float
    np.testing.assert_array_equal(frame["coef"], plain.coef_)
    with sklearn.config_context(array_api_dispatch=True):
        expected = np.asarray(there.predict(xp.asarray(X)))
    np.testing.assert_allclose(plain.predict(X), expected, rtol=1e-12)
    assert facts(there)["members"] == "30"
