"""docs/benchmarks.md from the stored results.

python benchmarks/report.py [--results DIR] [--page FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import growth
import machine
from groups import GROUPS
from tables import markdown

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"

OPENING = """# Benchmarks

Made by `make bench` from `benchmarks/results/`; do not edit. Every row stands next to what it must reach and, where
there is one, to what is aimed at; a limit that is missed says FAIL.

## How it was measured

- Us and the peers run in one process on the same data and take turns (A B A B ...), so that a noisy
  moment hits all of them alike. Of every contender the best time counts. Fast ones are called
  several times in a turn; those that take more than 4 seconds are called twice in all, and the grid
  search once. Calls of less than 4 ms are made in a row of 20 ms, of which the mean is taken.
- Whole calls are timed: validation of the input, drawing of subsets and everything else a user
  waits for. Scikit-learn's worker processes are started before the first clock.
- Bagging runs at the better of `n_jobs` 1 and 2, tried once each before the turns; all peers use
  the BLAS threads that NumPy, SciPy and joblib give them.
- Data: independent Gaussian columns, coefficients of unit length, noise of unit variance, where
  nothing else is said. Other columns have a signal of unit variance that leans on all of them.
- The rate of a matrix product is measured in the same run. Two of them at once should do twice the
  work of one; where they do not, the machine was busy, and rows about two threads say less.
- Medians and numbers of runs stand beside the best times in `benchmarks/results/*.json`.
"""
TOY = "**Toy sizes: this page shows that the benchmark runs and says nothing about speed.**\n"
BELOW = {"growth": growth.below}  # what some groups have to say below their table


def page(results: list[dict], images: Path) -> str:
    """The page, from what compare.py stored; its figures are drawn into the folder of images beside
    it.
    """
    parts = [OPENING]
    if any(result["quick"] for result in results):
        parts.append(TOY)
    parts.append("## The machine\n\n" + machines(results))
    parts += [section(result, images) for result in results]
    return "\n".join(parts)


def machines(results):
    """One header for every run that results come from."""
    runs = {result["machine"]["date"]: [] for result in results}
    for result in results:
        runs[result["machine"]["date"]].append(result)
    texts = []
    for same in runs.values():
        header = machine.header_lines(same[0]["machine"])
        header.append(
            "groups: " + ", ".join(f"{r['group']} ({r['took_seconds']:.0f} s)" for r in same)
        )
        texts.append("\n".join(f"- {line}" for line in header) + "\n")
    return "\n".join(texts)


def section(result, images):
    group = GROUPS[result["group"]]
    after = result["after"]
    quiet = (
        f"After this group a matrix product ran at {after['dgemm_gflops']:.1f} GFLOP/s and two at"
        f" once did {after['dgemm_scaling']:.2f} times the work of one."
    )
    table = markdown([group.cells(row) for row in result["rows"]])
    note = (
        f"**{result['note']}**\n\n" if "note" in result else ""
    )  # written into a stored result by hand
    below = [
        f"{tell(result['rows'], images)}\n"
        for name, tell in BELOW.items()
        if name == result["group"]
    ]
    return f"## {group.TITLE}\n\n{note}{group.NOTE}\n\n{table}\n{''.join(below)}{quiet}\n"


def stored(folder: Path) -> list[dict]:
    """Results of all groups that have any, in the order of the groups."""
    files = [folder / f"{name}.json" for name in GROUPS]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    options = parser.parse_args(arguments)
    results = stored(options.results)
    if not results:
        parser.error(f"no results in {options.results}; run benchmarks/compare.py first.")
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(results, options.page.parent / "images"), encoding="utf-8")
    print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
