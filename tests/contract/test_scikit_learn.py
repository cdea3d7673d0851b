"""scikit-learn's estimator checks pass; two about weights fail where members draw rows."""

import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import check_estimator

from olsen import (
    AdaptiveOLSEnsembleRegressor,
    DropoutRegressor,
    OLSEnsembleRegressor,
    OLSEnsembleRegressorCV,
)

ALL_ROWS = [
    OLSEnsembleRegressor(),
    OLSEnsembleRegressorCV(),
    AdaptiveOLSEnsembleRegressor(),
    DropoutRegressor(),
    OLSEnsembleRegressor(n_estimators=10),
    OLSEnsembleRegressor(
        n_estimators=10, max_features=0.8, sampling="bernoulli", design="independent"
    ),
    OLSEnsembleRegressor(n_estimators=10, max_features=1.0, fit_intercept=False),
    OLSEnsembleRegressor(n_estimators=7, solver="orthogonal", n_jobs=2, scale=0.7),
    OLSEnsembleRegressorCV(n_estimators=10),
    OLSEnsembleRegressorCV(design="independent", fit_intercept=False),
    OLSEnsembleRegressorCV(sampling="determinantal"),
    OLSEnsembleRegressorCV(n_estimators=10, sampling="determinantal", cv=2, scale=1.0),
    AdaptiveOLSEnsembleRegressor(n_estimators=10),
    AdaptiveOLSEnsembleRegressor(["ridge", "uniform"], fit_intercept=False),
]
ROWS_DRAWN = [
    OLSEnsembleRegressor(n_estimators=10, max_samples=0.6),
    OLSEnsembleRegressor(n_estimators=10, max_samples=0.6, sampling="bernoulli"),
]
WEIGHTS_ARE_NOT_REPETITIONS = {
    f"check_sample_weight_equivalence_on_{kind}_data": (
        "a repeated row can be drawn twice, a weighted row only once"
    )
    for kind in ("dense", "sparse")
}


@pytest.mark.filterwarnings(
    "ignore:.*rows repeat others",
    "ignore:members have .* columns:UserWarning",
    "ignore:y is constant",
)
@pytest.mark.parametrize("estimator", [*ALL_ROWS, *ROWS_DRAWN], ids=str)
def test_every_check_passes(estimator):
    expected = WEIGHTS_ARE_NOT_REPETITIONS if estimator in ROWS_DRAWN else {}
    checks = check_estimator(estimator, expected_failed_checks=expected, on_skip=None, on_fail=None)
    assert {
        check["check_name"]: check["exception"] for check in checks if check["status"] == "failed"
    } == {}
    assert {check["check_name"] for check in checks if check["status"] == "xfail"} == set(expected)
    assert {check["check_name"] for check in checks if check["status"] == "skipped"} <= {
        "check_array_api_input"
    }  # see below
    assert sum(check["status"] == "passed" for check in checks) > 40


ARRAY_API_CHECKS = """
from sklearn.utils.estimator_checks import check_array_api_input
from olsen import AdaptiveOLSEnsembleRegressor, DropoutRegressor, OLSEnsembleRegressor, OLSEnsembleRegressorCV
for estimator in (
    OLSEnsembleRegressor(),
    OLSEnsembleRegressorCV(),
    OLSEnsembleRegressorCV(sampling="determinantal"),
    AdaptiveOLSEnsembleRegressor(),
    AdaptiveOLSEnsembleRegressor(n_estimators=10),
    DropoutRegressor(),
):
    check_array_api_input(type(estimator).__name__, estimator, array_namespace="numpy")
    print("passed")
"""


def test_checks_of_arrays_of_other_libraries_run_too():
    """scikit-learn skips the checks unless SCIPY_ARRAY_API is set before scipy is imported."""
    pytest.importorskip("array_api_strict")
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ARRAY_API_CHECKS], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and done.stdout.count("passed") == 6, done.stdout + done.stderr
