"""The report of a fit: its numbers are those of the model, and its charts can be read off."""

import base64
import hashlib
import re
import unicodedata
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GroupKFold, LeaveOneOut

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV, report

pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

from olsen._estimators.effects import Effects, Feature, errors_are_cheap
from olsen._report import charts, pages
from olsen._report import summary as summaries
from olsen._report.formatting import number, percent, size_of

VOID = {"meta", "link", "input", "br"}


def problem(n=60, p=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * np.arange(1, p + 1)
    return X, X[:, 0] - X[:, -1] + 0.5 * rng.standard_normal(n)


def summary_of(X, y, names=None, target="y", Model=AdaptiveOLSEnsembleRegressor, **parameters):
    model = Model(**{"n_estimators": 40, "random_state": 0, "n_jobs": 1, **parameters}).fit(X, y)
    names = names or [f"x{j}" for j in range(X.shape[1])]
    effects = Effects(model, [Feature(name, name) for name in names], errors_are_cheap(model))
    facts = {
        "data_name": "t.csv",
        "target": target,
        "messages": [],
        "seed": 0,
        "command": "olsen fit",
    }
    return model, summaries.summarise(model, X, y, effects, **facts)


class Page(HTMLParser):
    """Elements of a page by name, which must be closed in their order."""

    def __init__(self, html):
        super().__init__()
        self.open = []
        self.elements = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def figure(html, name):
    return html.split(f'<figure id="{name}">')[1].split("</figure>")[0]


def polylines(html, style):
    texts = re.findall(rf'<polyline class="{style}" points="([^"]*)"', html)
    return [np.array([pair.split(",") for pair in text.split()], dtype=float) for text in texts]


# Text


def test_the_size_of_members_agrees_with_how_often_columns_are_drawn():
    X, y = problem()
    model, summary = summary_of(X, y)
    mean = np.mean([len(columns) for columns in model.feature_subsets_])
    assert summary["model"]["mean_columns_per_member"] == pytest.approx(mean)
    assert size_of(summary["model"]["mean_columns_per_member"], 6) in summaries.as_text(summary)
    drawn = [c["drawn"] for c in summary["effects"]]
    assert ("all 6\n" in summaries.as_text(summary)) == (min(drawn) == 1)


def test_names_of_any_length_and_width_keep_the_lines_in_order():
    X, y = problem()
    text = summaries.as_text(summary_of(X, y, ["n" * 500, *"bcdef"], target="t" * 500)[1])
    assert max(map(len, text.splitlines())) <= 120 and "n…n" in text
    text = summaries.as_text(summary_of(X, y, ["\u6e29\u5ea6", *"bcdef"])[1])
    rows = text.split("drawn\n")[1].splitlines()[:-1]
    widths = {sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in row) for row in rows}
    assert len(rows) == 6 and len(widths) == 1
    X, y = problem(p=1)
    summary = summary_of(X, y + X[:, 0])[1]
    assert "1 column," in summaries.as_text(summary) and "1 columns" not in summaries.as_text(
        summary
    )
    assert "from 1 column<" in pages.render(summary)


def test_the_report_names_the_kind_of_cross_validation():
    X, y = problem()
    model, summary = summary_of(X, y)
    assert model.criterion_ == "kfold" and "k-fold" in summary["errors"][0]["note"]
    assert summary["errors"][0]["note"] in pages.render(summary)
    for cv, note in (
        (None, "leave-one-out"),
        ("gcv", "generalised cross-validation"),
        (3, "k-fold cross-validation"),
    ):
        assert summary_of(X, y, Model=OLSEnsembleRegressorCV, cv=cv)[1]["errors"][0]["note"] == note


# standard errors


def test_standard_errors_of_effects_are_those_of_the_coefficients():
    X, y = problem(n=80, p=4)
    X[:, 2] = 3.0
    model, summary = summary_of(X, y)
    errors = model.coef_std() * X.std(axis=0)
    std_by_name = {c["name"]: c["standard_error"] for c in summary["effects"]}
    assert "x2" not in std_by_name, "a constant column has no effect"
    for name, error in std_by_name.items():
        assert error == pytest.approx(errors[int(name[1:])], rel=1e-9)
    assert figure(pages.render(summary), "effects").count('class="whisker"') == 3


def test_expensive_standard_errors_are_left_out(monkeypatch):
    monkeypatch.setattr("olsen._estimators.effects.MAX_OPERATIONS", 1)
    summary = summary_of(*problem())[1]
    html = figure(pages.render(summary), "effects")
    assert all(column["standard_error"] is None for column in summary["effects"])
    assert "whisker" not in html and "Standard errors are left out" in html
    assert "s.e." not in summaries.as_text(summary)


# Charts


def test_ticks_have_as_many_decimals_as_each_other():
    for limits in (
        (0.83, 1.04),
        (0, 1),
        (-3, 12),
        (1e-7, 9e-7),
        (-5e7, 4e7),
        (0.999, 1.002),
        (2, 2.1),
    ):
        ticks = charts.linear_ticks(*limits)
        decimals = {len(text.partition("e")[0].partition(".")[2]) for value, text in ticks if value}
        with case(limits, ticks):
            assert 3 <= len(ticks) <= 9 and len(decimals) == 1
            for value, text in ticks:
                number = float(text.replace("\N{MINUS SIGN}", "-"))
                assert number == pytest.approx(value, rel=1e-9, abs=1e-12 * abs(limits[1]))
                assert limits[0] <= value <= limits[1]


def test_the_farthest_training_rows_are_named():
    X, y = problem()
    X = X.copy()
    X[17] *= 20
    model, summary = summary_of(X, y)
    far = summary["far_rows"]
    leverage = model.leverage(X)
    assert far["row"][0] == "18" and len(far["row"]) == 5
    assert_allclose(far["leverage"], np.sort(leverage)[:-6:-1] / leverage.mean())
    assert "row 18" in pages.render(summary)


@pytest.fixture(scope="module")
def summary_with_a_curve():
    return summary_of(*problem(), Model=OLSEnsembleRegressorCV)[1]


def curve_figure(summary, rmse, standard_error=0.01):
    n = len(rmse)
    curve = {
        "size": list(range(1, n + 1)),
        "rmse": rmse,
        "rmse_infinite": rmse,
        "chosen": 1,
        "standard_error": [standard_error] * n,
    }
    return figure(pages.render({**summary, "curve": curve}), "curve")


@pytest.mark.parametrize("largest", [9.0, 40.0, 5000.0])
def test_the_curve_rises_and_falls_with_the_error(largest, summary_with_a_curve):
    rmse = [1.0, 2.0, largest, 4.0]
    html = curve_figure(summary_with_a_curve, rmse)
    (line,) = polylines(html, "first")
    assert np.all(np.diff(line[:, 1]) * np.diff(rmse) < 0)
    assert ("5e+03" in html) == (largest > 100), "a value that leaves the frame is named"


def test_the_curve_has_a_gap_where_the_error_is_infinite(summary_with_a_curve):
    html = curve_figure(summary_with_a_curve, [1.0, 2.0, np.inf, 4.0, 3.0])
    assert [len(line) for line in polylines(html, "first")] == [2, 2]
    assert "In the gap it is infinite." in html


def test_the_band_of_the_curve_stays_in_its_frame(summary_with_a_curve):
    html = curve_figure(summary_with_a_curve, [1.0, 1.1, 1.2], standard_error=0.5)
    band = re.search(r'<polygon class="band" points="([^"]*)"', html)[1]
    ys = [float(pair.split(",")[1]) for pair in band.split()]
    assert min(ys) >= charts.FRAME.top and max(ys) <= charts.FRAME.bottom


def test_schemes_are_shown_with_their_weights_and_errors():
    model, summary = summary_of(*load_diabetes(return_X_y=True))
    assert len(model.scheme_weights_) > 1 and summary["curve"] is None
    html = pages.render(summary)
    assert '<figure id="curve">' not in html
    cell = '<td class="number">([^<]+)</td>'
    rows = re.findall(rf"<td>(\w+)</td>{cell}{cell}", figure(html, "schemes"))
    results = model.cv_results_
    *names, last = results["param_scheme"]
    assert last == "mixture" and {name for name, *_ in rows} == set(names)
    cells = {name: (weight, error) for name, weight, error in rows}
    for name, score in zip(names, results["mean_test_score"], strict=False):
        weight = model.scheme_weights_.get(name, 0.0)
        assert cells[name] == (escape(percent(weight)), escape(number(np.sqrt(-score))))
    weights = [model.scheme_weights_.get(name, 0.0) for name, *_ in rows]
    assert weights == sorted(weights, reverse=True)
    assert f"{number(np.sqrt(-model.best_score_))} ±" in figure(html, "schemes")


def test_the_ensemble_of_the_paper_has_a_curve_and_no_schemes():
    model, summary = summary_of(*load_diabetes(return_X_y=True), Model=OLSEnsembleRegressorCV)
    html = pages.render(summary)
    (line,) = polylines(figure(html, "curve"), "first")
    assert (
        len(line) == len(summary["curve"]["size"]) == len(model.cv_results_["param_max_features"])
    )
    assert '<figure id="schemes">' not in html and "leave-one-out" in figure(html, "curve")
    assert f"{model.max_features_:.4g} chosen" in figure(html, "curve")


@pytest.mark.parametrize(
    ("names", "label"),
    [
        ([f"{w} cm-1" for w in range(400, 440)], "cm-1"),
        ([f"{w}" for w in np.arange(4000.5, 3960, -1)][:40], "name of the column"),
        ([f"x{j}" for j in range(40)], None),
        ([f"{w} nm" for w in range(400, 420)] + [f"col{chr(97 + j)}" for j in range(20)], None),
    ],
    ids=["unit", "numbers", "counted", "mixed"],
)
def test_columns_that_are_a_scale_have_a_profile(names, label):
    model, summary = summary_of(*problem(n=50, p=40), names)
    html = pages.render(summary)
    assert ('<figure id="profile">' in html) == (label is not None)
    if label is not None:
        profile = figure(html, "profile")
        (line,) = polylines(profile, "first")
        assert f">{label}</text>" in profile and len(line) == 40
        correlation = np.corrcoef(line[:, 1], np.ravel(model.coef_))[0, 1]
        assert correlation == pytest.approx(-1, abs=1e-3)


# The page


LONG_NAMES = [
    "W" * 80,
    "\u6e29" * 60,
    "<b>" * 30,
    "concentration_of_something_measured_in_spring",
    "e",
    "f",
]


def test_the_page_is_well_formed_and_needs_nothing_else():
    html = pages.render(summary_of(*problem(), names=LONG_NAMES)[1])
    page = Page(html)
    assert "http:" not in html and "https:" not in html and "url(" not in html.replace("url(#", "")
    assert len(page.all("script")) == 1 and not page.all("img") and not page.all("b")
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [
        meta["content"]
        for meta in page.all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    assert f"script-src 'sha256-{digest}'" in policy.split("; "), "this script and no other"
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_names_are_shortened_and_columns_ordered_by_their_effects():
    model, summary = summary_of(*problem(), names=LONG_NAMES)
    html = pages.render(summary)
    pattern = r'text-anchor="end"><title>([^<]*)</title>([^<]*)</text>'
    labels = re.findall(pattern, figure(html, "effects"))
    assert {unescape(name) for name, _ in labels} == set(LONG_NAMES)
    for name, label in ((unescape(name), unescape(label)) for name, label in labels):
        assert len(label) < 30 and (label == name or "…" in label)
    listed = [row["data-name"] for row in Page(html).all("tr") if "data-name" in row]
    effects = np.abs(np.ravel(model.coef_) * problem()[0].std(axis=0))
    assert listed == [LONG_NAMES[j] for j in np.argsort(-effects, kind="stable")]


def test_columns_with_the_smallest_effects_are_left_out(monkeypatch):
    monkeypatch.setattr(summaries, "MOST_COLUMNS", 4)
    summary = summary_of(*problem())[1]
    largest = {column["name"] for column in summary["effects"][:4]}
    assert largest == set(summary["columns"]["name"])
    assert "The 2 columns with the smallest effects are left out." in pages.render(summary)


@pytest.mark.parametrize(
    ("option", "splitter"),
    [("groups", GroupKFold(5)), ("drop", LeaveOneOut())],
    ids=["groups", "rows"],
)
def test_r2_compares_with_the_mean_on_held_out_rows(olsen_json, tmp_path, option, splitter):
    """scikit-learn's mean has the weights and the groups of the fit."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 4))
    y = X @ [1.0, 2, 0, -1] + rng.standard_normal(60)
    weights = rng.integers(0, 4, 60).astype(float)
    table = np.column_stack([X, y, weights, np.arange(60) % 7])
    np.savetxt(tmp_path / "t.csv", table, delimiter=",", header="a,b,c,d,y,w,g", comments="")
    options = {"target": "y", "members": 20, "weight": "w", option: "g"}
    (error,) = olsen_json("fit", tmp_path / "t.csv", **options)["errors"]
    table = table[weights > 0]
    y, weights, groups = table[:, 4:].T
    squares = np.full(len(y), np.nan)
    for train, test in splitter.split(table, y, groups):
        mean = np.average(y[train], weights=weights[train])
        squares[test] = (y[test] - mean) ** 2
    expected = 1 - error["rmse"] ** 2 / np.average(squares, weights=weights)
    assert error["r2"] == pytest.approx(expected, rel=1e-9)
    assert ("'g'" in error["note"]) == (option == "groups")


@pytest.fixture(scope="module")
def orders():
    """Orders with an identifier, categories, gaps, a row without a target and one wild target."""
    rng = np.random.default_rng(0)
    n = 90
    kg, km = rng.gamma(3, 2, n), rng.uniform(5, 900, n)
    ship = rng.choice(["economy", "express", "standard"], n)
    fee = 5 + 1.2 * kg + 0.01 * km + 7.45 * (ship == "express") + rng.normal(0, 0.3, n)
    fee[50] += 20
    cells = [f"o{100 + i},{kg[i]:.2f},{km[i]:.1f},{ship[i]},{fee[i]:.2f}" for i in range(n)]
    for i in range(12):
        cells[5 * i] = f"o{100 + 5 * i},{kg[5 * i]:.2f},,{ship[5 * i]},{fee[5 * i]:.2f}"
    cells[1] = f"o101,{kg[1]:.2f},{km[1]:.1f},{ship[1]},"
    return "\n".join(["id,kg,km,ship,fee", *cells]) + "\n"


def test_a_person_can_use_the_report_of_a_table(orders, olsen_json, tmp_path):
    (tmp_path / "t.csv").write_text(orders)
    page = tmp_path / "r.html"
    options = {"target": "fee", "missing": "mean", "report": page}
    summary = olsen_json("fit", tmp_path / "t.csv", id="id", **options)
    html = page.read_text(encoding="utf-8")
    example = summary["example"]
    total = example["mean_prediction"] + sum(part["part"] for part in example["parts"])
    assert example["row"] == "o100" and total == pytest.approx(example["prediction"])
    assert ("km", "missing") in [(part["name"], part["value"]) for part in example["parts"]]
    assert example["lower"] < example["prediction"] < example["upper"]
    assert "One prediction" in html and "km: missing" in html
    assert summary["largest_residuals"][0]["row"] == "o150" and "rows o150 (+" in html
    (ship,) = [effect for effect in summary["effects"] if effect["name"] == "ship"]
    assert ship["levels"][0]["name"] == "express"
    assert abs(ship["difference"] - 7.45) < 4 * ship["difference_standard_error"] < 4
    levels = figure(html, "levels")
    assert "ship: express" in levels and f"{ship['difference']:+.3g}" in levels
    table = html.partition('id="columns"')[2]
    assert "km is missing" in table and "ship: economy" in table and "± s.e." in table
    assert "missingindicator" not in html and "ship_economy" not in html
    assert html.index('id="effects"') < html.index('id="schemes"') < html.index("<li>")
    gap_notes = [note for note in summary["data"]["messages"] if "filled" in note]
    assert len(gap_notes) == 1 and gap_notes[0].count("'km'") == 1
    numbered = olsen_json("fit", tmp_path / "t.csv", drop="id", force=True, **options)
    assert numbered["largest_residuals"][0]["row"] == "51", "rows left out are counted"


def test_what_qualifies_the_error_stands_beside_it_and_notes_come_last(
    orders, olsen_json, tmp_path
):
    few = "\n".join(orders.splitlines()[3:23])
    (tmp_path / "t.csv").write_text(f"id,kg,km,ship,fee\n{few}\n")
    page = tmp_path / "r.html"
    options = {"id": "id", "missing": "mean", "report": page}
    data = olsen_json("fit", tmp_path / "t.csv", target="fee", **options)["data"]
    html = page.read_text(encoding="utf-8")
    assert "20 rows are few" in data["cautions"][0]
    assert html.index("20 rows are few") < html.index('id="effects"') < html.index("<li>column")


def test_a_model_without_signal_has_a_page():
    X = np.random.default_rng(0).standard_normal((60, 3))
    with pytest.warns(UserWarning, match="constant"):
        summary = summary_of(X, np.full(60, 2.0), n_estimators=np.inf)[1]
    assert summary["effects"] == [] and summary["errors"][0]["r2"] is None
    assert "No column has an effect." in pages.render(summary)
    assert "No column has an effect" in summaries.as_text(summary)


def test_the_page_of_a_transformed_target_says_so(tmp_path):
    X, y = problem()
    y = np.exp(y / 4)
    model = TransformedTargetRegressor(
        AdaptiveOLSEnsembleRegressor(), func=np.log, inverse_func=np.exp
    ).fit(X, y)
    report(model, tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    expected = np.sqrt(np.mean((y - np.exp(model.regressor_.cv_prediction_)) ** 2))
    assert "transformed y from 6 columns" in html and f"units of y: {expected:.4g} (" in html


@pytest.mark.parametrize("schemes", [["ridge"], ["uniform", "ridge"], ["uniform"]], ids=str)
def test_the_page_of_infinitely_many_members_has_no_curve_and_says_what_is_drawn(schemes):
    """A curve over the sizes of uniform members would not be the error of the model."""
    model, summary = summary_of(*problem(), schemes=schemes, n_estimators=np.inf)
    html = pages.render(summary)
    weight = model.scheme_weights_.get("uniform", 0.0)
    assert '<figure id="curve">' not in html and ("are drawn" in html) == (weight > 0)
    assert summary["model"]["drawn"] == (max(100, round(1000 * weight)) if weight else 0)


def test_an_error_beyond_the_frame_is_an_arrow_with_its_number():
    rows = [charts.Row(f"model {v}", v, 0.1, labels=(f"{v}",)) for v in (4.0, 4.5, 10.01)]
    svg = charts.row_chart("Errors", rows, "error", origin=4.0, max_value=6.0)
    page = Page(svg)
    circles = [float(circle["cx"]) for circle in page.all("circle")]
    tips = [line["points"].split()[1].split(",")[0] for line in page.all("polygon")]
    whiskers = [line for line in page.all("line") if line.get("class") == "whisker"]
    assert len(circles) == 2 and len(tips) == 1 and len(whiskers) == 2
    assert max(circles) < float(tips[0]) < charts.WIDTH - 60 and "model 10.01: 10.01" in svg
