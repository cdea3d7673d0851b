"""Risk on simulated signals: tuned ensembles against RidgeCV and LassoCV, sparse and dense.

    python benchmarks/simulated.py [--repeats 12]

Independent Gaussian columns; risks are squared distances of the coefficients from the truth, means over data sets.
"""

import argparse
from collections import Counter

import numpy as np
from sklearn.linear_model import LassoCV, RidgeCV

from olsen import OLSEnsembleRegressorCV

CASES = {  # n, p, nonzero coefficients (None: all), sigma
    "sparse": (100, 80, 5, 0.7),
    "dense": (400, 200, None, 1.0),
}


def draw(n, p, nonzero, sigma, seed):
    rng = np.random.default_rng(seed)
    X, beta = rng.standard_normal((n, p)), np.zeros(p)
    beta[:nonzero] = rng.standard_normal(p if nonzero is None else nonzero)
    beta /= np.linalg.norm(beta)
    return X, X @ beta + sigma * rng.standard_normal(n), beta


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=12)
    repeats = parser.parse_args().repeats
    for name, case in CASES.items():
        risks, kinds = [], Counter()
        for seed in range(repeats):
            X, y, beta = draw(*case, seed)
            auto = OLSEnsembleRegressorCV(inclusion="auto", random_state=seed)
            models = [auto, OLSEnsembleRegressorCV(random_state=seed), RidgeCV(np.logspace(-2, 4, 50)), LassoCV()]
            risks.append([np.sum((model.fit(X, y).coef_ - beta) ** 2) for model in models])
            kinds[auto.inclusion_kind_] += 1
        auto_risk, default, ridge, lasso = np.mean(risks, axis=0)
        print(f"{name}: n, p, nonzero, sigma = {case}; {repeats} data sets; inclusion chosen by auto: {dict(kinds)}")
        print(f"  auto {auto_risk:.4f}, default {default:.4f}, RidgeCV {ridge:.4f}, LassoCV {lasso:.4f}; ", end="")
        print(f"auto / LassoCV {auto_risk / lasso:.2f}, default / RidgeCV {default / ridge:.3f}", flush=True)


if __name__ == "__main__":
    main()
