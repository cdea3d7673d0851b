"""The report of a fit, and that of a comparison, as one HTML page that needs nothing else.

Style, script and frame of the page are in ``page.html``; here are its contents.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from importlib.resources import files
from typing import Any

from .charts import Chart, Row, escape, row_chart
from .formatting import (
    CRITERIA,
    EFFECT,
    counted,
    interval_text,
    number,
    percent,
    scale_of_names,
    shortened,
    size_of,
    with_error,
)

SCHEMES = {
    "uniform": "all columns with equal probability",
    "ridge": "members whose mean is ridge regression",
    "power": "columns with large ridge coefficients more often",
    "lasso": "members whose mean is the lasso: a few columns nearly always, most never",
    "sparse": "one step beyond the lasso, fewer columns still",
    "null": "the mean of the target",
}


def render(summary: dict[str, Any]) -> str:
    """The page of a summary made by :func:`summarise`."""
    data, model, points = summary["data"], summary["model"], summary["predictions"]
    title = f"{shortened(data['target'])} from {counted(data['columns'], 'column')}"
    size = size_of(model["mean_columns_per_member"], data["columns"])
    members = model["members"] or "infinitely many"
    observed, predicted = points["observed"], points["predicted"]
    residuals, span = [o - p for o, p in zip(observed, predicted, strict=True)], (min(observed), max(observed))
    errors = [([number(e["rmse"]), number(e["r2"], ".3f")], e["name"], e["note"], False) for e in summary["errors"]]
    fitted = (
        "Cross-validated predictions: each row is predicted by ensembles that were fitted without it."
        if points["left_out"] else
        "Fitted values; with so many rows for each column they hardly differ from predictions."
    )  # fmt: skip
    return _page(title, summary, [
        f'<h1 title="{_whole(data["target"])}">{escape(title)}</h1>',
        f'<p class="sub">{escape(data["name"])}: {counted(data["rows"], "row")}. An average of {members} '
        f"least-squares fits; columns in each: {escape(size)}; seed {model['seed']}.</p>",
        "<h2>Error of prediction</h2>",
        _table("errors", ("error", "R²"), errors),
        '<p class="sub">Root mean squared error of rows left out, and share of the variance of the target that is '
        f'explained. <span id="interval">{interval_text(summary["interval"])}</span></p>',
        _notes(data["messages"]),
        f'<div class="charts"><div>{_choice(summary)}{_profile(summary["columns"], data["columns"])}</div>',
        _effects(summary),
        _figure("predicted", "Predicted against observed",
                _scatter("Predicted against observed", ("observed", "predicted"), observed, predicted, span), fitted),
        _figure("residuals", "Residuals",
                _scatter("Residuals", ("predicted", "observed minus predicted"), predicted, residuals, (0.0, 0.0)),
                "Observed minus predicted. A trend, or a spread that changes, means that the model misses something."),
        "</div>",
        _columns_table(summary),
    ])  # fmt: skip


def render_comparison(found: dict[str, Any]) -> str:
    """The page of what :func:`olsen.cli.table_models.compare` found."""
    data, models = found["data"], found["models"]
    title = f"{shortened(data['target'])} from {counted(data['columns'], 'column')}: models compared"
    repeated = f", repeated {found['repeats']} times" if found["repeats"] > 1 else ""
    rows = [
        ([number(line["rmse"]), with_error(line["rmse_difference"], line["rmse_standard_error"]),
          number(line["r2"], ".3f"), with_error(line["r2_difference"], line["r2_standard_error"]),
          number(line["seconds"], ".2f")], line["name"], line["what"], line["best"])
        for line in models
    ]  # fmt: skip
    dots = [Row(line["name"], line["rmse"], _double(line["rmse_standard_error"]), (number(line["rmse"]),), line["best"])
            for line in models]  # fmt: skip
    known = sorted(line["rmse"] for line in models if line["rmse"] is not None)
    most = min(2.5 * known[0], 1.1 * known[-2])  # the largest, often the mean, would leave no room for the others
    chart = row_chart("Mean error of the models", dots, "root mean squared error", origin=models[0]["rmse"], most=most)
    caption = (
        "Mean error over folds, on the right edge if it is larger. Bars: plus and minus two standard errors of the "
        "difference to the ensemble, whose error is the dotted line; where a bar crosses it, these folds cannot tell "
        "the two apart."
    )
    return _page(title, found, [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(data["name"])}: {counted(data["rows"], "row")}; {found["folds"]}-fold cross-validation'
        f"{repeated}, seed {found['seed']}.</p>",
        f'<p id="verdict">{escape(found["verdict"])}</p>',
        _notes(data["messages"]),
        _table("models", ("error", "difference", "R²", "difference", "seconds"), rows),
        '<p class="sub">Root mean squared error and share of the explained variance on rows left out, means over '
        "folds, the smallest error in bold; median seconds of a fit. Differences are those to the ensemble, fold by "
        "fold, ± one standard error, which allows for training rows that folds share.</p>",
        f'<div class="single">{_figure("plot", "Errors", chart, caption)}</div>',
    ])  # fmt: skip


# Parts of a page


def _page(title: str, made: dict[str, Any], body: list[str]) -> str:
    """The whole page: it fetches nothing, and runs no script but that of ``page.html``, whatever names it shows."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    script = template.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    body = [*body, "<h2>How this report was made</h2>", f"<pre>{escape(made['command'])}</pre>",
            f'<p class="sub">{escape(versions)}</p>']  # fmt: skip
    head, tail = template.replace("{{digest}}", digest).replace("{{title}}", escape(title)).split("{{body}}")
    return head + "".join(body) + tail


def _figure(name: str, heading: str, chart: str, caption: str) -> str:
    return f'<figure id="{name}"><h2>{escape(heading)}</h2>{chart}<figcaption>{escape(caption)}</figcaption></figure>'


def _notes(messages: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(m)}</li>' for m in messages)}</ul>" if messages else ""


def _head(names: tuple[str, ...], first: str = "") -> str:
    corner = f"<th>{first}</th>" if first else "<td></td>"  # a head without words is none
    return corner + "".join(f'<th class="number">{name}</th>' for name in names)


def _cells(texts: list[str]) -> str:
    return "".join(f'<td class="number">{escape(text)}</td>' for text in texts)


def _table(name: str, heads: tuple[str, ...], rows: list[tuple[list[str], str, str, bool]]) -> str:
    """A table of numbers between a name and a remark."""
    body = "".join(
        f'<tr{" class=best" * best}><td>{escape(first)}</td>{_cells(cells)}<td class="soft">{escape(remark)}</td></tr>'
        for cells, first, remark, best in rows
    )
    head = f"<thead><tr>{_head(heads)}<td></td></tr></thead>"
    return f"{_wide(name)}{head}<tbody>{body}</tbody></table></div>"


def _wide(name: str) -> str:
    """The start of a table that is scrolled sideways where it is too wide, by keys too."""
    return f'<div class="wide" tabindex="0" role="group" aria-label="{name}"><table id="{name}">'


def _whole(name: str) -> str:
    return escape(shortened(name, 300))


def _double(error: float | None) -> float | None:
    return None if error is None else 2 * error


# Figures of the report


def _effects(summary: dict[str, Any]) -> str:
    rows = []
    for one in summary["effects"]:
        shown = _signed(one["effect"])
        shown = shown if one["coefficient"] is not None else shown.removeprefix("+")  # a category has no sign
        rows.append(Row(one["name"], one["effect"], _double(one["standard_error"]), (shown, percent(one["drawn"]))))
    chart = row_chart("Largest effects", rows, "effect", origin=0.0, heading=("effect", "drawn"))
    errors = (
        "Lines: plus and minus two standard errors, how far the effect would vary over other rows, the choice of "
        "schemes included; the shrinkage of all effects towards zero is not in them."
        if any(row.half is not None for row in rows) else
        "Standard errors are left out: they would take too long, or need rows that were not kept."
    )  # fmt: skip
    return _figure("effects", "Largest effects", chart,
        f"{EFFECT} For a number it is the change of {shortened(summary['data']['target'])} when the column grows by "
        f"one standard deviation, and has a sign. On the right, the share of the members that use the column (of a "
        f"category the mean of its levels). {errors}")  # fmt: skip


def _signed(value: float) -> str:
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:+#.3g}").rstrip(".").replace("-", "\N{MINUS SIGN}")


def _choice(summary: dict[str, Any]) -> str:
    """What tuning chose: a size from a curve, or weights of sampling schemes."""
    return _sizes(summary) if summary["choice"] is None else _scheme_table(summary)


def _sizes(summary: dict[str, Any]) -> str:
    chart, beyond = _curve_chart(summary["curve"])
    how = CRITERIA[summary["model"]["criterion"]]
    return _figure("curve", "Error against the size of the members", chart,
        f"Error of the ensemble (blue, with one standard error) and of an infinite one (dashed), by {how}. "
        f"Smaller members shrink the coefficients more.{beyond}")  # fmt: skip


def _scheme_table(summary: dict[str, Any]) -> str:
    *schemes, mixture = sorted(summary["choice"], key=lambda row: (row["scheme"] == "mixture", -row["weight"]))
    rows = [
        ([percent(row["weight"]), number(row["rmse"])], row["scheme"], SCHEMES.get(row["scheme"], ""), False)
        for row in schemes
    ]
    selected = summary["model"]["selected"]
    kept = "" if selected is None else f" A sparse model would keep {counted(selected, 'column')}."
    error = f"{number(mixture['rmse'])} ± {number(mixture['standard_error'], '.2g')} (one standard error)"
    return _figure("schemes", "Sampling schemes", _table("weights", ("weight", "error alone"), rows),
        f"Weight of each scheme in the ensemble, chosen by k-fold cross-validation, and its error by itself. The error "
        f"of the mixture is {error}; it is corrected for having been chosen.{kept}")  # fmt: skip


def _curve_chart(curve: dict[str, Any]) -> tuple[str, str]:
    """The chart, and a remark about what does not fit into it."""
    sizes, at_k, limit, error = curve["size"], curve["rmse"], curve["rmse_infinite"], curve["standard_error"]
    lower, upper = ([r + sign * e for r, e in zip(at_k, error, strict=True)] for sign in (-1, 1))
    finite = [value for value in (*at_k, *limit) if math.isfinite(value)]
    low, high = min(finite), max(finite)
    top = min(10 * low or high, max(high, *filter(math.isfinite, upper)))  # a peak leaves the frame
    bottom = min(low, *filter(math.isfinite, lower))
    chart = Chart("Error against the size of the members", ("columns in a member", "error"), (sizes[0], sizes[-1]),
                  (bottom, top), x_log=sizes[-1] > 20 * sizes[0])  # fmt: skip
    chart.band(sizes, lower, upper)
    chart.line(sizes, limit, "second")
    chart.line(sizes, at_k, "first")
    chart.mark(min(curve["chosen"], sizes[-1]), f"{curve['chosen']:.4g} chosen")
    beyond = f" It leaves the frame and goes up to {number(high, '.3g')}." if top < high else ""
    return chart.render(), beyond + (" In the gap it is infinite." if len(finite) < 2 * len(sizes) else "")


def _profile(columns: dict[str, Any], n_columns: int) -> str:
    """Coefficients over the numbers that are the names of at least 30 columns; nothing if they are no such numbers."""
    places, label = scale_of_names(columns["name"]) or ([], "")
    if len(places) < max(30, n_columns):
        return ""
    values, ends = columns["coefficient"], (min(places), max(places))
    labels = shortened(label or "name of the column", 40), "coefficient"
    chart = Chart("Coefficients along the columns", labels, ends, (min(0.0, *values), max(0.0, *values)))
    chart.line(ends, (0.0, 0.0), "diagonal")
    chart.line(places, values, "first")
    return _figure("profile", "Coefficients along the columns", chart.render(),
        "The names of the columns are numbers in order, as in a spectrum: the coefficient of each over its number, in "
        "the units of the column.")  # fmt: skip


def _scatter(title: str, labels: tuple[str, str], x: list[float], y: list[float], through: tuple[float, float]) -> str:
    """Points, and the line from the lowest to the highest x that goes through these heights."""
    ends = (min(x), max(x))
    chart = Chart(title, labels, ends, (min(*y, *through), max(*y, *through)))
    chart.line(ends, through, "diagonal")
    chart.dots(x, y)
    return chart.render()


def _columns_table(summary: dict[str, Any]) -> str:
    """All columns, the largest effects first, with a box to search them; without scripts there is the list alone."""
    columns, kept = summary["columns"], summary["columns"]["kept"]
    places = sorted(range(len(columns["name"])), key=lambda j: -abs(columns["effect"][j]))
    rows = []
    for j in places:
        name = columns["name"][j]
        cells = [number(columns["coefficient"][j]), number(columns["effect"][j]), percent(columns["drawn"][j])]
        cells += [percent(kept[j])] if kept else []
        rows.append(f'<tr data-name="{_whole(name)}"><td class="name" title="{_whole(name)}">'
                    f"{escape(shortened(name, 40))}</td>{_cells(cells)}</tr>")  # fmt: skip
    left = summary["data"]["columns"] - len(places)
    explained = "Columns as members see them, levels of categories one by one. Coefficients are in their units."
    explained += " Drawn: share of the members that use the column."
    explained += f" The {counted(left, 'column')} with the smallest effects are left out." if left else ""
    explained += " Kept: share of the folds in which a sparse model keeps it." if kept else ""
    head = _head(("coefficient", "effect", "drawn", *(["kept"] if kept else [])), "column")
    return (
        '<details open><summary><h2 style="display: inline-block">Columns</h2></summary>'
        '<p><input type="search" id="search" placeholder="search columns" aria-label="search columns" hidden> '
        '<span id="found" role="status"></span></p>'
        f"{_wide('columns')}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f'</div><p class="sub">{explained}</p></details>'
    )
