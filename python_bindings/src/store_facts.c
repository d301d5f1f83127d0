/* SPDX-License-Identifier: Apache-2.0
 *
 * store_facts.c: what an open store knows: lengths, index columns, sources, generations, figures.
 */
#include "handles.h"

#include <string.h>

PyObject *core_store_lengths(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    const uint32_t *lengths = rks_store_lengths(handle);
    core_store_leave(object);
    return core_buffer(core_store_index(object), (void *)(uintptr_t)lengths,
                       core_store_count(object) * sizeof(*lengths), false);
}

/* Returns the item size of a numeric type; index columns have no others. */
static size_t item_size(const char *type)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"bool", 1},    {"int8", 1},      {"uint8", 1},    {"float8", 1}, {"int16", 2},
                 {"uint16", 2},  {"float16", 2},   {"bfloat16", 2}, {"int32", 4},  {"uint32", 4},
                 {"float32", 4}, {"complex64", 8}, {"int64", 8},    {"uint64", 8}, {"float64", 8}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (strncmp(type, sizes[i].name, strlen(sizes[i].name)) == 0)
            return sizes[i].size;
    return 0;
}

PyObject *core_store_column(PyObject *object, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL), *type = NULL;
    rks_store *handle = text == NULL ? NULL : core_store_enter(object);
    if (handle == NULL)
        return NULL;
    const void *data = rks_store_column(handle, text, &type);
    core_store_leave(object);
    if (data == NULL)
        Py_RETURN_NONE;
    PyObject *bytes = core_buffer(core_store_index(object), (void *)(uintptr_t)data,
                                  core_store_count(object) * item_size(type), false);
    return bytes == NULL ? NULL : Py_BuildValue("(Ns)", bytes, type);
}

PyObject *core_store_units(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    size_t count = rks_store_units(handle, NULL, 0);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * sizeof(uint64_t)));
    if (bytes != NULL)
        rks_store_units(handle, (uint64_t *)(void *)PyBytes_AsString(bytes), count);
    core_store_leave(object);
    return bytes;
}

/* Returns a list of what `make` returns for each source. */
static PyObject *list_sources(PyObject *object, PyObject *(*make)(rks_store *handle, size_t source))
{
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    size_t count = rks_store_sources(handle);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *one = make(handle, i);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, one);
    }
    core_store_leave(object);
    return list;
}

static PyObject *describe_source(rks_store *handle, size_t number)
{
    rks_source source = {.struct_size = sizeof(source)};
    rks_store_source(handle, number, &source, NULL);
    return Py_BuildValue("(sNsKKK)", source.name, PyUnicode_DecodeFSDefault(source.directory),
                         source.dataset, (unsigned long long)source.first,
                         (unsigned long long)source.count, (unsigned long long)source.bytes);
}

PyObject *core_store_sources(PyObject *object, PyObject *unused)
{
    (void)unused;
    return list_sources(object, describe_source);
}

static PyObject *describe_length(rks_store *handle, size_t number)
{
    rks_source_length length = {.struct_size = sizeof(length)};
    rks_store_source_length(handle, number, &length, NULL);
    return Py_BuildValue("(zIN)", length.name[0] == '\0' ? NULL : length.name,
                         (unsigned)length.unit, PyBool_FromLong(length.by_function));
}

PyObject *core_store_counted(PyObject *object, PyObject *unused)
{
    (void)unused;
    return list_sources(object, describe_length);
}

typedef rks_status (*json_of_fn)(rks_store *store, char **json, rks_error *err);

static PyObject *json_text(PyObject *object, json_of_fn json_of)
{
    char *json = NULL;
    rks_error err = {0};
    rks_status status;
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = json_of(handle, &json, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(object);
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *text = PyUnicode_FromString(json);
    rks_release(json);
    return text;
}

PyObject *core_store_info(PyObject *object, PyObject *unused)
{
    (void)unused;
    return json_text(object, rks_store_info_json);
}

PyObject *core_store_placement(PyObject *object, PyObject *unused)
{
    (void)unused;
    return json_text(object, rks_store_placement_json);
}

PyObject *core_store_stats(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    rks_store_stats_get(handle, &stats);
    core_store_leave(object);
    return Py_BuildValue(
        "{sK,sK,sK,sK,sK,sd,sK,sK,sK,sK,ss,ss,sK,sK,sK,sK,sK,sK,sK,sK,sK}", "samples",
        stats.samples, "bytes", stats.bytes, "local_bytes", stats.local_bytes, "remote_bytes",
        stats.remote_bytes, "served_bytes", stats.served_bytes, "wait_seconds",
        (double)stats.wait_ns / 1e9, "peak_inflight_bytes", stats.peak_inflight_bytes,
        "peak_batch_bytes", stats.peak_batch_bytes, "index_bytes_node", stats.index_bytes_node,
        "exchange_bytes", stats.exchange_bytes, "exchange", stats.exchange, "exchange_why",
        stats.exchange_why, "quarantined", stats.quarantined, "collectives", stats.collectives,
        "disk_bytes", stats.disk_bytes, "disk_reads", stats.disk_reads, "shards", stats.shards,
        "missing_shards", stats.missing_shards, "missing_samples", stats.missing_samples,
        "home_bytes", stats.home_bytes, "arriving_shards", stats.arriving_shards);
}

/* (number, samples, dataset) of each earlier generation. */
PyObject *core_store_earlier(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_generation *earlier = NULL;
    size_t count = 0;
    rks_error err = {0};
    rks_store *handle = core_store_enter(object);
    if (handle == NULL)
        return NULL;
    rks_status status = rks_store_earlier(handle, &earlier, &count, &err);
    core_store_leave(object);
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *one = Py_BuildValue("(KKs)", (unsigned long long)earlier[i].number,
                                      (unsigned long long)earlier[i].samples, earlier[i].dataset);
        if (one == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, one);
    }
    rks_release(earlier);
    return list;
}
