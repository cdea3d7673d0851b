"""Model files: what they name, and what of a model comes back."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import olsen as package

pytest.importorskip("skops")
TABLE = Path(__file__).parents[1] / "models" / "table.csv"


@pytest.fixture
def schema(olsen, tmp_path):
    """The description of a model of a table with numbers and texts."""
    assert olsen("fit", TABLE, "--target", "yield", "--out", tmp_path / "new.skops")[0] == 0
    return zipfile.ZipFile(tmp_path / "new.skops").read("schema.json").decode()


def test_a_file_names_public_classes_and_versions(schema):
    """Whatever moves inside the package, files open; an older version tells its user what to
    install.
    """
    assert '"__module__": "olsen"' in schema and "olsen." not in schema
    assert json.loads(json.loads(schema)["content"]["olsen"]["content"]) == package.__version__


def test_another_version_of_scikit_learn_is_a_warning(schema, tmp_path):
    with zipfile.ZipFile(tmp_path / "new.skops") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(schema)
    node = described["content"]["sklearn"]
    node["content"] = '"1.2.3"'
    del node["__id__"]  # the text was that of every transformer
    with zipfile.ZipFile(tmp_path / "old.skops", "w") as archive:
        for name, content in {**parts, "schema.json": json.dumps(described)}.items():
            archive.writestr(name, content)
    with pytest.warns(UserWarning, match=r"1\.2\.3"):
        package.load(tmp_path / "old.skops")


def test_an_opened_model_tells_what_it_knew(tmp_path):
    """Curve, weights and members come back with the file, through scikit-learn's own attributes."""
    import skops.io

    X = np.random.default_rng(0).standard_normal((40, 6))
    trusted = ["olsen.OLSEnsembleRegressorCV", "olsen.AdaptiveOLSEnsembleRegressor"]
    sizes = package.OLSEnsembleRegressorCV(20, random_state=0).fit(X, X[:, 0])
    schemes = package.AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0).fit(X, X[:, 0])
    for model in (sizes, schemes):
        again = skops.io.loads(skops.io.dumps(model), trusted=trusted)
        np.testing.assert_array_equal(
            again.feature_subsets_.indices, model.feature_subsets_.indices
        )
        if model is sizes:
            np.testing.assert_array_equal(again.risk_curve(7), model.risk_curve(7))
        else:
            assert again.scheme_weights_ == model.scheme_weights_
