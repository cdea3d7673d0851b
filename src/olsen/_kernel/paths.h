/* Paths of sizes: factors of members, and sums over pairs of members of their errors at rows left out.
 *
 * A member's factor stays where it was made. Rows of data, eight at a time, are appended to it like right-hand sides,
 * and the forward substitution of the factorisation turns them into Z_l = L^-1 x_l; running sums over the columns give
 * fitted values and leverages of every size. Everything is in terms of root-weighted rows. Rows are independent of each
 * other, so threads share them, and sums over members are always taken in the same order. */
#pragma once

#include "gathered.h"
#include "principal.h"

#define BLOCK_NUMBERS (1 << 16) /* of rows worked on at a time: half of an L2 cache */
#define SMALLEST_BLOCK 2        /* panels */
/* What became of a row that a size fits exactly. */
#define SUMMED 0
#define REFIT 1

/* Numbers of a panel of rows beside members of up to m columns, and how many panels are worked on at a time. */
static ptrdiff_t panel_size(ptrdiff_t m) {
    return LANES * round_up(m);
}

static ptrdiff_t panels_at_once(ptrdiff_t m) {
    return larger(SMALLEST_BLOCK, BLOCK_NUMBERS / larger(panel_size(m), 1));
}

/* Factor one member in place, from the Gram matrix or, without one, from the rows; the smallest pivot ratio, 0 where
 * it is not trusted, or NO_MEMORY. spare: AT_ONCE solutions. */
static double factor_member(const struct member *a, const struct gram *gram, const struct source *rows,
                            const struct data *data, const double *scale, const int64_t *own, const struct slab *z,
                            int64_t *skipped, double *spare) {
    ptrdiff_t m = a->m;
    if (!gram->G)
        build_gram(a, rows, own, z);
    for (ptrdiff_t s = 0; s < a->n_blocks; s++) {
        if (gram->G)
            gather_block(a, s, gram, own);
        eliminate_block(a, s, NULL);
    }
    double ratio = m ? pivot_ratio(a) : 1.0;
    ptrdiff_t count = ratio > 0.0 ? find_skipped(a, skipped) : 0;
    if (count == 0)
        return ratio;
    double *W = malloc(sizeof *W * (count * m + m + data->n));
    if (!W)
        return NO_MEMORY;
    double *lengths = W + count * m, *residual = lengths + m;
    for (ptrdiff_t j = 0; j < m; j++)
        lengths[j] = scale[own[j]];
    find_relations(a, skipped, count, W, spare);
    int trusted = relations_hold(data, own, W, m, skipped, count, lengths, residual);
    free(W);
    return trusted ? ratio : 0.0;
}

static int factor_members(struct call *call) {
    const struct argument *range = get(call, "range");
    struct lists features = LISTS(features);
    struct gram gram = {LENGTH(p), LENGTH(q), LENGTH(g) ? ARRAY(G) : NULL, ARRAY(C)};
    struct data data = {LENGTH(n), gram.q, ARRAY(A), ARRAY(Y), ARRAY(far), NUMBER(relative)};
    const double *scale = ARRAY(scale);
    double *store = ARRAY(store), *ratios = ARRAY(ratios);
    ptrdiff_t largest = features.longest, n_rows = COUNT(rows);
    ptrdiff_t size = gram.G ? 0 : slab_size(round_up(largest + gram.q) / LANES);
    if ((gram.G && (LENGTH(g) != gram.p || LENGTH(c) != gram.p)) || n_rows < 0 || n_rows > data.n ||
        LENGTH(s) < size_of_member(largest, gram.q))
        return MISMATCH;
    struct scratch room;
    if (reserve(&room, size + DEPTH + n_rows + (AT_ONCE + 3) * (largest + LANES)))
        return NO_MEMORY;
    double *slab = take(&room, size), *spare = take(&room, AT_ONCE * round_up(largest));
    int64_t *own = take(&room, largest + LANES), *skipped = take(&room, largest), *own_rows = take(&room, DEPTH);
    int64_t *silent = take(&room, largest), *rows = take(&room, n_rows);
    struct source from = {data.A, data.Y, 1, data.n, rows, NULL, n_rows, 0};
    int status = DONE;
    for (ptrdiff_t l = 0; l < n_rows; l++)
        rows[l] = l;
    for (ptrdiff_t i = range->begin; i < range->end && !status; i++) {
        ptrdiff_t start = features.start[i], m = features.stop[i] - start;
        struct member a = member_at(store + LENGTH(s) * i, m, gram.q);
        struct slab z = slab_at(slab, a.n_panels, own_rows, silent);
        copy_padded(own, features.indices + start, m);
        ratios[i] = factor_member(&a, &gram, &from, &data, scale, own, &z, skipped, spare);
        status = ratios[i] == NO_MEMORY ? NO_MEMORY : DONE;
    }
    free(room.base);
    return status;
}

/* Rows at which errors are summed, and where. */
struct pair_sums {
    ptrdiff_t n, q, padded, largest; /* largest: columns of a member */
    int own_rows;                    /* whether members were given these rows, which are then left out */
    const double *A;                 /* (p, padded) */
    const double *Y;                 /* (padded, q) */
    const double *share, *root;      /* (padded,): of every row in the means; of its weight */
    double *rows;                    /* panels at work, and one more */
    double *total, *square, *pair_square; /* (slots, q, padded) */
    int64_t *states;                      /* (padded,): what became of rows that are fitted exactly */
};

/* Turn count panels of rows, from row first on, into Z. */
static void solve_rows(const struct member *a, const struct pair_sums *given, const int64_t *cols, ptrdiff_t first,
                       ptrdiff_t count, double *Z, ptrdiff_t panel) {
    for (ptrdiff_t r = 0; r < count; r++) {
        for (ptrdiff_t j = 0; j < a->m; j++)
            store(Z + panel * r + LANES * j, load(given->A + given->padded * cols[j] + first + LANES * r));
        memset(Z + panel * r + LANES * a->m, 0, sizeof *Z * LANES * (round_up(a->m) - a->m));
    }
    for (ptrdiff_t s = 0; s < a->n_blocks; s++)
        for (ptrdiff_t r = 0; r < count; r++)
            solve_tile(Z + panel * r, LANES * s, panel_of(a, s), a->records + RECORD * s, NULL);
}

/* One member's view of a block of rows. */
struct block {
    const struct member *a;
    const int64_t *cols, *sizes;
    ptrdiff_t n_sizes, width; /* width: rows of e */
    const double *z;          /* (q, m) */
    double *e;                /* (sizes, q, width) */
};

/* Errors of eight rows, from Z of these rows, for all sizes; exact: the first size, or -1, that fits a row exactly.
 *
 *     e_l(m) = (y_l - sum_{j<=m} z_j Z_jl) / (1 - share_l - sum_{j<=m} Z_jl^2)
 *
 * Rows that the member was not given are not left out: the divisor is one. */
static void running_sums(const struct block *b, const struct pair_sums *given, const double *Z, ptrdiff_t first,
                         ptrdiff_t place, double *target, ptrdiff_t exact[LANES]) {
    ptrdiff_t q = given->q, j = 0;
    double left[LANES];
    for (int i = 0; i < LANES; i++) {
        exact[i] = -1;
        left[i] = 1.0 - given->share[first + i];
        for (ptrdiff_t t = 0; t < q; t++)
            target[LANES * t + i] = given->Y[q * (first + i) + t];
    }
    for (ptrdiff_t s = 0; s < b->n_sizes; s++) {
        for (; j < b->sizes[s]; j++) {
            const double *of_column = Z + LANES * j;
            if (given->own_rows)
                for (int i = 0; i < LANES; i++)
                    left[i] -= of_column[i] * of_column[i];
            for (ptrdiff_t t = 0; t < q; t++)
                for (int i = 0; i < LANES; i++)
                    target[LANES * t + i] -= b->z[b->a->m * t + j] * of_column[i];
        }
        for (int i = 0; i < LANES; i++)
            if (left[i] <= EXACT_FIT && exact[i] < 0)
                exact[i] = s;
        for (ptrdiff_t t = 0; t < q; t++)
            for (int i = 0; i < LANES; i++)
                b->e[b->width * (q * s + t) + place + i] = target[LANES * t + i] / left[i];
    }
}

/* Errors of a row that size s and those after it fit exactly; REFIT where deleting it costs no rank.
 *
 * With p = G^-1 x_l the data have X p = the row of the hat matrix, one at l and zero elsewhere. More columns change
 * nothing about that, so p serves all larger sizes, and the solutions without the row are those of Greville (see
 * _members/path.py): e_l = p'b / p'p, with p'b = (L^-1 p)' z, a running sum. scratch: n + 2 m numbers. */
static int fill_exact(const struct block *b, const struct pair_sums *given, const double *Z, int in_panel,
                      ptrdiff_t row, ptrdiff_t s, ptrdiff_t place, double *spare, double *scratch) {
    ptrdiff_t m = b->a->m, n = given->n, first = b->sizes[s];
    double *hat = scratch, *p = hat + n, *u = p + m, off_diagonal = 0.0, square = 0.0;
    for (ptrdiff_t j = 0; j < round_up(m); j++)
        spare[j] = j < first ? Z[LANES * j + in_panel] : 0.0;
    solve_upper(b->a, spare);
    memcpy(p, spare, sizeof *p * m);
    for (ptrdiff_t l = 0; l < n; l++)
        hat[l] = sqrt(given->share[l] * given->share[row]);
    for (ptrdiff_t j = 0; j < first; j++)
        if (p[j] != 0.0)
            for (ptrdiff_t l = 0; l < n; l++)
                hat[l] += p[j] * given->A[given->padded * b->cols[j] + l];
    hat[row] = 0.0;
    off_diagonal = dot_in_order(hat, hat, n);
    if (!(off_diagonal <= RANK_COST * n))
        return REFIT;
    memset(u, 0, sizeof *u * m);
    solve_lower(b->a, p, u);
    square = dot_in_order(p, p, m);
    for (ptrdiff_t t = 0; t < given->q; t++) {
        double total = 0.0;
        for (ptrdiff_t i = s, j = 0; i < b->n_sizes; i++) {
            for (; j < b->sizes[i]; j++)
                total += u[j] * b->z[m * t + j];
            b->e[b->width * (given->q * i + t) + place] = total / square;
        }
    }
    return SUMMED;
}

/* Errors of count panels of rows by one member, in root-weighted terms divided by the roots. */
static void member_errors(struct block *b, const struct pair_sums *given, ptrdiff_t first, ptrdiff_t count,
                          double *scratch) {
    ptrdiff_t m = b->a->m, q = given->q, panel = panel_size(given->largest);
    double *Z = given->rows, *spare = Z + panel * count;
    double *z = scratch, *target = z + q * m, *more = target + LANES * q;
    solve_rows(b->a, given, b->cols, first, count, Z, panel);
    for (ptrdiff_t t = 0; t < q; t++)
        for (ptrdiff_t j = 0; j < m; j++)
            z[m * t + j] = right_hand_side(b->a, t)[LANES * j];
    b->z = z;
    for (ptrdiff_t r = 0; r < count; r++) {
        ptrdiff_t exact[LANES];
        running_sums(b, given, Z + panel * r, first + LANES * r, LANES * r, target, exact);
        for (int i = 0; i < LANES; i++) {
            ptrdiff_t row = first + LANES * r + i;
            if (exact[i] >= 0 && row < given->n) {
                int found = fill_exact(b, given, Z + panel * r, i, row, exact[i], LANES * r + i, spare, more);
                given->states[row] = larger(given->states[row], found);
            }
        }
    }
    for (ptrdiff_t i = 0; i < q * b->n_sizes; i++)
        for (ptrdiff_t l = 0; l < LANES * count; l++)
            b->e[b->width * i + l] /= given->root[first + l];
}

static void add_pair(const struct pair_sums *given, ptrdiff_t slot, ptrdiff_t n_sizes, ptrdiff_t first, ptrdiff_t count,
                     const double *restrict e0, const double *restrict e1, ptrdiff_t width) {
    for (ptrdiff_t i = 0; i < given->q * n_sizes; i++) {
        ptrdiff_t at = given->padded * (given->q * slot + i) + first;
        double *restrict total = given->total + at, *restrict square = given->square + at;
        double *restrict pair_square = given->pair_square + at;
        for (ptrdiff_t l = 0; l < count; l++) {
            double a = e0[width * i + l], b = e1[width * i + l], mean = 0.5 * (a + b);
            total[l] += a + b;
            square[l] += a * a + b * b;
            pair_square[l] += mean * mean;
        }
    }
}

/* Whether a pair is there, and has equally many sizes for both members, which fit them and find place in the sums. */
static int is_pair(const struct call *call, ptrdiff_t pair) {
    struct lists features = LISTS(features), sizes = LISTS(sizes);
    const int64_t *slots = ARRAY(slots);
    if (pair < 0 || pair >= LENGTH(h) || 2 * pair + 1 >= LENGTH(k))
        return 0;
    for (ptrdiff_t i = 2 * pair; i < 2 * pair + 2; i++)
        for (ptrdiff_t s = sizes.start[i]; s < sizes.stop[i]; s++)
            if (sizes.indices[s] > features.stop[i] - features.start[i])
                return 0;
    ptrdiff_t count = sizes.stop[2 * pair] - sizes.start[2 * pair];
    return sizes.stop[2 * pair + 1] - sizes.start[2 * pair + 1] == count && slots[pair] >= 0 &&
           slots[pair] <= LENGTH(z) - count;
}

/* Add the pairs in use for the panels of rows begin to end, as many at a time as the cache holds. */
static int sum_pairs(struct call *call) {
    struct lists features = LISTS(features), sizes = LISTS(sizes);
    const int64_t *use = ARRAY(use), *slots = ARRAY(slots);
    double *store = ARRAY(store);
    ptrdiff_t largest = features.longest, q = LENGTH(q), n = COUNT(rows), begin = COUNT(begin), end = COUNT(end);
    if (LENGTH(n) % LANES || n < 0 || n > LENGTH(n) || begin < 0 || end > LENGTH(n) / LANES ||
        LENGTH(s) < size_of_member(largest, q))
        return MISMATCH;
    for (ptrdiff_t k = 0; k < LENGTH(u); k++)
        if (!is_pair(call, use[k]))
            return MISMATCH;
    ptrdiff_t panels = smaller(panels_at_once(largest), larger(end - begin, 1)), width = LANES * panels;
    ptrdiff_t half = sizes.longest * q * width, more = q * (largest + LANES) + n + 2 * largest;
    struct scratch room;
    if (reserve(&room, (panels + 1) * panel_size(largest) + 2 * half + more))
        return NO_MEMORY;
    struct pair_sums sums = {n, q, LENGTH(n), largest, NUMBER(own_rows) != 0.0, ARRAY(A), ARRAY(Y), ARRAY(share),
                             ARRAY(root), take(&room, (panels + 1) * panel_size(largest)), ARRAY(total), ARRAY(square),
                             ARRAY(pair_square), ARRAY(states)};
    double *e = take(&room, 2 * half), *scratch = take(&room, more);
    for (ptrdiff_t start = begin; start < end; start += panels) {
        ptrdiff_t now = smaller(panels, end - start), first = LANES * start;
        for (ptrdiff_t k = 0; k < LENGTH(u); k++) {
            ptrdiff_t n_sizes = 0;
            for (ptrdiff_t side = 0, i = 2 * use[k]; side < 2; side++, i++) {
                struct member a = member_at(store + LENGTH(s) * i, features.stop[i] - features.start[i], q);
                n_sizes = sizes.stop[i] - sizes.start[i];
                struct block b = {&a, features.indices + features.start[i], sizes.indices + sizes.start[i], n_sizes,
                                  width, NULL, e + side * half};
                member_errors(&b, &sums, first, now, scratch);
            }
            add_pair(&sums, slots[use[k]], n_sizes, first, LANES * now, e, e + half, width);
        }
    }
    free(room.base);
    return DONE;
}

/* Numbers that the factor of a member takes. */
static int member_size(struct call *call) {
    ptrdiff_t columns = COUNT(columns), targets = COUNT(targets);
    if (columns < 0 || columns > MOST_COLUMNS || targets < 0 || targets > MOST_COLUMNS)
        return MISMATCH;
    call->result = size_of_member(columns, targets);
    return DONE;
}
