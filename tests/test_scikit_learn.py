"""scikit-learn's own estimator checks: none fails, and none is expected to when all rows are used."""

import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from olsen import OLSEnsembleRegressor, OLSEnsembleRegressorCV

ALL_ROWS = [
    OLSEnsembleRegressor(n_estimators=10),
    OLSEnsembleRegressor(n_estimators=10, max_features=0.8, sampling="bernoulli", design="independent"),
    OLSEnsembleRegressor(n_estimators=10, max_features=1.0, fit_intercept=False),
    OLSEnsembleRegressor(n_estimators=7, solver="member_gram", warm_start=True),
    OLSEnsembleRegressor(n_estimators=7, solver="orthogonal", n_jobs=2, scale=0.7),
]
TUNED = [
    OLSEnsembleRegressorCV(n_estimators=10),
    OLSEnsembleRegressorCV(inclusion="uniform", design="independent", fit_intercept=False),
]
ROWS_DRAWN = [
    OLSEnsembleRegressor(n_estimators=10, max_samples=0.6),
    OLSEnsembleRegressor(n_estimators=10, max_samples=0.6, sampling="bernoulli"),
]
WEIGHTS_ARE_NOT_REPETITIONS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "a repeated row can be drawn twice, a weighted row only once"
    for kind in ("dense", "sparse")
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*rows repeat others", "ignore:members have .* columns:UserWarning", "ignore:y holds one value"
)


@parametrize_with_checks(ALL_ROWS)
def test_all_rows(estimator, check):
    check(estimator)


@parametrize_with_checks(TUNED)
def test_tuned(estimator, check):
    check(estimator)


@parametrize_with_checks(ROWS_DRAWN, expected_failed_checks=lambda _: WEIGHTS_ARE_NOT_REPETITIONS)
def test_rows_drawn(estimator, check):
    check(estimator)


def test_checks_of_arrays_of_other_libraries_run_too():
    """They are skipped unless SCIPY_ARRAY_API is set before scipy is imported, hence another process."""
    pytest.importorskip("array_api_strict")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "array_api", __file__]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"SCIPY_ARRAY_API": "1"})
    assert done.returncode == 0 and " skipped" not in done.stdout and "s" not in done.stdout.split()[0], done.stdout
