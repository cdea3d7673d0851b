"""The paper's figures and further figures: recipes (constants), plans (computations), drawings,
captions.

>>> from olsen.figures import RECIPES
>>> RECIPES["figure6"].title
'through the interpolation peak'
"""

from .captions import caption
from .draw import draw, save
from .plans import deviation
from .recipes import RECIPES, SCALES, Recipe
from .reproduction import compute, reproduce

__all__ = [
    "RECIPES",
    "SCALES",
    "Recipe",
    "caption",
    "compute",
    "deviation",
    "draw",
    "reproduce",
    "save",
]
