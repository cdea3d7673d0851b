"""Displays draw the numbers of the estimator. Structure and numbers are compared, not pixels."""

import copy
import pickle
import subprocess
import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
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
    TuningPlaneDisplay,
)
from olsen.simulation import Ensemble, LinearProblem, run
from random_problems import gaussian

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def regression_data(n=90, p=12, targets=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.5, 3.0, p) + rng.uniform(-2.0, 2.0, p)
    Y = X @ rng.standard_normal((p, targets)) + 2.0 * rng.standard_normal((n, targets)) + 5.0
    return X, Y[:, 0] if targets == 1 else Y


X, y = regression_data()
TRAIN = (X[:60], y[:60])
NEW = (X[60:], y[60:])
X2, Y2 = regression_data(targets=2, seed=1)
TRAIN2 = (X2[:60], Y2[:60])
NEW2 = (X2[60:], Y2[60:])


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
def without_rows(ensemble):
    """Copy of the ensemble without its training rows."""
    return pickle.loads(pickle.dumps(copy.copy(ensemble).set_params(keep_rows=False)))


@pytest.fixture(scope="module")
def two_targets():
    return OLSEnsembleRegressor(20, 4, random_state=0).fit(*TRAIN2)


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def artist(ax, name):
    """Artist whose label in the legend begins with the name; None if there is none."""
    handles, labels = ax.get_legend_handles_labels()
    return next(
        (h for h, label in zip(handles, labels, strict=True) if label.startswith(name)), None
    )


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def ends(artist, coordinate=0):
    """Both ends of every line of a collection."""
    return np.array([segment[:, coordinate] for segment in artist.get_segments()])


def assert_refused(*calls, error=ValueError):
    """Every call, a message with a function and its arguments, ends in an error with the message."""
    for message, function, *arguments in calls:
        with case(message), pytest.raises(error, match=message):
            function(*arguments)


# Every display


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
    misplaced, loaded, message = done.stdout.splitlines()
    assert (misplaced, loaded) == ("[]", "False"), done.stderr
    assert "needs matplotlib" in message and "pip install 'olsen[plot]'" in message


CALLS = {  # functions of an estimator, rows, targets and axes
    TuningCurveDisplay: lambda model, X, y, ax=None: TuningCurveDisplay.from_estimator(
        model, ax=ax
    ),
    TuningPlaneDisplay: lambda model, X, y, ax=None: TuningPlaneDisplay.from_estimator(
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
EVERY_DISPLAY = pytest.mark.parametrize("cls", CALLS)


def test_every_display_of_estimators_is_tested():
    names = {cls.__name__ for cls in CALLS}
    assert names == set(displays.__all__) - {"RiskCurveDisplay"}  # a display of theory


@EVERY_DISPLAY
def test_displays_draw_on_given_axes_or_on_a_new_figure(tuned, cls):
    figure, ax = plt.subplots()
    display = CALLS[cls](tuned, *NEW, ax)
    assert display.ax_ is ax and display.figure_ is figure and figure.axes[0] is ax
    assert ax.has_data() and ax.get_xlabel() and plt.get_fignums() == [figure.number]
    assert display.plot(ax) is display
    with pytest.raises(ValueError, match=r"plt\.subplots"):
        display.plot("here")
    plt.close("all")
    display = CALLS[cls](tuned, *NEW)
    assert plt.get_fignums() == [display.figure_.number]
    assert copy.copy(display).plot().figure_ is not display.figure_


@pytest.fixture(scope="module")
def pipeline():
    columns = make_column_transformer(
        (StandardScaler(), ["ash", "clay", "sand", "silt"]), (OneHotEncoder(), ["kind"])
    )
    return make_pipeline(columns, OLSEnsembleRegressorCV(30, random_state=0)).fit(*FRAME_TRAIN)


FRAME = pd.DataFrame(X[:, :4], columns=["ash", "clay", "sand", "silt"])
FRAME["kind"] = np.where(X[:, 4] > 0, "peat", "loam")
FRAME_TRAIN = (FRAME[:60], y[:60])


@EVERY_DISPLAY
def test_pipelines_are_drawn_as_their_ensemble_on_transformed_rows(pipeline, cls):
    parameters = {"olsensembleregressorcv__n_estimators": [30]}
    search = GridSearchCV(pipeline, parameters, cv=2).fit(*FRAME_TRAIN)
    rows = pipeline[:-1].transform(FRAME[60:])
    expected = CALLS[cls](pipeline[-1], rows, y[60:])
    for estimator in (pipeline, search):
        display = CALLS[cls](estimator, FRAME[60:], y[60:])
        for name, value in vars(expected).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                assert_array_equal(getattr(display, name), value)


def test_coefficients_of_pipelines_have_names(pipeline):
    names = {"ash", "clay", "sand", "silt", "kind_loam", "kind_peat"}
    assert set(ticks(CoefficientDisplay.from_estimator(pipeline).ax_.yaxis)) == names


def test_transformed_targets_have_intervals_only():
    regressor = OLSEnsembleRegressorCV(20, random_state=0)
    model = TransformedTargetRegressor(regressor, func=np.log, inverse_func=np.exp)
    model.fit(TRAIN[0], np.exp(TRAIN[1] / 10))
    display = IntervalDisplay.from_estimator(model, NEW[0], np.exp(NEW[1] / 10))
    assert_allclose(display.interval, np.exp(model.regressor_.predict_interval(NEW[0])))
    assert_array_equal(display.y_pred, model.predict(NEW[0]))
    for cls in set(CALLS) - {IntervalDisplay}:
        assert_refused(("regressor_", CALLS[cls], model, *NEW), error=TypeError)


@EVERY_DISPLAY
def test_unsuitable_estimators_are_refused(cls):
    unfitted = OLSEnsembleRegressorCV()
    for estimator in (unfitted, make_pipeline(StandardScaler(), unfitted)):
        with pytest.raises(NotFittedError):
            CALLS[cls](estimator, X, y)
    if cls is not CoefficientDisplay:  # any linear model has coefficients
        linear = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
        message = "LinearRegression does not have"
        assert_refused((message, CALLS[cls], linear, X, y), error=TypeError)


# TuningCurveDisplay


def test_tuning_curve_is_that_of_the_estimator(tuned):
    display = TuningCurveDisplay.from_estimator(tuned)
    results = tuned.cv_results_
    sizes = results["param_max_features"]
    mse = -results["mean_test_score"]
    std = results["std_test_score"]
    curve = artist(display.ax_, "40 members")
    assert_array_equal(curve.get_xydata(), np.column_stack([sizes, mse]))
    infinity = np.column_stack([sizes, tuned.risk_curve(np.inf)])
    assert_array_equal(artist(display.ax_, "infinitely many").get_xydata(), infinity)
    mark, _, (bar,) = artist(display.ax_, "chosen")
    assert mark.get_xydata().tolist() == [[tuned.max_features_, -tuned.best_score_]]
    assert_allclose(np.ptp(ends(bar, 1)) / 2, std[tuned.best_index_])
    corners = artist(display.ax_, "one standard error").get_paths()[0].vertices
    assert_allclose(corners[:, 1].max(), (mse + std).max())
    assert display.ax_.get_ylabel() == "mean squared error, leave-one-out"
    assert legend(display.ax_)[1:3] == ["40 members", "infinitely many"]


def test_tuning_curve_of_determinantal_members_is_over_expected_sizes():
    model = OLSEnsembleRegressorCV(sampling="determinantal").fit(*TRAIN)
    display = TuningCurveDisplay.from_estimator(model)
    sizes = model.cv_results_["param_max_features"]
    curve = np.column_stack([sizes, -model.cv_results_["mean_test_score"]])
    assert_array_equal(artist(display.ax_, "infinitely").get_xydata(), curve)
    best = [[model.max_features_, -model.best_score_]]
    assert_array_equal(artist(display.ax_, "chosen")[0].get_xydata(), best)
    labels = legend(display.ax_)
    assert labels[1] == "infinitely many members"
    assert labels[-1] == f"chosen: {model.max_features_:.4g} columns"


def test_the_adaptive_model_has_no_curve_over_sizes(mixed):
    call = ("Fit an OLSEnsembleRegressorCV", TuningCurveDisplay.from_estimator, mixed)
    assert_refused(call, error=TypeError)


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


# TuningPlaneDisplay


def test_the_plane_has_every_candidate_in_the_strip_of_its_rows():
    model = OLSEnsembleRegressorCV(25, max_samples=[0.4, 1.0, 0.7], random_state=0).fit(*TRAIN)
    display = TuningPlaneDisplay.from_estimator(model)
    results = model.cv_results_
    mse = -results["mean_test_score"]
    rows = [24, 42, 60]
    assert ticks(display.ax_.yaxis) == [str(count) for count in rows]
    strips = display.ax_.collections
    assert len(strips) == 3
    for count, strip in zip(rows, strips, strict=True):
        of_count = results["param_max_samples"] == count
        assert_array_equal(np.ravel(strip.get_array()), mse[of_count])
        assert strip.get_clim() == (mse.min(), min(mse.max(), 2 * mse.min()))
    mark = artist(display.ax_, "chosen").get_xydata().tolist()
    assert mark == [[model.max_features_, rows.index(model.max_samples_)]]
    near = mse <= mse.min() + results["std_test_score"][model.best_index_]
    marked = artist(display.ax_, "within one standard error").get_xydata()
    assert_array_equal(marked[:, 0], results["param_max_features"][near])
    assert_array_equal(np.take(rows, marked[:, 1].astype(int)), results["param_max_samples"][near])
    colour_bar = display.figure_.axes[1]
    assert colour_bar.get_ylabel() == "mean squared error, leave-one-out"


# RiskCurveDisplay


def test_risk_curves_from_theory():
    alpha = [0.1, 0.2, 0.3]
    k = (10, np.inf)
    display = RiskCurveDisplay.from_theory(2.0, 1.0, alpha=alpha, k=k, eta=0.9, mu=0.8)
    for line, count in zip(display.ax_.lines, k, strict=False):
        expected = [theory.limiting_risk(a, 2.0, 1.0, k=count, eta=0.9, mu=0.8) for a in alpha]
        assert_allclose(line.get_xydata(), np.transpose([alpha, expected]), rtol=1e-14)
    reference = artist(display.ax_, "optimal ridge")
    assert reference.get_ydata()[0] == theory.optimal_ridge_risk(2.0, 1.0)
    assert legend(display.ax_) == ["$k = 10$", r"$k = \infty$", "optimal ridge"]
    peak = RiskCurveDisplay.from_theory(
        2.0, 1.0, k=(1, np.inf)
    )  # infinite risks are gaps, and peaks leave the panel
    assert np.isinf(peak.risk[0]).any() and np.isnan(peak.ax_.lines[0].get_ydata()).any()
    low, high = peak.ax_.get_ylim()
    assert 0 < low < theory.optimal_ridge_risk(2.0, 1.0) and high < 4.0


def test_risk_curves_from_simulation():
    problem = LinearProblem(30, 20, sigma=0.5)
    k = (1, 8)
    lines = RiskCurveDisplay.from_theory(20 / 30, 0.5, k=k)
    settings = {"alpha": [0.2, 0.52], "k": k, "trials": 4, "rng": 3}
    display = RiskCurveDisplay.from_simulation(problem, **settings)
    estimates = run([(problem, Ensemble(m, k=k)) for m in (4, 10)], trials=4, rng=3)
    assert_array_equal(display.x, [0.2, 0.5])  # whole columns
    for i, bars in enumerate(display.ax_.containers):
        assert_array_equal(bars[0].get_ydata(), [e.mean[i, 0] for e in estimates])
        assert_allclose(
            np.ptp(ends(bars[2][0], 1), axis=1) / 2, [e.standard_error[i, 0] for e in estimates]
        )
    assert display.reference > 0 and "ridge" in legend(display.ax_)[0]
    points = RiskCurveDisplay.from_simulation(problem, **settings, ridge=False, ax=lines.ax_)
    colors = [line.get_color() for line in lines.ax_.lines[:2]]
    assert colors == [bars[0].get_color() for bars in lines.ax_.containers]
    assert points.ax_ is lines.ax_ and points.reference is None


def test_risk_curves_that_cannot_be_drawn():
    problem = LinearProblem(20, 10)
    theory = RiskCurveDisplay.from_theory
    simulation = RiskCurveDisplay.from_simulation
    assert_refused(
        ("all risks are infinite", partial(theory, 2.0, 1.0, alpha=0.5, k=3)),
        (r"k=\[1, 2\.5\].*whole", partial(simulation, problem, k=[1, 2.5])),
        ("fractions of the 10 columns", partial(simulation, problem, alpha=[3])),
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
        assert_allclose(effects.coef, ensemble.coef_ * X.std(axis=0))
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
        display = CoefficientDisplay.from_estimator(ensemble, feature_names=names)
        with case(names):
            line = artist(display.ax_, "coefficient")
            assert (line is None) == (unit is None)
            if unit is not None:
                assert (display.ax_.get_xlabel(), line.get_xdata()[0]) == (unit, first)
                assert_array_equal(line.get_ydata(), ensemble.coef_)
        plt.close("all")


def test_intervals_are_lines_across_bars_and_a_band_about_a_profile():
    interval = np.array([[1.0, 3.0], [-4.0, -2.0], [-0.5, 0.7]])
    display = CoefficientDisplay(
        [2.0, -3.0, 0.1], ["a", "b", "c"], interval=interval, coverage=0.8
    ).plot()
    assert_array_equal(ends(artist(display.ax_, "80% interval")), interval[[1, 0, 2]])
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


def test_intervals_of_coefficients_are_those_of_the_estimator(ensemble, two_targets):
    for model in (two_targets, WithIntervals().fit(X2, Y2)):
        display = CoefficientDisplay.from_estimator(model, X=X2, target=1, coverage=0.8)
        expected = model.coef_interval(0.8)[1] * X2.std(axis=0)[:, None]
        assert_allclose(display.interval, expected)
        order = np.argsort(-np.abs(display.coef))
        lines = artist(display.ax_, "80% interval")
        assert_array_equal(ends(lines), display.interval[order])
    display = CoefficientDisplay.from_estimator(ensemble)
    assert_array_equal(display.interval, ensemble.coef_interval(0.9))


def test_the_legend_says_where_there_are_no_intervals(without_rows):
    few_rows = WithIntervals().fit(X[:10], y[:10])
    dropout = DropoutRegressor().fit(X, y)
    for model in (without_rows, few_rows, dropout, Ridge().fit(X, y)):
        display = CoefficientDisplay.from_estimator(model)
        assert display.interval is None and legend(display.ax_) == ["no intervals"]
    profile = CoefficientDisplay.from_estimator(few_rows, feature_names=np.arange(12) * 2.5)
    assert legend(profile.ax_) == ["coefficient (no intervals)"]


def test_coefficients_that_cannot_be_drawn(ensemble):
    draw = partial(CoefficientDisplay.from_estimator, ensemble)
    assert_refused(
        (r"coverage.*1.5", partial(draw, coverage=1.5)),
        (r"top.*0", partial(draw, top=0)),
        ("1 names.* 12 columns", partial(draw, feature_names=["a"])),
        ("target=1", partial(draw, target=1)),
    )


def test_dollars_are_dollars(tmp_path):
    """Two dollars in a name would begin and end a formula."""
    frame = pd.DataFrame(X[:, :3], columns=["50% $ off_$", "$\\alpha_$", "US$"])
    model = OLSEnsembleRegressor(10, 2, random_state=0).fit(frame, y)
    CoefficientDisplay.from_estimator(model).figure_.savefig(tmp_path / "a.png")


# IntervalDisplay


def test_intervals_are_drawn_over_predictions(ensemble):
    rows, observed = NEW
    settings = {"coverage": 0.7, "method": "jackknife"}
    display = IntervalDisplay.from_estimator(ensemble, rows, observed, **settings)
    prediction = ensemble.predict(rows)
    interval = ensemble.predict_interval(rows, **settings)
    lines = artist(display.ax_, "70% interval")
    assert_array_equal(ends(lines)[:, 0], prediction)
    assert_array_equal(ends(lines, 1), interval)
    is_inside = (interval[:, 0] <= observed) & (observed <= interval[:, 1])
    points_inside = artist(display.ax_, "inside")
    points_outside = artist(display.ax_, "outside")
    assert_array_equal(points_inside.get_ydata(), observed[is_inside])
    assert_array_equal(points_outside.get_xdata(), prediction[~is_inside])
    assert points_inside.get_marker() != points_outside.get_marker()
    assert f"inside: {is_inside.sum()} of 30" in legend(display.ax_)
    assert "asked for: 70%" in legend(display.coverage_ax_)
    figure, axes = plt.subplots(2, 1)
    display.plot(axes)
    assert (display.ax_, display.coverage_ax_) == tuple(axes) and display.figure_ is figure
    assert display.plot(plt.subplots()[1]).coverage_ax_ is None
    display = IntervalDisplay.from_estimator(ensemble, rows)
    assert display.coverage_ax_ is None and display.inside is None
    assert len(display.figure_.axes) == 1
    assert legend(display.ax_) == ["90% interval", "prediction"]


def test_coverage_by_bins():
    """Counts by hand: the upper half of the predictions has every second observation outside."""
    predicted = np.arange(20.0)
    observed = predicted + np.where((predicted >= 10) & (predicted % 2 == 0), 5.0, 0.0)
    interval = np.column_stack([predicted - 1, predicted + 1])
    draw = IntervalDisplay.from_predictions
    display = draw(observed, predicted, interval)
    assert_allclose(display.bin_edges, [0.0, 9.5, 19.0])
    assert_allclose(display.bin_centers, [4.5, 14.5])
    assert_allclose(display.bin_coverage, [1.0, 0.5])
    standard_errors = [np.sqrt(12 * 2 / 14**3), np.sqrt(0.25 / 14)]
    assert_allclose(display.bin_standard_error, standard_errors)
    assert_allclose(artist(display.coverage_ax_, "observed")[0].get_ydata(), [100.0, 50.0])
    values = np.linspace(0, 1, 200)
    display = draw(values, values, np.column_stack([values, values]))
    assert display.bin_coverage.shape == (8,)
    equal = draw([0.0, 2.0], [1.0, 1.0], [[0.5, 2.5]] * 2)
    assert equal.bin_coverage.tolist() == [0.5]


def test_intervals_that_cannot_be_drawn(ensemble, without_rows):
    estimator = IntervalDisplay.from_estimator
    predictions = IntervalDisplay.from_predictions
    assert_refused(
        ("smaller coverage", partial(estimator, ensemble, *NEW, coverage=0.999)),
        ("inconsistent numbers of samples", estimator, ensemble, NEW[0], NEW[1][:-1]),
        (r"needs the training (rows|data)", estimator, without_rows, *NEW),
        ("NaN", predictions, [np.nan, 1.0], [0.0, 1.0], [[0, 1], [0, 1]]),
        ("lower and upper", predictions, [1.0], [1.0], [[2.0, 0.0]]),
        ("interval", predictions, [1.0], [1.0], [[0.0, np.inf]]),
        ("interval|2D array", predictions, [1.0], [1.0], [0.0, 2.0]),
    )


# ConvergenceDisplay


def test_errors_of_the_first_members_and_their_mean_over_orders(ensemble):
    """Members come from `member_coefficients`; rows suffice for several batches."""
    coef, intercept = member_coefficients(*TRAIN, ensemble.feature_subsets_)
    rows, observed = (np.repeat(part, 10_000, axis=0) for part in NEW)
    display = ConvergenceDisplay.from_estimator(ensemble, rows, observed)
    k = np.arange(1, 31)
    errors = NEW[0] @ coef.T + intercept - NEW[1][:, None]
    expected = np.mean((np.cumsum(errors, axis=1) / k) ** 2, axis=0)
    curve = np.column_stack([k, expected])
    assert_allclose(artist(display.ax_, "members").get_xydata(), curve, rtol=1e-9)
    products = errors.T @ errors / 30
    single = np.mean(np.diag(products))
    pair = (products.sum() - np.trace(products)) / (30 * 29)
    mean_over_orders = pair + (single - pair) / k
    drawn_mean = artist(display.ax_, "mean over").get_ydata()
    assert_allclose(drawn_mean, mean_over_orders, rtol=1e-9)
    assert_allclose(artist(display.ax_, "infinitely").get_ydata(), pair, rtol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"scale": 0.7},
        {"max_samples": 0.6},
        {"fit_intercept": False},
        {"max_samples": 0.6, "scale": 0.5},
    ],
    ids=str,
)
def test_all_members_have_the_error_of_the_ensemble(settings):
    model = OLSEnsembleRegressor(25, 4, random_state=0).set_params(**settings).fit(*TRAIN)
    expected = np.mean((model.predict(NEW[0]) - NEW[1]) ** 2)
    for rows in (NEW[0], sp.csr_array(NEW[0])):
        display = ConvergenceDisplay.from_estimator(model, rows, NEW[1])
        assert_allclose([display.error[-1], display.expected[-1]], expected, rtol=1e-9)


def test_stacked_members_have_no_mean_over_orders(tuned, mixed):
    A, b, _ = gaussian(0, n=120, p=20, sigma=0.1, nonzero=2)
    stacked = OLSEnsembleRegressor(40, 3, mixing="stacking", random_state=0).fit(A[:80], b[:80])
    assert np.ptp(stacked.weights_) > 0
    for model, rows, observed in ((stacked, A[80:], b[80:]), (tuned, *NEW), (mixed, *NEW)):
        display = ConvergenceDisplay.from_estimator(model, rows, observed)
        expected = np.mean((model.predict(rows) - observed) ** 2)
        assert_allclose(display.error[-1], expected, rtol=1e-9)
        for line in (display.expected, display.limit):
            assert (line is None) == (model is stacked)


def test_convergence_needs_training_rows_and_targets(ensemble, without_rows):
    draw = ConvergenceDisplay.from_estimator
    assert_refused(
        (r"ConvergenceDisplay needs the training (rows|data)", draw, without_rows, *NEW),
        ("inconsistent numbers of samples", draw, ensemble, NEW[0], NEW[1][1:]),
        ("target=1", partial(draw, ensemble, *NEW, target=1)),
    )


# Several targets


def test_one_of_several_targets(two_targets):
    model = two_targets
    rows, observed = NEW2
    coefficients = partial(CoefficientDisplay.from_estimator, model)
    intervals = partial(IntervalDisplay.from_estimator, model, rows, observed)
    convergence = partial(ConvergenceDisplay.from_estimator, model, rows)
    assert_array_equal(coefficients(target=1).coef, model.coef_[1])
    display = intervals(target=1)
    assert_array_equal(display.interval, model.predict_interval(rows)[:, 1])
    assert_array_equal(display.y_true, observed[:, 1])
    assert_array_equal(display.y_pred, model.predict(rows)[:, 1])
    errors = np.mean((model.predict(rows) - observed) ** 2, axis=0)
    assert_allclose(convergence(observed, target=1).error[-1], errors[1], rtol=1e-9)
    assert_allclose(convergence(observed).error[-1], errors.mean(), rtol=1e-9)
    assert_refused(
        (r"2 targets.*target=0 to 1", coefficients),
        (r"target=2.*2 target", partial(coefficients, target=2)),
        (r"2 targets.*target=0 to 1", intervals),
        (r"target=2.*2 target", partial(intervals, target=2)),
        ("fitted to 2 targets", convergence, observed[:, 0]),
    )


def test_targets_with_different_members():
    model = AdaptiveOLSEnsembleRegressor(n_estimators=30, random_state=0).fit(*TRAIN2)
    rows, observed = NEW2
    expected = np.mean((model.predict(rows) - observed) ** 2, axis=0)
    for target in range(2):
        display = ConvergenceDisplay.from_estimator(model, rows, observed, target=target)
        assert_allclose(display.error[-1], expected[target], rtol=1e-9)


def test_convergence_needs_a_number_of_members():
    limit = AdaptiveOLSEnsembleRegressor(random_state=0).fit(*TRAIN)
    draw = ConvergenceDisplay.from_estimator
    assert_refused(("give n_estimators a number", draw, limit, *NEW))


def test_several_targets_of_a_tuned_estimator():
    model = OLSEnsembleRegressorCV(20, random_state=0).fit(X2, Y2)
    display = TuningCurveDisplay.from_estimator(model)
    mse = -model.cv_results_["mean_test_score"]
    assert_array_equal(artist(display.ax_, "20 members").get_ydata(), mse)
