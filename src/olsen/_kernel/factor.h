/* Factorisation and solution of one member in its workspace of panels.
 *
 * The lower triangle of the member's matrix is cut into panels of LANES rows, each up to and including its diagonal
 * tile. Right-hand sides are appended as further rows, so that the factorisation performs the forward substitution on
 * the way. Left-looking by block columns: a tile is loaded once, receives its whole inner product in registers, is
 * solved against the diagonal tile there and stored once. A pivot that is not positive turns into NaN, runs through to
 * the end without a branch in the hot path, and is reported as a pivot ratio of 0. */
#pragma once

#include <stdlib.h>

#include "tiles.h"

/* Memory of one call: parts of zeros that begin on a cache line, released together. */
struct scratch {
    void *part[16];
    int count, failed;
};

static void *take(struct scratch *from, ptrdiff_t count) {
    void *part = calloc(count + LANES, sizeof(double));
    from->part[from->count++] = part;
    from->failed |= !part;
    return (void *)(((uintptr_t)part + 63) / 64 * 64);
}

static int release(struct scratch *from, int status) {
    while (from->count)
        free(from->part[--from->count]);
    return from->failed ? NO_MEMORY : status;
}

/* The factor of a member may be kept; what stands beside it is room that all members of a call share. */
struct member {
    ptrdiff_t m, q, n_blocks, n_panels; /* columns, right-hand sides */
    double *lowest, *records, *panels;  /* smallest pivot ratios, by lane; what diagonal tiles leave; the triangle */
    int64_t *own, *skipped; /* its columns, padded to whole panels; positions of those that depend on others */
    double *lengths, *spare, *solutions; /* of its columns; a panel of LANES right-hand sides; of all of them */
    ptrdiff_t n_skipped;
    double ratio, probed; /* smallest pivot over its diagonal entry, 0 after a breakdown; largest entry of the probes */
};

INLINE ptrdiff_t round_up(ptrdiff_t count) { return (count + LANES - 1) / LANES * LANES; }
INLINE ptrdiff_t larger(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
INLINE ptrdiff_t smaller(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* Numbers before panel r: a triangle of tiles, then full rows of tiles for the right-hand sides. */
INLINE ptrdiff_t panel_offset(ptrdiff_t r, ptrdiff_t n_blocks) {
    ptrdiff_t full = smaller(r, n_blocks);
    return TILE * (full * (full + 1) / 2 + (r - full) * n_blocks);
}

/* Numbers that the factor of a member of m columns and q right-hand sides takes. */
static ptrdiff_t size_of_member(ptrdiff_t m, ptrdiff_t q) {
    ptrdiff_t n_blocks = round_up(m) / LANES;
    return LANES + RECORD * n_blocks + panel_offset(round_up(m + q) / LANES, n_blocks);
}

/* Let the factor of m columns begin at work. */
static void place(struct member *a, double *work, ptrdiff_t m) {
    a->m = m, a->n_blocks = round_up(m) / LANES, a->n_panels = round_up(m + a->q) / LANES;
    a->lowest = work;
    a->records = a->lowest + LANES;
    a->panels = a->records + RECORD * a->n_blocks;
}

/* Room for members of up to so many columns, without that for their factors. */
static struct member member_room(struct scratch *room, ptrdiff_t largest, ptrdiff_t q) {
    struct member a = {.q = q, .own = take(room, largest + LANES), .skipped = take(room, largest)};
    a.lengths = take(room, largest), a.spare = take(room, LANES * round_up(largest));
    a.solutions = take(room, round_up(largest) * q);
    return a;
}

INLINE double *panel_of(const struct member *a, ptrdiff_t r) { return a->panels + panel_offset(r, a->n_blocks); }

/* Row i of the matrix, or right-hand side i - m, whose entries are LANES apart. */
INLINE double *row_of(const struct member *a, ptrdiff_t i) { return panel_of(a, i / LANES) + i % LANES; }

/* Copy list i, padded to whole panels by its own last index, which brings in no foreign NaN; its length. */
static ptrdiff_t copy_padded(int64_t *out, const struct lists *lists, ptrdiff_t i) {
    ptrdiff_t count = lists->stop[i] - lists->start[i];
    for (ptrdiff_t j = 0; j < round_up(count); j++)
        out[j] = lists->indices[lists->start[i] + smaller(j, count - 1)];
    return count;
}

/* Block column s of the factor, right-hand sides included. */
static void eliminate_block(const struct member *a, ptrdiff_t s, struct cursor *cursor) {
    ptrdiff_t done = LANES * s;
    double *diagonal = panel_of(a, s), *record = a->records + RECORD * s;
    if (s == 0)
        store(a->lowest, constant(1.0));
    factor_diagonal(diagonal, done, a->m - done, record, a->lowest);
    for (ptrdiff_t r = s + 1; r < a->n_panels; r++) {
        if (r >= a->n_blocks && a->m + a->q - LANES * r <= LANES / 2)
            solve_half_tile(panel_of(a, r), done, diagonal, record);
        else if (cursor && cursor->row < cursor->last_row)
            solve_tile(panel_of(a, r), done, diagonal, record, cursor);
        else
            solve_tile(panel_of(a, r), done, diagonal, record, NULL);
    }
}

/* Read the pivot ratio and the skipped columns of the factored member. Clears the columns after the last variable,
 * whose "pivots" mean nothing, so that they solve to zero. Right-hand sides must be finite: they share its panel. */
static void finish_factor(struct member *a) {
    a->ratio = 1.0, a->n_skipped = 0;
    for (int i = 0; i < LANES && a->m; i++)
        a->ratio = a->lowest[i] < a->ratio ? a->lowest[i] : a->ratio;
    if (!a->m || a->ratio == 0.0)
        return;
    double *record = a->records + RECORD * (a->n_blocks - 1);
    for (ptrdiff_t i = a->m - LANES * (a->n_blocks - 1); i < LANES; i++) {
        store(record + LANES * i, constant(0.0));
        record[TILE + i] = 0.0;
    }
    for (ptrdiff_t j = 0; j < a->m; j++)
        if (a->records[RECORD * (j / LANES) + TILE + j % LANES] == 0.0)
            a->skipped[a->n_skipped++] = j;
}

/* Solve L for count panels of LANES right-hand sides each, so many numbers apart. */
static void solve_lower(const struct member *a, double *panels, ptrdiff_t apart, ptrdiff_t count) {
    for (ptrdiff_t s = 0; s < a->n_blocks; s++)
        for (ptrdiff_t r = 0; r < count; r++)
            solve_tile(panels + apart * r, LANES * s, panel_of(a, s), a->records + RECORD * s, NULL);
}

/* The same for one vector of m numbers in place, in room for a panel. */
static void solve_lower_one(const struct member *a, double *x) {
    for (ptrdiff_t j = round_up(a->m) - 1; j >= 0; j--) {
        double value = j < a->m ? x[j] : 0.0;
        store(x + LANES * j, constant(0.0));
        x[LANES * j] = value;
    }
    solve_lower(a, x, 0, 1);
    for (ptrdiff_t j = 0; j < round_up(a->m); j++)
        x[j] = x[LANES * j];
}

/* Solve L' in place for one solution or AT_ONCE, one after the other, zero at the columns that were skipped; blocks
 * after last are known to be zero. */
static void solve_upper(const struct member *a, ptrdiff_t last, double *x, ptrdiff_t count) {
    for (ptrdiff_t s = last; s >= 0; s--) {
        const double *record = a->records + RECORD * s, *tile = panel_of(a, last) + TILE * s;
        if (count == AT_ONCE)
            back_substitution(record, tile, TILE * last, last - s, x + LANES * s, LANES * a->n_blocks, AT_ONCE);
        else
            back_substitution(record, tile, TILE * last, last - s, x + LANES * s, 0, 1);
    }
}

/* Substitute backwards for all right-hand sides. */
static void solve_member(const struct member *a) {
    ptrdiff_t length = LANES * a->n_blocks, count;
    for (ptrdiff_t t = 0; t < a->q; t++) {
        const double *row = row_of(a, a->m + t);
        for (ptrdiff_t j = 0; j < length; j++)
            a->solutions[length * t + j] = j < a->m ? row[LANES * j] : 0.0;
    }
    for (ptrdiff_t t = 0; t < a->q; t += count) {
        count = a->q - t >= AT_ONCE ? AT_ONCE : 1;
        solve_upper(a, a->n_blocks - 1, a->solutions + length * t, count);
    }
}

/* Solve the factored member: the first solutions as values (m, targets), NaN after a breakdown; of the others, the
 * probes, the largest |x_j| scale[own_j], infinity after one. */
static void solve_targets(struct member *a, ptrdiff_t targets, const double *scale, double *values) {
    ptrdiff_t length = LANES * a->n_blocks;
    int sound = a->ratio > 0.0;
    a->probed = sound ? 0.0 : INFINITY;
    if (sound)
        solve_member(a);
    for (ptrdiff_t t = 0; t < targets; t++)
        for (ptrdiff_t j = 0; j < a->m; j++)
            values[targets * j + t] = sound ? a->solutions[length * t + j] : NAN;
    for (ptrdiff_t t = targets; t < a->q && sound; t++)
        for (ptrdiff_t j = 0; j < a->m; j++) {
            double size = fabs(a->solutions[length * t + j]) * scale[a->own[j]];
            if (!(size <= a->probed)) /* also what is not a number */
                a->probed = size == size ? size : INFINITY;
        }
}
