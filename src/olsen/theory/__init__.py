r"""What risk will this ensemble have? Formulas of the paper, corrected, and the ones it leaves
open.

`limits`, `ridge`: n and p to infinity, identity covariance. `finite`: exact expectations at given
n, p, k. `interpolators`: members with fewer rows than columns. `covariance`: any covariance and
signal. `inclusion`: a probability for each column. Risks are noise-free excess risks; arguments are
the paper's letters and broadcast like NumPy ufuncs. Every docstring states whether its formula is a
theorem, exact, asymptotic or heuristic.
"""

from .averages import covariance_risk
from .covariance import (
    covariance_row_path,
    effective_penalty,
    pair_risk,
    pair_risks,
    ridge_covariance_risk,
)
from .finite import (
    expected_bias,
    expected_risk,
    expected_variance,
    overlap_bias,
    overlap_variance,
)
from .inclusion import (
    diagonal_risk,
    expected_diagonal_risk,
    optimal_probabilities,
    ridge_matched_probabilities,
)
from .interpolators import minimum_norm_risk
from .limits import (
    better_side,
    limiting_bias,
    limiting_risk,
    limiting_risk_derivative,
    limiting_variance,
    optimal_alpha,
    required_members,
)
from .members import best_weights, expected_pair_risks, limiting_pair_risks
from .ridge import (
    alpha_from_penalty,
    column_path,
    optimal_ridge_penalty,
    optimal_ridge_risk,
    penalty_from_alpha,
    ridge_risk,
    row_path,
)
from .scaling import optimal_mu, optimally_scaled_risk, scaled_risk
from .sizes import optimal_n_features, optimal_shape

__all__ = [
    "alpha_from_penalty",
    "best_weights",
    "better_side",
    "column_path",
    "covariance_risk",
    "covariance_row_path",
    "diagonal_risk",
    "effective_penalty",
    "expected_bias",
    "expected_diagonal_risk",
    "expected_pair_risks",
    "expected_risk",
    "expected_variance",
    "limiting_bias",
    "limiting_pair_risks",
    "limiting_risk",
    "limiting_risk_derivative",
    "limiting_variance",
    "minimum_norm_risk",
    "optimal_alpha",
    "optimal_mu",
    "optimal_n_features",
    "optimal_probabilities",
    "optimal_ridge_penalty",
    "optimal_ridge_risk",
    "optimal_shape",
    "optimally_scaled_risk",
    "overlap_bias",
    "overlap_variance",
    "pair_risk",
    "pair_risks",
    "penalty_from_alpha",
    "required_members",
    "ridge_covariance_risk",
    "ridge_matched_probabilities",
    "ridge_risk",
    "row_path",
    "scaled_risk",
]
