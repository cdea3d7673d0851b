"""A new installation: the first fit is as ready as the next, and every requirement has a lowest
version.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import olsen

ROOT = Path(olsen.__file__).parents[2]
from_source = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="not installed from its source folder"
)


def test_nothing_is_compiled_or_written_by_a_fit(tmp_path):
    """In a process whose caches are empty, and which finds no compiler."""
    code = """
import sys
from sklearn.datasets import make_regression
from olsen import AdaptiveOLSEnsembleRegressor
AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0).fit(*make_regression(60, 20, random_state=0))
print(sorted({"numba", "llvmlite", "cffi", "setuptools", "distutils"} & set(sys.modules)))
"""
    environment = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert not list(tmp_path.iterdir())


def test_every_public_name_imports_without_the_extras():
    """TableEncoder, which needs pyarrow, asks for it when it is fitted."""
    code = """
import sys
extras = ["cyclopts", "dask", "distributed", "matplotlib", "openpyxl", "pyarrow", "skl2onnx", "skops"]
sys.modules.update(dict.fromkeys(extras))
from olsen import *
try:
    TableEncoder().fit([[1.0], [2.0]])
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'olsen[parquet]'" in done.stdout, done.stderr


@from_source
def test_every_requirement_has_a_lowest_version():
    script = ROOT / "tests" / "dist" / "lowest.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    pins = dict(line.split("==") for line in done.stdout.splitlines())
    assert {"numpy", "scipy", "scikit-learn", "cyclopts", "matplotlib", "dask"} <= set(pins)
    assert all(re.fullmatch(r"[\d.]+", version) for version in pins.values())


@from_source
def test_version_and_bounds_are_the_same_wherever_they_stand():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe, citation = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("conda/recipe.yaml", "CITATION.cff")
    )
    assert project["version"] == olsen.__version__
    assert (
        f'version: "{olsen.__version__}"' in recipe
        and f"version: {olsen.__version__}\n" in citation
    )
    extras = project["optional-dependencies"]
    for requirement in [*project["dependencies"], *extras["parquet"], *extras["cli"]]:
        assert (
            requirement.startswith("olsen[") or f"- {requirement.replace('>=', ' >=')}\n" in recipe
        ), f"conda/recipe.yaml lacks {requirement}"


@from_source
def test_hooks_have_the_versions_of_make():
    """A file that `make lint` and `make check-workflows` accept passes the hooks of a commit, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    pins = [
        *project["project"]["optional-dependencies"]["test"],
        *project["dependency-groups"]["checks"],
    ]
    for pin in pins:
        tool, _, version = pin.partition("==")
        if tool in ("ruff", "mypy", "codespell", "zizmor"):
            assert f"rev: v{version} # the version in pyproject.toml" in hooks, pin
