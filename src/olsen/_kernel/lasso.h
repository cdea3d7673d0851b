/* The lasso along falling penalties, by coordinate descent: where the signal of some columns lies.
 *
 * For targets B (n, q) it minimises 1/2 |B - A b|^2 + lambda sum_j |b_j|, with |b_j| the length of a row of
 * coefficients: columns come in for all targets. A step sets one row to its best value given the others,
 *
 *     b_j = (z / s_j) max(0, 1 - lambda / |z|),    z = a_j' (B - A b) + s_j b_j,    s_j = a_j' a_j.
 *
 * Sweeps over the columns that are in follow a sweep over all of them, until a sweep over all changes nothing. */
#pragma once

#include "factor.h"

#define MOST_SWEEPS 60 /* at a penalty: coefficients only say where the signal lies */
#define ROUNDING_OF_CHANGE 1e-6 /* of the tolerance: the copy of a column that is in moves by less, by rounding alone */
#define ROUNDING_OF_FIT 1e-18 /* of the largest squared fit of a column: smaller ones are rounding */

struct lasso {
    ptrdiff_t p, n, q; /* n: rows, or p where M is a Gram matrix */
    int from_rows;
    const double *M;       /* (p, n) */
    const double *squares; /* (p,) */
    double *left;          /* (q, n): B - A b, or A'(B - A b) with a Gram matrix */
    double *b, *z;         /* (p, q), (q,) */
    int64_t *inside;       /* (p,): whether a column has come in */
};

/* Set the row of coefficients j to its best value; the squared change of the fit. */
static double descend(const struct lasso *given, ptrdiff_t j, double penalty) {
    ptrdiff_t q = given->q, n = given->n;
    const double *x = given->M + n * j;
    double square = given->squares[j], length = 0.0, moved = 0.0, *b = given->b + q * j, *z = given->z;
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
static double sweep(const struct lasso *given, double penalty, double tol, int everything) {
    double largest = 0.0;
    for (ptrdiff_t j = 0; j < given->p; j++)
        if (given->squares[j] > 0.0 && (everything || given->inside[j])) {
            double change = descend(given, j, penalty);
            given->inside[j] |= change > ROUNDING_OF_CHANGE * tol;
            largest = change > largest ? change : largest;
        }
    return largest;
}

/* Squared fit of a column by itself, which is zero where the column is not in. */
static double own_fit(const struct lasso *given, ptrdiff_t j) {
    double fit = 0.0;
    for (ptrdiff_t t = 0; t < given->q; t++)
        fit += given->b[given->q * j + t] * given->b[given->q * j + t];
    return fit * given->squares[j];
}

/* Columns that are in. The copy of a column that is in would come in at the very same penalty, so that rounding decides
 * about it; coefficients that are nothing but rounding do not count. */
static ptrdiff_t count_columns(const struct lasso *given) {
    double largest = 0.0;
    for (ptrdiff_t j = 0; j < given->p; j++)
        largest = fmax(largest, own_fit(given, j));
    ptrdiff_t count = 0;
    for (ptrdiff_t j = 0; j < given->p; j++)
        count += own_fit(given, j) > ROUNDING_OF_FIT * largest;
    return count;
}

/* Coefficients at every penalty, until more than so many columns are in; the result is how many there are. */
static int lasso_path(struct call *call) {
    struct lasso given = {.p = LENGTH(p), .n = LENGTH(n), .q = LENGTH(q), .from_rows = NUMBER(from_rows) != 0.0,
                          .M = ARRAY(M), .squares = ARRAY(squares), .left = ARRAY(left)};
    const double *penalties = ARRAY(penalties);
    double *found = ARRAY(found);
    ptrdiff_t size = given.p * given.q;
    if (!given.from_rows && given.n != given.p)
        return MISMATCH;
    struct scratch room = {.count = 0};
    given.b = take(&room, size), given.z = take(&room, given.q), given.inside = take(&room, given.p);
    for (call->result = 0; call->result < LENGTH(l) && !room.failed;) {
        int everything = 1;
        for (ptrdiff_t i = 0; i < MOST_SWEEPS; i++) {
            int settled = sweep(&given, penalties[call->result], NUMBER(tol), everything) <= NUMBER(tol);
            if (settled && everything)
                break;
            everything = settled;
        }
        memcpy(found + size * call->result++, given.b, sizeof *found * size);
        if (count_columns(&given) > NUMBER(most))
            break;
    }
    return release(&room, DONE);
}
