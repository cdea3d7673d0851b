"""pytest plugin: puts the stand-ins where scikit-learn's test files import from, and judges every
test.

A test passes if it passes with a fit of olsen in it. One that fails or fits nothing of ours fails,
unless it is listed in ``not_applicable.py``; then it is skipped, with the reason that stands there.
An entry of the list that matches no test, or one that passes with olsen in it, fails as well.
"""

import re
from collections import Counter

import adapters
import pytest
import sklearn.linear_model
from not_applicable import LISTED

UNSAID = "scikit-learn skips this combination itself, without a reason"
REASONS = Counter()
UNMATCHED = set(LISTED)


def pytest_configure(config):
    """Swap before any test file is imported; RidgeCV searches with the Ridge of a private module."""
    for module, name in (
        (sklearn.linear_model, "LinearRegression"),
        (sklearn.linear_model, "Ridge"),
        (sklearn.linear_model, "ridge_regression"),
        (sklearn.linear_model._ridge, "Ridge"),
    ):
        assert hasattr(module, name), f"scikit-learn has no {module.__name__}.{name} any more"
        setattr(module, name, getattr(adapters, name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "setup" and report.passed:
        adapters.FITS.clear()
    if call.when != "call" and report.outcome != "skipped":
        return report
    entry = next((pattern for pattern in LISTED if re.fullmatch(pattern, item.name)), None)
    UNMATCHED.discard(entry)
    ours = report.passed and bool(adapters.FITS)
    why = ""
    if entry and ours:
        report.outcome = "failed"
        report.longrepr = f"{item.name}: listed as not applicable, but passes"
    elif report.passed and not ours and not entry:
        report.outcome = "failed"
        report.longrepr = f"{item.name}: passes without us, and is not listed"
    elif entry:
        report.outcome = "skipped"
        why = LISTED[entry]
        report.longrepr = (str(item.path), 0, why)
    elif report.skipped:
        why = getattr(report, "wasxfail", None) or report.longrepr[2].removeprefix("Skipped: ")
        why = UNSAID if why in ("", "Skipped") else why
    REASONS[why or ("passed" if report.passed else "failed")] += 1
    REASONS["passed, and marked as failing there"] += (
        ours and item.get_closest_marker("xfail") is not None
    )
    return report


def pytest_sessionfinish(session):
    if UNMATCHED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Counts by reason, the list of entries without a test, and the version."""
    terminalreporter.section(f"olsen in the tests of scikit-learn {sklearn.__version__}")
    for reason, count in REASONS.most_common():
        terminalreporter.write_line(f"{count:5d}  {reason}")
    for pattern in sorted(UNMATCHED):
        terminalreporter.write_line(f"{pattern}: listed, but there is no such test")
