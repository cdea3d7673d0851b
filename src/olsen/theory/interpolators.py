r"""Members with fewer rows than columns: minimum-norm interpolators (paper, section 5.2).

The paper gives the limiting variance and leaves the bias open. For identity covariance both are closed: one member
exactly at finite size, two different members in the limit, and exactly too when they use all columns.
In the limit two different members do not feel the number of columns at all.
"""

import numpy as np
from numpy.typing import ArrayLike

from ._arguments import letters, require, require_choice
from ._laws import hypergeometric, thin
from ._pairs import mean_of_pairs, rescale, same_group_share
from ._types import Counts, Floats


def _check_wide(function: str, n_features: Floats, n_samples: Floats) -> None:
    require(
        n_features >= n_samples + 2,
        f"{function} needs n_features >= n_samples + 2 (minimum-norm members); got n_features = "
        f"{np.min(n_features):.6g} with n_samples = {np.max(n_samples):.6g}. With fewer columns than rows use "
        "theory.expected_risk; in between the expectation is infinite.",
    )


def _check_columns(function: str, n_features: Floats, p: Floats) -> None:
    require(
        n_features <= p,
        f"{function}: n_features ({np.max(n_features):.6g}) cannot exceed p ({np.min(p):.6g}).",
    )


def minimum_norm_member_bias(
    p: ArrayLike, n_features: ArrayLike, n_samples: ArrayLike, *, beta_norm: ArrayLike = 1.0
) -> Floats:
    r"""Bias of one minimum-norm member.

    .. math:: \|\beta\|^2 \Bigl[ 1 - \frac{\tau}{p} + \Bigl(1-\frac mp\Bigr)\frac{\tau}{m-\tau-1} \Bigr]

    with :math:`m` columns and :math:`\tau` rows. The first part is what the row space cannot see; the second is the
    left-out signal acting as noise.

    Status: exact for Gaussian rows, identity covariance, subset uniform, :math:`m \ge \tau + 2`. Broadcasts.

    Examples
    --------
    >>> round(float(minimum_norm_member_bias(200, 100, 50)), 4)
    1.2602
    """
    function = "minimum_norm_member_bias"
    p, m, tau, norm = letters(function, p=p, n_features=n_features, n_samples=n_samples, beta_norm=beta_norm)
    _check_wide(function, m, tau)
    _check_columns(function, m, p)
    return _member_bias(p, m, tau, norm)[()]


def _member_bias(p: Floats, m: Floats, tau: Floats, norm: Floats) -> Floats:
    return norm**2 * (1 - tau / p + (1 - m / p) * tau / (m - tau - 1))


def minimum_norm_member_variance(n_features: ArrayLike, n_samples: ArrayLike, sigma: ArrayLike) -> Floats:
    r"""Variance of one minimum-norm member.

    .. math:: \sigma^2 \, \frac{\tau}{m-\tau-1}

    The trace of an inverse Wishart matrix, with the roles of rows and columns exchanged.

    Status: exact for Gaussian rows, identity covariance, :math:`m \ge \tau + 2`. Broadcasts.

    Examples
    --------
    >>> float(minimum_norm_member_variance(101, 50, 1.0))
    1.0
    """
    function = "minimum_norm_member_variance"
    m, tau, sigma = letters(function, n_features=n_features, n_samples=n_samples, sigma=sigma)
    _check_wide(function, m, tau)
    return _member_variance(m, tau, sigma)[()]


def _member_variance(m: Floats, tau: Floats, sigma: Floats) -> Floats:
    return sigma**2 * tau / (m - tau - 1)


def minimum_norm_pair_bias(gamma: ArrayLike, *, eta: ArrayLike) -> Floats:
    r"""Limiting bias of two different minimum-norm members.

    .. math:: \frac{(1-\eta/\gamma)^2}{1-\eta^2/\gamma}

    It does not depend on alpha: the paper expected that it would (section 5.2).

    Status: asymptotic (derivation in docs/theory.md, checked by simulation), for eta < alpha * gamma. Broadcasts.

    Examples
    --------
    >>> round(float(minimum_norm_pair_bias(2.0, eta=0.5)), 4)
    0.6429
    """
    gamma, eta = letters("minimum_norm_pair_bias", gamma=gamma, eta=eta)
    _check_fewer_rows("minimum_norm_pair_bias", gamma, eta)
    return ((1 - eta / gamma) ** 2 / (1 - eta**2 / gamma))[()]


def minimum_norm_pair_variance(gamma: ArrayLike, sigma: ArrayLike, *, eta: ArrayLike) -> Floats:
    r"""Limiting variance of two different minimum-norm members (paper, section 5.2).

    .. math:: \frac{\sigma^2\eta^2}{\gamma-\eta^2}

    Status: asymptotic, for eta < alpha * gamma. Broadcasts.

    Examples
    --------
    >>> round(float(minimum_norm_pair_variance(2.0, 1.0, eta=0.5)), 4)
    0.1429
    """
    gamma, sigma, eta = letters("minimum_norm_pair_variance", gamma=gamma, sigma=sigma, eta=eta)
    _check_fewer_rows("minimum_norm_pair_variance", gamma, eta)
    return (sigma**2 * eta**2 / (gamma - eta**2))[()]


def _check_fewer_rows(function: str, gamma: Floats, eta: Floats) -> None:
    require(
        eta < gamma,
        f"{function} needs eta < gamma (fewer rows than columns even with all columns); got eta = {np.max(eta):.6g}, "
        f"gamma = {np.min(gamma):.6g}. For more rows than columns use theory.limiting_risk.",
    )


def minimum_norm_pair_risk(
    p: ArrayLike,
    n_features: ArrayLike,
    n_samples: ArrayLike,
    sigma: ArrayLike,
    *,
    shared_features: ArrayLike,
    shared_rows: ArrayLike,
    beta_norm: ArrayLike = 1.0,
) -> Floats:
    r"""Risk of two different minimum-norm members with given overlaps.

    .. math:: \|\beta\|^2\frac{q}{1-\kappa} + \sigma^2\frac{t\,a}{m^2-(t+1)a}, \qquad
              q = 1 - \frac{2\tau}{p} + \frac{\tau^2 a}{m^2 p}, \qquad \kappa = \frac{t\,a}{m^2}

    for :math:`a` shared columns and :math:`t` shared rows. The bias is the general pair formula (`theory.pair_risk`) at
    identity covariance, averaged over the position of the signal; the variance is `theory.overlap_variance` with the
    roles of rows and columns exchanged. Disjoint rows (:math:`t = 0`) leave only :math:`q`.

    Status: exact when both members use all columns (a = m = p), asymptotic otherwise. Broadcasts.

    Examples
    --------
    Leave-one-quarter-out folds of 100 rows, all 200 columns:

    >>> round(float(minimum_norm_pair_risk(200, 200, 75, 0.5, shared_features=200, shared_rows=50)), 4)
    0.6047
    """
    function = "minimum_norm_pair_risk"
    p, m, tau, sigma, norm = letters(
        function, p=p, n_features=n_features, n_samples=n_samples, sigma=sigma, beta_norm=beta_norm
    )
    a, t = letters(function, shared_features=shared_features, shared_rows=shared_rows)
    _check_wide(function, m, tau)
    _check_columns(function, m, p)
    require(
        (2 * m - p <= a) & (a <= m),
        f"{function}: two members share from 2 n_features - p to n_features columns; got shared_features from "
        f"{np.min(a):.6g} to {np.max(a):.6g} with n_features = {np.max(m):.6g}, p = {np.min(p):.6g}.",
    )
    require(t <= tau, f"{function}: shared_rows ({np.max(t):.6g}) cannot exceed n_samples ({np.min(tau):.6g}).")
    bias, variance = _pair_terms(p, m, tau, a, t)
    return (norm**2 * bias + sigma**2 * variance)[()]


def _pair_terms(p: Floats, m: Floats, tau: Floats, a: Floats, t: Floats | Counts) -> tuple[Floats, Floats]:
    """Bias for unit signal and variance for unit noise of two members."""
    q = 1 - 2 * tau / p + tau**2 * a / (m**2 * p)
    return q / (1 - t * a / m**2), t * a / (m**2 - (t + 1) * a)


def _mean_pair_terms(n: Floats, p: Floats, m: Floats, tau: Floats) -> Floats:
    """The same at the mean column overlap, averaged over the number of rows two independent members share."""
    n, p, m, tau = np.broadcast_arrays(n, p, m, tau)
    terms = np.empty((2, *n.shape))
    for index in np.ndindex(n.shape):
        t, weight = thin(*hypergeometric(int(n[index]), int(tau[index]), int(tau[index])))
        columns = m[index] ** 2 / p[index]
        terms[(slice(None), *index)] = [
            weight @ term for term in _pair_terms(p[index], m[index], tau[index], columns, t)
        ]
    return terms


def minimum_norm_risk(
    n: ArrayLike,
    p: ArrayLike,
    n_features: ArrayLike,
    sigma: ArrayLike,
    *,
    k: ArrayLike,
    n_samples: ArrayLike,
    design: str = "independent",
    mu: ArrayLike = 1.0,
    beta_norm: ArrayLike = 1.0,
) -> Floats:
    r"""Risk of `k` minimum-norm members at finite sizes.

    .. math:: \frac1k R_{diag} + \frac{N_{same}}{k^2} R_{same} + \Bigl(1 - \frac1k - \frac{N_{same}}{k^2}\Bigr) R_{off}

    :math:`R_{diag}` is `minimum_norm_member_bias` plus `minimum_norm_member_variance`; pairs are
    `minimum_norm_pair_risk` at the mean column overlap :math:`m^2/p`, averaged over the hypergeometric number of shared
    rows. Independent columns; ``design="balanced"`` cuts the *rows* into folds: members see disjoint folds of
    `n_samples` rows when ``n_samples <= n / 2``, else leave out disjoint folds of ``n - n_samples`` rows.

    Status: exact for k = 1 and, for any k, when members use all columns (n_features = p); asymptotic otherwise.
    All numeric arguments broadcast.

    Examples
    --------
    Four leave-one-quarter-out interpolators come within 1.2 % of optimal ridge (0.6404):

    >>> round(float(minimum_norm_risk(100, 200, 200, 0.5, k=4, n_samples=75, design="balanced")), 4)
    0.6476
    """
    function = "minimum_norm_risk"
    n, p, m, tau = letters(function, n=n, p=p, n_features=n_features, n_samples=n_samples)
    sigma, k, mu, norm = letters(function, sigma=sigma, k=k, mu=mu, beta_norm=beta_norm)
    require_choice("design", design, ("independent", "balanced"))
    require(tau <= n, f"{function}: n_samples ({np.max(tau):.6g}) cannot exceed n ({np.min(n):.6g}).")
    _check_columns(function, m, p)
    _check_wide(function, m, tau)
    own = _member_bias(p, m, tau, norm) + _member_variance(m, tau, sigma)
    bias, variance = _mean_pair_terms(n, p, m, tau)
    off = norm**2 * bias + sigma**2 * variance
    risk = mean_of_pairs(own, off, k)
    if design == "balanced":
        bias, variance = _pair_terms(p, m, tau, m**2 / p, np.maximum(0, 2 * tau - n))
        folds = np.floor(n / np.maximum(1, np.minimum(tau, n - tau)))
        risk = risk + same_group_share(k, folds) * (norm**2 * bias + sigma**2 * variance - off)
    return rescale(risk, tau / p, mu, norm)[()]
