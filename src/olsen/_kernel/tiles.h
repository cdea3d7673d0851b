/* What is done to one 8 x 8 tile (LANES, in simd.h) while it sits in registers.
 *
 * A panel holds LANES rows of a lower triangular matrix, its columns one after the other, LANES numbers each: every
 * column is one vector load, every entry of another panel one broadcast, and nothing is packed. */
#pragma once

#include <math.h>

#include "kernels.h"
#include "simd.h"

/* What a factored diagonal tile leaves: its unit lower factor (a tile) and the reciprocal roots of its pivots. */
#define RECORD (TILE + LANES)
/* Entries prefetched per step of the hot loop; a member of 50 columns has few steps to spread its entries over. */
#define PREFETCH_RATE 8
#define AT_ONCE 3 /* back substitutions in one pass over the factor: one target and two probes */

/* A walk over the lower triangle of source[list, list], ahead of the gather; row == last_row: it is over. */
struct cursor {
    const double *source;
    const int64_t *list; /* readable PREFETCH_RATE entries beyond size */
    ptrdiff_t stride, row, column, last_row, size;
};

INLINE void prefetch_step(struct cursor *at) {
    const double *line = at->source + at->list[at->row] * at->stride;
    EACH(i, PREFETCH_RATE) __builtin_prefetch(line + at->list[at->column + i], 0, 2);
    at->column += PREFETCH_RATE;
    if (at->column >= at->size) {
        at->row = at->row + 1 < at->last_row ? at->row + 1 : at->last_row;
        at->column = at->row;
    }
}

/* tile + sign * left right', two panels of depth columns; a cursor moves along in the shadow of the arithmetic. */
INLINE void add_products(column tile[LANES], const double *left, const double *right, ptrdiff_t depth, int sign,
                         struct cursor *cursor) {
    EACH(first, LANES) {
        if (first % PASS)
            continue;
        column sum[PASS];
        EACH(c, PASS) sum[c] = tile[first + c];
        for (ptrdiff_t k = 0; k < depth; k++) {
            column a = load(left + LANES * k);
            const double *b = right + LANES * k + first;
            EACH(c, PASS) sum[c] = sign > 0 ? plus(sum[c], b[c], a) : minus(sum[c], b[c], a);
            if (cursor && first == 0)
                prefetch_step(cursor);
        }
        EACH(c, PASS) tile[first + c] = sum[c];
    }
}

/* Finish the diagonal tile of a panel at column done: subtract, factor as L D L', write the record of the block, lower
 * the smallest pivots relative to the diagonal, of the first width lanes; what is not positive counts as 0.
 *
 * One division is then the only slow operation between two pivots, and the eight roots are taken at once. A column
 * whose pivot is rounding depends on those before it. It is skipped: its column of the factor is zero, and so is its
 * reciprocal root, by which it is known later. Its row remains, the factor's row of what it depends on. */
static void factor_diagonal(double *panel, ptrdiff_t done, ptrdiff_t width, double *record, double *lowest) {
    double *tile = panel + LANES * done, scale[LANES], pivots[LANES];
    int skipped[LANES];
    column columns[LANES];
    EACH(c, LANES) scale[c] = tile[(LANES + 1) * c];
    EACH(c, LANES) columns[c] = load(tile + LANES * c);
    add_products(columns, panel, panel, done, -1, NULL);
    EACH(c, LANES) {
        pivots[c] = lane(columns[c], c);
        skipped[c] = fabs(pivots[c]) <= scale[c] * DEPENDENT_PIVOT;
        column unit = times(skipped[c] ? 0.0 : 1.0 / pivots[c], columns[c]);
        store(record + LANES * c, unit);
        EACH(j, LANES) if (j > c) columns[j] = minus(columns[j], lane(unit, j), columns[c]);
    }
    EACH(c, LANES) {
        double ratio = pivots[c] > 0.0 && pivots[c] < INFINITY ? pivots[c] / scale[c] : 0.0;
        ratio = skipped[c] || c >= width ? 1.0 : ratio;
        lowest[c] = ratio < lowest[c] ? ratio : lowest[c];
        record[TILE + c] = 1.0 / sqrt(skipped[c] ? 1.0 : pivots[c]);
    }
    EACH(c, LANES) if (skipped[c]) record[TILE + c] = 0.0;
    /* Right-hand sides may share the panel of the last block: their part of the factor is wanted, scaled. */
    EACH(c, LANES) store(tile + LANES * c, times(record[TILE + c], columns[c]));
}

/* Finish the tile of a panel at column done: subtract, then divide by the factored diagonal tile. */
INLINE void solve_tile(double *panel, ptrdiff_t done, const double *diagonal, const double *record,
                       struct cursor *cursor) {
    double *tile = panel + LANES * done;
    column columns[LANES];
    EACH(c, LANES) columns[c] = load(tile + LANES * c);
    add_products(columns, panel, diagonal, done, -1, cursor);
    EACH(c, LANES) EACH(k, LANES) if (k < c) columns[c] = minus(columns[c], record[LANES * k + c], columns[k]);
    EACH(c, LANES) store(tile + LANES * c, times(record[TILE + c], columns[c]));
}

/* The same for the first half of the rows: a panel that holds a few right-hand sides and nothing else. */
static void solve_half_tile(double *panel, ptrdiff_t done, const double *diagonal, const double *record) {
#define HALF_OF(place) (*(half *)(panel + LANES * (place)))
    half columns[LANES], zero = {0.0};
    EACH(c, LANES) columns[c] = HALF_OF(done + c);
    for (ptrdiff_t k = 0; k < done; k++)
        EACH(c, LANES) columns[c] = HALF_FNMA(diagonal[LANES * k + c] - zero, HALF_OF(k), columns[c]);
    EACH(c, LANES) EACH(k, LANES) if (k < c)
        columns[c] = HALF_FNMA(record[LANES * k + c] - zero, columns[k], columns[c]);
    EACH(c, LANES) HALF_OF(done + c) = record[TILE + c] * columns[c];
}

/* Overwrite the blocks at x, x + gap, ... (count of them) by their solutions, given those of the blocks after them.
 *
 * tile is the last panel's tile in this block column, stride the distance to the one above, which shrinks by a tile
 * from panel to panel. Going upwards leaves the block solved just before, the only one on the critical path, to the
 * end. The diagonal tile is inverted here because only latency counts at this place. */
INLINE void back_substitution(const double *record, const double *tile, ptrdiff_t stride, ptrdiff_t n_below, double *x,
                              ptrdiff_t gap, const int count) {
    column sum[AT_ONCE][LANES], inverse[LANES];
    EACH(t, count) EACH(c, LANES) sum[t][c] = constant(0.0);
    for (ptrdiff_t below = n_below; below > 0; below--) {
        column known[AT_ONCE];
        EACH(t, count) known[t] = load(x + gap * t + LANES * below);
        EACH(c, LANES) {
            column of_tile = load(tile + LANES * c);
            EACH(t, count) sum[t][c] = plus_product(sum[t][c], of_tile, known[t]);
        }
        tile -= stride;
        stride -= TILE;
    }
    EACH(c, LANES) {
        double unit[LANES] = {0.0};
        unit[c] = 1.0;
        inverse[c] = load(unit);
        EACH(k, LANES) if (k < c) inverse[c] = minus(inverse[c], record[LANES * k + c], inverse[k]);
    }
    EACH(c, LANES) inverse[c] = times(record[TILE + c], inverse[c]);
    EACH(t, count) {
        column right = subtract(load(x + gap * t), sum_lanes(sum[t])), half[2] = {constant(0.0), constant(0.0)};
        EACH(c, LANES) half[c % 2] = plus(half[c % 2], lane(right, c), inverse[c]);
        store(x + gap * t, add(half[0], half[1]));
    }
}

/* tile[LANES i + l] = source[rows[i] * row_stride + cols[l] * col_stride] */
INLINE void gather_tile(double *tile, const double *source, const int64_t *rows, ptrdiff_t row_stride,
                        const int64_t *cols, ptrdiff_t col_stride) {
    EACH(i, LANES) {
        const double *line = source + rows[i] * row_stride;
        column row;
        EACH(l, PARTS) row.part[l] = gather(line, cols + WIDTH * l, col_stride);
        store(tile + LANES * i, row);
    }
}
