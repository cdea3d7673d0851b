"""Types as users see them: a script of theirs passes mypy --strict against the installed package."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.fixes import parse_version

SCRIPT = Path(__file__).parent / "typing" / "user_script.py"


@pytest.mark.skipif(parse_version(np.__version__) < parse_version("2.2"), reason="there float64 is no float to mypy")
def test_a_users_script_passes_strict_type_checking(tmp_path):
    pytest.importorskip("mypy")
    # neither our settings nor our folder: what a user has is the package, found through its py.typed
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", str(SCRIPT)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert found.returncode == 0, found.stdout + found.stderr
