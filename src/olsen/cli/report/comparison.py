"""The page of a comparison: a table, and a plot of the errors with what is known of their differences."""

from __future__ import annotations

from typing import Any

from ..shown_text import shortened
from .document import document, figure, made_by, notes
from .svg import Dot, dot_plot, escape
from .words import counted, number, with_error

__all__ = ["render_comparison"]

MOST = 2.5  # times the least error; dots beyond would leave no room for the others


def render_comparison(found: dict[str, Any]) -> str:
    """The page of what :func:`olsen.cli.compare.compare_table` found."""
    data = found["data"]
    title = f"{shortened(data['target'])} from {counted(data['columns'], 'column')}: models compared"
    repeated = f", repeated {found['repeats']} times" if found["repeats"] > 1 else ""
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(data["name"])}: {counted(data["rows"], "row")}; {found["folds"]} random folds'
        f"{repeated}, seed {found['seed']}.</p>",
        f'<p id="verdict">{escape(found["verdict"])}</p>',
        notes([*data["messages"], *found["notes"]]),
        _table(found["models"]),
        '<p class="sub">Root mean squared error and share of the explained variance on rows left out, means over '
        "folds, the least error in bold; median seconds of a fit. Differences are those to the ensemble, fold by fold, "
        "± one standard error, which allows for training rows that folds share.</p>",
        _plot(found["models"]),
        *made_by(found["command"], found["versions"]),
    ]
    return document(title, body)


def _table(models: list[dict[str, Any]]) -> str:
    heads = ("error", "difference", "R²", "difference", "seconds")
    head = "<tr><th></th>" + "".join(f'<th class="number">{text}</th>' for text in heads) + "<th></th></tr>"
    rows = "".join(_row(line) for line in models)
    return f'<div class="wide"><table id="models"><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _row(line: dict[str, Any]) -> str:
    cells = (
        number(line["rmse"]),
        with_error(line["rmse_difference"], line["rmse_standard_error"]),
        number(line["r2"], ".3f"),
        with_error(line["r2_difference"], line["r2_standard_error"]),
        number(line["seconds"], ".2f"),
    )
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    best = ' class="best"' if line["best"] else ""
    return f'<tr{best}><td>{escape(line["name"])}</td>{numbers}<td class="soft">{escape(line["what"])}</td></tr>'


def _plot(models: list[dict[str, Any]]) -> str:
    known = [line["rmse"] for line in models if line["rmse"] is not None]
    dots = [
        Dot(line["name"], line["rmse"], _double(line["rmse_standard_error"]), number(line["rmse"]), line["best"])
        for line in models
    ]
    reference = models[0]["rmse"] if models[0]["rmse"] is not None else min(known)
    beyond = [line["name"] for line in models if line["rmse"] is not None and line["rmse"] > MOST * min(known)]
    chart = dot_plot("Mean error of the models", dots, reference, "root mean squared error", MOST * min(known))
    caption = (
        "Mean error over folds. Bars: plus and minus two standard errors of the difference to the ensemble, whose "
        "error is the dotted line; where a bar crosses it, these folds cannot tell the two apart."
    )
    caption += f" Far beyond the right end: {', '.join(beyond)}." if beyond else ""
    return f'<div class="single">{figure("plot", "Errors", chart, caption)}</div>'


def _double(error: float | None) -> float | None:
    return None if error is None else 2 * error
