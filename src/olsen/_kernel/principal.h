/* Members of one Gram matrix: (G[S, S] + shift) b = C[S], with a shift of the diagonal for each member.
 *
 * One member lives, from gather to solution, in the layout of factor.h. While one is factored, the entries of the next
 * are prefetched, where G does not fit the caches. */
#pragma once

#include "dependent.h"

/* Prefetching hides memory, but only costs where G sits in the caches anyway. */
#define PREFETCH_BYTES (1 << 24)
/* The whole next member is fetched ahead while its cache lines fit half of an L2 cache, otherwise the next block. */
#define PREFETCH_SIZE 128

struct gram {
    ptrdiff_t p;
    const double *G; /* (p, p) */
    const double *C; /* (p, q) */
    double shift;    /* added to the diagonal */
};

/* Fill block column s from G, and from C in the rows after the last variable. */
static void gather_block(const struct member *a, ptrdiff_t s, const struct gram *from) {
    /* The mirrored entries G[S_s, S_r]: a panel's column then comes from a single row of G. */
    for (ptrdiff_t r = s; r < a->n_blocks; r++)
        gather_tile(panel_of(a, r) + TILE * s, from->G, a->own + LANES * s, from->p, a->own + LANES * r, 1);
    for (ptrdiff_t t = 0; t < a->q; t++) {
        double *row = row_of(a, a->m + t);
        for (ptrdiff_t j = LANES * s; j < LANES * (s + 1); j++)
            row[LANES * j] = from->C[a->q * a->own[j] + t];
    }
    for (ptrdiff_t j = LANES * s; j < LANES * (s + 1); j++)
        row_of(a, j)[LANES * j] += from->shift;
}

/* Gather and factor a member. The cursor fetches on the way what comes next: its list, or the member's next block. */
static void factor_principal(struct member *a, const struct gram *from, struct cursor *cursor) {
    for (ptrdiff_t s = 0; s < a->n_blocks; s++) {
        gather_block(a, s, from);
        if (cursor && a->m > PREFETCH_SIZE) {
            cursor->row = cursor->column = smaller(LANES * (s + 1), a->m);
            cursor->last_row = smaller(LANES * (s + 2), a->m);
        }
        eliminate_block(a, s, cursor);
    }
    finish_factor(a);
}

static int solve_principal(struct call *call) {
    const struct argument *range = get(call, "range");
    struct lists features = LISTS(features);
    struct gram gram = {LENGTH(p), ARRAY(G), ARRAY(C)};
    struct data data = {LENGTH(n), LENGTH(t), ARRAY(A), ARRAY(Y), ARRAY(far), NUMBER(relative)};
    const double *scale = ARRAY(scale), *shifts = ARRAY(shifts);
    double *values = ARRAY(values), *ratios = ARRAY(ratios), *probed = ARRAY(probed);
    if (data.targets > LENGTH(q) || LENGTH(v) != features.count ||
        (data.n && (LENGTH(r) != data.n || LENGTH(s) != data.targets)))
        return MISMATCH;
    struct scratch room = {.count = 0};
    struct member a = member_room(&room, features.longest, LENGTH(q));
    double *work = take(&room, size_of_member(features.longest, a.q));
    int64_t *list = take(&room, features.longest + 2 * LANES);
    struct cursor cursor = {.source = gram.G, .stride = gram.p, .list = list};
    int prefetch = sizeof *gram.G * gram.p * gram.p > PREFETCH_BYTES, status = DONE;
    for (ptrdiff_t i = range->begin; i < range->end && !status && !room.failed; i++) {
        double *own_values = values + data.targets * features.start[i];
        place(&a, work, copy_padded(a.own, &features, i));
        if (prefetch) {
            ptrdiff_t ahead = a.m <= PREFETCH_SIZE ? smaller(i + 1, range->end - 1) : i;
            cursor.row = cursor.column = 0, cursor.size = copy_padded(list, &features, ahead);
            cursor.last_row = cursor.size <= PREFETCH_SIZE ? cursor.size : 0;
        }
        gram.shift = shifts[i];
        factor_principal(&a, &gram, prefetch ? &cursor : NULL);
        solve_targets(&a, data.targets, scale, own_values);
        if (needs_data(&a, a.probed)) {
            for (ptrdiff_t j = 0; j < a.m; j++)
                a.lengths[j] = scale[a.own[j]];
            a.ratio = data.n ? a.ratio : -1.0;
            status = data.n ? finish_on_data(&a, &data, a.probed, own_values) : DONE;
        }
        ratios[i] = a.ratio, probed[i] = a.probed;
    }
    return release(&room, status);
}
