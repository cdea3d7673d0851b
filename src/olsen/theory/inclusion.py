r"""Unequal probabilities: members flip a separate coin for each column, and columns are
uncorrelated.

Write :math:`\alpha_j` for the probability of column j and :math:`b_j^2 = \Sigma_{jj}\beta_j^2` for
its signal. Two members share column j with probability :math:`\alpha_j^2` and both miss it with
:math:`(1-\alpha_j)^2`, and their risk depends on nothing else: at finite n through the distribution
of the number of shared columns (`expected_diagonal_risk`), in the limit through sums over columns
(`diagonal_risk`). The best probabilities for a known signal follow from the two formulas.
"""

from math import inf

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from . import _arguments, _distributions
from ._arguments import LEAST, ROWS, ROWS_OF_A_LIMIT, Floats, letters, scalar
from ._pairs import mean_of_pairs
from .covariance import _effective_penalty


def diagonal_risk(
    variances: "ArrayLike",
    beta: "ArrayLike",
    probabilities: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n: float,
    k: "ArrayLike" = inf,
    eta: "ArrayLike" = 1.0,
) -> "Floats":
    r"""Risk of coin-flip members with one inclusion probability per feature, diagonal covariance.

    .. math:: R_{off} + \sigma^2 = \frac{\sigma^2 + \sum_j (1-\alpha_j)^2 b_j^2}{1 - \sum_j \alpha_j^2/n}, \qquad
              R_{diag} + \sigma^2 = \frac{\sigma^2 + \sum_j (1-\alpha_j) b_j^2}{1 - \sum_j\alpha_j/(\eta n)}, \qquad
              b_j^2 = \Sigma_{jj}\beta_j^2

    Status: asymptotic. `sigma`, `k` and `eta` broadcast.

    Examples
    --------
    Uniform probabilities on unit variances are the paper's limit:

    >>> p = 400
    >>> float(
    ...     diagonal_risk(
    ...         np.ones(p), np.full(p, p**-0.5), np.full(p, 0.5), 0.5**0.5, n=400
    ...     ).round(12)
    ... )
    0.5
    """
    alpha, sigma, k, eta = letters(probabilities=probabilities, sigma=sigma, k=k, eta=eta)
    n = scalar("n", n, ROWS_OF_A_LIMIT)
    signal = _signal(variances, beta, shape=alpha.shape)
    columns = alpha.sum()
    if np.any(columns >= eta * n):
        rows = np.min(eta) * n
        raise ValueError(
            "diagonal_risk needs sum(probabilities) < eta * n (least-squares members); got"
            f" {columns:.6g} and eta * n = {rows:.6g}. For minimum-norm members use"
            " theory.covariance_risk."
        )
    noise = sigma**2
    pair_bias = np.sum((1 - alpha) ** 2 * signal)
    single_bias = np.sum((1 - alpha) * signal)
    pair = (noise + pair_bias) / (1 - np.sum(alpha**2) / n) - noise
    single = (noise + single_bias) / (1 - columns / (eta * n)) - noise
    return mean_of_pairs(single, pair, k)


def _signal(variances: ArrayLike, beta: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """The signal b_j^2 of each column; numbers stand for all columns."""
    if len(shape) != 1:
        raise ValueError(f"probabilities must have one entry for each column; got shape {shape}.")
    variances, beta = letters(variances=variances, beta=beta)
    for name, vector in (("variances", variances), ("beta", beta)):
        if vector.shape not in (shape, (1,), ()):
            raise ValueError(
                f"{name} must have one entry for each column, a shape {shape}; got {vector.shape}."
            )
    return variances * beta**2


def expected_diagonal_risk(
    variances: "ArrayLike",
    beta: "ArrayLike",
    probabilities: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n: float,
    k: "ArrayLike" = inf,
) -> "Floats":
    r"""Expected risk at finite n of members that flip one coin per column, diagonal covariance, all
    rows.

    .. math:: R_{off} = \sum_j (1-\alpha_j)^2\, b_j^2\; E[1 + v(a_{-j})] + \sigma^2\, E\,v(a), \qquad
              v(a) = \frac{a}{n-a-1}, \qquad b_j^2 = \Sigma_{jj}\beta_j^2

    where the shared columns :math:`a` are a sum of independent coins of probabilities
    :math:`\alpha_l^2` (Poisson-binomial), and :math:`a_{-j}` leaves out column j, which is in
    neither member. One member:
    :math:`\alpha_l` and :math:`1-\alpha_j` instead of the squares. All terms are summed, without approximation.

    Parameters
    ----------
    variances, beta : arrays of shape (p,)
        Variances and coefficients of the columns; a single number stands for all columns.
    probabilities : array of shape (p,)
        Probability of each column to be in a member.
    sigma : float
        Noise standard deviation.
    n : int
        Rows of the data, all of which every member uses.
    k : int or inf
        Members, drawn independently.

    Notes
    -----
    Status: exact for Gaussian columns and every fixed signal. A member of more than n - 2 columns
    is drawn again, as everywhere in this package, and pairs are conditioned on the acceptance of
    both. Where rejection has more than a negligible probability (1e-13), the condition is exact
    too, in a time that grows as p times the shared columns times the unshared columns; an error is
    raised where that would take too long. `sigma` and `k` broadcast.

    Examples
    --------
    Equal probabilities are `expected_risk` with ``sampling="bernoulli"``, whatever the signal:

    >>> float(
    ...     expected_diagonal_risk(
    ...         np.ones(30), [1.0] + 29 * [0.0], np.full(30, 0.3), 0.5, n=40, k=5
    ...     ).round(4)
    ... )
    0.6331

    A single non-zero coefficient needs only one column:

    >>> float(
    ...     expected_diagonal_risk(
    ...         np.ones(30), [1.0] + 29 * [0.0], [1.0] + 29 * [0.0], 0.5, n=40, k=5
    ...     ).round(4)
    ... )
    0.0066
    """
    alpha, sigma, k = letters(probabilities=probabilities, sigma=sigma, k=k)
    signal = _signal(variances, beta, shape=alpha.shape)
    rows = scalar("n", n, ROWS)
    columns = float(alpha.sum())
    if rows < 2 or columns > rows - 1:
        raise ValueError(
            f"expected_diagonal_risk needs sum(probabilities) <= n - 1 (least-squares members); got"
            f" {columns:.6g} and n = {rows:.6g}. Use smaller probabilities, or"
            " theory.covariance_risk for minimum-norm members."
        )
    max_size = int(min(rows - 2, len(alpha)))
    single, rejected = _distributions.coins_one_by_one(alpha, (1 - alpha) * signal, max_size)
    if rejected >= 1 - 1e-6:
        raise ValueError(
            f"coin flips that expect {columns:.6g} columns are accepted up to n - 2 ="
            f" {rows - 2:.6g} only, which has probability {1 - rejected:.1g}. Use smaller"
            " probabilities, or more rows n."
        )
    in_both = alpha**2
    missed_by_both = (1 - alpha) ** 2 * signal
    if rejected < _distributions.NEGLIGIBLE:
        pair, _ = _distributions.coins_one_by_one(in_both, missed_by_both, max_size)
    else:
        pair = _distributions.accepted_coins(alpha, in_both, missed_by_both, max_size)
    single_risk = _inflated(single, sigma, rows)
    pair_risk = _inflated(pair, sigma, rows)
    return mean_of_pairs(single_risk, pair_risk, k)


def _inflated(counts: Floats, sigma: Floats, n: float) -> Floats:
    """Risk of a pair from `coins_one_by_one` or `accepted_coins`, conditioned on the event of the
    counts.
    """
    probability, left_out = counts / counts[0].sum()
    a = np.arange(len(probability))
    v = a / (n - a - 1)
    bias = left_out @ (1 + v)
    variance = probability @ v
    risk: Floats = bias + sigma**2 * variance
    return risk


def ridge_matched_probabilities(Sigma: "ArrayLike", penalty: float, *, n: float) -> "Floats":
    r"""Inclusion probabilities whose large ensemble is ridge regression with this penalty.

    .. math:: \alpha_j = [\Sigma(\Sigma+\mu I)^{-1}]_{jj}, \qquad
              \lambda = \mu\bigl(n - \mathrm{tr}\,\Sigma(\Sigma+\mu I)^{-1}\bigr)

    The paper's first open question (section 5.1): uniform sampling reaches the ridge optimum only when
    :math:`E\,S\Sigma_{SS}^{-1}S^\top = (\Sigma+\mu I)^{-1}`, which for a diagonal covariance needs these
    :math:`\alpha_j = \Sigma_{jj}/(\Sigma_{jj}+\mu)`. For a signal :math:`\beta \sim N(0, I/p)` the best penalty
    is :math:`p\sigma^2`. Dropout with the same penalty has :math:`\lambda/n` in place of the larger
    :math:`\mu`: the paper's equation (39), and `DropoutRegressor`.

    Status: asymptotic for diagonal Sigma, heuristic for others. From data:
    `olsen.equivalence.inclusion_probabilities`.

    Examples
    --------
    >>> ridge_matched_probabilities([1.0, 1.0, 1.0, 1.0], 4.0, n=6).round(12)
    array([0.5, 0.5, 0.5, 0.5])
    """
    Sigma = _arguments.covariance(Sigma)
    rows = scalar("n", n, ROWS_OF_A_LIMIT)
    penalty = scalar("penalty", penalty)
    s, vectors = np.linalg.eigh(Sigma)
    s = np.maximum(s, 0.0)  # negative eigenvalues are rounding
    mu = _effective_penalty(s, rows, penalty)
    smoother = s / np.where(s > 0, s + mu, 1.0)
    return np.asarray(np.minimum(vectors**2 @ smoother, 1.0))


def optimal_probabilities(
    variances: "ArrayLike", beta: "ArrayLike", sigma: float, *, n: float
) -> "Floats":
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
    (beta,) = letters(beta=beta)
    signal = _signal(variances, beta, shape=beta.shape)
    n = scalar("n", n, ROWS_OF_A_LIMIT)
    way_out = "Without noise take every feature of non-zero signal."
    positive = _arguments.SPREAD._replace(least=LEAST, way_out=way_out)
    noise = scalar("sigma", sigma, positive) ** 2

    def excess(risk: float) -> float:
        left_out = np.sum(signal * risk / (n * signal + risk))  # sum of (1 - alpha_j) b_j^2
        return float(noise + left_out - risk)

    low = noise * (1 - 1e-12)
    high = (noise + signal.sum()) * (1 + 1e-12)
    total_risk: float = brentq(excess, low, high, xtol=1e-300, rtol=1e-15)
    return n * signal / (n * signal + total_risk)
