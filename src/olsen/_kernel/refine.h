/* Solutions from a Gram matrix of nearly dependent columns, refined on the data.
 *
 * The factor of G knows its columns to about eps times the largest entry of the inverse correlation matrix, the square
 * of what a QR would lose. Steps with residuals from the data (the corrected seminormal equations of Bjoerck, 1987)
 *
 *     r = y - A b,    b <- b + G^-1 A' r
 *
 * shrink that error by the same factor each, for the price of two products with A, and end where a QR would. Status:
 * exact, as far as the inverse is known at all: LARGEST_REFINABLE leaves a factor of about 1e-5 a step. */
#pragma once

#include "factor.h"

#define MOST_STEPS 6
#define UNSEEN 1e-16 /* of the largest coefficient: steps that change nothing */

/* Columns about their means and targets likewise, times the roots of the weights. */
struct data {
    ptrdiff_t n, targets;
    const double *A;   /* (p, n) */
    const double *Y;   /* (n, targets) */
    const double *far; /* (p,): what taking the means out rounds */
    double relative;   /* share of a relation's length below which it is rounding */
};

INLINE const double *column_of(const struct member *a, const struct data *data, ptrdiff_t j) {
    return data->A + data->n * a->own[j];
}

/* G^-1 A' residual, at the beginning of the spare room. */
static void solve_residual(const struct member *a, const struct data *data, const double *residual) {
    for (ptrdiff_t j = 0; j < a->m; j++)
        a->spare[j] = dot(column_of(a, data, j), residual, data->n);
    solve_lower_one(a, a->spare);
    solve_upper(a, a->n_blocks - 1, a->spare, 1);
}

/* Refine values (m, targets); whether the solution is then to be trusted. residual: n numbers. */
static int refine(const struct member *a, const struct data *data, double *values, double *residual) {
    ptrdiff_t m = a->m, targets = data->targets;
    for (ptrdiff_t t = 0; t < targets; t++) {
        double last = INFINITY;
        for (int step = 0; step < MOST_STEPS; step++) {
            double largest = 0.0, change = 0.0;
            for (ptrdiff_t l = 0; l < data->n; l++)
                residual[l] = data->Y[targets * l + t];
            for (ptrdiff_t j = 0; j < m; j++) {
                double factor = values[targets * j + t];
                largest = fmax(largest, fabs(factor) * a->lengths[j]);
                if (factor != 0.0)
                    subtract_multiple(residual, factor, column_of(a, data, j), data->n);
            }
            solve_residual(a, data, residual);
            for (ptrdiff_t j = 0; j < m; j++)
                change = fmax(change, fabs(a->spare[j]) * a->lengths[j]);
            if (!(change <= 0.5 * last))
                break; /* rounding of the residual itself */
            if (last < INFINITY && change > 1e-3 * last && change > 1e-8 * largest)
                return 0; /* the factor is worse than its probes have shown */
            for (ptrdiff_t j = 0; j < m; j++)
                values[targets * j + t] += a->spare[j];
            last = change;
            if (change <= UNSEEN * largest)
                break;
        }
    }
    return 1;
}
