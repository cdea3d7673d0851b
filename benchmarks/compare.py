"""Us and the peers side by side, in one process, taking turns.

    python benchmarks/compare.py                   # everything, minutes; what `make bench` runs
    python benchmarks/compare.py --only fit kernel # some groups
    python benchmarks/compare.py --data FOLDER     # with the tables of a folder: CSV files with a column `target`
    python benchmarks/compare.py --quick           # toy sizes: whether it runs, not how fast

Every group prints a table and stores it, with the machine it ran on, as GROUP.json and GROUP.md in
the folder `--out`. Nothing here asserts a time: a limit that is missed says FAIL in its row.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import machine
from groups import FROM_A_FOLDER, GROUPS
from tables import lines, markdown

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
TOY_RESULTS = HERE.parent / "out" / "benchmarks"  # never over the real ones


def main(arguments=None) -> int:
    options = parse(arguments)
    out = options.out or (TOY_RESULTS if options.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    about = machine.describe(options.quick)
    print("\n".join(machine.header_lines(about)), flush=True)
    broken = [name for name in options.only or GROUPS if not run_group(name, about, out, options)]
    if broken:
        print(f"groups that broke: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


def parse(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="toy sizes, seconds; stored in out/ unless --out says else",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="GROUP", choices=list(GROUPS), help=", ".join(GROUPS)
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="tables for the group `real`, skipped without"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where tables are stored")
    return parser.parse_args(arguments)


def run_group(name: str, about: dict, out: Path, options: argparse.Namespace) -> bool:
    """Run, print and store one group; a broken one must not cost the others their results."""
    quick, folder = options.quick, {"data": options.data} if name in FROM_A_FOLDER else {}
    print(f"\n{GROUPS[name].TITLE}", flush=True)
    start, rows = time.perf_counter(), []
    try:
        for row in GROUPS[name].run(quick, **folder):
            rows.append(row)
            print("\n".join(lines(GROUPS[name].cells(row))), flush=True)
    except Exception:
        traceback.print_exc()
        return False
    took = time.perf_counter() - start
    if not rows:
        print("  nothing to run")
        return True
    print(f"  {took:.0f} s for this group")
    result = {"group": name, "quick": quick, "took_seconds": took, "machine": about, "rows": rows}
    result["after"] = machine.product_rate(quick)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(
        markdown([GROUPS[name].cells(row) for row in rows]), encoding="utf-8"
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
