"""Model files of every format so far: whatever changes inside the package, they open and predict as they did."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import olsen as package

pytest.importorskip("skops")
MODELS = Path(__file__).parent / "models"


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.skops")), ids=lambda p: p.stem)
def test_a_file_of_an_earlier_version_predicts_as_it_did(path, olsen, tmp_path):
    code, _, _ = olsen("predict", path, MODELS / "table.csv", "--interval", "0.9", "--out", tmp_path / "found.csv")
    found = np.loadtxt(tmp_path / "found.csv", delimiter=",", skiprows=1)
    assert code == 0
    expected = np.loadtxt(MODELS / f"{path.stem.replace('model', 'predictions')}.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.skops")), ids=lambda p: p.stem)
def test_files_name_public_classes_only(path):
    text = zipfile.ZipFile(path).read("schema.json").decode()
    assert '"__module__": "olsen"' in text and "olsen." not in text


def test_a_new_file_names_public_classes_only(olsen, tmp_path):
    code, _, _ = olsen("fit", MODELS / "table.csv", "--target", "yield", "--out", tmp_path / "new.skops")
    assert code == 0
    test_files_name_public_classes_only(tmp_path / "new.skops")


def test_a_new_file_says_which_version_wrote_it(olsen, tmp_path):
    """An older version that cannot read it tells its user what to install."""
    assert olsen("fit", MODELS / "table.csv", "--target", "yield", "--out", tmp_path / "new.skops")[0] == 0
    schema = json.loads(zipfile.ZipFile(tmp_path / "new.skops").read("schema.json"))
    assert json.loads(schema["content"]["olsen"]["content"]) == package.__version__


def test_models_are_read_without_building_what_skops_would():
    """Nothing but the check of the content decides what is built."""
    code = "import sys; from olsen.cli.models import load; load(sys.argv[1]); print('skops' in sys.modules)"
    path = sorted(MODELS.glob("*.skops"))[0]
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_an_opened_model_tells_what_it_knew(tmp_path):
    """Curve and members come back with the file, through scikit-learn's own attributes."""
    import skops.io

    X = np.random.default_rng(0).standard_normal((40, 6))
    model = package.OLSEnsembleRegressorCV(20, random_state=0).fit(X, X[:, 0])
    again = skops.io.loads(skops.io.dumps(model), trusted=["olsen.OLSEnsembleRegressorCV"])
    np.testing.assert_array_equal(again.risk_curve(7), model.risk_curve(7))
    np.testing.assert_array_equal(again.feature_subsets_.indices, model.feature_subsets_.indices)
