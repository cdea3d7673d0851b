"""Names and cells as they are shown; see `olsen._report.formatting`."""

from .._report.formatting import LONGEST_NAME, quoted, shortened
from .._report.formatting import escape_control as visible

__all__ = ["LONGEST_NAME", "quoted", "shortened", "visible"]
