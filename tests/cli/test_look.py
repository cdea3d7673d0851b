"""olsen look says what a table is and which command works; cautions are few, and none on clean tables."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from loops import case
from olsen.cli import look

pa = pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")
pq = pytest.importorskip("pyarrow.parquet")

from olsen._tables.columns import Column  # noqa: E402
from olsen.cli.cautions import cautions, copies  # noqa: E402
from olsen.datasets import load_soil_carbon  # noqa: E402

N = 60
RNG = np.random.default_rng(0)
A = RNG.standard_normal(N)
Y = A + RNG.standard_normal(N)


def orders(path):
    lines = ["id,day,weight,price,kind,amount"]
    for i, (a, y) in enumerate(zip(A, Y, strict=True)):
        day = f"{1 + i % 12:02d}/{1 + i * 7 % 12:02d}/2024"
        weight = "" if i == 7 else f"{a:.3f}"
        lines.append(f"K{i},{day},{weight},${10 + a:.2f},{'uvw'[i % 3]},{y:.3f}")
    path.write_text("\n".join(lines))
    return path


def test_look_says_what_columns_are_and_what_works(olsen, tmp_path):
    path = orders(tmp_path / "orders.csv")
    code, out, err = olsen("look", path, target="amount", json=True)
    assert (code, err) == (0, "")
    found = json.loads(out)
    columns = {column["name"]: column for column in found["columns"]}
    assert found["data"] == {"name": "orders.csv", "rows": N, "rows_read": N}
    kinds = {name: column["type"] for name, column in columns.items()}
    assert kinds == {
        "id": "string",
        "day": "date",
        "weight": "number",
        "price": "number",
        "kind": "category",
        "amount": "number",
    }
    assert columns["id"]["becomes"] == "left out" and columns["id"]["distinct"] == N
    assert columns["price"]["unit"] == "$" and columns["weight"]["missing"] == 1
    assert columns["kind"]["becomes"] == "3 columns of 0 and 1"
    assert (
        columns["kind"]["examples"] == ["u", "v", "w"] and columns["amount"]["becomes"] == "target"
    )
    assert columns["amount"]["range"] == pytest.approx([Y.min(), Y.max()], abs=1e-3)
    assert columns["day"]["range"] == ["2024-01-01", "2024-12-06"]
    assert len(found["problems"]) == 3 and "format of dates" in found["check"]
    assert olsen(*shlex.split(found["command"])[1:], "--members", 3)[0] == 0
    text = olsen("look", path)[1]
    assert "3 problems" in text and "--target COLUMN" in text and "$" in text
    assert "\n  id " not in text and max(map(len, text.splitlines()[:9])) < 110


def test_look_at_a_clean_table_has_the_plain_command(olsen, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": A, "y": Y}), path)
    code, out, _ = olsen("look", path, target="y")
    assert code == 0 and "problem" not in out and "caution" not in out
    assert out.rstrip().endswith(f"olsen fit {path} --target=y".replace("=", " "))
    assert olsen("look", path, target="z")[0] == 2


def test_rows_far_down_change_the_judgement(olsen, tmp_path, monkeypatch):
    """Of a large table the first rows are judged; rows below that are different are seen."""
    monkeypatch.setattr(look, "JUDGED_ROWS", 20)
    for name, value in {"gap": "", "text": "n.d.", "level": "x"}.items():
        kinds = ["u" if name == "level" else str(i) for i in range(N)]
        kinds[-1] = value
        lines = ["a,k,y", *(f"{a},{k},{y}" for a, k, y in zip(A, kinds, Y, strict=True))]
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join(lines))
        found = json.loads(olsen("look", path, target="y", json=True)[1])
        with case(name, found):
            assert bool(found["problems"]) == (name != "level")
            assert olsen(*shlex.split(found["command"])[1:], "--members", 3)[0] == 0


NUMBER = Column(name="a")
LEVELS = tuple(f"l{i}" for i in range(20))
ID = np.sort(RNG.permutation(10 * N)[:N]).astype(float)
SHUFFLED_ID = RNG.permutation(ID)
ONE_HOT = np.eye(20)[np.minimum(np.arange(N), 19)]
CAUTIONS = {  # words of the caution -> column, its encoded cells, target
    "alone explains 100.000%": (NUMBER, 2 * Y + 1, Y),
    "constant": (NUMBER, np.ones(N), Y),
    "in the order of the rows": (NUMBER, ID, Y),
    "--id 'customer_id'": (Column(name="customer_id"), SHUFFLED_ID, Y),
    "the target of one row is 999": (NUMBER, A, np.append(Y[:-1], 999)),
    "19 of 20 categories": (Column(name="k", kind="category", levels=LEVELS), ONE_HOT, Y),
    "order of 'day'": (Column(name="day", kind="date", form="ymd"), np.arange(N) + 0.5, Y),
}


@pytest.mark.parametrize("words", CAUTIONS)
def test_a_caution_on_a_table_made_for_it(words):
    column, values, y = CAUTIONS[words]
    encoded = values.reshape(N, -1)
    (caution,) = cautions([column], encoded, y)
    assert words in caution
    assert not cautions([column], encoded[:10], y[:10]), "few rows tell nothing"


def test_a_note_on_columns_that_repeat_others():
    """Numbers in another unit, and categories under another name."""
    levels = ("a", "b", "c")
    columns = [
        Column(name="size"),
        Column(name="kind", kind="category", levels=levels),
        Column(name="group", kind="category", levels=("x", "y", "z")),
        Column(name="size in inches"),
        Column(name="other"),
    ]
    coded = np.eye(3)[RNG.integers(0, 3, N)]
    numbers = RNG.standard_normal(N)
    encoded = np.column_stack([numbers, coded, coded, 3 - 2.54 * numbers, A])
    (note,) = copies(columns, encoded)
    assert (
        "'group' repeats 'kind', and 1 more column repeats others" in note
        and "--drop 'group'" in note
    )
    assert not copies(columns[:2], encoded[:, :4]) and not cautions(columns, encoded, Y)


def test_no_caution_on_ordinary_tables():
    """Spectra, clinical measures, heavy tails, years, counts, and categories of every frequency."""
    soil = load_soil_carbon()
    tables = [(soil.data, soil.target), load_diabetes(return_X_y=True)]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(20, 300))
        counts = rng.poisson(5, n).astype(float)
        years = rng.integers(1950, 2024, n).astype(float)
        skewed = np.exp(1.5 * rng.standard_normal(n))
        populations = np.round(1e5 * rng.random(n))
        X = np.column_stack([counts, years, skewed, populations])
        tables.append((X, skewed + rng.standard_normal(n)))
    for X, y in tables:
        columns = [Column(name=f"x{j}") for j in range(X.shape[1])]
        assert cautions(columns, np.asarray(X, dtype=float), np.asarray(y, dtype=float)) == []


def test_fit_and_compare_have_cautions(olsen_json, tmp_path):
    path = Path(tmp_path / "leak.parquet")
    pq.write_table(pa.table({"a": A, "twice": 2 * Y + 1, "y": Y}), path)
    for command in ("fit", "compare"):
        options = {"members": 3} if command == "fit" else {"folds": 2}
        data = olsen_json(command, path, target="y", **options)["data"]
        (caution,) = data["cautions"]
        assert "'twice' alone explains 100.000%" in caution and "--drop 'twice'" in caution
        assert not data["messages"]
