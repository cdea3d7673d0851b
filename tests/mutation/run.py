"""How much the tests notice: small random changes of the source, and the share that no test minds.

``python tests/mutation/run.py --mutants 100 --seed 0`` changes a copy of the source at one place after the other and
runs the tests of its package, cheapest first. What survives meets a wider set. A survivor is not yet a gap: read it.
"""

from __future__ import annotations

import argparse
import ast
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
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("_members", "_selection", "_estimators")
SPEED_ONLY = {"check_finite", "copy", "optimize", "overwrite_a", "overwrite_b"}  # arguments that change no result

COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}

# The beginning of a path -> tests, cheapest first; the longest beginning counts.
TESTS = {
    "_members": "members ensemble",
    "_members/masked_cg": "masked_cg ensemble",
    "_members/on_device": "arrays members",
    "_members/path": "path dependent ensemble tuning uncertainty",
    "_members/jackknife": "path ensemble uncertainty",
    "_members/problem": "ensemble members",
    "_selection": "schemes tuning blocks",
    "_estimators": "bad_input sequences ensemble tuning uncertainty",
}
WIDER = {  # what a survivor meets after them
    "_members": "survivors path trust fuzz nist uncertainty",
    "_selection": "survivors sequences trust contract tuning",
    "_estimators": "survivors trust contract uncertainty",
}
FAST = "not every_criterion and not coverage_of_new and not spread_over and not soil"  # simulations wait


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


class Places(ast.NodeVisitor):
    """All mutants of one file."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text, self.found = path, text, list[Mutant]()
        lines = text.splitlines(keepends=True)
        self.offsets = [0]
        for line in lines:
            self.offsets.append(self.offsets[-1] + len(line))
        self.lines = lines

    def _at(self, line: int, column: int) -> int:
        """Position in the text; columns of a syntax tree count bytes."""
        return self.offsets[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _add(self, node: ast.expr | ast.stmt, kind: str, after: str) -> None:
        start, stop = self._span(node)
        before = self.text[start:stop]
        self.found.append(Mutant(self.path, node.lineno, kind, before, after, start, stop))

    def _between(self, left: ast.expr, right: ast.expr, kind: str, after: str) -> None:
        """Change the operator between two operands, whatever brackets are around them."""
        start, stop = self._span(left)[1], self._span(right)[0]
        before = self.text[start:stop]
        operator = before.strip(" ()\n")
        here = start + before.index(operator)
        self.found.append(Mutant(self.path, left.lineno, kind, operator, after, here, here + len(operator)))

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            if type(operator) in COMPARISONS:
                self._between(left, right, "comparison", COMPARISONS[type(operator)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC:
            self._between(node.left, node.right, "arithmetic", ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, "and / or", "or" if isinstance(node.op, ast.And) else "and")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, "not removed", f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, "constant", repr(node.value + 1))

    def visit_If(self, node: ast.If) -> None:
        self._add(node.test, "condition negated", f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(node.test, "condition negated", f"(not ({ast.unparse(node.test)}))")
        self.generic_visit(node)

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound in (node.lower, node.upper):
            if bound is not None and not isinstance(bound, ast.Constant):  # constants have their own mutant
                self._add(bound, "slice bound", f"({ast.unparse(bound)}) + 1")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name in ("warn", "require", "field"):  # messages and their amounts
            return
        other = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}.get(name)
        if other is not None:
            stop = self._span(node.func)[1]
            self.found.append(
                Mutant(self.path, node.lineno, "max / min", name, other, stop - len(name), stop)
            )  # the last word of what is called
        for keyword in node.keywords:
            if keyword.arg not in SPEED_ONLY:
                self.visit(keyword.value)
        self.visit(node.func)
        for argument in node.args:
            self.visit(argument)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for early in self._early_returns(node):
            self._add(early, "return removed", "pass")
        for statement in node.body:  # neither decorators nor type hints
            self.visit(statement)

    def _early_returns(self, function: ast.FunctionDef) -> Iterator[ast.Return]:
        for statement in function.body[:-1]:
            for node in ast.walk(statement):
                if isinstance(node, ast.FunctionDef | ast.Lambda):
                    break
                if isinstance(node, ast.Return) and node.value is not None:
                    yield node

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Messages are left alone."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions are for the type checker."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are left alone."""


def all_mutants(source: Path) -> list[Mutant]:
    """Every change of every file, in order."""
    found = []
    for package in PACKAGES:
        for path in sorted((source / package).rglob("*.py")):
            places = Places(path.relative_to(source).as_posix(), path.read_text())
            places.visit(ast.parse(places.text))
            found += places.found
    return found


def tests_of(path: str, wide: bool) -> list[str]:
    """Test files of a module, cheapest first, or those that a survivor meets after them."""
    key = max((start for start in TESTS if path.startswith(start)), key=len)
    names = TESTS[key].split()
    if wide:
        simulations = {"tuning", "uncertainty"}  # left out before
        names = [name for name in WIDER[path.split("/")[0]].split() if name in simulations or name not in names]
    return ["tests/fuzz" if name == "fuzz" else f"tests/test_{name}.py" for name in names]


def run_tests(folder: Path, files: list[str], wide: bool, limit: float) -> tuple[str, str]:
    """("passed", ""), ("failed", the test) or ("timeout", "")."""
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "-W", "ignore"]
    command = [sys.executable, "-m", "pytest", *options, *([] if wide else ["-k", FAST]), *files]
    environment = {**os.environ, "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "timeout", ""
    if process.returncode not in (0, 1, 2):  # 2: the mutant cannot even be imported
        raise SystemExit(f"pytest could not run {' '.join(files)}:\n{output[-2000:]}")
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return ("passed", "") if process.returncode == 0 else ("failed", " ".join(failed[:1])[:160] or output[-160:])


def judge(mutant: Mutant, folder: Path, source: Path, limit: float, *, known: bool, wide: bool) -> dict[str, object]:
    """Change the copy, run the tests, change it back; one `known` to survive its own tests meets the wider set only."""
    target, whole = folder / "olsen" / mutant.path, (source / mutant.path).read_text()
    began = time.perf_counter()
    target.write_text(whole[: mutant.start] + mutant.after + whole[mutant.stop :])
    try:
        outcome, test = ("passed", "") if known else run_tests(folder, tests_of(mutant.path, False), False, limit)
        if wide and outcome == "passed":
            outcome, test = run_tests(folder, tests_of(mutant.path, True), True, 3 * limit)
    finally:
        target.write_text(whole)
    verdict = "survived" if outcome == "passed" else "killed"
    return {
        **asdict(mutant),
        "verdict": verdict,
        "by": test or outcome,
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> int:
    """Draw, judge, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=240, help="seconds of the first tests; what takes longer is killed"
    )
    parser.add_argument("--narrow", action="store_true", help="leave out the wider set")
    parser.add_argument("--again", type=Path, help="results of an earlier run: only its survivors")
    parser.add_argument("--out", type=Path, help="file of results, one JSON object a line")
    given = parser.parse_args()
    source = ROOT / "src" / "olsen"
    places = all_mutants(source)
    drawn = random.Random(given.seed).sample(places, min(given.mutants, len(places)))
    if given.again is not None:
        kept = [json.loads(line) for line in given.again.read_text().splitlines()]
        fields = list(Mutant.__dataclass_fields__)
        drawn = [Mutant(**{name: r[name] for name in fields}) for r in kept if r["verdict"] == "survived"]
    print(f"{len(drawn)} of {len(places)} places, seed {given.seed}", flush=True)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(source, folder / "olsen")
        for number, mutant in enumerate(drawn, 1):
            result = judge(mutant, folder, source, given.limit, known=given.again is not None, wide=not given.narrow)
            counts[mutant.path.split("/")[0], str(result["verdict"])] += 1
            shown = f"{mutant.path}:{mutant.line} {mutant.kind}: {mutant.before!r} -> {mutant.after!r}"
            print(f"{number} {result['verdict']} {result['seconds']} s {shown} [{result['by']}]", flush=True)
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
