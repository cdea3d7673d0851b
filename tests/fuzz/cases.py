"""Problems of the fuzz suite: what a user may hand over, drawn from a few numbers so that a failure
is one line.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

PATTERNS = (
    "gaussian",
    "constant",
    "zero",
    "duplicate",
    "dependent",
    "one_hot",
    "leverage_one",
    "offset",
    "collinear",
    "units",
    "spectrum",
    "outlier",
)
TARGETS = ("noise", "exact", "constant", "two", "large", "small")
WEIGHTS = ("none", "ordinary", "zeros", "uneven", "huge", "tiny")
ENGINES = ("memory", "blocks", "stream", "csr", "csc", "fortran", "float32", "frame", "device")


@dataclass(frozen=True)
class Case:
    """Everything that decides a problem; `seed` draws the numbers."""

    pattern: str = "gaussian"
    target: str = "noise"
    weights: str = "none"
    engine: str = "memory"
    n: int = 12
    p: int = 5
    k: int = 3
    size: int = 3  # columns of a member
    rows: int = 0  # of a member; 0: all
    power: int = 0  # X is multiplied by ten to this
    fit_intercept: bool = True
    balanced: bool = True
    coins: bool = False
    solver: str = "auto"
    seed: int = 0

    def data(self):
        """X, y and weights."""
        rng = np.random.default_rng(self.seed)
        X = columns(self, rng) * 2.0 ** round(self.power * np.log2(10))
        return X, targets(self, X, rng), row_weights(self, rng)

    def __str__(self):
        default = Case()
        odd = [f for f in fields(self) if getattr(self, f.name) != getattr(default, f.name)]
        return f"Case({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in odd)})"


def columns(case, rng):
    n = case.n
    p = case.p
    X = rng.standard_normal((n, p))
    chosen = rng.permutation(p)[: max(1, p // 2)]
    if case.pattern == "constant":
        X[:, chosen] = rng.choice([0.014, 0.1, -3.7, 1e6 / 3, 1e-9], len(chosen))
    elif case.pattern == "zero":
        X[:, chosen] = 0.0
    elif case.pattern == "duplicate":
        X = whole(X)
        X[:, chosen] = X[:, rng.integers(p, size=len(chosen))]
    elif case.pattern == "dependent":
        X = whole(X)
        X[:, chosen[0]] = X[:, [j for j in range(p) if j != chosen[0]]].sum(axis=1)
    elif case.pattern == "one_hot":
        levels = max(2, min(p - 1, 4))
        X = whole(X)
        X[:, :levels] = (
            np.eye(levels)[rng.integers(levels, size=n)][:, : min(levels, p)]
            if levels <= p
            else 1.0
        )
    elif case.pattern == "leverage_one":
        X = whole(X)
        for j in chosen:
            X[:, j] = 0.0
            X[rng.integers(n), j] = 1.0
    elif case.pattern == "offset":
        X += rng.choice([0.0, 1e2, 1e4, 1e6, 1e8], p)
    elif case.pattern == "collinear":
        X[:, chosen] = X[:, chosen[:1]] + 10.0 ** -rng.integers(1, 8) * X[:, chosen]
    elif case.pattern == "units":
        X *= 2.0 ** (rng.integers(-60, 60, p) // (4 if case.engine == "float32" else 1))
    elif case.pattern == "spectrum":
        X = np.cumsum(np.cumsum(X, axis=1), axis=1) + 5.0
    elif case.pattern == "outlier":
        X[rng.integers(n)] *= 10.0 ** rng.integers(1, 7)
    return X


def whole(X):
    """Small whole numbers: their sums are exact, so dependent columns are so in any precision."""
    return np.rint(4 * X)


def targets(case, X, rng):
    n, p = X.shape
    scale = np.abs(X).max(axis=0)
    signal = (X / np.where(scale > 0, scale, 1.0)) @ rng.standard_normal(p)
    y = signal + rng.standard_normal(n)
    return {
        "noise": y,
        "exact": signal,
        "constant": np.full(n, 2.5),
        "two": np.column_stack([y, rng.standard_normal(n)]),
        "large": y * 2.0**160,
        "small": y * 2.0**-160,
    }[case.target]


def row_weights(case, rng):
    n = case.n
    w = rng.random(n) + 0.1
    if case.weights == "none":
        return None
    if case.weights == "zeros":
        w[rng.permutation(n)[: n // 4]] = 0.0
    elif case.weights == "uneven":
        w = 10.0 ** rng.integers(-3, 4, n)
    return w * {"huge": 2.0**160, "tiny": 2.0**-160}.get(case.weights, 1.0)


def drawn(rng):
    """A random case."""

    def pick(options):
        return options[int(rng.integers(len(options)))]

    n = int(rng.integers(4, 25))
    p = int(rng.integers(1, 11))
    engine = pick(ENGINES)
    small = engine in ("memory", "fortran", "csr", "csc")
    weights = pick(WEIGHTS if small else WEIGHTS[:4])
    counted = n - n // 4 if weights == "zeros" else n
    return Case(
        pattern=pick(PATTERNS),
        target=pick(TARGETS) if engine != "float32" else pick(TARGETS[:4]),
        weights=weights,
        engine=engine,
        n=n,
        p=p,
        k=int(rng.integers(1, 5)),
        size=int(rng.integers(1, p + 1)),
        rows=int(rng.integers(2, counted)) if small and rng.random() < 0.3 else 0,
        power=int(rng.choice([0, 0, 0, 0, -25, 25, -25, 25, -150, 150]))
        if engine != "float32"
        else 0,
        fit_intercept=bool(rng.random() < 0.7),
        balanced=bool(rng.random() < 0.7),
        coins=bool(rng.random() < 0.2),
        solver=pick(("auto", "auto", "gram", "orthogonal", "masked_cg")) if small else "auto",
        seed=int(rng.integers(1 << 31)),
    )
