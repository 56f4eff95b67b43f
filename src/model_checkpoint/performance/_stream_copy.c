/* Copies that leave the processor's caches alone.

   A plain store first fetches the line it is about to replace, and then pushes out of the caches what is needed next.
   For bytes that nobody will look at before they are evicted anyway that is a third of the whole cost of a copy. A
   streaming store writes full lines straight to memory. Where the compiler has none, memcpy does the work. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define LINE 64

#if defined(__SSE2__)
#include <emmintrin.h>

/* Copy whole lines to a place that begins with one. */
static void
stream_lines(uint8_t *into, const uint8_t *from, size_t lines)
{
    for (; lines; lines--, into += LINE, from += LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)from), b = _mm_loadu_si128((const __m128i *)(from + 16)),
                c = _mm_loadu_si128((const __m128i *)(from + 32)), d = _mm_loadu_si128((const __m128i *)(from + 48));
        _mm_stream_si128((__m128i *)into, a);
        _mm_stream_si128((__m128i *)(into + 16), b);
        _mm_stream_si128((__m128i *)(into + 32), c);
        _mm_stream_si128((__m128i *)(into + 48), d);
    }
    _mm_sfence(); /* streaming stores may be seen out of order; whoever is told of the copy must see all of it */
}

#else

static void
stream_lines(uint8_t *into, const uint8_t *from, size_t lines)
{
    memcpy(into, from, lines * LINE);
}

#endif

static void
copy_bytes(uint8_t *into, const uint8_t *from, size_t length)
{
    size_t head = (size_t)(-(uintptr_t)into % LINE), lines;
    head = head < length ? head : length;
    lines = (length - head) / LINE;
    memcpy(into, from, head);
    stream_lines(into + head, from + head, lines);
    memcpy(into + head + lines * LINE, from + head + lines * LINE, length - head - lines * LINE);
}

static PyObject *
stream_copy(PyObject *module, PyObject *args)
{
    Py_buffer into, from;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*", &into, &from))
        return NULL;
    int fits = into.len == from.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        copy_bytes(into.buf, from.buf, (size_t)from.len);
        Py_END_ALLOW_THREADS
    } else
        PyErr_Format(PyExc_ValueError, "%zd bytes do not fit a room of %zd", from.len, into.len);
    PyBuffer_Release(&from);
    PyBuffer_Release(&into);
    return fits ? Py_NewRef(Py_None) : NULL;
}

static PyMethodDef methods[] = {
    {"stream_copy", stream_copy, METH_VARARGS, "Fill a room with as many bytes, past the caches and without the GIL."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_stream_copy", "Copies that leave the caches alone.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__stream_copy(void)
{
    return PyModuleDef_Init(&definition);
}
