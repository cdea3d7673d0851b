/* Members of one Gram matrix: G[S, S] b = C[S].
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
    ptrdiff_t p, q;
    const double *G; /* (p, p) */
    const double *C; /* (p, q) */
};

/* Fill block column s from G, and from C in the rows after the last variable. */
static void gather_block(const struct member *a, ptrdiff_t s, const struct gram *from, const int64_t *own) {
    /* The mirrored entries G[S_s, S_r]: a panel's column then comes from a single row of G. */
    for (ptrdiff_t r = s; r < a->n_blocks; r++)
        gather_tile(panel_of(a, r) + TILE * s, from->G, own + LANES * s, from->p, own + LANES * r, 1);
    for (ptrdiff_t t = 0; t < a->q; t++) {
        double *row = right_hand_side(a, t);
        for (ptrdiff_t j = LANES * s; j < LANES * (s + 1); j++)
            row[LANES * j] = from->C[a->q * own[j] + t];
    }
}

/* Gather and factor a member. The cursor fetches on the way what comes next: its list, or the member's next block. */
static void factor_principal(const struct member *a, const struct gram *from, const int64_t *own,
                             struct cursor *cursor) {
    int whole = a->m <= PREFETCH_SIZE;
    for (ptrdiff_t s = 0; s < a->n_blocks; s++) {
        gather_block(a, s, from, own);
        if (cursor && !whole) {
            cursor->row = cursor->column = smaller(LANES * (s + 1), a->m);
            cursor->last_row = smaller(LANES * (s + 2), a->m);
        }
        eliminate_block(a, s, cursor);
    }
}

/* Let the cursor walk over a member, or wait for its blocks. */
static void aim(struct cursor *cursor, int64_t *list, const int64_t *indices, ptrdiff_t count) {
    copy_padded(list, indices, count);
    cursor->list = list;
    cursor->row = cursor->column = 0;
    cursor->size = count;
    cursor->last_row = count <= PREFETCH_SIZE ? count : 0;
}

static int solve_principal(struct call *call) {
    const struct argument *range = get(call, "range");
    struct lists features = LISTS(features);
    struct gram gram = {LENGTH(p), LENGTH(q), ARRAY(G), ARRAY(C)};
    struct data data = {LENGTH(n), LENGTH(t), ARRAY(A), ARRAY(Y), ARRAY(far), NUMBER(relative)};
    const double *scale = ARRAY(scale);
    double *values = ARRAY(values), *ratios = ARRAY(ratios), *probed = ARRAY(probed);
    ptrdiff_t largest = features.longest, targets = data.targets, size = size_of_member(largest, gram.q);
    if (targets > gram.q || LENGTH(v) != get(call, "features")->end ||
        (data.n && (LENGTH(r) != data.n || LENGTH(s) != targets)))
        return MISMATCH;
    struct scratch room;
    if (reserve(&room, size + (AT_ONCE + 4) * (largest + 2 * LANES)))
        return NO_MEMORY;
    double *work = take(&room, size), *spare = take(&room, AT_ONCE * round_up(largest));
    double *lengths = take(&room, largest);
    int64_t *own = take(&room, largest + LANES), *list = take(&room, largest + 2 * LANES);
    int64_t *skipped = take(&room, largest);
    struct cursor cursor = {.source = gram.G, .stride = gram.p};
    int prefetch = sizeof *gram.G * gram.p * gram.p > PREFETCH_BYTES, status = DONE;
    for (ptrdiff_t i = range->begin; i < range->end && !status; i++) {
        ptrdiff_t start = features.start[i], m = features.stop[i] - start;
        ptrdiff_t ahead = m <= PREFETCH_SIZE ? smaller(i + 1, range->end - 1) : i;
        double *own_values = values + targets * start;
        struct member a = member_at(work, m, gram.q);
        ratios[i] = 1.0, probed[i] = 0.0;
        if (m == 0)
            continue;
        copy_padded(own, features.indices + start, m);
        if (prefetch)
            aim(&cursor, list, features.indices + features.start[ahead], features.stop[ahead] - features.start[ahead]);
        factor_principal(&a, &gram, own, prefetch ? &cursor : NULL);
        ratios[i] = solve_member(&a);
        read_targets(&a, targets, ratios[i], own_values);
        probed[i] = largest_probe(&a, targets, scale, own, ratios[i]);
        ptrdiff_t count = ratios[i] > 0.0 ? find_skipped(&a, skipped) : 0;
        if (count == 0 && !needs_data(ratios[i], probed[i]))
            continue;
        if (data.n == 0) {
            ratios[i] = -1.0;
            continue;
        }
        for (ptrdiff_t j = 0; j < m; j++)
            lengths[j] = scale[own[j]];
        int trusted = finish_on_data(&a, &data, own, lengths, own_values, ratios[i], probed[i], skipped, count, spare);
        status = trusted == NO_MEMORY ? NO_MEMORY : DONE;
        ratios[i] = trusted ? 1.0 : 0.0;
        probed[i] = trusted ? 0.0 : INFINITY;
    }
    free(room.base);
    return status;
}
