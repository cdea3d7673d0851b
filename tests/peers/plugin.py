"""pytest plugin: puts the stand-ins where scikit-learn's test files import from, and notes the fate of every test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import adapters
import pytest
import sklearn.ensemble
import sklearn.linear_model
import sklearn.linear_model._ridge
import sklearn.neighbors
import sklearn.svm
import sklearn.tree

SWAPPED = {
    sklearn.linear_model: ["LinearRegression", "Ridge", "ridge_regression"],
    sklearn.linear_model._ridge: ["Ridge"],  # the one that RidgeCV searches with
    sklearn.ensemble: ["BaggingRegressor", "BaggingClassifier"],
}
# Members of bagging: scikit-learn's tests happen to take these, the claims are about the ensemble.
MEMBERS = {sklearn.tree: "DecisionTreeRegressor", sklearn.neighbors: "KNeighborsRegressor"}
RESULTS = pytest.StashKey[list[dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write what became of the tests."""
    parser.addoption("--peers-results", type=Path, required=True)
    parser.addoption("--peers-members", action="store_true", help="swap the members of bagging, too")


def pytest_configure(config: pytest.Config) -> None:
    """Swap before any test file is imported."""
    config.stash[RESULTS] = []
    for module, names in SWAPPED.items():
        for name in names:
            assert hasattr(module, name), f"scikit-learn has no {module.__name__}.{name} any more"
            setattr(module, name, getattr(adapters, name))
    if config.getoption("--peers-members"):
        for module, name in MEMBERS.items():
            setattr(module, name, adapters.LinearRegression)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Count the fits of one test."""
    adapters.fits = 0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Note the outcome, the reason of a skip and whether olsen was there."""
    report = yield
    if report.when == "call" or report.outcome != "passed":
        outcome, why = report.outcome, ""
        if report.skipped:
            xfail = getattr(report, "wasxfail", None)
            outcome = "skipped" if xfail is None else "xfailed"
            why = (report.longrepr[2] if isinstance(report.longrepr, tuple) else "") if xfail is None else xfail
        elif report.failed:
            why = str(call.excinfo.value).strip().split("\n")[0][:200] if call.excinfo else ""
        expected_to_fail = item.get_closest_marker("xfail") is not None
        found = {"test": item.name, "outcome": outcome, "why": why, "fits": adapters.fits}
        found["expected_to_fail"] = expected_to_fail
        item.config.stash[RESULTS].append(found)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the notes over."""
    out = session.config.getoption("--peers-results")
    out.write_text(json.dumps(session.config.stash[RESULTS]))
