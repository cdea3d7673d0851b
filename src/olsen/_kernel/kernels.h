/* What module.c hands to the kernels, which are compiled once for each instruction set. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* What a kernel returns. */
#define DONE 0
#define NO_MEMORY (-1)
#define MISMATCH (-2) /* arrays that do not go together, beyond what the signature says */

#define MOST_ARGUMENTS 24
#define LARGEST_LENGTH ((ptrdiff_t)1 << 31)
#define MOST_COLUMNS ((ptrdiff_t)1 << 24) /* of a member: its factor takes half of their square */

/* Numerical tolerances: those of olsen/_trust.py, where the reasons are; a test compares the two. Of the kernels alone:
 * a pivot from which on down it is taken for rounding, so that the column may depend on those before it, which the data
 * must confirm (with w the coefficients of the column on the others, all of unit length, rounding leaves about
 * eps (1 + sum |w|)^2 of a dependent one); and an inflation up to which a solution is refined on the data. */
#define EPS 0x1p-52
#define SMALLEST_PIVOT 1e-5
#define DEPENDENT_PIVOT 1e-9
#define LARGEST_INFLATION 3e4
#define LARGEST_REFINABLE 1e10
#define EXACT_FIT 1e-6
#define RANK_COST 1e-20

/* List i is indices[start[i]] to indices[stop[i] - 1]. */
struct lists {
    const int64_t *start, *stop, *indices;
    ptrdiff_t longest, count; /* of those in use; of the indices */
};

/* One argument: an array (in C order unless the signature says otherwise), a number, a range or lists of indices. */
struct argument {
    const char *name;
    void *array;
    double number;
    ptrdiff_t begin, end; /* of a range; strides of an array in any order */
    struct lists lists;
};

/* The arguments of one call, whose types, shapes and indices module.c has checked, and the lengths by their letters. */
struct call {
    struct argument argument[MOST_ARGUMENTS];
    int count;
    ptrdiff_t length[128], result;
};

/* The argument of a name that the signature has. */
static inline const struct argument *get(const struct call *call, const char *name) {
    const struct argument *at = call->argument;
    while (strncmp(at->name, name, strlen(name)) || at->name[strlen(name)] != ':')
        at++;
    return at;
}

/* A number as a count, -1 if it is none. */
static inline ptrdiff_t count_of(double number) { return number >= 0.0 && number <= 0x1p52 ? (ptrdiff_t)number : -1; }

#define ARRAY(name) (get(call, #name)->array)
#define NUMBER(name) (get(call, #name)->number)
#define COUNT(name) count_of(NUMBER(name))
#define LISTS(name) (get(call, #name)->lists)
#define LENGTH(letter) (call->length[(int)#letter[0]])

/* Every kernel: its name, and its arguments in order, as name:type and letters for the lengths. Types: d array of
 * doubles, D to be written to, x the same in any order, i and I integers of 64 bits, f number, R range (two numbers) of
 * the lists that follow, L lists (three arrays: starts, stops, indices) by their number and what indices are below. */
#define KERNEL_LIST(KERNEL)                                                                                            \
    KERNEL(solve_principal, "range:R G:dpp C:dpq scale:dp A:dpn Y:drs far:dp relative:f features:Lkp shifts:dk "       \
                            "values:Dvt ratios:Dk probed:Dk")                                                                     \
    KERNEL(solve_gathered, "range:R X:xnp Y:dnq features:Lkp samples:Lkn weights:dw scale:dp centre:f penalty:f "      \
                           "values:Dvt intercepts:Dkt ratios:Dk probed:Dk")                                            \
    KERNEL(factor_members, "range:R G:dgg C:dcq A:dpn Y:dnq rows:f scale:dp far:dp relative:f features:Lkp "           \
                           "store:Dks ratios:Dk")                                                                      \
    KERNEL(sum_pairs, "begin:f end:f A:dpn Y:dnq share:dn root:dn rows:f own_rows:f features:Lkp sizes:ie slots:ih "   \
                      "store:dks total:Dzqn square:Dzqn pair_square:Dzqn states:In")                                   \
    KERNEL(lasso_path, "M:dpn left:Dqn squares:dp penalties:dl most:f tol:f from_rows:f found:Dlpq")                   \
    KERNEL(sparse_lasso_path, "left:Dqn mean:dp columns:Lpn values:dv weights:dn squares:dp penalties:dl most:f tol:f " \
                              "found:Dlpq")                                                                            \
    KERNEL(member_size, "columns:f targets:f")                                                                         \
    KERNEL(draw_determinantal, "members:R key:iy vectors:dpr chances:dr subsets:Ikr sizes:Ik")

struct kernels {
    const char *instruction_set;
#define POINTER(name, signature) int (*name)(struct call *);
    KERNEL_LIST(POINTER)
#undef POINTER
};
