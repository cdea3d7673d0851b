"""The compiled kernel alone, against a matrix product that takes turns with it."""

from __future__ import annotations

from functools import partial

import numpy as np

from machine import product
from olsen import subsets
from olsen._execution.threads import Threads
from olsen._kernel import wrappers as kernels
from problems import linear
from timing import best, interleave, judged, summary

from .text import limits

TITLE = "The compiled kernel"
NOTE = (
    "GFLOP/s of the batch of Cholesky solves on principal submatrices of one p x p Gram matrix:"
    " m^3/3 operations for a member and 2 m^2 for each of its 3 right-hand sides, none counted for"
    " the gather. Fractions are of the rate of a matrix product on one thread (times two for two"
    " threads) that takes turns with it. The last columns are how much two threads do more than"
    " one, which must be 1.6 x on an idle machine, and the same for two matrix products."
)
TARGETS = 3  # one of the user's and the two that watch the condition
# m, p, must, aim
SIZES = [
    (50, 100, None, None),
    (100, 200, None, 0.60),
    (120, 400, None, 0.60),
    (250, 500, 0.40, 0.60),
    (500, 1000, 0.55, 0.60),
]
TOY_SIZES = [(12, 24, None, None), (30, 60, 0.40, 0.60)]
SPEED_UP = 1.6
FLOPS = 2e9  # of all members together


def run(quick: bool):
    for size in TOY_SIZES if quick else SIZES:
        yield measure(*size, quick)


def measure(m, p, must, aim, quick):
    each = m**3 / 3 + 2 * m**2 * TARGETS
    k = 8 if quick else 8 * round(FLOPS / each / 8)
    solve = kernel(m, p, k)
    multiply, flops = product(100 if quick else 1000)
    other, _ = product(100 if quick else 1000)

    def two_products():
        Threads(2)(lambda i, _: (multiply, other)[i](), 2, chunk=1)

    solve(1)
    contenders = {
        "one product": partial(Threads(), lambda *_: multiply(), 1),
        "one thread": partial(solve, 1),
        "two products": two_products,
        "two threads": partial(solve, 2),
    }
    measured = interleave(contenders, rounds=1 if quick else 5)
    took = best(measured)
    dgemm = flops / took["one product"]
    rates = [k * each / took["one thread"], k * each / took["two threads"]]
    return {
        "m": m,
        "p": p,
        "k": k,
        **summary(measured),
        "gflops": [rate / 1e9 for rate in rates],
        "dgemm_gflops": dgemm / 1e9,
        "fraction": [rate / (dgemm * threads) for threads, rate in enumerate(rates, 1)],
        "dgemm_speed_up": 2 * took["one product"] / took["two products"],
        "speed_up": judged(rates[1] / rates[0], SPEED_UP),
        **judged(rates[0] / dgemm, must, aim),
    }


def kernel(m, p, k):
    """A call that solves k members of m columns on some threads."""
    X, y = linear(4 * p, p)
    G = X.T @ X
    C = np.column_stack([X.T @ y, *np.random.default_rng(1).standard_normal((TARGETS - 1, p))])
    features = subsets.draw(p, k, rng=0, size=m, design="balanced")
    arguments = {
        "G": G,
        "C": C,
        "scale": np.sqrt(np.diagonal(G)),
        "data": kernels.MemberData.none(p),  # no columns depend on each other
        "columns": kernels.Lists.of(features.indptr, features.indices),
        "shifts": np.zeros(k),
        "values": np.empty((len(features.indices), 1)),  # of one target; the others are probes
        "ratios": np.empty(k),
        "probed": np.empty(k),
    }
    work = partial(kernels.solve_principal, **arguments)

    return lambda n_threads: Threads(n_threads)(work, k)


def cells(row):
    one, two = row["gflops"]
    return {
        "m (p, k)": f"{row['m']} ({row['p']}, {row['k']})",
        "product": f"{row['dgemm_gflops']:.1f}",
        "1 thread": f"{one:.1f}",
        "2 threads": f"{two:.1f}",
        "fraction, 1 thread": percent(row["fraction"][0]),
        "fraction, 2 threads": percent(row["fraction"][1]),
        **limits(row, percent),
        "2 threads / 1": f"{row['speed_up']['value']:.2f} x, {row['speed_up']['verdict']}",
        "products 2 / 1": f"{row['dgemm_speed_up']:.2f} x",
    }


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"
