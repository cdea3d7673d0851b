r"""Members that differ in size and penalty: the matrix of their pair risks, and the best weights.

The entries :math:`R_{ij} = E\,(b_i-\beta)^\top\Sigma(b_j-\beta)` are the risks of a member (i = j)
and of a pair; an ensemble with weights w has the risk :math:`w^\top R w`. For members on given
columns, and any covariance: `theory.pair_risks`.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import nnls

from ._arguments import Floats, as_numbers, covariance, letters, require, scalar
from ._distributions import hypergeometric
from .finite import overlap_bias, overlap_variance
from .limits import limit_terms, pair_terms_of


def _list_of_members(**values: Floats) -> list[Floats]:
    """Values by member, (k,), from numbers and from vectors of one length."""
    vectors = np.broadcast_arrays(*(np.atleast_1d(value) for value in values.values()))
    names = ", ".join(values)
    require(vectors[0].ndim == 1, f"{names} must be numbers or vectors with an entry per member.")
    return list(vectors)


def expected_pair_risks(n: int, p: int, n_features: "ArrayLike", sigma: float) -> "Floats":
    r"""Expected risks of all pairs of members of different sizes at finite n and p, all rows.

    .. math:: R_{ij} = E_a\Bigl[\frac{p - m_i - m_j + a}{p}(1 + v) + \sigma^2 v\Bigr], \qquad
              v = \frac{a}{n-a-1}

    over the hypergeometric number :math:`a` of shared columns; :math:`a = m_i` for i = j. The
    columns of each member are drawn independently and uniformly.

    Parameters
    ----------
    n, p : int
        Rows and columns of the data.
    n_features : array of shape (k,)
        Columns of each member, at most n - 2.
    sigma : float
        Noise standard deviation; the signal has norm 1.

    Returns
    -------
    risks : ndarray of shape (k, k)

    Notes
    -----
    Status: exact for Gaussian columns.

    Examples
    --------
    >>> expected_pair_risks(12, 8, [4, 2], 0.5**0.5).round(4)
    array([[1.0714, 0.4726],
           [0.4726, 1.0278]])
    """
    n = int(scalar("n", n))
    p = int(scalar("p", p))
    sigma = scalar("sigma", sigma)
    (sizes,) = _list_of_members(n_features=letters(n_features=n_features)[0])
    require(
        sizes <= min(p, n - 2),
        f"n_features must be at most min(p, n - 2) = {min(p, n - 2)}; got {np.max(sizes):g}.",
    )
    different, position = np.unique(sizes.astype(int), return_inverse=True)
    of_pairs = np.empty((len(different), len(different)))
    for i, j in zip(*np.tril_indices(len(different)), strict=True):
        overlap, weights = hypergeometric(p, int(different[i]), int(different[j]))
        in_neither = (p - different[i] - different[j] + overlap) / p
        risk = overlap_bias(n, overlap, in_neither) + overlap_variance(n, overlap, sigma)
        of_pairs[i, j] = of_pairs[j, i] = weights @ risk
    risks = of_pairs[np.ix_(position, position)]
    itself = overlap_bias(n, sizes, 1 - sizes / p) + overlap_variance(n, sizes, sigma)
    np.fill_diagonal(risks, itself)
    return risks


def limiting_pair_risks(
    alpha: "ArrayLike",
    gamma: float,
    sigma: float,
    *,
    eta: "ArrayLike" = 1.0,
    lam: "ArrayLike" = 0.0,
) -> "Floats":
    r"""Limiting risks of all pairs of members that differ in columns, rows and penalty.

    .. math:: R_{ij} = \frac{(1-\delta_i)(1-\delta_j) + \sigma^2\gamma\delta_i\delta_j}
              {1-\gamma\delta_i\delta_j} \quad (i \ne j)

    with the :math:`\delta` of `theory.limiting_risk`, which also gives :math:`R_{ii}` (k = 1).

    Parameters
    ----------
    alpha, eta, lam : float or array of shape (k,)
        Fraction of the columns, fraction of the rows, and penalty as lambda / n of each member,
        n being all rows.
    gamma, sigma : float

    Returns
    -------
    risks : ndarray of shape (k, k)

    Notes
    -----
    Status: asymptotic.

    Examples
    --------
    >>> limiting_pair_risks([0.25, 0.75], 1.0, 0.5**0.5, lam=[0.0, 0.1]).round(4)
    array([[1.1667, 0.4412],
           [0.4412, 1.    ]])
    """
    gamma = scalar("gamma", gamma)
    sigma = scalar("sigma", sigma)
    alpha, eta, lam = letters(alpha=alpha, eta=eta, lam=lam)
    alpha, eta, lam = _list_of_members(alpha=alpha, eta=eta, lam=lam)
    terms = limit_terms(alpha, np.asarray(gamma), eta, lam)
    delta = terms.shrinkage
    bias, variance = pair_terms_of(delta[:, None], delta, np.asarray(gamma))
    risks = bias + sigma**2 * variance
    np.fill_diagonal(risks, terms.single_bias + sigma**2 * terms.single_variance)
    return risks


def best_weights(risks: "ArrayLike", *, nonnegative: bool = False) -> "Floats":
    r"""The weights of members, with sum one, of the lowest risk.

    .. math:: w = \frac{R^{-1} 1}{1^\top R^{-1} 1}, \qquad \min_w w^\top R w = \frac1{1^\top R^{-1} 1}

    Parameters
    ----------
    risks : array of shape (..., k, k)
        Risks of all pairs of members, as from `theory.pair_risks`. A constant that is added to all
        entries, such as the variance of the noise, does not change the weights.
    nonnegative : bool
        No negative weights: the minimum over the simplex.

    Returns
    -------
    weights : ndarray of shape (..., k)

    Notes
    -----
    Status: exact for exact risks. A singular or indefinite matrix is refused: members whose errors
    are combinations of each other have no unique weights.

    Examples
    --------
    >>> risks = [[2.0, 1.5], [1.5, 1.6]]
    >>> best_weights(risks).round(4)
    array([0.1667, 0.8333])
    >>> best_weights([[2.0, 1.2], [1.2, 1.0]], nonnegative=True)
    array([0., 1.])
    """
    R = as_numbers("risks", risks)
    require(
        R.ndim >= 2 and R.shape[-1] == R.shape[-2] and R.size,
        f"risks must hold the risks of all pairs of members, k x k; got shape {R.shape}.",
    )
    weights = np.empty(R.shape[:-1])
    for index in np.ndindex(R.shape[:-2]):
        weights[index] = _best_weights(R[index], nonnegative=nonnegative)
    return weights


def _best_weights(R: Floats, *, nonnegative: bool) -> Floats:
    """`best_weights` of one matrix: with v = w / sum(w) free in scale, the least of v'Rv / 2 - 1'v."""
    R = covariance(R, "risks")
    scale = np.sqrt(np.diag(R))
    require(scale > 0, "risks: a member of risk zero needs no others; got a zero on the diagonal.")
    H = R / scale / scale[:, None]
    eigenvalues, vectors = np.linalg.eigh(H)
    if eigenvalues[0] <= len(R) * (len(R) + 2) * np.finfo(float).eps:
        alike = np.flatnonzero(np.abs(vectors[:, 0]) > 1e-6).tolist()
        raise ValueError(
            f"risks is singular: the errors of members {alike} are combinations of each other, so"
            " that no weights are the best. Leave one of the members out."
        )
    square_root = np.linalg.cholesky(H)
    target = np.linalg.solve(square_root, 1 / scale)
    if nonnegative:
        v, _ = nnls(square_root.T, target)
    else:
        v = np.linalg.solve(square_root.T, target)
    unscaled = v / scale
    return np.asarray(unscaled / unscaled.sum())
