"""Model files from Python: pipelines are saved and loaded, models of the command open as pipelines."""

import csv
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import (
    ColumnTransformer,
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler

import olsen as package
from engines import row_blocks
from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    TableEncoder,
)
from olsen._estimators.effects import Effects
from olsen._estimators.pipelines import split_pipeline

pytest.importorskip("skops")
pytest.importorskip("pyarrow")

RNG = np.random.default_rng(5)
N = 90
FRAME = pd.DataFrame(
    {
        "a": RNG.normal(size=N),
        "b": 5 + 100 * RNG.normal(size=N),
        "city": RNG.choice(["Rome", "Oslo", "Bern"], N),
        "size": RNG.choice(["S", "M"], N),
        "zone": RNG.integers(0, 3, N),
    }
)
TARGET = FRAME["a"] * 2 + (FRAME["city"] == "Oslo") * 3 + 0.1 * RNG.normal(size=N)
MISSING = FRAME.copy()
MISSING.loc[[3, 7], "a"] = np.nan
MISSING.loc[5, "city"] = None


def ensemble(**settings):
    return AdaptiveOLSEnsembleRegressor(n_estimators=60, random_state=0, **settings)


def nested():
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    strings = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", drop="if_binary"),
    )
    prepare = ColumnTransformer(
        [("numbers", numbers, ["a", "b"]), ("strings", strings, ["city", "size"])]
    )
    steps = [
        ("prepare", prepare),
        ("scale", StandardScaler(with_mean=False)),
        ("model", ensemble()),
    ]
    return Pipeline(steps)


def prepared(*transformers, **settings):
    """Pipeline of columns that are transformed, and an ensemble."""
    return make_pipeline(make_column_transformer(*transformers, **settings), ensemble())


NUMBERS = FRAME[["a", "b"]]
PIPELINES = {  # functions that return a model and its training rows
    "bare": lambda: (OLSEnsembleRegressor(50, max_features=1, random_state=1), NUMBERS),
    "tuned": lambda: (ensemble(), NUMBERS),
    "array": lambda: (ensemble(), NUMBERS.to_numpy()),
    "scaled": lambda: (make_pipeline(StandardScaler(), ensemble()), NUMBERS),
    "unscaled": lambda: (
        make_pipeline(StandardScaler(with_std=False), "passthrough", ensemble()),
        NUMBERS,
    ),
    "categories": lambda: (
        prepared(
            (OneHotEncoder(), ["city", "zone"]),
            (OrdinalEncoder(categories=[["S", "M"]]), ["size"]),
            remainder="passthrough",
        ),
        FRAME,
    ),
    "selector": lambda: (
        prepared(
            (
                OneHotEncoder(drop=["Oslo", "S"]),
                make_column_selector(dtype_include=["object", "string"]),
            ),
            (StandardScaler(), slice("a", "b")),
            ("drop", ["zone"]),
        ),
        FRAME,
    ),
    "nested": lambda: (nested(), MISSING),
    "missing categories": lambda: (
        prepared((OneHotEncoder(), ["city"]), (SimpleImputer(strategy="median"), ["a"])),
        MISSING,
    ),
    "filled with a word": lambda: (
        prepared(
            (
                make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()),
                ["city"],
            ),
            (SimpleImputer(strategy="constant", fill_value=0.0), ["a"]),
        ),
        MISSING,
    ),
    "infrequent": lambda: (
        prepared((OneHotEncoder(min_frequency=20), ["city"]), ("passthrough", ["a"])),
        FRAME,
    ),
    "weighted": lambda: (
        make_pipeline(
            ColumnTransformer([("s", StandardScaler(), [0, 1])], transformer_weights={"s": 2.0}),
            ensemble(),
        ),
        NUMBERS.to_numpy(),
    ),
    "places": lambda: (
        prepared((StandardScaler(), [0]), ("passthrough", [False, True])),
        NUMBERS.to_numpy(),
    ),
}


def read(path):
    """Header and numbers of a file of predictions, without the mark of far rows."""
    with open(path, newline="") as file:
        header, *rows = list(csv.reader(file))
    width = len(header) - (header[-1] == "far_row")
    return header[:width], np.array([row[:width] for row in rows], dtype=float)


@pytest.mark.parametrize("name", PIPELINES)
def test_loaded_models_are_those_that_were_saved(name, olsen_refuses, tmp_path):
    path = tmp_path / "m.skops"
    model, X = PIPELINES[name]()
    predictions = model.fit(X, TARGET).predict(X)
    package.save(model, path)
    loaded = package.load(path)
    assert type(loaded) is type(model)
    assert_array_equal(loaded.predict(X), predictions)
    if isinstance(model, Pipeline):
        assert [step for step, _ in loaded.steps] == [step for step, _ in model.steps]
    package.save(loaded, tmp_path / "twice.skops")
    assert_array_equal(package.load(tmp_path / "twice.skops").predict(X), predictions)
    if name == "categories":  # a frame of another library, with columns in another order
        polars = pytest.importorskip("polars").from_pandas(X[X.columns[::-1]])
        assert_array_equal(loaded.predict(polars), predictions)
    table = tmp_path / "t.csv"
    pd.DataFrame(X).to_csv(table, index=False)
    for command in (("predict", path, table), ("show", path)):  # the way out is Python
        olsen_refuses(*command, words="olsen.load(path).predict(frame)")


def test_parameters_that_are_objects_are_not_saved(tmp_path):
    X = FRAME[["a", "b"]]
    model = ensemble(cv=KFold(3)).set_params(random_state=np.random.RandomState(1)).fit(X, TARGET)
    package.save(model, tmp_path / "m.skops")
    loaded = package.load(tmp_path / "m.skops")
    assert loaded.cv is None and loaded.random_state is None and loaded.n_estimators == 60
    assert isinstance(model.cv, KFold)
    assert_array_equal(loaded.predict(X), model.predict(X))


# Models of the command


def test_a_model_of_the_command_is_a_pipeline_and_can_be_saved_again(olsen, tmp_path):
    """The table has every kind of column."""
    days = pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y")
    prices = [f"{1000 + 10 * v:,.2f}" for v in FRAME["a"].abs() * 100]
    frame = FRAME.assign(price=prices, day=days)
    frame["grade"] = RNG.choice(["low", "mid", "high"], N)
    frame.loc[[2, 9], "a"] = np.nan
    frame.loc[[4, 11], "city"] = None
    frame.loc[6, "day"] = None
    table = tmp_path / "t.csv"
    frame.assign(y=TARGET).to_csv(table, index=False)
    columns = {"missing": "mean", "dates": "day", "ordinal": "grade=low<mid<high"}
    path = tmp_path / "m.skops"
    assert olsen("fit", table, **columns, members=60, target="y", out=path)[0] == 0
    model = package.load(path)
    assert isinstance(model, Pipeline) and model.target_name_ == "y"
    by_hand = make_pipeline(
        TableEncoder(missing="mean", ordinal={"grade": ["low", "mid", "high"]}),
        AdaptiveOLSEnsembleRegressor(n_estimators=60, random_state=0),
    )
    read = pd.read_csv(table)
    by_hand.fit(read.drop(columns="y"), read["y"])
    assert list(model.named_steps) == list(by_hand.named_steps), "the same pipeline"
    assert_array_equal(model[-1].coef_, by_hand[-1].coef_)
    assert model[-1].intercept_ == by_hand[-1].intercept_
    records = {record["name"]: record for record in model[0].columns_}
    assert records["city"]["levels"] == ["Bern", "Oslo", "Rome"] and records["day"]["form"] == "dmy"
    names = model[0].get_feature_names_out()
    assert_array_equal(names, by_hand[0].get_feature_names_out())
    assert "price" in names and "grade" in names and len(names) == model[-1].n_features_in_
    package.save(model, tmp_path / "saved.skops")
    predictions = []
    for file in ("m.skops", "saved.skops"):
        out = tmp_path / f"{file}.parquet"  # which holds all digits
        assert olsen("predict", tmp_path / file, table, interval=0.9, out=out)[0] == 0
        predicted = pd.read_parquet(out)
        assert list(predicted) == ["predicted_y", "lower", "upper", "far_row"]
        predictions.append(predicted.drop(columns="far_row").to_numpy())
    assert_allclose(*predictions, rtol=1e-12)
    assert_allclose(model.predict(pd.read_csv(table)), predictions[0][:, 0], rtol=1e-12)


# Intervals


EXACT_METHODS = ("auto", "cv+", "jackknife+", "jackknife")
WITH_INTERVALS = {
    "fixed size": (OLSEnsembleRegressor(50, random_state=0), EXACT_METHODS),
    "tuned": (OLSEnsembleRegressorCV(50, random_state=0), EXACT_METHODS),
    "adaptive": (ensemble(), ("auto", "cv+")),
    "ridge": (OLSEnsembleRegressorCV(sampling="determinantal"), ("auto",)),
    "determinantal": (
        OLSEnsembleRegressorCV(30, sampling="determinantal", random_state=0),
        ("auto",),
    ),
}


@pytest.mark.parametrize("name", WITH_INTERVALS)
def test_intervals_and_standard_errors_come_with_files_and_pickles(name, tmp_path):
    X = NUMBERS.to_numpy()
    model, methods = WITH_INTERVALS[name]
    package.save(model.fit(X, TARGET), tmp_path / "m.skops")
    table = model.summary().coefficients.drop(columns="feature").to_numpy()
    assert np.all(model.coef_std() > 0)
    rtol = 1e-9 if name in ("ridge", "determinantal") else 1e-12
    for copied in (package.load(tmp_path / "m.skops"), pickle.loads(pickle.dumps(model))):
        for method in methods:
            with case(method):
                interval = model.predict_interval(X[:7], 0.8, method)
                assert np.all(interval[:, 0] < interval[:, 1])
                assert_allclose(copied.predict_interval(X[:7], 0.8, method), interval, rtol=rtol)
        predictions = copied.predict(X, return_std=True)
        assert_allclose(predictions, model.predict(X, return_std=True), rtol=rtol)
        copied_table = copied.summary().coefficients.drop(columns="feature").to_numpy()
        assert_allclose(copied_table, table, rtol=1e-9)
        if name != "fixed size" and name != "adaptive":
            assert_array_equal(copied.risk_curve(), model.risk_curve())
        assert all(map(np.array_equal, copied.feature_subsets_[:5], model.feature_subsets_[:5]))


def test_files_without_rows(tmp_path, monkeypatch):
    """Rows that take too much are not written, nor rows that the user leaves out."""
    X = RNG.normal(size=(200, 40))
    path = tmp_path / "m.skops"
    model = OLSEnsembleRegressor(50, random_state=0).fit(X, X[:, 0])
    with monkeypatch.context() as patch:
        patch.setattr("olsen._estimators.result.MAX_STORED_BYTES", 6e4)
        package.save(model, path)
    with pytest.raises(ValueError, match=r"60 kB.*65\.6 kB.*fit once more"):
        package.load(path).predict_interval(X)
    package.save(model, path)
    package.load(path).predict_interval(X)
    size = path.stat().st_size
    package.save(model, path, intervals=False)
    assert size - path.stat().st_size >= 8 * X.size
    with pytest.raises(ValueError, match="written without"):
        package.load(path).predict_interval(X)


@pytest.mark.parametrize("kind", ["adaptive", "ensemble"])
@pytest.mark.parametrize("option", [(), ("--no-intervals",), ("--groups", "block")], ids=str)
def test_the_command_stores_what_intervals_need(olsen, olsen_refuses, tmp_path, kind, option):
    """The file holds the folds of the choice, or the rows; without both there are no intervals."""
    table = tmp_path / "t.csv"
    model = tmp_path / "m.skops"
    out = tmp_path / "p.csv"
    NUMBERS.assign(y=TARGET, block=np.arange(N) // 3).to_csv(table, index=False)
    assert olsen("fit", table, *option, model=kind, target="y", out=model, members=50)[0] == 0
    predict = ("predict", model, table)
    if kind == "ensemble" and option == ("--no-intervals",):
        olsen_refuses(*predict, interval=0.9, out=out, words="--no-intervals")
        assert not out.exists() and olsen(*predict)[0] == 0
    else:
        assert olsen(*predict, interval=0.9, out=out)[0] == 0
        width = np.diff(read(out)[1][:, 1:])[:, 0]
        assert np.isfinite(width).all() and np.ptp(width) > 1e-6 * width.mean()


def test_groups_are_not_forgotten(tmp_path):
    """A loaded model has errors of whole groups; errors of rows would make intervals too narrow."""
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(30), 6)
    X = rng.normal(size=(30, 8))[groups] + 0.05 * rng.normal(size=(180, 8))
    y = X[:, 0] + 2 * rng.normal(size=30)[groups] + 0.3 * rng.normal(size=180)
    model = ensemble(cv=GroupKFold(6)).fit(X, y, groups=groups)
    package.save(model, tmp_path / "m.skops")
    loaded = package.load(tmp_path / "m.skops")
    new = rng.normal(size=(50, 8))
    assert_allclose(loaded.predict_interval(new), model.predict_interval(new), rtol=1e-12)
    with pytest.raises(ValueError, match="groups"):
        loaded.predict_interval(new, method="jackknife+")


# Models that are refused


class Subclass(StandardScaler):
    """Could do anything."""


def test_other_types_are_refused_and_an_old_file_stays(tmp_path):
    X = FRAME[["a", "b"]].to_numpy()
    path = tmp_path / "m.skops"
    package.save(OLSEnsembleRegressor(10, random_state=0).fit(X, TARGET), path)
    content = path.read_bytes()
    for model in (
        Ridge(),
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(PCA(1), ensemble()),
        make_pipeline(Subclass(), ensemble()),
        make_pipeline(FunctionTransformer(np.abs), ensemble()),
    ):
        with case(model), pytest.raises(TypeError, match=r"Ridge|PCA|Subclass|numpy.absolute"):
            package.save(model.fit(X, TARGET), path)
        assert path.read_bytes() == content and list(tmp_path.iterdir()) == [path]


def test_models_that_cannot_be_saved_are_refused(tmp_path):
    X = NUMBERS.to_numpy()
    with pytest.raises(NotFittedError):
        package.save(ensemble(), tmp_path / "m.skops")
    model = OLSEnsembleRegressor(10).fit(X, np.column_stack([TARGET, TARGET]))
    with pytest.raises(ValueError, match="2 targets"):
        package.save(model, tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"\.skops"):
        package.save(model.fit(X, TARGET), tmp_path / "m.pkl")
    assert not list(tmp_path.iterdir())


def whole_pipelines():
    inner = make_pipeline(nested()[0], make_pipeline(FunctionTransformer(np.sin), ensemble()))
    strategies = {"columntransformer__numbers__simpleimputer__strategy": ["mean", "median"]}
    yield "searched", GridSearchCV(inner, strategies, cv=2), MISSING
    for name in ("bare", "array", "categories", "selector", "infrequent", "places"):
        yield name, *PIPELINES[name]()
    for library in ("pandas", "polars"):
        dense = nested()
        dense[0].set_params(strings__onehotencoder__sparse_output=False)
        yield library, dense.set_output(transform=library), MISSING


@pytest.mark.parametrize(
    ("model", "X"), [pytest.param(*item[1:], id=item[0]) for item in whole_pipelines()]
)
def test_intervals_and_summaries_of_whole_pipelines(model, X):
    """Intervals are those of the ensemble on transformed rows; effects are of the columns that
    went in.
    """
    model.fit(X, TARGET)
    regressor = getattr(model, "best_estimator_", model)
    rows = X
    while isinstance(regressor, Pipeline):
        rows = regressor[:-1].transform(rows)
        regressor = regressor[-1]
    summary = package.summary(model)
    interval = regressor.predict_interval(rows, 0.8)
    for copied in (model, pickle.loads(pickle.dumps(model))):
        assert_array_equal(package.predict_interval(copied, X, 0.8), interval)
        assert str(package.summary(copied)) == str(summary)
    table = summary.coefficients
    columns = np.array(table["column"] if "column" in table.columns else table["feature"])
    assert len(table) == regressor.n_features_in_
    assert set(columns) <= set(getattr(X, "columns", ["x0", "x1"]))
    for feature, column in zip(table["feature"], columns, strict=True):
        assert feature.removeprefix("missingindicator_").partition("_")[0] == column
    dense = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
    effects = dict(zip(summary.effects["column"], summary.effects["effect"], strict=True))
    assert sorted(effects, key=lambda c: -abs(effects[c])) == list(summary.effects["column"])
    for column in set(columns):
        expected = (dense @ np.where(columns == column, regressor.coef_, 0.0)).std()
        assert abs(effects[column]) == pytest.approx(expected, rel=1e-9)
        assert re.search(f" {column}(:| )", str(summary)) and column in summary._repr_html_()


def test_standard_errors_of_factors(seed):
    """Tuned models repeat the choice in refits; a level that never occurs adds nothing."""
    rng = np.random.default_rng(seed)
    levels = np.eye(3)[rng.integers(0, 3, 120)]
    X = np.column_stack([levels, rng.standard_normal((120, 2)), np.zeros(120)])
    noise = rng.standard_normal(120)
    model = AdaptiveOLSEnsembleRegressor().fit(X, X @ [2.0, 0.0, -1.0, 1.0, 0.0, 0.0] + noise)
    factors = [[0, 1, 2], [3, 5], [3], [4]]
    refits = model._refits("effects")
    spread = np.std([(X[:, :3] @ coef[0, :3]).std() for coef in refits.coef], ddof=1)
    expected = np.sqrt(refits.fraction / (1 - refits.fraction)) * spread
    assert model._effects(factors)[1][0] == pytest.approx(expected, rel=0.05)
    fixed_size = OLSEnsembleRegressor(200, 3, random_state=seed)
    for fitted in (
        model,
        clone(fixed_size).fit(X, X[:, 0] + noise),
        clone(fixed_size).fit(row_blocks(X, X[:, 0] + X[:, 4]), None),
    ):
        effect, std = fitted._effects(factors)
        assert effect[1] == pytest.approx(abs(effect[2])) and std[1] == pytest.approx(std[2])
        assert std.min() > 0
        assert_allclose(effect[2:], fitted.coef_[3:5] * X[:, 3:5].std(axis=0))


def test_transformed_targets_and_models_without_intervals():
    X = FRAME[["a", "b"]]
    y = np.exp(TARGET / 4)
    model = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), ensemble()), func=np.log, inverse_func=np.exp
    )
    ends = package.predict_interval(model.fit(X, y), X)
    inner = model.regressor_[-1].predict_interval(model.regressor_[:-1].transform(X))
    assert_allclose(ends, np.exp(inner))
    model.set_params(func=np.negative, inverse_func=np.negative).fit(X, y)
    assert (np.diff(package.predict_interval(model, X)) > 0).all()
    model.set_params(func=np.positive, inverse_func=np.abs, check_inverse=False).fit(X, TARGET)
    with pytest.raises(ValueError, match="monotone"):
        package.predict_interval(model, X)
    for unsuitable, error in (
        (make_pipeline(StandardScaler(), Ridge()).fit(X, TARGET), TypeError),
        (make_pipeline(StandardScaler(), ensemble()), NotFittedError),
        (
            GridSearchCV(ensemble(), {"fit_intercept": [True]}, refit=False).fit(X, TARGET),
            ValueError,
        ),
    ):
        for question in (package.summary, lambda model: package.predict_interval(model, X)):
            with pytest.raises(error, match=r"Ridge|fitted|refit"):
                question(unsuitable)


def test_the_report_of_a_pipeline_has_the_columns_that_went_in(tmp_path):
    model = nested().fit(MISSING, TARGET)
    package.report(model, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    chart = page.partition('id="effects"')[2].partition('id="predicted"')[0]
    table = page.partition('id="columns"')[2]
    effects = package.summary(model).effects
    for effect in effects[effects["effect"] != 0].itertuples():
        assert f">{effect.column}</text>" in chart
        assert f"<title>{effect.column}: {effect.effect:.4g}" in chart
    assert "city_Oslo" in table and "city_Oslo" not in chart and "x0" not in page


def test_an_effect_keeps_its_sign_beside_a_missing_indicator():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = -3 * X[:, 0] + rng.standard_normal(80)
    X[::7, 0] = np.nan
    model = make_pipeline(SimpleImputer(add_indicator=True), AdaptiveOLSEnsembleRegressor())
    misleading_names = pd.DataFrame(X, columns=["missingindicator_a", "b"])
    for rows in (X, misleading_names):
        effects = package.summary(model.fit(rows, y)).effects
        assert effects["features"].tolist() == [2, 1] and effects["effect"][0] < -2
    drawn = Effects(model[-1], split_pipeline(model).features, errors=False).largest()[0]["drawn"]
    assert drawn == model[-1].inclusion_[0], "an indicator is not averaged in"


@pytest.mark.parametrize("drop", [None, "first"])
def test_a_factor_has_the_difference_of_its_extreme_levels(drop):
    """Express costs 7.45 more than standard; a level that was dropped has the coefficient zero."""
    rng = np.random.default_rng(3)
    prices = {"economy": -1.0, "express": 7.45, "standard": 0.0}
    frame = pd.DataFrame({"kg": rng.normal(size=300), "ship": rng.choice(list(prices), 300)})
    y = frame["kg"] + frame["ship"].map(prices) + 0.3 * rng.normal(size=300)
    coding = make_column_transformer((OneHotEncoder(drop=drop), ["ship"]), remainder="passthrough")
    model = make_pipeline(coding, AdaptiveOLSEnsembleRegressor()).fit(frame, y)
    summary = package.summary(model)
    row = summary.effects.set_index("column").loc["ship"]
    assert (row["highest"], row["lowest"]) == ("express", "economy")
    coef = summary.coefficients.set_index("feature")["coef"]
    lowest = 0.0 if drop else coef["ship_economy"]
    assert row["difference"] == pytest.approx(coef["ship_express"] - lowest)
    assert abs(row["difference"] - 8.45) < 4 * row["difference_std"] < 1
    assert summary.effects.set_index("column").loc["kg"].isna()[["difference", "highest"]].all()
    assert "ship: express over economy" in str(summary)
    levels = Effects(model[-1], split_pipeline(model).features, False).largest()[0]["levels"]
    assert [level["name"] for level in levels] == ["express", "standard", "economy"]
    scaled = make_pipeline(coding, StandardScaler(), AdaptiveOLSEnsembleRegressor()).fit(frame, y)
    assert "difference" not in package.summary(scaled, std=False).effects, "units are lost"


def test_a_transformed_target_is_marked_and_its_error_is_in_the_original_units_too():
    y = np.exp(TARGET / 4)
    model = TransformedTargetRegressor(ensemble(), func=np.log, inverse_func=np.exp)
    facts = package.summary(model.fit(NUMBERS, y), std=False).facts
    assert "transformed target" in facts["all values above"]
    expected = np.sqrt(np.mean((y - np.exp(model.regressor_.cv_prediction_)) ** 2))
    assert facts["error in units of y"].startswith(f"{expected:.4g} ")


def test_a_summary_says_that_there_is_no_signal():
    X, noise = np.random.default_rng(0).standard_normal((2, 80))
    model = AdaptiveOLSEnsembleRegressor().fit(X[:, None], noise)
    assert model.scheme_weights_.get("null", 0) > 0.8
    assert "signal" in model.summary().facts["caution"]
