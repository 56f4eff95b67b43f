/* SHA-256 of several buffers side by side, and copies of them on the way.

   Every round of SHA-256 waits for the one before it, so a single chain leaves the processor's SHA unit idle more than
   half of the time. The chunks of a file are hashed one by one and do not depend on each other: three chains at once fill
   the unit. The bytes are in registers then, so that a copy of them costs half of what it would by itself. Without a SHA
   unit the import fails, and hashlib does the work. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAS_SHA_UNIT 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define HAS_SHA_UNIT 0
#endif

#define MOST_LANES 3 /* a fourth chain has no registers left and is slower */
#define BLOCK 64
#define DIGEST 32

/* One buffer on its way: whole blocks of it are taken from `data`, then those of `tail`, its padded end. */
typedef struct {
    uint32_t state[8];
    const uint8_t *data;
    uint8_t *into; /* where the copy of `data` goes, or NULL */
    size_t blocks;
    uint8_t tail[2 * BLOCK];
    size_t tail_blocks;
} Chain;

#if HAS_SHA_UNIT

static const uint32_t ROUND[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

#define SHA_TARGET __attribute__((target("sha,sse4.1,ssse3")))
#define LANE _Pragma("GCC unroll 4") for (int lane = 0; lane < lanes; lane++)

/* Advance `lanes` chains by `blocks` blocks each. Inlined with constants, so that all of it stays in registers. */
SHA_TARGET __attribute__((always_inline)) static inline void
advance(Chain *const *chains, const int lanes, const int copying, size_t blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    __m128i abef[MOST_LANES], cdgh[MOST_LANES], abef_before[MOST_LANES], cdgh_before[MOST_LANES];
    __m128i words[MOST_LANES][4];

    LANE { /* the unit wants the state as ABEF and CDGH */
        __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)chains[lane]->state), 0xB1);
        __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(chains[lane]->state + 4)), 0x1B);
        abef[lane] = _mm_alignr_epi8(low, high, 8);
        cdgh[lane] = _mm_blend_epi16(high, low, 0xF0);
    }
    for (size_t block = 0; block < blocks; block++) {
        LANE {
            const uint8_t *from = chains[lane]->data + BLOCK * block;
            abef_before[lane] = abef[lane];
            cdgh_before[lane] = cdgh[lane];
            _Pragma("GCC unroll 4") for (int part = 0; part < 4; part++) {
                __m128i bytes = _mm_loadu_si128((const __m128i *)from + part);
                if (copying)
                    _mm_storeu_si128((__m128i *)(chains[lane]->into + BLOCK * block) + part, bytes);
                words[lane][part] = _mm_shuffle_epi8(bytes, big_endian);
            }
        }
        _Pragma("GCC unroll 16") for (int four = 0; four < 16; four++) {
            LANE {
                __m128i *w = words[lane], *now = w + (four & 3);
                __m128i last = w[(four + 3) & 3];
                __m128i key = _mm_add_epi32(*now, _mm_load_si128((const __m128i *)(ROUND + 4 * four)));
                cdgh[lane] = _mm_sha256rnds2_epu32(cdgh[lane], abef[lane], key);
                abef[lane] = _mm_sha256rnds2_epu32(abef[lane], cdgh[lane], _mm_shuffle_epi32(key, 0x0E));
                if (four < 12) { /* the words of the rounds 16 steps on */
                    __m128i sum = _mm_sha256msg1_epu32(*now, w[(four + 1) & 3]);
                    sum = _mm_add_epi32(sum, _mm_alignr_epi8(last, w[(four + 2) & 3], 4));
                    *now = _mm_sha256msg2_epu32(sum, last);
                }
            }
        }
        LANE {
            abef[lane] = _mm_add_epi32(abef[lane], abef_before[lane]);
            cdgh[lane] = _mm_add_epi32(cdgh[lane], cdgh_before[lane]);
        }
    }
    LANE {
        __m128i low = _mm_shuffle_epi32(abef[lane], 0x1B), high = _mm_shuffle_epi32(cdgh[lane], 0xB1);
        _mm_storeu_si128((__m128i *)chains[lane]->state, _mm_blend_epi16(low, high, 0xF0));
        _mm_storeu_si128((__m128i *)(chains[lane]->state + 4), _mm_alignr_epi8(high, low, 8));
        chains[lane]->data += BLOCK * blocks;
        if (copying)
            chains[lane]->into += BLOCK * blocks;
        chains[lane]->blocks -= blocks;
    }
}

typedef void (*Advance)(Chain *const *, size_t);
#define ADVANCE(name, lanes, copying) \
    SHA_TARGET static void name(Chain *const *chains, size_t blocks) { advance(chains, lanes, copying, blocks); }
ADVANCE(hash_one, 1, 0)
ADVANCE(hash_two, 2, 0)
ADVANCE(hash_three, 3, 0)
ADVANCE(copy_one, 1, 1)
ADVANCE(copy_two, 2, 1)
ADVANCE(copy_three, 3, 1)
static const Advance HASH[] = {NULL, hash_one, hash_two, hash_three}, COPY[] = {NULL, copy_one, copy_two, copy_three};

static int
has_sha_unit(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSSE3) || !(c & bit_SSE4_1))
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29));
}

static int
longer_first(const void *left, const void *right)
{
    size_t a = (*(Chain *const *)left)->blocks, b = (*(Chain *const *)right)->blocks;
    return (a < b) - (a > b);
}

/* Advance every chain by all its blocks, three side by side; the longest come first, so that none is left to run alone. */
static void
run_chains(Chain **chains, size_t count, const Advance *advance_by)
{
    Chain *active[MOST_LANES];
    size_t next = 0;
    int lanes = 0;

    qsort(chains, count, sizeof *chains, longer_first);
    while (1) {
        int going_on = 0;
        for (int lane = 0; lane < lanes; lane++)
            if (active[lane]->blocks)
                active[going_on++] = active[lane];
        for (lanes = going_on; lanes < MOST_LANES && next < count && chains[next]->blocks; next++)
            active[lanes++] = chains[next];
        if (!lanes)
            return;
        size_t shortest = active[0]->blocks;
        for (int lane = 1; lane < lanes; lane++)
            shortest = active[lane]->blocks < shortest ? active[lane]->blocks : shortest;
        advance_by[lanes](active, shortest);
    }
}

/* Hash all chains to their end; those with a place for a copy first. */
static void
finish_chains(Chain **chains, size_t count)
{
    size_t copied = 0;
    for (size_t i = 0; i < count; i++)
        if (chains[i]->into != NULL) {
            Chain *chain = chains[i];
            chains[i] = chains[copied];
            chains[copied++] = chain;
        }
    run_chains(chains, copied, COPY);
    run_chains(chains + copied, count - copied, HASH);
    for (size_t i = 0; i < count; i++) {
        chains[i]->data = chains[i]->tail;
        chains[i]->blocks = chains[i]->tail_blocks;
    }
    run_chains(chains, count, HASH);
}

#else

static int has_sha_unit(void) { return 0; }
static void finish_chains(Chain **chains, size_t count) { (void)chains, (void)count; }

#endif

static void
start_chain(Chain *chain, const uint8_t *data, size_t length, uint8_t *into)
{
    static const uint32_t BEGIN[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t rest = length % BLOCK;
    uint64_t bits = (uint64_t)length * 8;

    memcpy(chain->state, BEGIN, sizeof BEGIN);
    chain->data = data;
    chain->into = into;
    chain->blocks = length / BLOCK;
    chain->tail_blocks = rest < BLOCK - 8 ? 1 : 2;
    memset(chain->tail, 0, sizeof chain->tail);
    if (rest)
        memcpy(chain->tail, data + length - rest, rest);
    chain->tail[rest] = 0x80;
    for (int byte = 0; byte < 8; byte++)
        chain->tail[BLOCK * chain->tail_blocks - 1 - byte] = (uint8_t)(bits >> (8 * byte));
    if (into != NULL && rest)
        memcpy(into + length - rest, data + length - rest, rest);
}

static PyObject *
digest_of(const Chain *chain)
{
    char digest[DIGEST];
    for (int byte = 0; byte < DIGEST; byte++)
        digest[byte] = (char)(chain->state[byte / 4] >> (24 - 8 * (byte % 4)));
    return PyBytes_FromStringAndSize(digest, DIGEST);
}

/* Hash `count` buffers without the GIL, copying each into its room if there are rooms; put the digests into a list. */
static PyObject *
hash_views(const Py_buffer *views, const Py_buffer *rooms, Py_ssize_t count)
{
    Chain *chains = PyMem_Malloc((size_t)count * (sizeof(Chain) + sizeof(Chain *)) + 1);
    if (chains == NULL)
        return PyErr_NoMemory();
    Py_BEGIN_ALLOW_THREADS
    Chain **order = (Chain **)(chains + count);
    for (Py_ssize_t i = 0; i < count; i++) {
        start_chain(chains + i, views[i].buf, (size_t)views[i].len, rooms == NULL ? NULL : rooms[i].buf);
        order[i] = chains + i;
    }
    finish_chains(order, (size_t)count);
    Py_END_ALLOW_THREADS
    PyObject *digests = PyList_New(count);
    for (Py_ssize_t i = 0; digests != NULL && i < count; i++) {
        PyObject *digest = digest_of(chains + i);
        if (digest == NULL || PyList_SetItem(digests, i, digest) < 0)
            Py_CLEAR(digests);
    }
    PyMem_Free(chains);
    return digests;
}

/* The buffers of a sequence, held until `release`. */
typedef struct {
    Py_buffer *views;
    Py_ssize_t count;
} Held;

static void
release(Held *held)
{
    while (held->count)
        PyBuffer_Release(held->views + --held->count);
    PyMem_Free(held->views);
}

static int
hold(Held *held, PyObject *buffers, int flags)
{
    PyObject *list = PySequence_List(buffers);
    Py_ssize_t count = list == NULL ? 0 : PyList_Size(list);
    *held = (Held){list == NULL ? NULL : PyMem_Malloc((size_t)count * sizeof(Py_buffer) + 1), 0};
    if (list != NULL && held->views == NULL)
        PyErr_NoMemory();
    while (held->views != NULL && held->count < count &&
           !PyObject_GetBuffer(PyList_GetItem(list, held->count), held->views + held->count, flags))
        held->count++;
    Py_XDECREF(list); /* a held view keeps its buffer alive */
    if (held->views != NULL && held->count == count)
        return 0;
    release(held);
    return -1;
}

static int
same_sizes(const Held *left, const Held *right)
{
    int same = left->count == right->count;
    for (Py_ssize_t i = 0; same && i < left->count; i++)
        same = left->views[i].len == right->views[i].len;
    if (!same)
        PyErr_SetString(PyExc_ValueError, "every buffer needs a room of its own size");
    return same;
}

static PyObject *
sha256_each(PyObject *module, PyObject *buffers)
{
    Held held;
    (void)module;
    if (hold(&held, buffers, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *digests = hash_views(held.views, NULL, held.count);
    release(&held);
    return digests;
}

static PyObject *
copy_each(PyObject *module, PyObject *args)
{
    PyObject *buffers, *places, *digests = NULL;
    Held held, rooms;
    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &buffers, &places) || hold(&held, buffers, PyBUF_SIMPLE) < 0)
        return NULL;
    if (hold(&rooms, places, PyBUF_WRITABLE) == 0) {
        if (same_sizes(&held, &rooms))
            digests = hash_views(held.views, rooms.views, held.count);
        release(&rooms);
    }
    release(&held);
    return digests;
}

static int
fill_module(PyObject *module)
{
    if (!has_sha_unit()) { /* nobody may call what this processor cannot run */
        PyErr_SetString(PyExc_ImportError, "this processor has no SHA unit");
        return -1;
    }
    return 0;
}

static PyMethodDef methods[] = {
    {"sha256_each", sha256_each, METH_O, "SHA-256 digests of a sequence of buffers, computed side by side."},
    {"copy_each", copy_each, METH_VARARGS, "The same, while each buffer is copied into its room."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_sha256_lanes", "SHA-256 of several buffers side by side.", 0, methods, slots, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC
PyInit__sha256_lanes(void)
{
    return PyModuleDef_Init(&definition);
}
