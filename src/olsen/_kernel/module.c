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

#include "kernels.h"

#if defined(X86_SETS) /* what setup.py compiles them for */
#include <cpuid.h>
extern const struct kernels kernels_avx512, kernels_avx2;
#endif
extern const struct kernels kernels_plain;

static const struct kernels *chosen = &kernels_plain;

/* The state of one call: arguments still to be read, buffers to be released. */
struct reader {
    PyObject *const *next;
    Py_buffer held[MOST_ARGUMENTS];
    int n_held;
    struct call call;
};

/* name: that of an argument in a signature, up to its colon. */
static int refuse(const char *name, const char *problem) {
    char word[32] = "";
    memcpy(word, name, strcspn(name, ":") % sizeof word);
    PyErr_Format(PyExc_ValueError, "olsen._kernel: %s %s", word, problem);
    return -1;
}

static int has_type(const Py_buffer *view, int real) {
    const char *format = view->format ? view->format : "B";
    format += *format == '=' || *format == '<' || *format == '@';
    return view->itemsize == 8 && !format[1] && (real ? *format == 'd' : *format == 'l' || *format == 'q');
}

/* The next array, of one of the types d, D, x, i, I and lengths of these letters: a length is what the first array with
 * its letter has. Sizes of workspaces are products of lengths, which memory does not bound where an array is empty. */
static Py_buffer *read_array(struct reader *from, const char *name, char type, const char *letters) {
    int writable = type == 'D' || type == 'I' ? PyBUF_WRITABLE : 0, ndim = (int)strcspn(letters, " ");
    Py_buffer *view = &from->held[from->n_held];
    if (PyObject_GetBuffer(*from->next++, view,
                           PyBUF_FORMAT | writable | (type == 'x' ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS)))
        return NULL;
    from->n_held++;
    int right = has_type(view, type != 'i' && type != 'I') && view->ndim == ndim && (uintptr_t)view->buf % 8 == 0;
    if (!right)
        refuse(name, "has other numbers, another number of dimensions, or is not aligned");
    for (int i = 0; i < ndim && right; i++) {
        ptrdiff_t *known = &from->call.length[(int)letters[i]];
        *known = *known < 0 ? view->shape[i] : *known;
        right = *known == view->shape[i] && (letters[i] == '_' || *known <= LARGEST_LENGTH);
        if (!right)
            refuse(name, "is too long, or has another shape than the arrays beside it");
    }
    return right ? view : NULL;
}

/* Three arrays, of which the lists in the range, if there is one, are checked: they lie within their indices, and
 * these are below the second letter's length. */
static int read_lists(struct reader *from, struct argument *out, const char *letters, const struct argument *range) {
    struct lists *lists = &out->lists;
    const char number[] = {letters[0], 0};
    const int64_t **parts[] = {&lists->start, &lists->stop, &lists->indices};
    for (int i = 0; i < 3; i++) {
        from->call.length['_'] = -1; /* any length */
        Py_buffer *view = read_array(from, out->name, 'i', i < 2 ? number : "_");
        if (!view)
            return -1;
        *parts[i] = view->buf;
    }
    lists->count = from->call.length['_'];
    uint64_t limit = from->call.length[(int)letters[1]];
    ptrdiff_t k = from->call.length[(int)letters[0]], begin = range ? range->begin : 0, end = range ? range->end : k;
    int within = end <= k;
    for (ptrdiff_t i = begin; within && i < end; i++) {
        int64_t start = lists->start[i], stop = lists->stop[i];
        within = 0 <= start && start <= stop && stop <= lists->count;
        for (int64_t j = start; within && j < stop; j++)
            within = (uint64_t)lists->indices[j] < limit;
        lists->longest = stop - start > lists->longest ? stop - start : lists->longest;
    }
    return within ? 0 : refuse(out->name, "are fewer than the range says, or have an index out of range");
}

static int read_argument(struct reader *from, struct argument *out, char type, const char *letters) {
    const struct argument *first = &from->call.argument[0];
    if (type == 'L')
        return read_lists(from, out, letters, strncmp(first->name, "range:", 6) ? NULL : first);
    if (type == 'f' || type == 'R') {
        out->number = PyFloat_AsDouble(*from->next++);
        out->begin = out->end = count_of(out->number);
        if (type == 'R' && !PyErr_Occurred())
            out->end = count_of(PyFloat_AsDouble(*from->next++));
        if (type == 'R' && !PyErr_Occurred() && (out->begin < 0 || out->begin > out->end))
            refuse(out->name, "is no range");
        return PyErr_Occurred() ? -1 : 0;
    }
    Py_buffer *view = read_array(from, out->name, type, letters);
    if (view) {
        out->array = view->buf;
        out->begin = view->strides[0] / 8, out->end = view->ndim > 1 ? view->strides[1] / 8 : 0;
    }
    if (view && type == 'x' && (view->strides[0] % 8 || view->strides[1] % 8))
        return refuse(out->name, "has strides that are no multiples of eight bytes");
    return view ? 0 : -1;
}

static int read_call(struct reader *from, Py_ssize_t nargs, const char *signature) {
    struct call *call = &from->call;
    Py_ssize_t expected = 0;
    for (const char *type = strchr(signature, ':'); type; type = strchr(type + 1, ':'))
        expected += type[1] == 'L' ? 3 : type[1] == 'R' ? 2 : 1;
    if (nargs != expected) {
        PyErr_Format(PyExc_TypeError, "olsen._kernel: %zd arguments given, %zd are taken", nargs, expected);
        return -1;
    }
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
    return 0;
}

static PyObject *run(PyObject *const *args, Py_ssize_t nargs, const char *signature, int (*kernel)(struct call *)) {
    struct reader from = {.next = args};
    int status = read_call(&from, nargs, signature);
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

/* Whether this processor, and the system on it (which saves the registers), have an instruction set. */
static int has(const char *instruction_set) {
#if defined(X86_SETS)
    unsigned a, b, c, d, saved = 0, high, wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL;
    if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_FMA) && (c & bit_OSXSAVE))
        __asm__ volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!strcmp(instruction_set, "avx2"))
        return (saved & 0x06) == 0x06 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2);
    if (!strcmp(instruction_set, "avx512"))
        return (saved & 0xe6) == 0xe6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & wide) == wide;
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

static int fill_module(PyObject *module) {
    return choose_kernels() ? -1 : PyModule_AddStringConstant(module, "INSTRUCTION_SET", chosen->instruction_set);
}

/* Kernels share no state but `chosen`, which is set once: Pythons without the global lock need not take it. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill_module},
#if defined(Py_GIL_DISABLED)
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
