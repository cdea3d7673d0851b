r"""Any covariance, random subsets: averages of the pair formula over the columns of members.

Averages over *different* members are U-statistics of drawn subsets, so products of averages have
no bias. Members on all columns differ in their rows only, and nothing has to be drawn for them.
"""

from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _arguments
from ._arguments import Counts, Floats, checked, letters, require, scalar
from ._pairs import mean_of_pairs
from .covariance import (
    Member,
    PairTerms,
    Problem,
    checked_problem,
    inflation,
    member_of,
    pair_terms,
)


def covariance_risk(
    Sigma: "ArrayLike",
    beta: "ArrayLike",
    alpha: "ArrayLike",
    sigma: "ArrayLike",
    *,
    n: float,
    k: "ArrayLike" = inf,
    eta: float = 1.0,
    rng: "np.random.Generator | int | None" = None,
    n_subsets: int = 200,
    penalty: float = 0.0,
    return_std: bool = False,
    Sigma_test: "ArrayLike | None" = None,
) -> Any:
    r"""Risk of `k` members on random columns, any covariance.

    .. math:: R_{off} + \frac{R_{diag}-R_{off}}{k}, \qquad
              R_{off} + \sigma^2 = \frac{\sigma^2 + \bar r^\top\Sigma\bar r}{1 - \mathrm{tr}(\bar\Pi^2)/n}

    where :math:`\bar r` and :math:`\bar\Pi = E\,\Sigma^{1/2}S Q S^\top\Sigma^{1/2}` average over
    subsets (the averaged projector), estimated from `n_subsets` drawn subsets;
    :math:`R_{diag}` is the mean of `pair_risk` of each subset with itself. Members on all columns
    (``alpha=1``) need no draw.

    Parameters
    ----------
    Sigma, beta, sigma, n, penalty, Sigma_test
        As in `pair_risk`; `sigma` and `k` broadcast.
    alpha : float or array of shape (p,)
        A number: subsets of size ``round(alpha * p)``. An array: coin flips with these inclusion
        probabilities.
    eta : float
        Each member sees ``round(eta * n)`` rows, drawn independently.
    rng : numpy Generator or seed
    n_subsets : int
        Number of subsets drawn; memory grows as ``n_subsets * m**2``.
    return_std : bool
        Also return the Monte-Carlo standard error (delete-one jackknife over the subsets).

    Notes
    -----
    Status: asymptotic with Monte-Carlo over subsets; relative error O(1/n). Coin flips are redrawn
    above ``eta * n - 2`` columns when their mean is below it (the paper's rule). Members of minimum
    norm have no finite-n correction: on all columns, p / n = 3/4 and autoregressive covariance, the
    formula was low by 4, 2 and 1 per cent for members of 16, 32 and 64 rows, with and without
    `Sigma_test`.

    Examples
    --------
    With identity covariance the risk depends on the drawn subsets only through the position of the
    signal:

    >>> risk = covariance_risk(
    ...     np.ones(40), np.full(40, 40**-0.5), 0.25, 1.0, n=60, k=5, rng=0
    ... )
    >>> bool(abs(risk - 0.7279) < 0.005)
    True
    """
    problem = checked_problem(Sigma, beta, Sigma_test)
    p = len(problem.beta)
    sigma, k = letters(sigma=sigma, k=k)
    alpha = checked("alpha", alpha, _arguments.PROBABILITY)
    n = scalar("n", n)
    penalty = scalar("penalty", penalty)
    rows = round(scalar("eta", eta) * n)
    require(rows, f"eta = {eta:.6g} leaves no row of n = {n:g} to a member; give more of either.")
    n_subsets = int(scalar("n_subsets", n_subsets))
    subsets = _draw(alpha, p, n_subsets, rows, penalty=penalty, rng=np.random.default_rng(rng))
    members = [member_of(problem, S, rows=rows, penalty=penalty) for S in subsets]
    single, pair = _averages(problem, members, t=rows**2 / n)
    noise = sigma[..., None] ** 2
    risks = mean_of_pairs(single.risk(noise), pair.risk(noise), k[..., None])
    risk = risks[..., 0][()]
    if not return_std:
        return risk
    with np.errstate(invalid="ignore"):
        standard_error = np.sqrt(n_subsets - 1.0) * risks[..., 1:].std(axis=-1)
    # the jackknife of an infinite risk is nan, and its error is infinite
    standard_error = np.where(np.isnan(standard_error), inf, standard_error)
    return risk, standard_error[()]


def _draw(
    alpha: Floats,
    p: int,
    n_subsets: int,
    rows: int,
    *,
    penalty: float,
    rng: np.random.Generator,
) -> list[Counts]:
    """Subsets of fixed size, or coin flips that are drawn again above `rows` - 2 columns; one
    subset if it has all columns.
    """
    if alpha.shape not in ((), (p,)):
        raise ValueError(
            f"alpha must be a number or hold p = {p} probabilities; got shape {alpha.shape}."
        )
    size = round(float(alpha.mean()) * p)
    if size == p:
        return [np.arange(p)]
    if alpha.ndim == 0:
        return [rng.permutation(p)[:size] for _ in range(n_subsets)]
    is_redrawn = penalty == 0 and alpha.sum() <= rows - 2  # the paper's rule, for least squares
    max_size = rows - 2 if is_redrawn else p
    subsets: list[Counts] = []
    while len(subsets) < n_subsets:
        subset = np.flatnonzero(rng.random(p) < alpha)
        if len(subset) <= max_size:
            subsets.append(subset)
    return subsets


def _averages(problem: Problem, members: list[Member], t: float) -> tuple[PairTerms, PairTerms]:
    """Mean terms of single members, and of pairs of different members, which share t rows.

    Entries are averages over all N members, then over the members without each one in turn:
    (N + 1,) each. Sums over pairs are squares of sums minus the diagonal, so nothing is quadratic
    in N.
    """
    rows = members[0].rows
    if len(members) == 1:  # all columns
        all_columns = members[0]
        single = pair_terms(problem, all_columns, all_columns, rows)
        pair = pair_terms(problem, all_columns, all_columns, t)
        return _without_error(single), _without_error(pair)
    errors = np.array([member.error for member in members])  # (N, p)
    bias, bias_with_others = _forms(errors, problem.test)
    q, q_with_others = _forms(errors, problem.Sigma)
    trace, trace_with_others = _traces(members, problem.Sigma, problem.Sigma)
    test_trace, test_trace_with_others = trace, trace_with_others
    if problem.test is not problem.Sigma:
        test_trace, test_trace_with_others = _traces(members, problem.Sigma, problem.test)
    is_ols = np.array([float(member.is_ols) for member in members])
    v = inflation(trace, test_trace, t=rows, rows=rows**2, correction=is_ols)
    single = PairTerms(_means_of_members(bias + q * v), np.zeros(()), _means_of_members(v))
    pair_v = inflation(
        _means_of_pairs(trace_with_others),
        _means_of_pairs(test_trace_with_others),
        t=t,
        rows=rows**2,
        correction=np.min(is_ols),
    )
    pair_bias = _means_of_pairs(bias_with_others)
    return single, PairTerms(pair_bias, _means_of_pairs(q_with_others), pair_v)


def _without_error(terms: PairTerms) -> PairTerms:
    """Terms that do not depend on a draw: the mean, and one jackknife value equal to it."""
    return PairTerms(*(np.full(2, value) for value in terms))


def _forms(errors: Floats, Sigma: Floats) -> tuple[Floats, Floats]:
    """The numbers r_i' Sigma r_i, and the sums of r_i' Sigma r_j over all other members j: (N,)."""
    weighted = errors @ Sigma
    of_itself = np.sum(weighted * errors, axis=1)
    return of_itself, weighted @ errors.sum(axis=0) - of_itself


def _traces(members: list[Member], Sigma: Floats, test: Floats) -> tuple[Floats, Floats]:
    """The traces of Q_i Sigma_ij Q_j test_ji for j = i, and their sums over all other j: (N,)."""
    sum_of_inverses = np.zeros_like(Sigma)
    of_itself = []
    for member in members:
        block = np.ix_(member.features, member.features)
        sum_of_inverses[block] += member.inverse
        smoother = Sigma[block] @ member.inverse
        test_smoother = smoother if test is Sigma else test[block] @ member.inverse
        of_itself.append(np.sum(smoother * test_smoother.T))
    total = Sigma @ sum_of_inverses @ test
    sums = [np.sum(m.inverse * total[np.ix_(m.features, m.features)]) for m in members]
    return np.array(of_itself), np.array(sums) - np.array(of_itself)


def _means_of_pairs(with_others: Floats) -> Floats:
    """Means over ordered pairs, from sums over the N - 1 pairs of each member with the others."""
    n = len(with_others)
    total = with_others.sum()
    without_each = (total - 2 * with_others) / ((n - 1) * (n - 2))
    return np.append(total / (n * (n - 1)), without_each)


def _means_of_members(values: Floats) -> Floats:
    """Means over single members."""
    n = len(values)
    total = values.sum()
    with np.errstate(invalid="ignore"):  # inf - inf
        without_each = (total - values) / (n - 1)
    return np.append(total / n, without_each)
