/* SPDX-License-Identifier: Apache-2.0
 *
 * builder.c: Builder, which makes a dataset from memory, sample by sample or by arrays. */
#include <stdio.h>
#include <string.h>

#include "arrays.h"
#include "build.h"
#include "handles.h"

typedef struct builder_object {
    PyObject_HEAD
    core_taker taker; /* an rks_builder */
    PyObject *progress;
    core_callbacks calls;
    bool own_keys, own_lengths;
} builder_object;

static bool builder_ready(const builder_object *self)
{
    return core_taker_ready(&self->taker, "builder");
}

typedef struct opening {
    const char *directory;
    const rks_build_options *options;
} opening;

static rks_status open_builder(rks_group *group, void *user, void **handle, rks_error *err)
{
    const opening *o = user;
    rks_builder *builder = NULL;
    rks_status status = rks_builder_open(group, o->directory, o->options, &builder, err);
    *handle = builder;
    return status;
}

static void close_builder(void *handle)
{
    rks_builder_close(handle);
}

static PyObject *builder_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"group",       "directory",  "schema",   "key",         "length",
                            "length_unit", "where",      "index",    "max_sample",  "own_keys",
                            "replace",     "block_size", "progress", "own_lengths", "source",
                            "min_length",  "max_length", "sample",   "sample_rate", "seed",
                            "dedup",       "append",     "no_lock",  "unit_size",   "made_from",
                            "wait",        NULL};
    PyObject *group;
    const char *directory;
    core_build_given from = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "Oss|$zzOzOOppOOpzOOOdOpppOzp:Builder", names, &group, &directory,
            &options.schema, &options.key, &options.length, &from.length_unit, &options.where,
            &from.index, &from.max_sample, &from.own_keys, &from.replace, &from.block_size,
            &from.progress, &from.own_lengths, &options.source, &from.min_length, &from.max_length,
            &from.sample, &options.sample_rate, &from.seed, &from.dedup, &from.append,
            &from.no_lock, &from.unit_size, &options.made_from, &from.wait))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    builder_object *self = (builder_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    bool opened = core_build_options(&from, &self->calls, &options);
    self->progress = Py_XNewRef(self->calls.progress);
    self->own_keys = options.own_keys;
    self->own_lengths = options.length_fn != NULL;
    opened = opened && core_taker_open(&self->taker, group, options.schema, open_builder,
                                       &(opening){.directory = directory, .options = &options});
    core_texts_free(&from.names);
    if (!opened)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *builder_unit(builder_object *self, PyObject *arguments)
{
    PyObject *number;
    const char *name;
    uint64_t unit = 0;
    bool skip = false;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "Os:unit", &number, &name) ||
        !core_number(number, "number", 0, UINT64_MAX, &unit) || !builder_ready(self))
        return NULL;
    self->taker.busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = rks_builder_unit(self->taker.handle, unit, name, &skip, &err);
    Py_END_ALLOW_THREADS
    self->taker.busy = false;
    if (status != RKS_OK)
        return core_raise(&err);
    return PyBool_FromLong(skip);
}

/* Checks that a sample's length is given if, and only if, the builder's option says so. */
static bool check_lengths(const builder_object *self, const PyObject *given)
{
    if (self->own_lengths == (given != Py_None))
        return true;
    PyErr_SetString(PyExc_ValueError, self->own_lengths
                                          ? "own_lengths is set, but no length is given"
                                          : "a length is given, but own_lengths is not set");
    return false;
}

static PyObject *builder_add(builder_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"values", "key", "length", NULL};
    PyObject *sequence, *key_object = Py_None, *length = Py_None;
    const void *key = NULL;
    size_t key_size = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|OO:add", names, &sequence, &key_object,
                                     &length) ||
        !builder_ready(self) || !check_lengths(self, length) ||
        !core_number(length, "length", 0, UINT64_MAX, &self->calls.length) ||
        (key_object != Py_None && !core_key(key_object, &key, &key_size)))
        return NULL;
    self->taker.busy = true; /* convert may run code that calls us */
    const rks_value *values = core_values_read(self->taker.values, sequence);
    if (values == NULL) {
        self->taker.busy = false;
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = rks_builder_add(self->taker.handle, values, key, key_size, &err);
    Py_END_ALLOW_THREADS
    core_values_release(self->taker.values);
    self->taker.busy = false;
    if (status != RKS_OK)
        return core_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *builder_left_out(builder_object *self, PyObject *arguments)
{
    PyObject *filtered_object, *bad_object;
    uint64_t filtered = 0, bad = 0;
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "OO:left_out", &filtered_object, &bad_object) ||
        !core_number(filtered_object, "filtered", 0, UINT32_MAX, &filtered) ||
        !core_number(bad_object, "bad", 0, UINT32_MAX, &bad) || !builder_ready(self))
        return NULL;
    if (rks_builder_left_out(self->taker.handle, filtered, bad, &err) != RKS_OK)
        return core_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *builder_commit(builder_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"status", "text", NULL};
    int given = 0;
    const char *text = "";
    rks_build_report report = {.struct_size = sizeof(report)};
    rks_error err;
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|is:commit", names, &given, &text) ||
        !core_status(given) || !builder_ready(self))
        return NULL;
    core_set_error(&err, given, text);
    self->taker.busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = rks_builder_commit(self->taker.handle, (rks_status)given, &report, &err);
    Py_END_ALLOW_THREADS
    self->taker.busy = false;
    return core_succeeded(status, &err) ? core_build_report(&report) : NULL;
}

static PyObject *builder_close(builder_object *self, PyObject *unused)
{
    (void)unused;
    if (core_check_idle(self->taker.busy, "builder") < 0)
        return NULL;
    core_taker_close(&self->taker, close_builder);
    Py_RETURN_NONE;
}

/* ---- many at once --- */

/* Adds samples without the GIL; *done counts them. Checks for interrupts after a number of samples
 * or bytes. */
static rks_status add_samples(builder_object *self, const core_arrays_given *all,
                              const uint64_t *lengths, uint64_t count, uint64_t *done,
                              rks_error *err)
{
    enum { LOOK_SAMPLES = 1024, LOOK_BYTES = 16 << 20 };
    uint64_t bytes = 0;
    rks_status status = RKS_OK;
    for (*done = 0; status == RKS_OK && *done < count; ++*done) {
        bytes += core_arrays_sample(all, *done);
        if (*done % LOOK_SAMPLES == LOOK_SAMPLES - 1 || bytes > LOOK_BYTES) {
            bytes = 0;
            if (core_interrupted()) {
                core_set_error(err, RKS_ERR_CANCELLED, "interrupted");
                return RKS_ERR_CANCELLED;
            }
        }
        if (lengths != NULL)
            self->calls.length = lengths[*done];
        status = rks_builder_add(self->taker.handle, all->values,
                                 all->keys == NULL ? NULL : all->key[*done],
                                 all->keys == NULL ? 0 : all->key_size[*done], err);
    }
    if (status != RKS_OK)
        --*done;
    return status;
}

static PyObject *raise_at(uint64_t sample, const rks_error *err)
{
    char line[sizeof(err->text) + 64];
    rks_error placed = *err;
    snprintf(line, sizeof(line), "sample %llu of the arrays: %s", (unsigned long long)sample,
             err->text);
    core_set_error(&placed, err->status, line);
    placed.rank = err->rank;
    placed.cause = err->cause;
    memcpy(placed.host, err->host, sizeof(placed.host));
    return core_raise(&placed);
}

/* Gets uint64[count]; the caller releases it if *taken. */
static bool view_lengths(PyObject *object, uint64_t count, Py_buffer *view, bool *taken)
{
    if (object == Py_None)
        return true;
    if (PyObject_GetBuffer(object, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
        return false;
    *taken = true;
    const char *format = view->format;
    format += strchr("@=<", *format) != NULL;
    if (view->itemsize != 8 || *format == '\0' || strchr("LQN", *format) == NULL)
        PyErr_SetString(PyExc_TypeError, "lengths are not uint64");
    else if ((uint64_t)view->len / 8 != count)
        PyErr_Format(PyExc_ValueError, "%zd lengths for %llu samples", view->len / 8,
                     (unsigned long long)count);
    else
        return true;
    return false;
}

static PyObject *builder_add_arrays(builder_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"columns", "count", "keys", "lengths", NULL};
    PyObject *columns, *count_object, *keys = Py_None, *length_object = Py_None;
    Py_buffer lengths;
    bool viewed = false;
    uint64_t count = 0, done = 0;
    core_arrays_given all = {0};
    rks_error err = {0};
    rks_status status = RKS_OK;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|OO:add_arrays", names, &columns,
                                     &count_object, &keys, &length_object) ||
        !core_number(count_object, "count", 0, UINT32_MAX, &count) || !builder_ready(self) ||
        !check_lengths(self, length_object))
        return NULL;
    self->taker.busy = true;
    bool taken = core_arrays_take(self->taker.values, &all, columns, keys, count) &&
                 view_lengths(length_object, count, &lengths, &viewed);
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        status = add_samples(self, &all, viewed ? lengths.buf : NULL, count, &done, &err);
        Py_END_ALLOW_THREADS
    }
    self->taker.busy = false;
    core_arrays_free(&all);
    if (viewed)
        PyBuffer_Release(&lengths);
    if (taken && status != RKS_OK)
        return raise_at(done, &err);
    if (!taken)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the type -------------------------------------------------------------------------------- */

static int builder_traverse(builder_object *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->taker.group);
    Py_VISIT(self->progress);
    return 0;
}

static int builder_clear(PyObject *object)
{
    builder_object *self = (builder_object *)object;
    core_taker_close(&self->taker, close_builder);
    self->calls.progress = NULL;
    Py_CLEAR(self->progress);
    Py_CLEAR(self->taker.group);
    return 0;
}

static void builder_dealloc(PyObject *object)
{
    core_taker_dealloc(object, &((builder_object *)object)->taker, builder_clear);
}

static PyMethodDef builder_methods[] = {
    {"unit", (PyCFunction)(void (*)(void))builder_unit, METH_VARARGS,
     "unit(number, name): begins a unit; True where it is finished already."},
    {"add", (PyCFunction)(void (*)(void))builder_add, METH_VARARGS | METH_KEYWORDS,
     "add(values, key=None, length=None): one sample, a value a column."},
    {"add_arrays", (PyCFunction)(void (*)(void))builder_add_arrays, METH_VARARGS | METH_KEYWORDS,
     "add_arrays(columns, count, keys=None, lengths=None): many samples, (values, offsets) a "
     "column."},
    {"left_out", (PyCFunction)(void (*)(void))builder_left_out, METH_VARARGS,
     "left_out(filtered, bad): samples of the current unit that were not added."},
    {"commit", (PyCFunction)(void (*)(void))builder_commit, METH_VARARGS | METH_KEYWORDS,
     "commit(status=0, text=''): collective; the report."},
    {"close", (PyCFunction)(void (*)(void))builder_close, METH_NOARGS,
     "Frees the builder; what was not committed stays for a resume. Twice is fine."},
    {0},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_doc, "A dataset that is built from memory."},
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_traverse, builder_traverse},
    {Py_tp_clear, builder_clear},
    {Py_tp_methods, builder_methods},
    {0, NULL},
};

static PyType_Spec builder_spec = {
    .name = "rankstore._core.Builder",
    .basicsize = sizeof(builder_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = builder_slots,
};

int core_add_builder(PyObject *module)
{
    PyTypeObject *type;
    int added = core_add_type(module, &builder_spec, &type);
    Py_XDECREF((PyObject *)type);
    return added;
}
