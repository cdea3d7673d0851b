"""Batched Cholesky solves on principal submatrices, compiled, cached and free of BLAS.

Thousands of small systems ``G[S, S] b = C[S]`` are dominated by overheads when each one goes through LAPACK: a
separate gather, a blocked factorisation whose panels are too thin for the BLAS, two triangular solves. Here one
member lives, from gather to solution, in a layout which the innermost kernel reads without any packing.

Layout
    The lower triangle is cut into *panels* of ``LANES`` rows. A panel stores its columns one after the other,
    ``LANES`` contiguous numbers each, up to and including its diagonal tile. Every column of a panel is then one
    aligned SIMD load and every entry of another panel one broadcast: both operands of ``L_r L_s^T`` are packed from
    the start. The right-hand sides are appended as further *rows*; the factorisation performs the forward
    substitution on the way.

Algorithm
    Left-looking by block columns of ``LANES``: a tile is loaded once, receives its whole inner product in registers,
    is solved against the diagonal tile in registers and stored once. The panels are streamed in order, which keeps
    the rate up even where a member exceeds the L2 cache; a second level of blocking was not worth having.

Kernels
    The register tiles are emitted as LLVM vector operations. They are target independent (LLVM splits the vectors
    where the machine has narrower ones); only the number of accumulators follows the machine's registers. Nothing
    refers to an address of this process, so the compiled code is cached on disk like that of any other function.

No fast-math flag is set: only ``fmuladd`` may contract. A pivot that is not positive turns into NaN, runs through to
the end without a branch in the hot path, and is reported as a pivot ratio of 0.
"""
