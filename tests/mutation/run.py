"""How much the tests notice: small random changes of the source, and the share that no test minds.

``python tests/mutation/run.py --mutants 100 --seed 0`` changes a copy of the source at one place
after the other and runs the tests of its package, cheapest first. What survives meets a wider set.
A survivor is not yet a gap: read it. With ``--jobs N`` so many mutants are judged at once, each in
a copy of the source of its own.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = ("_members", "_tuning", "_adaptive", "_estimators")
SPEED_ONLY = {
    "check_finite",
    "copy",
    "optimize",
    "overwrite_a",
    "overwrite_b",
}  # arguments that change no result

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
}
OTHER = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
}

# The beginning of a path -> tests, cheapest first, and those that a survivor meets after them; the
# longest counts.
TESTS = {
    "_members": ("members ensemble", "formulas_of_a_fit path trust fuzz nist uncertainty"),
    "_members/cg": ("masked_cg ensemble", "formulas_of_a_fit arrays trust fuzz"),
    "_members/normal_equations": ("masked_cg ensemble", "formulas_of_a_fit arrays trust fuzz"),
    "_members/masked_cg": ("masked_cg ensemble", "formulas_of_a_fit arrays trust fuzz"),
    "_members/on_device": ("arrays members", "formulas_of_a_fit on_device fuzz"),
    "_members/path": (
        "path dependent ensemble tuning",
        "formulas_of_a_fit trust fuzz uncertainty tuning",
    ),
    "_members/deletion": ("path ensemble uncertainty", "formulas_of_a_fit trust fuzz uncertainty"),
    "_members/jackknife": ("path ensemble uncertainty", "formulas_of_a_fit trust fuzz uncertainty"),
    "_tuning": (
        "schemes goldens tuning",
        "formulas_of_a_fit blocks repeated_calls trust contract tuning",
    ),
    "_tuning/moment_curves": (
        "on_device blocks goldens",
        "formulas_of_a_fit arrays contract tuning",
    ),
    "_adaptive": ("schemes goldens two_models", "tuning formulas_of_a_fit trust contract"),
    "_estimators": (
        "bad_input repeated_calls ensemble tuning uncertainty",
        "formulas_of_a_fit trust contract uncertainty determinantal blocks pipelines summaries",
    ),
}
# simulations wait
FAST = "not every_criterion and not coverage_of_new and not spread_over and not soil"


@dataclass(frozen=True)
class Mutant:
    """One change: characters [start, stop) of a file become other ones."""

    path: str  # below src/olsen
    line: int
    kind: str
    before: str
    after: str
    start: int
    stop: int


class Places:
    """All mutants of one file. Messages, assertions (they are for the type checker) and type hints
    are left alone.
    """

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text, self.lines = path, text, text.splitlines(keepends=True)
        self.offsets = [0, *itertools.accumulate(map(len, self.lines))]

    def span(self, node: Any) -> tuple[int, int]:
        """Positions of a node in the text; columns of a syntax tree count bytes."""
        ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        start, stop = (
            self.offsets[i - 1] + len(self.lines[i - 1].encode()[:j].decode()) for i, j in ends
        )
        return start, stop

    def mutant(self, line: int, kind: str, start: int, stop: int, after: str) -> Mutant:
        return Mutant(self.path, line, kind, self.text[start:stop], after, start, stop)

    def instead(self, node: Any, kind: str, after: str) -> Mutant:
        return self.mutant(node.lineno, kind, *self.span(node), after)

    def between(self, left: ast.expr, right: ast.expr, kind: str, after: str) -> Mutant:
        """Another operator between two operands, whatever brackets are around them."""
        start, stop = self.span(left)[1], self.span(right)[0]
        operator = self.text[start:stop].strip(" ()\n")
        here = self.text.index(operator, start)
        return self.mutant(left.lineno, kind, here, here + len(operator), after)

    def below(self, node: ast.AST) -> Iterator[Mutant]:
        """Mutants of a node and of what is below it."""
        yield from self.of(node)
        for part in parts(node):
            yield from self.below(part)

    def of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                for left, operator, right in zip(
                    [node.left, *node.comparators], node.ops, node.comparators, strict=False
                ):
                    if type(operator) in COMPARISONS:
                        yield self.between(left, right, "comparison", COMPARISONS[type(operator)])
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                yield self.between(node.left, node.right, "arithmetic", ARITHMETIC[type(node.op)])
            case ast.BoolOp():
                for left, right in itertools.pairwise(node.values):
                    yield self.between(
                        left, right, "and / or", "or" if isinstance(node.op, ast.And) else "and"
                    )
            case ast.UnaryOp(op=ast.Not()):
                yield self.instead(node, "not removed", f"({ast.unparse(node.operand)})")
            case ast.Constant(value=bool()):
                yield self.instead(node, "constant", str(not node.value))
            case ast.Constant(value=int() | float()):
                yield self.instead(node, "constant", repr(node.value + 1))
            case ast.If() | ast.IfExp():
                yield self.instead(
                    node.test, "condition negated", f"(not ({ast.unparse(node.test)}))"
                )
            case ast.Slice():
                for bound in (node.lower, node.upper):
                    if bound is not None and not isinstance(
                        bound, ast.Constant
                    ):  # constants have their own mutant
                        yield self.instead(bound, "slice bound", f"({ast.unparse(bound)}) + 1")
            case ast.Call() if (name := called(node)) in OTHER and not is_message(node):
                stop = self.span(node.func)[1]  # the last word of what is called
                yield self.mutant(node.lineno, "max / min", stop - len(name), stop, OTHER[name])
            case ast.FunctionDef():
                for statement in node.body[:-1]:
                    for early in itertools.takewhile(not_a_function, ast.walk(statement)):
                        if isinstance(early, ast.Return) and early.value is not None:
                            yield self.instead(early, "return removed", "pass")


def not_a_function(node: ast.AST) -> bool:
    return not isinstance(node, ast.FunctionDef | ast.Lambda)


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def is_message(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called(node) in ("warn", "require", "field")


def parts(node: ast.AST) -> list[Any]:
    """What is changed below a node: neither decorators nor type hints nor arguments that change no
    result.
    """
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr():
            return []
        case ast.FunctionDef():
            return [
                part
                for part in (*node.args.defaults, *node.args.kw_defaults, *node.body)
                if part is not None
            ]
        case ast.ClassDef():
            return list(node.body)
        case ast.AnnAssign():
            return [node.value] if node.value is not None else []
        case ast.Call():
            given = [keyword.value for keyword in node.keywords if keyword.arg not in SPEED_ONLY]
            return [] if is_message(node) else [*given, node.func, *node.args]
    return list(ast.iter_child_nodes(node))


def all_mutants(source: Path) -> list[Mutant]:
    """Every change of every file, in order."""
    found = []
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*.py")):
            places = Places(path.relative_to(source).as_posix(), path.read_text())
            found += places.below(ast.parse(places.text))
    return found


def tests_of(path: str, wide: bool) -> list[str]:
    """Test files of a module, cheapest first, or those that a survivor meets after them."""
    names = TESTS[max((start for start in TESTS if path.startswith(start)), key=len)][wide].split()
    return ["tests/fuzz" if name == "fuzz" else _file_of(name) for name in names]


def _file_of(name: str) -> str:
    """Path of a test file, which is in the folder of its package."""
    return str(next((ROOT / "tests").rglob(f"test_{name}.py")).relative_to(ROOT))


def run_tests(folder: Path, files: list[str], wide: bool, limit: float) -> tuple[str, str]:
    """("passed", ""), ("failed", the test) or ("timeout", "")."""
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, *([] if wide else ["-k", FAST]), *files]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    try:
        process = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return "timeout", ""
    output = process.stdout + process.stderr
    if process.returncode not in (0, 1, 2):  # 2: the mutant cannot even be imported
        raise SystemExit(f"pytest could not run {' '.join(files)}:\n{output[-2000:]}")
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (
        ("passed", "")
        if process.returncode == 0
        else ("failed", " ".join(failed[:1])[:160] or output[-160:])
    )


def judge(mutant: Mutant, folders: SimpleQueue[Path], limit: float) -> dict[str, object]:
    """Change a free copy, run the tests of its package, the wider set where none failed, and change
    it back.
    """
    folder = folders.get()
    target, began = folder / "olsen" / mutant.path, time.perf_counter()
    whole = target.read_text()
    target.write_text(whole[: mutant.start] + mutant.after + whole[mutant.stop :])
    try:
        outcome, test = run_tests(folder, tests_of(mutant.path, False), False, limit)
        if outcome == "passed":
            outcome, test = run_tests(folder, tests_of(mutant.path, True), True, 3 * limit)
    finally:
        target.write_text(whole)
        folders.put(folder)
    verdict, seconds = (
        "survived" if outcome == "passed" else "killed",
        round(time.perf_counter() - began, 1),
    )
    return {**asdict(mutant), "verdict": verdict, "by": test or outcome, "seconds": seconds}


def main() -> int:
    """Draw, judge, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once, with a core each")
    parser.add_argument(
        "--limit",
        type=float,
        default=240,
        help="seconds of the first tests; longer ones are killed",
    )
    parser.add_argument("--out", type=Path, help="file of results, one JSON object a line")
    given = parser.parse_args()
    source = ROOT / "src" / "olsen"
    places = all_mutants(source)
    drawn = random.Random(given.seed).sample(places, min(given.mutants, len(places)))
    print(f"{len(drawn)} of {len(places)} places, seed {given.seed}", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.jobs):
            shutil.copytree(source, Path(name, str(number), "olsen"))
            folders.put(Path(name, str(number)))
        results = pool.map(lambda mutant: judge(mutant, folders, given.limit), drawn)
        for number, (mutant, result) in enumerate(zip(drawn, results, strict=True), 1):
            counts[mutant.path.split("/")[0], str(result["verdict"])] += 1
            shown = (
                f"{mutant.path}:{mutant.line} {mutant.kind}: {mutant.before!r} -> {mutant.after!r}"
            )
            print(
                f"{number} {result['verdict']} {result['seconds']} s {shown} [{result['by']}]",
                flush=True,
            )
            if given.out is not None:
                with given.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    print("\n| package | mutants | killed | survived |\n|---|---|---|---|")
    for package in PACKAGES:
        killed, survived = counts[package, "killed"], counts[package, "survived"]
        print(f"| {package} | {killed + survived} | {killed} | {survived} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
