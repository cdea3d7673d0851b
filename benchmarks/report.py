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

Made by `make bench` from `benchmarks/results/`; do not edit. Every row stands next to the limit that it must keep
and, where there is one, to the limit that is aimed at; a limit that is missed says FAIL.

## Findings
"""
METHOD = """## How it was measured

- Our models and the peers run in one process on the same data and take turns (A B A B ...), so that a noisy
  moment hits all contenders alike. Of every contender the best time counts. Fast contenders are called
  several times in a turn; contenders that take more than 4 seconds are called twice in all, and the grid
  search once. Calls of less than 4 ms are made in a row of 20 ms, of which the mean is taken.
- Whole calls are timed: validation of the input, drawing of subsets and everything else a user
  waits for. Scikit-learn's worker processes are started before the first clock.
- Bagging runs at the better of `n_jobs` 1 and 2, tried once each before the turns; all peers use
  the BLAS threads that NumPy, SciPy and joblib give them.
- Data: independent Gaussian columns, coefficients of unit length, noise of unit variance, where
  nothing else is said. Other columns have a signal of unit variance that leans on all of the columns.
- The rate of a matrix product is measured in the same run. Two products at once should do twice the
  work of one; where the rate is lower, the machine was busy, and rows about two threads say less.
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
    parts.append(findings(results))
    parts += [section(result, images) for result in results]
    parts += [METHOD, "## The machine\n\n" + machines(results)]
    return "\n".join(parts)


def findings(results: list[dict]) -> str:
    """One line for each group that has something to say at its head."""
    rows = {result["group"]: result["rows"] for result in results}
    lines = [f"- {say(rows[group])}" for group, say in FINDINGS.items() if group in rows]
    missed = sum("FAIL" in json.dumps(row) for of_group in rows.values() for row in of_group)
    total = sum(map(len, rows.values()))
    return "\n".join([*lines, f"- {missed} of {total} rows miss a limit.\n"])


def span(ratios) -> str:
    """The range of some ratios, in two digits."""
    ratios = sorted(ratios)
    return (
        " to ".join(f"{r:.0f}" if r >= 10 else f"{r:.2g}" for r in (ratios[0], ratios[-1]))
        + " times"
    )


def seconds_over(rows: list[dict], other: str, ours: str) -> list[float]:
    """Times of a contender over ours, for the rows that have both."""
    return [
        row["seconds"][other] / row["seconds"][ours]
        for row in rows
        if {other, ours} <= set(row["seconds"])
    ]


def about_lasso(rows: list[dict]) -> str:
    parts = [
        f"{peer} {span(seconds_over(rows, peer, 'olsen'))}"
        for peer in ("scikit-learn", "celer", "skglm", "adelie")
        if seconds_over(rows, peer, "olsen")
    ]
    gap = max(row["gaps"]["olsen"] for row in rows)
    return (
        f"**Lasso paths**: our kernel's duality gap is at most {gap:.0e}; the time of peers at a gap of 1e-4"
        f" over our kernel's: {', '.join(parts)}."
    )


def about_intervals(rows: list[dict]) -> str:
    parts = []
    for peer in ("MAPIE", "crepes"):
        differences = [
            row["olsen"]["score"] - row[peer]["score"]
            for row in rows
            if peer in row and row[peer]["score"] is not None
        ]
        if differences:
            mean = sum(differences) / len(differences)
            better = sum(difference < 0 for difference in differences)
            parts.append(
                f"{mean:+.2f} to {peer}'s (lower in {better} of {len(differences)} tables)"
            )
    coverage = sum(row["olsen"]["coverage"] for row in rows) / len(rows)
    return (
        f"**Intervals** of the adaptive model cover {coverage:.3f} of new targets at nominal 0.9; the mean"
        f" difference of their interval score is {' and '.join(parts)}."
    )


FINDINGS = {
    "fit": lambda rows: (
        f"**Members**: Bagging of `LinearRegression` takes {span(row['value'] for row in rows)} as long"
        " as `OLSEnsembleRegressor`."
    ),
    "tuned": lambda rows: (
        f"**Tuned fits**: `AdaptiveOLSEnsembleRegressor` takes {span(row['value'] for row in rows)} as"
        " long as `RidgeCV`; it is slower where rows are few."
    ),
    "real": lambda rows: (
        f"**Real tables**: {span(row['value'] for row in rows)} as long as `RidgeCV`."
    ),
    "lasso": about_lasso,
    "conformal": about_intervals,
}


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
