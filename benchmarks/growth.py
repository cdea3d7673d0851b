"""How the time of a fit grows with rows, columns and members: slopes, and a figure on logarithmic
axes.

    python benchmarks/growth.py [--results DIR] [--out FILE]

Reads what the group `growth` of compare.py has stored; `report.py` calls it for the page of
benchmarks.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from groups.growth import slope

HERE = Path(__file__).resolve().parent
FIGURE = "growth.png"
WORDS = {"n": "rows n", "p": "columns p", "m": "columns of a member m"}


def below(rows: list[dict], images: Path) -> str:
    """What stands below the table on the page: the slopes, and the figure, which is drawn into the
    folder.
    """
    draw(rows, images / FIGURE)
    return (
        f"{sentence(rows)}\n\n![Time of a fit against rows, columns and"
        f" members]({images.name}/{FIGURE})\n"
    )


def sentence(rows):
    k = shown_members(rows)
    sweeps = "; ".join(
        f"{slope(*sweep(rows, letter, k)):.2f} in {WORDS[letter]} ({reach(rows, letter)},"
        f" {fixed(rows, letter)})"
        for letter in WORDS
    )
    slopes = [row["slope"] for row in rows]
    return (
        f"Slopes of log time against the log of what grows, at k = {k}: {sweeps}. In members k:"
        f" {min(slopes):.2f} to {max(slopes):.2f} over the rows of the table, half of them above"
        f" {np.median(slopes):.2f}."
    )


def shown_members(rows):
    """The number of members at which rows and columns are compared: the last but one."""
    return rows[0]["members"][-2]


def sweep(rows, letter, k):
    """Values of what grows, in order, and the times of k members."""
    points = sorted(
        (row["shape"][letter], row["seconds"][str(k)]) for row in rows if letter in row["sweeps"]
    )
    values, took = zip(*points, strict=True)
    return values, took


def reach(rows, letter):
    """From where to where a sweep goes."""
    values = [row["shape"][letter] for row in rows if letter in row["sweeps"]]
    return f"{min(values)} to {max(values)}"


def fixed(rows, letter):
    """What stays the same in a sweep."""
    shape = next(row["shape"] for row in rows if letter in row["sweeps"])
    return ", ".join(f"{name} = {shape[name]}" for name in "npm" if name != letter)


def draw(rows, path: Path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    FigureCanvasAgg(figure)  # no window, no global state
    axes = figure.subplots(1, 3, sharey=True)
    for ax, letter in zip(axes, "np", strict=False):
        draw_sweep(ax, rows, letter)
    draw_members(axes[2], rows)
    axes[0].set_ylabel("seconds of a fit")
    for ax in axes:
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=7, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def draw_sweep(ax, rows, letter):
    for k in rows[0]["members"][::2]:
        values, took = sweep(rows, letter, k)
        ax.plot(values, took, "o-", label=f"k = {k}, slope {slope(values, took):.2f}")
    ax.set(xlabel=WORDS[letter], title=fixed(rows, letter))


def draw_members(ax, rows):
    """All shapes, the darker the more columns a member has; dashed on one-hot tables, dotted in
    proportion to k.
    """
    from matplotlib import colormaps

    largest = max(row["shape"]["m"] for row in rows)
    for row in rows:
        took = [row["seconds"][str(k)] for k in row["members"]]
        share = np.log(row["shape"]["m"]) / np.log(largest)
        line = "-" if row["shape"]["data"] == "Gaussian" else "--"
        ax.plot(row["members"], took, line, color=colormaps["viridis_r"](share), linewidth=1)
    members = np.array(rows[0]["members"], dtype=float)
    slowest = max(row["seconds"][str(rows[0]["members"][-1])] for row in rows)
    ax.plot(members, 2 * slowest * members / members[-1], "k:", label="slope 1")
    ax.plot([], [], "-", color="gray", label="Gaussian, darker: larger m")
    ax.plot([], [], "--", color="gray", label="one-hot")
    median = np.median([row["slope"] for row in rows])
    ax.set(xlabel="members k", title=f"all shapes, median of late slopes {median:.2f}")


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR")
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "docs" / "images" / FIGURE, metavar="FILE"
    )
    options = parser.parse_args(arguments)
    stored = options.results / "growth.json"
    if not stored.exists():
        parser.error(f"{stored} is not there; run benchmarks/compare.py --only growth first.")
    rows = json.loads(stored.read_text(encoding="utf-8"))["rows"]
    draw(rows, options.out)
    print(sentence(rows))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
