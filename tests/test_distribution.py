"""What a new installation does first: importing takes no time, and compiling is said to whoever waits for it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import olsen

pty = pytest.importorskip("pty", reason="terminals of Unix")

ROOT = Path(olsen.__file__).parents[2]
FIT = """
import numpy as np
from olsen import OLSEnsembleRegressor

def fit():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 80)), rng.standard_normal(200)
    OLSEnsembleRegressor(3000, max_features=40, random_state=0).fit(X, y)
"""
COMPILED = "import sys; assert 'olsen._members._kernel.principal' in sys.modules"
MESSAGE = "olsen: compiling the kernel once, for several seconds; later runs load it"


def command(code, cache, **variables):
    return [sys.executable, "-c", code], {**os.environ, "NUMBA_CACHE_DIR": str(cache), **variables}


def at_terminal(code, cache, **variables):
    """Run code with a terminal for its error stream: what was shown there."""
    master, slave = pty.openpty()
    arguments, environment = command(code, cache, **variables)
    with subprocess.Popen(arguments, stderr=slave, stdout=subprocess.DEVNULL, env=environment) as process:
        os.close(slave)
        shown = b""
        while True:
            try:
                part = os.read(master, 1024)
            except OSError:  # Linux: the other end is closed
                part = b""
            if not part:
                break
            shown += part
    os.close(master)
    assert process.returncode == 0, shown.decode()
    return shown.decode().replace("\r\n", "\n")


def test_compiling_is_said_once_at_a_terminal_and_not_when_the_kernel_is_loaded(tmp_path):
    code = f"{FIT}\nfit()\n{COMPILED}"
    assert at_terminal(code, tmp_path) == f"{MESSAGE}\n"
    assert list(tmp_path.rglob("*.nbc")), "compiled, and kept where numba was told to"
    assert at_terminal(code, tmp_path) == ""


def test_nothing_is_said_where_nobody_waits_at_a_terminal(tmp_path):
    arguments, environment = command(f"{FIT}\nfit()\n{COMPILED}", tmp_path)
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.rglob("*.nbc"))


def test_workers_of_a_pool_say_nothing(tmp_path):
    """They share the terminal, and there may be many of them."""
    code = f"{FIT}\nimport joblib\njoblib.Parallel(2)(joblib.delayed(fit)() for _ in range(1))"
    assert at_terminal(code, tmp_path) == ""
    assert list(tmp_path.rglob("*.nbc")), "a worker compiled"


def test_without_a_folder_for_compiled_code_fits_work_and_say_what_would_help(tmp_path):
    """As in a container whose user can write neither to the package nor to a home."""
    package, kernel = tmp_path / "olsen", tmp_path / "olsen" / "_members" / "_kernel"
    shutil.copytree(Path(olsen.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    nowhere = kernel / "__pycache__"
    nowhere.write_text("a file, where a folder would have to be")
    nowhere_else = str(nowhere / "folder")
    variables = {"HOME": nowhere_else, "XDG_CACHE_HOME": nowhere_else, "PYTHONPATH": str(tmp_path)}
    shown = at_terminal(f"{FIT}\nfit()\n{COMPILED}", nowhere_else, PYTHONDONTWRITEBYTECODE="1", **variables)
    assert shown.startswith("olsen: compiling the kernel") and "NUMBA_CACHE_DIR" in shown and shown.count("\n") == 1


def test_importing_loads_nothing_that_takes_time():
    """The command answers `--version` before numerical libraries could be loaded."""
    for code in ("import olsen; olsen.__version__", "from olsen.cli import main; main(['--version'])"):
        code += "; import sys; print([m for m in ('numpy', 'scipy', 'sklearn', 'numba') if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "[]", code + done.stdout + done.stderr


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not installed from its source folder")
def test_every_requirement_has_a_lowest_version():
    script = ROOT / "tests" / "dist" / "lowest.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    pins = dict(line.split("==") for line in done.stdout.splitlines())
    assert {"numpy", "scipy", "scikit-learn", "numba", "cyclopts", "matplotlib", "zarr", "dask"} <= set(pins)
    assert all(re.fullmatch(r"[\d.]+", version) for version in pins.values())
