/* Subsets drawn by a determinantal process, from the eigenvectors of its matrix.
 *
 * With L = sum_k w_k v_k v_k', a subset S has probability det(L_SS) / det(I + L). Eigenvector k is kept with probability
 * w_k / (1 + w_k). Of the kept ones, whose rows are u_j, columns are then drawn one after the other, each with
 * probability proportional to what the span of the rows drawn before leaves of |u_j|^2 (Hough, Krishnapur, Peres, Virag
 * 2006). What is left only falls, so column j is proposed in proportion to |u_j|^2 and accepted with the share that is
 * left: a member of s columns takes about s^3 log s operations, whatever the number of columns. Status: exact. */
#pragma once

#include "refine.h"

#define WIDE (4 * LANES) /* lanes worked on at a time; rows of the basis are padded to a multiple of it */

struct process {
    ptrdiff_t p, r;
    const double *vectors; /* (p, r): eigenvectors are columns */
    const double *chances; /* (r,): w / (1 + w) */
    int64_t *kept;         /* (r,): numbers of the kept eigenvectors */
    double *u;             /* (r,): one row of the kept ones, zero in the padding */
    double *basis;         /* (r, r): orthonormal rows that span those drawn */
    double *panels;        /* the same in panels of LANES rows, column after column */
    double *inner;         /* (r,): inner products of u with the basis */
    double *cumulated;     /* (p + 1,): sums of |u_j|^2 */
    int64_t *drawn;        /* (p,): whether a column was drawn, of which nothing is left */
};

/* Random numbers of one member: a hash of a counter (SplitMix64) that starts at a hash of the seed and the member. */
static uint64_t hashed(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* In [0, 1). */
static double uniform(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15;
    return (double)(hashed(*state) >> 11) * 0x1p-53;
}

static void read_row(const struct process *a, ptrdiff_t j, ptrdiff_t s) {
    for (ptrdiff_t k = 0; k < s; k++)
        a->u[k] = a->vectors[a->r * j + a->kept[k]];
}

/* Squared length of a row that is padded to a multiple of WIDE. */
static double squared_length(const double *x, ptrdiff_t size) {
    column sum[4];
    double lanes[LANES], total = 0.0;
    EACH(i, 4) sum[i] = constant(0.0);
    for (ptrdiff_t k = 0; k < size; k += WIDE)
        EACH(i, 4) sum[i] = plus_product(sum[i], load(x + k + LANES * i), load(x + k + LANES * i));
    store(lanes, add(add(sum[0], sum[1]), add(sum[2], sum[3])));
    for (int i = 0; i < LANES; i++)
        total += lanes[i];
    return total;
}

/* The column at a place in the cumulated lengths: the last one that begins there or before. */
static ptrdiff_t find_place(const double *cumulated, ptrdiff_t p, double place) {
    ptrdiff_t low = 0;
    for (ptrdiff_t length = p, half; length > 1; length -= half) {
        half = length / 2;
        low += cumulated[low + half] <= place ? half : 0;
    }
    return low;
}

/* Inner products of x with panel b of the basis. */
INLINE column panel_products(const double *panel, const double *x, ptrdiff_t s) {
    column sum[4];
    ptrdiff_t k = 0;
    EACH(i, 4) sum[i] = constant(0.0);
    for (; k + 4 <= s; k += 4)
        EACH(i, 4) sum[i] = plus(sum[i], x[k + i], load(panel + LANES * (k + i)));
    for (; k < s; k++)
        sum[0] = plus(sum[0], x[k], load(panel + LANES * k));
    return add(add(sum[0], sum[1]), add(sum[2], sum[3]));
}

/* What lies outside of the span of the first t rows of the squared length of u; less than least: it may be too much. */
static double outside(const struct process *a, ptrdiff_t t, ptrdiff_t s, double square, double least) {
    for (ptrdiff_t b = 0; b < t && square > least; b += LANES) {
        store(a->inner + b, panel_products(a->panels + s * b, a->u, s));
        for (int i = 0; i < LANES; i++)
            square -= a->inner[b + i] * a->inner[b + i];
    }
    return square;
}

/* Take the first t rows of the basis, each times its inner product, out of q; rows are size numbers apart. */
static void take_out(const struct process *a, double *q, ptrdiff_t t, ptrdiff_t size) {
    for (ptrdiff_t b = 0; b < size; b += WIDE) {
        column sum[4];
        EACH(i, 4) sum[i] = load(q + b + LANES * i);
        for (ptrdiff_t k = 0; k < t; k++)
            EACH(i, 4) sum[i] = minus(sum[i], a->inner[k], load(a->basis + size * k + b + LANES * i));
        EACH(i, 4) store(q + b + LANES * i, sum[i]);
    }
}

/* Append to the basis what it does not span of u, of which the inner products are known; where little of it is left,
 * rounding is taken out once more. */
static void extend_basis(const struct process *a, ptrdiff_t t, ptrdiff_t s, ptrdiff_t size, double square, double left) {
    double *q = a->basis + size * t, *panel = a->panels + s * (t / LANES * LANES);
    memcpy(q, a->u, sizeof *q * size);
    take_out(a, q, t, size);
    if (left < 0.1 * square) {
        for (ptrdiff_t b = 0; b < t; b += LANES)
            store(a->inner + b, panel_products(a->panels + s * b, q, s));
        take_out(a, q, t, size);
    }
    double inverse = 1.0 / sqrt(squared_length(q, size));
    if (t % LANES == 0)
        memset(panel, 0, sizeof *panel * LANES * s);
    for (ptrdiff_t k = 0; k < s; k++)
        panel[LANES * k + t % LANES] = q[k] *= inverse;
}

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Draw one subset, in ascending order; its size, or MISMATCH where the eigenvectors are not orthonormal: of s columns
 * the last one is accepted once in s proposals on average, and never in a hundred times as many only if nothing is
 * left of any. */
static ptrdiff_t draw_subset(const struct process *a, uint64_t state, int64_t *subset) {
    ptrdiff_t s = 0, t = 0, in_vain = 0;
    memset(a->drawn, 0, sizeof *a->drawn * a->p);
    for (ptrdiff_t k = 0; k < a->r; k++)
        if (uniform(&state) < a->chances[k])
            a->kept[s++] = k;
    ptrdiff_t size = (s + WIDE - 1) / WIDE * WIDE;
    memset(a->u, 0, sizeof *a->u * size);
    for (ptrdiff_t j = 0; j < a->p; j++) {
        read_row(a, j, s);
        a->cumulated[j + 1] = a->cumulated[j] + squared_length(a->u, size);
    }
    if (s && !(a->cumulated[a->p] > 0.0 && a->cumulated[a->p] < INFINITY))
        return MISMATCH;
    while (t < s) {
        if (in_vain++ > 100 * s)
            return MISMATCH;
        ptrdiff_t j = find_place(a->cumulated, a->p, uniform(&state) * a->cumulated[a->p]);
        double square = a->cumulated[j + 1] - a->cumulated[j], least = uniform(&state) * square;
        if (a->drawn[j])
            continue;
        read_row(a, j, s);
        double left = outside(a, t, s, square, least);
        if (left > least) {
            extend_basis(a, t, s, size, square, left);
            subset[t++] = j;
            a->drawn[j] = 1;
            in_vain = 0;
        }
    }
    qsort(subset, s, sizeof *subset, by_number);
    return s;
}

/* Subsets of members begin to end, row after row. */
static int draw_determinantal(struct call *call) {
    const struct argument *range = get(call, "members");
    struct process a = {.p = LENGTH(p), .r = LENGTH(r), .vectors = ARRAY(vectors), .chances = ARRAY(chances)};
    const int64_t *key = ARRAY(key);
    int64_t *subsets = ARRAY(subsets), *sizes = ARRAY(sizes);
    ptrdiff_t size = a.r + WIDE;
    struct scratch room;
    if (LENGTH(y) != 2 || LENGTH(k) != range->end - range->begin || a.p == 0)
        return MISMATCH;
    if (reserve(&room, 3 * size + 2 * size * size + 2 * a.p + 1))
        return NO_MEMORY;
    a.kept = take(&room, size), a.u = take(&room, size), a.inner = take(&room, size);
    a.basis = take(&room, size * size), a.panels = take(&room, size * size), a.cumulated = take(&room, a.p + 1);
    a.drawn = take(&room, a.p);
    int status = DONE;
    for (ptrdiff_t i = 0; i < LENGTH(k) && !status; i++) {
        uint64_t state = hashed((uint64_t)key[0] ^ hashed((uint64_t)key[1] + (uint64_t)(range->begin + i)));
        sizes[i] = draw_subset(&a, state, subsets + a.r * i);
        status = sizes[i] < 0 ? MISMATCH : DONE;
    }
    free(room.base);
    return status;
}
