"""Displays: what is drawn is what the estimator says. Structure and numbers are compared, not pixels."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from loops import case
from olsen import DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV, displays, member_coefficients, theory
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


@pytest.fixture(scope="module")
def data():
    return linear_data()


@pytest.fixture(scope="module")
def ensemble(data):
    X, y = data
    return OLSEnsembleRegressor(30, 4, random_state=0).fit(X[:60], y[:60])


@pytest.fixture(scope="module")
def tuned(data):
    X, y = data
    return OLSEnsembleRegressorCV(40, inclusion="uniform", random_state=0).fit(X[:60], y[:60])


@pytest.fixture(scope="module")
def mixed(data):
    X, y = data
    return OLSEnsembleRegressorCV(40, random_state=0).fit(X[:60], y[:60])


@pytest.fixture(scope="module")
def sent(ensemble):
    """A copy that came without its training rows."""
    return pickle.loads(pickle.dumps(copy.copy(ensemble).set_params(keep_rows=False)))


@pytest.fixture(scope="module")
def two_targets():
    X, Y = linear_data(targets=2, seed=1)
    return X, Y, OLSEnsembleRegressor(20, 4, random_state=0).fit(X[:60], Y[:60])


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


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


def calls(X, y):
    """Every display of an estimator, as a function of the estimator and of axes."""
    return {
        "tuning": lambda model, ax=None: displays.TuningCurveDisplay.from_estimator(model, ax=ax),
        "risk": lambda model, ax=None: displays.RiskCurveDisplay.from_estimator(model, ax=ax),
        "coefficients": lambda model, ax=None: displays.CoefficientDisplay.from_estimator(model, ax=ax),
        "intervals": lambda model, ax=None: displays.IntervalDisplay.from_estimator(model, X, y, ax=ax),
        "subsets": lambda model, ax=None: displays.SubsetDisplay.from_estimator(model, ax=ax),
        "convergence": lambda model, ax=None: displays.ConvergenceDisplay.from_estimator(model, X, y, ax=ax),
    }


def test_they_draw_on_given_axes_or_on_a_new_figure(data, tuned):
    for name, draw in calls(data[0][60:], data[1][60:]).items():
        with case(name):
            figure, ax = plt.subplots()
            display = draw(tuned, ax)
            assert display.ax_ is ax and display.figure_ is figure and figure.axes[0] is ax
            assert ax.has_data() and ax.get_xlabel() and plt.get_fignums() == [figure.number]
            assert display.plot(ax) is display
            with pytest.raises(ValueError, match=r"plt\.subplots"):
                display.plot("here")
            plt.close("all")
            new = draw(tuned)
            assert plt.get_fignums() == [new.figure_.number]
            assert copy.copy(new).plot().figure_ is not new.figure_
            plt.close("all")


def test_estimators_are_refused_by_what_they_lack(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), OLSEnsembleRegressorCV(5)).fit(X, y)
    for name, draw in calls(X, y).items():
        with case(name):
            with pytest.raises(NotFittedError):
                draw(OLSEnsembleRegressorCV())
            with pytest.raises(TypeError, match=r"pipeline\[-1\]"):
                draw(pipeline)
            if name != "coefficients":  # any linear model has these
                with pytest.raises(TypeError, match="LinearRegression does not have"):
                    draw(LinearRegression().fit(X, y))


# TuningCurveDisplay
# TuningCurveDisplay


def test_tuning_curve_is_that_of_the_estimator(tuned):
    display = displays.TuningCurveDisplay.from_estimator(tuned)
    found = tuned.cv_results_
    for line, values in ((display.line_, found["mse"]), (display.infinity_line_, tuned.risk_curve(np.inf))):
        np.testing.assert_array_equal(line.get_xdata(), found["size"])
        np.testing.assert_array_equal(line.get_ydata(), values)
    mark = display.best_[0]
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (tuned.max_features_, -tuned.best_score_)
    corners = display.band_.get_paths()[0].vertices
    np.testing.assert_allclose(corners[:, 1].max(), (found["mse"] + found["standard_error"]).max())
    assert display.ridge_line_ is None and display.shares_ax_ is None
    assert display.ax_.get_ylabel() == "mean squared error, leave-one-out"
    assert legend(display.ax_)[1:3] == ["40 members", "infinitely many"]


def test_tuning_curve_beside_ridge(data, tuned):
    """The error of ridge is that of predictions of left-out rows, made one by one."""
    X, y = data[0][:60], data[1][:60]
    display = displays.TuningCurveDisplay.from_estimator(tuned, X, y)
    Z = StandardScaler().fit_transform(X)
    penalties = np.logspace(-8, 4, 61) * len(y)
    errors = np.empty((len(y), len(penalties)))
    for i in range(len(y)):
        rows, targets = np.delete(Z, i, axis=0), np.delete(y, i)
        centred = rows - rows.mean(axis=0)
        grams = centred.T @ centred + penalties[:, None, None] * np.eye(12)
        coefs = np.linalg.solve(grams, centred.T @ targets)
        errors[i] = y[i] - targets.mean() - coefs @ (Z[i] - rows.mean(axis=0))
    expected = np.mean(errors**2, axis=0).min()
    np.testing.assert_allclose(display.ridge_line_.get_ydata(), expected, rtol=1e-6)
    given = displays.TuningCurveDisplay.from_estimator(tuned, ridge=3.0)
    assert given.ridge_line_.get_ydata()[0] == 3.0
    with pytest.raises(ValueError, match="both X and y"):
        displays.TuningCurveDisplay.from_estimator(tuned, X)


def test_a_mixture_is_a_point_beside_the_curve_of_uniform_members(data, mixed):
    X, y = data
    limit, ridge = (OLSEnsembleRegressorCV(inclusion=inclusion).fit(X[:60], y[:60]) for inclusion in ("auto", "ridge"))
    for model in (mixed, limit, ridge):
        display = displays.TuningCurveDisplay.from_estimator(model)
        found, uniform = model.cv_results_, ~model.cv_results_["mixture"]
        with case(model):
            np.testing.assert_array_equal(display.line_.get_xdata(), found["size"][uniform])
            np.testing.assert_array_equal(display.line_.get_ydata(), found["mse"][uniform])
            mark, _, (bar,) = display.best_
            best = [model.max_features_, -model.best_score_]
            np.testing.assert_allclose([*mark.get_xdata(), *mark.get_ydata()], best)
            low, high = bar.get_segments()[0][:, 1]
            np.testing.assert_allclose((high - low) / 2, found["standard_error"][model.best_index_])
            widths = [patch.get_width() for patch in display.shares_ax_.patches]
            np.testing.assert_allclose(widths, 100 * np.array(list(model.inclusion_shares_.values())))
            assert [t.get_text() for t in display.shares_ax_.get_yticklabels()] == list(model.inclusion_shares_)
            assert "uniform members" in legend(display.ax_)[1] and "mixture" in legend(display.ax_)[-1]
    one = displays.TuningCurveDisplay.from_estimator(mixed, ax=plt.subplots()[1])
    assert one.shares_ax_ is None
    assert all(name in one.ax_.get_title() for name in mixed.inclusion_shares_)


def test_shares_of_several_targets_are_their_means():
    X, Y = linear_data(targets=3)
    model = OLSEnsembleRegressorCV(random_state=0).fit(X, Y)
    display = displays.TuningCurveDisplay.from_estimator(model)
    assert set(display.shares) == {name for one in model.inclusion_shares_ for name in one}
    assert sum(display.shares.values()) == pytest.approx(1.0)


def test_a_peak_does_not_hide_the_minimum():
    sizes = [1, 2, 3, 4]
    display = displays.TuningCurveDisplay(
        sizes, [2.0, 1.0, 1.2, 1e6], [2.0, 1.0, 1.1, 1e5], [0.1] * 4, best_size=2, best_mse=1.0, n_estimators=10
    ).plot()
    assert display.ax_.get_ylim() == (0.0, 4.0)
    assert display.line_.get_ydata()[-1] == 1e6  # it is drawn, and leaves the panel


# RiskCurveDisplay


def test_risk_curves_from_theory():
    alpha, k = [0.1, 0.2, 0.3], (10, np.inf)
    display = displays.RiskCurveDisplay.from_theory(2.0, 1.0, alpha=alpha, k=k, eta=0.9, mu=0.8)
    for line, count in zip(display.lines_, k, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), alpha)
        expected = [theory.limiting_risk(a, 2.0, 1.0, k=count, eta=0.9, mu=0.8) for a in alpha]
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-14)
    assert display.reference_line_.get_ydata()[0] == theory.optimal_ridge_risk(2.0, 1.0)
    assert legend(display.ax_) == ["$k = 10$", r"$k = \infty$", "optimal ridge"]


def test_infinite_risks_are_gaps_and_peaks_leave_the_panel():
    display = displays.RiskCurveDisplay.from_theory(2.0, 1.0, k=(1, np.inf))
    assert np.isinf(display.risk[0]).any() and np.isnan(display.lines_[0].get_ydata()).any()
    low, high = display.ax_.get_ylim()
    assert 0 < low < theory.optimal_ridge_risk(2.0, 1.0) and high < 4.0


def test_risk_curves_from_simulation():
    problem, k = LinearProblem(30, 20, sigma=0.5), (1, 8)
    display = displays.RiskCurveDisplay.from_simulation(problem, alpha=[0.2, 0.52], k=k, trials=4, seed=3)
    cells = [(problem, Ensemble(m, k=k)) for m in (4, 10)]
    estimates = run(cells, trials=4, seed=3)
    np.testing.assert_array_equal(display.x, [0.2, 0.5])  # whole columns
    for i, bars in enumerate(display.errorbars_):
        np.testing.assert_array_equal(bars[0].get_ydata(), [e.mean[i, 0] for e in estimates])
        ends = np.array([segment[:, 1] for segment in bars[2][0].get_segments()])
        np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, [e.standard_error[i, 0] for e in estimates])
    assert display.reference > 0 and "ridge" in legend(display.ax_)[0]
    lines = displays.RiskCurveDisplay.from_theory(0.5, 1.0, k=(1, 5))
    points = displays.RiskCurveDisplay.from_simulation(
        LinearProblem(20, 10), alpha=[0.3], k=(1, 5), trials=2, ridge=False, ax=lines.ax_
    )
    assert [a.get_color() for a in lines.lines_] == [b.get_color() for b in points.lines_]
    assert points.reference_line_ is None


def test_risk_curves_of_an_estimator(tuned, mixed):
    display = displays.RiskCurveDisplay.from_estimator(tuned, k=(3, np.inf))
    np.testing.assert_array_equal(display.x, tuned.cv_results_["size"] / 12)
    for line, k in zip(display.lines_, (3, np.inf), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), tuned.risk_curve(k))
    beside = displays.RiskCurveDisplay.from_estimator(mixed, k=[10])
    np.testing.assert_array_equal(beside.lines_[0].get_ydata(), mixed.risk_curve(10)[:-1])


def test_risk_curves_that_cannot_be_drawn():
    draw, problem = displays.RiskCurveDisplay, LinearProblem(20, 10)
    for call, kind, words in [
        (lambda: draw.from_theory(2.0, 1.0, alpha=0.5, k=3), ValueError, "all risks are infinite"),
        (lambda: draw.from_simulation(problem, k=[1, 2.5]), ValueError, r"k=\[1, 2\.5\].*whole"),
        (lambda: draw.from_simulation(problem, alpha=[3]), ValueError, "shares of the 10 columns"),
        (lambda: draw.from_simulation(20), TypeError, "LinearProblem"),
    ]:
        with case(words), pytest.raises(kind, match=words):
            call()


# CoefficientDisplay
# CoefficientDisplay


def test_bars_are_the_largest_coefficients(ensemble):
    display = displays.CoefficientDisplay.from_estimator(ensemble, top=5)
    order = np.argsort(-np.abs(ensemble.coef_))[:5]
    assert display.kind_ == "bars" and display.shown_.tolist() == order.tolist()
    assert [bar.get_width() for bar in display.bars_] == ensemble.coef_[order].tolist()
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == [f"x{i}" for i in order]
    assert display.ax_.get_ylabel() == "the 5 largest of 12 columns"


def test_effects_are_those_of_one_standard_deviation(data, ensemble):
    X = data[0]
    display = displays.CoefficientDisplay.from_estimator(ensemble, X=X)
    np.testing.assert_allclose(display.coef, ensemble.coef_ * X.std(axis=0))
    assert "one standard deviation" in display.ax_.get_xlabel()
    sparse = displays.CoefficientDisplay.from_estimator(ensemble, X=sp.csr_array(X))
    np.testing.assert_allclose(sparse.coef, display.coef)


def test_names_of_frames_are_used(data):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(data[0], columns=[f"column {c}" for c in "abcdefghijkl"])
    model = OLSEnsembleRegressor(10, random_state=0).fit(X, data[1])
    bars = displays.CoefficientDisplay.from_estimator(model, X=X, top=3)
    assert all(t.get_text().startswith("column ") for t in bars.ax_.get_yticklabels())
    image = displays.SubsetDisplay.from_estimator(model)
    assert [t.get_text() for t in image.ax_.get_xticklabels()] == list(X.columns)


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
        found, profile, bars = (
            displays.CoefficientDisplay.from_estimator(ensemble, feature_names=names, kind=kind)
            for kind in ("auto", "profile", "bars")
        )
        with case(names):
            assert found.kind_ == ("bars" if unit is None else "profile") and bars.kind_ == "bars"
            assert unit is None or (profile.ax_.get_xlabel(), profile.line_.get_xdata()[0]) == (unit, first)
            np.testing.assert_array_equal(profile.line_.get_ydata(), ensemble.coef_)
        plt.close("all")


def test_bars_show_intervals_and_which_leave_out_zero():
    interval = np.array([[1.0, 3.0], [-4.0, -2.0], [-0.5, 0.7]])
    display = displays.CoefficientDisplay([2.0, -3.0, 0.1], ["a", "b", "c"], interval=interval, coverage=0.8).plot()
    ends = np.array([segment[:, 0] for segment in display.intervals_.get_segments()])
    np.testing.assert_array_equal(ends, interval[[1, 0, 2]])
    colors = [bar.get_facecolor() for bar in display.bars_]
    assert colors[0] == colors[1] != colors[2]
    assert legend(display.ax_) == ["80% interval", "leaves out zero", "holds zero"]


def test_a_profile_shows_intervals_as_a_band():
    interval = np.array([[1.0, 3.0], [-4.0, -2.0], [-0.5, 0.7]])
    display = displays.CoefficientDisplay([2.0, -3.0, 0.1], [10, 20, 40], interval=interval).plot()
    corners = {tuple(corner) for corner in display.intervals_.get_paths()[0].vertices.tolist()}
    assert {(10.0, 1.0), (20.0, -4.0), (40.0, -0.5), (10.0, 3.0), (20.0, -2.0), (40.0, 0.7)} <= corners
    assert legend(display.ax_) == ["90% interval", "coefficient"]


def test_without_intervals_the_legend_says_so(data):
    X, y = data
    display = displays.CoefficientDisplay.from_estimator(DropoutRegressor().fit(X, y))
    assert display.interval is None and legend(display.ax_) == ["DropoutRegressor gives no intervals"]
    profile = displays.CoefficientDisplay.from_estimator(Ridge().fit(X, y), kind="profile")
    assert legend(profile.ax_) == ["coefficient (Ridge gives no intervals)"]


class WithIntervals(LinearRegression):
    """Another estimator with intervals, one unit to either side; none for a few rows."""

    def coef_interval(self, coverage=0.9):
        if self.rank_ < self.n_features_in_:
            raise ValueError("no degrees of freedom are left")
        return np.stack([self.coef_ - coverage, self.coef_ + coverage], axis=-1)


def test_intervals_of_any_estimator_are_drawn():
    X, Y = linear_data(targets=2)
    model = WithIntervals().fit(X, Y)
    display = displays.CoefficientDisplay.from_estimator(model, X=X, target=1, coverage=0.8)
    np.testing.assert_allclose(display.interval, model.coef_interval(0.8)[1] * X.std(axis=0)[:, None])
    ends = np.array([segment[:, 0] for segment in display.intervals_.get_segments()])
    np.testing.assert_array_equal(ends, display.interval[display.shown_])
    few = displays.CoefficientDisplay.from_estimator(WithIntervals().fit(X[:10], Y[:10, 0]))
    assert few.interval is None and legend(few.ax_) == ["no intervals for this fit"]


def test_intervals_are_those_of_the_estimator(data, ensemble, sent, two_targets):
    display = displays.CoefficientDisplay.from_estimator(ensemble, coverage=0.8)
    np.testing.assert_array_equal(display.interval, ensemble.coef_interval(0.8))
    scaled = displays.CoefficientDisplay.from_estimator(ensemble, X=data[0])
    np.testing.assert_allclose(scaled.interval, ensemble.coef_interval(0.9) * data[0].std(axis=0)[:, None])
    model = two_targets[2]
    second = displays.CoefficientDisplay.from_estimator(model, target=1)
    np.testing.assert_array_equal(second.interval, model.coef_interval(0.9)[1])
    without = displays.CoefficientDisplay.from_estimator(sent)
    assert without.interval is None and legend(without.ax_) == ["no intervals: training data not kept"]


def test_coefficients_that_cannot_be_drawn(ensemble):
    draw = displays.CoefficientDisplay.from_estimator
    for how, message in (
        ({"coverage": 1.5}, r"coverage.*1.5"),
        ({"kind": "pie"}, r"kind.*'pie'"),
        ({"top": 0}, r"top.*0"),
        ({"feature_names": ["a"]}, "1 names.* 12 columns"),
        ({"target": 1}, "target=1"),
    ):
        with pytest.raises(ValueError, match=message):
            draw(ensemble, **how)


# IntervalDisplay


def test_intervals_are_drawn_over_predictions(data, ensemble):
    X, y = data[0][60:], data[1][60:]
    display = displays.IntervalDisplay.from_estimator(ensemble, X, y, coverage=0.7, method="jackknife", n_bins=3)
    prediction, interval = ensemble.predict(X), ensemble.predict_interval(X, 0.7, "jackknife")
    segments = np.array(display.intervals_.get_segments())
    np.testing.assert_array_equal(segments[:, 0, 0], prediction)
    np.testing.assert_array_equal(segments[:, :, 1], interval)
    inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
    np.testing.assert_array_equal(display.inside_.get_ydata(), y[inside])
    np.testing.assert_array_equal(display.outside_.get_xdata(), prediction[~inside])
    assert display.inside_.get_marker() != display.outside_.get_marker()
    assert f"inside: {inside.sum()} of 30" in legend(display.ax_)
    assert display.coverage_ax_ is not None and "asked for: 70%" in legend(display.coverage_ax_)


def test_coverage_by_bins():
    """Counts by hand: the upper half of the predictions has every second observation outside."""
    predicted = np.arange(40.0)
    observed = predicted + np.where((predicted >= 20) & (predicted % 2 == 0), 5.0, 0.0)
    interval = np.column_stack([predicted - 1, predicted + 1])
    display = displays.IntervalDisplay.from_predictions(observed, predicted, interval, n_bins=2)
    np.testing.assert_allclose(display.bin_edges, [0.0, 19.5, 39.0])
    np.testing.assert_allclose(display.bin_centers, [9.5, 29.5])
    np.testing.assert_allclose(display.bin_coverage, [1.0, 0.5])
    np.testing.assert_allclose(display.bin_standard_error, [np.sqrt(22 * 2 / 24**3), np.sqrt(0.25 / 24)])
    np.testing.assert_allclose(display.coverage_bars_[0].get_ydata(), [100.0, 50.0])
    assert displays.IntervalDisplay.from_predictions(observed, predicted, interval, n_bins=9).bin_coverage.shape == (4,)
    equal = displays.IntervalDisplay.from_predictions([0.0, 2.0], [1.0, 1.0], [[0.5, 2.5]] * 2)
    assert equal.bin_coverage.tolist() == [0.5]


def test_intervals_without_observations(data, ensemble):
    display = displays.IntervalDisplay.from_estimator(ensemble, data[0][60:])
    assert display.coverage_ax_ is None and display.inside is None and len(display.figure_.axes) == 1
    assert legend(display.ax_) == ["90% interval", "prediction"]


def test_intervals_on_two_given_panels(data, ensemble):
    figure, axes = plt.subplots(2, 1)
    display = displays.IntervalDisplay.from_estimator(ensemble, data[0][60:], data[1][60:], ax=axes)
    assert (display.ax_, display.coverage_ax_) == tuple(axes) and display.figure_ is figure
    _, ax = plt.subplots()
    assert display.plot(ax).coverage_ax_ is None


def test_intervals_that_cannot_be_drawn(data, ensemble, sent):
    X, y = data[0][60:], data[1][60:]
    draw = displays.IntervalDisplay
    for call, words in [
        (lambda: draw.from_estimator(ensemble, X, y, coverage=0.999), "smaller coverage"),
        (lambda: draw.from_estimator(ensemble, X, y[:-1]), "inconsistent numbers of samples"),
        (lambda: draw.from_estimator(sent, X, y), r"needs the training (rows|data)"),
        (lambda: draw.from_predictions([np.nan, 1.0], [0.0, 1.0], [[0, 1], [0, 1]]), "NaN"),
        (lambda: draw.from_predictions([1.0], [1.0], [[2.0, 0.0]]), "lower and upper"),
        (lambda: draw.from_predictions([1.0], [1.0], [[0.0, np.inf]]), "interval"),
        (lambda: draw.from_predictions([1.0], [1.0], [0.0, 2.0]), "interval|2D array"),
    ]:
        with case(words), pytest.raises(ValueError, match=words):
            call()


# SubsetDisplay
# SubsetDisplay


def test_subsets_are_those_of_the_first_members(ensemble):
    display = displays.SubsetDisplay.from_estimator(ensemble, n_members=7)
    image = np.asarray(display.image_.get_array())
    assert image.shape == (7, 12) and display.rows_ax_ is None and display.colorbars_ == []
    for line, columns in zip(image, ensemble.feature_subsets_, strict=False):
        assert np.flatnonzero(line).tolist() == columns.tolist()
    assert displays.SubsetDisplay.from_estimator(ensemble, n_members=99).columns.shape == (30, 12)


def test_rows_are_shown_where_members_have_their_own(data):
    X, y = data
    model = OLSEnsembleRegressor(10, 3, 0.5, random_state=0).fit(X, y)
    display = displays.SubsetDisplay.from_estimator(model)
    rows = np.asarray(display.rows_image_.get_array())
    for line, given in zip(rows, model.sample_subsets_, strict=True):
        assert np.flatnonzero(line).tolist() == given.tolist()
    figure, axes = plt.subplots(1, 2)
    assert (display.plot(axes).ax_, display.rows_ax_) == tuple(axes) and display.figure_ is figure
    all_rows = displays.SubsetDisplay.from_estimator(OLSEnsembleRegressor(5).fit(X, y), ax=plt.subplots(2)[1])
    assert all_rows.rows_ax_ is None and not all_rows.figure_.axes[1].has_data()


def test_many_columns_are_binned():
    X, y = linear_data(60, 50)
    model = OLSEnsembleRegressor(6, 10, random_state=0).fit(X, y)
    display = displays.SubsetDisplay.from_estimator(model, max_bins=20)
    assert display.columns.shape == (6, 20)
    bins = np.array([i * 20 // 50 for i in range(50)])
    first = [np.mean(np.isin(np.flatnonzero(bins == b), model.feature_subsets_[0])) for b in range(20)]
    np.testing.assert_allclose(display.columns[0], first)
    (bar,) = display.colorbars_
    assert bar.ax.get_ylabel() == "share used of 2-3 neighbouring columns"
    labels = [t.get_text() for t in display.ax_.get_xticklabels()]
    assert labels[0] == "x0" and labels[-1] == "x49" and len(labels) == 6
    with pytest.raises(ValueError, match=r"n_members.*0"):
        displays.SubsetDisplay.from_estimator(model, n_members=0)


# ConvergenceDisplay


def test_errors_are_those_of_the_first_members_and_their_mean_over_orders_that_of_all_pairs(data, ensemble):
    """Members are solved once more by the function that takes them as given."""
    X, y = data
    coef, intercept = member_coefficients(X[:60], y[:60], ensemble.feature_subsets_)
    display, k = displays.ConvergenceDisplay.from_estimator(ensemble, X[60:], y[60:]), np.arange(1, 31)
    errors = X[60:] @ coef.T + intercept - y[60:, None]
    expected = np.mean((np.cumsum(errors, axis=1) / k) ** 2, axis=0)
    np.testing.assert_array_equal(display.line_.get_xdata(), k)
    np.testing.assert_allclose(display.line_.get_ydata(), expected, rtol=1e-9)
    assert display.cv_line_ is None
    products = errors.T @ errors / 30
    own, pair = np.mean(np.diag(products)), (products.sum() - np.trace(products)) / (30 * 29)
    np.testing.assert_allclose(display.expected_line_.get_ydata(), pair + (own - pair) / k, rtol=1e-9)
    np.testing.assert_allclose(display.limit_line_.get_ydata(), pair, rtol=1e-9)


def test_all_members_have_the_error_of_the_ensemble(data):
    X, y = data
    for how in ({"scale": 0.7}, {"max_samples": 0.6}, {"fit_intercept": False}, {"max_samples": 0.6, "scale": 0.5}):
        model = OLSEnsembleRegressor(25, 4, random_state=0).set_params(**how).fit(X[:60], y[:60])
        expected = np.mean((model.predict(X[60:]) - y[60:]) ** 2)
        for rows in (X[60:], sp.csr_array(X[60:])):
            display = displays.ConvergenceDisplay.from_estimator(model, rows, y[60:])
            with case(how, type(rows)):
                np.testing.assert_allclose([display.error[-1], display.expected[-1]], expected, rtol=1e-9)


def test_stacked_members_keep_their_weights():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 20))
    y = 5.0 * X[:, 0] - 4.0 * X[:, 1] + 0.5 * rng.standard_normal(120)
    model = OLSEnsembleRegressor(40, 3, mixing="stacking", random_state=0).fit(X[:80], y[:80])
    assert np.ptp(model.weights_) > 0
    display = displays.ConvergenceDisplay.from_estimator(model, X[80:], y[80:])
    np.testing.assert_allclose(display.error[-1], np.mean((model.predict(X[80:]) - y[80:]) ** 2), rtol=1e-9)
    assert display.expected_line_ is None and display.limit_line_ is None


def test_members_in_several_batches(data, ensemble, monkeypatch):
    from olsen.displays import convergence

    X, y = data[0][60:], data[1][60:]
    whole = displays.ConvergenceDisplay.from_estimator(ensemble, X, y)
    monkeypatch.setattr(convergence, "AT_A_TIME", 8 * 30 * 7)  # seven members at a time
    parts = displays.ConvergenceDisplay.from_estimator(ensemble, X, y)
    np.testing.assert_allclose(parts.error, whole.error, rtol=1e-12)
    np.testing.assert_allclose(parts.expected, whole.expected, rtol=1e-12)


def test_cross_validated_errors_of_uniform_members_are_beside_it(data, tuned, mixed):
    X, y = data[0][60:], data[1][60:]
    for model in (tuned, mixed):
        display = displays.ConvergenceDisplay.from_estimator(model, X, y)
        np.testing.assert_allclose(display.error[-1], np.mean((model.predict(X) - y) ** 2), rtol=1e-9)
        if model is mixed:
            assert display.cv_line_ is None
        else:
            expected = [model.risk_curve(k)[model.best_index_] for k in (1, 40)]
            np.testing.assert_array_equal(display.cv_line_.get_ydata()[[0, 39]], expected)


def test_convergence_needs_training_rows_and_targets(data, ensemble, sent):
    X, y = data[0][60:], data[1][60:]
    draw = displays.ConvergenceDisplay.from_estimator
    for call, words in [
        (lambda: draw(sent, X, y), r"ConvergenceDisplay needs the training (rows|data)"),
        (lambda: draw(ensemble, X, y[1:]), "inconsistent numbers of samples"),
        (lambda: draw(ensemble, X, y, target=1), "target=1"),
    ]:
        with case(words), pytest.raises(ValueError, match=words):
            call()


# Several targets
# Several targets


def test_one_of_several_targets(two_targets):
    X, Y, model = two_targets
    coefficients = displays.CoefficientDisplay.from_estimator(model, target=1)
    np.testing.assert_array_equal(coefficients.coef, model.coef_[1])
    intervals = displays.IntervalDisplay.from_estimator(model, X[60:], Y[60:], target=1)
    np.testing.assert_array_equal(intervals.interval, model.predict_interval(X[60:])[:, 1])
    np.testing.assert_array_equal(intervals.y_true, Y[60:, 1])
    np.testing.assert_array_equal(intervals.y_pred, model.predict(X[60:])[:, 1])
    errors = np.mean((model.predict(X[60:]) - Y[60:]) ** 2, axis=0)
    one = displays.ConvergenceDisplay.from_estimator(model, X[60:], Y[60:], target=1)
    both = displays.ConvergenceDisplay.from_estimator(model, X[60:], Y[60:])
    np.testing.assert_allclose([one.error[-1], both.error[-1]], [errors[1], errors.mean()], rtol=1e-9)
    assert displays.SubsetDisplay.from_estimator(model).columns.shape == (20, 12)


def test_targets_with_members_of_their_own():
    X, Y = linear_data(targets=2)
    model = OLSEnsembleRegressorCV(30, random_state=0).fit(X[:60], Y[:60])
    for t in range(2):
        display = displays.ConvergenceDisplay.from_estimator(model, X[60:], Y[60:], target=t)
        expected = np.mean((model.predict(X[60:])[:, t] - Y[60:, t]) ** 2)
        np.testing.assert_allclose(display.error[-1], expected, rtol=1e-9)
        image = displays.SubsetDisplay.from_estimator(model, target=t).columns
        np.testing.assert_array_equal(np.flatnonzero(image[3]), model.feature_subsets_[t][3])
    with pytest.raises(ValueError, match=r"2 targets.*target=0 to 1"):
        displays.SubsetDisplay.from_estimator(model)


def test_subsets_of_infinitely_many_members(data):
    model = OLSEnsembleRegressorCV(random_state=0).fit(*data)
    assert displays.SubsetDisplay.from_estimator(model, n_members=5).columns.shape == (5, 12)
    with pytest.raises(ValueError, match="give n_estimators a number"):
        displays.ConvergenceDisplay.from_estimator(model, *data)


def test_a_target_has_to_be_chosen(two_targets):
    X, Y, model = two_targets
    for draw in (
        lambda target: displays.CoefficientDisplay.from_estimator(model, target=target),
        lambda target: displays.IntervalDisplay.from_estimator(model, X, Y, target=target),
    ):
        with pytest.raises(ValueError, match=r"2 targets.*target=0 to 1"):
            draw(None)
        with pytest.raises(ValueError, match=r"target=2.*2 target"):
            draw(2)
    with pytest.raises(ValueError, match="fitted to 2 targets"):
        displays.ConvergenceDisplay.from_estimator(model, X, Y[:, 0])


def test_several_targets_of_a_tuned_estimator():
    X, Y = linear_data(targets=2)
    model = OLSEnsembleRegressorCV(20, inclusion="uniform", random_state=0).fit(X, Y)
    display = displays.TuningCurveDisplay.from_estimator(model, X, Y)
    np.testing.assert_array_equal(display.line_.get_ydata(), model.cv_results_["mse"])
    penalties = np.logspace(-8, 4, 61) * len(Y)
    ridge = RidgeCV(penalties).fit(StandardScaler().fit_transform(X), Y)
    np.testing.assert_allclose(display.ridge, -ridge.best_score_)


def test_dollars_are_dollars(tmp_path):
    """Two of them in a name would begin and end a formula."""
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=["50% $ off_$", "$\\alpha_$", "US$"])
    model = OLSEnsembleRegressor(10, 2, random_state=0).fit(X, X.iloc[:, 0])
    for display in (displays.CoefficientDisplay, displays.SubsetDisplay):
        display.from_estimator(model).figure_.savefig(tmp_path / "a.png")


def test_ridge_beside_the_curve_is_of_the_same_columns():
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = OLSEnsembleRegressorCV(10, inclusion="uniform", random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"X has shape \(30, 2\), but the estimator was fitted on 3 columns"):
        displays.TuningCurveDisplay.from_estimator(model, X[:, :2], X[:, 0])
    dense, sparse = (displays.TuningCurveDisplay.from_estimator(model, A, X[:, 0]).ridge for A in (X, sp.csr_array(X)))
    assert dense == pytest.approx(sparse)
