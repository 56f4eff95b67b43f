/* The two sums of a stripe, and multiples in the field they are made in.

   P is the exclusive or of all columns; Q is the sum of 2^i times column i in GF(2^8) with the polynomial 0x11d, as in
   RAID-6. Q is made by Horner's rule, from the last column to the first: doubling costs four instructions for 32 bytes,
   so that memory is the limit. The widest unit the processor has is chosen when the module is loaded. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_AVX2_BUILD 1
#include <immintrin.h>
#else
#define HAS_AVX2_BUILD 0
#endif

#define MOST_COLUMNS 255 /* 2^i comes again from there on */
#define POLYNOMIAL 0x1d

typedef struct {
    const uint8_t *columns[MOST_COLUMNS]; /* NULL stands for zeros */
    int count;
    size_t length;
    uint8_t *p;
    uint8_t *q; /* or NULL */
} Stripe;

typedef struct {
    const uint8_t *data;
    uint8_t *into;
    size_t length;
    uint8_t low[16], high[16]; /* multiples of the two halves of a byte */
} Product;

/* --- any processor ---------------------------------------------------------------------------------------------- */

static inline uint64_t
doubled(uint64_t eight)
{
    uint64_t tops = eight & 0x8080808080808080ULL;
    return ((eight ^ tops) << 1) ^ ((tops >> 7) * POLYNOMIAL);
}

static uint64_t
load(const uint8_t *from, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, from, bytes);
    return word;
}

static void
sum_words(const Stripe *stripe, size_t from)
{
    for (size_t at = from; at < stripe->length; at += 8) {
        size_t bytes = stripe->length - at < 8 ? stripe->length - at : 8;
        uint64_t p = 0, q = 0;
        for (int i = stripe->count - 1; i >= 0; i--) {
            uint64_t word = stripe->columns[i] == NULL ? 0 : load(stripe->columns[i] + at, bytes);
            p ^= word;
            q = doubled(q) ^ word;
        }
        memcpy(stripe->p + at, &p, bytes);
        if (stripe->q != NULL)
            memcpy(stripe->q + at, &q, bytes);
    }
}

static void
add_words(const Product *product, size_t from)
{
    for (size_t at = from; at < product->length; at++)
        product->into[at] ^= (uint8_t)(product->low[product->data[at] & 15] ^ product->high[product->data[at] >> 4]);
}

/* --- with AVX2 --------------------------------------------------------------------------------------------------- */

#if HAS_AVX2_BUILD
#define AVX2 __attribute__((target("avx2")))
#define WIDE 128 /* bytes at a time: four registers for each sum */

AVX2 static inline __m256i
doubled_wide(__m256i bytes)
{
    __m256i tops = _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes);
    return _mm256_xor_si256(_mm256_add_epi8(bytes, bytes), _mm256_and_si256(tops, _mm256_set1_epi8(POLYNOMIAL)));
}

AVX2 __attribute__((always_inline)) static inline size_t
sum_wide(const Stripe *stripe, const int with_q)
{
    size_t at = 0;
    for (; at + WIDE <= stripe->length; at += WIDE) {
        __m256i p[4], q[4];
        for (int lane = 0; lane < 4; lane++)
            p[lane] = q[lane] = _mm256_setzero_si256();
        for (int i = stripe->count - 1; i >= 0; i--) {
            const uint8_t *from = stripe->columns[i];
            _Pragma("GCC unroll 4") for (int lane = 0; lane < 4; lane++) {
                if (with_q)
                    q[lane] = doubled_wide(q[lane]);
                if (from == NULL)
                    continue;
                __m256i bytes = _mm256_loadu_si256((const __m256i *)(from + at) + lane);
                p[lane] = _mm256_xor_si256(p[lane], bytes);
                if (with_q)
                    q[lane] = _mm256_xor_si256(q[lane], bytes);
            }
        }
        _Pragma("GCC unroll 4") for (int lane = 0; lane < 4; lane++) {
            _mm256_storeu_si256((__m256i *)(stripe->p + at) + lane, p[lane]);
            if (with_q)
                _mm256_storeu_si256((__m256i *)(stripe->q + at) + lane, q[lane]);
        }
    }
    return at;
}

AVX2 static size_t
sum_avx2(const Stripe *stripe)
{
    return stripe->q == NULL ? sum_wide(stripe, 0) : sum_wide(stripe, 1);
}

AVX2 static size_t
add_avx2(const Product *product)
{
    const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)product->low));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)product->high));
    const __m256i half = _mm256_set1_epi8(15);
    size_t at = 0;
    for (; at + 32 <= product->length; at += 32) {
        __m256i bytes = _mm256_loadu_si256((const __m256i *)(product->data + at));
        __m256i lows = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, half));
        __m256i highs = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64(bytes, 4), half));
        __m256i sum = _mm256_loadu_si256((const __m256i *)(product->into + at));
        sum = _mm256_xor_si256(sum, _mm256_xor_si256(lows, highs));
        _mm256_storeu_si256((__m256i *)(product->into + at), sum);
    }
    return at;
}

static int
has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}

#else

static size_t sum_avx2(const Stripe *stripe) { (void)stripe; return 0; }
static size_t add_avx2(const Product *product) { (void)product; return 0; }
static int has_avx2(void) { return 0; }

#endif

static int wide_unit; /* whether this processor has one; set when the module is loaded */

/* --- the module --------------------------------------------------------------------------------------------------- */

/* Take the buffers of a sequence, in which None stands for zeros; return how many, or -1. */
static Py_ssize_t
hold_columns(PyObject *buffers, Py_buffer *views)
{
    PyObject *list = PySequence_List(buffers);
    Py_ssize_t count = list == NULL ? -1 : PyList_Size(list), held = 0;
    if (count > MOST_COLUMNS) {
        PyErr_Format(PyExc_ValueError, "a stripe has at most %d columns, got %zd", MOST_COLUMNS, count);
        count = -1;
    }
    for (; held < count; held++) {
        PyObject *column = PyList_GetItem(list, held);
        memset(views + held, 0, sizeof *views);
        if (column != Py_None && PyObject_GetBuffer(column, views + held, PyBUF_SIMPLE) < 0)
            break;
    }
    Py_XDECREF(list); /* a held view keeps its buffer alive */
    if (held == count)
        return count;
    while (held > 0)
        PyBuffer_Release(views + --held);
    return -1;
}

static int
fill_stripe(Stripe *stripe, const Py_buffer *views, Py_ssize_t count, const Py_buffer *p, const Py_buffer *q)
{
    int fits = q == NULL || q->len == p->len;
    *stripe = (Stripe){.count = (int)count, .length = (size_t)p->len, .p = p->buf, .q = q == NULL ? NULL : q->buf};
    for (Py_ssize_t i = 0; i < count; i++) {
        stripe->columns[i] = views[i].obj == NULL ? NULL : views[i].buf;
        fits = fits && (views[i].obj == NULL || views[i].len == p->len);
    }
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "columns and sums of a stripe must be of one length");
    return fits;
}

static PyObject *
add_up(PyObject *module, PyObject *args)
{
    PyObject *buffers, *first, *second;
    Py_buffer views[MOST_COLUMNS], p = {0}, q = {0};
    Py_ssize_t count = -1;
    Stripe stripe;
    int done = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &buffers, &first, &second))
        return NULL;
    if (PyObject_GetBuffer(first, &p, PyBUF_WRITABLE) == 0 &&
        (second == Py_None || PyObject_GetBuffer(second, &q, PyBUF_WRITABLE) == 0))
        count = hold_columns(buffers, views);
    if (count >= 0 && fill_stripe(&stripe, views, count, &p, second == Py_None ? NULL : &q)) {
        Py_BEGIN_ALLOW_THREADS
        sum_words(&stripe, wide_unit ? sum_avx2(&stripe) : 0);
        Py_END_ALLOW_THREADS
        done = 1;
    }
    while (count > 0)
        PyBuffer_Release(views + --count);
    PyBuffer_Release(&p);
    PyBuffer_Release(&q);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

static void
fill_product(Product *product, const Py_buffer *data, const Py_buffer *into, unsigned factor)
{
    *product = (Product){.data = data->buf, .into = into->buf, .length = (size_t)into->len};
    for (int bit = 0; bit < 8; bit++) { /* factor times 2^bit, then its share of every half byte with that bit */
        for (int half = 0; half < 16; half++) {
            if (bit < 4 && (half >> bit) & 1)
                product->low[half] ^= (uint8_t)factor;
            if (bit >= 4 && (half >> (bit - 4)) & 1)
                product->high[half] ^= (uint8_t)factor;
        }
        factor = (factor << 1) ^ (factor & 0x80 ? 0x100 | POLYNOMIAL : 0);
    }
}

static PyObject *
add_multiple(PyObject *module, PyObject *args)
{
    PyObject *source, *target;
    Py_buffer data = {0}, into = {0};
    Product product;
    int factor, done = 0;
    (void)module;
    if (!PyArg_ParseTuple(args, "OiO", &source, &factor, &target))
        return NULL;
    if (PyObject_GetBuffer(source, &data, PyBUF_SIMPLE) == 0 && PyObject_GetBuffer(target, &into, PyBUF_WRITABLE) == 0) {
        if (data.len == into.len && factor >= 0 && factor < 256) {
            fill_product(&product, &data, &into, (unsigned)factor);
            Py_BEGIN_ALLOW_THREADS
            add_words(&product, wide_unit ? add_avx2(&product) : 0);
            Py_END_ALLOW_THREADS
            done = 1;
        } else
            PyErr_SetString(PyExc_ValueError, "a multiple is by a byte, and of the length of its sum");
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&into);
    if (!done)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
use_wide_unit(PyObject *module, PyObject *wanted)
{
    int was = wide_unit, on = PyObject_IsTrue(wanted);
    (void)module;
    if (on < 0)
        return NULL;
    wide_unit = on && has_avx2();
    return PyBool_FromLong(was);
}

static int
fill_module(PyObject *module)
{
    (void)module;
    wide_unit = has_avx2();
    return 0;
}

static PyMethodDef methods[] = {
    {"add_up", add_up, METH_VARARGS, "Put the sums P and, unless it is None, Q of a sequence of columns in place."},
    {"add_multiple", add_multiple, METH_VARARGS, "Add a multiple of some bytes to others."},
    {"use_wide_unit", use_wide_unit, METH_O, "Choose whether vectors are used where there are any; for tests."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_galois",
    .m_doc = "The sums of a stripe of parity, and multiples in their field.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__galois(void)
{
    return PyModuleDef_Init(&definition);
}
