"""How much the tests notice: small random changes of the source, and the fraction that no test notices.

``python tests/mutation/run.py --mutants 100 --seed 0`` changes a copy of the source at one place
after the other and runs the tests of its package, cheapest first. What survives meets a wider set.
A survivor is not yet a gap: read it. With ``--jobs N`` N mutants are judged at once, each in
a separate copy of the source.
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

# The beginning of a path -> tests, cheapest first, and the wider set for a survivor; the
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
    old_text: str
    new_text: str
    start: int
    stop: int


class Places:
    """All mutants of one file. Messages, assertions for the type checker and type hints stay."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.offsets = [0, *itertools.accumulate(map(len, self.lines))]

    def span(self, node: Any) -> tuple[int, int]:
        """Positions of a node in the text; columns of a syntax tree count bytes."""
        ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        start, stop = (
            self.offsets[i - 1] + len(self.lines[i - 1].encode()[:j].decode()) for i, j in ends
        )
        return start, stop

    def mutant(self, line: int, kind: str, start: int, stop: int, new_text: str) -> Mutant:
        return Mutant(
            path=self.path,
            line=line,
            kind=kind,
            old_text=self.text[start:stop],
            new_text=new_text,
            start=start,
            stop=stop,
        )

    def instead(self, node: Any, kind: str, new_text: str) -> Mutant:
        return self.mutant(node.lineno, kind, *self.span(node), new_text)

    def between(
        self, left_operand: ast.expr, right_operand: ast.expr, kind: str, new_text: str
    ) -> Mutant:
        """Another operator between two operands, whatever brackets are around them."""
        start = self.span(left_operand)[1]
        stop = self.span(right_operand)[0]
        operator = self.text[start:stop].strip(" ()\n")
        position = self.text.index(operator, start)
        return self.mutant(left_operand.lineno, kind, position, position + len(operator), new_text)

    def below(self, node: ast.AST) -> Iterator[Mutant]:
        """Mutants of a node and of what is below it."""
        yield from self.of(node)
        for part in parts(node):
            yield from self.below(part)

    def of(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare():
                for left_operand, operator, right_operand in zip(
                    [node.left, *node.comparators], node.ops, node.comparators, strict=False
                ):
                    if type(operator) in COMPARISONS:
                        yield self.between(
                            left_operand, right_operand, "comparison", COMPARISONS[type(operator)]
                        )
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                yield self.between(node.left, node.right, "arithmetic", ARITHMETIC[type(node.op)])
            case ast.BoolOp():
                for left_operand, right_operand in itertools.pairwise(node.values):
                    yield self.between(
                        left_operand,
                        right_operand,
                        "and / or",
                        "or" if isinstance(node.op, ast.And) else "and",
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
            keyword_values = [
                keyword.value for keyword in node.keywords if keyword.arg not in SPEED_ONLY
            ]
            return [] if is_message(node) else [*keyword_values, node.func, *node.args]
    return list(ast.iter_child_nodes(node))


def all_mutants(source: Path) -> list[Mutant]:
    """Every change of every file, in order."""
    mutants = []
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*.py")):
            file_places = Places(path.relative_to(source).as_posix(), path.read_text())
            mutants += file_places.below(ast.parse(file_places.text))
    return mutants


def tests_of(path: str, wide: bool) -> list[str]:
    """Test files of a module, cheapest first, or the wider set for survivors."""
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
    target = folder / "olsen" / mutant.path
    began = time.perf_counter()
    original = target.read_text()
    target.write_text(original[: mutant.start] + mutant.new_text + original[mutant.stop :])
    try:
        outcome, test = run_tests(folder, tests_of(mutant.path, False), False, limit)
        if outcome == "passed":
            outcome, test = run_tests(folder, tests_of(mutant.path, True), True, 3 * limit)
    finally:
        target.write_text(original)
        folders.put(folder)
    verdict = "survived" if outcome == "passed" else "killed"
    seconds = round(time.perf_counter() - began, 1)
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
    options = parser.parse_args()
    source = ROOT / "src" / "olsen"
    file_places = all_mutants(source)
    drawn = random.Random(options.seed).sample(file_places, min(options.mutants, len(file_places)))
    print(f"{len(drawn)} of {len(file_places)} places, seed {options.seed}", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(options.jobs):
            shutil.copytree(source, Path(name, str(number), "olsen"))
            folders.put(Path(name, str(number)))
        results = pool.map(lambda mutant: judge(mutant, folders, options.limit), drawn)
        for number, (mutant, result) in enumerate(zip(drawn, results, strict=True), 1):
            counts[mutant.path.split("/")[0], str(result["verdict"])] += 1
            description = f"{mutant.path}:{mutant.line} {mutant.kind}: {mutant.old_text!r} -> {mutant.new_text!r}"
            print(
                f"{number} {result['verdict']} {result['seconds']} s {description} [{result['by']}]",
                flush=True,
            )
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    print("\n| package | mutants | killed | survived |\n|---|---|---|---|")
    for package in PACKAGES:
        killed = counts[package, "killed"]
        survived = counts[package, "survived"]
        print(f"| {package} | {killed + survived} | {killed} | {survived} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
