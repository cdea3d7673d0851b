"""What the commands say about themselves beside their docstrings: examples, exit codes, and paragraphs that flow."""

from __future__ import annotations

import inspect
import re

__all__ = ["EPILOGUE", "EXAMPLES", "HELP", "flowing", "shown_default"]

HELP = "Ensembles of ordinary least squares on random submatrices of the data."
EPILOGUE = """Examples:
  olsen fit wine.csv --target quality --out wine.skops
  olsen predict wine.skops new.csv --interval 0.9 --out predictions.csv
  olsen fit --help                       what a command takes, with examples

Exit codes:
  0    done
  1    the work failed: a table or a model that cannot be used, a full disk
  2    what was typed is wrong; nothing was written
  130  stopped with Ctrl-C
  141  the program that read the output has ended, as in "| head"

Results go to standard output; progress, notes and errors to the error stream.
An input is never changed, and a file of another origin replaced only with
--force."""
EXAMPLES = {
    "fit": """Examples:
  olsen fit                                   the embedded data
  olsen fit wine.csv --target quality         tune, compare, print
  olsen fit wine.csv --target quality --out wine.skops --report wine.html
  olsen fit wine.csv --target quality --drop id --missing mean
  olsen fit big.parquet --target price --out price.skops    larger than memory""",
    "predict": """Examples:
  olsen predict wine.skops new.csv                 to the screen
  olsen predict wine.skops new.csv --interval 0.9 --out predictions.csv
  olsen predict wine.skops new.csv --id bottle --out predictions.parquet
  zcat new.csv.gz | olsen predict wine.skops - > predictions.csv""",
    "show": """Examples:
  olsen show wine.skops
  olsen show wine.skops --json""",
    "compare": """Examples:
  olsen compare                               the embedded data
  olsen compare wine.csv --target quality
  olsen compare wine.csv --target quality --repeats 4 --report compared.html""",
    "risk": """Examples:
  olsen risk --gamma 2 --sigma 1                     the best alpha
  olsen risk --gamma 2 --sigma 1 --alpha 0.2 --k 100
  olsen risk --gamma 2 --sigma 1 --n 200 --k 100     exact at 200 x 400""",
    "explore": """Examples:
  olsen explore                               opens the browser
  olsen explore --out explorer.html           to be passed on""",
    "reproduce": """Examples:
  olsen reproduce --scale quick               all figures, fewer trials
  olsen reproduce figure2 figure3 --out paper
  olsen reproduce figure2 --out paper         go on after it was stopped""",
    "completion": """Examples:
  olsen --install-completion                  for the shell in use
  olsen --install-completion --shell bash     for one of them""",
}


def shown_default(value: object) -> str | None:
    """A default for the help; that a switch is off by default goes without saying."""
    return None if value is None or value is False else str(value)


def flowing(text: str) -> str:
    """A docstring with every paragraph in one line, which help breaks at the width of the terminal, and no markup."""
    lines: list[str] = []
    for line in inspect.cleandoc(text).replace("``", "").splitlines():
        same = lines and lines[-1].strip() and line.strip() and _indent(line) == _indent(lines[-1])
        if same and not re.match(r"-+$|\w+ : ", line) and not re.match(r"-+$", lines[-1]):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
