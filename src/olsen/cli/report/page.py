"""The report as one HTML page: no script, no network, no other file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..recognition import REPORT_MARK
from ..shown_text import shortened
from .svg import Chart, bars, escape

__all__ = ["render"]

STYLE = """
:root { --ink: #1b1b1b; --soft: #666; --paper: #fff; --rule: #e4e4e4; --blue: #0072B2; --red: #D55E00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --soft: #aaa; --paper: #16181a; --rule: #34383c; --blue: #56B4E9; --red: #E69F00; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p.sub { color: var(--soft); margin-top: .2rem; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; }
td, th { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--rule); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 1rem 2rem; }
figure { margin: 0; } figcaption { color: var(--soft); font-size: .87rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 11px system-ui, sans-serif; }
svg .tick { fill: var(--soft); } svg .note { fill: var(--soft); } svg .grid { stroke: var(--rule); }
svg .axis { stroke: var(--soft); } svg polyline { fill: none; stroke-width: 1.8; }
svg .first { stroke: var(--blue); } svg .second { stroke: var(--red); stroke-dasharray: 5 4; }
svg .band { fill: var(--blue); opacity: .15; } svg .chosen { stroke: var(--ink); stroke-dasharray: 2 3; }
svg .dots { fill: var(--blue); opacity: .55; } svg .diagonal { stroke: var(--soft); stroke-width: 1; }
svg .plus { fill: var(--blue); } svg .minus { fill: var(--red); }
pre { background: var(--rule); padding: .6rem .8rem; overflow-x: auto; border-radius: 4px; }
"""


def render(summary: dict[str, Any]) -> str:
    """The page of a summary made by :func:`summarise`."""
    data, model = summary["data"], summary["model"]
    title = f"{shortened(data['target'])} from {data['columns']} columns"
    body = [
        f'<h1 title="{escape(data["target"])}">{escape(title)}</h1>',
        f'<p class="sub">{escape(data["name"])}: {data["rows"]} rows. {escape(_sentence(model))}</p>',
        "<h2>Error of prediction</h2>",
        _error_table(summary["errors"]),
        f'<p class="sub">Root mean squared error on rows left out {_left_out(model)}, and the share of the variance of '
        "the target that is explained there.</p>",
        _notes(data["messages"]),
        f'<div class="charts">{"".join(_figures(summary))}</div>',
        "<h2>How this report was made</h2>",
        f"<pre>{escape(summary['command'])}</pre>",
        f'<p class="sub">{escape(", ".join(f"{k} {v}" for k, v in summary["versions"].items()))}</p>',
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{REPORT_MARK}"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>{''.join(body)}</body></html>\n"
    )


def _left_out(model: dict[str, Any]) -> str:
    return "a fifth at a time" if model["criterion"] == "kfold" else "one at a time"


def _sentence(model: dict[str, Any]) -> str:
    return (
        f"An average of {model['members']} least-squares fits, each on {model['columns_per_member']} columns "
        f"({model['share']:.0%}) drawn at random; seed {model['seed']}."
    )


def _error_table(errors: list[dict[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td>{escape(e["name"])}</td><td class="number">{_value(e["rmse"])}</td>'
        f'<td class="number">{_value(e["r2"], 3)}</td><td>{escape(e["note"])}</td></tr>'
        for e in errors
    )
    head = '<tr><th></th><th class="number">error</th><th class="number">R²</th><th></th></tr>'
    return f'<table id="errors"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _value(number: float | None, digits: int = 4) -> str:
    if number is None or not math.isfinite(number):
        return "-"
    return f"{number:.{digits}g}" if digits != 3 else f"{number:.3f}"


def _notes(messages: list[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(m)}</li>' for m in messages)}</ul>" if messages else ""


def _figures(summary: dict[str, Any]) -> Iterator[str]:
    yield _figure("curve", "Error against the size of the members", _curve_chart(summary), (
        f"Error of the ensemble (blue, with one standard error) and of an infinite one (dashed) on rows left out "
        f"{_left_out(summary['model'])}. Smaller members shrink the coefficients more."))  # fmt: skip
    names, values, notes = zip(*((c["name"], c["effect"], f"{c['drawn']:.0%}") for c in summary["coefficients"]),
                               strict=True)  # fmt: skip
    unit = shortened(summary["data"]["target"])
    yield _figure("coefficients", "Largest effects", bars("Largest effects", names, values, notes), (
        f"Change of {unit} when a column grows by one standard deviation; on the right, the share of the members "
        "that use the column."))  # fmt: skip
    left_out = summary["predictions"]["left_out"]
    yield _figure("predicted", "Predicted against observed", _predicted_chart(summary), (
        "Every row predicted by an ensemble that has not seen it." if left_out else
        "Fitted values; with so many rows for each column they hardly differ from predictions."))  # fmt: skip
    yield _figure("residuals", "Residuals", _residual_chart(summary), (
        "Observed minus predicted. A trend, or a spread that changes, means that the model misses something."
    ))  # fmt: skip


def _figure(name: str, heading: str, chart: str, caption: str) -> str:
    return f'<figure id="{name}"><h2>{escape(heading)}</h2>{chart}<figcaption>{escape(caption)}</figcaption></figure>'


def _curve_chart(summary: dict[str, Any]) -> str:
    curve = summary["curve"]
    sizes, at_k, limit, error = curve["size"], curve["rmse"], curve["rmse_infinite"], curve["standard_error"]
    # spikes are cut off, so that the region around the minimum stays readable
    low = min(*at_k, *limit)
    high = min(max(*at_k, *limit), 3 * low) if low > 0 else max(*at_k, *limit)
    chart = Chart("Error against the size of the members", "columns in a member", "error", (sizes[0], sizes[-1]),
                  (low, high), x_log=sizes[-1] > 20 * sizes[0])  # fmt: skip
    chart.band(sizes, [r - e for r, e in zip(at_k, error, strict=True)],
               [r + e for r, e in zip(at_k, error, strict=True)], "band")  # fmt: skip
    chart.line(sizes, limit, "second")
    chart.line(sizes, at_k, "first")
    chart.mark(curve["chosen"], "chosen", f"{curve['chosen']} chosen")
    return chart.render()


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
