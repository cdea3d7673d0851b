"""Compiled kernels: thousands of small least-squares problems at the rate of a matrix product,
without the lock.

The sources beside this file are C; `kernels.h` lists every kernel with its arguments,
``_native.pyi`` explains them.

===============  ====================================================================================================
simd.h           vectors of one instruction set (AVX-512, AVX2, NEON, plain)
tiles.h          what is done to an 8 x 8 tile in registers
factor.h         the Cholesky factor of one member, and triangular solves
refine.h         nearly dependent columns: solutions refined on the data
dependent.h      dependent columns: confirmed on the data, shortest solution
principal.h      members of one Gram matrix
gathered.h       members with rows and columns of their own
paths.h          all sizes along an order of the columns, with errors at rows left out
lasso.h          the lasso along falling penalties
determinantal.h  subsets drawn by a determinantal process
module.c         the Python border: types, shapes and indices are checked there
===============  ====================================================================================================

Members through LAPACK one by one are dominated by overheads: a separate gather, a blocked
factorisation whose panels are too thin for the BLAS, two triangular solves. Here one member lives,
from gather to solution, in a layout that the innermost loop reads without packing. Everything is
float64. Results depend on the instruction set (chosen when the module is loaded, or by the variable
OLSEN_INSTRUCTION_SET), never on the compiler, threads or ranges of members.
"""
