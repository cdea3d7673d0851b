"""The report of a fit: what it says is so, and what it draws can be read off."""

import base64
import hashlib
import json
import re
import unicodedata
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import GroupKFold, LeaveOneOut

from loops import case
from olsen import AdaptiveOLSEnsembleRegressor, OLSEnsembleRegressorCV

pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pytest.importorskip("skops")

from olsen._estimators.summary import Effects, Feature, errors_are_cheap
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
    about = {
        "data_name": "t.csv",
        "target": target,
        "messages": [],
        "seed": 0,
        "command": "olsen fit",
    }
    return model, summaries.summarise(model, X, y, effects, **about)


class Page(HTMLParser):
    """Elements of a page by name; raises if they are not closed in their order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.found = [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def figure(html, name):
    return html.split(f'<figure id="{name}">')[1].split("</figure>")[0]


def polylines(html, style):
    texts = re.findall(rf'<polyline class="{style}" points="([^"]*)"', html)
    return [np.array([pair.split(",") for pair in text.split()], dtype=float) for text in texts]


# words


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


def test_folds_are_not_passed_off_as_single_rows():
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


def test_standard_errors_of_effects_are_those_of_the_coefficients(monkeypatch):
    X, y = problem(n=80, p=4)
    X[:, 2] = 3.0
    model, summary = summary_of(X, y)
    errors = model.coef_std() * X.std(axis=0)
    found = {c["name"]: c["standard_error"] for c in summary["effects"]}
    assert found.pop("x2") is None, "a constant column has none"
    for name, error in found.items():
        assert error == pytest.approx(errors[int(name[1:])], rel=1e-9)
    assert figure(pages.render(summary), "effects").count('class="whisker"') == 3
    monkeypatch.setattr("olsen._estimators.summary.MAX_OPERATIONS", 1)
    summary = summary_of(X, y)[1]
    html = figure(pages.render(summary), "effects")
    assert all(c["standard_error"] is None for c in summary["effects"])
    assert (
        "whisker" not in html
        and "Standard errors are left out" in html
        and "s.e." not in summaries.as_text(summary)
    )


# charts


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
                shown = float(text.replace("\N{MINUS SIGN}", "-"))
                assert shown == pytest.approx(value, rel=1e-9, abs=1e-12 * abs(limits[1]))
                assert limits[0] <= value <= limits[1]


def test_the_curve_is_not_flat_where_the_error_is_not():
    _, summary = summary_of(*problem(), Model=OLSEnsembleRegressorCV)

    def curve(rmse, standard_error=0.01):
        n = len(rmse)
        made = {
            "size": list(range(1, n + 1)),
            "rmse": rmse,
            "rmse_infinite": rmse,
            "chosen": 1,
            "standard_error": [standard_error] * n,
        }
        return figure(pages.render({**summary, "curve": made}), "curve")

    for rmse in ([1.0, 2.0, 9.0, 4.0], [1.0, 2.0, 40.0, 4.0], [1.0, 2.0, 5000.0, 40.0]):
        (line,) = polylines(curve(rmse), "first")
        with case(rmse):
            assert np.all(np.diff(line[:, 1]) * np.diff(rmse) < 0), (
                "up where the error grows, down where it falls"
            )
            assert ("5e+03" in curve(rmse)) == (max(rmse) > 100), "what leaves the frame is said"
    html = curve([1.0, 2.0, np.inf, 4.0, 3.0])
    assert [len(line) for line in polylines(html, "first")] == [
        2,
        2,
    ] and "In the gap it is infinite." in html
    band = re.search(
        r'<polygon class="band" points="([^"]*)"', curve([1.0, 1.1, 1.2], standard_error=0.5)
    )[1]
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
    shown = {name: (weight, error) for name, weight, error in rows}
    for name, score in zip(names, results["mean_test_score"], strict=False):
        weight = model.scheme_weights_.get(name, 0.0)
        assert shown[name] == (escape(percent(weight)), escape(number(np.sqrt(-score))))
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


def test_columns_that_are_a_scale_have_a_profile():
    model, summary = summary_of(*problem(n=50, p=40))
    for names, label in (
        ([f"{w} nm" for w in range(400, 440)], "nm"),
        ([f"{w}" for w in np.arange(4000.5, 3960, -1)][:40], "name of the column"),
        ([f"nm{w / 2}" for w in range(800, 840)], "nm"),
        ([f"{w} cm-1" for w in range(400, 440)], "cm-1"),
        ([f"x{j}" for j in range(40)], None),  # counted, not measured
        ([f"V{j}" for j in range(1, 41)], None),
        ([f"{w} nm" for w in [*range(400, 420), *range(400, 380, -1)]], None),
        ([f"{w} nm" for w in range(400, 420)] + [f"col{chr(97 + j)}" for j in range(20)], None),
    ):
        html = pages.render({**summary, "columns": {**summary["columns"], "name": names}})
        with case(names):
            assert ('<figure id="profile">' in html) == (label is not None)
            if label is not None:
                part = figure(html, "profile")
                (line,) = polylines(part, "first")
                assert f">{label}</text>" in part and len(line) == 40
                assert np.corrcoef(line[:, 1], np.ravel(model.coef_))[0, 1] == pytest.approx(
                    -1, abs=1e-3
                )


# the page


def test_the_page_is_well_formed_and_needs_nothing_else(monkeypatch):
    names = [
        "W" * 80,
        "\u6e29" * 60,
        "<b>" * 30,
        "concentration_of_something_measured_in_spring",
        "e",
        "f",
    ]
    model, summary = summary_of(*problem(), names=names)
    html = pages.render(summary)
    page = Page(html)
    assert "http:" not in html and "https:" not in html and "url(" not in html.replace("url(#", "")
    assert len(page.all("script")) == 1 and not page.all("img") and not page.all("b")
    script = html.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(
        a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}'" in policy.split("; "), "this script and no other"
    ids = [a["id"] for _, a in page.found if "id" in a]
    assert len(ids) == len(set(ids))
    titles = re.findall(
        r'text-anchor="end"><title>([^<]*)</title>([^<]*)</text>', figure(html, "effects")
    )
    titles = [(unescape(whole), unescape(shown)) for whole, shown in titles]
    assert len(titles) == 6 and {"W" * 80, "\u6e29" * 60} <= {whole for whole, _ in titles}
    assert all(len(shown) < 30 and (shown == whole or "…" in shown) for whole, shown in titles)
    listed = [row["data-name"] for row in page.all("tr") if "data-name" in row]
    effects = np.abs(np.ravel(model.coef_) * problem()[0].std(axis=0))
    assert listed == [names[j] for j in np.argsort(-effects, kind="stable")], (
        "the largest effects first"
    )
    monkeypatch.setattr(summaries, "MOST_COLUMNS", 4)
    summary = summary_of(*problem())[1]
    assert {c["name"] for c in summary["effects"][:4]} == set(summary["columns"]["name"])
    assert "The 2 columns with the smallest effects are left out." in pages.render(summary)


def test_r2_compares_with_the_mean_on_rows_left_out(olsen, tmp_path):
    """Of the weights and the groups of the fit, by scikit-learn."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 4))
    y = X @ [1.0, 2, 0, -1] + rng.standard_normal(60)
    weight, group = rng.integers(0, 4, 60).astype(float), np.arange(60) % 7
    rows = np.column_stack([X, y, weight, group])
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c,d,y,w,g", comments="")
    kept = weight > 0
    X, y, weight, group = X[kept], y[kept], weight[kept], group[kept]
    for option, splits in (
        ("--groups", GroupKFold(5).split(X, y, group)),
        ("--drop", LeaveOneOut().split(X)),
    ):
        arguments = ("--target", "y", "--members", 20, "--json", "--weight", "w", option, "g")
        (found,) = json.loads(olsen("fit", tmp_path / "t.csv", *arguments)[1])["errors"]
        squares = np.full(len(y), np.nan)
        for train, test in splits:
            mean = DummyRegressor().fit(X[train], y[train], sample_weight=weight[train])
            squares[test] = (y[test] - mean.predict(X[test])) ** 2
        with case(option):
            assert found["r2"] == pytest.approx(
                1 - found["rmse"] ** 2 / np.average(squares, weights=weight), rel=1e-9
            )
            assert ("'g'" in found["note"]) == (option == "--groups")
