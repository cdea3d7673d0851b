"""The formulas of two papers that followed, in their letters, solved by SciPy and not by `olsen`.

Each function takes the names of a page of the gallery and compares numbers that the page shows.
"""

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import brentq, minimize_scalar

from loops import case


def few_or_many(page):
    """Ruben and Pehlevan (2023): the replica formula, at finite penalties and for interpolators."""
    for k, n, penalty in [
        (1, 60, 2.0),
        (2, 240, 0.3),
        (4, 120, 50.0),
        (12, 60, 1e-3),
        (1, 60, 0.0),
    ]:
        with case(k, n, penalty):
            expected = replica_risk(page, k, n, penalty, label_noise=0.7)
            assert_allclose(page["shared_out"](k, n, 0.7, penalty=penalty), expected, rtol=1e-7)
    for k, tuned in zip(page["few"], page["tuned"][1], strict=True):
        least = minimize_scalar(
            lambda log_penalty, k=k: replica_risk(page, k, 120, np.exp(log_penalty), 0.45),
            bounds=(-7, 7),
            method="bounded",
        )
        with case(k):
            assert_allclose(tuned, least.fun, rtol=2e-3)
    assert np.all(np.diff(page["tuned"], axis=1) > 0), "one member is best with the best penalty"
    # without a penalty: of members that interpolate both are limits, but least squares at this n is
    # 1 + O(1/n) times the limit, and at a tie another number of members may be the best
    for n, level in ((30, 20), (60, 10), (90, 5), (180, 30), (330, 4)):
        noise = page["noise_levels"][level] * (1 - page["C"])
        risks = np.array([replica_risk(page, k, n, 1e-8, noise) for k in page["MEMBERS"]])
        interpolates = page["P"] // page["MEMBERS"] > n
        ours = page["risks"][:, n // 6 - 1, level]
        with case(n, level):
            assert_allclose(ours[interpolates], risks[interpolates], rtol=1e-5)
            chosen = page["MEMBERS"] == page["best"][n // 6 - 1, level]
            assert risks[chosen] < 1.02 * risks.min()


def replica_risk(page, k, n, penalty, label_noise):
    """Risk of k readouts of disjoint columns: the mean of E_rr and E_rr' over all pairs.

    With M columns, N = M / k of them in a readout, nu = N / M and alpha = n / M, a readout minimises
    the squared error plus lambda |w|^2 for the coefficients w / sqrt(N): lambda is the penalty by N.
    """
    M = page["P"]
    N = M // k
    nu = N / M
    alpha = n / M
    lam = penalty / N
    Sigma = page["covariance"]
    beta = page["beta"]
    block = Sigma[:N, :N] / nu

    def order_parameter(q_hat):
        return np.trace(np.linalg.solve(np.eye(N) + q_hat * block, block)) / M

    def distance(log_q_hat):
        q_hat = np.exp(log_q_hat)
        return q_hat * (lam + order_parameter(q_hat)) - alpha

    q_hat = np.exp(brentq(distance, -40, 40, xtol=1e-13))
    q = order_parameter(q_hat)

    def energy(r, s):
        """E_rs without the noise of labels at new rows."""
        first = np.arange(r * N, (r + 1) * N)
        second = np.arange(s * N, (s + 1) * N)
        G_r = np.linalg.inv(np.eye(N) + q_hat * Sigma[np.ix_(first, first)] / nu)
        G_s = np.linalg.inv(np.eye(N) + q_hat * Sigma[np.ix_(second, second)] / nu)
        shared = Sigma[np.ix_(first, second)] / nu
        gamma = alpha / (M * (lam + q) ** 2) * np.trace(G_r @ shared @ G_s @ shared.T)
        fit_r = q_hat / nu * G_r @ Sigma[first] @ beta
        fit_s = q_hat / nu * G_s @ Sigma[second] @ beta
        unexplained = beta @ Sigma @ beta + fit_r @ Sigma[np.ix_(first, second)] @ fit_s
        unexplained -= fit_r @ Sigma[first] @ beta + fit_s @ Sigma[second] @ beta
        return (unexplained + gamma * label_noise) / (1 - gamma)

    return energy(0, 0) / k + (1 - 1 / k) * energy(0, 1) if k > 1 else energy(0, 0)


def equal_risk(page):
    """Du, Patil and Kuchibhotla (2023): subsampled ridge ensembles of M members."""
    for position in [(0, 5), (10, 30), (25, 12), (39, 40)]:
        aspect = page["aspects"][position[1]]
        expected = subsampled_ridge_risk(page, page["penalties"][position[0]], aspect, np.inf)
        with case(position):  # the page interpolates between forty effective penalties
            assert_allclose(page["risk"][position], expected, rtol=1e-4)
    for aspect, risk in zip(page["checked_aspects"][:2], page["checked"], strict=False):
        penalty = page["penalty_of_path"](aspect) * aspect / page["P"]
        assert_allclose(risk, subsampled_ridge_risk(page, penalty, aspect, np.inf), rtol=1e-3)
    assert_allclose(page["checked"], page["checked"][0], rtol=1e-3)  # one contour
    for aspect, risks in zip(page["grid"], page["curves"], strict=True):
        if aspect > 1:
            rounded = page["P"] / round(page["P"] / aspect)
            expected = [subsampled_ridge_risk(page, 0.0, rounded, M) for M in page["COUNTS"]]
            with case(aspect):
                assert_allclose(risks, expected, rtol=1e-7)
    least = minimize_scalar(
        lambda log_penalty: subsampled_ridge_risk(page, np.exp(log_penalty), 0.1, np.inf),
        bounds=(-5, 3),
        method="bounded",
    )
    assert_allclose(page["checked"], least.fun, rtol=1e-3)
    assert_allclose(page["curves"][:, 1].min(), least.fun, rtol=0.02)  # of a grid of aspects


def subsampled_ridge_risk(page, lam, phi_s, M):
    """Risk of M ridge regressions on random rows, phi = p / n columns per row of the data and phi_s
    per row of a member; lam counts per row of a member.
    """
    r = page["variances"]
    squares = (page["directions"].T @ page["beta"]) ** 2
    phi = page["P"] / page["N"]

    def fixed_point(log_v):
        v = np.exp(log_v)
        return 1 / v - lam - phi_s * np.mean(r / (1 + v * r))

    v = np.exp(brentq(fixed_point, -40, 40, xtol=1e-13))
    bias = np.sum(squares * r / (1 + v * r) ** 2)

    def inflation(columns_per_row):
        squared = columns_per_row * np.mean((r / (1 + v * r)) ** 2)
        return squared / (1 / v**2 - squared)

    single = inflation(phi_s)
    pair = inflation(phi)
    mean = single / M + (1 - 1 / M) * pair
    return (1 + mean) * bias + mean * page["SIGMA"] ** 2


FORMULAS = {"plot_few_or_many": few_or_many, "plot_equal_risk": equal_risk}
