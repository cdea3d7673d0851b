"""Many random cases, a table by class, exit code 1 on a failure: ``python -m tests.fuzz.run --cases
100000``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # cases are tiny, and processes share the cores
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np  # noqa: E402

from . import cases, checks  # noqa: E402

BATCH = 250
FACETS = ("pattern", "target", "weights", "engine", "solver")


def run_batch(seed, number, count):
    rng = np.random.default_rng([seed, number])
    return [(case := cases.drawn(rng), checks.run(case)) for _ in range(count)]


def gathered(results):
    """Counts of outcomes and worst errors by facet, and failures."""
    counts = defaultdict(Counter)
    worst = defaultdict(lambda: [0.0, 0.0])
    failures = []
    for case, result in results:
        for facet in FACETS:
            key = (facet, getattr(case, facet))
            counts[key][result.outcome] += 1
            if result.outcome == "right":
                worst[key][0] = max(worst[key][0], result.error)
                worst[key][1] = max(
                    worst[key][1], 0.0 if np.isnan(result.lapack) else result.lapack
                )
        if result.outcome == "WRONG":
            failures.append((str(case), result.words))
    return counts, worst, failures


def table(counts, worst):
    lines = [
        (
            "| class | cases | right | refused | beyond double precision | error / bound | the same"
            " of LAPACK's QR |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for facet in FACETS:
        for key in sorted(key for key in counts if key[0] == facet):
            c = counts[key]
            (ours, theirs) = worst[key]
            lines.append(
                f"| {facet} {key[1]} | {sum(c.values())} | {c['right']} | {c['refused']} |"
                f" {c['undecided']} | {ours:.2g} | {theirs:.2g} |"
            )
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="random by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=None, help="Markdown file for the table")
    options = parser.parse_args(arguments)
    seed = (
        int(np.random.SeedSequence().entropy % (1 << 31)) if options.seed is None else options.seed
    )
    started = time.time()
    results = []
    batches = [
        (seed, i, min(BATCH, options.cases - i * BATCH)) for i in range(-(-options.cases // BATCH))
    ]
    with ProcessPoolExecutor(options.jobs) as pool:
        for batch_results in pool.map(run_batch, *zip(*batches, strict=True)):
            results += batch_results
            print(f"\r{len(results)} of {options.cases} cases", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    counts, worst, failures = gathered(results)
    text = table(counts, worst)
    print(
        f"{len(results)} cases, seed {seed}, {time.time() - started:.0f} s, {len(failures)}"
        f" failures\n\n{text}"
    )
    for case, words in failures[:40]:
        print(f"\n{case}\n    {words}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(f"{len(results)} cases, seed {seed}\n\n{text}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
