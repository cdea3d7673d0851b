"""Model files from Python: pipelines saved here come back, models of the shell open here as
pipelines.
"""

import csv
import pickle

import numpy as np
import pandas as pd
import pytest
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
from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV

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
Y = FRAME["a"] * 2 + (FRAME["city"] == "Oslo") * 3 + 0.1 * RNG.normal(size=N)
GAPS = FRAME.copy()
GAPS.loc[[3, 7], "a"] = np.nan
GAPS.loc[5, "city"] = None


def ensemble(**given):
    return AdaptiveOLSEnsembleRegressor(n_estimators=60, random_state=0, **given)


def nested():
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    texts = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(handle_unknown="ignore", drop="if_binary"),
    )
    prepare = ColumnTransformer(
        [("numbers", numbers, ["a", "b"]), ("texts", texts, ["city", "size"])]
    )
    return Pipeline(
        [("prepare", prepare), ("scale", StandardScaler(with_mean=False)), ("model", ensemble())]
    )


PIPELINES = {
    "bare": lambda: (OLSEnsembleRegressor(50, max_features=1, random_state=1), FRAME[["a", "b"]]),
    "tuned": lambda: (ensemble(), FRAME[["a", "b"]]),
    "array": lambda: (ensemble(), FRAME[["a", "b"]].to_numpy()),
    "scaled": lambda: (make_pipeline(StandardScaler(), ensemble()), FRAME[["a", "b"]]),
    "unscaled": lambda: (
        make_pipeline(StandardScaler(with_std=False), "passthrough", ensemble()),
        FRAME[["a", "b"]],
    ),
    "categories": lambda: (
        make_pipeline(
            make_column_transformer(
                (OneHotEncoder(), ["city", "zone"]),
                (OrdinalEncoder(categories=[["S", "M"]]), ["size"]),
                remainder="passthrough",
            ),
            ensemble(),
        ),
        FRAME,
    ),
    "selector": lambda: (
        make_pipeline(
            make_column_transformer(
                (
                    OneHotEncoder(drop=["Oslo", "S"]),
                    make_column_selector(dtype_include=["object", "string"]),
                ),
                (StandardScaler(), slice("a", "b")),
                ("drop", ["zone"]),
            ),
            ensemble(),
        ),
        FRAME,
    ),
    "nested": lambda: (nested(), GAPS),
    "gaps in categories": lambda: (
        make_pipeline(
            make_column_transformer(
                (OneHotEncoder(), ["city"]), (SimpleImputer(strategy="median"), ["a"])
            ),
            ensemble(),
        ),
        GAPS,
    ),
    "filled with a word": lambda: (
        make_pipeline(
            make_column_transformer(
                (
                    make_pipeline(
                        SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()
                    ),
                    ["city"],
                ),
                (SimpleImputer(strategy="constant", fill_value=0.0), ["a"]),
            ),
            ensemble(),
        ),
        GAPS,
    ),
    "infrequent": lambda: (
        make_pipeline(
            make_column_transformer(
                (OneHotEncoder(min_frequency=20), ["city"]), ("passthrough", ["a"])
            ),
            ensemble(),
        ),
        FRAME,
    ),
    "weighted": lambda: (
        make_pipeline(
            ColumnTransformer([("s", StandardScaler(), [0, 1])], transformer_weights={"s": 2.0}),
            ensemble(),
        ),
        FRAME[["a", "b"]].to_numpy(),
    ),
    "places": lambda: (
        make_pipeline(
            make_column_transformer((StandardScaler(), [0]), ("passthrough", [False, True])),
            ensemble(),
        ),
        FRAME[["a", "b"]].to_numpy(),
    ),
}


def read(path):
    with open(path, newline="") as file:
        header, *rows = list(csv.reader(file))
    return header, np.array(rows, dtype=float)


def test_what_is_saved_is_what_is_loaded(olsen, tmp_path):
    pl = pytest.importorskip("polars")
    path, table = tmp_path / "m.skops", tmp_path / "t.csv"
    for name in PIPELINES:
        model, X = PIPELINES[name]()
        model.fit(X, Y)
        with case(name):
            package.save(model, path)
            again = package.load(path)
            assert type(again) is type(model)
            np.testing.assert_array_equal(again.predict(X), model.predict(X))
            if isinstance(model, Pipeline):
                assert [step for step, _ in again.steps] == [step for step, _ in model.steps]
            package.save(again, tmp_path / "twice.skops")
            np.testing.assert_array_equal(
                package.load(tmp_path / "twice.skops").predict(X), model.predict(X)
            )
            if name == "categories":  # a frame of another library, with columns in another order
                np.testing.assert_array_equal(
                    again.predict(pl.from_pandas(X[X.columns[::-1]])), model.predict(X)
                )
            pd.DataFrame(X).to_csv(table, index=False)
            for command in (("predict", path, table), ("show", path)):
                code, out, error = olsen(*command)
                assert (code, out) == (
                    1,
                    "",
                ) and "olsen.load(path).predict(frame)" in error, "in Python it predicts"


def test_parameters_that_are_objects_are_left_out(tmp_path):
    X = FRAME[["a", "b"]]
    model = ensemble(cv=KFold(3)).set_params(random_state=np.random.RandomState(1)).fit(X, Y)
    package.save(model, tmp_path / "m.skops")
    again = package.load(tmp_path / "m.skops")
    assert again.cv is None and again.random_state is None and again.n_estimators == 60
    assert isinstance(model.cv, KFold)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


# Models of the shell


def test_a_model_of_the_shell_is_a_pipeline_and_can_be_saved_again(olsen, tmp_path):
    """Of a table with everything that a column can be."""
    days = pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y")
    frame = FRAME.assign(price=[f"{1000 + 10 * v:,.2f}" for v in FRAME["a"].abs() * 100], day=days)
    frame["grade"] = RNG.choice(["low", "mid", "high"], N)
    frame.loc[[2, 9], "a"] = np.nan
    frame.loc[[4, 11], "city"] = None
    frame.loc[6, "day"] = None
    frame.assign(y=Y).to_csv(table := tmp_path / "t.csv", index=False)
    options = [
        "--missing",
        "mean",
        "--dates",
        "day",
        "--ordinal",
        "grade=low<mid<high",
        "--members",
        "60",
    ]
    code, _, error = olsen("fit", table, "--target", "y", "--out", tmp_path / "m.skops", *options)
    assert code == 0, error
    model = package.load(tmp_path / "m.skops")
    assert (
        isinstance(model, Pipeline)
        and isinstance(model[0], ColumnTransformer)
        and model.target_name_ == "y"
    )
    assert isinstance(model[-1], AdaptiveOLSEnsembleRegressor)
    encoders = [one[-1] for _, one, _ in model[0].transformers_ if isinstance(one, Pipeline)]
    levels = [list(one.categories_[0]) for one in encoders if isinstance(one, OneHotEncoder)]
    assert ["Bern", "Oslo", "Rome"] in levels and ["M", "S"] in levels
    names = model[0].get_feature_names_out()
    assert "price" in names and "grade" in names and len(names) == model[-1].n_features_in_
    package.save(model, tmp_path / "again.skops")
    for file, out in (("m.skops", "p.csv"), ("again.skops", "q.csv")):
        code, _, error = olsen(
            "predict", tmp_path / file, table, "--interval", "0.9", "--out", tmp_path / out
        )
        assert code == 0, error
    header, values = read(tmp_path / "q.csv")
    assert header == ["y", "lower", "upper"]
    np.testing.assert_allclose(values, read(tmp_path / "p.csv")[1], rtol=1e-12)
    np.testing.assert_allclose(model.predict(pd.read_csv(table)), values[:, 0], rtol=1e-12)


# Intervals


def test_intervals_and_standard_errors_come_with_the_file(tmp_path):
    X = FRAME[["a", "b"]].to_numpy()
    given, chosen = OLSEnsembleRegressor(50, random_state=0), ensemble()
    sizes = OLSEnsembleRegressorCV(50, random_state=0)
    exact = "auto", "cv+", "jackknife+", "jackknife"
    for model, methods in ((given, exact), (sizes, exact), (chosen, ("auto", "cv+"))):
        package.save(model.fit(X, Y), tmp_path / "m.skops")
        for again in (package.load(tmp_path / "m.skops"), pickle.loads(pickle.dumps(model))):
            for method in methods:
                with case(model, method):
                    expected = model.predict_interval(X[:7], 0.8, method)
                    np.testing.assert_allclose(
                        again.predict_interval(X[:7], 0.8, method), expected, rtol=1e-12
                    )
            np.testing.assert_allclose(
                again.predict(X, return_std=True), model.predict(X, return_std=True), rtol=1e-12
            )
            found, expected = (
                one.summary().coefficients.drop(columns="feature").to_numpy()
                for one in (again, model)
            )
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_files_without_rows(tmp_path, monkeypatch):
    """Left out because it was asked for, or because they take too much."""
    X, path = RNG.normal(size=(200, 40)), tmp_path / "m.skops"
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


def test_the_command_keeps_what_intervals_need(olsen, tmp_path):
    """The folds of the choice, or the rows; without either there are no intervals."""
    sizes, groups, without = ("--model", "ensemble"), ("--groups", "block"), ("--no-intervals",)
    table, model = tmp_path / "t.csv", tmp_path / "m.skops"
    FRAME[["a", "b"]].assign(y=Y, block=np.arange(len(Y)) // 3).to_csv(table, index=False)
    options = ((), without, groups, sizes, (*sizes, *groups), (*sizes, *without))
    for number, option in enumerate(options):
        with case(option):
            assert (
                olsen(
                    "fit",
                    table,
                    "--target",
                    "y",
                    "--out",
                    model,
                    "--members",
                    50,
                    "--force",
                    *option,
                )[0]
                == 0
            )
            out = tmp_path / f"{number}.csv"
            code, _, error = olsen("predict", model, table, "--interval", "0.9", "--out", out)
            if option == (*sizes, *without):
                assert code == 1 and "--no-intervals" in error and not out.exists()
                assert olsen("predict", model, table)[0] == 0
                continue
            width = np.diff(read(out)[1][:, 1:])[:, 0]
            assert np.isfinite(width).all() and np.ptp(width) > 1e-6 * width.mean()


def test_groups_are_not_forgotten(tmp_path):
    """A loaded model has errors of whole groups; without them its intervals would be too narrow."""
    rng = np.random.default_rng(2)
    groups = np.repeat(np.arange(30), 6)
    X = rng.normal(size=(30, 8))[groups] + 0.05 * rng.normal(size=(180, 8))
    y = X[:, 0] + 2 * rng.normal(size=30)[groups] + 0.3 * rng.normal(size=180)
    model = ensemble(cv=GroupKFold(6)).fit(X, y, groups=groups)
    package.save(model, tmp_path / "m.skops")
    again, new = package.load(tmp_path / "m.skops"), rng.normal(size=(50, 8))
    np.testing.assert_allclose(again.predict_interval(new), model.predict_interval(new), rtol=1e-12)
    with pytest.raises(ValueError, match="groups"):
        again.predict_interval(new, method="jackknife+")


# What is refused


class Subclass(StandardScaler):
    """Could do anything."""


def test_other_types_are_refused_and_an_old_file_stays(tmp_path):
    X, path = FRAME[["a", "b"]].to_numpy(), tmp_path / "m.skops"
    package.save(OLSEnsembleRegressor(10, random_state=0).fit(X, Y), path)
    before = path.read_bytes()
    for model in (
        Ridge(),
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(PCA(1), ensemble()),
        make_pipeline(Subclass(), ensemble()),
        make_pipeline(FunctionTransformer(np.abs), ensemble()),
    ):
        with case(model), pytest.raises(TypeError, match=r"Ridge|PCA|Subclass|numpy.absolute"):
            package.save(model.fit(X, Y), path)
        assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_saved_says_so(tmp_path):
    X = FRAME[["a", "b"]].to_numpy()
    with pytest.raises(NotFittedError):
        package.save(ensemble(), tmp_path / "m.skops")
    with pytest.raises(ValueError, match="2 targets"):
        package.save(OLSEnsembleRegressor(10).fit(X, np.column_stack([Y, Y])), tmp_path / "m.skops")
    with pytest.raises(ValueError, match=r"\.skops"):
        package.save(OLSEnsembleRegressor(10).fit(X, Y), tmp_path / "m.pkl")
    assert not list(tmp_path.iterdir())


def test_intervals_and_summaries_of_whole_pipelines(seed):
    """Those of the ensemble on transformed rows, with the columns that went in: nested, searched,
    kept, as frames.
    """
    inner = make_pipeline(nested()[0], make_pipeline(FunctionTransformer(np.sin), ensemble()))
    search = GridSearchCV(
        inner, {"columntransformer__numbers__simpleimputer__strategy": ["mean", "median"]}, cv=2
    )
    dense = nested()
    dense[0].set_params(texts__onehotencoder__sparse_output=False)
    cases = {
        **{
            name: PIPELINES[name]()
            for name in ("bare", "array", "categories", "selector", "infrequent", "places")
        },
        "searched": (search, GAPS),
        **{
            library: (clone(dense).set_output(transform=library), GAPS)
            for library in ("pandas", "polars")
        },
    }
    for name, (model, X) in cases.items():
        with case(name):
            model.fit(X, Y)
            last = model.best_estimator_ if name == "searched" else model
            rows, own = X, last
            while isinstance(own, Pipeline):
                rows, own = own[:-1].transform(rows), own[-1]
            ends = own.predict_interval(rows, 0.8)
            summary = package.summary(model)
            columns = (
                [str(column) for column in X.columns]
                if isinstance(X, pd.DataFrame)
                else ["x0", "x1"]
            )
            for kept in (model, pickle.loads(pickle.dumps(model))):
                np.testing.assert_array_equal(package.predict_interval(kept, X, 0.8), ends)
                assert str(package.summary(kept)) == str(summary)
            found = summary.coefficients
            made = found["column"] if "column" in found.columns else found["feature"]
            assert len(found) == own.n_features_in_ and set(made) <= set(columns)
            for feature, column in zip(found["feature"], made, strict=True):
                assert feature.removeprefix("missingindicator_").partition("_")[0] == column
            part = rows.toarray() if hasattr(rows, "toarray") else np.asarray(rows)
            parts = {
                c: (part @ np.where(np.array(made) == c, own.coef_, 0.0)).std() for c in set(made)
            }
            effects = dict(zip(summary.effects["column"], summary.effects["effect"], strict=True))
            assert sorted(effects, key=lambda c: -abs(effects[c])) == list(
                summary.effects["column"]
            )
            np.testing.assert_allclose(
                [abs(effects[c]) for c in parts], list(parts.values()), rtol=1e-9
            )
            assert all(
                f" {column} " in str(summary) and column in summary._repr_html_()
                for column in effects
            )


def test_standard_errors_of_factors(seed):
    """Of a tuned model by the fits that repeat the choice; a level that never occurs adds nothing."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [np.eye(3)[rng.integers(0, 3, 120)], rng.standard_normal((120, 2)), np.zeros(120)]
    )
    model = AdaptiveOLSEnsembleRegressor().fit(
        X, X @ [2.0, 0.0, -1.0, 1.0, 0.0, 0.0] + rng.standard_normal(120)
    )
    refits = model._refits("effects")
    spread = np.std([(X[:, :3] @ coef[0, :3]).std() for coef in refits.coef], ddof=1)
    effect, std = model._effects([[0, 1, 2], [3, 5], [3], [4]])
    assert std[0] == pytest.approx(
        np.sqrt(refits.fraction / (1 - refits.fraction)) * spread, rel=0.05
    )
    given = OLSEnsembleRegressor(200, 3, random_state=seed).fit(
        X, X[:, 0] + rng.standard_normal(120)
    )
    blocks = OLSEnsembleRegressor(200, 3, random_state=seed).fit(
        lambda: iter([(X, X[:, 0] + X[:, 4])]), None
    )
    for one in (model, given, blocks):
        effect, std = one._effects([[0, 1, 2], [3, 5], [3], [4]])
        assert (
            effect[1] == pytest.approx(abs(effect[2]))
            and std[1] == pytest.approx(std[2])
            and std.min() > 0
        )
        np.testing.assert_allclose(effect[2:], one.coef_[3:5] * X[:, 3:5].std(axis=0))


def test_transformed_targets_and_models_without_intervals():
    X, y = FRAME[["a", "b"]], np.exp(Y / 4)
    model = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), ensemble()), func=np.log, inverse_func=np.exp
    )
    ends = package.predict_interval(model.fit(X, y), X)
    inner = model.regressor_[-1].predict_interval(model.regressor_[:-1].transform(X))
    np.testing.assert_allclose(ends, np.exp(inner))
    model.set_params(func=np.negative, inverse_func=np.negative).fit(X, y)
    assert (np.diff(package.predict_interval(model, X)) > 0).all()
    model.set_params(func=np.positive, inverse_func=np.abs, check_inverse=False).fit(X, Y)
    with pytest.raises(ValueError, match="monotone"):
        package.predict_interval(model, X)
    for wrong, error in (
        (make_pipeline(StandardScaler(), Ridge()).fit(X, Y), TypeError),
        (make_pipeline(StandardScaler(), ensemble()), NotFittedError),
        (GridSearchCV(ensemble(), {"fit_intercept": [True]}, refit=False).fit(X, Y), ValueError),
    ):
        for ask in (package.summary, lambda model: package.predict_interval(model, X)):
            with pytest.raises(error, match=r"Ridge|fitted|refit"):
                ask(wrong)


def test_the_report_of_a_pipeline_has_the_columns_that_went_in(tmp_path):
    model = clone(nested()).fit(GAPS, Y)
    package.report(model, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    chart, table = (
        page.partition('id="effects"')[2].partition('id="predicted"')[0],
        page.partition('id="columns"')[2],
    )
    for found in package.summary(model).effects.itertuples():
        assert (
            f">{found.column}</text>" in chart
            and f"<title>{found.column}: {found.effect:.4g}" in chart
        )
    assert "city_Oslo" in table and "city_Oslo" not in chart and "x0" not in page


def test_an_effect_keeps_its_sign_beside_the_indicator_of_its_gaps_and_noise_is_called_noise():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 2))
    y = -3 * X[:, 0] + rng.standard_normal(80)
    X[::7, 0] = np.nan
    model = make_pipeline(SimpleImputer(add_indicator=True), AdaptiveOLSEnsembleRegressor()).fit(
        X, y
    )
    effects = package.summary(model).effects
    assert effects["features"].tolist() == [2, 1] and effects["effect"][0] < -2
    names = pd.DataFrame(X, columns=["missingindicator_a", "b"])  # names decide nothing
    effects = package.summary(model.fit(names, y)).effects
    assert effects["features"].tolist() == [2, 1] and effects["effect"][0] < -2
    noise = AdaptiveOLSEnsembleRegressor().fit(X[:, 1:], rng.standard_normal(80))
    assert (
        noise.scheme_weights_.get("null", 0) > 0.8 and "signal" in noise.summary().facts["caution"]
    )
