/* Paths of sizes: factors of members, and sums over pairs of members of their errors at rows left out.
 *
 * A member's factor stays where it was made. Rows of data, eight at a time, are appended to it like right-hand sides,
 * and the forward substitution of the factorisation turns them into Z_l = L^-1 x_l; running sums over the columns give
 * fitted values and leverages of every size. Everything is in terms of root-weighted rows. Rows are independent of each
 * other, so threads share them, and sums over members are always taken in the same order. */
#pragma once

#include "gathered.h"
#include "principal.h"

#define BLOCK_NUMBERS (1 << 16) /* of rows worked on at a time, two panels at least: half of an L2 cache */

static int factor_members(struct call *call) {
    const struct argument *range = get(call, "range");
    struct lists features = LISTS(features);
    struct gram gram = {LENGTH(p), ARRAY(G), ARRAY(C)};
    struct data data = {LENGTH(n), LENGTH(q), ARRAY(A), ARRAY(Y), ARRAY(far), NUMBER(relative)};
    struct source rows = {.X = data.A, .Y = data.Y, .row_stride = 1, .col_stride = data.n, .n_rows = COUNT(rows)};
    const double *scale = ARRAY(scale);
    double *kept = ARRAY(store), *ratios = ARRAY(ratios);
    int from_gram = LENGTH(g) > 0, status = DONE;
    if ((from_gram && (LENGTH(g) != gram.p || LENGTH(c) != gram.p)) || rows.n_rows < 0 || rows.n_rows > data.n ||
        LENGTH(s) < size_of_member(features.longest, LENGTH(q)))
        return MISMATCH;
    struct scratch room = {.count = 0};
    struct member a = member_room(&room, features.longest, LENGTH(q));
    take_slab(&rows, &room, from_gram ? 0 : round_up(features.longest + a.q) / LANES);
    for (ptrdiff_t i = range->begin; i < range->end && !status && !room.failed; i++) {
        place(&a, kept + LENGTH(s) * i, copy_padded(a.own, &features, i));
        if (from_gram)
            factor_principal(&a, &gram, NULL);
        else
            factor_gathered(&a, &rows);
        for (ptrdiff_t j = 0; j < a.m; j++)
            a.lengths[j] = scale[a.own[j]];
        if (a.n_skipped)
            status = finish_on_data(&a, &data, 0.0, NULL);
        ratios[i] = a.ratio;
    }
    return release(&room, status);
}

/* Rows at which the errors of one member after the other are summed, and where. */
struct sums {
    ptrdiff_t n, q, padded;               /* rows, without and with padding, and targets */
    int own_rows;                         /* whether members were given these rows, which are then left out */
    const double *A, *Y;                  /* (p, padded), (padded, q) */
    const double *share, *root;           /* (padded,): of every row in the means; of its weight */
    double *total, *square, *pair_square; /* (slots, q, padded) */
    int64_t *states;                      /* (padded,): 1 where an exactly fitted row needs a refit without it */
    struct member a;
    const int64_t *sizes;
    ptrdiff_t n_sizes, width;     /* width: rows of the errors e (sizes, q, width) */
    double *Z, *z, *hat, *target; /* rows at work; (q, m): right-hand sides of the member; (n,); (q, LANES) */
};

/* Errors of eight rows, from Z of these rows, for all sizes; exact: the first size, or -1, that fits a row exactly.
 *
 *     e_l(m) = (y_l - sum_{j<=m} z_j Z_jl) / (1 - share_l - sum_{j<=m} Z_jl^2)
 *
 * Rows that the member was not given are not left out: the divisor is one. */
static void running_sums(const struct sums *sums, const double *Z, ptrdiff_t first, double *e, ptrdiff_t exact[LANES]) {
    ptrdiff_t q = sums->q, m = sums->a.m;
    double left[LANES], *target = sums->target;
    for (int i = 0; i < LANES; i++) {
        exact[i] = -1;
        left[i] = 1.0 - sums->share[first + i];
        for (ptrdiff_t t = 0; t < q; t++)
            target[LANES * t + i] = sums->Y[q * (first + i) + t];
    }
    for (ptrdiff_t s = 0, j = 0; s < sums->n_sizes; s++) {
        for (; j < sums->sizes[s]; j++) {
            for (int i = 0; i < LANES && sums->own_rows; i++)
                left[i] -= Z[LANES * j + i] * Z[LANES * j + i];
            for (ptrdiff_t t = 0; t < q; t++)
                for (int i = 0; i < LANES; i++)
                    target[LANES * t + i] -= sums->z[m * t + j] * Z[LANES * j + i];
        }
        for (int i = 0; i < LANES; i++)
            if (left[i] <= EXACT_FIT && exact[i] < 0)
                exact[i] = s;
        for (ptrdiff_t t = 0; t < q; t++)
            for (int i = 0; i < LANES; i++)
                e[sums->width * (q * s + t) + i] = target[LANES * t + i] / left[i];
    }
}

/* Errors of a row that size s and those after it fit exactly; 1 where deleting it costs no rank: a refit has to tell.
 *
 * With p = G^-1 x_l the data have X p = the row of the hat matrix, one at l and zero elsewhere. More columns change
 * nothing about that, so p serves all larger sizes, and the solutions without the row are those of Greville (see
 * _members/path.py): e_l = p'b / p'p, with p'b = (L^-1 p)' z, a running sum. Z: those of the row, LANES apart. */
static int fill_exact(const struct sums *sums, const double *Z, ptrdiff_t row, ptrdiff_t s, double *e) {
    const struct member *a = &sums->a;
    ptrdiff_t first = sums->sizes[s];
    double *p = a->spare, *hat = sums->hat;
    for (ptrdiff_t j = 0; j < round_up(a->m); j++)
        p[j] = j < first ? Z[LANES * j] : 0.0;
    solve_upper(a, a->n_blocks - 1, p, 1);
    for (ptrdiff_t l = 0; l < sums->n; l++)
        hat[l] = sqrt(sums->share[l] * sums->share[row]);
    for (ptrdiff_t j = 0; j < first; j++)
        subtract_multiple(hat, -p[j], sums->A + sums->padded * a->own[j], sums->n);
    hat[row] = 0.0;
    if (!(dot(hat, hat, sums->n) <= RANK_COST * sums->n))
        return 1;
    double square = dot(p, p, a->m);
    solve_lower_one(a, p);
    for (ptrdiff_t t = 0; t < sums->q; t++) {
        double total = 0.0;
        for (ptrdiff_t i = s, j = 0; i < sums->n_sizes; i++) {
            for (; j < sums->sizes[i]; j++)
                total += p[j] * sums->z[a->m * t + j];
            e[sums->width * (sums->q * i + t)] = total / square;
        }
    }
    return 0;
}

/* Errors of count panels of rows by the member, in root-weighted terms divided by the roots. */
static void member_errors(const struct sums *sums, ptrdiff_t first, ptrdiff_t count, double *e) {
    const struct member *a = &sums->a;
    ptrdiff_t panel = LANES * round_up(a->m);
    for (ptrdiff_t r = 0; r < count; r++) {
        for (ptrdiff_t j = 0; j < a->m; j++)
            store(sums->Z + panel * r + LANES * j, load(sums->A + sums->padded * a->own[j] + first + LANES * r));
        memset(sums->Z + panel * r + LANES * a->m, 0, sizeof(double) * LANES * (round_up(a->m) - a->m));
    }
    solve_lower(a, sums->Z, panel, count);
    for (ptrdiff_t t = 0; t < sums->q; t++)
        for (ptrdiff_t j = 0; j < a->m; j++)
            sums->z[a->m * t + j] = row_of(a, a->m + t)[LANES * j];
    for (ptrdiff_t r = 0; r < count; r++) {
        ptrdiff_t exact[LANES], row = first + LANES * r;
        const double *Z = sums->Z + panel * r;
        running_sums(sums, Z, row, e + LANES * r, exact);
        for (int i = 0; i < LANES; i++)
            if (exact[i] >= 0 && row + i < sums->n && fill_exact(sums, Z + i, row + i, exact[i], e + LANES * r + i))
                sums->states[row + i] = 1;
    }
    for (ptrdiff_t i = 0; i < sums->q * sums->n_sizes; i++)
        for (ptrdiff_t l = 0; l < LANES * count; l++)
            e[sums->width * i + l] /= sums->root[first + l];
}

static void add_pair(const struct sums *sums, ptrdiff_t slot, ptrdiff_t first, ptrdiff_t count,
                     const double *restrict e0, const double *restrict e1) {
    for (ptrdiff_t i = 0; i < sums->q * sums->n_sizes; i++) {
        ptrdiff_t at = sums->padded * (sums->q * slot + i) + first;
        double *restrict total = sums->total + at, *restrict square = sums->square + at;
        double *restrict pair_square = sums->pair_square + at;
        for (ptrdiff_t l = 0; l < count; l++) {
            double a = e0[sums->width * i + l], b = e1[sums->width * i + l], mean = 0.5 * (a + b);
            total[l] += a + b;
            square[l] += a * a + b * b;
            pair_square[l] += mean * mean;
        }
    }
}

/* Add the pairs that have a slot for the panels of rows begin to end, as many at a time as the cache holds. */
static int sum_pairs(struct call *call) {
    struct lists features = LISTS(features);
    const int64_t *sizes = ARRAY(sizes), *slots = ARRAY(slots);
    double *kept = ARRAY(store);
    ptrdiff_t q = LENGTH(q), n = COUNT(rows), begin = COUNT(begin), end = COUNT(end), n_pairs = LENGTH(h);
    int fits = LENGTH(n) % LANES == 0 && n >= 0 && n <= LENGTH(n) && begin >= 0 && end <= LENGTH(n) / LANES &&
               2 * n_pairs <= LENGTH(k) && LENGTH(s) >= size_of_member(features.longest, q);
    for (ptrdiff_t i = 0; fits && i < 2 * n_pairs; i++) {
        fits = slots[i / 2] <= LENGTH(z) - LENGTH(e);
        for (ptrdiff_t s = 0; fits && s < LENGTH(e); s++)
            fits = sizes[s] <= features.stop[i] - features.start[i];
    }
    if (!fits)
        return MISMATCH;
    ptrdiff_t panel = LANES * round_up(larger(features.longest, 1)), panels = larger(2, BLOCK_NUMBERS / panel);
    panels = smaller(panels, larger(end - begin, 1));
    struct scratch room = {.count = 0};
    struct sums sums = {n, q, LENGTH(n), NUMBER(own_rows) != 0.0, ARRAY(A), ARRAY(Y), ARRAY(share), ARRAY(root),
                        ARRAY(total), ARRAY(square), ARRAY(pair_square), ARRAY(states),
                        member_room(&room, features.longest, q), sizes, LENGTH(e), LANES * panels};
    sums.Z = take(&room, panels * panel), sums.z = take(&room, q * features.longest), sums.hat = take(&room, n);
    sums.target = take(&room, LANES * q);
    double *e[2] = {take(&room, LENGTH(e) * q * sums.width), take(&room, LENGTH(e) * q * sums.width)};
    for (ptrdiff_t start = begin; start < end && !room.failed; start += panels) {
        ptrdiff_t now = smaller(panels, end - start);
        for (ptrdiff_t i = 0; i < 2 * n_pairs; i++) {
            if (slots[i / 2] < 0)
                continue;
            place(&sums.a, kept + LENGTH(s) * i, copy_padded(sums.a.own, &features, i));
            member_errors(&sums, LANES * start, now, e[i % 2]);
            if (i % 2)
                add_pair(&sums, slots[i / 2], LANES * start, LANES * now, e[0], e[1]);
        }
    }
    return release(&room, DONE);
}

/* Numbers that the factor of a member takes. */
static int member_size(struct call *call) {
    ptrdiff_t columns = COUNT(columns), targets = COUNT(targets);
    if (columns < 0 || columns > MOST_COLUMNS || targets < 0 || targets > MOST_COLUMNS)
        return MISMATCH;
    call->result = size_of_member(columns, targets);
    return DONE;
}
