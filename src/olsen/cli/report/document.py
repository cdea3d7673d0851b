"""What every page is made of: one HTML file that needs no other, with its style and its few lines of script."""

from __future__ import annotations

import base64
import hashlib

from ..recognition import REPORT_MARK
from .svg import escape

__all__ = ["document", "figure", "made_by", "notes"]

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #5c5c5c; --paper: #fff; --rule: #e4e4e4; --blue: #0072B2;
        --red: #D55E00; --law0: #0072B2; --law1: #56B4E9; --law2: #009E73; --law3: #E69F00; --law4: #CC79A7; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eee; --soft: #aaa; --paper: #16181a; --rule: #34383c; --blue: #56B4E9; --red: #E69F00;
          --law0: #56B4E9; --law1: #2f78a8; --law2: #33b48c; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin-bottom: 0; line-height: 1.25; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p.sub { color: var(--soft); margin-top: .2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; overflow-wrap: normal; } th { text-align: left; font-weight: 600; }
td, th { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.best td { font-weight: 600; }
td.name { min-width: 7.5rem; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(24rem, 100%), 1fr)); gap: 1rem 2rem; }
.single { max-width: 36rem; } figure { margin: 0; min-width: 0; } figcaption { color: var(--soft); font-size: .87rem; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .tick, svg .note { fill: var(--soft); } svg .number { font-variant-numeric: tabular-nums; }
svg text.best { font-weight: 600; }
svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--soft); } svg polyline { fill: none; stroke-width: 1.8; }
svg .first { stroke: var(--blue); } svg .second { stroke: var(--red); stroke-dasharray: 5 4; }
svg .band { fill: var(--blue); opacity: .15; } svg .chosen { stroke: var(--ink); stroke-dasharray: 2 3; }
svg .dots { fill: var(--blue); opacity: .55; } svg .diagonal { stroke: var(--soft); stroke-width: 1; }
svg .plus { fill: var(--blue); } svg .minus, svg .beyond { fill: var(--red); }
svg .whisker { stroke: var(--ink); stroke-width: 1.2; fill: none; opacity: .75; }
.part0 { fill: var(--law0); background: var(--law0); } .part1 { fill: var(--law1); background: var(--law1); }
.part2 { fill: var(--law2); background: var(--law2); } .part3 { fill: var(--law3); background: var(--law3); }
.part4 { fill: var(--law4); background: var(--law4); }
.legend { list-style: none; margin: .3rem 0 .6rem; padding: 0; font-size: .9rem; }
.legend li { display: grid; grid-template-columns: .8rem 7rem 1fr; gap: 0 .5rem; }
.legend .swatch { width: .8rem; height: .8rem; margin-top: .3rem; } .soft { color: var(--soft); }
input[type=search] { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--soft);
                     border-radius: 4px; padding: .3rem .5rem; width: min(22rem, 100%); box-sizing: border-box; }
pre { background: var(--rule); padding: .6rem .8rem; white-space: pre-wrap; border-radius: 4px; }
@media (max-width: 40rem) { table { font-size: .87rem; } td, th { padding-right: .7rem; } }
"""

# Rows of the table of columns whose names hold the words; without a search, or with too many found, the first ones.
SCRIPT = """
(() => {
  const box = document.getElementById("search"), said = document.getElementById("found");
  if (!box) return;
  const rows = [...document.querySelectorAll("#columns tbody tr")], most = 20;
  const names = rows.map(row => row.dataset.name.toLowerCase());
  function look() {
    const words = box.value.trim().toLowerCase();
    let found = 0;
    rows.forEach((row, i) => {
      const fits = names[i].includes(words);
      found += fits;
      row.hidden = !fits || found > most;
    });
    const shown = Math.min(found, most);
    said.textContent = (found ? `${shown} of ${found} shown` : "no column has such a name") +
      (words && found ? `, of ${rows.length} in all` : "");
  }
  box.hidden = false;
  box.addEventListener("input", look);
  look();
})();
"""


def document(title: str, body: list[str]) -> str:
    """A page that fetches nothing, and that runs no script but the one above, whatever names it shows."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"{REPORT_MARK}"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>{''.join(body)}<script>{SCRIPT}</script></body></html>\n"
    )


def figure(name: str, heading: str, chart: str, caption: str) -> str:
    """A chart under its heading, with what it shows below."""
    return f'<figure id="{name}"><h2>{escape(heading)}</h2>{chart}<figcaption>{escape(caption)}</figcaption></figure>'


def notes(messages: list[str]) -> str:
    """Notes about the table as a list; nothing if there are none."""
    return f"<ul>{''.join(f'<li>{escape(m)}</li>' for m in messages)}</ul>" if messages else ""


def made_by(command: str, versions: dict[str, str]) -> list[str]:
    """How a page came about."""
    return [
        "<h2>How this report was made</h2>",
        f"<pre>{escape(command)}</pre>",
        f'<p class="sub">{escape(", ".join(f"{k} {v}" for k, v in versions.items()))}</p>',
    ]
