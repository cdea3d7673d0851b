/* Subsets drawn by a determinantal process, from the eigenvectors of its matrix.
 *
 * With L = sum_k w_k v_k v_k', a subset S has probability det(L_SS) / det(I + L). Eigenvector k is kept with
 * probability w_k / (1 + w_k). Of the kept ones, whose rows are u_j, columns are then drawn one after the other, each
 * with probability proportional to what the span of the rows drawn before leaves of |u_j|^2 (Hough, Krishnapur, Peres,
 * Virag 2006). What is left only falls, so column j is proposed in proportion to |u_j|^2 and accepted with the share
 * that is left: a member of s columns takes about s^3 log s operations, whatever the number of columns. Status: exact. */
#pragma once

#include "factor.h"

struct process {
    ptrdiff_t p, r;
    const double *vectors; /* (p, r): eigenvectors are columns */
    const double *chances; /* (r,): w / (1 + w) */
    int64_t *kept;         /* (r,): numbers of the kept eigenvectors */
    double *u;             /* (r,): one row of the kept ones, zero in the padding */
    double *panels;        /* (r, r): orthonormal rows that span those drawn, in panels of LANES, column after column */
    double *inner;         /* (r,): inner products of u with the basis */
    double *cumulated;     /* (p + 1,): sums of |u_j|^2 */
    double *q;             /* (r,): the next of these rows */
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

/* The column at a place in the cumulated lengths: the last one that begins there or before. */
static ptrdiff_t find_place(const double *cumulated, ptrdiff_t p, double place) {
    ptrdiff_t low = 0;
    for (ptrdiff_t length = p, half; length > 1; length -= half) {
        half = length / 2;
        low += cumulated[low + half] <= place ? half : 0;
    }
    return low;
}

/* Inner products of x (size) with a panel of the basis. */
INLINE column panel_products(const double *panel, const double *x, ptrdiff_t size) {
    column sum[4];
    EACH(i, 4) sum[i] = constant(0.0);
    for (ptrdiff_t k = 0; k < size; k += 4)
        EACH(i, 4) sum[i] = plus(sum[i], x[k + i], load(panel + LANES * (k + i)));
    return add(add(sum[0], sum[1]), add(sum[2], sum[3]));
}

/* What lies outside of the span of the first t rows of the squared length of u; less than least: it may be too much. */
static double outside(const struct process *a, ptrdiff_t t, ptrdiff_t size, double square, double least) {
    for (ptrdiff_t b = 0; b < t && square > least; b += LANES) {
        store(a->inner + b, panel_products(a->panels + size * b, a->u, size));
        for (int i = 0; i < LANES; i++)
            square -= a->inner[b + i] * a->inner[b + i];
    }
    return square;
}

/* Take the first t rows of the basis, each times its inner product, out of q. */
static void take_out(const struct process *a, ptrdiff_t t, ptrdiff_t size) {
    for (ptrdiff_t k = 0; k < size; k += LANES) {
        column sum[LANES];
        EACH(c, LANES) sum[c] = constant(0.0);
        for (ptrdiff_t b = 0; b < t; b += LANES) {
            const double *tile = a->panels + size * b + LANES * k;
            EACH(c, LANES) sum[c] = plus_product(sum[c], load(a->inner + b), load(tile + LANES * c));
        }
        store(a->q + k, subtract(load(a->q + k), sum_lanes(sum)));
    }
}

/* Append to the basis what it does not span of u, of which the inner products are known; where little of it is left,
 * rounding is taken out once more. */
static void extend_basis(const struct process *a, ptrdiff_t t, ptrdiff_t size, double square, double left) {
    double *panel = a->panels + size * (t / LANES * LANES);
    memcpy(a->q, a->u, sizeof *a->q * size);
    take_out(a, t, size);
    if (left < 0.1 * square) {
        for (ptrdiff_t b = 0; b < t; b += LANES)
            store(a->inner + b, panel_products(a->panels + size * b, a->q, size));
        take_out(a, t, size);
    }
    double inverse = 1.0 / sqrt(dot(a->q, a->q, size));
    if (t % LANES == 0)
        memset(panel, 0, sizeof *panel * LANES * size);
    for (ptrdiff_t k = 0; k < size; k++)
        panel[LANES * k + t % LANES] = a->q[k] * inverse;
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
    ptrdiff_t size = round_up(s);
    memset(a->u, 0, sizeof *a->u * size);
    for (ptrdiff_t j = 0; j < a->p; j++) {
        read_row(a, j, s);
        a->cumulated[j + 1] = a->cumulated[j] + dot(a->u, a->u, size);
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
        double left = outside(a, t, size, square, least);
        if (left > least) {
            extend_basis(a, t, size, square, left);
            a->drawn[j] = 1;
            in_vain = 0;
            t++;
        }
    }
    for (ptrdiff_t j = 0; j < a->p; j++)
        if (a->drawn[j])
            *subset++ = j;
    return s;
}

/* Subsets of members begin to end, row after row. */
static int draw_determinantal(struct call *call) {
    const struct argument *range = get(call, "members");
    struct process a = {.p = LENGTH(p), .r = LENGTH(r), .vectors = ARRAY(vectors), .chances = ARRAY(chances)};
    const int64_t *key = ARRAY(key);
    int64_t *subsets = ARRAY(subsets), *sizes = ARRAY(sizes);
    ptrdiff_t size = round_up(a.r);
    if (LENGTH(y) != 2 || LENGTH(k) != range->end - range->begin || a.p == 0)
        return MISMATCH;
    struct scratch room = {.count = 0};
    a.kept = take(&room, size), a.u = take(&room, size), a.inner = take(&room, size);
    a.q = take(&room, size), a.panels = take(&room, size * size), a.cumulated = take(&room, a.p + 1);
    a.drawn = take(&room, a.p);
    int status = DONE;
    for (ptrdiff_t i = 0; i < LENGTH(k) && !status && !room.failed; i++) {
        uint64_t state = hashed((uint64_t)key[0] ^ hashed((uint64_t)key[1] + (uint64_t)(range->begin + i)));
        sizes[i] = draw_subset(&a, state, subsets + a.r * i);
        status = sizes[i] < 0 ? MISMATCH : DONE;
    }
    return release(&room, status);
}
