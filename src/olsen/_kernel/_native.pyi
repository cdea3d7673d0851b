"""The compiled module. Arrays are C-contiguous float64 or int64; results are written into the last
ones.

Lists (columns or rows of members) are given by starts, stops and indices: list i is
``indices[starts[i]:stops[i]]``. A range begin, end says which members are worked on; the results of
a member do not depend on it. Sizes, types and indices are checked; a mismatch is a ValueError. The
lock is released: index arrays must not change during a call.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

INSTRUCTION_SET: str  # "avx512", "avx2" or "plain"

def solve_principal(
    begin: int,
    end: int,
    G: Array,  # (p, p) symmetric, both triangles filled
    # (p, q) finite right-hand sides; of the last ones, the probes, only the size of solutions is
    # wanted
    C: Array,
    scale: Array,  # (p,) factors on the entries of the probes' solutions: lengths of the columns
    # (p, n) columns about their means, times the roots of the weights; n = 0: none at hand
    A: Array,
    Y: Array,  # (n, targets) likewise
    far: Array,  # (p,) what taking the means out rounds in each column
    relative: float,  # share of a relation's length below which it is rounding
    starts: Indices,
    stops: Indices,
    indices: Indices,  # sorted subsets are gathered faster
    shifts: Array,  # (k,) added to the diagonal of G for each member
    values: Array,  # (indices, targets) solutions; NaN for a member whose factorisation broke down
    # (k,) smallest L_jj^2 / G_jj; 0: breakdown, 1: empty subset, -1: would need the columns A
    ratios: Array,
    probed: Array,  # (k,) largest |x_j| scale_j of the probes; infinity after a breakdown
) -> int:
    """Solve ``(G[S, S] + shift) b = C[S]`` for members of one Gram matrix."""

def solve_gathered(
    begin: int,
    end: int,
    # (n, p) in any order; Fortran order is faster where p is large and a member has many of the
    # rows
    X: Array,
    Y: Array,  # (n, q) targets, then probes
    starts: Indices,
    stops: Indices,
    columns: Indices,
    row_starts: Indices,
    row_stops: Indices,
    rows: Indices,
    weights: Array,  # positive, aligned with rows; or empty
    scale: Array,  # (p,) factors on the entries of the probes' coefficients
    centre: bool,  # whether to centre by the weighted means of the member's rows
    # fraction of its squared length that is added for every column; without any, members with
    # (nearly) dependent columns are finished on their data
    penalty: float,
    values: Array,  # (columns, targets) coefficients, NaN after a breakdown
    intercepts: Array,  # (k, targets)
    ratios: Array,  # (k,)
    probed: Array,  # (k,)
) -> int:
    """Solve weighted least squares on submatrices ``X[T, S]``."""

def factor_members(
    begin: int,
    end: int,
    G: Array,  # (p, p), or (0, 0): every member makes its own Gram matrix from A
    C: Array,  # (p, q); without G only q counts
    A: Array,  # (p, n) as in solve_principal, n padded by zeros to a multiple of 8
    Y: Array,  # (n, q)
    n_rows: int,  # without padding
    scale: Array,
    far: Array,
    relative: float,
    starts: Indices,
    stops: Indices,
    columns: Indices,  # in the order of the paths
    store: Array,  # (k, member_size of the largest) receives the factors
    # (k,) smallest pivot ratio of the columns that count; 0 where the member is not to be trusted
    ratios: Array,
) -> int:
    """Factor members along the order of their columns and keep the factors."""

def sum_pairs(
    begin: int,  # panels of eight rows
    end: int,
    A: Array,  # as in factor_members, or other rows
    Y: Array,
    share: Array,  # (n,) of every row in the means, zero without intercept
    root: Array,  # (n,) of its weight, one in the padding
    n_rows: int,
    own_rows: bool,  # whether members were given these rows; they are then left out one at a time
    starts: Indices,
    stops: Indices,
    columns: Indices,
    sizes: Indices,  # of all members, ascending
    # (pairs,) place of the first size of members 2i and 2i + 1 in the sums; -1: they are left out
    slots: Indices,
    store: Array,  # of factor_members
    total: Array,  # (slots, q, n) += both errors
    square: Array,  # += their squares
    pair_square: Array,  # += the square of their mean
    # (n,) 1 where a size fits a row exactly although others are like it: its sums say nothing
    states: Indices,
) -> int:
    """Add errors of pairs of factored members at some rows, for every size."""

def lasso_path(
    M: Array,  # (p, n) columns, or (p, p) their products A'A
    left: Array,  # (q, n) targets, or (q, p) products A'B; overwritten
    squares: Array,  # (p,)
    penalties: Array,  # falling
    most: float,  # ends when more columns are in
    tol: float,  # a sweep that changes no fit by more, squared, is the last for a penalty
    from_rows: bool,
    found: Array,  # (penalties, p, q) coefficients
) -> int:
    """The lasso along falling penalties; returns how many were reached."""

def sparse_lasso_path(
    left: Array,  # (q, n) centred targets times the weights; overwritten
    mean: Array,  # (p,) means of the columns
    starts: Indices,  # (p,) column j holds values[starts[j]:stops[j]] in the rows indices[...]
    stops: Indices,
    indices: Indices,
    values: Array,
    weights: Array,  # (n,)
    squares: Array,  # (p,) of the centred, sqrt-weighted columns
    penalties: Array,  # falling
    most: float,
    tol: float,
    found: Array,  # (penalties, p, q) coefficients
) -> int:
    """The lasso of sparse columns that are centred implicitly; see lasso_path."""

def draw_determinantal(
    begin: int,
    end: int,
    key: Indices,  # (2,) of the seed; member i is a function of the key and of i
    vectors: Array,  # (p, r) orthonormal columns: eigenvectors of the process
    chances: Array,  # (r,) with which each is kept
    subsets: Indices,  # (end - begin, r) receives the columns of each member, ascending
    sizes: Indices,  # (end - begin,) and how many there are
) -> int:
    """Draw subsets of a determinantal process."""

def member_size(columns: int, targets: int) -> int:
    """Numbers that a factor takes."""
