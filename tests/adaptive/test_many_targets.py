"""Many targets share everything that depends on X alone, and each has the choice that it has alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from olsen import AdaptiveOLSEnsembleRegressor
from olsen._data.standardised import StandardisedMoments, StandardisedRows
from olsen._members.penalised import MIN_BATCHED_TARGETS, NormalEquations, solve, solve_penalised

Q = MIN_BATCHED_TARGETS + 1


def table(seed, n, p):
    """Columns with a factor and a copy, and targets from noise alone to hardly any."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 2
    X[:, :4] = np.eye(4)[rng.integers(0, 4, n)]
    X[:, 6] = X[:, 5]
    B = rng.standard_normal((p, Q)) * (rng.random((p, Q)) < np.linspace(0, 1, Q))
    signal = X @ B
    spread = np.where(signal.std(axis=0) > 0, signal.std(axis=0), 1.0)
    return X, signal / spread + rng.standard_normal((n, Q)) * np.geomspace(0.3, 5, Q)


@pytest.mark.parametrize("shape", [(1050, 20), (80, 12), (24, 40)])
@pytest.mark.parametrize("cv", [None, 3])
def test_a_target_has_the_choice_that_it_has_alone(shape, cv, seed):
    X, Y = table(seed, *shape)
    model = AdaptiveOLSEnsembleRegressor(cv=cv, random_state=0).fit(X, Y)
    for t in range(0, Q, 4):
        alone = AdaptiveOLSEnsembleRegressor(cv=cv, random_state=0).fit(X, Y[:, t])
        assert model.scheme_weights_[t] == pytest.approx(alone.scheme_weights_, abs=1e-6)
        assert_allclose(model.coef_[t], alone.coef_, atol=1e-6 * np.abs(alone.coef_).max())
        assert_allclose(model.intercept_[t], alone.intercept_, rtol=1e-6)
        assert_allclose(model.cv_prediction_[:, t], alone.cv_prediction_, rtol=1e-6, atol=1e-6)
        assert_allclose(model.selection_frequency_[t], alone.selection_frequency_)


@pytest.mark.parametrize("kind", ["moments", "rows"])
def test_krylov_spaces_that_grow_together_solve_every_system(kind, seed):
    """Also the systems of zero targets, of few columns, and those that need more steps than allowed."""
    rng = np.random.default_rng(seed)
    n, p = (60, 20) if kind == "moments" else (30, 50)
    X = rng.standard_normal((n, p)) * np.geomspace(1, 1e-3, p)
    X -= X.mean(axis=0)
    Y = rng.standard_normal((n, Q))
    Y[:, 1] = 0.0
    variances = rng.random((p, Q))
    variances[3:, 2] = 0.0
    variances[:, 3] = 0.0
    penalties = np.geomspace(1, 1e-5, 3)[:, None] * np.linspace(1, 2, Q)
    squares = np.sum(X * X, axis=0)
    train = (
        StandardisedMoments(X.T @ X, X.T @ Y, squares, n, float(n))
        if kind == "moments"
        else StandardisedRows(np.asfortranarray(X), Y, np.ones(n), null_rank=1)
    )
    together = solve_penalised(train, variances, penalties, 0.0)
    for t in range(Q):
        equations = NormalEquations.of(train.targets_at(np.array([t])), variances[:, t])
        expected = solve(equations, penalties[:, t])[:, :, 0]
        assert_allclose(together[:, :, t], expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
