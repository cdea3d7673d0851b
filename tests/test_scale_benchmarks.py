"""The benchmarks of scale run at toy size, so that they still run when somebody needs them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("script", "arguments", "needs"),
    [
        ("gpu.py", ["--quick", "--device", "cpu", "--repeats", "1", "--no-numpy"], "torch"),
        ("out_of_core.py", ["--rows", "3000", "--columns", "20", "--members", "5", "--repeats", "1"], "numpy"),
    ],
)
def test_script_runs_and_writes_its_results(script, arguments, needs, tmp_path):
    pytest.importorskip(needs)
    folder = ["--folder", str(tmp_path)] if script == "out_of_core.py" else []
    command = [sys.executable, str(BENCHMARKS / script), *arguments, *folder, "--out", str(tmp_path / "out.json")]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads that wait would slow others
    subprocess.run(command, check=True, capture_output=True, timeout=300, env=alone)
    assert json.loads((tmp_path / "out.json").read_text())
