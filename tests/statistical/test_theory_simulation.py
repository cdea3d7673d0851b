"""Every formula of `olsen.theory` against simulation, at sizes where the statement is meant to
hold.

Tolerances are 4 standard errors of the simulation: a correct exact formula fails about once in 16
000 lines. For a limit or an approximation the size is such that its own error stays below the
standard error. ``pytest -s`` prints all.
"""

import numpy as np
import pytest
from scipy.stats import hypergeom

import theory_simulation as sim
from olsen import theory

pytestmark = pytest.mark.statistical


@pytest.fixture
def rng(seed):
    return np.random.default_rng([seed, 2020])


FINITE = [
    # design, n, p, m, rows of a member, k, sigma, trials
    ("independent", 12, 8, 4, 12, 2, 0.5**0.5, 2500),
    ("independent", 20, 30, 8, 20, 4, 0.5, 2500),
    ("independent", 50, 50, 20, 50, 5, 1.0, 2500),
    ("balanced", 60, 48, 16, 60, 12, 1.0, 2500),
    ("balanced", 60, 48, 13, 60, 5, 0.5, 2500),
    ("balanced", 40, 80, 20, 40, 4, 0.5, 2500),
    ("balanced", 60, 48, 36, 60, 12, 0.05**0.5, 2500),
    ("balanced", 60, 48, 35, 60, 5, 0.4, 2500),
    ("independent", 100, 60, 24, 50, 4, 0.8, 1200),
    ("independent", 100, 60, 30, 70, 6, 0.8, 1200),
    # columns in groups of three, rows in groups of two
    ("balanced", 120, 90, 30, 60, 5, 0.8, 1200),
    ("balanced", 120, 60, 40, 80, 7, 0.8, 1200),
]


@pytest.mark.parametrize(("design", "n", "p", "m", "tau", "k", "sigma", "trials"), FINITE)
def test_finite_risk(rng, design, n, p, m, tau, k, sigma, trials):
    draw = getattr(sim, design)
    rows = None if tau == n else draw(n, tau, k)
    expected, of_one_member = (
        theory.expected_risk(n, p, m, sigma, k=n_members, n_samples=tau, design=design)
        for n_members in (k, 1)
    )
    for beta in (sim.unit_signal(p), sim.gaussian_signal(p))[: 2 if tau == n else 1]:
        risk = sim.simulate(rng, n, beta, sigma, draw(p, m, k), rows=rows, trials=trials)
        risk.ensemble.check(expected, f"{design} {n, p, m, tau, k}")
        risk.member.check(of_one_member, "  one member")


@pytest.mark.parametrize(("n", "tau", "a"), [(6, 4, 1), (10, 6, 2), (20, 12, 8), (60, 30, 15)])
def test_printed_pair_variance_is_only_a_limit(rng, n, tau, a):
    """The paper's a/(n-a-1) for different members with eta < 1 is rejected; the refinement is
    nearer.
    """
    values = []
    for _ in range(60_000 // n):
        X = rng.standard_normal((200, n, a))
        first, second = (np.argsort(rng.random((200, n)), axis=1)[:, :tau] for _ in range(2))
        values.append(np.einsum("bin,bin->b", *(padded_pinv(X, rows) for rows in (first, second))))
    simulated = sim.estimate(np.concatenate(values))
    shared_rows = np.arange(max(1, 2 * tau - n), tau + 1)
    refined = theory.overlap_variance(n, a, 1.0, n_samples=tau, shared_rows=shared_rows)
    refined_distance = abs(simulated.mean - hypergeom(n, tau, tau).pmf(shared_rows) @ refined)
    printed_distance = abs(simulated.mean - a / (n - a - 1))
    tolerance = 4 * simulated.standard_error
    print(f"v {n, tau, a}: {simulated}, off by {printed_distance:.4f} and {refined_distance:.4f}")
    assert printed_distance > tolerance
    assert refined_distance < 0.6 * printed_distance + tolerance


def padded_pinv(X, rows):
    """Pseudo-inverses of the chosen rows, put back into columns of all rows: shape (batch, a, n)."""
    chosen = np.take_along_axis(X, rows[:, :, None], axis=1)
    padded = np.zeros((len(X), X.shape[2], X.shape[1]))
    index = np.broadcast_to(rows[:, None, :], (len(X), X.shape[2], rows.shape[1]))
    np.put_along_axis(padded, index, np.linalg.pinv(chosen), axis=2)
    return padded


LIMITS = [
    # n, p, m, tau, k, sigma: ordinary least squares, then through the peak to interpolators
    (400, 200, 100, 400, 5, 1.0),
    (300, 450, 90, 300, 4, 0.7),
    (300, 300, 90, 180, 5, 0.7),
    (200, 400, 50, 100, 6, 0.7),
    (200, 400, 80, 100, 6, 0.7),
    (200, 400, 120, 100, 6, 0.7),
    (200, 400, 200, 100, 6, 0.7),
    (200, 400, 400, 100, 6, 0.7),
]


@pytest.mark.parametrize(("n", "p", "m", "tau", "k", "sigma"), LIMITS)
def test_limits_on_both_sides_of_the_peak(rng, n, p, m, tau, k, sigma):
    """Few trials on purpose: the limit differs from the finite value by at most half a standard
    error.

    Near the peak that holds for different members only: one member is 5 % above its limit there.
    """
    rows = None if tau == n else sim.independent(n, tau, k)
    risk = sim.simulate(
        rng, n, sim.unit_signal(p), sigma, sim.independent(p, m, k), rows=rows, trials=60
    )
    alpha = m / p
    gamma = p / n
    eta = tau / n
    risk.pair.check(
        theory.limiting_risk(alpha, gamma, sigma, eta=eta), f"limit {n, p, m, tau, k}, pairs"
    )
    if abs(m - tau) >= 0.5 * tau:
        risk.ensemble.check(theory.limiting_risk(alpha, gamma, sigma, k=k, eta=eta), "  ensemble")


@pytest.mark.parametrize("m", [60, 75, 100, 150, 200])
def test_interpolators(rng, m):
    n = 100
    p = 200
    tau = 50
    k = 8
    features = sim.independent(p, m, k)
    rows = sim.independent(n, tau, k)
    risk = sim.simulate(rng, n, sim.unit_signal(p), 0.7, features, rows=rows, trials=400)
    risk.ensemble.check(
        theory.minimum_norm_risk(n, p, m, 0.7, k=k, n_samples=tau), f"interpolators m={m}"
    )
    risk.member.check(theory.minimum_norm_risk(n, p, m, 0.7, k=1, n_samples=tau), "  one member")
    risk.pair.check(
        theory.minimum_norm_risk(n, p, m, 0.7, k=np.inf, n_samples=tau), "  different members"
    )


@pytest.mark.parametrize(
    ("p", "sigma", "tau", "k"),
    [(200, 0.5, 75, 4), (200, 0.5, 75, 8), (400, 1.0, 50, 4), (400, 1.0, 50, 3)],
)
def test_balanced_rows_of_interpolators(rng, p, sigma, tau, k):
    everything = np.arange(p)
    risk = sim.simulate(
        rng,
        100,
        sim.unit_signal(p),
        sigma,
        lambda _: [everything] * k,
        rows=sim.balanced(100, tau, k),
        trials=300,
    )
    expected = theory.minimum_norm_risk(100, p, p, sigma, k=k, n_samples=tau, design="balanced")
    risk.ensemble.check(expected, f"row folds {p, tau, k}")


@pytest.mark.parametrize("mu", [0.6, 1.4])
def test_scaling(rng, mu):
    risk = sim.simulate(
        rng, 40, sim.unit_signal(30), 1.0, sim.independent(30, 10, 5), mu=mu, trials=4000
    )
    risk.ensemble.check(theory.expected_risk(40, 30, 10, 1.0, k=5, mu=mu), f"mu={mu} least squares")
    features = sim.independent(120, 90, 4)
    rows = sim.independent(60, 30, 4)
    risk = sim.simulate(rng, 60, sim.unit_signal(120), 0.7, features, rows=rows, mu=mu, trials=600)
    expected = theory.minimum_norm_risk(60, 120, 90, 0.7, k=4, n_samples=30, mu=mu)
    risk.ensemble.check(expected, f"mu={mu} interpolators")


COVARIANCES = {
    "identity": np.eye,
    "diagonal": sim.log_diagonal,
    "ar1": lambda p: sim.ar1(p, 0.7),
    "equicorrelated": lambda p: sim.equicorrelated(p, 0.3),
    "spiked": sim.spiked,
}


def predicted(Sigma, beta, subsets, sigma, *, n, tau, penalty=0.0):
    """Mean of `pair_risk` over all pairs of given subsets with independently drawn rows."""
    k = len(subsets)
    total = 0.0
    for i in range(k):
        for j in range(i, k):
            shared = tau if i == j else tau**2 / n
            options = {
                "n": n,
                "rows_i": tau,
                "rows_j": tau,
                "shared_rows": shared,
                "penalty": penalty,
            }
            total += (1 + (i != j)) * theory.pair_risk(
                Sigma, beta, subsets[i], subsets[j], sigma, **options
            )
    return total / k**2


@pytest.mark.parametrize("name", COVARIANCES)
@pytest.mark.parametrize(
    ("n", "p", "m", "tau"),
    [(100, 60, 30, 100), (100, 60, 24, 50), (80, 120, 30, 80), (80, 120, 90, 48)],
)
def test_general_covariance(rng, name, n, p, m, tau):
    Sigma = COVARIANCES[name](p)
    beta = sim.unit_signal(p, 1)
    k = 8
    members = [rng.permutation(p)[:m] for _ in range(k)]
    rows = None if tau == n else sim.independent(n, tau, k)
    risk = sim.simulate(
        rng, n, beta, 0.7, lambda _: members, rows=rows, covariance=Sigma, trials=300
    )
    risk.ensemble.check(
        predicted(Sigma, beta, members, 0.7, n=n, tau=tau), f"{name} {n, p, m, tau}"
    )


@pytest.mark.parametrize("name", ["ar1", "diagonal"])
def test_ridge_members(rng, name):
    n = 100
    p = 120
    m = 60
    tau = 70
    k = 6
    penalty = 20.0
    Sigma = COVARIANCES[name](p)
    beta = sim.unit_signal(p, 1)
    members = [rng.permutation(p)[:m] for _ in range(k)]

    def fit(X, y, columns, rows):
        coef = np.zeros((k, p))
        for i, (S, T) in enumerate(zip(columns, rows, strict=True)):
            A = X[np.ix_(T, S)]
            coef[i, S] = np.linalg.solve(A.T @ A + penalty * np.eye(m), A.T @ y[T])
        return coef

    draw = sim.independent(n, tau, k)
    risk = sim.simulate(
        rng, n, beta, 0.7, lambda _: members, rows=draw, covariance=Sigma, trials=300, fit=fit
    )
    risk.ensemble.check(
        predicted(Sigma, beta, members, 0.7, n=n, tau=tau, penalty=penalty), f"ridge members {name}"
    )


@pytest.mark.parametrize("name", COVARIANCES)
def test_average_over_subsets(rng, name):
    n = 120
    p = 100
    m = 40
    k = 10
    Sigma = COVARIANCES[name](p)
    beta = sim.unit_signal(p, 1)
    risk = sim.simulate(rng, n, beta, 0.7, sim.independent(p, m, k), covariance=Sigma, trials=200)
    options = {"n": n, "rng": rng, "n_subsets": 300}
    value, error = theory.covariance_risk(Sigma, beta, m / p, 0.7, k=k, **options, return_std=True)
    combined = sim.Estimate(
        risk.ensemble.mean, float(np.hypot(risk.ensemble.standard_error, error))
    )
    combined.check(value, f"average {name}")
    combined = sim.Estimate(risk.pair.mean, float(np.hypot(risk.pair.standard_error, error)))
    combined.check(theory.covariance_risk(Sigma, beta, m / p, 0.7, **options), "  k = inf")


def test_matched_probabilities_restore_the_ridge_optimum(rng):
    """Diagonal covariance, log-spaced variances: uniform members lose to ridge, matched coin flips
    do not.
    """
    n = p = 100
    Sigma = sim.log_diagonal(p)
    sigma = 0.3
    k = 150
    penalty = p * sigma**2
    alpha = theory.ridge_matched_probabilities(np.diag(Sigma), penalty, n=n)
    grid = np.arange(5, 96)
    mean_square = np.full(p, p**-0.5)
    uniform = [
        theory.diagonal_risk(np.diag(Sigma), mean_square, np.full(p, m / p), sigma, n=n, k=k)
        for m in grid
    ]
    m = int(grid[np.argmin(uniform)])
    risks = {"uniform": [], "ridge": [], "matched": []}
    for _ in range(60):
        beta = rng.standard_normal(p) / np.sqrt(p)
        X = rng.standard_normal((n, p)) * np.sqrt(np.diag(Sigma))
        y = X @ beta + sigma * rng.standard_normal(n)
        matched = sim.fit_members(
            X, y, [np.flatnonzero(rng.random(p) < alpha) for _ in range(k)]
        ).mean(axis=0)
        plain = sim.fit_members(X, y, [rng.permutation(p)[:m] for _ in range(k)]).mean(axis=0)
        ridge = np.linalg.solve(X.T @ X + penalty * np.eye(p), X.T @ y)
        for name, coef in (("uniform", plain), ("ridge", ridge), ("matched", matched)):
            risks[name].append(np.sum(np.diag(Sigma) * (coef - beta) ** 2))
    gains = sim.estimate(np.subtract(risks["uniform"], risks["matched"]))
    assert gains.mean > 4 * gains.standard_error
    sim.estimate(risks["ridge"]).check(
        theory.ridge_covariance_risk(Sigma, mean_square, penalty, sigma, n=n), "ridge"
    )
    expected = theory.diagonal_risk(np.diag(Sigma), mean_square, alpha, sigma, n=n, k=k)
    sim.estimate(risks["matched"]).check(expected, "matched")


def test_least_squares_on_the_true_support_is_not_the_lowest_risk(rng):
    """Erratum on section 5.3: with 20 rows, ten true columns and noise variance 4, least squares on
    the true support has a higher risk than the zero predictor, whose risk is 1.
    """
    n = 20
    n_true = 10
    sigma = 2.0
    beta = np.zeros(15)
    beta[:n_true] = n_true**-0.5
    support = np.arange(n_true)
    risk = sim.simulate(rng, n, beta, sigma, lambda _: [support], trials=4000)
    risk.ensemble.check(sigma**2 * n_true / (n - n_true - 1), "true support")
    assert risk.ensemble.mean > 1.0


ESTIMATORS = [
    # max_features, max_samples, sampling, n_estimators
    (9, 1.0, "fixed", 6),
    (25, 1.0, "fixed", 5),
    (9, 0.6, "fixed", 7),
    (9, 1.0, "bernoulli", 6),
    (9, 0.6, "bernoulli", 3),
    (20, 0.8, "bernoulli", 3),
]


@pytest.mark.parametrize("design", ["independent", "balanced"])
@pytest.mark.parametrize(("m", "max_samples", "sampling", "k"), ESTIMATORS)
def test_the_estimator_has_the_expected_risk(seed, design, m, max_samples, sampling, k):
    """The whole chain: subsets as the estimator draws them, members as it solves them, averaged as
    it averages.
    """
    n = 50
    p = 36
    sigma = 0.6
    options = {"sampling": sampling, "design": design}
    parameters = {"n_estimators": k, "max_features": m, "max_samples": max_samples}
    risk = sim.fitted_risk(
        np.random.default_rng([seed, 7]),
        n,
        sim.unit_signal(p),
        sigma,
        1200,
        **parameters,
        **options,
    )
    expected = theory.expected_risk(n, p, m, sigma, k=k, n_samples=int(max_samples * n), **options)
    risk.check(expected, f"estimator {m, max_samples, sampling, design}")
