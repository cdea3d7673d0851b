"""Model files: the names and versions in the file, and the attributes that are loaded."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import olsen as package

pytest.importorskip("skops")
TABLE = Path(__file__).parents[1] / "models" / "table.csv"


@pytest.fixture
def schema(olsen, tmp_path):
    """The description of a model of a table with numbers and texts."""
    assert olsen("fit", TABLE, target="yield", out=tmp_path / "new.skops")[0] == 0
    return zipfile.ZipFile(tmp_path / "new.skops").read("schema.json").decode()


def test_a_file_names_public_classes_and_versions(schema):
    """Files open after modules have moved; an older version names the version to install."""
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


def test_loaded_models_keep_curves_weights_and_members(tmp_path):
    """Curve, weights and members come back with the file, through scikit-learn's own attributes."""
    import skops.io

    X = np.random.default_rng(0).standard_normal((40, 6))
    trusted = ["olsen.OLSEnsembleRegressorCV", "olsen.AdaptiveOLSEnsembleRegressor"]
    sizes = package.OLSEnsembleRegressorCV(20, random_state=0).fit(X, X[:, 0])
    schemes = package.AdaptiveOLSEnsembleRegressor(n_estimators=20, random_state=0).fit(X, X[:, 0])
    for model in (sizes, schemes):
        loaded = skops.io.loads(skops.io.dumps(model), trusted=trusted)
        assert_array_equal(loaded.feature_subsets_.indices, model.feature_subsets_.indices)
        if model is sizes:
            assert_array_equal(loaded.risk_curve(7), model.risk_curve(7))
        else:
            assert loaded.scheme_weights_ == model.scheme_weights_
