/* Members with data of their own: submatrices gathered from X, squared and solved in one workspace.
 *
 * The rows come in slabs. The mean of the first slab serves as a provisional origin, which removes the bulk of any
 * offset before squaring; the remainder is corrected exactly at the end, so the data are gathered only once. */
#pragma once

#include "dependent.h"

/* Rows gathered at a time: a panel of that depth (16 kB) stays in the L1 cache as the broadcast operand. */
#define DEPTH 256
#define HUGE_PIVOT 1e30 /* of a column that is to have no part */

/* Rows and targets that a member is squared from: X (n, p) of any strides, Y (n, q); and room for one slab of rows. */
struct source {
    const double *X, *Y;
    ptrdiff_t row_stride, col_stride, n_rows;
    const int64_t *rows;   /* (n_rows,), or NULL: the first ones */
    const double *weights; /* (n_rows,), or NULL */
    int centre;
    double penalty; /* fraction of its squared length that every column gets added */
    double *shift, *total; /* means and sums, a number for every row of the panels */
    double *roots, *slab;  /* (DEPTH,) of the weights; (panels, DEPTH, LANES) */
    int64_t *own_rows;     /* (DEPTH,) */
};

static void take_slab(struct source *from, struct scratch *room, ptrdiff_t n_panels) {
    from->shift = take(room, LANES * n_panels), from->total = take(room, LANES * n_panels);
    from->roots = take(room, DEPTH), from->own_rows = take(room, DEPTH);
    from->slab = take(room, LANES * n_panels * DEPTH);
}

/* Gather n_rows rows (padded to whole tiles) of the variables and of Y into the panels of the slab. */
static void gather_rows(const struct member *a, const struct source *from, ptrdiff_t n_rows) {
    for (ptrdiff_t r = 0; r < a->n_blocks; r++)
        for (ptrdiff_t i = 0; i < n_rows; i += LANES)
            gather_tile(from->slab + LANES * (DEPTH * r + i), from->X, from->own_rows + i, from->row_stride,
                        a->own + LANES * r, from->col_stride);
    for (ptrdiff_t t = 0; t < a->q; t++) {
        double *first = from->slab + LANES * DEPTH * ((a->m + t) / LANES) + (a->m + t) % LANES;
        for (ptrdiff_t i = 0; i < n_rows; i++)
            first[LANES * i] = from->Y[a->q * from->own_rows[i] + t];
    }
}

/* Replace the rows z of a panel by root * (z - shift) and add root^2 * (z - shift) to total. The shift is given, or to
 * be found: the weighted mean, as a plain one would follow rows far out that count for nothing. */
static void shift_and_scale(double *panel, ptrdiff_t depth, const double *roots, double *shift, double *total,
                            int find_shift) {
    double weight = 0.0;
    column sum = constant(0.0);
    for (ptrdiff_t i = 0; i < depth && find_shift; i++) {
        weight += roots[i] * roots[i];
        sum = plus(sum, roots[i] * roots[i], load(panel + LANES * i));
    }
    if (find_shift)
        store(shift, times(1.0 / weight, sum));
    column origin = load(shift);
    sum = load(total);
    for (ptrdiff_t i = 0; i < depth; i++) {
        column row = times(roots[i], subtract(load(panel + LANES * i), origin));
        store(panel + LANES * i, row);
        sum = plus(sum, roots[i], row);
    }
    store(total, sum);
}

/* Add Z_r' Z_s to every tile; a panel of the slab holds LANES columns of Z, one row after the other. */
static void accumulate_gram(const struct member *a, const double *slab, ptrdiff_t depth) {
    for (ptrdiff_t s = 0; s < a->n_blocks; s++)
        for (ptrdiff_t r = s; r < a->n_panels; r++) {
            double *tile = panel_of(a, r) + TILE * s;
            column columns[LANES];
            EACH(c, LANES) columns[c] = load(tile + LANES * c);
            add_products(columns, slab + LANES * DEPTH * r, slab + LANES * DEPTH * s, depth, 1, NULL);
            EACH(c, LANES) store(tile + LANES * c, columns[c]);
        }
}

/* Turn moments about the shift into moments about the means, and the shift into the means. */
static void remove_means(const struct member *a, const struct source *from, double weight) {
    for (ptrdiff_t i = 0; i < LANES * a->n_panels; i++)
        from->shift[i] += from->total[i] / weight;
    for (ptrdiff_t s = 0; s < a->n_blocks; s++)
        for (ptrdiff_t r = s; r < a->n_panels; r++)
            EACH(c, LANES) {
                double *entries = panel_of(a, r) + TILE * s + LANES * c, delta = from->total[LANES * s + c] / weight;
                store(entries, minus(load(entries), delta, load(from->total + LANES * r)));
            }
}

/* Fill the member's panels with the moments of its data, and the shift with its means; then factor. */
static void factor_gathered(struct member *a, const struct source *from) {
    double weight = 0.0;
    memset(a->panels, 0, sizeof(double) * panel_offset(a->n_panels, a->n_blocks));
    memset(from->shift, 0, sizeof(double) * LANES * a->n_panels);
    memset(from->total, 0, sizeof(double) * LANES * a->n_panels);
    for (ptrdiff_t start = 0; start < from->n_rows; start += DEPTH) {
        ptrdiff_t count = smaller(DEPTH, from->n_rows - start), depth = round_up(count);
        for (ptrdiff_t i = 0; i < depth; i++) {
            ptrdiff_t l = start + smaller(i, count - 1);
            double w = i >= count ? 0.0 : from->weights ? from->weights[l] : 1.0;
            from->own_rows[i] = from->rows ? from->rows[l] : l;
            from->roots[i] = sqrt(w);
            weight += w;
        }
        gather_rows(a, from, depth);
        for (ptrdiff_t r = 0; r < a->n_panels; r++)
            shift_and_scale(from->slab + LANES * DEPTH * r, depth, from->roots, from->shift + LANES * r,
                            from->total + LANES * r, from->centre && start == 0);
        accumulate_gram(a, from->slab, depth);
    }
    if (from->centre)
        remove_means(a, from, weight);
    for (ptrdiff_t j = 0; j < a->m; j++) {
        double *pivot = row_of(a, j) + LANES * j, mean = 16 * EPS * fabs(from->shift[j]); /* as constant_columns */
        int constant_column = (from->centre || from->penalty > 0.0) && *pivot <= weight * (mean * mean);
        a->lengths[j] = constant_column ? 0.0 : sqrt(*pivot);
        *pivot = constant_column ? HUGE_PIVOT : (1.0 + from->penalty) * *pivot;
    }
    for (ptrdiff_t s = 0; s < a->n_blocks; s++)
        eliminate_block(a, s, NULL);
    finish_factor(a);
}

/* Finish a member on its own data, which are made for that. */
static int finish_on_own_data(struct member *a, const struct source *from, double inflation, double *values,
                              ptrdiff_t targets) {
    ptrdiff_t m = a->m, n = from->n_rows;
    struct scratch room = {.count = 0};
    double *A = take(&room, m * n), *Y = take(&room, n * targets), *far = take(&room, m), weight = 0.0;
    for (ptrdiff_t i = 0; i < n && !room.failed; i++) {
        double weight_here = from->weights ? from->weights[i] : 1.0, root = sqrt(weight_here);
        const double *row = from->X + from->rows[i] * from->row_stride;
        weight += weight_here;
        for (ptrdiff_t j = 0; j < m; j++)
            A[n * j + i] = a->lengths[j] ? root * (row[a->own[j] * from->col_stride] - from->shift[j]) : 0.0;
        for (ptrdiff_t t = 0; t < targets; t++)
            Y[targets * i + t] = root * (from->Y[a->q * from->rows[i] + t] - from->shift[m + t]);
    }
    for (ptrdiff_t j = 0; j < m && !room.failed; j++) {
        a->own[j] = j;
        far[j] = 4 * EPS * fabs(from->shift[j]) * sqrt(weight);
    }
    struct data data = {n, targets, A, Y, far, EPS * larger(larger(n, m), 10)};
    return release(&room, room.failed ? NO_MEMORY : finish_on_data(a, &data, inflation, values));
}

static int solve_gathered(struct call *call) {
    const struct argument *range = get(call, "range"), *X = get(call, "X");
    struct lists features = LISTS(features), samples = LISTS(samples);
    const double *weights = LENGTH(w) ? ARRAY(weights) : NULL, *scale = ARRAY(scale);
    double *values = ARRAY(values), *intercepts = ARRAY(intercepts), *ratios = ARRAY(ratios), *probed = ARRAY(probed);
    ptrdiff_t targets = LENGTH(t);
    if (targets > LENGTH(q) || LENGTH(v) != features.count || (weights && LENGTH(w) != samples.count))
        return MISMATCH;
    struct scratch room = {.count = 0};
    struct member a = member_room(&room, features.longest, LENGTH(q));
    double *work = take(&room, size_of_member(features.longest, a.q));
    struct source from = {.X = X->array, .Y = ARRAY(Y), .row_stride = X->begin, .col_stride = X->end,
                          .centre = NUMBER(centre) != 0.0, .penalty = NUMBER(penalty)};
    take_slab(&from, &room, round_up(features.longest + a.q) / LANES);
    int status = DONE;
    for (ptrdiff_t i = range->begin; i < range->end && !status && !room.failed; i++) {
        double *own_values = values + targets * features.start[i];
        from.rows = samples.indices + samples.start[i], from.n_rows = samples.stop[i] - samples.start[i];
        from.weights = weights ? weights + samples.start[i] : NULL;
        place(&a, work, copy_padded(a.own, &features, i));
        factor_gathered(&a, &from);
        a.ratio = from.n_rows ? a.ratio : 0.0; /* without rows there is no solution */
        solve_targets(&a, targets, scale, own_values);
        for (ptrdiff_t j = 0; j < targets * a.m; j++)
            own_values[j] = a.lengths[j / targets] ? own_values[j] : 0.0;
        double inflation = a.probed * a.probed * from.n_rows;
        if (from.penalty == 0.0 && needs_data(&a, inflation))
            status = finish_on_own_data(&a, &from, inflation, own_values, targets);
        ratios[i] = a.ratio, probed[i] = a.probed;
        for (ptrdiff_t t = 0; t < targets; t++) {
            double *intercept = intercepts + targets * i + t;
            *intercept = from.centre ? from.shift[a.m + t] : 0.0;
            for (ptrdiff_t j = 0; j < a.m && from.centre; j++)
                *intercept -= from.shift[j] * own_values[targets * j + t];
        }
    }
    return release(&room, status);
}
