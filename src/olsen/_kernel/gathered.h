/* Members with data of their own: submatrices gathered from X, squared and solved in one workspace.
 *
 * The rows come in slabs. The mean of the first slab serves as a provisional origin, which removes the bulk of any
 * offset before squaring; the remainder is corrected exactly at the end, so the data are gathered only once. */
#pragma once

#include "dependent.h"

/* Rows gathered at a time: a panel of that depth (16 kB) stays in the L1 cache as the broadcast operand. */
#define DEPTH 256
#define HUGE_PIVOT 1e30 /* of a column that is to have no part */

/* Rows and targets that a member is squared from: X (n, p) of any strides, Y (n, q). */
struct source {
    const double *X, *Y;
    ptrdiff_t row_stride, col_stride;
    const int64_t *rows;   /* (n_rows,) */
    const double *weights; /* (n_rows,), or NULL */
    ptrdiff_t n_rows;
    int centre;
};

/* Room beside a member's panels: means and sums (a number for every row of the panels), roots, one slab of rows. */
struct slab {
    double *shift, *total, *roots, *rows;
    int64_t *own_rows; /* (DEPTH,) */
    int64_t *silent;   /* (m,): whether a column is constant */
};

static ptrdiff_t slab_size(ptrdiff_t n_panels) {
    return LANES * n_panels * (DEPTH + 2) + DEPTH;
}

static struct slab slab_at(double *work, ptrdiff_t n_panels, int64_t *own_rows, int64_t *silent) {
    ptrdiff_t length = LANES * n_panels;
    return (struct slab){work, work + length, work + 2 * length, work + 2 * length + DEPTH, own_rows, silent};
}

/* Gather n_rows rows (padded to whole tiles) of the variables and of Y into the panels of the slab. */
static void gather_rows(const struct member *a, const struct source *from, const int64_t *cols, ptrdiff_t n_rows,
                        const struct slab *z) {
    for (ptrdiff_t r = 0; r < a->n_blocks; r++)
        for (ptrdiff_t i = 0; i < n_rows; i += LANES)
            gather_tile(z->rows + LANES * (DEPTH * r + i), from->X, z->own_rows + i, from->row_stride,
                        cols + LANES * r, from->col_stride);
    for (ptrdiff_t t = 0; t < a->q; t++) {
        double *first = z->rows + LANES * DEPTH * ((a->m + t) / LANES) + (a->m + t) % LANES;
        for (ptrdiff_t i = 0; i < n_rows; i++)
            first[LANES * i] = from->Y[a->q * z->own_rows[i] + t];
    }
}

/* Weighted mean of the rows of a panel: a plain one would follow rows far out that count for nothing. */
static void weighted_mean(double *mean, const double *panel, ptrdiff_t depth, const double *roots) {
    double weight = 0.0;
    for (ptrdiff_t i = 0; i < depth; i++) {
        double w = roots[i] * roots[i];
        weight += w;
        for (int l = 0; l < LANES; l++)
            mean[l] += w * panel[LANES * i + l];
    }
    for (int l = 0; l < LANES; l++)
        mean[l] /= weight;
}

/* Shift and scale the gathered rows and add their Gram matrix to the panels of the member. */
static void accumulate_gram(const struct member *a, ptrdiff_t depth, const struct slab *z, int find_origin) {
    for (ptrdiff_t r = 0; r < a->n_panels; r++) {
        double *panel = z->rows + LANES * DEPTH * r;
        if (find_origin)
            weighted_mean(z->shift + LANES * r, panel, depth, z->roots);
        shift_and_scale(panel, depth, z->shift + LANES * r, z->roots, z->total + LANES * r);
    }
    for (ptrdiff_t s = 0; s < a->n_blocks; s++) {
        const double *here = z->rows + LANES * DEPTH * s;
        for (ptrdiff_t r = s; r < a->n_panels; r++)
            add_gram_tile(panel_of(a, r) + TILE * s, z->rows + LANES * DEPTH * r, here, depth);
    }
}

/* Turn moments about the shift into moments about the means, and the shift into the means. */
static void remove_means(const struct member *a, const struct slab *z, double weight) {
    double *delta = z->rows; /* the slab is no longer needed */
    for (ptrdiff_t i = 0; i < LANES * a->n_panels; i++) {
        delta[i] = z->total[i] / weight;
        z->shift[i] += delta[i];
    }
    for (ptrdiff_t s = 0; s < a->n_blocks; s++)
        for (ptrdiff_t r = s; r < a->n_panels; r++) {
            double *tile = panel_of(a, r) + TILE * s;
            for (int c = 0; c < LANES; c++)
                for (int l = 0; l < LANES; l++)
                    tile[LANES * c + l] -= z->total[LANES * s + c] * delta[LANES * r + l];
        }
}

/* Find columns of which centring leaves nothing but rounding; a huge pivot keeps them out of the factor. The threshold
 * is that of _trust.constant_columns. */
static void silence_constants(const struct member *a, const struct slab *z, double weight) {
    for (ptrdiff_t j = 0; j < a->m; j++) {
        double *pivot = diagonal_entry(a, j), mean = 16 * EPS * fabs(z->shift[j]);
        z->silent[j] = *pivot <= weight * (mean * mean);
        if (z->silent[j])
            *pivot = HUGE_PIVOT;
    }
}

/* Fill the member's panels with the moments of its data, and the slab with its means. */
static void build_gram(const struct member *a, const struct source *from, const int64_t *cols, const struct slab *z) {
    double weight = 0.0;
    memset(a->panels, 0, sizeof(double) * panel_offset(a->n_panels, a->n_blocks));
    memset(z->shift, 0, sizeof(double) * 2 * LANES * a->n_panels);
    for (ptrdiff_t start = 0; start < from->n_rows; start += DEPTH) {
        ptrdiff_t count = smaller(DEPTH, from->n_rows - start), depth = round_up(count);
        copy_padded(z->own_rows, from->rows + start, count);
        gather_rows(a, from, cols, depth, z);
        memset(z->roots, 0, sizeof(double) * depth);
        for (ptrdiff_t i = 0; i < count; i++) {
            double w = from->weights ? from->weights[start + i] : 1.0;
            weight += w;
            z->roots[i] = sqrt(w);
        }
        accumulate_gram(a, depth, z, from->centre && start == 0);
    }
    if (from->centre) {
        remove_means(a, z, weight);
        silence_constants(a, z, weight);
    }
}

/* Finish a member on its own data, which are made for that; whether the result is trusted, or NO_MEMORY. */
static int finish_on_own_data(const struct member *a, const struct source *from, const int64_t *cols,
                              const struct slab *z, double *lengths, double *values, ptrdiff_t targets, double ratio,
                              double probed, const int64_t *skipped, ptrdiff_t count, double *spare) {
    ptrdiff_t m = a->m, n = from->n_rows;
    struct scratch room;
    if (reserve(&room, m * n + n * targets + 2 * m))
        return NO_MEMORY;
    double *A = take(&room, m * n), *Y = take(&room, n * targets), *far = take(&room, m), weight = 0.0;
    int64_t *all = take(&room, m);
    for (ptrdiff_t i = 0; i < n; i++) {
        double weight_here = from->weights ? from->weights[i] : 1.0, root = sqrt(weight_here);
        const double *row = from->X + from->rows[i] * from->row_stride;
        weight += weight_here;
        for (ptrdiff_t j = 0; j < m; j++)
            A[n * j + i] = root * (row[cols[j] * from->col_stride] - z->shift[j]);
        for (ptrdiff_t t = 0; t < targets; t++)
            Y[targets * i + t] = root * (from->Y[a->q * from->rows[i] + t] - z->shift[m + t]);
    }
    for (ptrdiff_t j = 0; j < m; j++) {
        all[j] = j;
        far[j] = 4 * EPS * fabs(z->shift[j]) * sqrt(weight);
        if (z->silent[j]) {
            memset(A + n * j, 0, sizeof *A * n);
            lengths[j] = 0.0;
        }
    }
    struct data data = {n, targets, A, Y, far, EPS * larger(larger(n, m), 10)};
    int trusted = finish_on_data(a, &data, all, lengths, values, ratio, probed, skipped, count, spare);
    free(room.base);
    return trusted;
}

/* What all members share, and room for one of them. */
struct gathering {
    ptrdiff_t q, targets;
    int on_data;
    const double *scale;
    double *work, *slab, *spare, *lengths;
    int64_t *own, *skipped, *own_rows, *silent;
};

/* Solve one member: values (m, targets), intercepts, pivot ratio and probe. */
static int solve_one_gathered(const struct gathering *with, const struct source *from, const int64_t *cols, ptrdiff_t m,
                              double *values, double *intercepts, double *ratio, double *probed) {
    ptrdiff_t targets = with->targets;
    struct member a = member_at(with->work, m, with->q);
    struct slab z = slab_at(with->slab, a.n_panels, with->own_rows, with->silent);
    int trusted = 1;
    memset(z.silent, 0, sizeof *z.silent * m);
    copy_padded(with->own, cols, m);
    build_gram(&a, from, with->own, &z);
    for (ptrdiff_t j = 0; j < m; j++)
        with->lengths[j] = sqrt(*diagonal_entry(&a, j));
    for (ptrdiff_t s = 0; s < a.n_blocks; s++)
        eliminate_block(&a, s, NULL);
    *ratio = m ? solve_member(&a) : 1.0;
    read_targets(&a, targets, *ratio, values);
    for (ptrdiff_t j = 0; j < targets * m; j++)
        values[j] = z.silent[j / targets] ? 0.0 : values[j];
    *probed = largest_probe(&a, targets, with->scale, with->own, *ratio);
    ptrdiff_t count = *ratio > 0.0 ? find_skipped(&a, with->skipped) : 0;
    double size = *probed * *probed * from->n_rows;
    if (count || needs_data(*ratio, size)) {
        trusted = with->on_data ? finish_on_own_data(&a, from, with->own, &z, with->lengths, values, targets, *ratio,
                                                     size, with->skipped, count, with->spare)
                                : 0;
        *ratio = trusted ? 1.0 : 0.0;
        *probed = trusted ? 0.0 : INFINITY;
    }
    for (ptrdiff_t t = 0; t < targets; t++) {
        intercepts[t] = from->centre ? z.shift[m + t] : 0.0;
        for (ptrdiff_t j = 0; j < m && from->centre; j++)
            intercepts[t] -= z.shift[j] * values[targets * j + t];
    }
    return trusted == NO_MEMORY ? NO_MEMORY : DONE;
}

static int solve_gathered(struct call *call) {
    const struct argument *range = get(call, "range"), *X = get(call, "X");
    struct lists features = LISTS(features), samples = LISTS(samples);
    const double *weights = LENGTH(w) ? ARRAY(weights) : NULL;
    double *values = ARRAY(values), *intercepts = ARRAY(intercepts), *ratios = ARRAY(ratios), *probed = ARRAY(probed);
    struct gathering with = {.q = LENGTH(q), .targets = LENGTH(t), .scale = ARRAY(scale)};
    ptrdiff_t largest = features.longest, targets = with.targets;
    ptrdiff_t size = size_of_member(largest, with.q), slab = slab_size(round_up(largest + with.q) / LANES);
    if (targets > with.q || LENGTH(v) != get(call, "features")->end ||
        (weights && LENGTH(w) != get(call, "samples")->end))
        return MISMATCH;
    struct scratch room;
    if (reserve(&room, size + slab + DEPTH + (AT_ONCE + 4) * (largest + LANES)))
        return NO_MEMORY;
    with.work = take(&room, size), with.slab = take(&room, slab), with.spare = take(&room, AT_ONCE * round_up(largest));
    with.lengths = take(&room, largest), with.own = take(&room, largest + LANES), with.skipped = take(&room, largest);
    with.own_rows = take(&room, DEPTH), with.silent = take(&room, largest);
    with.on_data = NUMBER(on_data) != 0.0;
    int status = DONE, centre = NUMBER(centre) != 0.0;
    for (ptrdiff_t i = range->begin; i < range->end && !status; i++) {
        ptrdiff_t start = features.start[i], m = features.stop[i] - start, first = samples.start[i];
        struct source from = {X->array, ARRAY(Y), X->begin, X->end, samples.indices + first,
                              weights ? weights + first : NULL, samples.stop[i] - first, centre};
        double *own_values = values + targets * start, *own_intercepts = intercepts + targets * i;
        if (from.n_rows) {
            status = solve_one_gathered(&with, &from, features.indices + start, m, own_values, own_intercepts,
                                        ratios + i, probed + i);
            continue;
        }
        ratios[i] = 0.0, probed[i] = INFINITY; /* without rows there is no solution */
        for (ptrdiff_t j = 0; j < targets * m; j++)
            own_values[j] = NAN;
        for (ptrdiff_t t = 0; t < targets; t++)
            own_intercepts[t] = centre ? NAN : 0.0;
    }
    free(room.base);
    return status;
}
