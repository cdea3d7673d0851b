/* The lasso along falling penalties, by coordinate descent: where the signal of some columns lies.
 *
 * For targets B (n, q) it minimises 1/2 |B - A b|^2 + lambda sum_j |b_j|, with |b_j| the length of a row of
 * coefficients: columns come in for all targets. A step sets one row to its best value given the others,
 *
 *     b_j = (z / s_j) max(0, 1 - lambda / |z|),    z = a_j' (B - A b) + s_j b_j,    s_j = a_j' a_j.
 *
 * Sweeps over the columns that are in follow a sweep over all of them, until a sweep over all changes nothing.
 *
 * Columns are rows of a Gram matrix, dense columns, or sparse ones that are centred implicitly, a_j = W^1/2 (x_j - m_j).
 * With e the residuals before their square roots of the weights, W (e + c) is kept as its parts W e and c: a step d of
 * b_j takes d W x_j from the first and adds d m_j to the second, and a_j' of the residuals is x_j'We + c m_j sum(W). */
#pragma once

#include "factor.h"

/* Sweeps at a penalty, which a sweep that changes little usually ends before. With the tolerance of penalised.py (1e-7 of
 * the squared fit of the best column) the duality gap is at most 1e-7 of |B|^2 / 2 on independent columns, .004 on
 * autoregressive ones (.95; 60 sweeps left .016), .1 on squares and products, and .02 to .4 on spectra, where 5000 sweeps
 * leave .003 to .1 in 25 times the time, and predict no better. Extrapolated iterates (Anderson) gained nothing there, and
 * an end at a given gap left hundreds of nearly equal columns in. */
#define MOST_SWEEPS 100
#define MOST_WITHIN 512 /* columns that are in, up to which their products are gathered */
#define ROUNDING_OF_CHANGE 1e-6 /* of the tolerance: the copy of a column that is in moves by less, by rounding alone */
#define ROUNDING_OF_FIT 1e-18 /* of the largest squared fit of a column: smaller ones are rounding */

struct lasso {
    ptrdiff_t p, n, q; /* n: rows, or p where M is a Gram matrix */
    int from_rows;
    const double *M;       /* (p, n); NULL of sparse columns */
    struct lists columns;  /* sparse: rows of the entries of every column, */
    const double *values;  /* the entries, */
    const double *mean;    /* (p,), */
    const double *weights; /* (n,), */
    double total, *offset; /* sum of the weights, and c, (q,) */
    const double *squares; /* (p,) */
    double *left;          /* (q, n): B - A b, or A'(B - A b) with a Gram matrix */
    double *b, *z;         /* (p, q), (q,) */
    int64_t *active;       /* columns that are in */
    ptrdiff_t n_active;
    struct {
        double *products, *squares, *left, *b;
        int64_t *active;
    } part; /* room for the columns that are in */
};

/* a_j' of the residuals of one target. */
static double along(const struct lasso *given, ptrdiff_t j, ptrdiff_t t) {
    const double *left = given->left + given->n * t;
    if (given->M)
        return given->from_rows ? dot(given->M + given->n * j, left, given->n) : left[j];
    const int64_t *rows = given->columns.indices;
    const double *values = given->values;
    double even = 0.0, odd = given->offset[t] * given->mean[j] * given->total;
    int64_t k = given->columns.start[j], stop = given->columns.stop[j];
    for (; k + 1 < stop; k += 2) {
        even += values[k] * left[rows[k]];
        odd += values[k + 1] * left[rows[k + 1]];
    }
    return k < stop ? even + odd + values[k] * left[rows[k]] : even + odd;
}

/* Take a step along a column from the residuals of one target. */
static void step_along(const struct lasso *given, ptrdiff_t j, ptrdiff_t t, double step) {
    double *left = given->left + given->n * t;
    if (given->M) {
        subtract_multiple(left, step, given->M + given->n * j, given->n);
        return;
    }
    for (int64_t k = given->columns.start[j]; k < given->columns.stop[j]; k++) {
        int64_t row = given->columns.indices[k];
        left[row] -= step * given->values[k] * given->weights[row];
    }
    given->offset[t] += step * given->mean[j];
}

/* Set the row of coefficients j to its best value; the squared change of the fit. */
static double descend(const struct lasso *given, ptrdiff_t j, double penalty) {
    ptrdiff_t q = given->q;
    double square = given->squares[j], length = 0.0, moved = 0.0, *b = given->b + q * j, *z = given->z;
    for (ptrdiff_t t = 0; t < q; t++) {
        z[t] = along(given, j, t) + square * b[t];
        length += z[t] * z[t];
    }
    length = sqrt(length);
    double factor = length <= penalty ? 0.0 : (1 - penalty / length) / square;
    for (ptrdiff_t t = 0; t < q; t++) {
        double step = factor * z[t] - b[t];
        if (step != 0.0) {
            b[t] += step;
            moved += step * step;
            step_along(given, j, t, step);
        }
    }
    return moved * square;
}

/* Squared fit of a column by itself, which is zero where the column is not in. */
static double own_fit(const struct lasso *given, ptrdiff_t j) {
    double fit = 0.0;
    for (ptrdiff_t t = 0; t < given->q; t++)
        fit += given->b[given->q * j + t] * given->b[given->q * j + t];
    return fit * given->squares[j];
}

/* Descend along every column, of which those that move, or have coefficients, are in; the largest change of the fit. */
static double sweep_all(struct lasso *given, double penalty, double tol) {
    double largest = 0.0, rounding = ROUNDING_OF_CHANGE * tol;
    given->n_active = 0;
    for (ptrdiff_t j = 0; j < given->p; j++)
        if (given->squares[j] > 0.0) {
            double change = descend(given, j, penalty);
            if (change > rounding || own_fit(given, j) > rounding)
                given->active[given->n_active++] = j;
            largest = fmax(largest, change);
        }
    return largest;
}

/* Descend along the columns that are in, until a sweep changes no fit by more than the tolerance; the number of sweeps. */
static ptrdiff_t settle(const struct lasso *given, double penalty, double tol, ptrdiff_t most) {
    ptrdiff_t sweeps = 0;
    for (double largest = INFINITY; sweeps < most && largest > tol; sweeps++) {
        largest = 0.0;
        for (ptrdiff_t i = 0; i < given->n_active; i++)
            largest = fmax(largest, descend(given, given->active[i], penalty));
    }
    return sweeps;
}

/* The same with a Gram matrix, on the products of the columns that are in alone, whose steps the gradients of all
 * columns follow at the end. */
static ptrdiff_t settle_within(const struct lasso *given, double penalty, double tol, ptrdiff_t most) {
    ptrdiff_t size = given->n_active, q = given->q;
    struct lasso part = *given;
    part.p = part.n = size, part.M = given->part.products, part.squares = given->part.squares;
    part.left = given->part.left, part.b = given->part.b, part.active = given->part.active;
    for (ptrdiff_t i = 0; i < size; i++) {
        ptrdiff_t j = given->active[i];
        for (ptrdiff_t l = 0; l < size; l++)
            given->part.products[size * i + l] = given->M[given->n * j + given->active[l]];
        given->part.squares[i] = given->squares[j];
        given->part.active[i] = i;
        for (ptrdiff_t t = 0; t < q; t++) {
            part.left[size * t + i] = given->left[given->n * t + j];
            part.b[q * i + t] = given->b[q * j + t];
        }
    }
    ptrdiff_t sweeps = settle(&part, penalty, tol, most);
    for (ptrdiff_t i = 0; i < size; i++) {
        ptrdiff_t j = given->active[i];
        for (ptrdiff_t t = 0; t < q; t++) {
            double step = part.b[q * i + t] - given->b[q * j + t];
            if (step != 0.0) {
                given->b[q * j + t] = part.b[q * i + t];
                step_along(given, j, t, step);
            }
        }
    }
    return sweeps;
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

/* Coefficients (l, p, q) at every penalty, until more than so many columns are in; the number of penalties. */
static ptrdiff_t descend_path(struct lasso given, const double *penalties, ptrdiff_t count, double most, double tol,
                              double *found, struct scratch *room) {
    ptrdiff_t p = given.p, q = given.q, done = 0;
    given.b = take(room, p * q), given.z = take(room, q);
    given.active = take(room, p);
    ptrdiff_t largest = given.M && !given.from_rows ? smaller(p, MOST_WITHIN) : 0;
    given.part.products = take(room, largest * largest), given.part.squares = take(room, largest);
    given.part.left = take(room, q * largest), given.part.b = take(room, q * largest);
    given.part.active = take(room, largest);
    while (done < count && !room->failed) {
        double penalty = penalties[done];
        for (ptrdiff_t sweeps = 0; sweeps < MOST_SWEEPS && sweep_all(&given, penalty, tol) > tol;) {
            int within = given.n_active <= largest && 2 * given.n_active <= p;
            sweeps += 1 + (within ? settle_within : settle)(&given, penalty, tol, MOST_SWEEPS - sweeps);
        }
        memcpy(found + p * q * done++, given.b, sizeof *found * p * q);
        if (count_columns(&given) > most)
            break;
    }
    return done;
}

static int lasso_path(struct call *call) {
    struct lasso given = {.p = LENGTH(p), .n = LENGTH(n), .q = LENGTH(q), .from_rows = NUMBER(from_rows) != 0.0,
                          .M = ARRAY(M), .squares = ARRAY(squares), .left = ARRAY(left)};
    if (!given.from_rows && given.n != given.p)
        return MISMATCH;
    struct scratch room = {.count = 0};
    call->result = descend_path(given, ARRAY(penalties), LENGTH(l), NUMBER(most), NUMBER(tol), ARRAY(found), &room);
    return release(&room, DONE);
}

static int sparse_lasso_path(struct call *call) {
    struct lasso given = {.p = LENGTH(p), .n = LENGTH(n), .q = LENGTH(q), .columns = LISTS(columns),
                          .values = ARRAY(values), .mean = ARRAY(mean), .weights = ARRAY(weights),
                          .squares = ARRAY(squares), .left = ARRAY(left)};
    if (given.columns.count != LENGTH(v))
        return MISMATCH;
    for (ptrdiff_t l = 0; l < given.n; l++)
        given.total += given.weights[l];
    struct scratch room = {.count = 0};
    given.offset = take(&room, given.q);
    call->result = descend_path(given, ARRAY(penalties), LENGTH(l), NUMBER(most), NUMBER(tol), ARRAY(found), &room);
    return release(&room, DONE);
}
