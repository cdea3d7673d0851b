"""Tables of coefficients, facts in a notebook, the report page, and a plain linear model."""

import pickle
import re
import sys
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

import olsen
from engines import row_blocks
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
from olsen._data.fits import NeedsRows
from random_problems import random_problem

N = 60
P = 5
MARKUP = ["<script>alert(1)</script>", '"><img src=x>', "a & b", "plain", "<b>"]
UNCERTAINTY_COLUMNS = ["std", "lower", "upper"]
MEMBER_COLUMNS = ["member_mean", "member_spread", "same_sign"]


def data(seed, n_targets=None):
    return random_problem(seed, n=N, p=P, q=n_targets)


def ensemble(seed, **settings):
    defaults = {"n_estimators": 30, "max_features": 3, "random_state": seed}
    return OLSEnsembleRegressor(**(defaults | settings))


def adaptive(seed, **settings):
    return AdaptiveOLSEnsembleRegressor(**{"n_estimators": 30, "random_state": seed, **settings})


def tuned(seed, **settings):
    return OLSEnsembleRegressorCV(**{"n_estimators": 30, "random_state": seed, **settings})


def frame_of(library, X, names=None):
    names = names or [f"c{j}" for j in range(X.shape[1])]
    return pytest.importorskip(library).DataFrame(dict(zip(names, X.T, strict=True)))


class Page(HTMLParser):
    """Tags of a page, and its text."""

    def __init__(self, html):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, words):
        self.text += words


def facts(model):
    """Facts in the notebook representation of a model."""
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td></tr>', model._repr_html_())
    return {unescape(name): unescape(fact) for name, fact in rows}


# The table of coefficients


@pytest.mark.parametrize("make", [ensemble, adaptive, tuned])
def test_coefficients_and_their_uncertainty(make, seed):
    model = make(seed).fit(*data(seed))
    wide = model.summary(0.99).coefficients
    narrow = model.summary(0.5).coefficients
    assert wide["feature"].tolist() == ["x0", "x1", "x2", "x3", "x4"]
    assert_array_equal(wide["coef"], model.coef_)
    assert_array_equal(wide["drawn"], model.inclusion_)
    assert_allclose(wide["std"], model.coef_std())
    assert_allclose(wide[["lower", "upper"]], model.coef_interval(0.99))
    ends = [wide["lower"], narrow["lower"], narrow["coef"], narrow["upper"], wide["upper"]]
    assert (np.diff(ends, axis=0) > 0).all()
    for method in ("summary", "to_linear_regression"):
        with pytest.raises(sklearn.exceptions.NotFittedError):
            getattr(make(seed), method)()


@pytest.mark.parametrize("n_targets", [None, 1, 3])
def test_columns_about_members_follow_from_scikit_learn(n_targets, seed):
    X, y = data(seed, n_targets)
    model = ensemble(seed, max_features=2, n_estimators=25, scale=0.7).fit(X, y)
    frame = model.summary().coefficients
    assert (frame.columns[0] == "target") == bool(n_targets)
    if n_targets:
        assert frame["target"].tolist() == np.repeat(range(n_targets), P).tolist()
    std = np.atleast_2d(model.coef_std())
    for target, coef in enumerate(np.atleast_2d(model.coef_)):
        rows = frame.iloc[target * P : (target + 1) * P]
        members = np.full((25, P), np.nan)
        for member, columns in zip(members, model.feature_subsets_, strict=True):
            fit = LinearRegression().fit(X[:, columns], y.reshape(N, -1)[:, target])
            member[columns] = fit.coef_
        drawn = ~np.isnan(members)
        same_sign = (np.sign(members) == np.sign(coef)).sum(axis=0) / drawn.sum(axis=0)
        assert rows["feature"].tolist() == [f"x{j}" for j in range(P)]
        assert_allclose(rows["drawn"], drawn.mean(axis=0))
        tol = {"rtol": 1e-6, "atol": 1e-9}
        assert_allclose(rows["member_mean"], np.nanmean(members, axis=0), **tol)
        assert_allclose(rows["member_spread"], np.nanstd(members, axis=0), **tol)
        assert_allclose(rows["same_sign"], same_sign)
        assert_array_equal(rows["coef"], coef)
        assert_array_equal(rows["std"], std[target])


def test_members_of_an_undrawn_column_are_missing(seed):
    probabilities = np.array([0.0, 0.5, 0.5, 0.5, 1.0])
    model = ensemble(seed, max_features=probabilities).fit(*data(seed))
    frame = model.summary().coefficients
    assert frame["drawn"][0] == 0 and frame.loc[0, MEMBER_COLUMNS].isna().all()
    assert frame.loc[1:, MEMBER_COLUMNS].notna().all().all()


def test_uncertainty_is_missing_without_the_rows(seed, tmp_path):
    """Members of blocks are missing, too; standard errors of blocks are read again."""
    pytest.importorskip("skops")
    X, y = data(seed)
    of_frame = ensemble(seed).fit(frame_of("pandas", X), y)
    olsen.save(of_frame, tmp_path / "m.skops", intervals=False)
    for model in (
        ensemble(seed).fit(row_blocks(X, y)(), None),
        olsen.load(tmp_path / "m.skops"),
        pickle.loads(pickle.dumps(of_frame.set_params(keep_rows=False))),
    ):
        frame = model.summary().coefficients
        assert_array_equal(frame["coef"], model.coef_)
        assert_array_equal(frame["drawn"], model.inclusion_)
        assert frame[UNCERTAINTY_COLUMNS + MEMBER_COLUMNS].isna().all().all()
    model = ensemble(seed).fit(row_blocks(X, y), None)
    frame = model.summary().coefficients
    assert_allclose(frame["std"], model.coef_std())
    assert frame["std"].notna().all() and frame[MEMBER_COLUMNS].isna().all().all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_are_of_the_library_of_the_training_rows(library, seed, tmp_path):
    pytest.importorskip("skops")
    X, y = data(seed)
    model = adaptive(seed).fit(frame_of(library, X), y)
    frame = model.summary().coefficients
    assert isinstance(frame, sys.modules[library].DataFrame)
    names = ["feature", "coef", *UNCERTAINTY_COLUMNS, "effect", "drawn", *MEMBER_COLUMNS]
    assert list(frame.columns) == names
    olsen.save(model, tmp_path / "m.skops")
    for fitted in (model, olsen.load(tmp_path / "m.skops")):
        assert list(fitted.summary().coefficients["feature"]) == [f"c{j}" for j in range(P)]


def test_the_library_of_tables_changes_with_a_new_fit_only(seed, monkeypatch):
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    X, y = data(seed)
    frame = frame_of("polars", X)
    model = ensemble(seed).fit(frame, y)
    assert isinstance(pickle.loads(pickle.dumps(model)).summary().coefficients, polars.DataFrame)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.full((N, P), np.nan), y)
    assert isinstance(model.summary().coefficients, polars.DataFrame)
    assert isinstance(model.fit(X, y).summary().coefficients, pandas.DataFrame)
    stream = ensemble(seed).partial_fit(frame, y)
    assert isinstance(stream.summary().coefficients, polars.DataFrame)
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = model.fit(X, y).summary().coefficients  # a structured array where there is no pandas
    assert_array_equal(table["coef"], model.coef_)
    assert list(table["feature"]) == [f"x{j}" for j in range(P)]


# Facts in a notebook


@pytest.mark.parametrize("make", [adaptive, tuned])
def test_facts_of_a_tuned_model(make, seed):
    model = make(seed).fit(*data(seed))
    model_facts = facts(model)
    words = {"loo": "leave-one-out", "kfold": "k-fold cross-validation"}
    assert model_facts["members"] == "30"
    assert model_facts["estimated by"] == words[model.criterion_]
    size = model.inclusion_.sum()
    expected = f"all {P}" if size == P else f"{size:.4g} of {P}"
    assert model_facts["columns in a member"].startswith(expected)
    error, standard_error = model_facts["error of prediction"].split(" (")[0].split(" ± ")
    rmse = np.sqrt(-model.best_score_)
    assert float(error) == pytest.approx(rmse, rel=1e-3)
    mse_standard_error = model.cv_results_["std_test_score"][model.best_index_]
    derivative = (np.sqrt(rmse**2 + mse_standard_error / 100) - rmse) * 100
    assert float(standard_error) == pytest.approx(derivative, rel=0.06)  # two digits
    if make is adaptive and model.scale_ == 1:
        assert "scale" not in model_facts
    else:
        assert float(model_facts["scale"]) == pytest.approx(model.scale_, rel=1e-3)
    assert model_facts.get("solver", "limit") == model.solver_
    assert ("sampling schemes" in model_facts) == (make is adaptive)
    for scheme in model.scheme_weights_ if make is adaptive else ():
        assert scheme in model_facts["sampling schemes"]


@pytest.mark.parametrize("make", [adaptive, tuned])
@pytest.mark.parametrize("weighted", [False, True])
def test_explained_variance_is_weighted_like_the_error(make, weighted, seed):
    X, y = data(seed, 2)
    weights = np.ones(N)
    if weighted:
        weights = np.random.default_rng(seed).integers(0, 4, N).astype(float)
    model = make(seed).fit(X, y, sample_weight=weights)
    share = weights[:, None] / weights.sum()
    mean_of_others = (np.sum(share * y, axis=0) - share * y) / (1 - share)
    variance = np.sum(share * (y - mean_of_others) ** 2, axis=0)
    mse = []
    for target, expected in enumerate(variance):
        error, r2, *_ = facts(model)[f"target {target}"].split("; ")
        mse.append(float(error.removeprefix("error ")) ** 2)
        assert float(r2.removeprefix("R² ")) == pytest.approx(1 - mse[-1] / expected, abs=2e-3)
    assert np.mean(mse) == pytest.approx(-model.best_score_, rel=1e-3)
    single = make(seed).fit(X, y[:, 0], sample_weight=weights)
    assert facts(single)["R² of held-out rows"] == f"{1 + single.best_score_ / variance[0]:.3f}"


def test_every_target_has_its_name_error_and_schemes(seed):
    """One is sparse, one is noise, and their units differ by a factor of a thousand."""
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(seed).standard_normal((120, 8))
    noise = np.random.default_rng(seed + 1).standard_normal((120, 2))
    names = ["yield in kg per field", "ash"]
    y = pandas.DataFrame(np.column_stack([1000 * X[:, 0], 0 * X[:, 0]]) + noise, columns=names)
    model = adaptive(seed).fit(X, y)
    for fitted in (model, pickle.loads(pickle.dumps(model))):
        lines = facts(fitted)
        assert {"error of prediction", "sampling schemes"}.isdisjoint(lines)
        for name, weights, size in zip(names, model.scheme_weights_, (1.0, 1.0), strict=True):
            error = float(lines[f"target {name}"].partition("error ")[2].partition(";")[0])
            assert error == pytest.approx(size, rel=0.3)
            assert all(f"{scheme} " in lines[f"target {name}"] for scheme in weights)
    summary = model.summary(std=False)
    assert set(summary.coefficients["target"]) == set(names)
    assert "yield in kg per field: x0" in str(summary)
    widths = {len(line) - len(line.lstrip()) for line in str(summary).splitlines()[1:6]}
    assert widths == {2} and "fieldnull" not in str(summary)


def test_a_constant_target_has_no_explained_variance(seed):
    X = data(seed)[0]
    with pytest.warns(UserWarning, match="constant"):
        model = adaptive(seed, n_estimators=np.inf).fit(X, np.full(N, 3.7))
    lines = facts(model)
    assert "R² of held-out rows" not in lines and "mean of the target" in lines["members"]
    assert "coefficients" in str(model.summary()) and "e-" not in str(model.summary(std=False))


def test_only_what_is_drawn_is_said_to_be_drawn(seed):
    X, y = data(seed)
    closed = AdaptiveOLSEnsembleRegressor(["ridge"]).fit(X, y)
    assert facts(closed)["members"] == "infinitely many, in closed form"
    uniform = AdaptiveOLSEnsembleRegressor(["uniform"]).fit(X, y)
    assert facts(uniform)["members"] == "1000 of the uniform scheme, drawn at random"
    both = AdaptiveOLSEnsembleRegressor(["uniform", "ridge"]).fit(X, y)
    n_drawn = max(100, round(1000 * both.scheme_weights_.get("uniform", 0.0)))
    if len(both.scheme_weights_) == 2:
        assert facts(both)["members"].startswith(
            f"{n_drawn} of the uniform scheme, drawn at random; of the"
        )


def test_printed_coefficients_are_neither_rounding_nor_padding(seed):
    """Of 100 columns 97 are constant: three are listed; -0 and 6.7e-18 are zero."""
    X = np.ones((N, 100))
    X[:, :3] = data(seed)[0][:, :3]
    summary = OLSEnsembleRegressorCV(random_state=seed).fit(X, X[:, 0] - X[:, 1]).summary()
    assert "coefficients, 3 of 100; all others are zero" in str(summary)
    X = data(seed)[0]
    model = ensemble(seed, max_features=P, n_estimators=10).fit(X, X[:, 0])
    assert 0 < np.abs(model.coef_[1:]).max() < 1e-12
    text = str(model.summary(std=False)).partition("coefficients")[2]
    assert text.count(" 0 ") == P - 1 and "-0 " not in text and "e-1" not in text


def test_standard_errors_can_be_left_out(seed):
    model = adaptive(seed).fit(*data(seed))
    summary = model.summary(std=False)
    assert "_refits" not in model._result().computed, "no fit was repeated"
    assert summary.coefficients[UNCERTAINTY_COLUMNS].isna().all().all()
    assert "std err" not in str(summary) and "std err" in str(model.summary())


def test_facts_of_a_given_size_and_of_fallbacks(seed):
    X, y = data(seed)
    half = facts(ensemble(seed, max_features=2, max_samples=0.5).fit(X, y))
    assert half["columns in a member"] == "2 of 5 (40%)"
    assert half["rows in a member"] == "30 of 60 (50%)"
    assert "error of prediction" not in half and "sampling schemes" not in half
    stacked = facts(ensemble(seed, mixing="stacking").fit(X, y))
    assert stacked["weights"].startswith(("equal", "stacked")) and "rows in a member" not in stacked
    X[:, 1] = X[:, 0] + 1e-7 * X[:, 2]
    model = ensemble(seed, max_features=4).fit(X, y)
    assert model.n_fallbacks_ > 0
    expected = f"{model.solver_}; {model.n_fallbacks_} members refitted from the data"
    assert facts(model)["solver"] == expected


def test_foreign_text_is_escaped_and_tags_are_closed(seed):
    X, y = data(seed)
    model = adaptive(seed).fit(frame_of("pandas", X, MARKUP), y)
    html = model._repr_html_()
    diagram = estimator_html_repr(model)
    assert "<script>alert" not in html and "<img" not in html
    assert html.count("<script") == diagram.count("<script")
    start = html.split("<body>")[0]
    table = html.split("</body>")[1]
    assert start.count("<div") == 2 and table.count("</div>") == 2 and "<caption>" in table
    n_rows = table.count('<th scope="row">')
    assert table.count("<tr>") == table.count("</tr>") == n_rows
    model.solver_ = "<img src=x>"  # as a pickle may have it
    assert facts(model)["solver"] == "<img src=x>" and "<img" not in model._repr_html_()


@pytest.mark.parametrize("make", [ensemble, adaptive, tuned])
def test_diagrams_before_the_fit_have_no_facts(make, seed):
    model = make(seed)
    assert facts(model) == {} and type(model).__name__ in model._repr_html_()


def test_diagrams_inside_of_other_estimators_and_as_text(seed):
    X, y = data(seed)
    pipeline = make_pipeline(StandardScaler(), ensemble(seed)).fit(X, y)
    search = GridSearchCV(ensemble(seed), {"max_features": [1, 2]}).fit(X, y)
    for outer in (pipeline, search):
        for copied in (outer, pickle.loads(pickle.dumps(outer))):
            assert "OLSEnsembleRegressor" in copied._repr_html_()
    assert "StandardScaler" in pipeline._repr_html_()
    model = ensemble(seed).fit(X, y)
    assert "olsen-facts" in model._repr_mimebundle_()["text/html"]
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]


def test_a_pickle_has_facts_without_rows(seed):
    model = adaptive(seed).fit(*data(seed))
    expected = facts(model)
    assert facts(pickle.loads(pickle.dumps(model))) == expected
    without_rows = facts(pickle.loads(pickle.dumps(model.set_params(keep_rows=False))))
    expected = {name: fact for name, fact in expected.items() if not name.startswith("R²")}
    assert without_rows == expected


def test_listing_attributes_computes_nothing(seed):
    """scikit-learn from 1.8 on asks for every attribute, also for those that would read all data
    again.
    """
    calls = []

    def blocks():
        calls.append(1)
        return row_blocks(*data(seed))()

    model = ensemble(seed).fit(blocks, None)
    n_calls = len(calls)
    for look in (dir, lambda model: model._repr_html_()):
        look(model)
        assert len(calls) == n_calls
        look(pickle.loads(pickle.dumps(model)))


def test_names_that_can_be_completed(seed):
    streaming = ensemble(seed).fit(*data(seed))
    subsampled = ensemble(seed, max_samples=0.5)
    assert {"coef_", "coef_std", "feature_subsets_", "summary", "partial_fit"} <= set(
        dir(streaming)
    )
    assert (
        "partial_fit" not in dir(subsampled)
        and "coef_" not in dir(subsampled)
        and "summary" in dir(subsampled)
    )


# The page


def page_of(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [adaptive, tuned])
def test_the_page_of_a_fit(make, seed, tmp_path):
    X, y = data(seed)
    model = make(seed, cv=4).fit(frame_of("polars", X, MARKUP), y)
    path = tmp_path / "page.html"
    model.report(path)
    page = page_of(path)
    tags = [tag for tag, _ in page.tags]
    assert "img" not in tags and tags.count("script") == 1  # the script of the page
    for words in (
        *MARKUP,
        f"{N} rows",
        f"{np.sqrt(-model.best_score_):.4g}",
        f"n_estimators=30, random_state={seed}).fit(X, y).report('page.html')",
        "plus and minus two standard errors",
        "cv=4",
    ):
        assert words in page.text
    links = [a for _, a in page.tags if "src" in a or a.get("href", "data:,") != "data:,"]
    assert links == [], "it needs no other file"


@pytest.mark.parametrize("n_rows", [N, 20, 6])
def test_the_page_says_how_wide_intervals_are_and_that_rows_are_few(n_rows, seed, tmp_path):
    X, y = data(seed)
    model = AdaptiveOLSEnsembleRegressor().fit(X[:n_rows], y[:n_rows])
    model.report(tmp_path / "page.html")
    text = page_of(tmp_path / "page.html").text
    width = np.mean(np.diff(model.predict_interval(X[:n_rows])))
    if np.isfinite(width):
        half_width = float(text.split("within ± ")[1].split()[0])
        assert half_width == pytest.approx(width / 2, rel=1e-3)
    else:
        assert "too few for an interval" in text
    assert (f"{n_rows} rows are few" in text) == (n_rows < 30) == ("caution" in facts(model))


def test_the_page_needs_the_rows(seed, tmp_path):
    X, y = data(seed)
    path = tmp_path / "page.html"
    many, many_y = random_problem(seed, n=6000, p=P)  # fewer rows would be loaded
    blocks = adaptive(seed).fit(row_blocks(many, many_y)(), None)
    without_rows = pickle.loads(pickle.dumps(adaptive(seed, keep_rows=False).fit(X, y)))
    for model in (blocks, without_rows):
        with pytest.raises(NeedsRows, match="report needs"):
            model.report(path)
        assert not path.exists()
    pickled = pickle.loads(pickle.dumps(adaptive(seed).fit(X, y)))
    for model in (adaptive(seed).fit(sp.csr_array(X), y), pickled):
        model.report(path)
        assert f"{N} rows" in page_of(path).text


def test_rows_of_weight_zero_are_not_on_the_page(seed, tmp_path):
    X, y = data(seed)
    weights = np.ones(N)
    weights[[0, 7]] = 0
    y[0] = 1e9
    path = tmp_path / "page.html"
    adaptive(seed).fit(X, y, sample_weight=weights).report(path)
    text = page_of(path).text
    assert f"{N - 2} rows" in text and "Cross-validated predictions" in text


@pytest.mark.parametrize(
    ("make", "settings"), [(adaptive, {}), (tuned, {}), (tuned, {"max_samples": 0.5})]
)
def test_a_page_that_cannot_be_made_leaves_the_old_one(make, settings, seed, tmp_path):
    X, y = data(seed)
    path = tmp_path / "page.html"
    model = make(seed, **settings).fit(X, y)
    model.report(path)
    page = path.read_bytes()
    X[:30] += 1.0
    with pytest.raises(NeedsRows, match="changed in place"):
        model.report(path)
    assert path.read_bytes() == page and list(tmp_path.iterdir()) == [path]


def test_models_without_a_page(seed, tmp_path):
    path = tmp_path / "page.html"
    with pytest.raises(TypeError, match=r"max_features=\[3\]"):
        olsen.report(ensemble(seed).fit(*data(seed)), path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        adaptive(seed).fit(*data(seed)).report(path.parent / "mistyped" / "page.html")
    assert not (path.parent / "mistyped").exists()
    assert not hasattr(ensemble(seed), "report")
    for make in (adaptive, tuned):
        with pytest.raises(ValueError, match="2"):
            make(seed).fit(*data(seed, 2)).report(path)
    assert not path.exists()


# The plain model


@pytest.mark.parametrize("n_targets", [None, 1, 2])
@pytest.mark.parametrize("settings", [{}, {"fit_intercept": False}, {"scale": 0.5}], ids=str)
def test_the_plain_model_predicts_the_same(n_targets, settings, seed):
    X, y = data(seed, n_targets)
    model = ensemble(seed, **settings).fit(X, y)
    plain = model.to_linear_regression()
    assert_allclose(plain.predict(X), model.predict(X), rtol=1e-13)
    peer = LinearRegression(fit_intercept=model.fit_intercept).fit(X, y)
    for name in ("coef_", "intercept_", "n_features_in_"):
        assert np.shape(getattr(plain, name)) == np.shape(getattr(peer, name)), name
    assert type(plain) is LinearRegression and plain.get_params() == peer.get_params()
    assert not {"rank_", "singular_", "feature_names_in_"} & set(vars(plain))
    model.coef_[...] = 0
    assert np.abs(plain.coef_).min() > 0, "it is a copy"


@pytest.mark.filterwarnings("error")
def test_the_plain_model_knows_its_columns_and_can_be_pickled(seed):
    X, y = data(seed)
    frame = frame_of("pandas", X)
    model = adaptive(seed).fit(frame.astype("float32"), y)
    plain = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model)).to_linear_regression()))
    assert_allclose(plain.predict(frame), model.predict(frame), rtol=1e-5)
    assert plain.coef_.dtype == np.float64
    with pytest.raises(ValueError, match="feature names"):
        plain.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_models_of_other_libraries_come_to_the_host(library, seed, monkeypatch):
    xp = pytest.importorskip(library)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    X, y = data(seed)
    with sklearn.config_context(array_api_dispatch=True):
        model = adaptive(seed).fit(xp.asarray(X), xp.asarray(y))
        expected = np.asarray(model.predict(xp.asarray(X)))
    plain = model.to_linear_regression()
    frame = model.summary().coefficients
    assert type(plain.coef_) is np.ndarray and type(plain.intercept_) is float
    assert_array_equal(frame["coef"], plain.coef_)
    assert_allclose(plain.predict(X), expected, rtol=1e-12)
    assert facts(model)["members"] == "30"
