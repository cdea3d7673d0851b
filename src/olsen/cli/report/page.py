"""The report of a fit as one HTML page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from ..shown_text import shortened
from .document import document, figure, made_by, notes
from .svg import Bar, Chart, bars, escape, stacked
from .words import counted, number, percent, size_of_members

__all__ = ["render"]

LAWS = {
    "uniform": "all columns alike",
    "ridge": "members whose mean is ridge regression",
    "power": "columns with large coefficients in ridge regression more often",
    "lasso": "members whose mean is the lasso: few columns nearly always, most never",
    "sparse": "one step beyond the lasso, fewer columns still",
    "nothing": "the mean of the target",
}
SPREAD = (
    "Lines: plus and minus two standard errors, how far the effect would vary over other rows, the choice of schemes "
    "included; the pull of all effects towards zero is not in them."
)
NO_SPREAD = "Standard errors are left out: they would take too long, or need rows that were not kept."
LOG_FROM, MOST_SHOWN = 10.0, 100.0  # errors over the least one: an axis of powers from here on, and nothing from there
FEWEST_ON_A_SCALE = 30  # columns that are numbers in order; fewer are seen in the list
NUMBERED = re.compile(r"(\D*?)([-+]?\d+(?:\.\d+)?)((?:[^\d.].*)?)")
LONGEST_NAME = 40  # in the list of columns
LONGEST_TITLE = 300  # of a name on which the pointer rests


def render(summary: dict[str, Any]) -> str:
    """The page of a summary made by :func:`summarise`."""
    data, model = summary["data"], summary["model"]
    title = f"{shortened(data['target'])} from {counted(data['columns'], 'column')}"
    body = [
        f'<h1 title="{_whole(data["target"])}">{escape(title)}</h1>',
        f'<p class="sub">{escape(data["name"])}: {counted(data["rows"], "row")}. '
        f"{escape(_sentence(model, data['columns']))}</p>",
        "<h2>Error of prediction</h2>",
        _error_table(summary["errors"]),
        f'<p class="sub">Root mean squared error on rows left out {_all_left_out(model, data)}, and the share of the '
        "variance of the target that is explained there.</p>",
        notes(data["messages"]),
        f'<div class="charts">{"".join(_figures(summary))}</div>',
        _columns_table(summary),
        *made_by(summary["command"], summary["versions"]),
    ]
    return document(title, body)


def _whole(name: str) -> str:
    return escape(shortened(name, LONGEST_TITLE))


def _left_out(model: dict[str, Any]) -> str:
    return "a fold at a time" if model["criterion"] == "kfold" else "one at a time"


def _groups_left_out(data: dict[str, Any]) -> str:
    return "" if data["groups"] is None else f", whole groups of {_whole(data['groups'])}"


def _all_left_out(model: dict[str, Any], data: dict[str, Any]) -> str:
    others = (
        "" if data["out_of_core"] or data["groups"] is not None or model["criterion"] != "kfold"
        else " for the ensemble, one at a time for others"
    )  # fmt: skip
    return _left_out(model) + _groups_left_out(data) + others


def _sentence(model: dict[str, Any], n_columns: int) -> str:
    mean = model["mean_columns_per_member"]
    drawn = ", drawn at random" if mean < n_columns else ""
    size = size_of_members(mean, n_columns)
    return f"An average of {model['members']} least-squares fits, each on {size}{drawn}; seed {model['seed']}."


def _error_table(errors: list[dict[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td>{escape(e["name"])}</td><td class="number">{number(e["rmse"])}</td>'
        f'<td class="number">{number(e["r2"], ".3f")}</td><td class="soft">{escape(e["note"])}</td></tr>'
        for e in errors
    )
    head = '<tr><th></th><th class="number">error</th><th class="number">R²</th><th></th></tr>'
    return f'<div class="wide"><table id="errors"><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _figures(summary: dict[str, Any]) -> Iterator[str]:
    yield f"<div>{_choice(summary)}{_profile(summary['columns'], summary['data']['columns'])}</div>"
    yield _effects(summary)
    left_out = summary["predictions"]["left_out"]
    yield figure("predicted", "Predicted against observed", _predicted_chart(summary), (
        "Every row predicted by an ensemble that has not seen it." if left_out else
        "Fitted values; with so many rows for each column they hardly differ from predictions."))  # fmt: skip
    yield figure("residuals", "Residuals", _residual_chart(summary), (
        "Observed minus predicted. A trend, or a spread that changes, means that the model misses something."
    ))  # fmt: skip


def _effects(summary: dict[str, Any]) -> str:
    effects = [Bar(c["name"], c["effect"], _half(c), percent(c["drawn"])) for c in summary["coefficients"]]
    known = any(bar.half is not None for bar in effects)
    chart = bars("Largest effects", effects, ("effect", "drawn"), "change for one standard deviation")
    caption = (
        f"Change of {shortened(summary['data']['target'])} when a column grows by one standard deviation; on the "
        "right, the share of the members that use the column. "
    )
    caption += SPREAD if known else NO_SPREAD
    return figure("coefficients", "Largest effects", chart, caption)


def _half(coefficient: dict[str, Any]) -> float | None:
    return None if coefficient["standard_error"] is None else 2 * coefficient["standard_error"]


def _choice(summary: dict[str, Any]) -> str:
    """What tuning chose: a size from a curve of uniform members, and shares of schemes where several are in use."""
    curve, model = summary["curve"], summary["model"]
    chart, beyond = _curve_chart(curve)
    mixture = curve["mixture"]
    if mixture is None:
        return figure("curve", "Error against the size of the members", chart, (
            f"Error of the ensemble (blue, with one standard error) and of an infinite one (dashed) on rows left out "
            f"{_left_out(model)}. Smaller members shrink the coefficients more.{beyond}"))  # fmt: skip
    schemes = sorted(model["laws"].items(), key=lambda scheme: -scheme[1])
    error, se = mixture["rmse"], mixture["standard_error"]
    shares = figure("laws", "Sampling schemes", stacked("Shares of the sampling schemes", schemes) + _legend(schemes), (
        f"Share of the ensemble that each scheme has, as rows left out {_left_out(model)} support it; the error with "
        f"these shares is {number(error)} ± {number(se, '.2g')} (one standard error).{_kept(summary)}"))  # fmt: skip
    return shares + figure("curve", "Error of uniform members against their size", chart, (
        f"Error of uniform members alone (blue, with one standard error) on rows left out {_left_out(model)}; the mark "
        f"is the chosen mixture of schemes, at its mean number of columns.{beyond}"))  # fmt: skip


def _legend(laws: list[tuple[str, float]]) -> str:
    lines = (
        f'<li><span class="swatch part{i}"></span><span><strong>{escape(name)}</strong> {percent(share)}</span>'
        f'<span class="soft">{escape(LAWS.get(name, ""))}</span></li>'
        for i, (name, share) in enumerate(laws)
    )
    return f'<ul class="legend">{"".join(lines)}</ul>'


def _kept(summary: dict[str, Any]) -> str:
    kept = summary["model"]["kept"]
    return "" if kept is None else f" A sparse model would keep {counted(kept, 'column')}."


def _curve_chart(curve: dict[str, Any]) -> tuple[str, str]:
    """The chart, and words about what does not fit into it."""
    sizes, at_k, limit, error = curve["size"], curve["rmse"], curve["rmse_infinite"], curve["standard_error"]
    lower, upper = ([r + sign * e for r, e in zip(at_k, error, strict=True)] for sign in (-1, 1))
    finite = [value for value in (*at_k, *limit) if math.isfinite(value)]
    low, high = min(finite), max(finite)
    powers = 0 < LOG_FROM * low < high
    top = min(high, MOST_SHOWN * low) if powers else max(high, *filter(math.isfinite, upper))
    bottom = low if powers else min(low, *filter(math.isfinite, lower))
    chart = Chart("Error against the size of the members", "columns in a member", "error", (sizes[0], sizes[-1]),
                  (bottom, top), x_log=sizes[-1] > 20 * sizes[0], y_log=powers)  # fmt: skip
    chart.band(sizes, lower, upper, "band")
    chart.line(sizes, limit, "second")
    chart.line(sizes, at_k, "first")
    chart.mark(min(curve["chosen"], sizes[-1]), "chosen", f"{curve['chosen']} chosen")
    beyond = f" It leaves the frame and goes up to {number(high, '.3g')}." if top < high else ""
    beyond += " In the gap it is infinite." if len(finite) < 2 * len(sizes) else ""
    return chart.render(), beyond


def _profile(columns: dict[str, Any], n_columns: int) -> str:
    """Coefficients over the numbers that are the names of the columns; nothing if they are no such numbers."""
    scale = _scale(columns["name"]) if len(columns["name"]) == n_columns else None
    if scale is None:
        return ""
    chosen, places, label = scale
    values = [columns["coefficient"][j] for j in chosen]
    chart = Chart("Coefficients along the columns", label, "coefficient", (min(places), max(places)),
                  (min(0.0, *values), max(0.0, *values)))  # fmt: skip
    chart.line((min(places), max(places)), (0.0, 0.0), "diagonal")
    chart.line(places, values, "first")
    return figure("profile", "Coefficients along the columns", chart.render(), (
        f"The names of {len(chosen)} columns are numbers in order, as in a spectrum: the coefficient of each over its "
        "number, in the units of the column."))  # fmt: skip


def _scale(names: list[str]) -> tuple[list[int], list[float], str] | None:
    """Places and numbers of columns that are named by numbers in order, and what stands around these numbers.

    Columns that are merely counted (x1, x2, x3, ...) are on no scale.
    """
    groups: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for j, name in enumerate(names):
        match = NUMBERED.fullmatch(name.strip())
        if match is not None and "=" not in match[1]:
            groups.setdefault((match[1], match[3]), []).append((j, float(match[2])))
    (before, after), found = max(groups.items(), key=lambda group: len(group[1]), default=(("", ""), []))
    places = [place for _, place in found]
    steps = [b - a for a, b in pairwise(places)]
    ordered = all(step > 0 for step in steps) or all(step < 0 for step in steps)
    counted_only = before + after and places[:1] in ([0.0], [1.0]) and all(step == 1 for step in steps)
    if len(found) < FEWEST_ON_A_SCALE or not ordered or counted_only:
        return None
    label = shortened(f"{before} {after}".strip() or "name of the column", 40)
    return [j for j, _ in found], places, label


def _predicted_chart(summary: dict[str, Any]) -> str:
    observed, predicted = summary["predictions"]["observed"], summary["predictions"]["predicted"]
    span = (min(*observed, *predicted), max(*observed, *predicted))
    chart = Chart("Predicted against observed", "observed", "predicted", span, span)
    chart.line(span, span, "diagonal")
    chart.dots(observed, predicted, "dots")
    return chart.render()


def _residual_chart(summary: dict[str, Any]) -> str:
    observed, predicted = summary["predictions"]["observed"], summary["predictions"]["predicted"]
    residuals = [o - p for o, p in zip(observed, predicted, strict=True)]
    span = (min(predicted), max(predicted))
    reach = max(abs(r) for r in residuals)
    chart = Chart("Residuals", "predicted", "observed minus predicted", span, (-reach, reach))
    chart.line(span, (0.0, 0.0), "diagonal")
    chart.dots(predicted, residuals, "dots")
    return chart.render()


def _columns_table(summary: dict[str, Any]) -> str:
    """All columns, the largest effects first, with a box to search them; without scripts there is the list alone."""
    columns = summary["columns"]
    places = sorted(range(len(columns["name"])), key=lambda j: -abs(columns["effect"][j]))
    kept = columns["kept"]
    rows = "".join(_column_row(columns, j) for j in places)
    heads = ["coefficient", "per s.d.", "drawn", *(["kept"] if kept else [])]
    head = "<tr><th>column</th>" + "".join(f'<th class="number">{text}</th>' for text in heads) + "</tr>"
    left = summary["data"]["columns"] - len(places)
    more = f" The {counted(left, 'column')} with the smallest effects are left out." if left else ""
    explained = "Coefficients are those of the columns in their own units. "
    explained += "Drawn: share of the members that use it." + more
    explained += " Kept: share of the folds in which a sparse model keeps it." if kept else ""
    return (
        '<details open><summary><h2 style="display: inline-block">Columns</h2></summary>'
        '<p><input type="search" id="search" placeholder="search columns" aria-label="search columns" hidden> '
        '<span id="found" role="status"></span></p>'
        f'<div class="wide"><table id="columns"><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
        f'<p class="sub">{explained}</p></details>'
    )


def _column_row(columns: dict[str, Any], j: int) -> str:
    name, kept = columns["name"][j], columns["kept"]
    cells = [number(columns["coefficient"][j]), number(columns["effect"][j]), percent(columns["drawn"][j])]
    cells += [percent(kept[j])] if kept else []
    numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
    shown = escape(shortened(name, LONGEST_NAME))
    return f'<tr data-name="{_whole(name)}"><td class="name" title="{_whole(name)}">{shown}</td>{numbers}</tr>'
