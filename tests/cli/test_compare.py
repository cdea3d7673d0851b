"""Models compared on folds, against scikit-learn on the same folds; and `olsen show` of a model
file.
"""

import math

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.metrics import r2_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, KFold, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, __version__, cli, load, summary
from olsen.datasets import load_soil_carbon

pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

from olsen.cli import compare, table_models

DESCENT = {"alphas": 60, "max_iter": 1000, "tol": 1e-3}
BY_HAND = {
    "olsen": AdaptiveOLSEnsembleRegressor(random_state=3),
    "ridge": RidgeCV(np.logspace(-4, 6, 60)),
    "lasso": LassoCV(**DESCENT),
    "elastic net": TransformedTargetRegressor(
        ElasticNetCV(l1_ratio=[0.2, 0.5, 0.8], **DESCENT), transformer=StandardScaler()
    ),
    "PLS": GridSearchCV(
        PLSRegression(scale=False), {"n_components": range(1, 11)}, scoring="neg_mean_squared_error"
    ),
    "least squares": LinearRegression(),
    "mean": DummyRegressor(),
}


def problem(n=60, p=5, noise=0.5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return X, X @ np.linspace(1, 2, p) + noise * rng.standard_normal(n)


def write(path, X, y, names=None):
    names = names or [f"x{i}" for i in range(X.shape[1])]
    rows = (",".join(map(repr, (*row.tolist(), float(t)))) for row, t in zip(X, y, strict=True))
    path.write_text("\n".join([",".join([*names, "y"]), *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X, y, compare.run(X, y, folds=4, repeats=1, seed=3, jobs=1)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write(tmp_path_factory.mktemp("compare") / "data.csv", *problem())


def by_name(comparison):
    return {line["name"]: line for line in comparison["models"]}


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_are_those_of_scikit_learn_on_the_same_folds(diabetes, weighted):
    X, y, comparison = diabetes
    weights = np.ones(len(y))
    models = dict(BY_HAND)
    if weighted:
        weights = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
        comparison = compare.run(X, y, folds=4, repeats=1, seed=3, jobs=1, weight=weights)
        assert any("PLS" in note for note in comparison["notes"]), "it takes no weights"
        del models["PLS"], models["elastic net"]
    splits = list(RepeatedKFold(n_splits=4, n_repeats=1, random_state=3).split(X))
    for name, model in models.items():
        pipeline = make_pipeline(*([model] if name == "olsen" else [StandardScaler(), model]))
        scores = {"rmse": [], "r2": []}
        for train, test in splits:
            step_weights = {f"{step}__sample_weight": weights[train] for step, _ in pipeline.steps}
            pipeline.fit(X[train], y[train], **(step_weights if weighted else {}))
            predicted = np.ravel(pipeline.predict(X[test]))
            errors = (y[test], predicted)
            scores["rmse"].append(root_mean_squared_error(*errors, sample_weight=weights[test]))
            scores["r2"].append(r2_score(*errors, sample_weight=weights[test]))
        line = by_name(comparison)[name]
        with case(name):
            assert line["folds"]["rmse"] == pytest.approx(scores["rmse"], rel=1e-8)
            assert line["folds"]["r2"] == pytest.approx(scores["r2"], abs=1e-8)
            for key, values in scores.items():
                assert line[key] == pytest.approx(np.mean(values))
            assert line["seconds"] == np.median(line["folds"]["seconds"]) > 0


def test_standard_errors_are_paired_and_allow_for_shared_rows(diabetes):
    X, _, comparison = diabetes
    n = len(X)
    lines = by_name(comparison)
    ours = lines["olsen"]
    assert ours["rmse_difference"] is None and ours["rmse_standard_error"] is None
    test_sizes = [len(test) for _, test in KFold(4).split(X)]
    shared_rows = np.mean([size / (n - size) for size in test_sizes])
    for name in set(lines) - {"olsen"}:
        for key in ("rmse", "r2"):
            differences = np.subtract(lines[name]["folds"][key], ours["folds"][key])
            assert lines[name][f"{key}_difference"] == pytest.approx(differences.mean())
            standard_error = differences.std(ddof=1) * math.sqrt(1 / 4 + shared_rows)
            assert lines[name][f"{key}_standard_error"] == pytest.approx(standard_error)
    best = min(lines.values(), key=lambda line: line["rmse"])
    assert [line for line in lines.values() if line["best"]] == [best]
    assert comparison["best"] == best["name"]


def test_repeats_and_seeds_make_other_folds_and_threads_change_nothing():
    X, y = problem(n=40, p=3)
    progress = []
    once = compare.run(X, y, folds=3, seed=1, jobs=1, tell=lambda *state: progress.append(state))
    assert progress == [("comparing", n_models, 7) for n_models in range(7)]
    twice = by_name(compare.run(X, y, folds=3, repeats=2, seed=1, jobs=1))
    other_seed = by_name(compare.run(X, y, folds=3, seed=2, jobs=1))
    threads = by_name(compare.run(X, y, folds=3, seed=1, jobs=2))
    for name, line in by_name(once).items():
        errors = line["folds"]["rmse"]
        twice_errors = twice[name]["folds"]["rmse"]
        assert twice_errors[:3] == errors and len(twice_errors) == 6
        assert other_seed[name]["folds"]["rmse"] != errors
        assert threads[name]["folds"]["rmse"] == pytest.approx(errors, rel=1e-9)


def test_the_verdict_follows_the_numbers(seed):
    """Least squares on three columns for four training rows has twice the error of much noise."""
    X, y = problem(n=200, p=120, noise=20.0, seed=seed)
    comparison = compare.run(X, y, seed=seed, jobs=1)
    level, _, worse = comparison["verdict"].partition("Worse than olsen")
    level = level.partition("Within")[2]
    assert "least squares" in worse
    for name, line in by_name(comparison).items():
        if name != "olsen" and line["rmse_difference"] > 0:
            is_level = line["rmse_difference"] <= 2 * line["rmse_standard_error"]
            assert (name in level, name in worse) == (is_level, not is_level)


def test_a_model_that_does_not_converge_is_named():
    """Neighbouring columns of spectra are nearly the same."""
    soil = load_soil_carbon()
    comparison = compare.run(soil.data[:60, ::20], soil.target[:60], folds=2, jobs=1)
    assert any("lasso" in note and "converged" in note for note in comparison["notes"])


def test_a_model_that_fails_is_named(tmp_path, olsen, olsen_json):
    """PLS has no component of constant columns."""
    path = write(tmp_path / "flat.csv", np.ones((20, 2)), problem(n=20)[1])
    options = {"target": "y", "folds": 2, "jobs": 1}
    comparison = olsen_json("compare", path, **options)
    assert any("PLS" in note and "2 of 2 folds" in note for note in comparison["data"]["messages"])
    line = by_name(comparison)["PLS"]
    assert line["rmse"] is None and line["rmse_difference"] is None and line["seconds"] is None
    assert "PLS" not in comparison["verdict"] and by_name(comparison)["ridge"]["rmse"] > 0
    assert "nan" not in olsen("compare", path, report=tmp_path / "r.html", **options)[1]


def test_tables_that_cannot_be_compared_are_refused():
    noise = np.random.default_rng(0).standard_normal(30)
    for y, folds, words in (
        (np.arange(9.0), 2, "9 rows .* 2 folds: 10"),
        (np.arange(30.0), 16, "30 rows .* 16 folds: 32"),
        (np.ones(30), 5, "same in all rows"),
        (1e200 * noise, 5, r"e\+200"),
        (1e-200 * noise, 5, "e-200"),
    ):
        X = np.random.default_rng(1).standard_normal((len(y), 2))
        with case(words), pytest.raises(ValueError, match=words):
            compare.run(X, y, folds=folds, jobs=1)


# the command


def test_the_table_and_the_json_say_the_same(olsen, olsen_json, table):
    options = {"target": "y", "folds": 3, "jobs": 1}
    code, text, err = olsen("compare", table, **options)
    assert (code, err) == (0, ""), "no progress in a pipe"
    assert "data.csv: 60 rows, 5 columns, target y" in text
    assert "3-fold cross-validation, seed 0" in text
    comparison = olsen_json("compare", table, **options)
    assert comparison["data"]["rows"] == 60 and comparison["written"] == []
    for line in comparison["models"]:
        row = next(row for row in text.splitlines() if row[2:].startswith(line["name"]))
        assert f"{line['rmse']:.4g}" in row and f"{line['r2']:.3f}" in row
        assert row.startswith("*") == line["best"]
    assert comparison["verdict"] in " ".join(text.split())


def test_a_page_is_written_and_escapes_names(olsen, tmp_path):
    X, y = problem(n=20, p=2)
    name = "<script>alert(1)</script>"
    page = tmp_path / "page.html"
    path = write(tmp_path / "odd.csv", X, y, [name, "b"])
    code, out, _ = olsen("compare", path, target=name, folds=2, jobs=1, report=page)
    html = page.read_text(encoding="utf-8")
    assert code == 0 and out.rstrip().endswith(f"written: {page}")
    assert all(f">{model}<" in html for model in BY_HAND)
    assert "http:" not in html and "https:" not in html and html.count('class="whisker') == 6
    assert "alert(1)" in html and "<script>alert" not in html


def test_tables_are_read_as_for_a_fit(olsen_json, olsen_refuses, tmp_path):
    """All options of a table; whole groups are held out together."""
    rng = np.random.default_rng(0)
    lines = ["a,day,size,group,row,w,y"]
    for i in range(60):
        a = rng.standard_normal()
        cell = "" if i == 7 else a
        y = a + 0.1 * rng.standard_normal()
        lines.append(f"{cell},2024-01-{1 + i % 28:02d},{'SML'[i % 3]},{i // 6},r{i},{i % 4},{y}")
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines) + "\n")
    options = {
        "target": "y",
        "missing": "mean",
        "dates": "day",
        "ordinal": "size=S<M<L",
        "id": "row",
        "groups": "group",
        "weight": "w",
    }
    data = olsen_json("compare", path, folds=3, **options)["data"]
    assert (data["rows"], data["columns"]) == (45, 3)  # without rows of weight zero
    olsen_refuses("compare", path, folds=11, **options, words="10 groups")


def test_fit_and_compare_say_the_same_to_the_last_digit(olsen_json, tmp_path, monkeypatch):
    """The embedded data (every 50th column) and a table with weights and groups, in JSON and in the
    report.
    """
    soil = table_models._embedded().select([*range(0, 700, 50), 700]).slice(0, 200)
    monkeypatch.setattr(table_models, "_embedded", lambda: soil)
    X, y = problem(n=40, p=3, noise=3.0)
    row = np.arange(40)
    path = write(tmp_path / "t.csv", np.column_stack([X, row % 8, 1 + row % 3]), y, [*"abcgw"])
    page = tmp_path / "r.html"
    table_options = {"target": "y", "groups": "g", "weight": "w", "seed": 2}
    for arguments, options in (((), {}), ((path,), table_options)):
        error = olsen_json("fit", *arguments, **options)["errors"][0]
        assert error["name"] == "adaptive model" and error["r2"] < 1
        summary = olsen_json("fit", *arguments, "--compare", report=page, force=True, **options)
        fitted = summary["errors"]
        compared = olsen_json("compare", *arguments, **options)["models"]
        html = page.read_text(encoding="utf-8").partition("Error of prediction")[2]
        html = html.partition("</table>")[0]
        with case(arguments):
            for key in ("name", "rmse", "r2"):
                assert [line[key] for line in fitted] == [line[key] for line in compared]
            assert all(f">{line['rmse']:.4g}<" in html for line in compared)


# show


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Model of six columns of which two matter, and a text column that matters."""
    folder = tmp_path_factory.mktemp("show")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    y = 3 * X[:, 0] - 2 * X[:, 3] + (np.arange(90) % 2) + 0.3 * rng.standard_normal(len(X))
    rows = (
        ",".join([*map(repr, row.tolist()), "north" if i % 2 else "south", repr(float(t))])
        for i, (row, t) in enumerate(zip(X, y, strict=True))
    )
    table = folder / "data.csv"
    table.write_text("\n".join(["a,b,c,d,e," + "long" * 100 + ",place,y", *rows]))
    path = folder / "model.skops"
    options = ["--target", "y", "--members", "50", "--out", str(path)]
    assert cli.main(["fit", str(table), *options]) == 0
    return path


def test_show_agrees_with_the_estimator(olsen, olsen_json, model):
    shown = olsen_json("show", model)
    pipeline = load(model)
    estimator = pipeline[-1]
    names = pipeline[:-1].get_feature_names_out()
    assert shown["target"] == "y" and shown["rows"] == 90
    columns = shown["columns"]
    assert (columns["table"], columns["encoded"], columns["dates"]) == (7, 8, [])
    assert columns["text"] == [{"name": "place", "categories": 2}]
    sizes = [len(columns) for columns in estimator.feature_subsets_]
    assert shown["members"]["number"] == 50
    assert shown["members"]["mean_columns"] == pytest.approx(np.mean(sizes))
    assert shown["schemes"] == estimator.scheme_weights_
    frequencies = {column["name"]: column["frequency"] for column in shown["kept"]}
    selected = np.flatnonzero(estimator.selected_)
    assert frequencies == {names[j]: estimator.selection_frequency_[j] for j in selected}
    assert {"a", "d"} <= set(frequencies)
    assert shown["error"]["rmse"] == pytest.approx(math.sqrt(-estimator.best_score_))
    effects = shown["effects"]
    a = np.genfromtxt(model.with_name("data.csv"), delimiter=",", skip_header=1)[:, 0]
    assert [effect["name"] for effect in effects[:2]] == ["a", "d"]
    assert effects[0]["effect"] == pytest.approx(estimator.coef_[0] * a.std())
    expected = summary(pipeline).effects
    expected = expected[expected["effect"] != 0]
    assert [effect["name"] for effect in effects] == list(expected["column"])
    np.testing.assert_allclose([effect["effect"] for effect in effects], expected["effect"])
    assert [effect["features"] for effect in effects if effect["name"] == "place"] == [2]
    assert shown["file"]["olsen"] == __version__ and shown["file"]["bytes"] == model.stat().st_size
    code, out, _ = olsen("show", model)
    assert code == 0
    for words in (
        "a model of y",
        "90 rows, 7 columns, 1 of text",
        "±",
        "a sparse model keeps",
        "k-fold cross-validation",
    ):
        assert words in out
    lines = out.partition("largest effects")[2].splitlines()
    assert all(len(line) < 80 for line in lines if line.startswith("  "))


def test_show_of_the_ensemble_of_the_paper(olsen, olsen_json, model, tmp_path):
    """It has a size, and neither schemes nor a sparse model."""
    path = tmp_path / "m.skops"
    table = model.with_name("data.csv")
    assert olsen("fit", table, target="y", model="ensemble", members=50, out=path)[0] == 0
    shown = olsen_json("show", path)
    estimator = load(path)[-1]
    assert shown["schemes"] is None and shown["kept"] is None and shown["members"]["number"] == 50
    assert shown["members"]["mean_columns"] == pytest.approx(estimator.max_features_)
    assert shown["error"]["rmse"] == pytest.approx(math.sqrt(-estimator.best_score_))
    out = olsen("show", path)[1]
    assert "leave-one-out" in out
    assert "sampling schemes" not in out and "a sparse model" not in out


def test_without_training_rows_coefficients_rank_columns(olsen, olsen_json, model, tmp_path):
    path = tmp_path / "m.skops"
    options = {"target": "y", "members": 50, "no_intervals": True, "out": path}
    assert olsen("fit", model.with_name("data.csv"), **options)[0] == 0
    effects = olsen_json("show", path)["effects"]
    coef = np.abs(load(path)[-1].coef_)
    names = [*"abcde", "long" * 100, "place"]
    sizes = dict(zip(names, [*coef[:6], coef[6:].max()], strict=True))
    in_order = sorted(sizes, key=lambda name: -sizes[name])
    assert [line["name"] for line in effects] == [name for name in in_order if sizes[name] > 0]
    assert not any(line["effect"] for line in effects)
