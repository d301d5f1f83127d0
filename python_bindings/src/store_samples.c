/* SPDX-License-Identifier: Apache-2.0
 *
 * store_samples.c: methods of Store that find and read samples, by number or by key. */
#include "handles.h"

PyObject *core_store_owner(PyObject *object, PyObject *number)
{
    uint64_t sample;
    if (core_sample(number, core_store_count(object), &sample) < 0)
        return NULL;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    int64_t owner = rks_store_owner(handle, sample);
    core_store_leave(object);
    return PyLong_FromLongLong(owner);
}

PyObject *core_store_key(PyObject *object, PyObject *number)
{
    uint64_t sample;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_error err = {0};
    rks_status status;
    if (core_sample(number, core_store_count(object), &sample) < 0)
        return NULL;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_store_key(handle, sample, key, &size, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(object);
    return status == RKS_OK ? PyBytes_FromStringAndSize((const char *)key, (Py_ssize_t)size)
                            : core_raise(&err);
}

PyObject *core_store_find(PyObject *object, PyObject *arguments)
{
    PyObject *key, *number = Py_None;
    const void *bytes;
    size_t size;
    uint64_t sample = 0, source = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "O|O:find", &key, &number) || !core_key(key, &bytes, &size) ||
        (number != Py_None && !core_number(number, "source", 0, UINT64_MAX, &source)))
        return NULL;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = number == Py_None ? rks_store_find(handle, bytes, size, &sample, &err)
                               : rks_store_find_in(handle, source, bytes, size, &sample, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(object);
    if (status == RKS_OK)
        return PyLong_FromUnsignedLongLong(sample);
    if (status != RKS_ERR_NOT_FOUND)
        return core_raise(&err);
    PyErr_SetObject(PyExc_KeyError, key);
    return NULL;
}

/* Reads (name, weight) of each part. Free with PyMem_Free. Returns NULL with an exception. */
static rks_split_part *read_split_parts(PyObject *tuple, size_t count)
{
    rks_split_part *parts = PyMem_Calloc(count + 1, sizeof(*parts));
    if (parts == NULL)
        return (rks_split_part *)(void *)PyErr_NoMemory();
    for (size_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        if (!PyArg_ParseTuple(pair, "sd:split", &parts[i].name, &parts[i].weight)) {
            PyMem_Free(parts);
            return NULL;
        }
    }
    return parts;
}

PyObject *core_store_split(PyObject *object, PyObject *arguments)
{
    PyObject *tuple, *seed_object;
    const char *by;
    uint64_t seed = 0;
    rks_error err = {0};
    rks_status status = RKS_OK;
    if (!PyArg_ParseTuple(arguments, "O!Oz:split", &PyTuple_Type, &tuple, &seed_object, &by) ||
        !core_number(seed_object, "seed", 0, UINT64_MAX, &seed))
        return NULL;
    size_t count = (size_t)PyTuple_Size(tuple);
    rks_split_part *parts = read_split_parts(tuple, count);
    rks_store *handle = parts == NULL ? NULL : core_store_enter(object);
    PyObject *bytes = NULL;
    if (handle != NULL) {
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rks_store_count(handle) * 2));
        uint16_t *part_of = bytes == NULL ? NULL : (uint16_t *)(void *)PyBytes_AsString(bytes);
        if (bytes != NULL) {
            Py_BEGIN_ALLOW_THREADS
            status = rks_store_split(handle, parts, count, seed, by, part_of, &err);
            Py_END_ALLOW_THREADS
        }
        core_store_leave(object);
    }
    PyMem_Free(parts);
    if (status != RKS_OK) {
        Py_CLEAR(bytes);
        core_raise(&err);
    }
    return bytes;
}

PyObject *core_store_fetch(PyObject *object, PyObject *samples)
{
    uint64_t *ids = NULL;
    size_t count = 0;
    rks_batch *batch = NULL;
    rks_error err = {0};
    rks_status status;
    if (core_samples(samples, core_store_count(object), &ids, &count) < 0)
        return NULL;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL) {
        PyMem_Free(ids);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = rks_store_fetch(handle, ids, count, &batch, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(object);
    PyMem_Free(ids);
    return status == RKS_OK ? core_samples_new(object, batch) : core_raise(&err);
}

/* Checks for uint32 triples and ascending bounds. Returns false with an exception. */
static bool check_pieces_and_bins(const Py_buffer *pieces, const Py_buffer *bins)
{
    const uint32_t *bounds = bins->buf;
    bool good = pieces->len % sizeof(rks_piece) == 0 && bins->len % sizeof(uint32_t) == 0 &&
                bins->len != sizeof(uint32_t);
    for (size_t i = 1; good && i < (size_t)bins->len / sizeof(uint32_t); i++)
        good = bounds[i] > bounds[i - 1];
    if (!good)
        PyErr_SetString(PyExc_ValueError,
                        "pieces, bins: uint32 triples, and ascending uint32 bounds");
    return good;
}

PyObject *core_store_collate(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"samples", "collate", "pieces", "bins", NULL};
    PyObject *samples, *collate;
    Py_buffer pieces = {0}, bins = {0};
    uint64_t *ids = NULL;
    size_t count = 0;
    rks_arrays *arrays = NULL;
    rks_error err = {0};
    rks_status status;
    PyObject *made = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|z*z*:collate", names, &samples,
                                     &collate, &pieces, &bins))
        return NULL;
    const rks_collate_options *options = core_collate(collate);
    rks_store *handle = NULL;
    if (options != NULL && check_pieces_and_bins(&pieces, &bins) &&
        core_samples(samples, core_store_count(object), &ids, &count) == 0)
        handle = core_store_enter(object);
    if (handle != NULL) {
        size_t bounds = (size_t)bins.len / sizeof(uint32_t);
        const rks_planned_batch batch = {.struct_size = sizeof(batch),
                                         .sample_ids = ids,
                                         .count = count,
                                         .pieces = pieces.buf,
                                         .piece_count = (size_t)pieces.len / sizeof(rks_piece),
                                         .bounds = bounds == 0 ? NULL : bins.buf,
                                         .bins = bounds == 0 ? 0 : bounds - 1};
        Py_BEGIN_ALLOW_THREADS
        status = rks_store_collate_planned(handle, &batch, options, &arrays, &err);
        Py_END_ALLOW_THREADS
        core_store_leave(object);
        made = status == RKS_OK ? core_arrays_new(arrays) : core_raise(&err);
    }
    PyMem_Free(ids);
    PyBuffer_Release(&pieces);
    PyBuffer_Release(&bins);
    return made;
}

PyObject *core_store_view(PyObject *object, PyObject *number)
{
    uint64_t sample;
    rks_view *view = NULL;
    rks_error err = {0};
    rks_status status;
    if (core_sample(number, core_store_count(object), &sample) < 0)
        return NULL;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_store_view(handle, sample, &view, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(object);
    PyObject *owner = status == RKS_OK ? core_view_new(view) : core_raise(&err);
    PyObject *list = owner == NULL ? NULL
                                   : core_view_values(owner, core_store_dim_counts(object),
                                                      core_store_columns(object));
    Py_XDECREF(owner);
    return list;
}
