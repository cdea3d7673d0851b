"""What it costs to have the law of inclusion chosen, over the fastest of the laws it chooses among."""

from __future__ import annotations

from olsen import OLSEnsembleRegressorCV
from timing import best, interleave, judged, summary

from . import tuned
from .text import duration, limits, times

TITLE = "The choice of the law of inclusion"
NOTE = (
    'Whole calls of `OLSEnsembleRegressorCV(inclusion="auto", n_jobs=2).fit` in turns with the laws it may choose, on '
    "the data of the tuned fits. The ratio is auto over the fastest of the others and is to be small."
)
MUST, AIM = 2.0, 1.3
LAWS = ("uniform", "ridge", "loo")


def run(quick: bool):
    for what, make, *_ in tuned.TOY_CASES if quick else tuned.CASES:
        yield measure(what, *make(), rounds=0 if quick else 1)


def measure(what, X, y, rounds):
    def call(law):
        return OLSEnsembleRegressorCV(inclusion=law, n_jobs=2, random_state=0).fit(X, y)

    chosen = call("auto").inclusion_kind_
    measured = interleave({law: (lambda law=law: call(law)) for law in ("auto", *LAWS)}, rounds)
    took = best(measured)
    return {
        "shape": {"data": what, "n": X.shape[0], "p": X.shape[1]},
        **summary(measured),
        "chosen": chosen,
        **judged(took["auto"] / min(took[law] for law in LAWS), MUST, AIM, better="less"),
    }


def cells(row):
    return {
        "data, n, p": ", ".join(map(str, row["shape"].values())),
        **{law: duration(row["seconds"][law]) for law in ("auto", *LAWS)},
        "chosen": row["chosen"],
        "ratio": times(row["value"]),
        **limits(row),
    }
