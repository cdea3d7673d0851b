"""The paper's figures and further figures: recipes (constants), plans (computations), drawings.

>>> from olsen.figures import RECIPES
>>> RECIPES["figure6"].title
'through the interpolation peak'
"""

from .draw import draw, save
from .plans import deviation
from .recipes import RECIPES, SCALES, Recipe
from .reproduction import compute, reproduce

__all__ = ["RECIPES", "SCALES", "Recipe", "compute", "deviation", "draw", "reproduce", "save"]
