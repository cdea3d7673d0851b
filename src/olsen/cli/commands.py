"""The command line: fit, predict, risk, reproduce.

Exit codes: 0 success; 2 a mistake in the arguments (options, names of columns or figures); 1 any other failure. Errors
are one line on the error stream; results go to standard output, as a table or with ``--json``.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .. import __version__, theory
from . import terminal
from .terminal import UsageError

if TYPE_CHECKING:
    from cyclopts import App

    from .large_tables import ParquetTable
    from .models import SavedModel

__all__ = ["UsageError", "fit", "main", "predict", "reproduce", "risk"]

Array = NDArray[np.float64]

HELP = "Ensembles of ordinary least squares on random submatrices of the data."
INSTALL = "olsen: the command line needs {name}, which is not installed: pip install 'olsen[cli,plot]'"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code.

    Examples
    --------
    >>> from olsen.cli import main
    >>> main(["risk", "--gamma", "2", "--sigma", "1", "--alpha", "2"])
    2
    """
    try:
        from cyclopts import CycloptsError
    except ModuleNotFoundError as error:
        print(INSTALL.format(name=error.name), file=sys.stderr)
        return 1
    try:
        _app()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return 0
    except (CycloptsError, UsageError) as error:
        return _fail(error, 2)
    except ModuleNotFoundError as error:
        print(INSTALL.format(name=error.name), file=sys.stderr)
        return 1
    except BrokenPipeError:  # the program that reads our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    except (ValueError, OSError, MemoryError) as error:
        return _fail(error, 1)


def _fail(error: BaseException | str, code: int) -> int:
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    print(f"olsen: {' '.join(text.split())}", file=sys.stderr)
    return code


def _app() -> App:
    from cyclopts import App, Parameter

    options = Parameter(negative=())  # no --no-json
    app = App(name="olsen", help=HELP, version=__version__, help_format="plaintext", default_parameter=options,
              suppress_keyboard_interrupt=False)  # fmt: skip
    for command in (fit, predict, risk, reproduce):
        app.command(command, help_epilogue=EXAMPLES[command.__name__])
    return app


EXAMPLES = {
    "fit": """Examples:
  olsen fit                                   the embedded data
  olsen fit wine.csv --target quality         tune, compare, print
  olsen fit wine.csv --target quality --out wine.skops --report wine.html
  olsen fit big.parquet --target price --out price.skops    larger than memory""",
    "predict": """Examples:
  olsen predict wine.skops new.csv
  olsen predict wine.skops new.csv --interval 0.9 --out predictions.csv""",
    "risk": """Examples:
  olsen risk --gamma 2 --sigma 1                     the best alpha
  olsen risk --gamma 2 --sigma 1 --alpha 0.2 --k 100
  olsen risk --gamma 2 --sigma 1 --n 200 --k 100     exact at 200 x 400""",
    "reproduce": """Examples:
  olsen reproduce --scale quick               all figures, fewer trials
  olsen reproduce figure2 figure3 --out paper""",
}


def fit(
    data: Path | None = None,
    /,
    *,
    target: str | None = None,
    out: Path | None = None,
    report: Path | None = None,
    drop: list[str] | None = None,
    out_of_core: bool = False,
    members: int = 100,
    seed: int = 0,
    jobs: int = -1,
    json: bool = False,
) -> None:
    """Fit and tune an ensemble on a table, compare it with ridge and least squares, and save it.

    Parquet larger than a quarter of the free memory is read in blocks of rows and never loaded.

    Parameters
    ----------
    data : path
        CSV file, Parquet file or folder of Parquet files. Without one, the embedded soil spectra are used.
    target : str
        Column to predict.
    out : path
        Where to save the model (a .skops file).
    report : path
        Where to write a report (one self-contained .html file).
    drop : str
        Column to leave out; may be repeated.
    out_of_core : bool
        Read Parquet in blocks even if it would fit into memory. Errors then come from 5-fold cross-validation.
    members : int
        Number of least-squares fits to average.
    seed : int
        Random seed for drawing the members.
    jobs : int
        Threads; -1 means all cores.
    json : bool
        Print the summary as JSON instead of a table.
    """
    from . import models
    from .report import as_text, render

    for path in (out, report):
        _check_writable(path)
    summary, saved = _tuned(data, target, drop or [], members, seed, jobs, out_of_core)
    if out is not None:
        _write(out, lambda file: models.save(file, saved))
    if report is not None:
        _write(report, lambda file: file.write_text(render(summary), encoding="utf-8"))
    written = [str(path) for path in (out, report) if path is not None]
    terminal.show({**summary, "written": written} if json else None, as_text(summary) + _listed(written))


def _tuned(
    data: Path | None, target: str | None, drop: list[str], members: int, seed: int, jobs: int, out_of_core: bool
) -> tuple[dict[str, Any], SavedModel]:
    from .. import OLSEnsembleRegressorCV
    from . import fitting

    if data is not None and target is None:
        raise UsageError("--target is needed: the name of the column to predict.")
    if members < 2:
        raise UsageError(f"--members {members}: an ensemble needs at least 2.")
    column = target or ""  # the embedded data bring their own target
    large = fitting.open_large(data, out_of_core)
    model = OLSEnsembleRegressorCV(members, n_jobs=jobs, random_state=seed)
    if large is not None:
        return fitting.fit_blocks(model, large, column, drop, _command())
    return fitting.fit_loaded(model, data, column, drop, _command())


def predict(
    model: Path,
    data: Path,
    /,
    *,
    out: Path | None = None,
    interval: float | None = None,
    out_of_core: bool = False,
    json: bool = False,
) -> None:
    """Predict the rows of a table with a saved model.

    Parquet larger than a quarter of the free memory is read, predicted and written in blocks of rows.

    Parameters
    ----------
    model : path
        Model saved by ``olsen fit --out``.
    data : path
        CSV file, Parquet file or folder of Parquet files with the columns of the training table; the target may be
        missing.
    out : path
        Where to write the predictions (.csv or .parquet). Without one they are printed.
    interval : float
        Also give intervals that hold new observations with this probability, from the leave-one-out errors of the fit
        (out of core: from residuals of a sample of rows, scaled up to the cross-validated error).
    out_of_core : bool
        Read Parquet in blocks even if it would fit into memory.
    json : bool
        Print JSON instead of CSV.
    """
    from . import fitting, models
    from .predictions import write_predictions

    if interval is not None and not 0 < interval < 1:
        raise UsageError(f"--interval {interval:g} must lie strictly between 0 and 1.")
    _check_writable(out)
    saved = models.load(model)
    half = None if interval is None else saved.half_width(interval)
    large = fitting.open_large(data, out_of_core)
    shown = large is not None and (json or out is not None)  # a bar would be mixed with predictions on the screen
    with terminal.row_bar("finishing") if shown else nullcontext() as tell:
        predicted = _predicted(saved, data, large, tell)
        parts: Iterable[dict[str, Array]] = _with_limits(saved.encoding.target, predicted, half)
        if json:
            parts = kept = list(parts)
            whole = {name: np.concatenate([part[name] for part in kept]).tolist() for name in kept[0]}
        if out is not None:
            rows = _write(out, lambda file: write_predictions(file, parts))
        elif not json:
            write_predictions(None, parts)
    if json:
        terminal.show(whole, "")
    if out is not None:
        print(f"{rows} predictions written to {out}", file=sys.stderr)


def _predicted(
    saved: SavedModel, data: Path, large: ParquetTable | None, tell: terminal.Tell | None
) -> Iterator[Array]:
    """Predictions of consecutive rows."""
    from . import large_tables
    from .tables import read_table

    if large is None:
        return iter([saved.predict(read_table(data)[0])])
    return large_tables.predictions(large, saved.encoding, saved.predict, tell)


def _with_limits(name: str, predicted: Iterable[Array], half: float | None) -> Iterator[dict[str, Array]]:
    for values in predicted:
        limits = {} if half is None else {"lower": values - half, "upper": values + half}
        yield {name: values, **limits}


def risk(
    *,
    gamma: float,
    sigma: float,
    alpha: float | None = None,
    eta: float = 1.0,
    k: float = math.inf,
    mu: float = 1.0,
    n: int | None = None,
    json: bool = False,
) -> None:
    """Expected risk of an ensemble, and the best one, for identity covariance and a signal of norm one.

    Parameters
    ----------
    gamma : float
        Columns divided by rows.
    sigma : float
        Standard deviation of the noise.
    alpha : float
        Share of the columns in a member. Without it, the best one is used.
    eta : float
        Share of the rows in a member.
    k : float
        Number of members; inf for infinitely many.
    mu : float
        Factor that multiplies the average of the members.
    n : int
        Rows of the data. If given, the expected risk at this size is shown too; it is exact for eta = 1.
    json : bool
        Print JSON instead of a table.
    """
    try:
        chosen = float(theory.optimal_alpha(gamma, sigma, k=k, eta=eta)) if alpha is None else alpha
        values: dict[str, Any] = {"gamma": gamma, "sigma": sigma, "eta": eta, "k": k, "mu": mu, "alpha": chosen}
        values["risk"] = float(theory.limiting_risk(chosen, gamma, sigma, k=k, eta=eta, mu=mu))
        values["bias"] = float(theory.limiting_bias(chosen, gamma, k=k, eta=eta))
        values["variance"] = float(theory.limiting_variance(chosen, gamma, sigma, k=k, eta=eta))
        values["risk_infinite"] = float(theory.limiting_risk(chosen, gamma, sigma, eta=eta))
        values["best_mu"] = float(theory.optimal_mu(chosen, gamma, sigma, k=k, eta=eta)) if chosen > 0 else None
        values["ridge_risk"] = float(theory.optimal_ridge_risk(gamma, sigma))
        values["ridge_penalty_over_n"] = float(theory.optimal_ridge_penalty(gamma, sigma))
        values["best_alpha_infinite"] = float(theory.optimal_alpha(gamma, sigma))
        if n is not None:
            values |= _finite_risk(n, gamma, sigma, chosen, eta, k, mu)
    except ValueError as error:  # theory raises for parameters out of range
        raise UsageError(str(error)) from None
    terminal.show(values if json else None, _risk_text(values, alpha is None))


def _finite_risk(
    n: int, gamma: float, sigma: float, alpha: float, eta: float, k: float, mu: float
) -> dict[str, int | float]:
    """Expected risk at n rows; columns are rounded to whole numbers."""
    p = round(gamma * n)
    m, rows = max(1, round(alpha * p)), round(eta * n)
    found = {"n": n, "p": p, "columns_per_member": m, "rows_per_member": rows}
    if m <= rows + 1:
        value = theory.expected_risk(n, p, m, sigma, k=k, n_samples=rows, mu=mu)
    else:
        value = theory.minimum_norm_risk(n, p, m, sigma, k=k, n_samples=rows, mu=mu)
    return {**found, "risk_at_n": float(value)}


def _risk_text(v: dict[str, Any], best: bool) -> str:
    rows = [
        ("alpha" + (", the best" if best else ""), v["alpha"]),
        (f"risk, k = {v['k']:g}" + (f", mu = {v['mu']:g}" if v["mu"] != 1 else ""), v["risk"]),
        ("  of it bias (mu = 1)", v["bias"]),
        ("  of it variance (mu = 1)", v["variance"]),
        ("risk, k = inf, mu = 1", v["risk_infinite"]),
        ("best mu", v["best_mu"]),
        ("optimal ridge, risk", v["ridge_risk"]),
        ("optimal ridge, penalty / n", v["ridge_penalty_over_n"]),
        ("best alpha for k = inf", v["best_alpha_infinite"]),
    ]
    if "n" in v:
        size = f"{v['n']} x {v['p']}, {v['columns_per_member']} columns, {v['rows_per_member']} rows"
        rows.append((f"risk at {size}", v["risk_at_n"]))
    width = max(len(name) for name, _ in rows) + 2
    head = f"gamma = {v['gamma']:g}, sigma = {v['sigma']:g}, eta = {v['eta']:g}"
    return "\n".join([head, *(f"  {name:<{width}}{'-' if x is None else format(x, '.6g')}" for name, x in rows)])


def reproduce(
    *figures: str,
    scale: Literal["paper", "quick"] = "paper",
    out: Path = Path("figures"),
    seed: int = 2020,
    jobs: int = -1,
    format: Literal["csv", "parquet"] = "csv",
    json: bool = False,
) -> None:
    """Make the paper's figures and five more: simulate, compare with theory, draw.

    A run that was interrupted continues where it stopped, with the same results.

    Parameters
    ----------
    figures : str
        Figures to make, figure1 to figure9. Without any, all of them.
    scale : str
        "paper" for the settings in the paper's captions, "quick" for fewer trials and points.
    out : path
        Folder for tables, manifests, PDF and PNG files.
    seed : int
        Seed of the simulation.
    jobs : int
        Threads; -1 means all cores.
    format : str
        Format of the tables.
    json : bool
        Print the reports as JSON.
    """
    from ..figures import RECIPES
    from ..figures import reproduce as make

    unknown = [name for name in figures if name not in RECIPES]
    if unknown:
        raise UsageError(f"unknown figure {', '.join(unknown)}; choose from {', '.join(RECIPES)}.")
    _check_writable(out / "trials" / "any")
    with terminal.progress_bars() as progress:
        reports = make(
            figures or None, scale=scale, out=out, seed=seed, n_jobs=jobs, suffix=f".{format}", progress=progress,
            finished=None if json else lambda report: print(_figure_line(report), flush=True),
        )  # fmt: skip
    if json:
        terminal.show([{**report, "files": [str(f) for f in report["files"]]} for report in reports], "")


def _figure_line(report: dict[str, Any]) -> str:
    parts = [
        f"{entry['largest']:.1f} SE from {status} theory ({entry['points']} points)"
        for status, entry in report["deviation"].items()
    ]
    found = "at most " + ", ".join(parts) if parts else "no theory to compare with"
    return f"{report['name']}  {report['seconds']:6.1f} s  {report['title']}: {found}"


def _check_writable(path: Path | None) -> None:
    """Raise before the work starts if its result could not be written afterwards."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; the name of a file is needed.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # permissions are not enough: the disk may be read-only
            pass
    except OSError as error:
        raise OSError(error.errno, f"cannot write, {(error.strerror or 'refused').lower()}", str(path)) from None


def _write(path: Path, write: Callable[[Path], Any]) -> Any:
    """Write a file completely or not at all; pipes and devices are written directly."""
    from ..simulation.storage import atomically

    if path.exists() and not path.is_file():
        return write(path)
    result: list[Any] = []
    atomically(path.resolve(), lambda file: result.append(write(file)))
    return result[0]


def _command() -> str:
    return shlex.join(["olsen", *sys.argv[1:]])


def _listed(paths: list[str]) -> str:
    return f"\n\nwritten: {', '.join(paths)}" if paths else ""
