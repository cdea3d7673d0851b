/* The lasso along falling penalties, by coordinate descent: where the signal of some columns lies.
 *
 * For targets B (n, q) it minimises 1/2 |B - A b|^2 + lambda sum_j |b_j|, with |b_j| the length of a row of
 * coefficients: columns come in for all targets. A step sets one row to its best value given the others,
 *
 *     b_j = (z / s_j) max(0, 1 - lambda / |z|),    z = a_j' (B - A b) + s_j b_j,    s_j = a_j' a_j.
 *
 * Sweeps over the columns that are in follow a sweep over all of them, until a sweep over all changes nothing. */
#pragma once

#include "refine.h"

struct lasso {
    ptrdiff_t p, n, q; /* n: rows, or p where M is a Gram matrix */
    int from_rows;
    const double *M;       /* (p, n) */
    const double *squares; /* (p,) */
    double *left;          /* (q, n): B - A b, or A'(B - A b) with a Gram matrix */
};

/* Inner product: 32 sums side by side hide the latency of additions, then four, then one. */
static double dot(const double *a, const double *b, ptrdiff_t n) {
    column sum[4];
    double lanes[LANES], rest[4] = {0.0};
    ptrdiff_t l = 0;
    EACH(i, 4) sum[i] = constant(0.0);
    for (; l + 4 * LANES <= n; l += 4 * LANES)
        EACH(i, 4) sum[i] = plus_product(sum[i], load(a + l + LANES * i), load(b + l + LANES * i));
    store(lanes, add(add(add(sum[1], sum[0]), sum[2]), sum[3]));
    EACH(i, 4) lanes[i] += lanes[i + 4];
    rest[0] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    for (; l + 4 <= n; l += 4)
        EACH(i, 4) rest[i] = SCALAR_FMA(a[l + i], b[l + i], rest[i]);
    double total = (rest[0] + rest[2]) + (rest[1] + rest[3]);
    for (; l < n; l++)
        total = SCALAR_FMA(a[l], b[l], total);
    return total;
}

/* Set the row of coefficients j to its best value; the squared change of the fit. From rows, left is B - A b (q, n);
 * else M is A'A and left A'(B - A b). */
static double descend(const struct lasso *given, ptrdiff_t j, double penalty, double *b, double *z) {
    ptrdiff_t q = given->q, n = given->n;
    const double *x = given->M + n * j;
    double square = given->squares[j], length = 0.0, moved = 0.0;
    for (ptrdiff_t t = 0; t < q; t++) {
        const double *left = given->left + n * t;
        z[t] = (given->from_rows ? dot(x, left, n) : left[j]) + square * b[t];
        length += z[t] * z[t];
    }
    length = sqrt(length);
    double factor = length <= penalty ? 0.0 : (1 - penalty / length) / square;
    for (ptrdiff_t t = 0; t < q; t++) {
        double step = factor * z[t] - b[t];
        if (step != 0.0) {
            b[t] += step;
            moved += step * step;
            subtract_multiple(given->left + n * t, step, x, n);
        }
    }
    return moved * square;
}

/* Descend along every column that is in, or every one; the largest change of the fit. */
static double sweep(const struct lasso *given, double penalty, double *b, int64_t *inside, int everything, double *z) {
    double largest = 0.0;
    for (ptrdiff_t j = 0; j < given->p; j++) {
        if (given->squares[j] <= 0.0 || !(everything || inside[j]))
            continue;
        double change = descend(given, j, penalty, b + given->q * j, z);
        if (change > 0.0)
            inside[j] = 1;
        largest = change > largest ? change : largest;
    }
    return largest;
}

static ptrdiff_t count_nonzero_rows(const double *b, ptrdiff_t p, ptrdiff_t q) {
    ptrdiff_t count = 0;
    for (ptrdiff_t j = 0; j < p; j++) {
        int any = 0;
        for (ptrdiff_t t = 0; t < q; t++)
            any |= b[q * j + t] != 0.0;
        count += any;
    }
    return count;
}

/* Coefficients at every penalty, until more than so many columns are in; the result is how many there are. */
static int lasso_path(struct call *call) {
    struct lasso given = {LENGTH(p), LENGTH(n), LENGTH(q), NUMBER(from_rows) != 0.0, ARRAY(M), ARRAY(squares),
                          ARRAY(left)};
    const double *penalties = ARRAY(penalties);
    double *found = ARRAY(found);
    ptrdiff_t size = given.p * given.q;
    struct scratch room;
    if ((!given.from_rows && given.n != given.p) || COUNT(sweeps) < 0 || COUNT(sweeps) > MOST_SWEEPS)
        return MISMATCH;
    if (reserve(&room, size + given.q + given.p))
        return NO_MEMORY;
    double *b = take(&room, size), *z = take(&room, given.q);
    int64_t *inside = take(&room, given.p);
    for (call->result = 0; call->result < LENGTH(l);) {
        int everything = 1;
        for (ptrdiff_t i = 0; i < COUNT(sweeps); i++) {
            int settled = sweep(&given, penalties[call->result], b, inside, everything, z) <= NUMBER(tol);
            if (settled && everything)
                break;
            everything = settled;
        }
        memcpy(found + size * call->result++, b, sizeof *b * size);
        if (count_nonzero_rows(b, given.p, given.q) > NUMBER(most))
            break;
    }
    free(room.base);
    return DONE;
}
