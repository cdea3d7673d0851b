"""Progress of a fit: lines that end with the total, and coefficients that do not depend on them."""

import io
import itertools
import re
import sys

import numpy as np
import pytest
from sklearn.base import clone

from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
)
from olsen._execution import messages

ESTIMATORS = {
    "members": OLSEnsembleRegressor(20, random_state=0),
    "members in threads": OLSEnsembleRegressor(150, n_jobs=2, random_state=0),
    "tuned": OLSEnsembleRegressorCV(20, random_state=0),
    "tuned by folds": OLSEnsembleRegressorCV(20, cv=3, n_jobs=2, random_state=0),
    "adaptive": AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0),
    "trained dropout": DropoutRegressor(solver="sgd", tol=0.05, random_state=0),
}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    return X, X[:, 0] + rng.standard_normal(60)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_verbose_fit_prints_lines_up_to_the_total(name, data, capsys):
    silent = clone(ESTIMATORS[name]).fit(*data)
    assert capsys.readouterr().out == ""
    model = clone(ESTIMATORS[name]).set_params(verbose=1).fit(*data)
    lines = capsys.readouterr().out.splitlines()
    pattern = r"\[(\w+)\] (members|steps): (\d+) of (\d+), \d+\.\d\d s"
    matches = [re.fullmatch(pattern, line) for line in lines]
    assert lines and all(match and match[1] == type(model).__name__ for match in matches)
    if name != "trained dropout":  # training ends before the last step
        assert matches[-1][3] == matches[-1][4]
    np.testing.assert_allclose(model.coef_, silent.coef_, rtol=1e-9, atol=1e-12)


def test_rows_of_an_iterator_are_counted_without_a_total(data, capsys):
    X, y = data
    blocks = ((X[i : i + 20], y[i : i + 20]) for i in range(0, 60, 20))
    OLSEnsembleRegressor(10, random_state=0, verbose=1).fit(blocks, None)
    lines = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [
        f"[OLSEnsembleRegressor] rows: {n} of an unknown number" for n in (20, 40, 60)
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_standard_errors_show_their_progress_on_a_terminal_only_if_they_take_long(
    data, monkeypatch, capsys
):
    """The clock runs fast; nothing is written into a pipe."""
    model = AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0).fit(*data)
    terminal = Terminal()
    clock = itertools.count(0.0, 0.1)
    monkeypatch.setattr(messages.time, "perf_counter", lambda: next(clock))
    for stream, has_lines in ((terminal, True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(sys, "__stderr__", stream)
        clone(model).fit(*data).coef_std()
        lines = stream.getvalue().split("\r")[1:]
        assert bool(lines) == has_lines
    lines = terminal.getvalue().split("\r")[1:]
    counts = [int(re.search(r"errors: (\d+) of 30", line)[1]) for line in lines[:-1]]
    assert counts == list(range(counts[0], 30))
    assert lines[-1] == "\033[K", "the line disappears"
    assert capsys.readouterr().out == ""
