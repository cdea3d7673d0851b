r"""Unequal probabilities: members flip one coin per column, with its own probability, and columns are uncorrelated.

Write :math:`\alpha_j` for the probability of column j and :math:`b_j^2 = \Sigma_{jj}\beta_j^2` for its signal. Two
members share column j with probability :math:`\alpha_j^2` and both miss it with :math:`(1-\alpha_j)^2`, and that is all
their risk depends on: at finite n through the distribution of the number of shared columns (`expected_diagonal_risk`),
in the limit through sums over columns (`diagonal_risk`). What is best for a known signal, and what
restricted rules reach, follow from these two.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar

from . import _arguments, _distributions
from ._arguments import LEAST, ROWS, ROWS_OF_A_LIMIT, Floats, checked, letters, require, scalar
from ._pairs import mean_of_pairs
from .covariance import _effective_penalty


def diagonal_risk(
    variances: ArrayLike,
    beta: ArrayLike,
    probabilities: ArrayLike,
    sigma: ArrayLike,
    *,
    n: float,
    k: ArrayLike = np.inf,
    eta: ArrayLike = 1.0,
) -> Floats:
    r"""Risk of coin-flip members with one inclusion probability per feature, diagonal covariance.

    .. math:: R_{off} + \sigma^2 = \frac{\sigma^2 + \sum_j (1-\alpha_j)^2 b_j^2}{1 - \sum_j \alpha_j^2/n}, \qquad
              R_{diag} + \sigma^2 = \frac{\sigma^2 + \sum_j (1-\alpha_j) b_j^2}{1 - \sum_j\alpha_j/(\eta n)}, \qquad
              b_j^2 = \Sigma_{jj}\beta_j^2

    Status: asymptotic. `sigma`, `k` and `eta` broadcast.

    Examples
    --------
    Uniform probabilities on unit variances are the paper's limit:

    >>> p = 400
    >>> float(diagonal_risk(np.ones(p), np.full(p, p**-0.5), np.full(p, 0.5), 0.5**0.5, n=400).round(12))
    0.5
    """
    variances, beta, alpha, sigma, k, eta = letters(
        "diagonal_risk", variances=variances, beta=beta, probabilities=probabilities, sigma=sigma, k=k, eta=eta
    )
    checked("diagonal_risk", "n", n, ROWS_OF_A_LIMIT)
    _require_columns("diagonal_risk", alpha.shape, probabilities=alpha, beta=beta, variances=variances)
    require(
        alpha.sum() < eta * n,
        f"diagonal_risk needs sum(probabilities) < eta * n (least-squares members); got {alpha.sum():.6g} and "
        f"eta * n = {np.min(eta) * n:.6g}. For minimum-norm members use theory.covariance_risk.",
    )
    return _limit(alpha, variances * beta**2, sigma, n, k, eta)[()]


def _limit(alpha: Floats, signal: Floats, sigma: ArrayLike, n: float, k: ArrayLike, eta: ArrayLike = 1.0) -> Floats:
    """`diagonal_risk` of checked arguments."""
    noise = np.square(sigma)
    pair = (noise + np.sum((1 - alpha) ** 2 * signal)) / (1 - np.sum(alpha**2) / n) - noise
    own = (noise + np.sum((1 - alpha) * signal)) / (1 - alpha.sum() / (np.asarray(eta) * n)) - noise
    return mean_of_pairs(own, pair, k)


def _require_columns(function: str, shape: tuple[int, ...], **vectors: Floats) -> None:
    """One entry for each column of `shape`; a single number, or one entry, stands for all."""
    for name, vector in vectors.items():
        require(
            len(shape) == 1 and vector.shape in (shape, (1,), ()),
            f"{function}: {name} must have one entry for each column, a shape {shape}; got {vector.shape}.",
        )


def expected_diagonal_risk(
    variances: ArrayLike,
    beta: ArrayLike,
    probabilities: ArrayLike,
    sigma: ArrayLike,
    *,
    n: float,
    k: ArrayLike = np.inf,
) -> Floats:
    r"""Expected risk at finite n of members that flip one coin per column, diagonal covariance, all rows.

    .. math:: R_{off} = \sum_j (1-\alpha_j)^2\, b_j^2\; E[1 + v(a_{-j})] + \sigma^2\, E\,v(a), \qquad
              v(a) = \frac{a}{n-a-1}, \qquad b_j^2 = \Sigma_{jj}\beta_j^2

    where the shared columns :math:`a` are a sum of independent coins of probabilities :math:`\alpha_l^2`
    (Poisson-binomial), and :math:`a_{-j}` leaves out column j, which is in neither member. One member:
    :math:`\alpha_l` and :math:`1-\alpha_j` in their place. All of it is summed, nothing approximated.

    Parameters
    ----------
    variances, beta : arrays of shape (p,)
        Variances of the columns, and their coefficients; one number stands for all.
    probabilities : array of shape (p,)
        Of each column to be in a member.
    sigma : float
        Noise standard deviation.
    n : int
        Rows of the data, all of which every member uses.
    k : int or inf
        Members, drawn independently.

    Notes
    -----
    Status: exact for Gaussian columns and every fixed signal. A member of more than n - 2 columns is drawn again, as
    everywhere in this package, and pairs are conditioned on the acceptance of both: exactly, too, where that has more
    than a negligible probability of failing (1e-13), at a price of p times the shared columns times the unshared ones;
    an error says so where that is too long. `sigma` and `k` broadcast.

    Examples
    --------
    Equal probabilities are `expected_risk` with ``sampling="bernoulli"``, whatever the signal:

    >>> float(expected_diagonal_risk(np.ones(30), [1.0] + 29 * [0.0], np.full(30, 0.3), 0.5, n=40, k=5).round(4))
    0.6331

    A single non-zero coefficient needs its own column only:

    >>> float(expected_diagonal_risk(np.ones(30), [1.0] + 29 * [0.0], [1.0] + 29 * [0.0], 0.5, n=40, k=5).round(4))
    0.0066
    """
    name = "expected_diagonal_risk"
    variances, beta, alpha, sigma, k = letters(
        name, variances=variances, beta=beta, probabilities=probabilities, sigma=sigma, k=k
    )
    rows = scalar(name, "n", n, ROWS)
    _require_columns(name, alpha.shape, probabilities=alpha, beta=beta, variances=variances)
    signal, columns, most = variances * beta**2, float(alpha.sum()), int(min(rows - 2, len(alpha)))
    require(
        rows >= 2 and columns <= rows - 1,
        f"{name} needs sum(probabilities) <= n - 1 (least-squares members); got {columns:.6g} and n = {rows:.6g}. Use "
        "smaller probabilities, or theory.covariance_risk for minimum-norm members.",
    )
    own, rejected = _distributions.coins_one_by_one(alpha, (1 - alpha) * signal, most)
    require(
        rejected < 1 - 1e-6,
        f"{name}: coin flips that expect {columns:.6g} columns are accepted up to n - 2 = {rows - 2:.6g} only, which "
        f"has probability {1 - rejected:.1g}. Use smaller probabilities, or more rows n.",
    )
    if rejected < _distributions.NEGLIGIBLE:
        pair, _ = _distributions.coins_one_by_one(alpha**2, (1 - alpha) ** 2 * signal, most)
    else:
        cost = _distributions.accepted_coins_cost(alpha, alpha**2, most)
        require(
            cost <= 4e8,  # seconds
            f"{name}: members of {columns:.6g} expected columns have more than n - 2 = {rows - 2:.6g} with a "
            f"probability of {rejected:.1g} and are drawn again; to count this exactly takes {cost:.1g} terms. Use "
            "smaller probabilities, or the limit, theory.diagonal_risk.",
        )
        pair = _distributions.accepted_coins(alpha, alpha**2, (1 - alpha) ** 2 * signal, most)
    return mean_of_pairs(_inflated(own, sigma, rows), _inflated(pair, sigma, rows), k)[()]


def _inflated(counts: Floats, sigma: ArrayLike, n: float) -> Floats:
    """Risk of a pair from the distribution of its shared columns and the signal left out, conditioned on its event."""
    probability, left_out = counts / counts[0].sum()
    a = np.arange(len(probability))
    inflation = a / (n - a - 1)
    risk: Floats = left_out @ (1 + inflation) + np.square(sigma) * (probability @ inflation)
    return risk


def ridge_matched_probabilities(Sigma: ArrayLike, penalty: float, *, n: float) -> Floats:
    r"""Inclusion probabilities whose large ensemble is ridge regression with this penalty.

    .. math:: \alpha_j = [\Sigma(\Sigma+\mu I)^{-1}]_{jj}, \qquad
              \lambda = \mu\bigl(n - \mathrm{tr}\,\Sigma(\Sigma+\mu I)^{-1}\bigr)

    The paper's first open question: uniform sampling reaches the ridge optimum only when
    :math:`E\,S\Sigma_{SS}^{-1}S^\top = (\Sigma+\mu I)^{-1}`, which for a diagonal covariance needs these
    :math:`\alpha_j = \Sigma_{jj}/(\Sigma_{jj}+\mu)`. For a signal :math:`\beta \sim N(0, I/p)` the best penalty
    is :math:`p\sigma^2`.

    Status: asymptotic for diagonal Sigma, heuristic for others. From data: `olsen.equivalence.inclusion_probabilities`.

    Examples
    --------
    >>> ridge_matched_probabilities([1.0, 1.0, 1.0, 1.0], 4.0, n=6).round(12)
    array([0.5, 0.5, 0.5, 0.5])
    """
    Sigma = _arguments.covariance("ridge_matched_probabilities", Sigma)
    rows = scalar("ridge_matched_probabilities", "n", n, ROWS_OF_A_LIMIT)
    values, vectors = (Sigma, np.eye(len(Sigma))) if Sigma.ndim == 1 else np.linalg.eigh(Sigma)
    values = np.maximum(values, 0.0)  # what is negative is rounding
    mu = _effective_penalty(values, rows, scalar("ridge_matched_probabilities", "penalty", penalty))
    seen = values / np.where(values > 0, values + mu, 1.0)
    return np.minimum(vectors**2 @ seen, 1.0)


def optimal_probabilities(variances: ArrayLike, beta: ArrayLike, sigma: float, *, n: float) -> Floats:
    r"""Inclusion probabilities with the lowest `diagonal_risk` at k = inf for a known signal.

    .. math:: \alpha_j = \frac{b_j^2}{b_j^2 + R^{tot}/n}, \qquad
              R^{tot} = \sigma^2 + \sum_j (1-\alpha_j) b_j^2, \qquad b_j^2 = \Sigma_{jj}\beta_j^2

    The second equation is the first-order condition put back into the risk: the lowest risk is
    :math:`\sum_j(1-\alpha_j)b_j^2`, the general form of the paper's corollary :math:`R = 1-\alpha_*`.

    Status: exact minimiser of an asymptotic formula. Needs sigma > 0.

    Examples
    --------
    >>> optimal_probabilities(np.ones(4), np.full(4, 0.5), 0.5**0.5, n=4).round(12)
    array([0.5, 0.5, 0.5, 0.5])
    """
    variances, beta = letters("optimal_probabilities", variances=variances, beta=beta)
    _require_columns("optimal_probabilities", beta.shape, beta=beta, variances=variances)
    scalar("optimal_probabilities", "n", n, ROWS_OF_A_LIMIT)
    positive = _arguments.SPREAD._replace(least=LEAST, way_out="Without noise take every feature of non-zero signal.")
    scalar("optimal_probabilities", "sigma", sigma, positive)
    signal = variances * beta**2

    def excess(risk: float) -> float:
        return sigma**2 + np.sum(signal * risk / (n * signal + risk)) - risk

    risk: float = brentq(
        excess, sigma**2 * (1 - 1e-12), (sigma**2 + signal.sum()) * (1 + 1e-12), xtol=1e-300, rtol=1e-15
    )
    return n * signal / (n * signal + risk)


def power_probabilities(variances: ArrayLike, beta: ArrayLike, q: float, size: float) -> Floats:
    r"""Inclusion probabilities proportional to a power of the coefficients, for an expected number of columns.

    .. math:: \alpha_j = \min(1,\, c\,|b_j|^q), \qquad \sum_j \alpha_j = m, \qquad b_j^2 = \Sigma_{jj}\beta_j^2

    Uniform for q = 0. The best ones for a known signal (`optimal_probabilities`) are none of these, unless all
    coefficients other than zero are of one size: they behave as q = 2 for small and as q = 0 for large ones.

    Parameters
    ----------
    variances, beta : arrays of shape (p,)
    q : float
        Exponent, from 0 to 50.
    size : float
        Expected columns m of a member, at most the number of coefficients other than zero if q > 0.

    Notes
    -----
    Status: exact (a definition). To find the best size: `optimal_power_probabilities`.

    Examples
    --------
    >>> power_probabilities(np.ones(4), [4.0, 2.0, 1.0, 0.0], 1.0, 1.5).round(12)
    array([0.85714286, 0.42857143, 0.21428571, 0.        ])
    >>> power_probabilities(np.ones(4), [4.0, 2.0, 1.0, 0.0], 1.0, 2.5).round(12)
    array([1. , 1. , 0.5, 0. ])
    """
    name = "power_probabilities"
    b = _coefficients(name, variances, beta)
    powers = _Powers(b, scalar(name, "q", q))
    size, most = scalar(name, "size", size), powers.most
    require(
        size <= most,
        f"{name}: size must be at most {most}, the number of coefficients that are not zero; got {size:.6g}. Use a "
        "smaller size, or q = 0.",
    )
    return powers.at(powers.level(size))


def optimal_power_probabilities(
    variances: ArrayLike, beta: ArrayLike, sigma: float, q: float, *, n: float, k: float = np.inf
) -> Floats:
    r"""The `power_probabilities` of the size with the lowest `diagonal_risk`, for a known signal.

    .. math:: \alpha_j = \min(1,\, c\,|b_j|^q), \qquad c = \arg\min_c R_k(\alpha)

    ``q=0`` is the best uniform probability, which does not depend on where the signal is.

    Status: minimiser of an asymptotic formula over sizes below n; 60 of them are scanned and the best one is refined,
    which is heuristic for curves with several minima.

    Examples
    --------
    Without knowledge of the signal, and with:

    >>> beta = np.array([0.9, 0.4, 0.17] + 37 * [0.0])
    >>> for q in (0, 1):
    ...     alpha = optimal_power_probabilities(np.ones(40), beta, 0.5, q, n=40)
    ...     print(alpha[:4].round(3), diagonal_risk(np.ones(40), beta, alpha, 0.5, n=40).round(4))
    [0.609 0.609 0.609 0.609] 0.3901
    [1.    1.    0.811 0.   ] 0.0189
    >>> alpha = optimal_probabilities(np.ones(40), beta, 0.5, n=40)
    >>> print(alpha[:4].round(3), diagonal_risk(np.ones(40), beta, alpha, 0.5, n=40).round(4))
    [0.992 0.96  0.811 0.   ] 0.0186
    """
    name = "optimal_power_probabilities"
    b = _coefficients(name, variances, beta)
    rows = scalar(name, "n", n, ROWS_OF_A_LIMIT)
    powers = _Powers(b, scalar(name, "q", q))
    noise, members = scalar(name, "sigma", sigma), scalar(name, "k", k)
    most = min(powers.most, rows)
    if most == 0:  # no signal, and nothing to follow
        return powers.at(0.0)

    def risk(level: float) -> float:
        return float(_limit(powers.at(level), b**2, noise, rows, members))

    short = 1e-9  # relative distance kept from n columns, where members interpolate
    levels = np.linspace(powers.level(short * most), powers.level((1 - short) * most), 60)
    best = int(np.argmin([risk(level) for level in levels]))
    around = levels[max(best - 1, 0)], levels[min(best + 1, len(levels) - 1)]
    found = minimize_scalar(risk, bounds=around, method="bounded", options={"xatol": 1e-9})
    candidates = [float(found.x), float(levels[best])]
    if most < rows:  # everything that has a signal
        candidates.append(powers.level(most))
    return powers.at(min(candidates, key=risk))


class _Powers:
    """The probabilities min(1, c |b|^q) of all c, by the logarithm of c, their `level`; b without signs."""

    def __init__(self, b: Floats, q: float) -> None:
        self.b, self.q = b / (b.max() or 1.0), q
        self.most = int(np.count_nonzero(b)) if q else len(b)

    def at(self, level: float) -> Floats:
        with np.errstate(divide="ignore"):
            return np.exp(np.minimum(0.0, level + (self.q * np.log(self.b) if self.q else np.zeros(len(self.b)))))

    def level(self, size: float) -> float:
        """The level that expects `size` columns."""

        def excess(level: float) -> float:
            return float(self.at(level).sum()) - size

        low, high = -1.0, 1.0
        while excess(low) > 0:
            low *= 2
        while excess(high) < 0 and high < 1e6:  # size = most is met up to rounding
            high *= 2
        return high if excess(high) <= 0 else float(brentq(excess, low, high, xtol=1e-13, rtol=1e-14))


def _coefficients(function: str, variances: ArrayLike, beta: ArrayLike) -> Floats:
    """Coefficients of standardised columns, without their signs."""
    variances, beta = letters(function, variances=variances, beta=beta)
    require(beta.ndim == 1 and beta.size > 0, f"{function}: beta must be a vector of length p; got shape {beta.shape}.")
    _require_columns(function, beta.shape, beta=beta, variances=variances)
    return np.sqrt(variances) * np.abs(beta)
