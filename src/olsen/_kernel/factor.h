/* Factorisation and solution of one member in its workspace of panels.
 *
 * The lower triangle of the member's matrix is cut into panels of LANES rows, each up to and including its diagonal
 * tile. Right-hand sides are appended as further rows, so that the factorisation performs the forward substitution on
 * the way. Left-looking by block columns: a tile is loaded once, receives its whole inner product in registers, is
 * solved against the diagonal tile there and stored once. A pivot that is not positive turns into NaN, runs through to
 * the end without a branch in the hot path, and is reported as a pivot ratio of 0. */
#pragma once

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "tiles.h"

#define AT_ONCE 3 /* back substitutions in one pass over the factor */

/* Scratch memory of one call: one allocation of zeros, cut into parts that begin on a cache line. */
struct scratch {
    double *base, *next;
};

static int reserve(struct scratch *from, ptrdiff_t count) {
    from->base = calloc(count + 9 * LANES, sizeof *from->base); /* up to eight parts, numbers or indices */
    from->next = (double *)(((uintptr_t)from->base + 63) / 64 * 64);
    return from->base ? DONE : NO_MEMORY;
}

static void *take(struct scratch *from, ptrdiff_t count) {
    double *here = from->next;
    from->next += (count + LANES - 1) / LANES * LANES;
    return here;
}

struct member {
    ptrdiff_t m, q, n_blocks, n_panels;
    double *lowest, *records, *solutions, *panels;
};

static ptrdiff_t round_up(ptrdiff_t count) {
    return (count + LANES - 1) / LANES * LANES;
}

static ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b) {
    return a > b ? a : b;
}

static ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b) {
    return a < b ? a : b;
}

/* Numbers before panel r: a triangle of tiles, then full rows of tiles for the right-hand sides. */
INLINE ptrdiff_t panel_offset(ptrdiff_t r, ptrdiff_t n_blocks) {
    ptrdiff_t full = r < n_blocks ? r : n_blocks;
    return TILE * (full * (full + 1) / 2 + (r - full) * n_blocks);
}

static struct member member_at(double *work, ptrdiff_t m, ptrdiff_t q) {
    struct member a = {.m = m, .q = q, .n_blocks = round_up(m) / LANES, .n_panels = round_up(m + q) / LANES};
    a.lowest = work;
    a.records = a.lowest + LANES;
    a.solutions = a.records + RECORD * a.n_blocks;
    a.panels = a.solutions + LANES * a.n_blocks * q;
    return a;
}

/* Numbers that a member of m columns and q right-hand sides takes. */
static ptrdiff_t size_of_member(ptrdiff_t m, ptrdiff_t q) {
    ptrdiff_t n_blocks = round_up(m) / LANES, n_panels = round_up(m + q) / LANES;
    return LANES + (RECORD + LANES * q) * n_blocks + panel_offset(n_panels, n_blocks);
}

INLINE double *panel_of(const struct member *a, ptrdiff_t r) {
    return a->panels + panel_offset(r, a->n_blocks);
}

INLINE double *diagonal_entry(const struct member *a, ptrdiff_t j) {
    return panel_of(a, j / LANES) + LANES * j + j % LANES;
}

/* Right-hand side t, whose entries are LANES apart. */
INLINE double *right_hand_side(const struct member *a, ptrdiff_t t) {
    return panel_of(a, (a->m + t) / LANES) + (a->m + t) % LANES;
}

INLINE double reciprocal_root(const struct member *a, ptrdiff_t j) {
    return a->records[RECORD * (j / LANES) + TILE + j % LANES];
}

/* Block column s of the factor, right-hand sides included. */
static void eliminate_block(const struct member *a, ptrdiff_t s, struct cursor *cursor) {
    ptrdiff_t done = LANES * s;
    double *diagonal = panel_of(a, s), *record = a->records + RECORD * s;
    if (s == 0)
        for (int i = 0; i < LANES; i++)
            a->lowest[i] = 1.0;
    factor_diagonal(diagonal, done, a->m - done, record, a->lowest);
    for (ptrdiff_t r = s + 1; r < a->n_panels; r++) {
        double *panel = panel_of(a, r);
        if (r >= a->n_blocks && a->m + a->q - LANES * r <= LANES / 2)
            solve_half_tile(panel, done, diagonal, record);
        else if (cursor && cursor->row < cursor->last_row)
            solve_tile(panel, done, diagonal, record, cursor);
        else
            solve_tile(panel, done, diagonal, record, NULL);
    }
}

/* The smallest pivot ratio of the factored member, 0 after a breakdown. Clears the columns after the last variable,
 * whose "pivots" mean nothing, so that they solve to zero. Right-hand sides must be finite: they share its panel. */
static double pivot_ratio(const struct member *a) {
    double ratio = a->lowest[0];
    for (int i = 1; i < LANES; i++)
        ratio = a->lowest[i] < ratio ? a->lowest[i] : ratio;
    if (!(ratio > 0.0))
        return 0.0;
    if (a->m) {
        double *record = a->records + RECORD * (a->n_blocks - 1);
        ptrdiff_t width = a->m - LANES * (a->n_blocks - 1);
        for (ptrdiff_t i = LANES * width; i < TILE; i++)
            record[i] = 0.0;
        for (ptrdiff_t i = width; i < LANES; i++)
            record[TILE + i] = 0.0;
    }
    return ratio;
}

/* Solve L' in place for count solutions, gap apart, zero at the columns that were skipped; blocks after last are
 * known to be zero. */
INLINE void solve_upper_from(const struct member *a, ptrdiff_t last, double *x, ptrdiff_t gap, const int count) {
    const double *bottom = panel_of(a, last);
    for (ptrdiff_t s = last; s >= 0; s--)
        back_substitution(a->records + RECORD * s, bottom + TILE * s, TILE * last, last - s, x + LANES * s, gap, count);
}

static void solve_upper(const struct member *a, double *x) {
    solve_upper_from(a, a->n_blocks - 1, x, 0, 1);
}

static void solve_upper_three(const struct member *a, ptrdiff_t last, double *x, ptrdiff_t gap) {
    solve_upper_from(a, last, x, gap, AT_ONCE);
}

/* Substitute backwards for all right-hand sides; the smallest pivot ratio, 0 after a breakdown. */
static double solve_member(const struct member *a) {
    double ratio = pivot_ratio(a);
    if (!(ratio > 0.0))
        return 0.0;
    ptrdiff_t length = LANES * a->n_blocks, whole = a->q / AT_ONCE * AT_ONCE;
    for (ptrdiff_t t = 0; t < a->q; t++) {
        const double *row = right_hand_side(a, t);
        double *x = a->solutions + length * t;
        for (ptrdiff_t j = 0; j < a->m; j++)
            x[j] = row[LANES * j];
        for (ptrdiff_t j = a->m; j < length; j++)
            x[j] = 0.0;
    }
    for (ptrdiff_t t = 0; t < whole; t += AT_ONCE)
        solve_upper_three(a, a->n_blocks - 1, a->solutions + length * t, length);
    for (ptrdiff_t t = whole; t < a->q; t++)
        solve_upper(a, a->solutions + length * t);
    return ratio;
}

/* Solve L u = p, with zeros at the columns that were skipped. */
static void solve_lower(const struct member *a, const double *p, double *u) {
    for (ptrdiff_t r = 0; r < a->n_blocks; r++) {
        const double *panel = panel_of(a, r);
        ptrdiff_t width = smaller(LANES, a->m - LANES * r);
        double right[LANES];
        for (int i = 0; i < LANES; i++)
            right[i] = i < width ? p[LANES * r + i] : 0.0;
        for (ptrdiff_t k = 0; k < LANES * r; k++)
            for (int i = 0; i < LANES; i++)
                right[i] -= panel[LANES * k + i] * u[k];
        for (ptrdiff_t c = 0; c < width; c++) {
            ptrdiff_t k = LANES * r + c;
            u[k] = right[c] * reciprocal_root(a, k);
            for (ptrdiff_t i = c + 1; i < width; i++)
                right[i] -= panel[LANES * k + i] * u[k];
        }
    }
}

/* Copy the first solutions into values (m, targets); NaN after a breakdown. */
static void read_targets(const struct member *a, ptrdiff_t targets, double ratio, double *values) {
    for (ptrdiff_t t = 0; t < targets; t++)
        for (ptrdiff_t j = 0; j < a->m; j++)
            values[targets * j + t] = ratio > 0.0 ? a->solutions[LANES * a->n_blocks * t + j] : NAN;
}

/* The largest |x_j| scale[own_j] among the solutions from first on; infinity after a breakdown. */
static double largest_probe(const struct member *a, ptrdiff_t first, const double *scale, const int64_t *own,
                            double ratio) {
    if (!(ratio > 0.0))
        return INFINITY;
    double largest = 0.0;
    for (ptrdiff_t t = first; t < a->q; t++)
        for (ptrdiff_t j = 0; j < a->m; j++) {
            double size = fabs(a->solutions[LANES * a->n_blocks * t + j]) * scale[own[j]];
            if (!(size <= largest)) /* also what is not a number */
                largest = size == size ? size : INFINITY;
        }
    return largest;
}

/* Copy an index list, padded to whole panels by its own last index, which brings in no foreign NaN. */
static void copy_padded(int64_t *out, const int64_t *indices, ptrdiff_t count) {
    for (ptrdiff_t j = 0; j < round_up(count); j++)
        out[j] = indices[smaller(j, count - 1)];
}
