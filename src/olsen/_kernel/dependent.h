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

#include <stdlib.h>

#include "refine.h"

#define NEGLIGIBLE 1e-9    /* of the length of a relation: entries of w that are rounding of zeros */
#define LARGEST_SQUARE 1e6 /* of W in the users' units: 1 + W'W then keeps ten digits */
#define LARGEST_RELATION 64 /* columns of a relation that is corrected by least squares */

/* Write the positions of the skipped columns and return their number. */
static ptrdiff_t find_skipped(const struct member *a, int64_t *skipped) {
    ptrdiff_t count = 0;
    for (ptrdiff_t j = 0; j < a->m; j++)
        if (reciprocal_root(a, j) == 0.0)
            skipped[count++] = j;
    return count;
}

/* W' (count, m): coefficients of every skipped column on the kept ones before it. */
static void find_relations(const struct member *a, const int64_t *skipped, ptrdiff_t count, double *W, double *spare) {
    ptrdiff_t length = LANES * a->n_blocks;
    memset(W, 0, sizeof *W * count * a->m);
    for (ptrdiff_t first = 0; first < count; first += AT_ONCE) {
        ptrdiff_t now = smaller(AT_ONCE, count - first);
        memset(spare, 0, sizeof *spare * AT_ONCE * length);
        for (ptrdiff_t t = 0; t < now; t++) {
            ptrdiff_t c = skipped[first + t];
            const double *row = panel_of(a, c / LANES) + c % LANES;
            for (ptrdiff_t j = 0; j < c; j++)
                spare[length * t + j] = row[LANES * j];
        }
        solve_upper_three(a, skipped[first + now - 1] / LANES, spare, length);
        for (ptrdiff_t t = 0; t < now; t++)
            memcpy(W + a->m * (first + t), spare + length * t, sizeof *W * skipped[first + t]);
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
static int holds(const struct data *data, const int64_t *own, const double *w, ptrdiff_t c, double square,
                 double *residual) {
    double noise = data->far[own[c]] * data->far[own[c]], left = 0.0;
    memcpy(residual, column_of(data, own[c]), sizeof *residual * data->n);
    for (ptrdiff_t j = 0; j < c; j++)
        if (w[j] != 0.0) {
            noise += (data->far[own[j]] * w[j]) * (data->far[own[j]] * w[j]);
            subtract_multiple(residual, w[j], column_of(data, own[j]), data->n);
        }
    for (ptrdiff_t l = 0; l < data->n; l++)
        left += residual[l] * residual[l];
    double limit = data->relative * data->relative * square;
    return left <= (noise > limit ? noise : limit);
}

/* Overwrite x by G^-1 x, given the lower triangle of G (d, d), which is lost; 0 where that breaks down. */
static int solve_small(double *G, double *x, ptrdiff_t d) {
    for (ptrdiff_t i = 0; i < d; i++)
        for (ptrdiff_t j = 0; j <= i; j++) {
            double value = G[d * i + j];
            for (ptrdiff_t k = 0; k < j; k++)
                value -= G[d * i + k] * G[d * j + k];
            if (i == j && !(value > 0.0))
                return 0;
            G[d * i + j] = i == j ? sqrt(value) : value / G[d * j + j];
        }
    for (ptrdiff_t i = 0; i < d; i++) {
        for (ptrdiff_t k = 0; k < i; k++)
            x[i] -= G[d * i + k] * x[k];
        x[i] /= G[d * i + i];
    }
    for (ptrdiff_t i = d - 1; i >= 0; i--) {
        for (ptrdiff_t k = i + 1; k < d; k++)
            x[i] -= G[d * k + i] * x[k];
        x[i] /= G[d * i + i];
    }
    return 1;
}

/* Correct w by least squares of the residual on the columns that matter: what the Gram matrix had rounded. */
static void correct_relation(const struct data *data, const int64_t *own, double *w, ptrdiff_t c,
                             const double *residual) {
    double G[LARGEST_RELATION * LARGEST_RELATION], right[LARGEST_RELATION];
    ptrdiff_t kept[LARGEST_RELATION], size = 0;
    for (ptrdiff_t j = 0; j < c; j++)
        if (w[j] != 0.0) {
            if (size == LARGEST_RELATION)
                return;
            kept[size++] = j;
        }
    if (size == 0)
        return;
    for (ptrdiff_t a = 0; a < size; a++) {
        const double *x = column_of(data, own[kept[a]]);
        right[a] = dot_in_order(x, residual, data->n);
        for (ptrdiff_t b = 0; b <= a; b++)
            G[size * a + b] = dot_in_order(x, column_of(data, own[kept[b]]), data->n);
    }
    if (solve_small(G, right, size))
        for (ptrdiff_t a = 0; a < size; a++)
            w[kept[a]] += right[a];
}

/* Whether all relations hold on the data; corrected, and without their negligible parts, where they do. */
static int relations_hold(const struct data *data, const int64_t *own, double *W, ptrdiff_t m, const int64_t *skipped,
                          ptrdiff_t count, const double *lengths, double *residual) {
    for (ptrdiff_t i = 0; i < count; i++) {
        ptrdiff_t c = skipped[i];
        double *w = W + m * i, square = drop_negligible(w, c, lengths);
        if (holds(data, own, w, c, square, residual))
            continue;
        correct_relation(data, own, w, c, residual);
        if (!holds(data, own, w, c, square, residual))
            return 0;
    }
    return 1;
}

/* Turn solutions that are zero at the skipped columns, values (m, targets), into the shortest ones; 0: not trusted.
 * T holds 2 d d + d numbers. */
static int shorten(const double *W, ptrdiff_t d, ptrdiff_t m, const int64_t *skipped, double *values,
                   ptrdiff_t targets, double *T) {
    double *factor = T + d * d, *x = factor + d * d, total = 0.0;
    for (ptrdiff_t a = 0; a < d; a++) {
        for (ptrdiff_t b = 0; b <= a; b++) {
            double product = a == b ? 1.0 : 0.0;
            for (ptrdiff_t j = 0; j < m; j++)
                product += W[m * a + j] * W[m * b + j];
            T[d * a + b] = product;
        }
        total += T[d * a + a] - 1.0;
    }
    if (!(total <= LARGEST_SQUARE))
        return 0;
    for (ptrdiff_t t = 0; t < targets; t++) {
        memcpy(factor, T, sizeof *T * d * d);
        for (ptrdiff_t a = 0; a < d; a++) {
            x[a] = 0.0;
            for (ptrdiff_t j = 0; j < m; j++)
                x[a] += W[m * a + j] * values[targets * j + t];
        }
        if (!solve_small(factor, x, d))
            return 0;
        for (ptrdiff_t a = 0; a < d; a++) {
            for (ptrdiff_t j = 0; j < m; j++)
                values[targets * j + t] -= W[m * a + j] * x[a];
            values[targets * skipped[a] + t] += x[a];
        }
    }
    return 1;
}

/* Finish on the data what the Gram matrix alone does not tell: refine the solution, and make it the shortest.
 * Whether the result is trusted, or NO_MEMORY. spare: AT_ONCE solutions. */
static int finish_on_data(const struct member *a, const struct data *data, const int64_t *own, const double *lengths,
                          double *values, double ratio, double probed, const int64_t *skipped, ptrdiff_t count,
                          double *spare) {
    ptrdiff_t m = a->m, needed = data->n + 2 * m + count * (m + 2 * count + 1);
    double *scratch = malloc(sizeof *scratch * larger(needed, 1));
    if (!scratch)
        return NO_MEMORY;
    double *residual = scratch, *right = residual + data->n, *W = right + 2 * m, *T = W + count * m;
    int trusted = !needs_data(ratio, probed) || refine(a, data, own, lengths, values, probed, spare, residual, right);
    if (trusted && count) {
        find_relations(a, skipped, count, W, spare);
        trusted = relations_hold(data, own, W, m, skipped, count, lengths, residual) &&
                  shorten(W, count, m, skipped, values, data->targets, T);
    }
    free(scratch);
    return trusted;
}
