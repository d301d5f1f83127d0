/* SPDX-License-Identifier: Apache-2.0
 *
 * input.c: build_input, which builds from an input of Python's, and the Sink that its units get. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "arrays.h"
#include "build.h"
#include "handles.h"

/* Stands before the text of an exception that an input raised. */
static const char RAISED[] = "reading the source";

typedef struct sink_object {
    PyObject_HEAD
    rks_sink *sink; /* NULL once its unit was read */
    core_values *values;
    bool own_lengths;
    atomic_bool busy; /* a call runs without the GIL */
} sink_object;

/* Claims the sink for a call. Returns false with an exception. */
static bool claim_sink(sink_object *self)
{
    if (core_claim(&self->busy, "sink") < 0)
        return false;
    if (self->sink != NULL)
        return true;
    core_unclaim(&self->busy);
    core_raise_text(RKS_ERR_STATE, "the sink's unit has ended");
    return false;
}

/* From now on calls of whoever keeps the object raise; one that another thread has begun ends
 * first. */
static void end_sink(sink_object *self)
{
    const struct timespec little = {0, 100000};
    while (atomic_exchange(&self->busy, true)) {
        Py_BEGIN_ALLOW_THREADS
        nanosleep(&little, NULL);
        Py_END_ALLOW_THREADS
    }
    self->sink = NULL;
    core_unclaim(&self->busy);
}

/* Checks that a row's length is given if, and only if, the build's option says so. */
static bool check_lengths(const sink_object *self, const PyObject *given)
{
    if (self->own_lengths == (given != Py_None))
        return true;
    PyErr_SetString(PyExc_ValueError, self->own_lengths
                                          ? "own_lengths is set, but no length is given"
                                          : "a length is given, but own_lengths is not set");
    return false;
}

static PyObject *sink_add(sink_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"values", "key", "length", NULL};
    PyObject *sequence, *key_object = Py_None, *length = Py_None;
    rks_input_row row = {.struct_size = sizeof(row)};
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|OO:add", names, &sequence, &key_object,
                                     &length) ||
        !check_lengths(self, length) ||
        !core_number(length, "length", 0, UINT64_MAX, &row.length) ||
        (key_object != Py_None && !core_key(key_object, &row.key, &row.key_size)) ||
        !claim_sink(self)) /* before the values, whose conversion may run code that calls us */
        return NULL;
    row.values = core_values_read(self->values, sequence);
    if (row.values == NULL) {
        core_unclaim(&self->busy);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = self->sink->row(self->sink, &row, &err);
    Py_END_ALLOW_THREADS
    core_values_release(self->values);
    core_unclaim(&self->busy);
    if (!core_succeeded(status, &err))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *sink_left_out(sink_object *self, PyObject *arguments)
{
    PyObject *filtered_object, *bad_object;
    const char *lines = NULL;
    uint64_t filtered = 0, bad = 0;
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "OO|z:left_out", &filtered_object, &bad_object, &lines) ||
        !core_number(filtered_object, "filtered", 0, UINT32_MAX, &filtered) ||
        !core_number(bad_object, "bad", 0, UINT32_MAX, &bad) || !claim_sink(self))
        return NULL;
    rks_status status = self->sink->left_out(self->sink, filtered, bad, lines, &err);
    core_unclaim(&self->busy);
    if (status != RKS_OK)
        return core_raise(&err);
    Py_RETURN_NONE;
}

/* ---- many at once --- */

/* Adds samples without the GIL; *done counts them. Checks for interrupts after a number of samples
 * or bytes. */
static rks_status add_samples(sink_object *self, const core_arrays_given *all,
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
        const rks_input_row row = {.struct_size = sizeof(row),
                                   .values = all->values,
                                   .key = all->keys == NULL ? NULL : all->key[*done],
                                   .key_size = all->keys == NULL ? 0 : all->key_size[*done],
                                   .length = lengths == NULL ? 0 : lengths[*done]};
        status = self->sink->row(self->sink, &row, err);
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

static PyObject *sink_add_arrays(sink_object *self, PyObject *arguments, PyObject *keywords)
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
        !core_number(count_object, "count", 0, UINT32_MAX, &count) ||
        !check_lengths(self, length_object) || !claim_sink(self))
        return NULL;
    bool taken = core_arrays_take(self->values, &all, columns, keys, count) &&
                 view_lengths(length_object, count, &lengths, &viewed);
    if (taken) {
        Py_BEGIN_ALLOW_THREADS
        status = add_samples(self, &all, viewed ? lengths.buf : NULL, count, &done, &err);
        Py_END_ALLOW_THREADS
    }
    core_unclaim(&self->busy);
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

static void sink_dealloc(PyObject *object)
{
    core_values_free(((sink_object *)object)->values);
    core_free_object(object);
}

static PyMethodDef sink_methods[] = {
    {"add", WITH_KEYWORDS(sink_add),
     "add(values, key=None, length=None): one sample, a value a column."},
    {"add_arrays", WITH_KEYWORDS(sink_add_arrays),
     "add_arrays(columns, count, keys=None, lengths=None): many samples, (values, offsets) a "
     "column."},
    {"left_out", (PyCFunction)(void (*)(void))sink_left_out, METH_VARARGS,
     "left_out(filtered, bad, lines=None): samples of the unit that were not added."},
    {0},
};

static PyObject *sink_drops(sink_object *self, void *unused)
{
    (void)unused;
    if (!claim_sink(self))
        return NULL;
    bool drops = self->sink->drops;
    core_unclaim(&self->busy);
    return PyBool_FromLong(drops);
}

static PyGetSetDef sink_attributes[] = {
    {"drops", (getter)(void (*)(void))sink_drops, NULL, "Whether samples are dropped.", NULL},
    {0},
};

static PyType_Slot sink_slots[] = {
    {Py_tp_doc, "Takes the samples of a unit. Made by build_input."},
    {Py_tp_dealloc, sink_dealloc},
    {Py_tp_methods, sink_methods},
    {Py_tp_getset, sink_attributes},
    {0, NULL},
};

static PyType_Spec sink_spec = {
    .name = "rankstore._core.Sink",
    .basicsize = sizeof(sink_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sink_slots,
};

/* ---- inputs ---------------------------------------------------------------------------------- */

static PyTypeObject *sink_type;

/* An input of Python's. */
typedef struct python_input {
    PyObject *object;
    PyObject *identity; /* of a stream; keeps its text */
    rks_group *group;
    bool own_lengths;
} python_input;

/* Returns true if the input ended because another rank failed, which is no failure of its own. */
static bool was_stopped(const python_input *input)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *stopped = PyObject_GetAttrString(input->object, "stopped");
    bool was = stopped == Py_True;
    Py_XDECREF(stopped);
    PyErr_Restore(type, value, trace);
    return was;
}

/* Turns the exception that is set into an error. Not only this rank fails, so the error that all
 * agree on is raised; the input keeps its exception itself, if it matters. */
static rks_status report_exception(const python_input *input, rks_error *err)
{
    rks_status status = was_stopped(input) ? rks_group_must_stop(input->group, err) : RKS_OK;
    if (status == RKS_OK)
        status = core_caught(RAISED, RKS_ERR_DATA, err);
    PyErr_Clear();
    return status;
}

static bool add_units(PyObject *units, rks_scan *scan, rks_error *err, rks_status *status)
{
    PyObject *list = PySequence_Fast(units, "scan: units are a list");
    for (Py_ssize_t i = 0; list != NULL && *status == RKS_OK && i < PySequence_Size(list); i++) {
        PyObject *unit = PySequence_GetItem(list, i);
        const char *name;
        PyObject *given;
        uint64_t weight = 0;
        if (unit == NULL || !PyArg_ParseTuple(unit, "sO:unit", &name, &given) ||
            !core_number(given, "weight", 0, UINT64_MAX, &weight))
            Py_CLEAR(list);
        else
            *status = scan->unit(scan, name, weight, err);
        Py_XDECREF(unit);
    }
    Py_XDECREF(list);
    return list != NULL;
}

static rks_status scan_input(void *user, rks_scan *scan, rks_error *err)
{
    python_input *input = user;
    rks_status status = RKS_OK;
    int stream = 0;
    PyObject *units, *identity;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *found = PyObject_CallMethod(input->object, "scan", "zK", scan->base,
                                          (unsigned long long)scan->generation);
    bool good = found != NULL && PyArg_ParseTuple(found, "OiO:scan", &units, &stream, &identity);
    if (good) {
        scan->stream = (rks_stream_kind)stream;
        Py_XDECREF(input->identity);
        input->identity = Py_NewRef(identity);
        scan->identity = identity == Py_None ? NULL : PyUnicode_AsUTF8AndSize(identity, NULL);
        good =
            (identity == Py_None || scan->identity != NULL) && add_units(units, scan, err, &status);
    }
    if (!good)
        status = report_exception(input, err);
    Py_XDECREF(found);
    PyGILState_Release(state);
    return status;
}

static sink_object *new_sink(const python_input *input, rks_sink *sink)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(sink_type, Py_tp_alloc);
    sink_object *self = (sink_object *)alloc(sink_type, 0);
    if (self == NULL)
        return NULL;
    self->sink = sink;
    self->own_lengths = input->own_lengths;
    self->values = core_values_new(sink->schema);
    if (self->values == NULL)
        Py_CLEAR(self);
    return self;
}

static rks_status read_input(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const python_input *input = user;
    rks_status status = RKS_OK;
    PyGILState_STATE state = PyGILState_Ensure();
    sink_object *self = PyErr_Occurred() != NULL ? NULL : new_sink(input, sink);
    PyObject *answer = self == NULL ? NULL
                                    : PyObject_CallMethod(input->object, "read", "KO",
                                                          (unsigned long long)unit, self);
    if (answer == NULL)
        status = report_exception(input, err);
    if (self != NULL)
        end_sink(self);
    Py_XDECREF(answer);
    Py_XDECREF((PyObject *)self);
    PyGILState_Release(state);
    return status;
}

static PyObject *run_input(PyObject *group_object, PyObject *object, const char *directory,
                           const rks_build_options *options)
{
    static const rks_input_ops ops = {
        .struct_size = sizeof(ops), .scan = scan_input, .read = read_input};
    rks_build_report report = {.struct_size = sizeof(report)};
    python_input input = {.object = object, .own_lengths = options->own_lengths};
    rks_group *group = core_group_enter(group_object);
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return NULL;
    input.group = group;
    Py_BEGIN_ALLOW_THREADS
    status = rks_build_input(group, &ops, &input, directory, options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    bool succeeded = core_succeeded(status, &err);
    Py_XDECREF(input.identity);
    return succeeded ? core_build_report(&report) : NULL;
}

static PyObject *build_input(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {
        "group",       "input",           "directory",   "schema",     "key",        "length",
        "length_unit", "where",           "index",       "max_sample", "own_keys",   "replace",
        "block_size",  "progress",        "own_lengths", "source",     "min_length", "max_length",
        "sample",      "sample_rate",     "seed",        "dedup",      "append",     "no_lock",
        "unit_size",   "made_from",       "wait",        "keep",       "max_shard",  "shards",
        "home",        "storage_options", "counts",      NULL};
    PyObject *group, *input, *built = NULL;
    const char *directory;
    core_callbacks calls = {0};
    core_build_given from = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "OOs|$zzzOzOOppOOpzOOOdOpppOzppOOzzO:build_input", names, &group,
            &input, &directory, &options.schema, &options.key, &options.length, &from.length_unit,
            &options.where, &from.index, &from.max_sample, &from.own_keys, &from.replace,
            &from.block_size, &from.progress, &from.own_lengths, &options.source, &from.min_length,
            &from.max_length, &from.sample, &options.sample_rate, &from.seed, &from.dedup,
            &from.append, &from.no_lock, &from.unit_size, &options.made_from, &from.wait,
            &from.keep, &from.max_shard, &from.shards, &options.home, &options.storage_options,
            &from.counts))
        return NULL;
    if (core_build_options(&from, &calls, &options))
        built = run_input(group, input, directory, &options);
    core_build_given_free(&from);
    core_values_free(calls.columns);
    return built;
}

static PyMethodDef input_functions[] = {
    {"build_input", WITH_KEYWORDS(build_input),
     "build_input(group, input, directory, ...): collective; the report."},
    {0},
};

int core_add_input(PyObject *module)
{
    if (core_add_type(module, &sink_spec, &sink_type) < 0 ||
        PyModule_AddIntConstant(module, "STREAM_NONE", RKS_STREAM_NONE) < 0 ||
        PyModule_AddIntConstant(module, "STREAM_OWN", RKS_STREAM_OWN) < 0 ||
        PyModule_AddIntConstant(module, "STREAM_SAME", RKS_STREAM_SAME) < 0 ||
        PyModule_AddStringConstant(module, "RAISED", RAISED) < 0)
        return -1;
    return PyModule_AddFunctions(module, input_functions);
}
