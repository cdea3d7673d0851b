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

/* Whether a member is not to be solved from its Gram matrix alone. */
static int needs_data(double ratio, double probed) {
    return ratio > 0.0 && !(ratio > SMALLEST_PIVOT && probed < LARGEST_INFLATION);
}

/* Columns about their means and targets likewise, times the roots of the weights. */
struct data {
    ptrdiff_t n, targets;
    const double *A;   /* (p, n) */
    const double *Y;   /* (n, targets) */
    const double *far; /* (p,): what taking the means out rounds */
    double relative;   /* share of a relation's length below which it is rounding */
};

INLINE const double *column_of(const struct data *data, ptrdiff_t j) {
    return data->A + data->n * j;
}

static void subtract_multiple(double *restrict out, double factor, const double *restrict x, ptrdiff_t n) {
    for (ptrdiff_t l = 0; l < n; l++)
        out[l] -= factor * x[l];
}

static double dot_in_order(const double *a, const double *b, ptrdiff_t n) {
    double sum = 0.0;
    for (ptrdiff_t l = 0; l < n; l++)
        sum += a[l] * b[l];
    return sum;
}

/* Inner product, in four sums side by side. */
static double dot_in_four(const double *a, const double *b, ptrdiff_t n) {
    double s[4] = {0.0};
    ptrdiff_t whole = n / 4 * 4;
    for (ptrdiff_t l = 0; l < whole; l += 4)
        for (int i = 0; i < 4; i++)
            s[i] += a[l + i] * b[l + i];
    for (ptrdiff_t l = whole; l < n; l++)
        s[0] += a[l] * b[l];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* Refine values (m, targets); whether the solution is then to be trusted. right: 2 m numbers, spare: one solution. */
static int refine(const struct member *a, const struct data *data, const int64_t *own, const double *lengths,
                  double *values, double probed, double *spare, double *residual, double *right) {
    ptrdiff_t m = a->m, targets = data->targets;
    double *u = right + m;
    if (!(probed < LARGEST_REFINABLE))
        return 0;
    for (ptrdiff_t t = 0; t < targets; t++) {
        double last = INFINITY;
        for (int step = 0; step < MOST_STEPS; step++) {
            double largest = 0.0, change = 0.0;
            for (ptrdiff_t l = 0; l < data->n; l++)
                residual[l] = data->Y[targets * l + t];
            for (ptrdiff_t j = 0; j < m; j++) {
                double factor = values[targets * j + t], size = fabs(factor) * lengths[j];
                largest = size > largest ? size : largest;
                if (factor != 0.0)
                    subtract_multiple(residual, factor, column_of(data, own[j]), data->n);
            }
            for (ptrdiff_t j = 0; j < m; j++)
                right[j] = dot_in_four(column_of(data, own[j]), residual, data->n);
            solve_lower(a, right, u);
            memcpy(spare, u, sizeof *u * m);
            for (ptrdiff_t j = m; j < round_up(m); j++)
                spare[j] = 0.0;
            solve_upper(a, spare);
            for (ptrdiff_t j = 0; j < m; j++) {
                double size = fabs(spare[j]) * lengths[j];
                change = size > change ? size : change;
            }
            if (!(change <= 0.5 * last))
                break; /* rounding of the residual itself */
            if (last < INFINITY && change > 1e-3 * last && change > 1e-8 * largest)
                return 0; /* the factor is worse than its probes have shown */
            for (ptrdiff_t j = 0; j < m; j++)
                values[targets * j + t] += spare[j];
            last = change;
            if (change <= UNSEEN * largest)
                break;
        }
    }
    return 1;
}
