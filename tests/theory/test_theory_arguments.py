"""What `theory` and `equivalence` refuse: every numeric argument of every public function, found by
introspection.

`VALUES` has a value for each argument; an argument without a value fails, and so does a function
that returns anything for a number outside its assumptions.
"""

import inspect
import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from loops import case
from olsen import equivalence, theory

AR = 0.6 ** np.abs(np.subtract.outer(np.arange(5), np.arange(5)))
X = np.random.default_rng(0).standard_normal((15, 6))
VALUES = {
    "alpha": 0.4,
    "gamma": 1.5,
    "sigma": 0.7,
    "k": 3,
    "eta": 0.8,
    "mu": 0.9,
    "beta_norm": 2.0,
    "lam": 0.5,
    "penalty": 0.5,
    "excess": 0.01,
    "budget": 1e5,
    "of": "operations",
    "risk": 4.5,
    "shrinkage": 0.5,
    "n": 20,
    "p": 12,
    "n_features": 5,
    "n_samples": 15,
    "sampling": "fixed",
    "design": "balanced",
    "overlap": 5,
    "left_out": 0.5,
    "shared_rows": 11.25,
    "rows_i": 15,
    "rows_j": 16,
    "features_i": [0, 1],
    "features_j": [1, 3],
    "features": [[0, 1], [1, 3]],
    "rows": [15, 16],
    "risks": [[1.0, 0.2], [0.2, 0.5]],
    "nonnegative": False,
    "Sigma": AR,
    "Sigma_test": AR[::-1, ::-1] + np.eye(5),
    "beta": np.array([1.0, -0.5, 0.1, 0.3, 0.2]),
    "variances": [1.0, 2.0, 0.5, 1.0, 1.0],
    "eigenvalues": [1.0, 2.0, 0.5],
    "probabilities": [0.5, 0.2, 0.9, 0.4, 0.1],
    "n_subsets": 8,
    "rng": 0,
    "return_std": False,
    "X": X,
    "max_features": 0.4,
    "center": True,
    "check_collinear": True,
}
OTHER_VALUES = {
    "covariance_row_path": {"n_samples": 9.5},
    "effective_penalty": {"n_samples": 2.5, "penalty": 0.1},
    "minimum_norm_risk": {"p": 60, "n_features": 40},
    "pair_risk": {"shared_rows": 12.0},
    "required_members": {"eta": 1.0},
    "row_path": {"eta": 0.95},
    "column_path": {"alpha": 0.9},
    "determinantal_risk": {"beta": [1.0, -0.5, 0.2, 0.0, 0.0, 0.3], "Sigma": np.eye(6)},
}
NAMES = [*theory.__all__, *equivalence.__all__]


def function_of(name):
    return getattr(theory, name, None) or getattr(equivalence, name)


def parameters_of(name):
    return inspect.signature(function_of(name)).parameters


VALID = {
    name: {parameter: VALUES[parameter] for parameter in parameters_of(name)}
    | OTHER_VALUES.get(name, {})
    for name in NAMES
}
NOT_NUMBERS = {"rng", "return_std", "center", "check_collinear", "nonnegative"}
WORDS = {"sampling", "design", "of"}
MAY_BE_NEGATIVE = {"mu", "beta", "shrinkage", "X"}
NAMED_WITHOUT_VALUE = {"X", "Sigma", "Sigma_test", "max_features"}
MAY_BE_INFINITE = {"k", "risk"}
MAY_BE_LARGE = {"n", "p", "n_samples", "excess"}  # still only where the result is a number
COUNTS = {
    "k",
    "p",
    "n_features",
    "overlap",
    "n_subsets",
    "rows_i",
    "rows_j",
    "features_i",
    "features_j",
    "features",
    "rows",
}
RESULTS_WITHOUT_SIGN = {"limiting_risk_derivative", "pair_risk", "better_side"}
NOT_OF_ONE_SHAPE = {  # matrices of pairs, or a tuple
    "expected_pair_risks",
    "limiting_pair_risks",
    "pair_risks",
    "optimal_shape",
}
# formulas in which rows are a divisor, documented as asymptotic
REAL_ROWS = {
    "covariance_row_path",
    "diagonal_risk",
    "effective_penalty",
    "optimal_probabilities",
    "ridge_covariance_risk",
    "ridge_matched_probabilities",
}


def arguments(kind):
    """Every (function, argument) of a kind."""
    for name in NAMES:
        for parameter in parameters_of(name):
            if kind(name, parameter):
                yield name, parameter


def numeric(name, parameter):
    return parameter not in NOT_NUMBERS | WORDS


def counted(name, parameter):
    return parameter in COUNTS or (parameter in {"n", "n_samples"} and name not in REAL_ROWS)


def call(name, **changes):
    return function_of(name)(**(VALID[name] | changes))


def spoilt(value, wrong):
    """`value` with `wrong` in place of its first entry."""
    if np.ndim(value) == 0:
        return wrong
    value = np.array(value, dtype=float)
    value[(0,) * value.ndim] = wrong
    return value


def refusal(name, parameter, wrong):
    """The error that refuses `wrong` in one argument, or None where there is a result: without nan,
    or this fails.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            result = call(name, **{parameter: spoilt(VALID[name][parameter], wrong)})
    except ValueError as error:
        assert not isinstance(error, np.linalg.LinAlgError), "an accident, not a check"
        return error
    if name != "better_side":
        assert not np.any(np.isnan(result))
    return None


def test_every_function_has_a_valid_call_with_all_its_arguments():
    for name in NAMES:
        with case(name):
            result = call(name)
            if name not in RESULTS_WITHOUT_SIGN:
                assert np.all(np.isfinite(result)) and np.all(np.asarray(result) >= 0)


def test_docstrings_have_formula_status_and_example():
    for name in NAMES:
        text = inspect.getdoc(function_of(name))
        assert (":math:`" in text or ".. math::" in text) and "Status:" in text and ">>>" in text, (
            name
        )


def test_impossible_numbers_are_refused_and_overflow_is_never_nan():
    for (name, parameter), wrong in product(arguments(numeric), [np.nan, -np.inf, -1.0, np.inf]):
        with case(name, parameter, wrong):
            error = refusal(name, parameter, wrong)
            if (wrong == -1 and parameter in MAY_BE_NEGATIVE) or (
                wrong == np.inf and parameter in MAY_BE_INFINITE
            ):
                assert error is None
                continue
            assert parameter in str(error)
            assert f"{wrong:g}" in str(error) or parameter in NAMED_WITHOUT_VALUE
    for (name, parameter), wrong in product(
        arguments(numeric), [1e200, 1e-200, -1e200, 5e-324, 1e308]
    ):
        with case(name, parameter, wrong):
            if refusal(name, parameter, wrong) is None:
                assert wrong in (1e-200, 5e-324) or parameter in MAY_BE_LARGE


def test_counts_are_whole():
    for name, parameter in arguments(lambda *pair: numeric(*pair) and counted(*pair)):
        with case(name, parameter):
            error = refusal(name, parameter, np.ravel(VALID[name][parameter])[0] + 0.5)
            assert parameter in str(error) and "whole" in str(error)


def test_rows_of_asymptotic_formulas_are_real_numbers():
    for name in REAL_ROWS:
        rows = "n" if "n" in VALID[name] else "n_samples"
        below, between, above = (call(name, **{rows: value}) for value in (10, 10.5, 11))
        assert np.all((below - between) * (between - above) > 0), name


def test_wrong_kinds_are_refused():
    for (name, parameter), wrong in product(arguments(numeric), ["much", 1j, [["ragged"], []]]):
        with case(name, parameter, wrong), pytest.raises((TypeError, ValueError)):
            call(name, **{parameter: wrong})
    words = arguments(lambda name, parameter: parameter in WORDS)
    for (name, parameter), wrong in product(words, ["", "Fixed", None, 3, ["fixed"]]):
        with (
            case(name, parameter, wrong),
            pytest.raises(ValueError, match=rf"{parameter} must be one of \('"),
        ):
            call(name, **{parameter: wrong})


def broadcasting(name, parameter):
    """Arguments that are documented to broadcast: numbers of functions that do not say otherwise."""
    if name in equivalence.__all__ or (name, parameter) == ("covariance_risk", "alpha"):
        return False  # an array there means one entry for each column
    if name in NOT_OF_ONE_SHAPE:
        return False
    annotation = str(parameters_of(name)[parameter].annotation)
    return (
        numeric(name, parameter) and np.ndim(VALID[name][parameter]) == 0 and "Array" in annotation
    )


def test_one_wrong_entry_of_an_array_is_found():
    for name, parameter in arguments(broadcasting):
        with case(name, parameter):
            value = VALID[name][parameter]
            of_scalars = call(name)
            of_array = call(name, **{parameter: np.full((2, 3), value)})
            assert isinstance(of_scalars, float | str | int)
            assert np.shape(of_array) == (2, 3)
            assert np.all(np.asarray(of_array) == of_scalars)
            with pytest.raises(ValueError, match=r"nan"):
                call(name, **{parameter: np.where(np.eye(2, 3) == 0, value, np.nan)})


# covariances


def test_matrices_that_are_no_covariances_are_refused():
    lopsided = AR.copy()
    lopsided[0, 1] += 1e-6
    impossible = np.where(np.eye(5), 1.0, -0.5)  # correlations of -1/2 between five columns
    isolated = AR.copy()
    isolated[2, 2] = 0.0
    wrong = [
        (-np.eye(5), r"variance.*-1\.0"),
        (-np.ones(5), r"variance.*-1\.0"),
        (lopsided, r"symmetric.*0\.6"),
        (impossible, r"positive semidefinite.*-1\."),
        (isolated, r"positive semidefinite.*-0\."),
        (np.where(np.eye(5), 1.0, np.nan), "finite"),
        (np.ones((5, 4)), "p x p"),
        (np.ones((2, 5, 5)), "p x p"),
        (np.float64(1.0), "p x p"),
        (np.zeros((0, 0)), "at least one column"),
    ]
    for name, argument in product(theory.__all__, ["Sigma", "Sigma_test"]):
        for Sigma, words in wrong if argument in VALID[name] else ():
            with case(name, words), pytest.raises(ValueError, match=f"{argument}.*{words}"):
                call(name, **{argument: Sigma})


def test_rounding_of_singular_covariances_is_forgiven_in_any_units():
    """Covariances of fewer rows than columns are singular, and rounding makes their eigenvalues
    negative.
    """
    for p, scale in product([2, 10, 60], [1.0, 1e-20, 1e20]):
        rng = np.random.default_rng(p)
        units = scale * np.logspace(-3, 3, p)
        for rows in range(1, p, max(1, p // 10)):
            with case(p, scale, rows):
                Sigma = np.cov((rng.standard_normal((rows + 1, p)) * units).T)
                probabilities = theory.ridge_matched_probabilities(
                    Sigma, 0.1 * np.trace(Sigma), n=30
                )
                assert np.all((probabilities >= 0) & (probabilities <= 1))
                rough = Sigma - 1e-6 * np.diag(
                    np.diag(Sigma)
                )  # correlations with the eigenvalue -1e-6
                with pytest.raises(ValueError, match="positive semidefinite"):
                    theory.ridge_matched_probabilities(rough, 0.1 * np.trace(Sigma), n=30)


def test_members_on_collinear_columns_need_a_penalty():
    Sigma = np.ones((3, 3))
    options = {
        "beta": np.ones(3),
        "features_i": [0, 1],
        "features_j": [0, 1],
        "sigma": 1.0,
        "n": 20,
    }
    with pytest.raises(ValueError, match=r"\[0, 1\].*penalty"):
        theory.pair_risk(Sigma, **options)
    assert 0 < theory.pair_risk(Sigma, **options, penalty=1.0) < np.inf
    with pytest.raises(ValueError, match="singular"):
        theory.pair_risk([1.0, 0.0, 1.0], **options)
    for features in ([0, 0], [5], [-1], [[0, 1]], [True, False], 2):
        with case(features), pytest.raises(ValueError, match="features_i"):
            call("pair_risk", features_i=features)


def test_constant_columns_have_no_degrees_of_freedom():
    for penalty in (0.0, 2.0):
        with_constant = theory.ridge_matched_probabilities([1.0, 0.0, 2.0], penalty, n=10)
        without = theory.ridge_matched_probabilities([1.0, 2.0], penalty, n=10)
        assert_allclose(with_constant, [without[0], 0, without[1]], atol=1e-14)
    assert theory.effective_penalty([1.0, 0.0, 0.0], 2) == 0  # as many rows as columns that vary
    assert theory.effective_penalty([0.0, 0.0], 2, 3.0) == 1.5


CONTRADICTIONS = [  # what the message names
    ("overlap_variance", {"n_samples": 21, "shared_rows": None}, "cannot exceed n"),
    ("overlap_variance", {"shared_rows": 9}, "shared_rows from 9"),
    ("overlap_bias", {"shared_rows": 16}, "shared_rows"),
    ("overlap_bias", {"overlap": 25}, "theory.minimum_norm_risk"),
    ("minimum_norm_risk", {"n_samples": 21}, "cannot exceed n"),
    ("pair_risk", {"shared_rows": 10}, "at least 11; got 10"),
    ("pair_risk", {"beta": np.ones(4)}, "beta"),
    ("pair_risk", {"rows_i": 5, "shared_rows": 6}, "shared_rows <= rows <= n"),
    ("covariance_risk", {"eta": 0.01}, "n = 20"),
    ("covariance_risk", {"alpha": np.full(4, 0.5)}, "p = 5"),
    ("diagonal_risk", {"probabilities": 0.5}, "one entry for each column"),
    ("diagonal_risk", {"beta": [1.0, 2.0]}, "beta.*one entry for each column"),
    ("diagonal_risk", {"n": 1.5}, "theory.covariance_risk"),
    ("expected_diagonal_risk", {"n": 2}, "covariance_risk"),
    (
        "expected_diagonal_risk",
        {"probabilities": [1, 1, 1, 0, 0], "n": 4},
        "n - 2 = 2 .*probability 0",
    ),
    ("expected_risk", {"n_features": 13}, "n_features"),
    ("expected_risk", {"n": 10, "n_samples": 5, "n_features": 12}, "minimum_norm_risk"),
    (
        "expected_risk",
        {"n": 5, "n_samples": 5, "n_features": 12, "sampling": "bernoulli"},
        "every subset is rejected",
    ),
    ("optimal_probabilities", {"variances": [1.0, 2.0]}, "variances.*one entry for each column"),
    ("optimal_probabilities", {"sigma": 0.0}, "noise"),
    ("scaled_risk", {"risk": 0.2}, r"at least \(1 - delta\)\*\*2"),
    ("optimal_n_features", {"n": [20, 30]}, "n must be one number"),
    ("pair_risk", {"n": [20, 30]}, "n must be one number"),
    ("required_members", {"sigma": 0.1, "gamma": 1.0, "eta": 0.5}, "eta"),
    ("limiting_risk_derivative", {"alpha": 0.9, "gamma": 2.0}, "limiting_risk"),
    ("penalty_from_alpha", {"alpha": 0.9, "gamma": 2.0}, "eta / gamma"),
    ("isotropic_penalty", {"X": np.zeros((0, 4))}, "rows and columns"),
]


def test_contradictions_are_named():
    for name, changes, words in CONTRADICTIONS:
        with case(name, changes), pytest.raises(ValueError, match=words):
            call(name, **changes)
    with pytest.raises(ValueError, match=r"theory\.diagonal_risk"):  # too much to enumerate
        theory.expected_diagonal_risk(1.0, np.ones(5000), np.full(5000, 0.4), 1.0, n=2010)


def test_infinite_expectations():
    options = {"n": 10, "p": 30, "n_features": 9, "k": 2}
    assert theory.expected_bias(**options, beta_norm=0.0) == 0
    assert (
        theory.expected_risk(**options, sigma=1.0)
        == theory.expected_risk(**options, sigma=1.0, beta_norm=0.0)
        == np.inf
    )
    assert (
        theory.expected_risk(**options, sigma=0.0, beta_norm=0.0)
        == theory.expected_variance(**options, sigma=0.0)
        == 0
    )
    assert theory.pair_risk(np.eye(9), np.ones(9), np.arange(5), np.arange(5), 1.0, n=5) == np.inf
    options = {"n": 5, "k": 2, "rng": 0, "n_subsets": 8, "return_std": True}
    assert theory.covariance_risk(np.ones(9), np.ones(9), 5 / 9, 1.0, **options) == (np.inf, np.inf)


def test_the_best_scale_of_very_few_columns():
    """The formula of the paper in rational numbers; in floating point, risk + 2 alpha - 1 is a
    difference of ones.
    """
    for power, k in product([9, 10, 20, 30, 60, 500], [1, 7, np.inf]):
        with case(power, k):
            alpha = 2.0**-power
            a = Fraction(alpha)
            gamma = Fraction(3, 2)
            eta = Fraction(3, 4)
            noise = Fraction(1, 4)
            pair = ((1 - a) ** 2 + noise * a**2 * gamma) / (1 - a**2 * gamma)
            single = (eta * (1 - a) + noise * a * gamma) / (eta - a * gamma)
            risk = pair + (0 if k == np.inf else (single - pair) / k)
            best = a / (risk + 2 * a - 1)
            options = {"k": k, "eta": 0.75}
            assert theory.optimal_mu(alpha, 1.5, 0.5, **options) == pytest.approx(
                float(best), rel=1e-9
            )
            lowest = theory.optimally_scaled_risk(alpha, 1.5, 0.5, **options)
            assert lowest == pytest.approx(float(1 - best * a), rel=1e-9)


# any valid numbers

fractions = st.floats(0, 1)
ratios = st.floats(1e-50, 1e50)
penalties = st.just(0.0) | ratios
prior_variances = st.floats(0, 1e50)
members = st.integers(1, 2**53) | st.just(np.inf)
row_fractions = st.floats(1e-50, 1)


def is_a_risk(value, *, unit=1.0):
    return not np.any(np.isnan(value)) and np.all(np.asarray(value) >= -1e-12 * unit)


@settings(max_examples=300, deadline=None)
@given(alpha=fractions, gamma=ratios, sigma=prior_variances, k=members, eta=row_fractions)
def test_limits_are_risks_for_all_letters(alpha, gamma, sigma, k, eta):
    options = {"k": k, "eta": eta}
    bias = theory.limiting_bias(alpha, gamma, **options)
    variance = theory.limiting_variance(alpha, gamma, sigma, **options)
    assert is_a_risk(bias) and is_a_risk(variance)
    assert is_a_risk(theory.limiting_risk(alpha, gamma, sigma, **options))
    best = theory.optimal_alpha(gamma, sigma, **options)
    assert 0 <= best <= min(1, eta / gamma)
    assert (
        is_a_risk(theory.optimal_ridge_risk(gamma, sigma))
        and theory.optimal_ridge_risk(gamma, sigma) <= 1 + 1e-12
    )
    assert is_a_risk(theory.optimal_ridge_penalty(gamma, sigma))
    assert theory.better_side(gamma, sigma) in ("rows", "features")
    if alpha * gamma < eta:
        assert np.isfinite(theory.limiting_risk_derivative(alpha, gamma, sigma, **options))


@settings(max_examples=200, deadline=None)
@given(
    alpha=fractions,
    lam=penalties,
    gamma=ratios,
    sigma=prior_variances,
    k=members,
    eta=row_fractions,
)
def test_ridge_is_a_risk_for_all_letters(alpha, lam, gamma, sigma, k, eta):
    assert 0 <= theory.alpha_from_penalty(lam, gamma) <= min(1, 1 / gamma) * (1 + 1e-12)
    assert is_a_risk(theory.ridge_risk(lam, gamma, sigma))
    letters = {"k": k, "eta": eta, "lam": lam}
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert is_a_risk(theory.limiting_risk(alpha, gamma, sigma, **letters))
    assert is_a_risk(theory.limiting_bias(alpha, gamma, **letters))


@st.composite
def sizes(draw):
    n = draw(st.integers(1, 60))
    p = draw(st.integers(1, 60))
    tau = draw(st.integers(1, n))
    return n, p, draw(st.integers(0, p)), tau


@settings(max_examples=300, deadline=None)
@given(
    sizes=sizes(),
    sigma=prior_variances,
    k=st.integers(1, 10**6) | st.just(np.inf),
    mu=st.floats(-1e50, 1e50),
    norm=prior_variances,
    sampling=st.sampled_from(["fixed", "bernoulli"]),
    design=st.sampled_from(["independent", "balanced"]),
)
def test_finite_sizes_give_risks_or_a_reason(sizes, sigma, k, mu, norm, sampling, design):
    n, p, m, tau = sizes
    options = {"k": k, "n_samples": tau, "sampling": sampling, "design": design}
    unit = max(norm, sigma, 1) ** 2
    try:
        risk = theory.expected_risk(n, p, m, sigma, **options, mu=mu, beta_norm=norm)
    except ValueError as error:
        wide = (
            m > tau + 1
            if sampling == "fixed"
            else tau < 2 or "every subset is rejected" in str(error)
        )
        assert wide and any(name in str(error) for name in ("n_features", "n_samples"))
        return
    assert is_a_risk(risk, unit=unit * max(mu**2, 1))
    assert is_a_risk(theory.expected_bias(n, p, m, **options, beta_norm=norm), unit=unit)
    assert is_a_risk(theory.expected_variance(n, p, m, sigma, **options), unit=unit)


@settings(max_examples=200, deadline=None)
@given(
    sizes=sizes(),
    sigma=prior_variances,
    k=members,
    norm=prior_variances,
    design=st.sampled_from(["independent", "balanced"]),
)
def test_interpolators_give_risks_or_a_reason(sizes, sigma, k, norm, design):
    n, p, m, tau = sizes
    options = {"k": k, "n_samples": tau, "design": design, "beta_norm": norm}
    if m >= tau + 2:
        assert is_a_risk(
            theory.minimum_norm_risk(n, p, m, sigma, **options), unit=max(norm, sigma, 1) ** 2
        )
    else:
        with pytest.raises(ValueError, match="n_features"):
            theory.minimum_norm_risk(n, p, m, sigma, **options)


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    p=st.integers(1, 8),
    n=st.integers(1, 30),
    sigma=prior_variances,
    penalty=st.floats(1e-6, 1e6),
)
def test_any_covariance_gives_a_risk(data, p, n, sigma, penalty):
    rows = data.draw(st.integers(1, p + 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    A = rng.standard_normal((rows, p)) * 10.0 ** data.draw(st.integers(-3, 3))
    Sigma = A.T @ A
    beta = rng.standard_normal(p)
    unit = max(sigma**2, beta @ Sigma @ beta)
    assert is_a_risk(theory.ridge_covariance_risk(Sigma, beta, penalty, sigma, n=n), unit=unit)
    chance = theory.ridge_matched_probabilities(Sigma, penalty, n=n)
    assert np.all((chance >= 0) & (chance <= 1))
    assume(chance.sum() < 0.99 * n)
    assert is_a_risk(theory.diagonal_risk(np.diag(Sigma), beta, chance, sigma, n=n, k=3), unit=unit)


@settings(max_examples=300, deadline=None)
@given(data=st.data(), name=st.sampled_from(theory.__all__), wrong=st.floats())
def test_any_number_gives_a_number_or_a_named_argument(data, name, wrong):
    """Whatever stands in one argument: a result without nan, or a ValueError that names what was
    wrong.
    """
    parameter = data.draw(
        st.sampled_from([parameter for f, parameter in arguments(numeric) if f == name])
    )
    if parameter in {"p", "n", "n_samples", "n_subsets"} and wrong > 1e5:
        return  # an honest count, and an honest amount of work
    error = refusal(name, parameter, wrong)
    assert error is None or name.split("_")[0] in str(error) or parameter in str(error)


def test_signatures_name_array_like():
    """`help` shows the name ArrayLike, which NumPy's union of protocols would replace by 300
    characters an argument.
    """
    for name in theory.__all__:
        signature = inspect.signature(getattr(theory, name))
        annotations = [parameter.annotation for parameter in signature.parameters.values()]
        assert all(len(str(annotation)) < 40 for annotation in annotations), name
        assert len(str(signature)) < 300, name  # covariance_risk has twelve arguments
        if len(annotations) <= 7:
            assert len(str(signature)) < 200, name
