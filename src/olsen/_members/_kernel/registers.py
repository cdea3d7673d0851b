"""Register kernels, emitted as LLVM vector code: what is done to one 8 x 8 tile while it sits in registers."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..._trust import DEPENDENT_PIVOT

__all__ = [
    "COLUMN",
    "LANES",
    "LAST_ROW",
    "LIST",
    "RECORD",
    "ROW",
    "SIZE",
    "STRIDE",
    "TILE",
    "add_gram_diagonal",
    "add_gram_tile",
    "factor_diagonal",
    "gather_tile",
    "shift_and_scale",
    "solve_half_tile",
    "solve_tile",
    "solve_tile_prefetching",
    "substitute_back",
    "substitute_back_three",
]

LANES = 8
TILE = LANES * LANES
# What a diagonal block leaves behind: its unit lower factor (a tile) and the reciprocal roots of its pivots.
RECORD = TILE + LANES
# The hot loop needs one accumulator per column of a tile: 8 of 512 bits, or two passes of 8 of 256 bits.
COLUMNS_PER_PASS = LANES if llvm.get_host_cpu_features().get("avx512f") else LANES // 2
# Entries prefetched per step of the hot loop; a member of 50 has few steps to spread its entries over.
PREFETCH_RATE = 8
# Fields of the prefetch cursor, an integer array; the index list it walks over starts at LIST.
ROW, COLUMN, LAST_ROW, SIZE, STRIDE, LIST = range(6)

I32 = ir.IntType(32)
I64 = ir.IntType(64)


def _data(context, builder, array_type, array):
    return context.make_array(array_type)(context, builder, array).data


class _Emitter:
    """Vector operations on one workspace array; offsets are LLVM integers that count elements."""

    def __init__(self, context, builder, array_type, array):
        self.builder = builder
        self.element = context.get_value_type(array_type.dtype)
        self.itemsize = array_type.dtype.bitwidth // 8
        self.base = _data(context, builder, array_type, array)

    def vector(self, width=LANES):
        return ir.VectorType(self.element, width)

    def constant(self, values):
        return ir.Constant(self.vector(len(values)), [float(value) for value in values])

    def undefined(self, width=LANES):
        return ir.Constant(self.vector(width), ir.Undefined)

    def call(self, name, *args):
        """Call an LLVM intrinsic that maps vectors to a vector of the same type."""
        kind = args[-1].type
        full_name = f"llvm.{name}.v{kind.count}f{8 * self.itemsize}"
        function_type = ir.FunctionType(kind, [kind] * len(args))
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, function_type, full_name), args)

    def at(self, offset, extra=0):
        return self.builder.gep(self.base, [self.builder.add(offset, I64(extra))])

    def load(self, offset, extra=0, width=LANES):
        pointer = self.builder.bitcast(self.at(offset, extra), self.vector(width).as_pointer())
        return self.builder.load(pointer, align=self.itemsize * width)

    def store(self, value, offset, extra=0):
        pointer = self.builder.bitcast(self.at(offset, extra), value.type.as_pointer())
        self.builder.store(value, pointer, align=self.itemsize * value.type.count)

    def permute(self, first, second, lanes):
        mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
        return self.builder.shuffle_vector(first, second, mask)

    def splat(self, vector, lane):
        return self.permute(vector, vector, [lane] * vector.type.count)

    def insert(self, vector, scalar, lane):
        return self.builder.insert_element(vector, scalar, I32(lane))

    def spread(self, scalar, width=LANES):
        return self.splat(self.insert(self.undefined(width), scalar, 0), 0)

    def broadcast(self, offset, extra=0, width=LANES):
        return self.spread(self.builder.load(self.at(offset, extra)), width)

    def fma(self, a, b, c):
        return self.call("fmuladd", a, b, c)

    def fnma(self, a, b, c):
        return self.fma(self.builder.fneg(a), b, c)

    def load_tile(self, tile):
        return [self.load(tile, c * LANES) for c in range(LANES)]

    def store_tile(self, columns, tile):
        for c, column in enumerate(columns):
            self.store(column, tile, c * LANES)

    def add_products(self, columns, left, right, depth, sign, each_step=None, last_rows=True):
        """Return the tile ``columns + sign * left right^T`` of two panels, ``depth`` columns long.

        A column may be given by half of its rows only, the last ones or the first, where the others are not wanted.
        ``each_step`` may emit work to be done on the side, in the shadow of the arithmetic.
        """
        builder = self.builder
        update = self.fma if sign > 0 else self.fnma
        cells = [cgutils.alloca_once_value(builder, column) for column in columns]
        widths = [column.type.count for column in columns]
        for first in range(0, LANES, COLUMNS_PER_PASS):
            now = range(first, first + COLUMNS_PER_PASS)
            with cgutils.for_range(builder, depth, intp=I64) as loop:
                shift = builder.mul(loop.index, I64(LANES))
                a, b = builder.add(left, shift), builder.add(right, shift)
                vectors = {w: self.load(a, LANES - w if last_rows else 0, w) for w in {widths[c] for c in now}}
                for c in now:
                    factor = self.broadcast(b, c, widths[c])
                    builder.store(update(factor, vectors[widths[c]], builder.load(cells[c])), cells[c])
                if each_step is not None and first == 0:
                    each_step()
        return [builder.load(cell) for cell in cells]


def _kernel(emit):
    """Turn ``emit(emitter, *integers)`` into ``kernel(workspace, (integers...))`` for use in compiled code."""

    def kernel(typing_context, workspace, integers):
        def codegen(context, builder, signature, args):
            emitter = _Emitter(context, builder, signature.args[0], args[0])
            emit(emitter, *cgutils.unpack_tuple(builder, args[1]))
            return context.get_dummy_value()

        return types.void(workspace, integers), codegen

    return intrinsic(kernel)


@_kernel
def factor_diagonal(e, panel, done, width, record, lowest):
    """Finish the diagonal tile of ``panel`` at column ``done``: subtract, factor, write the record of the block.

    The elimination inside the tile is that of ``L D L^T``: a division is then the only slow operation between two
    pivots, and the eight square roots are taken at once.  Nothing above the diagonal of the tile is ever read.

    A column whose pivot is rounding depends on those before it. It is skipped: its column of the factor is zero, and so
    is its reciprocal root, by which it is known later. Its row remains, the factor's row of what it depends on.
    """
    builder = e.builder
    half = LANES // 2
    tile = builder.add(panel, builder.mul(done, I64(LANES)))
    scale = e.undefined()
    for c in range(LANES):
        scale = e.insert(scale, builder.load(e.at(tile, c * (LANES + 1))), c)
    columns = e.add_products(_lower_columns(e, tile), panel, panel, done, sign=-1)
    columns[half:] = [e.permute(column, column, 2 * list(range(half))) for column in columns[half:]]

    rounding = builder.fmul(scale, e.constant([DEPENDENT_PIVOT] * LANES))
    pivots = e.undefined()
    for c in range(LANES):
        pivot = builder.extract_element(columns[c], I32(c))
        pivots = e.insert(pivots, pivot, c)
        skipped = _within(builder, pivot, builder.extract_element(rounding, I32(c)))
        inverse = builder.fdiv(ir.Constant(e.element, 1.0), pivot)
        inverse = builder.select(skipped, ir.Constant(e.element, 0.0), inverse)
        unit = builder.fmul(columns[c], e.spread(inverse))
        e.store(unit, record, c * LANES)
        for j in range(c + 1, LANES):
            columns[j] = e.fnma(e.splat(unit, j), columns[c], columns[j])
    skipped = _within(builder, pivots, rounding)
    one = e.constant([1] * LANES)
    roots = builder.fdiv(one, e.call("sqrt", builder.select(skipped, one, pivots)))
    roots = builder.select(skipped, e.constant([0] * LANES), roots)
    e.store(roots, record, TILE)
    # Right-hand sides may share the panel of the last block: their part of the factor is wanted, scaled.
    e.store_tile([builder.fmul(column, e.splat(roots, c)) for c, column in enumerate(columns)], tile)
    pivots, scale = (builder.select(skipped, one, vector) for vector in (pivots, scale))
    _lower_minimum(e, pivots, scale, width, lowest)


def _within(builder, value, limit):
    """Whether ``|value| <= limit``, lane by lane: such a pivot is rounding, its column depends on others."""
    below = builder.fcmp_ordered("<=", value, limit)
    return builder.and_(below, builder.fcmp_ordered(">=", value, builder.fneg(limit)))


def _lower_columns(e, tile):
    """Load the columns of a tile, the second half of them without their first rows, which lie above the diagonal."""
    half = LANES // 2
    return [e.load(tile, c * LANES) if c < half else e.load(tile, c * LANES + half, half) for c in range(LANES)]


def _lower_minimum(e, pivots, scale, width, lowest):
    """Update the minimum of ``pivots / scale`` at ``lowest`` by ``width`` lanes; what is not positive sticks as 0."""
    builder = e.builder
    one, zero = e.constant([1] * LANES), e.constant([0] * LANES)
    ratio = builder.select(builder.fcmp_ordered(">", pivots, zero), builder.fdiv(pivots, scale), zero)
    lanes = ir.Constant(ir.VectorType(I64, LANES), list(range(LANES)))
    limit = e.splat(e.insert(ir.Constant(lanes.type, ir.Undefined), width, 0), 0)
    ratio = builder.select(builder.icmp_signed("<", lanes, limit), ratio, one)
    before = e.load(lowest)
    smaller = builder.select(builder.fcmp_ordered("<", ratio, before), ratio, before)
    e.store(builder.select(builder.fcmp_ordered(">", ratio, zero), smaller, zero), lowest)


def _emit_solve(e, done, diagonal, record, panel, each_step=None, rows=LANES):
    """Finish the tile of ``panel`` at column ``done``: subtract, then divide by the factored diagonal tile."""
    tile = e.builder.add(panel, e.builder.mul(done, I64(LANES)))
    columns = [e.load(tile, c * LANES, rows) for c in range(LANES)]
    columns = e.add_products(columns, panel, diagonal, done, sign=-1, each_step=each_step, last_rows=False)
    for c in range(LANES):
        for k in range(c):
            columns[c] = e.fnma(e.broadcast(record, k * LANES + c, rows), columns[k], columns[c])
    roots = [e.broadcast(record, TILE + c, rows) for c in range(LANES)]
    e.store_tile([e.builder.fmul(root, column) for root, column in zip(roots, columns, strict=True)], tile)


solve_tile = _kernel(_emit_solve)


@_kernel
def solve_half_tile(e, done, diagonal, record, panel):
    """Do the same for the first half of the rows: a panel that holds a few right-hand sides and nothing else."""
    _emit_solve(e, done, diagonal, record, panel, rows=LANES // 2)


@intrinsic
def solve_tile_prefetching(typing_context, workspace, integers, source, cursor):
    """Do the same as ``solve_tile`` and move the prefetch cursor over ``source`` meanwhile."""

    def codegen(context, builder, signature, args):
        emitter = _Emitter(context, builder, signature.args[0], args[0])
        data, fields = (_data(context, builder, signature.args[i], args[i]) for i in (2, 3))
        step, write_back = _prefetch_step(builder, data, fields)
        _emit_solve(emitter, *cgutils.unpack_tuple(builder, args[1]), each_step=step)
        write_back()
        return context.get_dummy_value()

    return types.void(workspace, integers, source, cursor), codegen


def _prefetch_step(builder, data, fields):
    """Return the emitters of one cursor step and of the cursor's final store; the cursor stays in registers."""
    pointer = ir.PointerType(ir.IntType(8))
    prefetch_type = ir.FunctionType(ir.VoidType(), [pointer, I32, I32, I32])
    prefetch = cgutils.get_or_insert_function(builder.module, prefetch_type, "llvm.prefetch.p0")
    field = {name: builder.gep(fields, [I64(name)]) for name in range(LIST)}
    last_row, size, stride = (builder.load(field[name]) for name in (LAST_ROW, SIZE, STRIDE))
    row, column = (cgutils.alloca_once_value(builder, builder.load(field[name])) for name in (ROW, COLUMN))

    def entry(position, extra=0):
        return builder.load(builder.gep(fields, [builder.add(position, I64(LIST + extra))]))

    def step():
        i, j = builder.load(row), builder.load(column)
        line = builder.gep(data, [builder.mul(entry(i), stride)])
        for extra in range(PREFETCH_RATE):
            address = builder.bitcast(builder.gep(line, [entry(j, extra)]), pointer)
            builder.call(prefetch, [address, I32(0), I32(2), I32(1)])  # a read, into L2, of data
        j = builder.add(j, I64(PREFETCH_RATE))
        over = builder.icmp_signed(">=", j, size)
        i = builder.add(i, builder.zext(over, I64))
        i = builder.select(builder.icmp_signed("<", i, last_row), i, last_row)
        builder.store(i, row)
        builder.store(builder.select(over, i, j), column)

    def write_back():
        builder.store(builder.load(row), field[ROW])
        builder.store(builder.load(column), field[COLUMN])

    return step, write_back


def _emit_back(e, record, tile, stride, n_below, x, gap, count):
    """Overwrite the blocks at ``x``, ``x + gap``, ... by their solutions, given those of the blocks after them.

    ``tile`` is the last panel's tile in this block column, ``stride`` the distance to the one above, which shrinks by
    a tile from panel to panel.  Going upwards leaves the block solved just before, the only one on the critical
    path, to the end.  The diagonal tile is inverted here because only latency counts at this place.
    """
    builder = e.builder
    places = [builder.add(x, builder.mul(gap, I64(t))) for t in range(count)]
    cells = [[cgutils.alloca_once_value(builder, e.constant([0] * LANES)) for _ in range(LANES)] for _ in places]
    place, step = cgutils.alloca_once_value(builder, tile), cgutils.alloca_once_value(builder, stride)
    with cgutils.for_range(builder, n_below, intp=I64) as loop:
        here, up = builder.load(place), builder.load(step)
        below = builder.mul(builder.sub(n_below, loop.index), I64(LANES))
        known = [e.load(builder.add(own, below)) for own in places]
        for c, column in enumerate(e.load_tile(here)):
            for t in range(count):
                builder.store(e.fma(column, known[t], builder.load(cells[t][c])), cells[t][c])
        builder.store(builder.sub(here, up), place)
        builder.store(builder.sub(up, I64(TILE)), step)
    inverse = [e.constant(row) for row in np.eye(LANES)]
    for c in range(LANES):
        for k in range(c):
            inverse[c] = e.fnma(e.broadcast(record, k * LANES + c), inverse[k], inverse[c])
    scaled = [builder.fmul(row, e.broadcast(record, TILE + c)) for c, row in enumerate(inverse)]
    for t, own in enumerate(places):
        right = builder.fsub(e.load(own), _sum_lanes(e, [builder.load(cell) for cell in cells[t]]))
        sums = [e.constant([0] * LANES)] * 2
        for c in range(LANES):
            sums[c % 2] = e.fma(scaled[c], e.splat(right, c), sums[c % 2])
        e.store(builder.fadd(*sums), own)


@_kernel
def substitute_back(e, record, tile, stride, n_below, x, gap):
    """Solve one block of one right-hand side."""
    _emit_back(e, record, tile, stride, n_below, x, gap, 1)


@_kernel
def substitute_back_three(e, record, tile, stride, n_below, x, gap):
    """Solve one block of three right-hand sides, ``gap`` apart, in one pass over the factor."""
    _emit_back(e, record, tile, stride, n_below, x, gap, 3)


def _sum_lanes(e, vectors):
    """Return the vector whose lane c is the sum of the lanes of ``vectors[c]``."""
    even, odd = range(0, 2 * LANES, 2), range(1, 2 * LANES, 2)
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [e.builder.fadd(e.permute(a, b, even), e.permute(a, b, odd)) for a, b in pairs]
    return vectors[0]


@_kernel
def add_gram_tile(e, depth, left, right, tile):
    """Add ``Z_r^T Z_s`` to a tile; a panel of Z holds ``LANES`` columns of the data, one row after the other."""
    e.store_tile(e.add_products(e.load_tile(tile), left, right, depth, sign=1), tile)


@_kernel
def add_gram_diagonal(e, depth, panel, tile):
    """Add ``Z_r^T Z_r`` to a tile, where all that matters is its lower triangle."""
    columns = e.add_products(_lower_columns(e, tile), panel, panel, depth, sign=1)
    for c, column in enumerate(columns):
        e.store(column, tile, c * LANES + LANES - column.type.count)


@_kernel
def shift_and_scale(e, panel, depth, shift, roots, total):
    """Replace the rows z of a panel by ``root * (z - shift)`` and add ``root^2 * (z - shift)`` to ``total``."""
    builder = e.builder
    origin = e.load(shift)
    cell = cgutils.alloca_once_value(builder, e.load(total))
    with cgutils.for_range(builder, depth, intp=I64) as loop:
        place = builder.add(panel, builder.mul(loop.index, I64(LANES)))
        root = e.broadcast(builder.add(roots, loop.index))
        row = builder.fmul(root, builder.fsub(e.load(place), origin))
        e.store(row, place)
        builder.store(e.fma(root, row, builder.load(cell)), cell)
    e.store(builder.load(cell), total)


@intrinsic
def gather_tile(typing_context, source, row_list, row, row_stride, col_list, col, col_stride, workspace, tile):
    """``workspace[tile + LANES i + l] = source[row_list[row + i] * row_stride + col_list[col + l] * col_stride]``."""

    def codegen(context, builder, signature, args):
        _, _, row, row_stride, _, col, col_stride, _, tile = args
        source, rows, cols = (_data(context, builder, signature.args[i], args[i]) for i in (0, 1, 4))
        e = _Emitter(context, builder, signature.args[7], args[7])

        def offset(index, position, stride):
            return builder.mul(builder.load(builder.gep(index, [position])), stride)

        columns = [offset(cols, builder.add(col, I64(lane)), col_stride) for lane in range(LANES)]
        for i in range(LANES):
            line = builder.gep(source, [offset(rows, builder.add(row, I64(i)), row_stride)])
            vector = e.undefined()
            for lane, column in enumerate(columns):
                vector = e.insert(vector, builder.load(builder.gep(line, [column])), lane)
            e.store(vector, tile, i * LANES)
        return context.get_dummy_value()

    arguments = (source, row_list, row, row_stride, col_list, col, col_stride, workspace, tile)
    return types.void(*arguments), codegen
