"""One trial of figure 2 at gamma = 2, every number of members up to 1000: the authors' recipe and
ours.

The authors' recipe (github.com/dlej/ensemble-ols) grows
``BaggingRegressor(LinearRegression(fit_intercept=False), bootstrap=False)`` by ``warm_start`` and
averages the coefficients of its members at every k of the grid. Ours draws all members, solves them
from one Gram matrix, and takes cumulative means. Both start from the same X and y, take turns, and
have one thread.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression
from threadpoolctl import threadpool_limits

from olsen import theory
from olsen.figures import RECIPES
from olsen.simulation import Ensemble, LinearProblem

GAMMA = 2.0


def setting():
    """RowData, columns in a member and grid of k, as the recipe of figure 2 has them."""
    constants = RECIPES["figure2"].at("paper")
    p = round(GAMMA * constants.n)
    columns = round(float(theory.optimal_alpha(GAMMA, constants.sigma)) * p)
    return LinearProblem(constants.n, p, constants.sigma), columns, constants.k


def authors_risks(sample, columns, ks, seed):
    """Risk at every k, refitting nothing: members are added by warm starts."""
    member = LinearRegression(fit_intercept=False)
    model = BaggingRegressor(
        member, max_features=columns, bootstrap=False, warm_start=True, random_state=seed
    )
    total, counted, risks = np.zeros(len(sample.beta)), 0, []
    for k in ks:
        model.set_params(n_estimators=k).fit(sample.X, sample.y)
        for one, drawn in zip(
            model.estimators_[counted:], model.estimators_features_[counted:], strict=True
        ):
            total[drawn] += one.coef_
        counted = k
        risks.append(sample.energy(total / k - sample.beta))
    return np.array(risks)


def our_risks(sample, columns, ks, seed):
    """Risk at every k from one solve."""
    return Ensemble(columns, k=ks).evaluate(sample, seed)[:, 0]


def timed(function, *arguments):
    """Seconds and result with BLAS on one thread."""
    with threadpool_limits(1, user_api="blas"):
        start = time.perf_counter()
        result = function(*arguments)
        return time.perf_counter() - start, result


def compare(trials: int = 12, repeats: int = 8, most: int = 1000) -> dict:
    """Time both on the same data, and compare their risks over trials.

    Parameters
    ----------
    trials : int
        Data sets; each is fitted by both.
    repeats : int
        Timings of ours on each of them; of both the best is taken.
    most : int
        Members.

    Returns
    -------
    dict
        Seconds of both, their ratio, and the largest difference of mean risks in standard errors of
        the paired differences (over trials, at k = 1, 10, 100 and 1000 or the nearest of the grid).
    """
    problem, columns, ks = setting()
    ks = tuple(k for k in ks if k <= most)
    samples = [problem.draw(np.random.default_rng(trial)) for trial in range(trials)]
    theirs, ours, difference = list[float](), list[float](), []
    for trial, sample in enumerate(samples):
        seconds, their = timed(authors_risks, sample, columns, ks, trial)
        theirs.append(seconds)
        for _ in range(repeats):
            seconds, our = timed(our_risks, sample, columns, ks, trial)
            ours.append(seconds)
        difference.append(our - their)
    shown = [int(np.argmin(np.abs(np.array(ks) - k))) for k in (1, 10, 100, 1000)]
    stacked = np.array(difference)[:, shown]
    distance = np.abs(stacked.mean(axis=0)) / (stacked.std(axis=0, ddof=1) / np.sqrt(trials))
    return {
        "n": problem.n,
        "p": problem.p,
        "columns": columns,
        "members": max(ks),
        "trials": trials,
        "seconds_bagging": min(theirs),
        "seconds_olsen": min(ours),
        "ratio": min(theirs) / min(ours),
        "k": [ks[i] for i in shown],
        "difference": stacked.mean(axis=0).tolist(),
        "standard_errors": distance.tolist(),
    }


def main(trials: int) -> dict:
    """Print the comparison and return it."""
    result = compare(trials)
    print(
        f"figure 2, one trial: n = {result['n']}, p = {result['p']}, {result['columns']} columns in"
        f" a member, k to {result['members']}, {trials} data sets"
    )
    print(f"  Bagging + LinearRegression  {result['seconds_bagging'] * 1e3:9.1f} ms")
    print(
        f"  olsen                       {result['seconds_olsen'] * 1e3:9.1f} ms  "
        f" {result['ratio']:.0f} times faster"
    )
    for k, difference, distance in zip(
        result["k"], result["difference"], result["standard_errors"], strict=True
    ):
        print(
            f"  mean difference of risks at k = {k:>4}: {difference:+.4f}, {distance:.1f} standard"
            " errors"
        )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=12, help="data sets")
    main(parser.parse_args().trials)
