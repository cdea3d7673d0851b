"""Models compared on folds, against scikit-learn on the same folds; and what is shown of a model file."""

import json
import math

import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ElasticNetCV, LassoCV, LinearRegression, RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, RepeatedKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from olsen import OLSEnsembleRegressorCV, cli, load
from olsen.datasets import load_soil_carbon

pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

from olsen.cli import compare, recognition, show
from olsen.cli.tables import TableError

DESCENT = {"alphas": 60, "max_iter": 1000, "tol": 1e-3}
BY_HAND = {
    "ensemble": OLSEnsembleRegressorCV(random_state=3),
    "ridge": RidgeCV(np.logspace(-4, 6, 60)),
    "lasso": LassoCV(**DESCENT),
    "elastic net": ElasticNetCV(l1_ratio=[0.2, 0.5, 0.8], **DESCENT),
    "PLS": GridSearchCV(PLSRegression(scale=False), {"n_components": range(1, 11)}, scoring="neg_mean_squared_error"),
    "least squares": LinearRegression(),
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


@pytest.mark.parametrize("name", BY_HAND)
def test_errors_are_those_of_scikit_learn_on_the_same_folds(diabetes, name):
    X, y, found = diabetes
    cv = RepeatedKFold(n_splits=4, n_repeats=1, random_state=3)
    scores = cross_validate(
        make_pipeline(StandardScaler(), BY_HAND[name]), X, y, cv=cv, scoring=("r2", "neg_root_mean_squared_error")
    )
    line = named(found)[name]
    assert line["folds"]["rmse"] == pytest.approx(-scores["test_neg_root_mean_squared_error"], rel=1e-10)
    assert line["folds"]["r2"] == pytest.approx(scores["test_r2"], abs=1e-10)
    assert line["rmse"] == pytest.approx(np.mean(line["folds"]["rmse"]))
    assert line["r2"] == pytest.approx(np.mean(line["folds"]["r2"]))
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
            larger = math.sqrt(1 + 4 * np.mean([len(t) / (n - len(t)) for _, t in KFold(4).split(X)]))
            assert lines[name][f"{key}_standard_error"] == pytest.approx(plain * larger)


def test_one_model_is_the_best(diabetes):
    lines = diabetes[2]["models"]
    best = [line for line in lines if line["best"]]
    assert len(best) == 1 and best[0]["rmse"] == min(line["rmse"] for line in lines)
    assert diabetes[2]["best"] == best[0]["name"]


def test_repeats_and_seeds_make_other_folds_and_threads_change_nothing():
    X, y = problem(n=40, p=3)
    once, twice = (compare.run(X, y, folds=3, repeats=r, seed=1, jobs=1) for r in (1, 2))
    other = compare.run(X, y, folds=3, seed=2, jobs=1)
    threads = compare.run(X, y, folds=3, seed=1, jobs=2)
    for name, line in named(once).items():
        values = line["folds"]["rmse"]
        assert named(twice)[name]["folds"]["rmse"][:3] == values and len(named(twice)[name]["folds"]["rmse"]) == 6
        assert named(other)[name]["folds"]["rmse"] != values
        assert named(threads)[name]["folds"]["rmse"] == pytest.approx(values, rel=1e-9)


def test_words_follow_the_numbers(seed):
    """With three columns for four training rows, and much noise, least squares has twice the error."""
    found = compare.run(*problem(n=200, p=120, noise=20.0, seed=seed), seed=seed, jobs=1)
    level, _, worse = found["verdict"].partition("Worse than the ensemble by more than 2 standard errors: ")
    assert "least squares" in worse
    for name, line in named(found).items():
        if name != "ensemble" and line["rmse_difference"] > 0:
            within = line["rmse_difference"] <= 2 * line["rmse_standard_error"]
            assert (name in level.partition("apart from it: ")[2]) == within and (name in worse) == (not within)


def test_a_model_that_did_not_converge_is_named():
    soil = load_soil_carbon()  # neighbouring columns of spectra are nearly the same
    found = compare.run(soil.data[:60, ::20], soil.target[:60], folds=2, jobs=1)
    assert any(note.startswith("lasso had not converged in") for note in found["notes"])


def test_a_model_that_fails_is_left_out_and_named(tmp_path, olsen):
    """Partial least squares has no component of columns that do not vary."""
    path = write(tmp_path / "flat.csv", np.ones((20, 2)), problem(n=20)[1])
    arguments = ("compare", path, "--target", "y", "--folds", "2", "--jobs", "1", "--report", tmp_path / "r.html")
    code, out, _ = olsen(*arguments, "--json")
    found = json.loads(out)
    assert code == 0 and "PLS could not be fitted in 2 of 2 folds." in found["notes"]
    line = named(found)["PLS"]
    assert line["rmse"] is None and line["rmse_difference"] is None and line["seconds"] is None
    assert "PLS" not in found["verdict"] and named(found)["ridge"]["rmse"] > 0
    assert "nan" not in olsen(*arguments)[1]


def test_progress_is_told_from_nothing_to_everything():
    told = []
    compare.run(*problem(n=20, p=2), folds=2, jobs=1, tell=lambda *what: told.append(what))
    assert told == [("comparing", done, 6) for done in range(7)]


@pytest.mark.parametrize(
    ("y", "folds", "words"),
    [
        (np.arange(9.0), 2, "9 rows are too few for 2 folds: 10 are needed"),
        (np.arange(30.0), 16, "30 rows are too few for 16 folds: 32 are needed"),
        (np.ones(30), 5, "the target is the same in all rows"),
        (1e200 * np.random.default_rng(0).standard_normal(30), 5, "divide it"),
        (1e-200 * np.random.default_rng(0).standard_normal(30), 5, "multiply it"),
    ],
)
def test_what_cannot_be_compared_is_refused(y, folds, words):
    X = np.random.default_rng(1).standard_normal((len(y), 2))
    with pytest.raises(TableError, match=words):
        compare.run(X, y, folds=folds, jobs=1)


# through the door


def test_the_table_and_the_json_say_the_same(olsen, table):
    arguments = ("compare", table, "--target", "y", "--folds", "3", "--jobs", "1")
    code, text, err = olsen(*arguments)
    assert (code, err) == (0, ""), "no progress in a pipe"
    assert "data.csv: 60 rows, 5 columns, target y" in text and "3 random folds, seed 0" in text
    code, out, _ = olsen(*arguments, "--json")
    found = json.loads(out)
    assert code == 0 and found["data"]["rows"] == 60 and found["written"] == []
    for line in found["models"]:
        shown = next(row for row in text.splitlines() if row[2:].startswith(line["name"]))
        assert f"{line['rmse']:.4g}" in shown and f"{line['r2']:.3f}" in shown
        assert shown.startswith("*") == line["best"]
    assert " ".join(text.split()).find(found["verdict"]) > 0


def test_a_page_is_written_and_looked_at_first(olsen, table, tmp_path):
    page = tmp_path / "page.html"
    arguments = ("compare", table, "--target", "y", "--folds", "2", "--jobs", "1", "--report", page)
    page.write_text("mine")
    assert olsen(*arguments)[0] == 2 and page.read_text() == "mine"
    code, out, _ = olsen(*arguments, "--force")
    html = page.read_text(encoding="utf-8")
    assert code == 0 and out.rstrip().endswith(f"written: {page}") and recognition.is_report(page)
    assert all(f">{name}<" in html for name in ("ensemble", "ridge", "lasso", "elastic net", "PLS", "least squares"))
    assert "http:" not in html and "https:" not in html and html.count('class="whisker"') == 5
    assert olsen(*arguments)[0] == 0, "one of ours is replaced"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "y", "--folds", "1"), "--folds 1"),
        (("--target", "y", "--repeats", "0"), "--repeats 0"),
        (("--target", "y", "--seed", "-1"), "--seed -1"),
        (("--target", "y", "--jobs", "0"), "--jobs 0"),
        ((), "--target is needed"),
        (("--target", "z"), "'z'"),
        (("--target", "y", "--report", "page.pdf"), ".html or .htm"),
    ],
)
def test_mistakes_are_named(olsen, table, arguments, words):
    code, out, err = olsen("compare", table, *arguments)
    assert code == 2 and not out and words in err and err.count("\n") == 1


def test_names_of_others_stay_harmless(olsen, tmp_path):
    X, y = problem(n=20, p=2)
    path = write(tmp_path / "odd.csv", X, y, ["<script>alert(1)</script>", "b"])
    code, _, _ = olsen("compare", path, "--target", "<script>alert(1)</script>", "--folds", "2", "--jobs", "1",
                         "--report", tmp_path / "r.html")  # fmt: skip
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert code == 0 and "alert(1)" in html and "<script>alert" not in html


# show


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Six columns of which two matter, and a text."""
    folder = tmp_path_factory.mktemp("show")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    y = 3 * X[:, 0] - 2 * X[:, 3] + 0.3 * rng.standard_normal(len(X))
    rows = (",".join([*map(repr, row.tolist()), "north" if i % 2 else "south", repr(float(t))])
            for i, (row, t) in enumerate(zip(X, y, strict=True)))  # fmt: skip
    (folder / "data.csv").write_text("\n".join(["a,b,c,d,e," + "long" * 100 + ",place,y", *rows]))
    path = folder / "model.skops"
    assert cli.main(["fit", str(folder / "data.csv"), "--target", "y", "--members", "50", "--out", str(path)]) == 0
    return path


def test_show_tells_what_the_estimator_holds(olsen, model):
    code, out, err = olsen("show", model, "--json")
    found, pipeline = json.loads(out), load(model)
    estimator, names = pipeline[-1], pipeline[:-1].get_feature_names_out()
    assert (code, err) == (0, "")
    assert found["target"] == "y" and found["rows"] == 90
    assert found["columns"]["table"] == 7 and found["columns"]["encoded"] == 7 and found["columns"]["numbers"] == 6
    assert found["columns"]["text"] == [{"name": "place", "categories": 2}]
    assert found["members"]["number"] == 50
    assert found["members"]["mean_columns"] == pytest.approx(np.mean([len(s) for s in estimator.feature_subsets_]))
    assert found["laws"] == estimator.inclusion_shares_
    kept = {column["name"]: column["frequency"] for column in found["kept"]}
    chosen = np.flatnonzero(estimator.selected_)
    assert kept == {names[j]: estimator.selection_frequency_[j] for j in chosen} and {"a", "d"} <= set(kept)
    assert found["error"]["rmse"] == pytest.approx(math.sqrt(-estimator.best_score_))
    assert [c["name"] for c in found["coefficients"][:2]] == ["a", "d"]
    assert found["file"]["olsen"] == cli.commands.__version__ and found["file"]["bytes"] == model.stat().st_size


def test_show_for_people_fits_a_screen(olsen, model):
    code, out, _ = olsen("show", model)
    assert code == 0 and "a model of y" in out and "90 rows, 7 columns: 6 of numbers, 1 of text" in out
    assert "a sparse model would keep" in out and "±" in out
    assert all(
        len(line) < 60 for line in out.partition("largest coefficients")[2].splitlines() if line.startswith("  ")
    )


def test_show_reads_a_model_that_was_not_tuned(tmp_path):
    from olsen import OLSEnsembleRegressor, save

    X, y = problem()
    ensemble = OLSEnsembleRegressor(10, max_features=2, random_state=0).fit(X, y)
    save(ensemble, tmp_path / "m.skops")
    found = show.contents(tmp_path / "m.skops")
    assert found["laws"] is None and found["kept"] is None
    assert found["error"]["rmse"] == pytest.approx(math.sqrt(np.mean((y - ensemble.predict(X)) ** 2)), rel=0.3)
    assert "10 of 2 of 5 columns (40%)" in show.as_text(found)


def test_show_refuses_what_is_no_model(olsen, table, tmp_path):
    for path in (table, tmp_path / "none.skops"):
        code, out, err = olsen("show", path)
        assert code == 1 and not out and err.startswith("olsen: ") and err.count("\n") == 1


def test_tables_are_read_as_for_a_fit(olsen, tmp_path):
    """Dates, missing cells and groups: whole groups are left out, so that what names them does not help."""
    rng = np.random.default_rng(0)
    lines = ["a,day,group,row,y"]
    for i in range(60):
        a = rng.standard_normal()
        lines.append(f"{'' if i == 7 else a},2024-01-{1 + i % 28:02d},{i // 6},r{i},{a + 0.1 * rng.standard_normal()}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    options = ("--missing", "mean", "--dates", "day", "--id", "row", "--groups", "group")
    code, out, err = olsen("compare", tmp_path / "t.csv", "--target", "y", *options, "--folds", 3, "--json")
    assert code == 0, err
    assert json.loads(out)["data"]["columns"] == 3
    code, _, err = olsen("compare", tmp_path / "t.csv", "--target", "y", *options, "--folds", 11)
    assert code == 1 and "10 groups" in err
