"""A short run of the edited model files, and the oracle's own test; the long one is ``make
fuzz-models``.
"""

from pathlib import Path

import pytest

for module in ("cyclopts", "pandas", "pyarrow", "skops"):
    pytest.importorskip(module)

from . import model_files  # noqa: E402

needs_linux = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux"
)


@needs_linux
def test_edited_files_are_refused_or_load_as_what_they_hold():
    results = list(model_files.run(cases=60, seed=20200608))
    assert [result for result in results if result["wrong"]] == []
    outcomes = [result["outcome"] for result in results]
    assert (
        outcomes.count("refused") > 20 and outcomes.count("loaded") > 5
    )  # else the edits would say nothing


def test_the_oracle_finds_a_number_that_is_not_in_the_file(tmp_path):
    import olsen

    model_files.write_genuine(tmp_path)
    for name, change in {
        "tuned": lambda model: model.coef_.__setitem__(0, 1.0),
        "members": lambda model: setattr(model, "coef_", model.coef_.astype("f4")),
        "sparse": lambda model: model._fitted.data.rows.X.data.__setitem__(0, 1.0),
        "pipeline": lambda model: setattr(model[0], "sparse_threshold", 0.31),
    }.items():
        path = tmp_path / f"{name}.skops"
        model = olsen.load(path)
        assert model_files.what_differs(path.read_bytes(), model) is None
        change(model)
        assert model_files.what_differs(path.read_bytes(), model) is not None, name
