"""Progress of a fit, as scikit-learn's callbacks see it: a tree of tasks that all end, and bars
that end at 100 %.
"""

import re
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from loops import case
from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
)

callback = pytest.importorskip("sklearn.callback")

ESTIMATORS = {
    "members": OLSEnsembleRegressor(20, random_state=0),
    "members in threads": OLSEnsembleRegressor(150, n_jobs=2, random_state=0),
    "members with rows of their own": OLSEnsembleRegressor(20, 3, 0.5, random_state=0),
    "stacked": OLSEnsembleRegressor(20, mixing="stacking", scale="auto", random_state=0),
    "tuned": OLSEnsembleRegressorCV(20, random_state=0),
    "tuned by folds": OLSEnsembleRegressorCV(20, cv=3, n_jobs=2, random_state=0),
    "tuned by gcv": OLSEnsembleRegressorCV(cv="gcv", random_state=0),
    "tuned determinantal": OLSEnsembleRegressorCV(20, sampling="determinantal", random_state=0),
    "adaptive": AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0),
    "adaptive by folds": AdaptiveOLSEnsembleRegressor(
        n_estimators=20, cv=3, n_jobs=2, random_state=0
    ),
    "dropout": DropoutRegressor(),
    "trained dropout": DropoutRegressor(solver="sgd", tol=0.05, random_state=0),
    "dropout out of steps": DropoutRegressor(solver="sgd", tol=1e-9, max_iter=300, random_state=0),
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def every_estimator():
    for name, estimator in ESTIMATORS.items():
        with case(name):
            yield clone(estimator)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    return X, X[:, 0] + rng.standard_normal(60)


class Record:
    """What a callback is told, in order: (event, path of the task, name, number of its sub-tasks)."""

    def __init__(self):
        self.told = []

    def setup(self, estimator, context):
        self.told.append(("setup", (), "", None))

    def teardown(self, estimator, context):
        self.told.append(("teardown", (), "", None))

    def on_fit_task_begin(self, estimator, context):
        self._tell("begin", context)

    def on_fit_task_end(self, estimator, context):
        self._tell("end", context)

    def _tell(self, event, context):
        path, above = [], context
        while above is not None:
            path.insert(0, above.task_id)
            above = above.parent
        self.told.append((event, tuple(path), context.task_name, context.max_subtasks))

    def tasks(self, event):
        return [told[1:] for told in self.told if told[0] == event]

    def stages(self):
        """Names of the stages, with their numbers of sub-tasks: those announced, and those that
        ended.
        """
        ended = [path for path, *_ in self.tasks("end")]
        below = {path: sum(other[:-1] == path for other in ended) for path in ended}
        return [
            (name, most, below[path]) for path, name, most in self.tasks("end") if len(path) == 2
        ]


def all_is_in_order(told):
    """One setup and one teardown around a tree of tasks, each of which ends once, after all that is
    in it.
    """
    assert [event for event, *_ in (told[0], told[-1])] == ["setup", "teardown"]
    open_tasks = []
    for event, path, *_ in told[1:-1]:
        if event == "begin":
            assert path[:-1] in open_tasks or len(path) == 1
            open_tasks.append(path)
        else:
            assert event == "end"
            open_tasks.remove(path)
            assert not any(other[: len(path)] == path for other in open_tasks)
    assert not open_tasks


def heard(model, *data):
    """What a callback was told of a fit, which is in order."""
    record = Record()
    assert model.set_callbacks(record).fit(*data) is model
    all_is_in_order(record.told)
    return record


def test_every_task_ends_once_within_its_parent_and_nothing_changes(data, capsys):
    """Coefficients and printed lines are those without callbacks, whose own context stays with the
    fit.
    """

    def lines():
        """But for the seconds. Chunks depend on how long others take, so of those in threads the
        last is compared.
        """
        found = [line.rpartition(",")[0] for line in capsys.readouterr().out.splitlines()]
        return {line.split(":")[0] for line in found}, found[-1]

    for estimator in every_estimator():
        alone = clone(estimator).set_params(verbose=1).fit(*data)
        printed = lines()
        stages = heard(estimator.set_params(verbose=1), *data).stages()
        assert lines() == printed
        assert stages and all(most is None or ended <= most for _, most, ended in stages)
        np.testing.assert_allclose(estimator.coef_, alone.coef_, rtol=1e-9, atol=1e-12)
        assert set(vars(estimator)) - set(vars(alone)) == {"_skl_callbacks"}


def test_members_are_tasks_and_many_of_them_one_for_each_percent(data):
    for k, tasks in ((1, 1), (7, 7), (100, 100), (101, 100), (555, 100)):
        with case(k):
            assert heard(OLSEnsembleRegressor(k, random_state=0), *data).stages() == [
                ("members", tasks, tasks)
            ]
            for make in (OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor):
                tuned = heard(make(n_estimators=k, random_state=0), *data)
                assert tuned.stages()[-1] == ("members", tasks, tasks)


def test_steps_are_tasks(data):
    """Training may end before the last step."""
    assert heard(DropoutRegressor(), *data).stages() == [("steps", 1, 1)]
    model = DropoutRegressor(solver="sgd", tol=0.05, random_state=0)
    stages = heard(model, *data).stages()
    assert model.n_iter_ < model.max_iter and stages == [
        ("steps", 100, 100 * model.n_iter_ // model.max_iter)
    ]


def test_blocks_of_an_unknown_number_of_rows_end_where_members_begin(data):
    X, y = data
    blocks = ((X[i : i + 20], y[i : i + 20]) for i in range(0, 60, 20))
    record = heard(OLSEnsembleRegressor(10, random_state=0), blocks, None)
    assert record.stages() == [("rows", None, 3), ("members", 10, 10)]
    of_stages = [(event, name) for event, path, name, _ in record.told if len(path) == 2]
    assert of_stages == [
        ("begin", "rows"),
        ("end", "rows"),
        ("begin", "members"),
        ("end", "members"),
    ]


def test_without_callbacks_no_context_is_made(data, monkeypatch):
    def refuse(self, **_):
        raise AssertionError("a context, although nobody listens")

    for estimator in every_estimator():
        monkeypatch.setattr(type(estimator), "_init_callback_context", refuse)
        estimator.fit(*data)


def test_callbacks_are_for_fits(data):
    """What is asked of a fitted model afterwards is no fit, and nobody would take callbacks down
    there.
    """
    record = Record()
    model = OLSEnsembleRegressor(10, random_state=0).set_callbacks(record).fit(*data)
    told = len(record.told)
    model.member_coefs()
    model.predict_interval(data[0])
    model.partial_fit(*data)
    assert len(record.told) == told


# Fits that fail


def test_callbacks_are_taken_down_when_a_fit_fails(data):
    for model, rows in (
        (OLSEnsembleRegressor(20, max_features=0), slice(None)),
        (OLSEnsembleRegressorCV(20), slice(0, 1)),
        (AdaptiveOLSEnsembleRegressor(n_estimators=20), slice(0, 1)),
        (DropoutRegressor(solver="sgd", learning_rate=1e9), slice(None)),
    ):
        record = Record()
        before = set(vars(model.set_callbacks(record)))
        with case(model), pytest.raises(ValueError):
            model.fit(*(array[rows] for array in data))
        events = [event for event, *_ in record.told]
        assert events[0] == "setup" and events[-1] == "teardown" and events.count("teardown") == 1
        assert 0 not in [
            len(path) - 1 for path, *_ in record.tasks("end")
        ]  # the fit itself did not get to its end
        assert set(vars(model)) == before


def test_a_callback_that_fails_is_taken_down_too(data):
    class Fails(Record):
        def on_fit_task_end(self, estimator, context):
            if len(self.told) > 12:
                raise RuntimeError("enough")
            super().on_fit_task_end(estimator, context)

    record = Fails()
    model = OLSEnsembleRegressor(20, random_state=0).set_callbacks(record)
    with pytest.raises(RuntimeError, match="enough"):
        model.fit(*data)
    assert record.told[-1][0] == "teardown"
    heard(model, *data)


# scikit-learn's own bar


def drawing():
    """Threads that draw a bar."""
    return [thread for thread in threading.enumerate() if "Progress" in type(thread).__name__]


def bars(text):
    """Bars as they stood at the end: (what, percentage)."""
    found = [re.match(r"\s*(.*?)\s+(?:━|╸|╺|\s)*\s(\d+)%", line) for line in text.splitlines()]
    return [(match[1], int(match[2])) for match in found if match]


@pytest.fixture
def show(capsys, monkeypatch):
    """Fit with the progress bar and return its last state; its thread must be gone."""
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", "200")

    def fit(model, *data, depth=None, by=None):
        model.set_callbacks(callback.ProgressBar(max_propagation_depth=depth))
        capsys.readouterr()
        try:
            (by or model.fit)(*data)
        finally:
            assert not drawing()
        return bars(capsys.readouterr().out)

    return fit


def test_bars_end_at_100_percent(data, show):
    for estimator in every_estimator():
        shown = show(estimator, *data)
        assert len(shown) > 1 and shown[0][0] == f"{type(estimator).__name__} - fit"
        assert {percent for _, percent in shown} == {100}
    for model in (
        OLSEnsembleRegressorCV(random_state=0),
        AdaptiveOLSEnsembleRegressor(random_state=0),
    ):
        for k in (20, 40, 40):  # the same estimator fitted again
            assert {percent for _, percent in show(model.set_params(n_estimators=k), *data)} == {
                100
            }
    for estimator in (
        OLSEnsembleRegressorCV(20),
        AdaptiveOLSEnsembleRegressor(n_estimators=20),
        DropoutRegressor(),
    ):
        shown = show(make_pipeline(StandardScaler(), estimator), *data, depth=1)
        assert any(f"{type(estimator).__name__} - fit" in what for what, _ in shown)
        assert {percent for _, percent in shown} == {100}


def test_bars_within_a_search_end_at_100_percent(data, show):
    model = make_pipeline(StandardScaler(), OLSEnsembleRegressor(30, random_state=0))
    for n_jobs in (None, 2):
        search = GridSearchCV(
            model, {"olsensembleregressor__max_features": [2, 4]}, cv=2, n_jobs=n_jobs
        )
        shown = show(search, *data)
        # four fits, and the last on all rows
        assert sum("OLSEnsembleRegressor - members" in what for what, _ in shown) == 5
        assert {percent for _, percent in shown} == {100}


def test_a_search_goes_on_where_fits_fail(data, show):
    search = GridSearchCV(OLSEnsembleRegressor(20, random_state=0), {"max_features": [2, 99]}, cv=2)
    with pytest.warns(FitFailedWarning), pytest.warns(UserWarning, match="non-finite"):
        shown = show(search, *data)
    assert shown[0] == ("GridSearchCV - fit", 100)
    assert search.best_params_ == {"max_features": 2}


def test_every_fit_of_a_cross_validation_has_its_own_bar(data, show):
    """`cross_val_score` knows no callbacks: they are the estimator's, and each fit sets them up and
    takes them down.
    """
    model = OLSEnsembleRegressor(20, random_state=0)
    shown = show(model, *data, by=lambda X, y: cross_val_score(model, X, y, cv=3))
    assert (
        shown
        == [
            ("OLSEnsembleRegressor - fit", 100),
            ("OLSEnsembleRegressor - members #0", 100),
        ]
        * 3
    )


def test_the_bar_of_a_fit_that_fails_ends_where_it_was(data, show, capsys):
    with pytest.raises(ValueError, match="max_features"):
        show(OLSEnsembleRegressor(20, max_features=99), *data)
    assert bars(capsys.readouterr().out) == [("OLSEnsembleRegressor - fit", 0)]


# scikit-learn without callbacks

OLD = """
import sys, numpy as np, sklearn, sklearn.linear_model
sys.modules["sklearn.callback"] = None  # as before 1.9
del sklearn.callback
from olsen import AdaptiveOLSEnsembleRegressor, DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
X = np.random.default_rng(0).standard_normal((40, 5))
ensembles = [make(n_estimators=20, verbose=1) for make in (
    OLSEnsembleRegressor, OLSEnsembleRegressorCV, AdaptiveOLSEnsembleRegressor
)]
for model in (*ensembles, DropoutRegressor(verbose=1)):
    assert not hasattr(model, "set_callbacks")
    model.fit(X, X[:, 0])
"""


def test_before_callbacks_there_were_lines():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OLD)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    for line in (
        "[OLSEnsembleRegressor] members: 20 of 20",
        "[OLSEnsembleRegressorCV] members: 20 of 20",
        "[AdaptiveOLSEnsembleRegressor] members: 20 of 20",
        "[DropoutRegressor] steps: 1 of 1",
    ):
        assert line in done.stdout
