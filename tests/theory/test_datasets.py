"""The embedded data set is complete, and shows where ensembles succeed."""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from olsen import OLSEnsembleRegressor
from olsen.datasets import load_soil_carbon


def test_soil_carbon_is_complete():
    soil = load_soil_carbon()
    assert soil.data.shape == (732, 700) and soil.target.shape == (732,)
    assert soil.feature_names[0] == "1100 nm" and soil.wavelength[-1] == 2498
    assert_allclose(soil.data[0, :3], [0.3386885, 0.3384545, 0.3382317], rtol=0, atol=1e-12)
    assert_allclose(soil.target[:5], [0.22, 0.9, 0.6, 1.28, 1.3])
    assert soil.data.min() > 0.16 and soil.data.max() < 0.93


def test_the_ensemble_succeeds_where_least_squares_fails():
    X, X_test, y, y_test = train_test_split(*load_soil_carbon(return_X_y=True), random_state=0)
    ensemble = OLSEnsembleRegressor(100, 0.1, random_state=0).fit(X, y)
    assert ensemble.score(X_test, y_test) > 0.7 > LinearRegression().fit(X, y).score(X_test, y_test)
    # neighbouring wavelengths are too alike for a Gram matrix alone: members are finished on the
    # data
    from_data = OLSEnsembleRegressor(100, 0.1, solver="orthogonal", random_state=0).fit(X, y)
    assert_allclose(
        ensemble.coef_, from_data.coef_, rtol=0, atol=1e-7 * np.abs(from_data.coef_).max()
    )
