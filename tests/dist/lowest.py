"""Constraints for pip that pin every requirement in pyproject.toml to the lowest version it allows.

    python tests/dist/lowest.py > constraints.txt

A requirement without a lower bound is an error: nobody would know what it was tested with.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]*\])?\s*(>=|==)\s*(?P<version>[\w.]+)$")


def pinned(requirement):
    """The requirement at its lowest version; None for an extra of our own."""
    if requirement.startswith("olsen["):
        return None
    match = REQUIREMENT.match(requirement)
    if match is None:
        sys.exit(f"{requirement!r} in pyproject.toml is not of the form name>=version")
    return f"{match['name']}=={match['version']}"


def main():
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    requirements = [project["dependencies"], *project["optional-dependencies"].values()]
    print("\n".join(sorted({pin for group in requirements for requirement in group if (pin := pinned(requirement))})))


if __name__ == "__main__":
    main()
