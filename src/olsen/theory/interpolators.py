r"""Members with fewer rows than columns: minimum-norm interpolators (paper, section 5.2).

The paper gives the limiting variance and leaves the bias open. For identity covariance both are closed:
one member exactly at finite size, two different members in the limit. The interesting fact is that
two different members do not feel the number of columns at all.
"""

import numpy as np

from ._pairs import as_floats, check_letters, mean_of_pairs, require, rescale, same_group_share


def _check_wide(function, n_features, n_samples):
    require(
        n_features >= n_samples + 2,
        f"{function} needs n_features >= n_samples + 2 (minimum-norm members); got n_features = "
        f"{np.min(n_features):.6g} with n_samples = {np.max(n_samples):.6g}. With fewer columns than rows use "
        "theory.expected_risk; in between the expectation is infinite.",
    )


def minimum_norm_member_bias(p, n_features, n_samples, *, beta_norm=1.0):
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
    p, m, tau, norm = as_floats(p, n_features, n_samples, beta_norm)
    _check_wide("minimum_norm_member_bias", m, tau)
    return (norm**2 * (1 - tau / p + (1 - m / p) * tau / (m - tau - 1)))[()]


def minimum_norm_member_variance(n_features, n_samples, sigma):
    r"""Variance of one minimum-norm member.

    .. math:: \sigma^2 \, \frac{\tau}{m-\tau-1}

    The trace of an inverse Wishart matrix, with the roles of rows and columns exchanged.

    Status: exact for Gaussian rows, identity covariance, :math:`m \ge \tau + 2`. Broadcasts.

    Examples
    --------
    >>> float(minimum_norm_member_variance(101, 50, 1.0))
    1.0
    """
    m, tau, sigma = as_floats(n_features, n_samples, sigma)
    _check_wide("minimum_norm_member_variance", m, tau)
    return (sigma**2 * tau / (m - tau - 1))[()]


def minimum_norm_pair_bias(gamma, *, eta):
    r"""Limiting bias of two different minimum-norm members.

    .. math:: \frac{(1-\eta/\gamma)^2}{1-\eta^2/\gamma}

    It does not depend on alpha: the paper expected that it would (section 5.2).

    Status: asymptotic (derivation in docs/theory.md, checked by simulation), for eta < alpha * gamma. Broadcasts.

    Examples
    --------
    >>> round(float(minimum_norm_pair_bias(2.0, eta=0.5)), 4)
    0.6429
    """
    gamma, eta = as_floats(gamma, eta)
    check_letters("minimum_norm_pair_bias", gamma=gamma, eta=eta)
    _check_fewer_rows("minimum_norm_pair_bias", gamma, eta)
    return ((1 - eta / gamma) ** 2 / (1 - eta**2 / gamma))[()]


def minimum_norm_pair_variance(gamma, sigma, *, eta):
    r"""Limiting variance of two different minimum-norm members (paper, section 5.2).

    .. math:: \frac{\sigma^2\eta^2}{\gamma-\eta^2}

    Status: asymptotic, for eta < alpha * gamma. Broadcasts.

    Examples
    --------
    >>> round(float(minimum_norm_pair_variance(2.0, 1.0, eta=0.5)), 4)
    0.1429
    """
    gamma, sigma, eta = as_floats(gamma, sigma, eta)
    check_letters("minimum_norm_pair_variance", gamma=gamma, sigma=sigma, eta=eta)
    _check_fewer_rows("minimum_norm_pair_variance", gamma, eta)
    return (sigma**2 * eta**2 / (gamma - eta**2))[()]


def _check_fewer_rows(function, gamma, eta):
    require(
        eta < gamma,
        f"{function} needs eta < gamma (fewer rows than columns even with all columns); got eta = {np.max(eta):.6g}, "
        f"gamma = {np.min(gamma):.6g}. For more rows than columns use theory.limiting_risk.",
    )


def minimum_norm_pair_risk(p, n_features, n_samples, sigma, *, shared_features, shared_rows):
    r"""Risk of two different minimum-norm members with given overlaps, unit signal.

    .. math:: \frac{\sigma^2 + q}{1-\kappa} - \sigma^2, \qquad
              q = 1 - \frac{2\tau}{p} + \frac{\tau^2 a}{m^2 p}, \qquad \kappa = \frac{t\,a}{m^2}

    for :math:`a` shared columns and :math:`t` shared rows. It is the general pair formula
    (`theory.pair_risk`) at identity covariance, averaged over the position of the signal. Disjoint rows
    (:math:`t = 0`) leave only :math:`q`.

    Status: asymptotic. Broadcasts.

    Examples
    --------
    Leave-one-quarter-out folds of 100 rows, all 200 columns:

    >>> round(float(minimum_norm_pair_risk(200, 200, 75, 0.5, shared_features=200, shared_rows=50)), 4)
    0.6042
    """
    p, m, tau, sigma, a, t = as_floats(p, n_features, n_samples, sigma, shared_features, shared_rows)
    _check_wide("minimum_norm_pair_risk", m, tau)
    require(a <= m, f"minimum_norm_pair_risk: shared_features ({np.max(a):.6g}) cannot exceed n_features.")
    require(t <= tau, f"minimum_norm_pair_risk: shared_rows ({np.max(t):.6g}) cannot exceed n_samples.")
    q = 1 - 2 * tau / p + tau**2 * a / (m**2 * p)
    return ((sigma**2 + q) / (1 - t * a / m**2) - sigma**2)[()]


def minimum_norm_risk(n, p, n_features, sigma, *, k, n_samples, design="independent", mu=1.0, beta_norm=1.0):
    r"""Risk of `k` minimum-norm members at finite sizes.

    .. math:: \frac1k R_{diag} + \frac{N_{same}}{k^2} R_{same} + \Bigl(1 - \frac1k - \frac{N_{same}}{k^2}\Bigr) R_{off}

    :math:`R_{diag}` is exact (`minimum_norm_member_bias` plus `minimum_norm_member_variance`), the pairs are
    `minimum_norm_pair_risk` at the mean overlaps :math:`a = m^2/p`, :math:`t = \tau^2/n`. Independent columns;
    ``design="balanced"`` cuts the *rows* into folds: members see disjoint folds of `n_samples` rows
    when ``n_samples <= n / 2``, else leave out disjoint folds of ``n - n_samples`` rows.

    Status: exact for k = 1, asymptotic otherwise. Broadcasts.

    Examples
    --------
    Four leave-one-quarter-out interpolators come within 1 % of optimal ridge (0.6404):

    >>> round(float(minimum_norm_risk(100, 200, 200, 0.5, k=4, n_samples=75, design="balanced")), 4)
    0.6472
    """
    n, p, m, sigma, k, tau, mu, norm = as_floats(n, p, n_features, sigma, k, n_samples, mu, beta_norm)
    require(design in ("independent", "balanced"), f"design must be 'independent' or 'balanced'; got {design!r}.")
    require(tau <= n, f"minimum_norm_risk: n_samples ({np.max(tau):.6g}) cannot exceed n ({np.min(n):.6g}).")
    require(m <= p, f"minimum_norm_risk: n_features ({np.max(m):.6g}) cannot exceed p ({np.min(p):.6g}).")
    noise = sigma / norm
    own = minimum_norm_member_bias(p, m, tau) + minimum_norm_member_variance(m, tau, noise)
    # All rows and all columns: every member is the same, and the pair is the member.
    off = np.where(
        (tau == n) & (m == p),
        own,
        minimum_norm_pair_risk(p, m, tau, noise, shared_features=m**2 / p, shared_rows=tau**2 / n),
    )
    risk = mean_of_pairs(own, off, k)
    if design == "balanced":
        shared = np.maximum(0, 2 * tau - n)
        same = minimum_norm_pair_risk(p, m, tau, noise, shared_features=m**2 / p, shared_rows=shared)
        folds = np.floor(n / np.maximum(1, np.minimum(tau, n - tau)))
        risk = risk + same_group_share(k, folds) * (same - off)
    return (norm**2 * rescale(risk, tau / p, mu))[()]
