"""Displays: what is drawn is what the estimator says. Structure and numbers are compared, not
pixels.
"""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
    displays,
    member_coefficients,
    theory,
)
from olsen.displays import (
    CoefficientDisplay,
    ConvergenceDisplay,
    IntervalDisplay,
    RiskCurveDisplay,
    TuningCurveDisplay,
)
from olsen.simulation import Ensemble, LinearProblem, run

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def linear_data(n=90, p=12, targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.5, 3.0, p) + rng.uniform(-2.0, 2.0, p)
    Y = X @ rng.standard_normal((p, targets)) + 2.0 * rng.standard_normal((n, targets)) + 5.0
    return X, Y[:, 0] if targets == 1 else Y


X, y = linear_data()
TRAIN, NEW = (X[:60], y[:60]), (X[60:], y[60:])
X2, Y2 = linear_data(targets=2, seed=1)
TRAIN2, NEW2 = (X2[:60], Y2[:60]), (X2[60:], Y2[60:])


@pytest.fixture(scope="module")
def ensemble():
    return OLSEnsembleRegressor(30, 4, random_state=0).fit(*TRAIN)


@pytest.fixture(scope="module")
def tuned():
    return OLSEnsembleRegressorCV(40, random_state=0).fit(*TRAIN)


@pytest.fixture(scope="module")
def mixed():
    return AdaptiveOLSEnsembleRegressor(n_estimators=40, random_state=0).fit(*TRAIN)


@pytest.fixture(scope="module")
def sent(ensemble):
    """A copy that came without its training rows."""
    return pickle.loads(pickle.dumps(copy.copy(ensemble).set_params(keep_rows=False)))


@pytest.fixture(scope="module")
def two_targets():
    return OLSEnsembleRegressor(20, 4, random_state=0).fit(*TRAIN2)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def artist(ax, name):
    """What the legend names with a text that begins so; None if there is nothing."""
    handles, labels = ax.get_legend_handles_labels()
    return next(
        (h for h, label in zip(handles, labels, strict=True) if label.startswith(name)), None
    )


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def ends(artist, coordinate=0):
    """Both ends of every line of a collection."""
    return np.array([segment[:, coordinate] for segment in artist.get_segments()])


def refused(calls, kind=ValueError):
    for call, words in calls:
        with case(words), pytest.raises(kind, match=words):
            call()


# All of them


def test_matplotlib_is_imported_for_drawing_only_and_named_where_it_is_missing():
    code = """
import sys, olsen.displays
print([name for name in olsen.displays.__all__ if getattr(olsen.displays, name).__module__ != "olsen.displays"])
print('matplotlib' in sys.modules)
sys.modules["matplotlib"] = sys.modules["matplotlib.pyplot"] = None
try:
    olsen.displays.RiskCurveDisplay([0.1, 0.2], [1.0, 0.9], ["one"]).plot()
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    others, loaded, message = done.stdout.splitlines()
    assert (others, loaded) == ("[]", "False"), done.stderr
    assert "needs matplotlib" in message and "pip install 'olsen[plot]'" in message


# every display of an estimator, of these rows, on these axes
CALLS = {
    TuningCurveDisplay: lambda model, X, y, ax=None: TuningCurveDisplay.from_estimator(
        model, ax=ax
    ),
    CoefficientDisplay: lambda model, X, y, ax=None: CoefficientDisplay.from_estimator(
        model, X=X, ax=ax
    ),
    IntervalDisplay: lambda model, X, y, ax=None: IntervalDisplay.from_estimator(
        model, X, y, ax=ax
    ),
    ConvergenceDisplay: lambda model, X, y, ax=None: ConvergenceDisplay.from_estimator(
        model, X, y, ax=ax
    ),
}


def test_they_draw_on_given_axes_or_on_a_new_figure(tuned):
    assert {kind.__name__ for kind in CALLS} == set(displays.__all__) - {
        "RiskCurveDisplay"
    }  # of theory
    for kind, draw in CALLS.items():
        with case(kind):
            figure, ax = plt.subplots()
            display = draw(tuned, *NEW, ax)
            assert display.ax_ is ax and display.figure_ is figure and figure.axes[0] is ax
            assert ax.has_data() and ax.get_xlabel() and plt.get_fignums() == [figure.number]
            assert display.plot(ax) is display
            with pytest.raises(ValueError, match=r"plt\.subplots"):
                display.plot("here")
            plt.close("all")
            new = draw(tuned, *NEW)
            assert plt.get_fignums() == [new.figure_.number]
            assert copy.copy(new).plot().figure_ is not new.figure_
            plt.close("all")


def test_pipelines_are_drawn_as_the_ensemble_on_the_rows_it_sees_with_names_of_the_columns_that_went_in():
    frame = pd.DataFrame(X[:, :4], columns=["ash", "clay", "sand", "silt"])
    frame["kind"] = np.where(X[:, 4] > 0, "peat", "loam")
    columns = make_column_transformer(
        (StandardScaler(), ["ash", "clay", "sand", "silt"]), (OneHotEncoder(), ["kind"])
    )
    pipeline = make_pipeline(columns, OLSEnsembleRegressorCV(30, random_state=0)).fit(
        frame[:60], y[:60]
    )
    search = GridSearchCV(pipeline, {"olsensembleregressorcv__n_estimators": [30]}, cv=2).fit(
        frame[:60], y[:60]
    )
    model, rows = pipeline[-1], pipeline[:-1].transform(frame[60:])
    for whole in (pipeline, search):
        for kind, draw in CALLS.items():
            with case(kind, type(whole)):
                found, plain = draw(whole, frame[60:], y[60:]), draw(model, rows, y[60:])
                for name, value in vars(plain).items():
                    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                        np.testing.assert_array_equal(getattr(found, name), value)
                plt.close("all")
    names = {"ash", "clay", "sand", "silt", "kind_loam", "kind_peat"}
    assert set(ticks(CoefficientDisplay.from_estimator(pipeline).ax_.yaxis)) == names


def test_transformed_targets_have_intervals_and_nothing_else():
    model = TransformedTargetRegressor(
        OLSEnsembleRegressorCV(20, random_state=0), func=np.log, inverse_func=np.exp
    )
    model.fit(TRAIN[0], np.exp(TRAIN[1] / 10))
    display = IntervalDisplay.from_estimator(model, NEW[0], np.exp(NEW[1] / 10))
    np.testing.assert_allclose(display.interval, np.exp(model.regressor_.predict_interval(NEW[0])))
    np.testing.assert_array_equal(display.y_pred, model.predict(NEW[0]))
    for kind, draw in CALLS.items():
        if kind is not IntervalDisplay:
            with case(kind), pytest.raises(TypeError, match="regressor_"):
                draw(model, *NEW)


def test_estimators_are_refused_by_what_they_lack():
    pipeline = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
    for kind, draw in CALLS.items():
        with case(kind):
            for unfitted in (
                OLSEnsembleRegressorCV(),
                make_pipeline(StandardScaler(), OLSEnsembleRegressorCV()),
            ):
                with pytest.raises(NotFittedError):
                    draw(unfitted, X, y)
            if kind is not CoefficientDisplay:  # any linear model has these
                with pytest.raises(TypeError, match="LinearRegression does not have"):
                    draw(pipeline, X, y)


# TuningCurveDisplay


def test_tuning_curve_is_that_of_the_estimator(tuned):
    display, found = TuningCurveDisplay.from_estimator(tuned), tuned.cv_results_
    mse = -found["mean_test_score"]
    for name, values in (("40 members", mse), ("infinitely many", tuned.risk_curve(np.inf))):
        np.testing.assert_array_equal(
            artist(display.ax_, name).get_xydata(),
            np.column_stack([found["param_max_features"], values]),
        )
    mark, _, (bar,) = artist(display.ax_, "chosen")
    assert mark.get_xydata().tolist() == [[tuned.max_features_, -tuned.best_score_]]
    np.testing.assert_allclose(np.ptp(ends(bar, 1)) / 2, found["std_test_score"][tuned.best_index_])
    corners = artist(display.ax_, "one standard error").get_paths()[0].vertices
    np.testing.assert_allclose(corners[:, 1].max(), (mse + found["std_test_score"]).max())
    assert display.ax_.get_ylabel() == "mean squared error, leave-one-out"
    assert legend(display.ax_)[1:3] == ["40 members", "infinitely many"]


def test_determinantal_members_have_the_curve_of_infinitely_many_over_expected_sizes():
    model = OLSEnsembleRegressorCV(sampling="determinantal").fit(*TRAIN)
    display = TuningCurveDisplay.from_estimator(model)
    sizes, mse = model.cv_results_["param_max_features"], -model.cv_results_["mean_test_score"]
    np.testing.assert_array_equal(
        artist(display.ax_, "infinitely").get_xydata(), np.column_stack([sizes, mse])
    )
    np.testing.assert_array_equal(
        artist(display.ax_, "chosen")[0].get_xydata(), [[model.max_features_, -model.best_score_]]
    )
    assert legend(display.ax_)[1] == "infinitely many members"
    assert legend(display.ax_)[-1] == f"chosen: {model.max_features_:.4g} columns"


def test_weights_of_schemes_have_no_curve_over_sizes(mixed):
    refused(
        [(lambda: TuningCurveDisplay.from_estimator(mixed), "Fit an OLSEnsembleRegressorCV")],
        TypeError,
    )


def test_a_peak_does_not_hide_the_minimum():
    display = TuningCurveDisplay(
        [1, 2, 3, 4],
        [2.0, 1.0, 1.2, 1e6],
        [2.0, 1.0, 1.1, 1e5],
        [0.1] * 4,
        best_size=2,
        best_mse=1.0,
        n_estimators=10,
    ).plot()
    assert display.ax_.get_ylim() == (0.0, 4.0)
    assert (
        artist(display.ax_, "10 members").get_ydata()[-1] == 1e6
    )  # it is drawn, and leaves the panel


# RiskCurveDisplay


def test_risk_curves_from_theory():
    alpha, k = [0.1, 0.2, 0.3], (10, np.inf)
    display = RiskCurveDisplay.from_theory(2.0, 1.0, alpha=alpha, k=k, eta=0.9, mu=0.8)
    for line, count in zip(display.ax_.lines, k, strict=False):
        expected = [theory.limiting_risk(a, 2.0, 1.0, k=count, eta=0.9, mu=0.8) for a in alpha]
        np.testing.assert_allclose(line.get_xydata(), np.transpose([alpha, expected]), rtol=1e-14)
    assert artist(display.ax_, "optimal ridge").get_ydata()[0] == theory.optimal_ridge_risk(
        2.0, 1.0
    )
    assert legend(display.ax_) == ["$k = 10$", r"$k = \infty$", "optimal ridge"]
    peak = RiskCurveDisplay.from_theory(
        2.0, 1.0, k=(1, np.inf)
    )  # infinite risks are gaps, and peaks leave the panel
    assert np.isinf(peak.risk[0]).any() and np.isnan(peak.ax_.lines[0].get_ydata()).any()
    low, high = peak.ax_.get_ylim()
    assert 0 < low < theory.optimal_ridge_risk(2.0, 1.0) and high < 4.0


def test_risk_curves_from_simulation():
    problem, k = LinearProblem(30, 20, sigma=0.5), (1, 8)
    lines = RiskCurveDisplay.from_theory(20 / 30, 0.5, k=k)
    how = {"alpha": [0.2, 0.52], "k": k, "trials": 4, "rng": 3}
    display = RiskCurveDisplay.from_simulation(problem, **how)
    estimates = run([(problem, Ensemble(m, k=k)) for m in (4, 10)], trials=4, rng=3)
    np.testing.assert_array_equal(display.x, [0.2, 0.5])  # whole columns
    for i, bars in enumerate(display.ax_.containers):
        np.testing.assert_array_equal(bars[0].get_ydata(), [e.mean[i, 0] for e in estimates])
        np.testing.assert_allclose(
            np.ptp(ends(bars[2][0], 1), axis=1) / 2, [e.standard_error[i, 0] for e in estimates]
        )
    assert display.reference > 0 and "ridge" in legend(display.ax_)[0]
    points = RiskCurveDisplay.from_simulation(problem, **how, ridge=False, ax=lines.ax_)
    colors = [line.get_color() for line in lines.ax_.lines[:2]]
    assert colors == [bars[0].get_color() for bars in lines.ax_.containers]
    assert points.ax_ is lines.ax_ and points.reference is None


def test_risk_curves_that_cannot_be_drawn():
    draw, problem = RiskCurveDisplay, LinearProblem(20, 10)
    refused(
        [
            (lambda: draw.from_theory(2.0, 1.0, alpha=0.5, k=3), "all risks are infinite"),
            (lambda: draw.from_simulation(problem, k=[1, 2.5]), r"k=\[1, 2\.5\].*whole"),
            (lambda: draw.from_simulation(problem, alpha=[3]), "fractions of the 10 columns"),
        ]
    )


# CoefficientDisplay


def test_bars_are_the_largest_coefficients_or_effects_of_one_standard_deviation(ensemble):
    display = CoefficientDisplay.from_estimator(ensemble, top=5)
    order = np.argsort(-np.abs(ensemble.coef_))[:5]
    (bars,) = display.ax_.containers
    assert [bar.get_width() for bar in bars] == ensemble.coef_[order].tolist()
    assert ticks(display.ax_.yaxis) == [f"x{i}" for i in order]
    assert display.ax_.get_ylabel() == "the 5 largest of 12 columns"
    for rows in (X, sp.csr_array(X)):
        effects = CoefficientDisplay.from_estimator(ensemble, X=rows)
        np.testing.assert_allclose(effects.coef, ensemble.coef_ * X.std(axis=0))
        assert "one standard deviation" in effects.ax_.get_xlabel()


def test_names_along_a_scale_make_a_profile_and_others_bars(ensemble):
    for names, unit, first in [
        ([f"{1100 + 2 * i} nm" for i in range(12)], "nm", 1100.0),
        ([f"nm{1100 + 2 * i}" for i in range(12)], "nm", 1100.0),
        ([4000 - 8.5 * i for i in range(12)], "column", 4000.0),
        ([f"x{i}" for i in range(12)], None, 0),
        ([f"w{i:04d}" for i in range(1, 13)], None, 0),
        (list("abcdefghijkl"), None, 0),
        ([f"{i} nm" for i in (5, 3, 4, 1, 2, 9, 8, 7, 6, 10, 11, 12)], None, 0),
        ([f"{10 * i} {unit}" for i, unit in enumerate(["nm", "cm"] * 6, 1)], None, 0),
    ]:
        found = CoefficientDisplay.from_estimator(ensemble, feature_names=names)
        with case(names):
            line = artist(found.ax_, "coefficient")
            assert (line is None) == (unit is None)
            if unit is not None:
                assert (found.ax_.get_xlabel(), line.get_xdata()[0]) == (unit, first)
                np.testing.assert_array_equal(line.get_ydata(), ensemble.coef_)
        plt.close("all")


def test_intervals_are_lines_across_bars_and_a_band_about_a_profile():
    interval = np.array([[1.0, 3.0], [-4.0, -2.0], [-0.5, 0.7]])
    display = CoefficientDisplay(
        [2.0, -3.0, 0.1], ["a", "b", "c"], interval=interval, coverage=0.8
    ).plot()
    np.testing.assert_array_equal(ends(artist(display.ax_, "80% interval")), interval[[1, 0, 2]])
    colors = [bar.get_facecolor() for bar in display.ax_.containers[0]]
    assert colors[0] == colors[1] != colors[2]
    assert legend(display.ax_) == ["80% interval", "excludes zero", "includes zero"]
    profile = CoefficientDisplay([2.0, -3.0, 0.1], [10, 20, 40], interval=interval).plot()
    corners = {
        tuple(corner)
        for corner in artist(profile.ax_, "90% interval").get_paths()[0].vertices.tolist()
    }
    assert {
        (10.0, 1.0),
        (20.0, -4.0),
        (40.0, -0.5),
        (10.0, 3.0),
        (20.0, -2.0),
        (40.0, 0.7),
    } <= corners
    assert legend(profile.ax_) == ["90% interval", "coefficient"]


class WithIntervals(LinearRegression):
    """Another estimator with intervals, one unit to either side; none for a few rows."""

    def coef_interval(self, coverage=0.9):
        if self.rank_ < self.n_features_in_:
            raise ValueError("no degrees of freedom are left")
        return np.stack([self.coef_ - coverage, self.coef_ + coverage], axis=-1)


def test_intervals_are_those_of_the_estimator_and_the_legend_says_where_there_are_none(
    ensemble, sent, two_targets
):
    for model in (two_targets, WithIntervals().fit(X2, Y2)):
        display = CoefficientDisplay.from_estimator(model, X=X2, target=1, coverage=0.8)
        np.testing.assert_allclose(
            display.interval, model.coef_interval(0.8)[1] * X2.std(axis=0)[:, None]
        )
        order = np.argsort(-np.abs(display.coef))
        lines = artist(display.ax_, "80% interval")
        np.testing.assert_array_equal(ends(lines), display.interval[order])
    np.testing.assert_array_equal(
        CoefficientDisplay.from_estimator(ensemble).interval, ensemble.coef_interval(0.9)
    )
    few = WithIntervals().fit(X[:10], y[:10])
    for model in (sent, few, DropoutRegressor().fit(X, y), Ridge().fit(X, y)):
        without = CoefficientDisplay.from_estimator(model)
        assert without.interval is None and legend(without.ax_) == ["no intervals"]
    profile = CoefficientDisplay.from_estimator(few, feature_names=np.arange(12) * 2.5)
    assert legend(profile.ax_) == ["coefficient (no intervals)"]


def test_coefficients_that_cannot_be_drawn(ensemble):
    for how, words in (
        ({"coverage": 1.5}, r"coverage.*1.5"),
        ({"top": 0}, r"top.*0"),
        ({"feature_names": ["a"]}, "1 names.* 12 columns"),
        ({"target": 1}, "target=1"),
    ):
        with case(how), pytest.raises(ValueError, match=words):
            CoefficientDisplay.from_estimator(ensemble, **how)


def test_dollars_are_dollars(tmp_path):
    """Two of them in a name would begin and end a formula."""
    frame = pd.DataFrame(X[:, :3], columns=["50% $ off_$", "$\\alpha_$", "US$"])
    model = OLSEnsembleRegressor(10, 2, random_state=0).fit(frame, y)
    CoefficientDisplay.from_estimator(model).figure_.savefig(tmp_path / "a.png")


# IntervalDisplay


def test_intervals_are_drawn_over_predictions(ensemble):
    rows, observed = NEW
    display = IntervalDisplay.from_estimator(
        ensemble, rows, observed, coverage=0.7, method="jackknife"
    )
    prediction, interval = ensemble.predict(rows), ensemble.predict_interval(rows, 0.7, "jackknife")
    lines = artist(display.ax_, "70% interval")
    np.testing.assert_array_equal(ends(lines)[:, 0], prediction)
    np.testing.assert_array_equal(ends(lines, 1), interval)
    inside = (interval[:, 0] <= observed) & (observed <= interval[:, 1])
    points_inside, points_outside = (artist(display.ax_, name) for name in ("inside", "outside"))
    np.testing.assert_array_equal(points_inside.get_ydata(), observed[inside])
    np.testing.assert_array_equal(points_outside.get_xdata(), prediction[~inside])
    assert points_inside.get_marker() != points_outside.get_marker()
    assert f"inside: {inside.sum()} of 30" in legend(display.ax_)
    assert "asked for: 70%" in legend(display.coverage_ax_)
    figure, axes = plt.subplots(2, 1)
    assert (display.plot(axes).ax_, display.coverage_ax_) == tuple(
        axes
    ) and display.figure_ is figure
    assert display.plot(plt.subplots()[1]).coverage_ax_ is None
    alone = IntervalDisplay.from_estimator(ensemble, rows)
    assert alone.coverage_ax_ is None and alone.inside is None and len(alone.figure_.axes) == 1
    assert legend(alone.ax_) == ["90% interval", "prediction"]


def test_coverage_by_bins():
    """Counts by hand: the upper half of the predictions has every second observation outside."""
    predicted = np.arange(20.0)
    observed = predicted + np.where((predicted >= 10) & (predicted % 2 == 0), 5.0, 0.0)
    interval = np.column_stack([predicted - 1, predicted + 1])
    display = IntervalDisplay.from_predictions(observed, predicted, interval)
    np.testing.assert_allclose(display.bin_edges, [0.0, 9.5, 19.0])
    np.testing.assert_allclose(display.bin_centers, [4.5, 14.5])
    np.testing.assert_allclose(display.bin_coverage, [1.0, 0.5])
    np.testing.assert_allclose(
        display.bin_standard_error, [np.sqrt(12 * 2 / 14**3), np.sqrt(0.25 / 14)]
    )
    np.testing.assert_allclose(
        artist(display.coverage_ax_, "observed")[0].get_ydata(), [100.0, 50.0]
    )
    many = np.linspace(0, 1, 200)
    assert IntervalDisplay.from_predictions(
        many, many, np.stack([many, many], 1)
    ).bin_coverage.shape == (8,)
    equal = IntervalDisplay.from_predictions([0.0, 2.0], [1.0, 1.0], [[0.5, 2.5]] * 2)
    assert equal.bin_coverage.tolist() == [0.5]


def test_intervals_that_cannot_be_drawn(ensemble, sent):
    draw = IntervalDisplay
    refused(
        [
            (lambda: draw.from_estimator(ensemble, *NEW, coverage=0.999), "smaller coverage"),
            (
                lambda: draw.from_estimator(ensemble, NEW[0], NEW[1][:-1]),
                "inconsistent numbers of samples",
            ),
            (lambda: draw.from_estimator(sent, *NEW), r"needs the training (rows|data)"),
            (lambda: draw.from_predictions([np.nan, 1.0], [0.0, 1.0], [[0, 1], [0, 1]]), "NaN"),
            (lambda: draw.from_predictions([1.0], [1.0], [[2.0, 0.0]]), "lower and upper"),
            (lambda: draw.from_predictions([1.0], [1.0], [[0.0, np.inf]]), "interval"),
            (lambda: draw.from_predictions([1.0], [1.0], [0.0, 2.0]), "interval|2D array"),
        ]
    )


# ConvergenceDisplay


def test_errors_are_those_of_the_first_members_and_their_mean_over_orders_that_of_all_pairs(
    ensemble,
):
    """Members are solved once more by the function that takes them as given; enough rows for
    several batches.
    """
    coef, intercept = member_coefficients(*TRAIN, ensemble.feature_subsets_)
    rows, observed = (np.repeat(part, 10_000, axis=0) for part in NEW)
    display, k = ConvergenceDisplay.from_estimator(ensemble, rows, observed), np.arange(1, 31)
    errors = NEW[0] @ coef.T + intercept - NEW[1][:, None]
    expected = np.mean((np.cumsum(errors, axis=1) / k) ** 2, axis=0)
    np.testing.assert_allclose(
        artist(display.ax_, "members").get_xydata(), np.column_stack([k, expected]), rtol=1e-9
    )
    products = errors.T @ errors / 30
    own, pair = np.mean(np.diag(products)), (products.sum() - np.trace(products)) / (30 * 29)
    np.testing.assert_allclose(
        artist(display.ax_, "mean over").get_ydata(), pair + (own - pair) / k, rtol=1e-9
    )
    np.testing.assert_allclose(artist(display.ax_, "infinitely").get_ydata(), pair, rtol=1e-9)


def test_all_members_have_the_error_of_the_ensemble(tuned, mixed):
    for how in (
        {"scale": 0.7},
        {"max_samples": 0.6},
        {"fit_intercept": False},
        {"max_samples": 0.6, "scale": 0.5},
    ):
        model = OLSEnsembleRegressor(25, 4, random_state=0).set_params(**how).fit(*TRAIN)
        for rows in (NEW[0], sp.csr_array(NEW[0])):
            display = ConvergenceDisplay.from_estimator(model, rows, NEW[1])
            expected = np.mean((model.predict(NEW[0]) - NEW[1]) ** 2)
            with case(how, type(rows)):
                np.testing.assert_allclose(
                    [display.error[-1], display.expected[-1]], expected, rtol=1e-9
                )
    rng = np.random.default_rng(0)
    A = rng.standard_normal((120, 20))
    b = 5.0 * A[:, 0] - 4.0 * A[:, 1] + 0.5 * rng.standard_normal(120)
    stacked = OLSEnsembleRegressor(40, 3, mixing="stacking", random_state=0).fit(A[:80], b[:80])
    assert np.ptp(stacked.weights_) > 0
    for model, rows, observed in ((stacked, A[80:], b[80:]), (tuned, *NEW), (mixed, *NEW)):
        display = ConvergenceDisplay.from_estimator(model, rows, observed)
        np.testing.assert_allclose(
            display.error[-1], np.mean((model.predict(rows) - observed) ** 2), rtol=1e-9
        )
        assert (display.expected is None) == (display.limit is None) == (model is stacked)


def test_convergence_needs_training_rows_and_targets(ensemble, sent):
    draw = ConvergenceDisplay.from_estimator
    refused(
        [
            (lambda: draw(sent, *NEW), r"ConvergenceDisplay needs the training (rows|data)"),
            (lambda: draw(ensemble, NEW[0], NEW[1][1:]), "inconsistent numbers of samples"),
            (lambda: draw(ensemble, *NEW, target=1), "target=1"),
        ]
    )


# Several targets


def test_one_of_several_targets(two_targets):
    model, (rows, observed) = two_targets, NEW2
    np.testing.assert_array_equal(
        CoefficientDisplay.from_estimator(model, target=1).coef, model.coef_[1]
    )
    intervals = IntervalDisplay.from_estimator(model, rows, observed, target=1)
    np.testing.assert_array_equal(intervals.interval, model.predict_interval(rows)[:, 1])
    np.testing.assert_array_equal(intervals.y_true, observed[:, 1])
    np.testing.assert_array_equal(intervals.y_pred, model.predict(rows)[:, 1])
    errors = np.mean((model.predict(rows) - observed) ** 2, axis=0)
    one, both = (
        ConvergenceDisplay.from_estimator(model, rows, observed, target=target)
        for target in (1, None)
    )
    np.testing.assert_allclose(
        [one.error[-1], both.error[-1]], [errors[1], errors.mean()], rtol=1e-9
    )
    coefficients, convergence = CoefficientDisplay.from_estimator, ConvergenceDisplay.from_estimator
    refused(
        [
            (lambda: coefficients(model), r"2 targets.*target=0 to 1"),
            (lambda: coefficients(model, target=2), r"target=2.*2 target"),
            (
                lambda: IntervalDisplay.from_estimator(model, rows, observed),
                r"2 targets.*target=0 to 1",
            ),
            (
                lambda: IntervalDisplay.from_estimator(model, rows, observed, target=2),
                r"target=2.*2 target",
            ),
            (lambda: convergence(model, rows, observed[:, 0]), "fitted to 2 targets"),
        ]
    )


def test_targets_with_members_of_their_own():
    model, (rows, observed) = (
        AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=0).fit(*TRAIN2),
        NEW2,
    )
    for t in range(2):
        display = ConvergenceDisplay.from_estimator(model, rows, observed, target=t)
        expected = np.mean((model.predict(rows)[:, t] - observed[:, t]) ** 2)
        np.testing.assert_allclose(display.error[-1], expected, rtol=1e-9)
    limit = AdaptiveOLSEnsembleRegressor(random_state=0).fit(*TRAIN)
    refused(
        [(lambda: ConvergenceDisplay.from_estimator(limit, *NEW), "give n_estimators a number")]
    )


def test_several_targets_of_a_tuned_estimator():
    model = OLSEnsembleRegressorCV(20, random_state=0).fit(X2, Y2)
    display = TuningCurveDisplay.from_estimator(model)
    np.testing.assert_array_equal(
        artist(display.ax_, "20 members").get_ydata(), -model.cv_results_["mean_test_score"]
    )
