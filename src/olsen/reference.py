r"""The paper in plain NumPy: slow and obvious, for reading and as the oracle of the tests.

LeJeune, Javadi and Baraniuk, "The Implicit Regularization of Ordinary Least Squares Ensembles"
(AISTATS 2020). Equation numbers are those of the paper. X has shape (n, p), there is no intercept,
and nothing here is used by the rest of the package: :class:`olsen.OLSEnsembleRegressor` computes
:func:`ensemble`, fast, and :mod:`olsen.theory` has the formulas for every argument at once.

Examples
--------
The mean risk of simulated ensembles is close to the limit of Theorem 3.5:

>>> import numpy as np
>>> from olsen import reference
>>> n, p, sigma, k = 100, 50, 1.0, 20
>>> gamma = p / n
>>> alpha = reference.optimal_alpha(gamma, sigma)
>>> rng = np.random.default_rng(0)
>>> risks = []
>>> for _ in range(50):
...     beta = rng.standard_normal(p) / np.sqrt(p)
...     X = rng.standard_normal((n, p))
...     y = X @ beta + sigma * rng.standard_normal(n)
...     columns = [reference.draw(p, round(alpha * p), rng) for _ in range(k)]
...     rows = [np.arange(n)] * k
...     risks.append(
...         reference.risk(reference.ensemble(X, y, columns, rows), beta)
...     )
>>> standard_error = np.std(risks, ddof=1) / np.sqrt(len(risks))
>>> limit = reference.limiting_risk(alpha, gamma, sigma, k)
>>> print(f"{np.mean(risks):.3f} +- {standard_error:.3f}, limit {limit:.3f}")
0.461 +- 0.013, limit 0.444
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

__all__ = [
    "draw",
    "ensemble",
    "limiting_risk",
    "member",
    "optimal_alpha",
    "optimal_mu",
    "pair_bias",
    "pair_variance",
    "risk",
    "scaled_risk",
]


def draw(n_items: int, size: int, rng: np.random.Generator) -> Indices:
    """Draw a random subset of one size: a set S_i of columns or T_i of rows (Assumption 3.1)."""
    return np.asarray(rng.permutation(n_items)[:size])


def member(X: Array, y: Array, columns: Indices, rows: Indices) -> Array:
    r"""Fit one member, equations (3) to (5): :math:`S_i (T_i' X S_i)^\dagger T_i' y`."""
    coef = np.zeros(X.shape[1])
    coef[columns] = np.linalg.pinv(X[np.ix_(rows, columns)]) @ y[rows]
    return coef


def ensemble(X: Array, y: Array, columns: Sequence[Indices], rows: Sequence[Indices]) -> Array:
    """Average the members, equations (2) and (6); `columns` and `rows` list the sets S_i and T_i."""
    members = [member(X, y, S, T) for S, T in zip(columns, rows, strict=True)]
    return np.asarray(np.mean(members, axis=0))


def risk(coef: Array, beta: Array) -> float:
    """Excess risk of coefficients for identity covariance, equation (7)."""
    return float(np.sum((coef - beta) ** 2))


def pair_bias(p: int, n: int, S_i: Indices, S_j: Indices) -> float:
    """Expected bias term of two members on all rows, Lemma 3.2, for coefficients of norm one.

    Status: exact, averaged over the positions of the columns or over random coefficients, for n at
    least two more than the columns that the members share. With row subsets the case i != j is a
    limit only.
    """
    overlap = len(np.intersect1d(S_i, S_j))
    outside_both = p - len(np.union1d(S_i, S_j))
    return outside_both / p * (1 + overlap / (n - overlap - 1))


def pair_variance(n: int, S_i: Indices, S_j: Indices, sigma: float) -> float:
    """Expected variance term of two members on all rows, Lemma 3.3; status as :func:`pair_bias`,
    for any positions of the columns.
    """
    overlap = len(np.intersect1d(S_i, S_j))
    return sigma**2 * overlap / (n - overlap - 1)


def limiting_risk(
    alpha: float, gamma: float, sigma: float, k: float = np.inf, eta: float = 1.0
) -> float:
    """Limiting risk of k members, Theorem 3.5 and, for infinite k, equation (22).

    For alpha gamma < eta, below the interpolation peak. Status: theorem for all rows, eta = 1;
    asymptotic for row subsets, for which the paper's proof takes dependent matrices as independent.
    """
    different_members = ((1 - alpha) ** 2 + sigma**2 * alpha**2 * gamma) / (1 - alpha**2 * gamma)
    if k == np.inf:
        return different_members
    same_member = (eta * (1 - alpha) + sigma**2 * alpha * gamma) / (eta - alpha * gamma)
    return (1 - 1 / k) * different_members + 1 / k * same_member


def optimal_alpha(gamma: float, sigma: float) -> float:
    """The best alpha of infinitely many members, equation (78); the risk there is one minus alpha
    (Corollary 3.7), which is the risk of optimally tuned ridge regression (Theorem 3.6). The
    root is written so that nothing cancels for small gamma.
    """
    c = gamma * (sigma**2 + 1) + 1
    return float(2 / (c + np.sqrt(c**2 - 4 * gamma)))


def scaled_risk(alpha: float, gamma: float, sigma: float, mu: float) -> float:
    """Limiting risk of infinitely many members times mu, equation (35)."""
    R = limiting_risk(alpha, gamma, sigma)
    return mu**2 * R + (1 - mu) ** 2 + 2 * mu * (1 - mu) * (1 - alpha)


def optimal_mu(alpha: float, gamma: float, sigma: float) -> float:
    """The best scale of infinitely many members, equation (36)."""
    return alpha / (limiting_risk(alpha, gamma, sigma) + 2 * alpha - 1)
