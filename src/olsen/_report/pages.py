"""Render the report of a fit, or of a comparison, as one self-contained HTML page.

Style, script and frame of the page are in ``page.html``; this module writes its contents.
"""

from __future__ import annotations

import base64
import hashlib
import math
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from .charts import Chart, Row, element, escape, row_chart
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

MOST_LEVELS = 8  # of a category in the table of levels; the columns table has all
SCHEME_EXPLANATIONS = {
    "ridge": "ridge regression: all columns count",
    "rare": "ridge regression that gives rare words and levels less weight",
    "power": "between ridge regression and the lasso",
    "lasso": "the lasso: few columns count",
    "sparse": "even fewer columns than the lasso",
    "uniform": "random columns, all with equal probability",
    "null": "the mean of the target",
}


def render(summary: dict[str, Any]) -> str:
    """Render the page of a summary from :func:`summarise`."""
    data = summary["data"]
    model = summary["model"]
    title = f"{shortened(data['target'])} from {counted(data['table_columns'], 'column')}"
    errors = [
        TableRow(error["name"], [number(error["rmse"]), number(error["r2"], ".3f")], error["note"])
        for error in summary["errors"]
    ]
    interval = element("span", interval_text(summary["interval"]), id="interval")
    choice = _sizes(summary) if summary["choice"] is None else _schemes(summary)
    figures = [
        _effects(summary),
        _example(summary),
        *_scatter_plots(summary),
        _far_rows(summary["far_rows"]),
        choice,
        _profile(summary["columns"], data["columns"]),
    ]
    body = [
        element("h1", escape(title), title=shortened(data["target"], 300)),
        _remark(
            f"{data['name']}: {counted(data['rows'], 'row')}. {_members(model)}, each on"
            f" {_size(model['mean_columns_per_member'], data)}; seed {model['seed']}."
        ),
        element("h2", "Error of prediction"),
        _verdict(summary),
        _table("errors", ("error", "R²"), errors),
        (
            '<p class="sub">Root mean squared error on held-out rows, and fraction of the variance'
            f" of the target that is explained. {interval}</p>"
        ),
        *(element("p", escape(caution), class_="caution") for caution in data["cautions"]),
        element("div", "".join(figures), class_="charts"),
        _columns_table(summary),
        _notes(data["messages"]),
    ]
    return _page(title, summary, body)


def render_comparison(comparison: dict[str, Any]) -> str:
    """Render the page of a comparison from :func:`olsen.cli.table_models.compare`."""
    data = comparison["data"]
    n_columns = counted(data["table_columns"], "column")
    title = f"{shortened(data['target'])} from {n_columns}: models compared"
    repeated = f", repeated {comparison['repeats']} times" if comparison["repeats"] > 1 else ""
    heads = ("error", "difference", "R²", "difference", "seconds")
    body = [
        element("h1", escape(title)),
        _remark(
            f"{data['name']}: {counted(data['rows'], 'row')}; {comparison['folds']}-fold"
            f" cross-validation{repeated}, seed {comparison['seed']}."
        ),
        element("p", escape(comparison["verdict"]), id="verdict"),
        *(element("p", escape(caution), class_="caution") for caution in data["cautions"]),
        _table("models", heads, [_compared_row(line) for line in comparison["models"]]),
        _remark(
            "Root mean squared error and fraction of the explained variance on held-out rows, means"
            " over folds, the smallest error in bold; median seconds of a fit. Differences are"
            " those to olsen, fold by fold, ± one standard error, which allows for training"
            " rows that folds have in common."
        ),
        element("div", _compared_chart(comparison["models"]), class_="single"),
        _notes(data["messages"]),
    ]
    return _page(title, comparison, body)


def _compared_row(line: dict[str, Any]) -> TableRow:
    cells = [
        number(line["rmse"]),
        with_error(line["rmse_difference"], line["rmse_standard_error"]),
        number(line["r2"], ".3f"),
        with_error(line["r2_difference"], line["r2_standard_error"]),
        number(line["seconds"], ".3f"),
    ]
    return TableRow(line["name"], cells, line["what"], line["best"])


def _compared_chart(models: list[dict[str, Any]]) -> str:
    rows = [
        Row(
            line["name"],
            line["rmse"],
            line["rmse_standard_error"],
            labels=(number(line["rmse"]),),
            best=line["best"],
        )
        for line in models
    ]
    sorted_errors = sorted(line["rmse"] for line in models if line["rmse"] is not None)
    chart = row_chart(
        "Mean error of the models",
        rows,
        "root mean squared error",
        origin=models[0]["rmse"],
        # the largest error, often of the mean, would compress the range of the other models
        max_value=min(2.5 * sorted_errors[0], 1.1 * sorted_errors[-2]),
    )
    caption = (
        "Mean error over folds; an arrow leads to an error beyond the frame, the number beside it."
        " Bars: plus and minus two standard errors of the difference to olsen, whose error"
        " is the dotted line; where a bar crosses it, these folds do not distinguish the two models."
    )
    return _figure("plot", "Errors", chart, caption)


# Parts of a page


class TableRow(NamedTuple):
    """Row of numbers: its name, the numbers, a remark, and whether it is in bold."""

    name: str
    cells: list[str]
    remark: str = ""
    best: bool = False


def _page(title: str, origin: dict[str, Any], body: list[str]) -> str:
    """Assemble a page that fetches nothing and runs only the script of ``page.html``, whatever
    names it shows.

    `origin` holds the command and the versions that made the results.
    """
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    script = template.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = template.replace("{{digest}}", digest).replace("{{title}}", escape(title))
    head, tail = template.split("{{body}}")
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    how_made = [
        element("h2", "How this report was made"),
        element("pre", escape(origin["command"])),
        _remark(versions),
    ]
    return "".join([head, *body, *how_made, tail])


def _figure(name: str, heading: str, chart: str, caption: str) -> str:
    content = element("h2", escape(heading)) + chart + element("figcaption", escape(caption))
    return element("figure", content, id=name)


def _remark(text: str) -> str:
    return element("p", escape(text), class_="sub")


def _notes(messages: list[str]) -> str:
    items = [element("li", escape(message)) for message in messages]
    return element("h2", "Notes about the table") + element("ul", "".join(items)) if items else ""


def _members(model: dict[str, Any]) -> str:
    """What the model is an average of."""
    if model["kind"] == "adaptive":
        return "A weighted average of least-squares fits by the sampling schemes below"
    return f"An average of {model['members'] or 'infinitely many'} least-squares fits"


def _size(mean: float, data: dict[str, Any]) -> str:
    """Number of columns of a member, in words."""
    encoded = " encoded" if data["columns"] != data["table_columns"] else ""
    size = size_of(mean, data["columns"]).split(" (")[0].removesuffix(" on average")
    on_average = " on average" if abs(mean - round(mean)) > 1e-9 else ""
    return f"{size}{encoded} columns{on_average}"


def _verdict(summary: dict[str, Any]) -> str:
    """One sentence about the error; empty if it is not known."""
    error = summary["errors"][0]
    if error["rmse"] is None:
        return ""
    target = shortened(summary["data"]["target"])
    verdict = (
        f"Predictions of {target} for new rows are typically off by {number(error['rmse'], '.3g')}"
    )
    if error["r2"] is not None and error["r2"] > 0:
        verdict += f"; the columns explain {percent(error['r2'])} of its variance"
    return element("p", escape(f"{verdict}."))


def _head(names: tuple[str, ...], first: str = "") -> str:
    # screen readers expect text in a header cell
    cells = [element("th", first) if first else element("td")]
    cells += [element("th", name, class_="number") for name in names]
    return "".join(cells)


def _cells(strings: list[str]) -> str:
    return "".join(element("td", escape(text), class_="number") for text in strings)


def _table(name: str, heads: tuple[str, ...], rows: list[TableRow]) -> str:
    """Table of numbers with remarks on the right."""
    body = []
    for row in rows:
        remark = element("td", escape(row.remark), class_="soft")
        cells = element("td", escape(row.name)) + _cells(row.cells) + remark
        body.append(element("tr", cells, class_="best" if row.best else None))
    return _wide_table(name, _head(heads) + element("td"), body)


def _wide_table(name: str, head: str, rows: list[str]) -> str:
    """Table that scrolls horizontally if it is too wide, with the keyboard too."""
    content = element("thead", element("tr", head)) + element("tbody", "".join(rows))
    table = element("table", content, id=name)
    return element("div", table, class_="wide", tabindex=0, role="group", aria_label=name)


# Figures of the report


def _effects(summary: dict[str, Any]) -> str:
    rows = []
    for line in summary["effects"]:
        # the effect of a category has no sign
        form = ".3g" if line["coefficient"] is None else "+.3g"
        effect = number(line["effect"], form).replace("-", "\N{MINUS SIGN}")
        labels = (effect, percent(line["drawn"]))
        rows.append(Row(line["name"], line["effect"], line["standard_error"], labels))
    if not rows:
        return _figure("effects", "Largest effects", "", "No column has an effect.")
    chart = row_chart("Largest effects", rows, "effect", origin=0.0, heading=("effect", "drawn"))
    if any(row.standard_error is not None for row in rows):
        error_caption = (
            "Lines: plus and minus two standard errors, the variation of the effect over other"
            " samples of rows, including the choice of schemes. The model shrinks effects towards"
            " zero where data are few, which the lines do not show."
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
    return _figure("effects", "Largest effects", chart, caption) + _levels(summary)


def _levels(summary: dict[str, Any]) -> str:
    """Table of the levels of categories, as differences from the lowest one."""
    rows = []
    for line in summary["effects"]:
        all_levels = line["levels"] or []
        levels = all_levels[:MOST_LEVELS]
        for level in levels:
            difference = number(level["coefficient"] - all_levels[-1]["coefficient"], "+.3g")
            names = (shortened(line["name"], 30), shortened(level["name"], 30))
            error = line["difference_standard_error"] if level is levels[0] else None
            note = "" if error is None else f"± {number(error, '.2g')}"
            rows.append(TableRow(": ".join(names), [difference], note))
        if len(levels) < len(all_levels):
            rows.append(TableRow(f"{shortened(line['name'], 30)}: lower levels", ["..."]))
    if not rows:
        return ""
    target = shortened(summary["data"]["target"])
    caption = (
        f"By how much {target} is higher than at the lowest level of the column, all else equal."
        " ±: one standard error of the difference between the highest and the lowest level."
    )
    return _figure("levels", "Categories", _table("differences", ("difference",), rows), caption)


def _example(summary: dict[str, Any]) -> str:
    """The prediction of one row, with its interval and the parts of its columns."""
    example = summary["example"]
    if example is None:
        return ""
    rows = [TableRow("mean prediction", [number(example["mean_prediction"])])]
    for part in example["parts"]:
        name = shortened(part["name"], 30)
        value = shortened(part["value"], 30)
        rows.append(TableRow(f"{name}: {value}" if value else name, [number(part["part"], "+.3g")]))
    rows.append(TableRow("prediction", [number(example["prediction"])], best=True))
    coverage = f"{summary['interval']['coverage']:.0%}"
    caption = f"The first row of the table ({shortened(example['row'], 30)}), as if it were new."
    if example["lower"] is not None and example["upper"] is not None:
        caption += (
            f" {coverage} interval: {number(example['lower'])} to {number(example['upper'])};"
            f" observed: {number(example['observed'])}."
        )
    caption += " Parts: coefficient times the distance of the value from its mean."
    return _figure("example", "One prediction", _table("parts", ("part",), rows), caption)


def _sizes(summary: dict[str, Any]) -> str:
    criterion = CRITERIA[summary["model"]["criterion"]]
    caption = (
        "Error of the ensemble (blue, with one standard error) and of an infinite one (dashed), by"
        f" {criterion}. Smaller members shrink the coefficients more."
    )
    chart, remark = _curve_chart(summary["curve"])
    return _figure("curve", "Error against the size of the members", chart, caption + remark)


def _schemes(summary: dict[str, Any]) -> str:
    *schemes, mixture = summary["choice"]
    rows = []
    for row in sorted(schemes, key=lambda row: -row["weight"]):
        explanation = SCHEME_EXPLANATIONS.get(row["scheme"], "")
        cells = [percent(row["weight"]), number(row["rmse"])]
        rows.append(TableRow(row["scheme"], cells, explanation))
    error = f"{number(mixture['rmse'])} ± {number(mixture['standard_error'], '.2g')}"
    caption = (
        "Weight of each scheme in the model, chosen by k-fold cross-validation, and its error by"
        " itself; a good scheme has no weight where it adds nothing to the others. The error of the"
        f" mixture is {error} (one standard error). It counts what choosing the weights costs, which"
        " the errors of single schemes do not."
    )
    n_selected = summary["model"]["selected"]
    if n_selected is not None:
        caption += f" A sparse model would keep {counted(n_selected, 'column')}."
    if summary["model"]["drawn"]:
        caption += (
            f" Uniform members have no closed form: {summary['model']['drawn']} are drawn, and"
            " another seed draws others."
        )
    table = _table("weights", ("weight", "error alone"), rows)
    return _figure("schemes", "Sampling schemes", table, caption)


def _curve_chart(curve: dict[str, Any]) -> tuple[str, str]:
    """Chart of the error curve, and a remark about values outside the frame or infinite."""
    sizes = curve["size"]
    rmse = curve["rmse"]
    errors = list(zip(rmse, curve["standard_error"], strict=True))
    lower = [value - error for value, error in errors]
    upper = [value + error for value, error in errors]
    finite = list(filter(math.isfinite, [*rmse, *curve["rmse_infinite"]]))
    high = max(finite)
    # a high peak is cut off
    top = min(10 * min(finite) or high, max(filter(math.isfinite, [high, *upper])))
    bottom = min(filter(math.isfinite, [*finite, *lower]))
    chart = Chart(
        "Error against the size of the members",
        labels=("columns in a member", "error"),
        x_range=(sizes[0], sizes[-1]),
        y_range=(bottom, top),
        x_log=sizes[-1] > 20 * sizes[0],
    )
    chart.band(sizes, lower, upper)
    chart.line(sizes, curve["rmse_infinite"], "second")
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
    if len(positions) < max(30, n_columns):
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


def _scatter_plots(summary: dict[str, Any]) -> list[str]:
    """Figures of predicted against observed values, and of residuals."""
    predictions = summary["predictions"]
    observed = predictions["observed"]
    predicted = predictions["predicted"]
    residuals = [o - p for o, p in zip(observed, predicted, strict=True)]
    observed_range = (min(observed), max(observed))
    x_range = (min(predicted), max(predicted))
    fit = Chart(
        "Predicted against observed",
        labels=("observed", "predicted"),
        x_range=observed_range,
        y_range=(min(observed + predicted), max(observed + predicted)),
    )
    fit.line(observed_range, observed_range, "diagonal")
    fit.dots(observed, predicted)
    fit_caption = (
        "Fitted values; with many rows for each column they hardly differ from predictions."
    )
    if predictions["left_out"]:
        fit_caption = (
            "Cross-validated predictions: each row is predicted by ensembles that were fitted"
            " without it."
        )
    residual = Chart(
        "Residuals",
        labels=("predicted", "observed minus predicted"),
        x_range=x_range,
        y_range=(min(0.0, *residuals), max(0.0, *residuals)),
    )
    residual.line(x_range, (0.0, 0.0), "diagonal")
    residual.dots(predicted, residuals)
    residual_caption = (
        "Observed minus predicted. A trend, or a spread that changes, means that the model misses"
        " something."
    )
    if largest := summary["largest_residuals"]:
        rows = ", ".join(
            f"{shortened(line['row'], 30)} ({number(line['observed'] - line['predicted'], '+.3g')})"
            for line in largest
        )
        residual_caption += f" The largest are those of rows {rows}."
    return [
        _figure("predicted", fit.title, fit.render(), fit_caption),
        _figure("residuals", residual.title, residual.render(), residual_caption),
    ]


def _far_rows(far_rows: dict[str, list[Any]] | None) -> str:
    """Table of the training rows with the largest leverages; empty if unknown."""
    if far_rows is None:
        return ""
    rows = []
    for row, leverage, observed, predicted in zip(*far_rows.values(), strict=True):
        cells = [number(leverage, ".3g"), number(observed), number(predicted)]
        rows.append(TableRow(f"row {shortened(row, 30)}", cells))
    caption = (
        "Training rows whose columns are most unusual. Leverage says how far a row is from the"
        " others, in multiples of the mean row. For new rows more than twice as far as the first row"
        " here, predictions are extrapolations, and olsen predict marks them."
    )
    table = _table("far", ("leverage", "observed", "predicted"), rows)
    return _figure("far-rows", "Farthest rows", table, caption)


def _columns_table(summary: dict[str, Any]) -> str:
    """Table of all columns, the largest effects first, with a search box that appears if scripts
    run.
    """
    columns = summary["columns"]
    names = columns["name"]
    numbers = {
        "coefficient": list(map(number, columns["coefficient"])),
        "± s.e.": list(map(partial(number, form=".2g"), columns["standard_error"] or [])),
        "effect": list(map(number, columns["effect"])),
        "drawn": list(map(percent, columns["drawn"])),
    }
    if columns["standard_error"] is None:
        del numbers["± s.e."]
    caption = (
        "Columns as members see them, levels of categories one by one. Coefficients are in their"
        " units, with one standard error. Drawn: fraction of the members that use the column."
    )
    n_omitted = summary["data"]["columns"] - len(names)
    if n_omitted:
        caption += f" The {counted(n_omitted, 'column')} with the smallest effects are left out."
    if columns["kept"]:
        numbers["kept"] = list(map(percent, columns["kept"]))
        caption += " Kept: fraction of the folds in which a sparse model keeps it."
    rows = []
    for j in sorted(range(len(names)), key=lambda j: -abs(columns["effect"][j])):
        full_name = shortened(names[j], 300)
        name = element("td", escape(shortened(names[j], 40)), class_="name", title=full_name)
        cells = _cells([strings[j] for strings in numbers.values()])
        rows.append(element("tr", name + cells, data_name=full_name))
    search = (
        '<summary><h2 style="display: inline-block">Columns</h2></summary>'
        '<p><input type="search" id="search" placeholder="search columns" aria-label="search'
        ' columns" hidden> <span id="found" role="status"></span></p>'
    )
    table = _wide_table("columns", _head(tuple(numbers), "column"), rows)
    return f"<details open>{search}{table}{_remark(caption)}</details>"
