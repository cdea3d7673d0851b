"""Whether `choose` picks well: every solver of the registry that applies, on a grid of shapes."""

from __future__ import annotations

import numpy as np

from olsen import _members, subsets
from olsen._execution import memory
from olsen._execution.threads import Threads
from problems import linear
from timing import best, interleave, judged, summary

from .text import duration, limits, times

TITLE = "The choice of the solver"
NOTE = (
    "Every solver of the registry that applies, on two threads, moments included. Those five times"
    " slower than the fastest drop out after the first turns, and `orthogonal` does not run where"
    " it would take many seconds. The ratio is the chosen solver's time over the fastest one's."
)
MUST = 1.5
# floating point operations from which `orthogonal`, an order of magnitude behind, is left out
HOPELESS = 1e11
# n, p, m, k, max_samples
SHAPES = [
    (60, 30, 10, 100, 1.0),
    (200, 400, 120, 500, 1.0),
    (5000, 100, 50, 1000, 1.0),
    (2000, 1000, 800, 50, 1.0),
    (2000, 1000, 100, 50, 1.0),
    (2000, 1000, 100, 150, 1.0),
    (500, 3000, 50, 1000, 1.0),
    (500, 3000, 50, 4000, 1.0),
    (1000, 2000, 20, 500, 1.0),
    (20_000, 200, 20, 20, 1.0),
    (20_000, 200, 20, 100, 1.0),
    (100, 400, 200, 200, 1.0),
    (2000, 500, 100, 200, 0.25),
    (2000, 500, 50, 200, 0.9),
]
TOY_SHAPES = [(40, 20, 5, 6, 1.0), (20, 40, 30, 6, 1.0), (40, 20, 5, 6, 0.5)]


def run(quick: bool):
    for shape in TOY_SHAPES if quick else SHAPES:
        yield measure(*shape, rounds=1 if quick else 2)


def measure(n, p, m, k, max_samples, rounds):
    X, y = linear(n, p)
    how = {
        "max_features": m,
        "max_samples": max_samples,
        "design": "balanced",
        "fit_intercept": True,
    }
    features, samples = subsets.draw_members(n, p, k, rng=0, **how)

    def problem():
        return _members.RowData(X, y[:, None])  # a new one each time: it keeps its moments

    def call(name):
        return lambda: _members.SOLVERS[name](problem(), features, samples, Threads(2))

    chosen = _members.solve(problem(), features, samples, threads=Threads(2)).solver
    contenders = {
        name: call(name) for name in {chosen: None} | dict.fromkeys(applicable(n, p, m, k, samples))
    }
    measured = race(contenders, rounds)
    took = best(measured)
    return {
        "shape": {"n": n, "p": p, "m": m, "k": k, "max_samples": max_samples},
        **summary(measured),
        "chosen": chosen,
        "fastest": min(took, key=took.__getitem__),
        **judged(took[chosen] / min(took.values()), MUST, better="less"),
    }


def applicable(n, p, m, k, samples):
    """Solvers that can answer, and in seconds: a shared Gram matrix only where it fits, QR on small
    work only.
    """
    rows = (n if samples is None else int(np.min(samples.sizes))) - 1
    if m > rows:
        return ["interpolator", "orthogonal"]
    out = {"interpolator"}
    if samples is not None or 24 * p**2 > 0.5 * memory.available_bytes():
        out.add("gram")
    if 4 * k * rows * m**2 > HOPELESS:
        out.add("orthogonal")
    return [name for name in _members.SOLVERS if name not in out]


def race(contenders, rounds):
    """Times of contenders that take turns; who is five times slower than the fastest after the
    first turns is out.
    """
    first = interleave(contenders, rounds=1)
    quickest = min(best(first).values())
    close = {name: call for name, call in contenders.items() if min(first[name]) < 5 * quickest}
    return first | interleave(close, rounds, first)


def cells(row):
    shape, took = row["shape"], row["seconds"]
    rows = "" if shape["max_samples"] == 1.0 else f", max_samples {shape['max_samples']}"
    return {
        "n, p, m, k": f"{shape['n']}, {shape['p']}, {shape['m']}, {shape['k']}{rows}",
        **{name: duration(took.get(name)) for name in _members.SOLVERS},
        "chosen": row["chosen"],
        "fastest": row["fastest"],
        "ratio": times(row["value"]),
        **{name: text for name, text in limits(row).items() if name != "aim"},
    }
