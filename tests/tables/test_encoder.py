"""TableEncoder: what the command knows about tables, as a transformer."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import olsen as package
from loops import case

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

from olsen import AdaptiveOLSEnsembleRegressor, TableEncoder  # noqa: E402

MIXED = {
    "price": ["$1,234.50", "$5", "($12.25)"],
    "share": ["5%", "12.5%", "0%"],
    "day": ["31.12.2024", "01.02.2025", "03.02.2025"],
    "kind": ["b", "a", "b"],
    "size": [1, 2, None],
}
ENCODED = [
    [1234.5, 5, 20088, 0, 1, 1],
    [5, 12.5, 20120, 1, 0, 2],
    [-12.25, 0, 20122, 0, 1, 1.5],
]
NAMES = ["price", "share", "day", "kind_a", "kind_b", "size"]


def test_it_is_a_transformer_of_scikit_learn():
    """All checks of scikit-learn apply and pass, also where missing values are filled."""
    for encoder in (TableEncoder(), TableEncoder(missing="mean")):
        check_estimator(encoder, on_skip=None)


def test_frames_of_every_library_are_encoded_alike():
    frames = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
    for library, frame_of in frames.items():
        with case(library):
            frame = frame_of(MIXED)
            encoder = TableEncoder(missing="mean").fit(frame)
            assert_array_equal(encoder.transform(frame), ENCODED)
            assert encoder.get_feature_names_out().tolist() == NAMES
            assert encoder.feature_names_in_.tolist() == list(MIXED)
            if library == "pyarrow":
                continue
            output = encoder.set_output(transform=library).transform(frame)
            assert list(output.columns) == NAMES and isinstance(output, frame_of)
    shuffled = pd.DataFrame(MIXED)[[*reversed(MIXED)]].assign(more=1)
    assert_array_equal(encoder.transform(shuffled), ENCODED)


def test_kinds_of_pandas_columns():
    """Columns of dates, of categories, of Booleans and of mixed objects are read as what they are."""
    frame = pd.DataFrame(
        {
            "at": pd.to_datetime(["2024-01-01 12:00", "2024-01-02"], format="ISO8601"),
            "date": [datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)],
            "level": pd.Categorical(["x", "y"]),
            "flag": [True, False],
            "code": ["7", 8],
        }
    )
    expected = [[19723.5, 19723, 1, 0, 1, 7], [19724, 19725, 0, 1, 0, 8]]
    assert_array_equal(TableEncoder().fit_transform(frame), expected)


def test_an_error_has_all_problems_and_an_encoder_that_works():
    frame = pd.DataFrame(
        {
            "day": ["03/04/2024", "05/06/2024", "01/02/2024"] * 10,
            "key": [f"k{i}" for i in range(30)],
            "dose": ["1.5", "n.d.", "2"] * 10,
        }
    )
    with pytest.raises(ValueError, match=r"'day' holds.*'key' holds.*'dose' holds") as caught:
        TableEncoder().fit(frame)
    assert "--" not in str(caught.value), "no options of the command"
    encoder = eval(str(caught.value).partition("can be read with ")[2].rstrip("."))
    encoded = encoder.fit_transform(frame)
    assert encoder.get_feature_names_out().tolist() == ["day", "dose", "dose is missing"]
    assert_array_equal(encoded[:3, 0], [19816, 19879, 19754])  # the month is the second
    assert_array_equal(encoded[:3, 1:], [[1.5, 0], [1.75, 1], [2, 0]])
    month_first = clone(encoder).set_params(dates={"day": "%m/%d/%Y"}).fit_transform(frame)
    assert_array_equal(month_first[:3, 0], [19786, 19849, 19724])


def test_new_categories_are_refused_or_none_of_the_known():
    train = pd.DataFrame({"kind": ["a", "b"] * 3})
    new = pd.DataFrame({"kind": ["c", "a"]})
    with pytest.raises(ValueError, match=r"'kind' holds 'c'.*unknown='ignore'"):
        TableEncoder().fit(train).transform(new)
    encoder = TableEncoder(unknown="ignore").fit(train)
    assert_array_equal(encoder.transform(new), [[0, 0], [1, 0]])
    with pytest.raises(ValueError, match="lacks 1 column of the table in fit: 'kind'"):
        encoder.transform(new.rename(columns=str.upper))


def test_wrong_parameters_are_named():
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    for parameters, words in (
        ({"missing": "drop"}, "missing='drop'"),
        ({"decimal": ";"}, "decimal=';'"),
        ({"dates": "a"}, "dates='a' must be a list"),
        ({"drop": ["b"]}, "no column 'b'"),
        ({"ordinal": {"a": ["x"]}}, "two different levels"),
    ):
        with case(parameters), pytest.raises(ValueError, match=words):
            TableEncoder(**parameters).fit(frame)


def test_pipelines_have_intervals_summaries_and_files(tmp_path):
    rng = np.random.default_rng(0)
    n = 80
    kinds = rng.choice(["a", "b", "c"], n)
    frame = pd.DataFrame({"area": rng.normal(size=n), "kind": kinds})
    frame.loc[:14, "area"] = np.nan
    y = np.nan_to_num(frame["area"]) + 3 * (kinds == "c") + 0.1 * rng.normal(size=n)
    model = make_pipeline(
        TableEncoder(missing="mean"), AdaptiveOLSEnsembleRegressor(random_state=0)
    ).fit(frame, y)
    assert package.predict_interval(model, frame).shape == (n, 2)
    summary = package.summary(model)
    assert summary.effects["column"].tolist() == ["kind", "area"], "indicators have no line"
    pytest.importorskip("skops")
    package.save(model, tmp_path / "m.skops")
    read = package.load(tmp_path / "m.skops")
    assert_array_equal(read.predict(frame), model.predict(frame))
    for name, value in (("width", "levels"), ("kind", "kind"), ("fill", "fill")):
        damaged = clone(model[0]).fit(frame)
        records = json.loads(json.dumps(damaged.columns_))
        records[1][value] = {"levels": ["a"], "kind": "code", "fill": "z"}[value]
        damaged.columns_ = records
        pipeline = make_pipeline(damaged, model[-1])
        with case(name), pytest.raises(ValueError, match="column"):
            package.save(pipeline, tmp_path / "damaged.skops")
            package.load(tmp_path / "damaged.skops")
