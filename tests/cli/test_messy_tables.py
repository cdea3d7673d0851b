"""Twelve messy tables go from file to model in at most two commands, and no cell is read wrongly.

The second command is copied from the message of the first. Every parsed number is compared with the
one from which the cell was written.
"""

import io
import shlex
from datetime import date, timedelta

import numpy as np
import pytest
from numpy.testing import assert_allclose

from olsen.cli import table_models

pytest.importorskip("pyarrow")
pytest.importorskip("cyclopts")

N = 40
RNG = np.random.default_rng(0)
U = np.round(RNG.uniform(1000, 90_000, N), 2)  # money
V = np.round(RNG.uniform(1, 99, N), 1)
W = RNG.integers(1, 60, N).astype(float)
NOISE = RNG.standard_normal(N)
Y = np.round(U / 1000 + V + NOISE, 2)
KIND = RNG.choice(["blue", "green", "red"], N)
DAYS = [date(2024, 1, 3) + timedelta(days=9 * i) for i in range(N)]
LATER = [day + timedelta(days=int(w)) for day, w in zip(DAYS, W, strict=True)]
GAPS = np.where(np.arange(N) % 13 == 5, np.nan, V)  # fewer than are marked


def german(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def swiss(value):
    return f"{value:,.2f}".replace(",", "'")


def ledger(value):
    return f"({value:,.2f})" if value % 2 < 1 else f"{value:,.2f}"


def table(separator, *titles, encoding="utf-8", **columns):
    """Bytes of a text file; cells are written as they are, quoted where they hold the separator."""
    rows = [columns, *zip(*columns.values(), strict=True)]
    cells = [[str(cell) for cell in row] for row in rows]
    lines = [separator.join(f'"{c}"' if separator in c else c for c in row) for row in cells]
    return "\n".join([*titles, *lines, ""]).encode(encoding)


def workbook(*rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def days(dates):
    return np.array([(day - date(1970, 1, 1)).days for day in dates], dtype=float)


def levels(name, values):
    return {f"{name}_{level}": values == level for level in sorted(set(values))}


def in_format(form, dates):
    return [day.strftime(form) for day in dates]


def gap(values, mark="", write=str):
    return [mark if np.isnan(value) else write(value) for value in values]


SIGNED = np.where(U % 2 < 1, -U, U)
TEMPERATURES = np.where(np.arange(N) % 11 == 3, np.nan, V)
MOMENTS = [f"{day.isoformat()} {7 + i % 12:02d}:30:00" for i, day in enumerate(DAYS)]
AT = days(DAYS) + (7 + np.arange(N) % 12 + 0.5) / 24
ROUND = np.round(U, -3)
NO_TARGET = np.arange(N) % 17 == 4

# name of the file -> content, target, intended numbers by encoded column, intended target
TABLES = {
    "bank statement.csv": (
        lambda: table(
            ";",
            "Konto: DE00 1234",
            "Zeitraum: 2024",
            "",
            Buchung=in_format("%d.%m.%Y", DAYS),
            Zweck=[f"Zahlung {i}" for i in range(N)],
            Betrag=[f"{german(v)} EUR" for v in SIGNED],
            Art=KIND,
            Saldo=[f"{german(v)} EUR" for v in Y],
        ),
        "Saldo",
        {"Buchung": days(DAYS), "Betrag": SIGNED, **levels("Art", KIND)},
        Y,
    ),
    "orders.csv": (
        lambda: table(
            ",",
            **{
                "Order ID": [f"CA-{i:04d}" for i in range(N)],
                # the day is never above 12, and the other column of dates tells the order
                "Order Date": [f"{1 + i % 12:02d}/{1 + i % 9:02d}/2024" for i in range(N)],
                "Ship Date": in_format("%m/%d/%Y", LATER),
                "Discount": [f"{w:g}%" for w in W],
                "Weight": gap(GAPS),
                "Sales": [f"${u:,.2f}" for u in U],
            },
        ),
        "Sales",
        {
            "Order Date": days([date(2024, 1 + i % 12, 1 + i % 9) for i in range(N)]),
            "Ship Date": days(LATER),
            "Discount": W,
            "Weight": GAPS,
        },
        U,
    ),
    "survey.csv": (
        lambda: table(
            ",",
            Respondent=[f"r{i}" for i in range(N)],
            Age=gap(GAPS, "refused"),
            Mood=KIND,
            Hours=gap(TEMPERATURES, "N/A"),
            Score=Y,
        ),
        "Score",
        {"Age": GAPS, **levels("Mood", KIND), "Hours": TEMPERATURES},
        Y,
    ),
    "sensor log.csv": (
        lambda: table(
            ",",
            timestamp=MOMENTS,
            temperature=gap(TEMPERATURES, "ERR"),
            state=KIND,
            power=Y,
        ),
        "power",
        {"timestamp": AT, "temperature": TEMPERATURES, **levels("state", KIND)},
        Y,
    ),
    "clinical sheet.tsv": (
        lambda: table(
            "\t",
            patient=[f"P{i:03d}" for i in range(N)],
            visit=in_format("%d-%b-%Y", DAYS),
            crp=gap(GAPS, "<LOD"),
            sex=np.where(KIND == "red", "F", "M"),
            outcome=np.where(NO_TARGET, "not done", Y.astype(str)),
        ),
        "outcome",
        {
            "visit": days(DAYS),
            "crp": GAPS,
            **levels("sex", np.where(KIND == "red", "F", "M")),
        },
        np.where(NO_TARGET, np.nan, Y),
    ),
    "europe.txt": (
        lambda: table(
            "\t",
            encoding="cp1252",
            **{
                "Größe": [german(u) for u in U],
                "Länge": [f"{v}".replace(".", ",") for v in V],
                "Ertrag": [f"{y}".replace(".", ",") for y in Y],
            },
        ),
        "Ertrag",
        {"Größe": U, "Länge": V},
        Y,
    ),
    "america.csv": (
        lambda: table(
            ",",
            Revenue=[ledger(u) for u in U],
            Due=in_format("%B %d, %Y", DAYS),
            Units=[f"{int(1000 * w):,}" for w in W],
            Profit=[f"${y:,.2f}" for y in Y],
        ),
        "Profit",
        {"Revenue": SIGNED, "Due": days(DAYS), "Units": 1000 * W},
        Y,
    ),
    "titled.xlsx": (
        lambda: workbook(
            ["Quarterly figures"],
            [],
            ["Region", "Closed", "Share", "Volume", "Result"],
            *(
                [kind, day, f"{w:g} %", None if np.isnan(v) else v, y]
                for kind, day, w, v, y in zip(KIND, DAYS, W, GAPS, Y, strict=True)
            ),
        ),
        "Result",
        {**levels("Region", KIND), "Closed": days(DAYS), "Share": W, "Volume": GAPS},
        Y,
    ),
    "swiss.csv": (
        lambda: table(
            ";",
            Datum=in_format("%d.%m.%y", DAYS),
            Preis=[f"CHF {swiss(u)}" for u in U],
            Menge=V,
            Summe=[f"{swiss(y)}" for y in Y],
        ),
        "Summe",
        {"Datum": days(DAYS), "Preis": U, "Menge": V},
        Y,
    ),
    "inventory.csv": (
        lambda: table(
            ",",
            sku=[f"0{1000 + 7 * i}-X" for i in range(N)],
            checked=in_format("%m/%d/%y", DAYS),
            remarks=[""] * N,
            stock=gap(GAPS, "NULL"),
            colour=KIND,
            value=Y,
        ),
        "value",
        {"checked": days(DAYS), "stock": GAPS, **levels("colour", KIND)},
        Y,
    ),
    "houses.csv": (
        lambda: table(
            ";",
            Preis=[f"€ {german(value)[:-3]}" for value in ROUND],
            Zimmer=W.astype(int),
            Lage=KIND,
            Index=[f"{y:.2f}".replace(".", ",") for y in Y],
        ),
        "Index",
        {"Preis": ROUND, "Zimmer": W, **levels("Lage", KIND)},
        Y,
    ),
    "visits.txt": (
        lambda: table(
            "\t",
            encoding="utf-16",
            Tag=in_format("%Y/%m/%d", DAYS),
            Besuche=[f"{int(1000 * w):,}".replace(",", "\u00a0") for w in W],
            Absprung=[f"{v:.1f} %".replace(".", ",") for v in V],
            Umsatz=[f"{german(u)} €" for u in U],
            Wert=[f"{y:.2f}".replace(".", ",") for y in Y],
        ),
        "Wert",
        {"Tag": days(DAYS), "Besuche": 1000 * W, "Absprung": V, "Umsatz": U},
        Y,
    ),
}


@pytest.fixture
def encoded(monkeypatch):
    """The last table that a command encoded."""
    tables = []
    read = table_models.training_data

    def training_data(*arguments):
        tables.append(read(*arguments))
        return tables[-1]

    monkeypatch.setattr(table_models, "training_data", training_data)
    return tables


@pytest.mark.parametrize("name", TABLES)
def test_two_commands_lead_from_a_messy_table_to_a_model(name, olsen, encoded, tmp_path):
    write, target, intended, intended_target = TABLES[name]
    path = tmp_path / name
    path.write_bytes(write())
    fit = ("fit", path, "--target", target, "--members", 3, "--jobs", 1)
    code, _, first_message = olsen(*fit)
    message = first_message
    if code:
        command = first_message.splitlines()[-1]
        assert command.startswith("    olsen fit "), first_message
        code, _, message = olsen(*shlex.split(command)[1:])
    assert code == 0, first_message + message
    data = encoded[-1]
    has_target = ~np.isnan(intended_target)
    assert_allclose(data.y, intended_target[has_target], rtol=1e-12)
    assert data.encoding.names == list(intended)
    for encoded_name, values in zip(data.encoding.names, data.X.T, strict=True):
        column = np.asarray(intended[encoded_name], dtype=float)[has_target]
        filled = np.where(np.isnan(column), np.nanmean(column), column)
        assert_allclose(values, filled, rtol=1e-12, err_msg=encoded_name)
