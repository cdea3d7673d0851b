/* Vectors of the instruction set that this copy of the kernels is compiled for.
 *
 * A column of a tile has LANES numbers, held in PARTS vectors. Products are fused with sums where FMA or FNMA is
 * written and nowhere else: the build switches contraction off, so that results depend on the instruction set and never
 * on the compiler. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if !defined(__GNUC__) || (!defined(__clang__) && __GNUC__ < 12)
#error "olsen needs GCC 12 or later, or clang: name one in the variable CC"
#endif

#define LANES 8
#define TILE (LANES * LANES)

/* PASS: columns updated in one sweep of the hot loop, with eight accumulators in all (of 32 registers: sixteen). EVEN
 * and ODD: every other entry of two vectors. */
#if defined(__AVX512F__)
#include <immintrin.h>
#define WIDTH 8
#define PASS 8
#define FMA(a, b, c) _mm512_fmadd_pd(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_pd(a, b, c)
#define LIST(of) {of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)}
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define WIDTH 4
#define PASS 4
#define FMA(a, b, c) _mm256_fmadd_pd(a, b, c)
#define FNMA(a, b, c) _mm256_fnmadd_pd(a, b, c)
#define LIST(of) {of(0), of(1), of(2), of(3)}
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#else
#define WIDTH 2
#define LIST(of) {of(0), of(1)}
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3)
#if defined(__aarch64__)
#include <arm_neon.h>
#define PASS 4
#define FMA(a, b, c) vfmaq_f64(c, a, b)
#define FNMA(a, b, c) vfmsq_f64(c, a, b)
#else
#define PASS 2
#define FMA(a, b, c) ((a) * (b) + (c))
#define FNMA(a, b, c) ((c) - (a) * (b))
#endif
#endif

/* Half a column, where that is less work. */
#if WIDTH >= 4
#define HALF_FNMA(a, b, c) _mm256_fnmadd_pd(a, b, c)
#else
#define HALF_FNMA(a, b, c) ((c) - (a) * (b))
#endif

#define PARTS (LANES / WIDTH)
#define INLINE static inline __attribute__((always_inline))
#define EACH(i, count) _Pragma("GCC unroll 8") for (int i = 0; i < (count); i++)

typedef double vec __attribute__((vector_size(8 * WIDTH)));
typedef double vec_in_memory __attribute__((vector_size(8 * WIDTH), aligned(8), may_alias));

typedef struct {
    vec part[PARTS];
} column;

typedef double half __attribute__((vector_size(4 * LANES), aligned(8), may_alias));

INLINE vec broadcast(double value) { return value - (vec){0.0}; }

/* line[at[0] * stride], line[at[1] * stride], ... */
INLINE vec gather(const double *line, const int64_t *at, ptrdiff_t stride) {
#define ENTRY(i) line[at[i] * stride]
    return (vec)LIST(ENTRY);
}

INLINE column load(const double *from) {
    column out;
    EACH(i, PARTS) out.part[i] = *(const vec_in_memory *)(from + WIDTH * i);
    return out;
}

INLINE void store(double *to, column x) { EACH(i, PARTS) *(vec_in_memory *)(to + WIDTH * i) = x.part[i]; }

INLINE column constant(double value) {
    column out;
    EACH(i, PARTS) out.part[i] = broadcast(value);
    return out;
}

INLINE double lane(column x, int i) { return x.part[i / WIDTH][i % WIDTH]; }

INLINE column add(column a, column b) {
    EACH(i, PARTS) a.part[i] += b.part[i];
    return a;
}

INLINE column subtract(column a, column b) {
    EACH(i, PARTS) a.part[i] -= b.part[i];
    return a;
}

INLINE column times(double factor, column x) {
    EACH(i, PARTS) x.part[i] *= broadcast(factor);
    return x;
}

/* sum + a * b, lane by lane, rounded once */
INLINE column plus_product(column sum, column a, column b) {
    EACH(i, PARTS) sum.part[i] = FMA(a.part[i], b.part[i], sum.part[i]);
    return sum;
}

/* sum + factor * x and sum - factor * x, rounded once */
INLINE column plus(column sum, double factor, column x) { return plus_product(sum, constant(factor), x); }

INLINE column minus(column sum, double factor, column x) {
    EACH(i, PARTS) sum.part[i] = FNMA(broadcast(factor), x.part[i], sum.part[i]);
    return sum;
}

/* The column whose lane c is the sum of the lanes of x[c]: 64 numbers in a row, neighbours added three times over. */
INLINE column sum_lanes(const column x[LANES]) {
    vec row[LANES * PARTS];
    EACH(c, LANES) EACH(i, PARTS) row[PARTS * c + i] = x[c].part[i];
    _Pragma("GCC unroll 3") for (int left = LANES * PARTS / 2; left >= PARTS; left /= 2)
        _Pragma("GCC unroll 32") for (int i = 0; i < left; i++)
            row[i] = EVEN(row[2 * i], row[2 * i + 1]) + ODD(row[2 * i], row[2 * i + 1]);
    column out;
    EACH(i, PARTS) out.part[i] = row[i];
    return out;
}

/* Inner product: 32 sums side by side hide the latency of additions. */
static double dot(const double *a, const double *b, ptrdiff_t n) {
    column sum[4];
    double lanes[LANES], total = 0.0;
    ptrdiff_t l = 0;
    EACH(i, 4) sum[i] = constant(0.0);
    for (; l + 4 * LANES <= n; l += 4 * LANES)
        EACH(i, 4) sum[i] = plus_product(sum[i], load(a + l + LANES * i), load(b + l + LANES * i));
    for (; l + LANES <= n; l += LANES)
        sum[0] = plus_product(sum[0], load(a + l), load(b + l));
    store(lanes, add(add(sum[0], sum[1]), add(sum[2], sum[3])));
    EACH(i, LANES) total += lanes[i];
    for (; l < n; l++)
        total += a[l] * b[l];
    return total;
}

static void subtract_multiple(double *restrict out, double factor, const double *restrict x, ptrdiff_t n) {
    for (ptrdiff_t l = 0; l < n; l++)
        out[l] -= factor * x[l];
}
