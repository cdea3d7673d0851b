"""scikit-learn's own tests of linear regression, ridge and bagging with olsen swapped in: what passes, and what not.

``python tests/peers/run.py [--out peers.md]`` reads the test files from the installed scikit-learn; nothing is copied.
It ends with 1 if a test fails that is not listed in ``not_applicable.py``, or if that list is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import not_applicable
import sklearn

HERE = Path(__file__).parent
ADAPTED = "not applicable: "  # how adapters.py begins the reasons of its skips
UNSAID = "scikit-learn skips this combination itself, without a reason"


@dataclass(frozen=True)
class Suite:
    """One test file, and how olsen stands in."""

    name: str
    module: str
    listed: dict[str, str]
    options: tuple[str, ...] = ()
    members: int = 1


SUITES = [
    Suite("linear regression", "sklearn.linear_model.tests.test_base", not_applicable.LINEAR_REGRESSION),
    Suite(
        "linear regression, mean of 3 equal members",
        "sklearn.linear_model.tests.test_base",
        not_applicable.LINEAR_REGRESSION,
        members=3,
    ),
    Suite("ridge, as an augmented system", "sklearn.linear_model.tests.test_ridge", not_applicable.RIDGE),
    Suite("bagging", "sklearn.ensemble.tests.test_bagging", not_applicable.BAGGING, ("--peers-members",)),
]


@dataclass
class Verdict:
    """What became of the tests of one suite."""

    passed: int = 0
    surpassed: int = 0  # of the passed, those that scikit-learn marks as expected failures of its own
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def results_of(suite: Suite, folder: Path) -> list[dict[str, object]]:
    """Run one test file in a process of its own, because names are swapped before anything imports them."""
    results = folder / "results.json"
    empty = folder / "pytest.ini"  # neither our own settings nor anybody else's
    empty.write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-c", str(empty), "--rootdir", str(folder)]
    command += ["-q", "--no-header", "--tb=short", "-W", "ignore", "-p", "no:cacheprovider", "-p", "plugin"]
    command += ["--peers-results", str(results), *suite.options, "--pyargs", suite.module]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OLSEN_PEERS_MEMBERS": str(suite.members)}
    environment["SCIPY_ARRAY_API"] = "1"  # without it scikit-learn skips its tests on arrays of other libraries
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if not results.exists() or done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {suite.module}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    found: list[dict[str, object]] = json.loads(results.read_text())
    results.unlink()
    return found


def judge(suite: Suite, results: list[dict[str, object]]) -> Verdict:
    """Sort every test into passed, not applicable by reason, or wrong."""
    verdict, unmatched = Verdict(), set(suite.listed)
    for result in results:
        test, outcome, why = str(result["test"]), result["outcome"], str(result["why"]).removeprefix("Skipped: ")
        entries = [pattern for pattern in suite.listed if re.fullmatch(pattern, test)]
        unmatched -= set(entries)
        ours = outcome == "passed" and bool(result["fits"])
        if entries and ours:
            verdict.wrong.append(f"{test}: listed as not applicable, but passes")
        elif entries:
            verdict.reasons[suite.listed[entries[0]]] += 1
        elif ours:
            verdict.passed += 1
            verdict.surpassed += bool(result["expected_to_fail"])
        elif outcome == "skipped":
            verdict.reasons[_reason_of_skip(why)] += 1
        elif outcome == "xfailed":
            verdict.reasons[f"scikit-learn expects its own to fail, and stops there: {why.rstrip('.')}"] += 1
        elif outcome == "passed":
            verdict.wrong.append(f"{test}: passes without us, and is not listed")
        else:
            verdict.wrong.append(f"{test}: {why}")
    verdict.wrong += [f"{pattern}: listed, but there is no such test" for pattern in sorted(unmatched)]
    return verdict


def _reason_of_skip(why: str) -> str:
    if why.startswith(ADAPTED):
        return f"asks for what olsen does not have: {why.removeprefix(ADAPTED)}"
    return UNSAID if why in ("", "Skipped") else f"scikit-learn skips it itself: {why}"


def report(verdicts: dict[str, Verdict]) -> str:
    """Both tables in Markdown: counts, then reasons."""
    lines = [f"scikit-learn {sklearn.__version__}, its own tests with olsen swapped in.", ""]
    lines += ["| tests | passed | failed | not applicable |", "|---|---|---|---|"]
    for name, verdict in verdicts.items():
        more = f" ({verdict.surpassed} of them marked as failing there)" if verdict.surpassed else ""
        lines.append(f"| {name} | {verdict.passed}{more} | {len(verdict.wrong)} | {verdict.reasons.total()} |")
    lines += ["", "| tests | not applicable | reason |", "|---|---|---|"]
    for name, verdict in verdicts.items():
        lines += [f"| {name} | {count} | {reason} |" for reason, count in verdict.reasons.most_common()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all suites; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    out = parser.parse_args().out
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        for suite in SUITES:
            verdicts[suite.name] = judge(suite, results_of(suite, Path(folder)))
    text = report(verdicts)
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text)
    wrong = [f"{name}: {line}" for name, verdict in verdicts.items() for line in verdict.wrong]
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
