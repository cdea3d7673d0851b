/* Columns that depend on others of their member: confirmed on the data, and the shortest solution.
 *
 * The factorisation skips columns whose pivot is rounding. With I the kept columns and D the skipped ones, row c of the
 * factor holds L_II^-1 G_Ic, so that the coefficients of a skipped column on the kept ones, w_c = G_II^-1 G_Ic, cost
 * one back substitution. A Gram matrix cannot tell a column that depends on others from one that nearly does: it sees
 * squares. So x_c - X_I w_c is computed from the data and must be rounding by the rule that an SVD of the member would
 * be cut off by. Of w only what matters is kept: of one-hot columns the levels of one factor.
 *
 * All solutions are then b_I = b0 - W b_D, and the shortest has b_D = (1 + W'W)^-1 W' b0. It is unique, whichever
 * column of a dependent set was skipped. Status: exact. */
#pragma once

#include "refine.h"

#define NEGLIGIBLE 1e-9    /* of the length of a relation: entries of w that are rounding of zeros */
#define LARGEST_SQUARE 1e6 /* of W in the users' units: 1 + W'W then keeps ten digits */

/* W' (skipped, m): coefficients of every skipped column on the kept ones before it. */
static void find_relations(const struct member *a, double *W) {
    ptrdiff_t length = LANES * a->n_blocks;
    for (ptrdiff_t first = 0; first < a->n_skipped; first += AT_ONCE) {
        ptrdiff_t end = smaller(first + AT_ONCE, a->n_skipped);
        memset(a->spare, 0, sizeof *W * AT_ONCE * length);
        for (ptrdiff_t i = first; i < end; i++)
            for (ptrdiff_t j = 0; j < a->skipped[i]; j++)
                a->spare[length * (i - first) + j] = row_of(a, a->skipped[i])[LANES * j];
        solve_upper(a, a->skipped[end - 1] / LANES, a->spare, AT_ONCE);
        for (ptrdiff_t i = first; i < end; i++)
            memcpy(W + a->m * i, a->spare + length * (i - first), sizeof *W * a->skipped[i]);
    }
}

/* Set negligible coefficients of column c to zero; the squared length of the relation among columns of unit length. */
static double drop_negligible(double *w, ptrdiff_t c, const double *lengths) {
    double total = lengths[c] * lengths[c];
    for (ptrdiff_t j = 0; j < c; j++)
        total += (w[j] * lengths[j]) * (w[j] * lengths[j]);
    double limit = NEGLIGIBLE * sqrt(total);
    for (ptrdiff_t j = 0; j < c; j++)
        if (fabs(w[j]) * lengths[j] <= limit)
            w[j] = 0.0;
    return total;
}

/* Whether column c less w of the others is rounding: below data->relative of the relation's length, or below what
 * taking the means out has rounded. */
static int holds(const struct member *a, const struct data *data, const double *w, ptrdiff_t c, double square,
                 double *residual) {
    const double *far = data->far;
    double noise = far[a->own[c]] * far[a->own[c]];
    memcpy(residual, column_of(a, data, c), sizeof *residual * data->n);
    for (ptrdiff_t j = 0; j < c; j++)
        if (w[j] != 0.0) {
            noise += (far[a->own[j]] * w[j]) * (far[a->own[j]] * w[j]);
            subtract_multiple(residual, w[j], column_of(a, data, j), data->n);
        }
    return dot(residual, residual, data->n) <= fmax(noise, data->relative * data->relative * square);
}

/* Find the relations W' (skipped, m), without their negligible parts; whether they hold on the data. One that does not
 * is corrected once by what is left of its column: the Gram matrix had rounded. */
static int relations_hold(const struct member *a, const struct data *data, double *W, double *residual) {
    find_relations(a, W);
    for (ptrdiff_t i = 0; i < a->n_skipped; i++) {
        ptrdiff_t c = a->skipped[i];
        double *w = W + a->m * i, square = drop_negligible(w, c, a->lengths);
        if (holds(a, data, w, c, square, residual))
            continue;
        solve_residual(a, data, residual);
        for (ptrdiff_t j = 0; j < c; j++)
            w[j] += a->spare[j];
        square = drop_negligible(w, c, a->lengths);
        if (!holds(a, data, w, c, square, residual))
            return 0;
    }
    return 1;
}

/* Turn solutions that are zero at the skipped columns, values (m, targets), into the shortest ones; 0: not trusted.
 * The system of few unknowns is written to the rows of a member of its own. */
static int shorten(const struct member *a, const double *W, double *values, struct member *small) {
    ptrdiff_t d = small->m, m = a->m, targets = small->q;
    double total = 0.0;
    for (ptrdiff_t i = 0; i < d; i++) {
        for (ptrdiff_t j = 0; j <= i; j++)
            row_of(small, i)[LANES * j] = dot(W + m * i, W + m * j, m) + (i == j);
        for (ptrdiff_t t = 0; t < targets; t++)
            for (ptrdiff_t j = 0; j < m; j++)
                row_of(small, d + t)[LANES * i] += W[m * i + j] * values[targets * j + t];
        total += row_of(small, i)[LANES * i] - 1.0;
    }
    for (ptrdiff_t s = 0; s < small->n_blocks; s++)
        eliminate_block(small, s, NULL);
    finish_factor(small);
    solve_member(small);
    for (ptrdiff_t t = 0; t < targets; t++)
        for (ptrdiff_t i = 0; i < d; i++) {
            double x = small->solutions[LANES * small->n_blocks * t + i];
            for (ptrdiff_t j = 0; j < m; j++)
                values[targets * j + t] -= W[m * i + j] * x;
            values[targets * a->skipped[i] + t] += x;
        }
    return total <= LARGEST_SQUARE && small->ratio > 0.0;
}

/* Whether a member is not to be solved from its Gram matrix alone. */
static int needs_data(const struct member *a, double inflation) {
    return a->ratio > 0.0 && (a->n_skipped || !(a->ratio > SMALLEST_PIVOT && inflation < LARGEST_INFLATION));
}

/* Finish on the data what the Gram matrix alone does not tell: refine the solution where it is inflated, confirm the
 * columns that depend on others, make values (m, targets) the shortest solution; it is then trusted (ratio 1) or not
 * (ratio 0). Without values, columns are confirmed and nothing else. */
static int finish_on_data(struct member *a, const struct data *data, double inflation, double *values) {
    struct scratch room = {.count = 0};
    double *residual = take(&room, data->n), *W = take(&room, a->n_skipped * a->m);
    struct member small = member_room(&room, a->n_skipped, data->targets);
    place(&small, take(&room, size_of_member(a->n_skipped, small.q)), a->n_skipped);
    if (room.failed)
        return release(&room, NO_MEMORY);
    int refined = values && !(a->ratio > SMALLEST_PIVOT && inflation < LARGEST_INFLATION);
    int trusted = !refined || (inflation < LARGEST_REFINABLE && refine(a, data, values, residual));
    trusted = trusted && relations_hold(a, data, W, residual);
    trusted = trusted && (!values || shorten(a, W, values, &small));
    a->ratio = !trusted ? 0.0 : values ? 1.0 : a->ratio;
    a->probed = trusted ? 0.0 : INFINITY;
    return release(&room, DONE);
}
