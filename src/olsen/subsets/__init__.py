r"""Rows and columns of each member, as a pure function of (seed, member).

Member :math:`i` of an ensemble is defined by a column subset :math:`S_i` and a row subset
:math:`T_i`. Both are drawn from a counter-based generator (Philox) whose counter is set from the
number of the member, so member ``i`` never depends on the number of members, on threads, or on how
the draw is cut into chunks.

There are two sampling schemes (paper, section 3): *fixed* sizes, uniform over all subsets of that
size, and *bernoulli* coin flips. A third scheme depends on the columns: under *determinantal*
sampling the mean of all members is ridge regression, exactly. There are two designs: *independent*
members, as in the paper, and *balanced* ones, where the members of a group share one random
permutation (or one uniform number per item) and overlap as little as possible. The distribution of
a single member is the same under both designs; only the overlaps differ, and smaller overlaps mean
lower risk for the same number of members.
"""

# what is not in __all__ is for the other packages of olsen
from ._compressed import Subsets
from ._design import Design as Design
from ._determinantal import Determinantal
from ._determinantal import penalty_of_size as penalty_of_size
from ._drawing import draw, draw_members
from ._drawing import group_size as group_size
from ._drawing import integer_seed as integer_seed
from ._drawing import is_all as is_all
from ._drawing import is_count as is_count
from ._drawing import permutations as permutations
from ._drawing import resolve_size as resolve_size
from ._drawing import row_groups as row_groups
from ._drawn_columns import DrawnColumns as DrawnColumns

__all__ = ["Determinantal", "Subsets", "draw", "draw_members"]
