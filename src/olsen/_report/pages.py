"""Render the report of a fit, or of a comparison, as one self-contained HTML page.

Style, script and frame of the page are in ``page.html``; this module writes its contents.
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

MIN_PROFILE_COLUMNS = 30  # columns whose coefficients are drawn as a curve
SCHEME_EXPLANATIONS = {
    "uniform": "all columns with equal probability",
    "ridge": "members whose mean is ridge regression",
    "power": "columns with large ridge coefficients more often",
    "lasso": "members whose mean is the lasso: a few columns nearly always, most never",
    "sparse": "one step beyond the lasso, fewer columns still",
    "null": "the mean of the target",
}


def render(summary: dict[str, Any]) -> str:
    """Render the page of a summary from :func:`summarise`."""
    data = summary["data"]
    model = summary["model"]
    observed = summary["predictions"]["observed"]
    predicted = summary["predictions"]["predicted"]
    title = f"{shortened(data['target'])} from {counted(data['columns'], 'column')}"
    size = size_of(model["mean_columns_per_member"], data["columns"])
    members = model["members"] or "infinitely many"
    residuals = [o - p for o, p in zip(observed, predicted, strict=True)]
    observed_range = (min(observed), max(observed))
    errors = [
        ([number(e["rmse"]), number(e["r2"], ".3f")], e["name"], e["note"], False)
        for e in summary["errors"]
    ]
    if summary["predictions"]["left_out"]:
        predicted_caption = (
            "Cross-validated predictions: each row is predicted by ensembles that were fitted"
            " without it."
        )
    else:
        predicted_caption = (
            "Fitted values; with many rows for each column they hardly differ from predictions."
        )
    residual_caption = (
        "Observed minus predicted. A trend, or a spread that changes, means that the model misses"
        " something."
    )
    predicted_chart = _scatter(
        "Predicted against observed",
        ("observed", "predicted"),
        observed,
        predicted,
        reference=observed_range,
    )
    residual_chart = _scatter(
        "Residuals",
        ("predicted", "observed minus predicted"),
        predicted,
        residuals,
        reference=(0.0, 0.0),
    )
    body = [
        f'<h1 title="{_full_name(data["target"])}">{escape(title)}</h1>',
        f'<p class="sub">{escape(data["name"])}: {counted(data["rows"], "row")}. An average of'
        f" {members} "
        f"least-squares fits; columns in each: {escape(size)}; seed {model['seed']}.</p>",
        "<h2>Error of prediction</h2>",
        _table("errors", ("error", "R²"), errors),
        (
            '<p class="sub">Root mean squared error on held-out rows, and fraction of the variance'
            " of the target that is explained. <span"
            f' id="interval">{interval_text(summary["interval"])}</span></p>'
        ),
        _notes(data["messages"]),
        (
            "<div"
            f' class="charts"><div>{_choice(summary)}{_profile(summary["columns"], data["columns"])}</div>'
        ),
        _effects(summary),
        _figure("predicted", "Predicted against observed", predicted_chart, predicted_caption),
        _figure("residuals", "Residuals", residual_chart, residual_caption),
        "</div>",
        _columns_table(summary),
    ]
    return _page(title, summary, body)


def render_comparison(comparison: dict[str, Any]) -> str:
    """Render the page of a comparison from :func:`olsen.cli.table_models.compare`."""
    data = comparison["data"]
    models = comparison["models"]
    title = (
        f"{shortened(data['target'])} from {counted(data['columns'], 'column')}: models compared"
    )
    repeated = f", repeated {comparison['repeats']} times" if comparison["repeats"] > 1 else ""
    table_rows = []
    chart_rows = []
    for line in models:
        rmse = number(line["rmse"])
        cells = [
            rmse,
            with_error(line["rmse_difference"], line["rmse_standard_error"]),
            number(line["r2"], ".3f"),
            with_error(line["r2_difference"], line["r2_standard_error"]),
            number(line["seconds"], ".2f"),
        ]
        table_rows.append((cells, line["name"], line["what"], line["best"]))
        half_width = _double(line["rmse_standard_error"])
        chart_rows.append(
            Row(line["name"], line["rmse"], half_width, labels=(rmse,), best=line["best"])
        )
    sorted_errors = sorted(line["rmse"] for line in models if line["rmse"] is not None)
    # the largest error, often of the mean, would compress the range of the other models
    max_error = min(2.5 * sorted_errors[0], 1.1 * sorted_errors[-2])
    chart = row_chart(
        "Mean error of the models",
        chart_rows,
        "root mean squared error",
        origin=models[0]["rmse"],
        max_value=max_error,
    )
    caption = (
        "Mean error over folds, on the right edge if it is larger. Bars: plus and minus two"
        " standard errors of the difference to the ensemble, whose error is the dotted line; where"
        " a bar crosses it, these folds do not distinguish the two models."
    )
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(data["name"])}: {counted(data["rows"], "row")}; '
        f"{comparison['folds']}-fold cross-validation{repeated}, seed {comparison['seed']}.</p>",
        f'<p id="verdict">{escape(comparison["verdict"])}</p>',
        _notes(data["messages"]),
        _table("models", ("error", "difference", "R²", "difference", "seconds"), table_rows),
        (
            '<p class="sub">Root mean squared error and fraction of the explained variance on'
            " held-out rows, means over folds, the smallest error in bold; median seconds of a fit."
            " Differences are those to the ensemble, fold by fold, ± one standard error, which"
            " allows for training rows that folds have in common.</p>"
        ),
        f'<div class="single">{_figure("plot", "Errors", chart, caption)}</div>',
    ]
    return _page(title, comparison, body)


# Parts of a page


def _page(title: str, origin: dict[str, Any], body: list[str]) -> str:
    """Assemble a page that fetches nothing and runs only the script of ``page.html``, whatever
    names it shows.

    `origin` holds the command and the versions that made the results.
    """
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    script = template.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    body = [
        *body,
        "<h2>How this report was made</h2>",
        f"<pre>{escape(origin['command'])}</pre>",
        f'<p class="sub">{escape(versions)}</p>',
    ]
    head, tail = (
        template.replace("{{digest}}", digest).replace("{{title}}", escape(title)).split("{{body}}")
    )
    return head + "".join(body) + tail


def _figure(name: str, heading: str, chart: str, caption: str) -> str:
    return (
        "<figure"
        f' id="{name}"><h2>{escape(heading)}</h2>{chart}<figcaption>{escape(caption)}</figcaption></figure>'
    )


def _notes(messages: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(m)}</li>' for m in messages)}</ul>" if messages else ""


def _head(names: tuple[str, ...], first: str = "") -> str:
    corner = (
        f"<th>{first}</th>" if first else "<td></td>"
    )  # screen readers expect text in a header cell
    return corner + "".join(f'<th class="number">{name}</th>' for name in names)


def _cells(strings: list[str]) -> str:
    return "".join(f'<td class="number">{escape(text)}</td>' for text in strings)


def _table(name: str, heads: tuple[str, ...], rows: list[tuple[list[str], str, str, bool]]) -> str:
    """Table of numbers; each row is (cells, name, remark, whether it is in bold)."""
    body = "".join(
        f"<tr{' class=best' * best}><td>{escape(first)}</td>{_cells(cells)}<td"
        f' class="soft">{escape(remark)}</td></tr>'
        for cells, first, remark, best in rows
    )
    head = f"<thead><tr>{_head(heads)}<td></td></tr></thead>"
    return f"{_wide(name)}{head}<tbody>{body}</tbody></table></div>"


def _wide(name: str) -> str:
    """Opening tags of a table that scrolls horizontally if it is too wide, with the keyboard too."""
    return f'<div class="wide" tabindex="0" role="group" aria-label="{name}"><table id="{name}">'


def _full_name(name: str) -> str:
    return escape(shortened(name, 300))


def _double(error: float | None) -> float | None:
    return None if error is None else 2 * error


# Figures of the report


def _effects(summary: dict[str, Any]) -> str:
    rows = []
    for line in summary["effects"]:
        effect_label = _signed(line["effect"])
        if line["coefficient"] is None:  # the effect of a category has no sign
            effect_label = effect_label.removeprefix("+")
        half_width = _double(line["standard_error"])
        rows.append(
            Row(
                line["name"],
                line["effect"],
                half_width,
                labels=(effect_label, percent(line["drawn"])),
            )
        )
    chart = row_chart("Largest effects", rows, "effect", origin=0.0, heading=("effect", "drawn"))
    if any(row.half_width is not None for row in rows):
        error_caption = (
            "Lines: plus and minus two standard errors, the variation of the effect over other"
            " samples of rows, including the choice of schemes; the shrinkage of all effects"
            " towards zero is not included."
        )
    else:
        error_caption = (
            "Standard errors are left out: they would take too long, or need rows that were not"
            " kept."
        )
    caption = (
        f"{EFFECT} For a number it is the change of {shortened(summary['data']['target'])} when the"
        " column grows by one standard deviation, and has a sign. On the right, the fraction of"
        f" the members that use the column (for a category the mean of its levels). {error_caption}"
    )
    return _figure("effects", "Largest effects", chart, caption)


def _signed(value: float) -> str:
    return (
        re.sub(r"e\+?(-?)0*", r"e\1", f"{value:+#.3g}").rstrip(".").replace("-", "\N{MINUS SIGN}")
    )


def _choice(summary: dict[str, Any]) -> str:
    """Show the choice of tuning: the size of the members on a curve, or the weights of sampling
    schemes.
    """
    return _sizes(summary) if summary["choice"] is None else _scheme_table(summary)


def _sizes(summary: dict[str, Any]) -> str:
    chart, remark = _curve_chart(summary["curve"])
    criterion = CRITERIA[summary["model"]["criterion"]]
    caption = (
        "Error of the ensemble (blue, with one standard error) and of an infinite one (dashed), by"
        f" {criterion}. Smaller members shrink the coefficients more.{remark}"
    )
    return _figure("curve", "Error against the size of the members", chart, caption)


def _scheme_table(summary: dict[str, Any]) -> str:
    *schemes, mixture = sorted(
        summary["choice"], key=lambda row: (row["scheme"] == "mixture", -row["weight"])
    )
    rows = [
        (
            [percent(row["weight"]), number(row["rmse"])],
            row["scheme"],
            SCHEME_EXPLANATIONS.get(row["scheme"], ""),
            False,
        )
        for row in schemes
    ]
    n_selected = summary["model"]["selected"]
    sparse_remark = (
        "" if n_selected is None else f" A sparse model would keep {counted(n_selected, 'column')}."
    )
    error = (
        f"{number(mixture['rmse'])} ± {number(mixture['standard_error'], '.2g')} (one standard"
        " error)"
    )
    caption = (
        "Weight of each scheme in the ensemble, chosen by k-fold cross-validation, and its error"
        f" by itself. The error of the mixture is {error}; it is corrected for selection"
        f" optimism.{sparse_remark}"
    )
    return _figure(
        "schemes", "Sampling schemes", _table("weights", ("weight", "error alone"), rows), caption
    )


def _curve_chart(curve: dict[str, Any]) -> tuple[str, str]:
    """Chart of the error curve, and a remark about values outside the frame or infinite."""
    sizes = curve["size"]
    rmse = curve["rmse"]
    rmse_infinite = curve["rmse_infinite"]
    standard_error = curve["standard_error"]
    lower = [r - e for r, e in zip(rmse, standard_error, strict=True)]
    upper = [r + e for r, e in zip(rmse, standard_error, strict=True)]
    finite = [value for value in (*rmse, *rmse_infinite) if math.isfinite(value)]
    low = min(finite)
    high = max(finite)
    top = min(10 * low or high, max(high, *filter(math.isfinite, upper)))  # a high peak is cut off
    bottom = min(low, *filter(math.isfinite, lower))
    chart = Chart(
        "Error against the size of the members",
        labels=("columns in a member", "error"),
        x_range=(sizes[0], sizes[-1]),
        y_range=(bottom, top),
        x_log=sizes[-1] > 20 * sizes[0],
    )
    chart.band(sizes, lower, upper)
    chart.line(sizes, rmse_infinite, "second")
    chart.line(sizes, rmse, "first")
    chart.mark(min(curve["chosen"], sizes[-1]), f"{curve['chosen']:.4g} chosen")
    remark = f" It leaves the frame and goes up to {number(high, '.3g')}." if top < high else ""
    if len(finite) < 2 * len(sizes):
        remark += " In the gap it is infinite."
    return chart.render(), remark


def _profile(columns: dict[str, Any], n_columns: int) -> str:
    """Chart of coefficients over the numbers in the column names; empty if the names are not 30
    numbers in order.
    """
    positions, unit = scale_of_names(columns["name"]) or ([], "")
    if len(positions) < max(MIN_PROFILE_COLUMNS, n_columns):
        return ""
    coefficients = columns["coefficient"]
    x_range = (min(positions), max(positions))
    y_range = (min(0.0, *coefficients), max(0.0, *coefficients))
    labels = (shortened(unit or "name of the column", 40), "coefficient")
    chart = Chart("Coefficients along the columns", labels, x_range, y_range)
    chart.line(x_range, (0.0, 0.0), "diagonal")
    chart.line(positions, coefficients, "first")
    caption = (
        "The names of the columns are numbers in order, as in a spectrum: the coefficient of each"
        " over its number, in the units of the column."
    )
    return _figure("profile", "Coefficients along the columns", chart.render(), caption)


def _scatter(
    title: str,
    labels: tuple[str, str],
    x: list[float],
    y: list[float],
    *,
    reference: tuple[float, float],
) -> str:
    """Scatter plot with a straight line whose heights at the lowest and the highest x are
    `reference`.
    """
    x_range = (min(x), max(x))
    chart = Chart(title, labels, x_range, (min(*y, *reference), max(*y, *reference)))
    chart.line(x_range, reference, "diagonal")
    chart.dots(x, y)
    return chart.render()


def _columns_table(summary: dict[str, Any]) -> str:
    """Table of all columns, the largest effects first, with a search box that appears if scripts
    run.
    """
    columns = summary["columns"]
    frequency = columns["kept"]
    by_effect = sorted(range(len(columns["name"])), key=lambda j: -abs(columns["effect"][j]))
    rows = []
    for j in by_effect:
        name = columns["name"][j]
        cells = [
            number(columns["coefficient"][j]),
            number(columns["effect"][j]),
            percent(columns["drawn"][j]),
        ]
        if frequency:
            cells.append(percent(frequency[j]))
        full_name = _full_name(name)
        name_cell = f'<td class="name" title="{full_name}">{escape(shortened(name, 40))}</td>'
        rows.append(f'<tr data-name="{full_name}">{name_cell}{_cells(cells)}</tr>')
    n_omitted = summary["data"]["columns"] - len(by_effect)
    caption = (
        "Columns as members see them, levels of categories one by one. Coefficients are in their"
        " units."
    )
    caption += " Drawn: fraction of the members that use the column."
    if n_omitted:
        caption += f" The {counted(n_omitted, 'column')} with the smallest effects are left out."
    if frequency:
        caption += " Kept: fraction of the folds in which a sparse model keeps it."
    head = _head(("coefficient", "effect", "drawn", *(["kept"] if frequency else [])), "column")
    return (
        '<details open><summary><h2 style="display: inline-block">Columns</h2></summary>'
        '<p><input type="search" id="search" placeholder="search columns" aria-label="search'
        ' columns" hidden> '
        '<span id="found" role="status"></span></p>'
        f"{_wide('columns')}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f'</div><p class="sub">{caption}</p></details>'
    )
