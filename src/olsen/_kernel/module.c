/* The Python border: arrays are taken by the buffer protocol, every size and index is checked, the lock is released.
 *
 * Only the limited API is used, so that one build serves every Python from 3.11 on. What the functions take is listed
 * in kernels.h and explained in _native.pyi. */
#define PY_SSIZE_T_CLEAN
#if !__has_include(<Python.h>)
#error "olsen needs the headers of Python (Debian: python3-dev)"
#endif
#include <Python.h>

#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#if defined(X86_SETS) /* what setup.py compiles them for */
#include <cpuid.h>
extern const struct kernels kernels_avx512, kernels_avx2;
#endif
extern const struct kernels kernels_plain;

static const struct kernels *chosen = &kernels_plain;

/* The state of one call: arguments still to be read, buffers to be released. */
struct reader {
    PyObject *const *next, *const *end;
    Py_buffer held[MOST_ARGUMENTS];
    int written[MOST_ARGUMENTS], n_held;
    struct call call;
};

/* name: that of an argument in a signature, up to its colon. */
static int refuse(const char *name, const char *problem) {
    char word[32] = "";
    memcpy(word, name, strcspn(name, ":") % sizeof word);
    PyErr_Format(PyExc_ValueError, "olsen._kernel: %s %s", word, problem);
    return -1;
}

static PyObject *next_object(struct reader *from) {
    if (from->next < from->end)
        return *from->next++;
    PyErr_SetString(PyExc_TypeError, "olsen._kernel: too few arguments");
    return NULL;
}

static int has_type(const Py_buffer *view, int real) {
    const char *format = view->format ? view->format : "B";
    format += *format == '=' || *format == '<' || *format == '@';
    return view->itemsize == 8 && !format[1] && (real ? *format == 'd' : *format == 'l' || *format == 'q');
}

/* A length given by a letter is what the first array with that letter has. Sizes of workspaces are products of lengths,
 * which are not bounded by memory where an array is empty. */
static int check_length(struct reader *from, char letter, ptrdiff_t length, const char *name) {
    ptrdiff_t *known = &from->call.length[(int)letter];
    if (letter != '_' && length > LARGEST_LENGTH)
        return refuse(name, "is too long");
    if (*known < 0)
        *known = length;
    return *known == length ? 0 : refuse(name, "has another shape than the arrays beside it");
}

/* The next array, of one of the types d, D, x, i, I and lengths of these letters. */
static Py_buffer *read_array(struct reader *from, const char *name, char type, const char *letters) {
    PyObject *object = next_object(from);
    int writable = type == 'D' || type == 'I' ? PyBUF_WRITABLE : 0;
    int order = type == 'x' ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS, ndim = (int)strcspn(letters, " ");
    Py_buffer *view = &from->held[from->n_held];
    if (!object || PyObject_GetBuffer(object, view, PyBUF_FORMAT | order | writable))
        return NULL;
    from->written[from->n_held++] = writable;
    if (!has_type(view, type != 'i' && type != 'I') || view->ndim != ndim || (uintptr_t)view->buf % 8) {
        refuse(name, "has other numbers, another number of dimensions, or is not aligned");
        return NULL;
    }
    for (int i = 0; i < ndim; i++)
        if (check_length(from, letters[i], view->shape[i], name))
            return NULL;
    return view;
}

static int read_number(struct reader *from, double *number) {
    PyObject *object = next_object(from);
    *number = object ? PyFloat_AsDouble(object) : 0.0;
    return object && !PyErr_Occurred() ? 0 : -1;
}

static int read_lists(struct reader *from, struct argument *out, const char *letters) {
    const char number[] = {letters[0], 0};
    const int64_t **parts[] = {&out->lists.start, &out->lists.stop, &out->lists.indices};
    for (int i = 0; i < 3; i++) {
        from->call.length['_'] = -1; /* any length */
        Py_buffer *view = read_array(from, out->name, 'i', i < 2 ? number : "_");
        if (!view)
            return -1;
        *parts[i] = view->buf;
    }
    out->end = from->call.length['_'];
    return 0;
}

static int read_argument(struct reader *from, struct argument *out, char type, const char *letters) {
    double bound[2];
    switch (type) {
    case 'f':
        return read_number(from, &out->number);
    case 'R':
        if (read_number(from, &bound[0]) || read_number(from, &bound[1]))
            return -1;
        out->begin = count_of(bound[0]), out->end = count_of(bound[1]);
        return 0;
    case 'L':
        return read_lists(from, out, letters);
    }
    Py_buffer *view = read_array(from, out->name, type, letters);
    if (!view)
        return -1;
    out->array = view->buf;
    if (type == 'x') {
        out->begin = view->strides[0] / 8, out->end = view->strides[1] / 8;
        if (view->strides[0] % 8 || view->strides[1] % 8)
            return refuse(out->name, "has strides that are no multiples of eight bytes");
    }
    return 0;
}

/* Lists begin to end lie within their indices, and these between 0 and limit. */
static int check_lists(struct argument *given, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t limit) {
    struct lists *lists = &given->lists;
    for (ptrdiff_t i = begin; i < end; i++) {
        int64_t start = lists->start[i], stop = lists->stop[i];
        if (!(0 <= start && start <= stop && stop <= given->end))
            return refuse(given->name, "has a list that does not lie within its indices");
        int within = 1;
        for (int64_t j = start; j < stop; j++)
            within &= (uint64_t)lists->indices[j] < (uint64_t)limit;
        if (!within)
            return refuse(given->name, "has an index out of range");
        lists->longest = stop - start > lists->longest ? stop - start : lists->longest;
    }
    return 0;
}

/* Ranges and indices, once all lengths are known. */
static int check_indices(struct call *call) {
    const struct argument *range = NULL;
    for (int i = 0; i < call->count; i++) {
        struct argument *given = &call->argument[i];
        const char *type = strchr(given->name, ':') + 1;
        ptrdiff_t length = type[1] == '-' ? PTRDIFF_MAX : call->length[(int)type[1]], begin = 0, end = length;
        if (*type == 'R') {
            range = given;
            if (!(0 <= range->begin && range->begin <= range->end && range->end <= length))
                return refuse(given->name, "is not within what is there");
        } else if (*type == 'L') {
            if (range)
                begin = range->begin, end = range->end;
            if (check_lists(given, begin, end, type[2] == '-' ? PTRDIFF_MAX : call->length[(int)type[2]]))
                return -1;
        }
    }
    return 0;
}

/* What is written to lies apart from all other arrays: indices must stay what they were when they were checked. */
static int check_overlap(const struct reader *from) {
    for (int i = 0; i < from->n_held; i++)
        for (int j = 0; j < from->n_held; j++) {
            const Py_buffer *a = &from->held[i], *b = &from->held[j];
            const char *first = a->buf, *second = b->buf;
            if (i != j && from->written[i] && first < second + b->len && second < first + a->len)
                return refuse("arrays", "share memory");
        }
    return 0;
}

static int read_call(struct reader *from, const char *signature) {
    struct call *call = &from->call;
    for (int i = 0; i < 128; i++)
        call->length[i] = -1;
    for (const char *token = signature; token; call->count++) {
        const char *type = strchr(token, ':') + 1;
        call->argument[call->count].name = token;
        if (read_argument(from, &call->argument[call->count], *type, type + 1))
            return -1;
        token = strchr(token, ' ');
        token += token != NULL;
    }
    if (from->next < from->end) {
        PyErr_SetString(PyExc_TypeError, "olsen._kernel: too many arguments");
        return -1;
    }
    return check_overlap(from) ? -1 : check_indices(call);
}

static PyObject *run(PyObject *const *args, Py_ssize_t nargs, const char *signature, int (*kernel)(struct call *)) {
    struct reader from = {.next = args, .end = args + nargs};
    int status = read_call(&from, signature);
    if (!status) {
        Py_BEGIN_ALLOW_THREADS
        status = kernel(&from.call);
        Py_END_ALLOW_THREADS
        if (status == NO_MEMORY)
            PyErr_NoMemory();
        else if (status)
            refuse("arrays", "do not go together");
    }
    for (int i = 0; i < from.n_held; i++)
        PyBuffer_Release(&from.held[i]);
    return status ? NULL : PyLong_FromSsize_t(from.call.result);
}

#define FUNCTION(name, signature)                                                                                      \
    static PyObject *name(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {                                   \
        (void)self;                                                                                                    \
        return run(args, nargs, signature, chosen->name);                                                              \
    }
KERNEL_LIST(FUNCTION)

/* Whether this processor, and the system on it, have an instruction set. */
static int has(const char *instruction_set) {
#if defined(X86_SETS)
    unsigned a, b, c, d, low, high;
    if (strcmp(instruction_set, "plain")) {
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_FMA) || !(c & bit_OSXSAVE))
            return 0;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); /* registers that the system saves */
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
            return 0;
        if (!strcmp(instruction_set, "avx2"))
            return (low & 0x06) == 0x06 && (b & bit_AVX2);
        return (low & 0xe6) == 0xe6 && (b & bit_AVX512F) && (b & bit_AVX512DQ) && (b & bit_AVX512VL);
    }
#endif
    return !strcmp(instruction_set, "plain");
}

/* The widest instruction set there is, or the one that OLSEN_INSTRUCTION_SET names. */
static int choose_kernels(void) {
    const struct kernels *all[] = {
#if defined(X86_SETS)
        &kernels_avx512, &kernels_avx2,
#endif
        &kernels_plain};
    const char *wanted = getenv("OLSEN_INSTRUCTION_SET");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *name = all[i]->instruction_set;
        if (has(name) && (!wanted || !*wanted || !strcmp(wanted, name))) {
            chosen = all[i];
            return 0;
        }
    }
    PyErr_Format(PyExc_ImportError, "OLSEN_INSTRUCTION_SET=%s: there are avx512, avx2 and plain, where the machine has "
                 "them", wanted);
    return -1;
}

#define METHOD(name, signature) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL},
static PyMethodDef methods[] = {KERNEL_LIST(METHOD){NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = choose_kernels() ? NULL : PyModule_Create(&definition);
    if (module && PyModule_AddStringConstant(module, "INSTRUCTION_SET", chosen->instruction_set)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
