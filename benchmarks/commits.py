"""Times and peaks of memory of two commits in alternation: ``python benchmarks/commits.py COMMIT
[--rounds 5]``.

The cases are those of ``asv_suite``. Each round starts one process per commit and case, the earlier
commit and the working tree in turn, so that a noisy moment hits both; the best of all rounds
counts. The earlier commit is checked out and compiled in a temporary folder.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = ("ensembles", "tuning")
CALLS = 3  # timed calls in a process, of which the shortest counts
MIN_COMPARED_SECONDS = 0.05  # shorter cases are shown, but their ratio is not judged


def cases() -> list[tuple[str, str, str, int]]:
    """Module, class, method and position of the parameter of every case of the suite."""
    listed = []
    for module in MODULES:
        content = vars(importlib.import_module(f"asv_suite.{module}"))
        for name, kind in content.items():
            if isinstance(kind, type):
                methods = [
                    method for method in vars(kind) if method.startswith(("time_", "peakmem_"))
                ]
                parameters = range(len(getattr(kind, "params", (None,))))
                listed += [
                    (module, name, method, i)
                    for method, i in itertools.product(methods, parameters)
                ]
    return listed


def measure(module: str, name: str, method: str, position: int) -> float:
    """Seconds of a call, or megabytes of peak memory, in this process."""
    from timing import seconds

    kind = getattr(importlib.import_module(f"asv_suite.{module}"), name)
    arguments = [kind.params[position]] if hasattr(kind, "params") else []
    case = kind()
    case.setup(*arguments)
    call = getattr(case, method)
    if method.startswith("time_"):
        return min(seconds(lambda: call(*arguments)) for _ in range(CALLS))
    call(*arguments)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured_in(source: Path, case: tuple[str, str, str, int]) -> float:
    """The measurement of a case in a process of its own, with the library of `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(finished.stdout.split()[-1])


def checked_out(commit: str, folder: Path) -> Path:
    """The library of the commit, compiled and installed in a folder."""
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", commit], check=True, capture_output=True
    ).stdout
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(["tar", "-x"], cwd=tree, input=archive, check=True)
    library = folder / "library"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", library, tree],
        check=True,
    )
    return library


def compare(commit: str, rounds: int) -> None:
    """Print the best of both sides and their ratio for every case."""
    with tempfile.TemporaryDirectory() as folder:
        before = checked_out(commit, Path(folder))
        for case in cases():
            pairs = [
                (measured_in(before, case), measured_in(ROOT / "src", case)) for _ in range(rounds)
            ]
            earlier, now = (min(side) for side in zip(*pairs, strict=True))
            unit = "s" if case[2].startswith("time_") else "MB"
            judged = unit == "MB" or earlier >= MIN_COMPARED_SECONDS
            note = "" if judged else "  (short)"
            label = ".".join(map(str, case))
            print(
                f"{label:45} {earlier:10.4f} {now:10.4f} {unit:2}  x{now / earlier:.3f}{note}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(measure(*json.loads(options.case)))
    else:
        compare(options.commit, options.rounds)
