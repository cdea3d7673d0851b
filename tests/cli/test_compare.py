"""Models compared on folds, against scikit-learn on the same folds; and what is shown of a model
file.
"""

import json
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
    "ensemble": AdaptiveOLSEnsembleRegressor(random_state=3),
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


def named(found):
    return {line["name"]: line for line in found["models"]}


def test_errors_are_those_of_scikit_learn_on_the_same_folds(diabetes):
    X, y, found = diabetes
    splits = list(RepeatedKFold(n_splits=4, n_repeats=1, random_state=3).split(X))
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    weighted = compare.run(X, y, folds=4, repeats=1, seed=3, jobs=1, weight=weight)
    assert any("PLS" in note for note in weighted["notes"]), "it takes no weights"
    for result, weights, models in (
        (found, np.ones(len(y)), BY_HAND),
        (
            weighted,
            weight,
            {
                name: BY_HAND[name]
                for name in ("ensemble", "ridge", "lasso", "least squares", "mean")
            },
        ),
    ):
        for name, model in models.items():
            steps = [model] if name == "ensemble" else [StandardScaler(), model]
            pipeline, line, errors = make_pipeline(*steps), named(result)[name], []
            for train, test in splits:
                given = {
                    f"{step}__sample_weight": weight[train]
                    for step, _ in pipeline.steps
                    if result is weighted
                }
                predicted = np.ravel(pipeline.fit(X[train], y[train], **given).predict(X[test]))
                errors.append(
                    [
                        f(y[test], predicted, sample_weight=weights[test])
                        for f in (root_mean_squared_error, r2_score)
                    ]
                )
            rmse, r2 = np.transpose(errors)
            with case(name):
                assert line["folds"]["rmse"] == pytest.approx(rmse, rel=1e-8)
                assert line["folds"]["r2"] == pytest.approx(r2, abs=1e-8)
                assert line["rmse"] == pytest.approx(rmse.mean()) and line["r2"] == pytest.approx(
                    r2.mean()
                )
                assert line["seconds"] == np.median(line["folds"]["seconds"]) > 0


def test_standard_errors_are_paired_and_allow_for_shared_rows(diabetes):
    X, _, found = diabetes
    n, lines = len(X), named(found)
    ours = lines["ensemble"]
    assert ours["rmse_difference"] is None and ours["rmse_standard_error"] is None
    for name in set(lines) - {"ensemble"}:
        for key in ("rmse", "r2"):
            difference = np.subtract(lines[name]["folds"][key], ours["folds"][key])
            assert lines[name][f"{key}_difference"] == pytest.approx(difference.mean())
            plain = difference.std(ddof=1) / 2  # the root of four folds
            larger = math.sqrt(
                1 + 4 * np.mean([len(t) / (n - len(t)) for _, t in KFold(4).split(X)])
            )
            assert lines[name][f"{key}_standard_error"] == pytest.approx(plain * larger)
    best = [line for line in found["models"] if line["best"]]
    assert len(best) == 1 and best[0]["rmse"] == min(line["rmse"] for line in found["models"])
    assert found["best"] == best[0]["name"]


def test_repeats_and_seeds_make_other_folds_and_threads_change_nothing():
    X, y = problem(n=40, p=3)
    told = []
    once = compare.run(X, y, folds=3, seed=1, jobs=1, tell=lambda *what: told.append(what))
    assert told == [("comparing", done, 7) for done in range(7)]
    twice = compare.run(X, y, folds=3, repeats=2, seed=1, jobs=1)
    other = compare.run(X, y, folds=3, seed=2, jobs=1)
    threads = compare.run(X, y, folds=3, seed=1, jobs=2)
    for name, line in named(once).items():
        values = line["folds"]["rmse"]
        assert (
            named(twice)[name]["folds"]["rmse"][:3] == values
            and len(named(twice)[name]["folds"]["rmse"]) == 6
        )
        assert named(other)[name]["folds"]["rmse"] != values
        assert named(threads)[name]["folds"]["rmse"] == pytest.approx(values, rel=1e-9)


def test_words_follow_the_numbers(seed):
    """With three columns for four training rows, and much noise, least squares has twice the error."""
    found = compare.run(*problem(n=200, p=120, noise=20.0, seed=seed), seed=seed, jobs=1)
    level, _, worse = found["verdict"].partition("Worse than the ensemble")
    assert "least squares" in worse
    for name, line in named(found).items():
        if name != "ensemble" and line["rmse_difference"] > 0:
            within = line["rmse_difference"] <= 2 * line["rmse_standard_error"]
            assert (name in level.partition("Within")[2]) == within and (name in worse) == (
                not within
            )


def test_a_model_that_fails_or_does_not_converge_is_named(tmp_path, olsen):
    """Neighbouring columns of spectra are nearly the same; PLS has no component of columns that do
    not vary.
    """
    soil = load_soil_carbon()
    found = compare.run(soil.data[:60, ::20], soil.target[:60], folds=2, jobs=1)
    assert any("lasso" in note and "converged" in note for note in found["notes"])
    path = write(tmp_path / "flat.csv", np.ones((20, 2)), problem(n=20)[1])
    arguments = (
        "compare",
        path,
        "--target",
        "y",
        "--folds",
        "2",
        "--jobs",
        "1",
        "--report",
        tmp_path / "r.html",
        "--force",
    )
    code, out, _ = olsen(*arguments, "--json")
    found = json.loads(out)
    assert code == 0 and any(
        "PLS" in note and "2 of 2 folds" in note for note in found["data"]["messages"]
    )
    line = named(found)["PLS"]
    assert line["rmse"] is None and line["rmse_difference"] is None and line["seconds"] is None
    assert "PLS" not in found["verdict"] and named(found)["ridge"]["rmse"] > 0
    assert "nan" not in olsen(*arguments)[1]


def test_what_cannot_be_compared_is_refused():
    drawn = np.random.default_rng(0).standard_normal(30)
    for y, folds, words in (
        (np.arange(9.0), 2, "9 rows .* 2 folds: 10"),
        (np.arange(30.0), 16, "30 rows .* 16 folds: 32"),
        (np.ones(30), 5, "same in all rows"),
        (1e200 * drawn, 5, r"e\+200"),
        (1e-200 * drawn, 5, "e-200"),
    ):
        X = np.random.default_rng(1).standard_normal((len(y), 2))
        with case(words), pytest.raises(ValueError, match=words):
            compare.run(X, y, folds=folds, jobs=1)


# through the door


def test_the_table_and_the_json_say_the_same(olsen, table):
    arguments = ("compare", table, "--target", "y", "--folds", "3", "--jobs", "1")
    code, text, err = olsen(*arguments)
    assert (code, err) == (0, ""), "no progress in a pipe"
    assert (
        "data.csv: 60 rows, 5 columns, target y" in text
        and "3-fold cross-validation, seed 0" in text
    )
    code, out, _ = olsen(*arguments, "--json")
    found = json.loads(out)
    assert code == 0 and found["data"]["rows"] == 60 and found["written"] == []
    for line in found["models"]:
        shown = next(row for row in text.splitlines() if row[2:].startswith(line["name"]))
        assert f"{line['rmse']:.4g}" in shown and f"{line['r2']:.3f}" in shown
        assert shown.startswith("*") == line["best"]
    assert " ".join(text.split()).find(found["verdict"]) > 0


def test_a_page_is_written_and_names_of_others_stay_harmless(olsen, tmp_path):
    X, y = problem(n=20, p=2)
    name, page = "<script>alert(1)</script>", tmp_path / "page.html"
    path = write(tmp_path / "odd.csv", X, y, [name, "b"])
    arguments = ("compare", path, "--target", name, "--folds", "2", "--jobs", "1", "--report", page)
    code, out, _ = olsen(*arguments)
    html = page.read_text(encoding="utf-8")
    assert code == 0 and out.rstrip().endswith(f"written: {page}")
    assert all(f">{model}<" in html for model in BY_HAND)
    assert "http:" not in html and "https:" not in html and html.count('class="whisker"') == 6
    assert "alert(1)" in html and "<script>alert" not in html


def test_tables_are_read_as_for_a_fit(olsen, tmp_path):
    """All options of a table; whole groups are left out, so that what names them does not help."""
    rng = np.random.default_rng(0)
    lines = ["a,day,size,group,row,w,y"]
    for i in range(60):
        a = rng.standard_normal()
        lines.append(
            f"{'' if i == 7 else a},2024-01-{1 + i % 28:02d},{'SML'[i % 3]},{i // 6},r{i},{i % 4},"
            f"{a + 0.1 * rng.standard_normal()}"
        )
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    options = (
        "--missing",
        "mean",
        "--dates",
        "day",
        "--ordinal",
        "size=S<M<L",
        "--id",
        "row",
        "--groups",
        "group",
    )
    arguments = ("compare", tmp_path / "t.csv", "--target", "y", *options, "--weight", "w")
    code, out, err = olsen(*arguments, "--folds", 3, "--json")
    found = json.loads(out)["data"]
    assert code == 0 and (found["rows"], found["columns"]) == (
        45,
        3,
    ), err  # rows of weight zero are left out
    code, _, err = olsen(*arguments, "--folds", 11)
    assert code == 1 and "10 groups" in err


def test_fit_and_compare_say_the_same_to_the_last_digit(olsen, tmp_path, monkeypatch):
    """Of the embedded data (every 50th column), in the table and in the report, and of one with
    weights and groups.
    """
    whole = table_models._embedded()
    monkeypatch.setattr(
        table_models, "_embedded", lambda: whole.select([*range(0, 700, 50), 700]).slice(0, 200)
    )
    X, y = problem(n=40, p=3, noise=3.0)
    path = write(
        tmp_path / "t.csv",
        np.column_stack([X, np.arange(40) % 8, 1 + np.arange(40) % 3]),
        y,
        [*"abcgw"],
    )
    page, beside = tmp_path / "r.html", ("--groups", "g", "--weight", "w", "--seed", "2")
    for arguments in ((), (path, "--target", "y", *beside)):
        alone = json.loads(olsen("fit", *arguments, "--json")[1])
        assert [line["name"] for line in alone["errors"]][:1] == ["ensemble"] and alone["errors"][
            0
        ]["r2"] < 1
        fitted = json.loads(
            olsen("fit", *arguments, "--compare", "--report", page, "--force", "--json")[1]
        )["errors"]
        compared = json.loads(olsen("compare", *arguments, "--json")[1])["models"]
        with case(arguments):
            for key in ("name", "rmse", "r2"):
                assert [line[key] for line in fitted] == [line[key] for line in compared]
            rows = (
                page.read_text(encoding="utf-8")
                .partition("Error of prediction")[2]
                .partition("</table>")[0]
            )
            places = [
                rows.find(f">{number:.4g}<") for number in (line["rmse"] for line in compared)
            ]
            assert min(places) > 0


# show


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Six columns of which two matter, and a text."""
    folder = tmp_path_factory.mktemp("show")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    y = 3 * X[:, 0] - 2 * X[:, 3] + 0.3 * rng.standard_normal(len(X))
    rows = (
        ",".join([*map(repr, row.tolist()), "north" if i % 2 else "south", repr(float(t))])
        for i, (row, t) in enumerate(zip(X, y, strict=True))
    )
    (folder / "data.csv").write_text("\n".join(["a,b,c,d,e," + "long" * 100 + ",place,y", *rows]))
    path = folder / "model.skops"
    assert (
        cli.main(
            [
                "fit",
                str(folder / "data.csv"),
                "--target",
                "y",
                "--members",
                "50",
                "--out",
                str(path),
            ]
        )
        == 0
    )
    return path


def test_show_tells_what_the_estimator_holds(olsen, model):
    code, out, err = olsen("show", model, "--json")
    found, pipeline = json.loads(out), load(model)
    estimator, names = pipeline[-1], pipeline[:-1].get_feature_names_out()
    assert (code, err) == (0, "")
    assert found["target"] == "y" and found["rows"] == 90
    assert (
        found["columns"]["table"] == 7
        and found["columns"]["encoded"] == 8
        and found["columns"]["dates"] == []
    )
    assert found["columns"]["text"] == [{"name": "place", "categories": 2}]
    assert found["members"]["number"] == 50
    assert found["members"]["mean_columns"] == pytest.approx(
        np.mean([len(s) for s in estimator.feature_subsets_])
    )
    assert found["schemes"] == estimator.scheme_weights_
    kept = {column["name"]: column["frequency"] for column in found["kept"]}
    chosen = np.flatnonzero(estimator.selected_)
    assert kept == {names[j]: estimator.selection_frequency_[j] for j in chosen} and {
        "a",
        "d",
    } <= set(kept)
    assert found["error"]["rmse"] == pytest.approx(math.sqrt(-estimator.best_score_))
    assert [c["name"] for c in found["effects"][:2]] == ["a", "d"]
    spread = np.genfromtxt(model.with_name("data.csv"), delimiter=",", skip_header=1)[:, 0].std()
    assert found["effects"][0]["effect"] == pytest.approx(estimator.coef_[0] * spread)
    effects = summary(pipeline).effects
    assert [c["name"] for c in found["effects"]] == list(effects["column"]), (
        "whole factors, as olsen.summary has them"
    )
    np.testing.assert_allclose(
        [c["effect"] for c in found["effects"]], effects["effect"], rtol=1e-9
    )
    assert found["effects"][[c["name"] for c in found["effects"]].index("place")]["features"] == 2
    assert found["file"]["olsen"] == __version__ and found["file"]["bytes"] == model.stat().st_size
    code, out, _ = olsen("show", model)
    assert (
        code == 0
        and "a model of y" in out
        and "90 rows, 7 columns, 1 of text" in out
        and "±" in out
    )
    assert "a sparse model keeps" in out and "k-fold cross-validation" in out
    lines = out.partition("largest effects")[2].splitlines()
    assert all(len(line) < 80 for line in lines if line.startswith("  "))


def test_show_of_the_ensemble_of_the_paper(olsen, model, tmp_path):
    """It has a size, and neither schemes nor a sparse model."""
    path = tmp_path / "m.skops"
    fit = (
        "fit",
        model.with_name("data.csv"),
        "--target",
        "y",
        "--model",
        "ensemble",
        "--members",
        "50",
    )
    assert olsen(*fit, "--out", path)[0] == 0
    found, estimator = json.loads(olsen("show", path, "--json")[1]), load(path)[-1]
    assert found["schemes"] is None and found["kept"] is None and found["members"]["number"] == 50
    assert found["members"]["mean_columns"] == pytest.approx(estimator.max_features_)
    assert found["error"]["rmse"] == pytest.approx(math.sqrt(-estimator.best_score_))
    code, out, _ = olsen("show", path)
    assert (
        code == 0
        and "leave-one-out" in out
        and "sampling schemes" not in out
        and "a sparse model" not in out
    )


def test_without_training_rows_coefficients_rank(olsen, model, tmp_path):
    fit = ("fit", model.with_name("data.csv"), "--target", "y", "--members", "50", "--no-intervals")
    assert olsen(*fit, "--out", tmp_path / "m.skops")[0] == 0
    found = json.loads(olsen("show", tmp_path / "m.skops", "--json")[1])["effects"]
    coef = np.abs(load(tmp_path / "m.skops")[-1].coef_)
    sizes = dict(zip([*"abcde", "long" * 100, "place"], [*coef[:6], coef[6:].max()], strict=True))
    assert [line["name"] for line in found] == sorted(sizes, key=lambda name: -sizes[name])
    assert not any(line["effect"] for line in found)
