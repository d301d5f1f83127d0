/* SPDX-License-Identifier: Apache-2.0
 *
 * reader.c: Reader, which passes the samples of files to functions that make others from them. */
#include <string.h>

#include "build.h"
#include "handles.h"

typedef struct reader_object {
    PyObject_HEAD
    rks_reader *reader;
    PyObject *options; /* keeps the texts that the reader points to */
    core_values *columns;
    pid_t owner;
    bool busy; /* a read runs */
} reader_object;

static bool open_reader(reader_object *self, PyObject *group_object, const core_texts *sources,
                        const rks_build_options *options)
{
    rks_group *group = core_group_enter(group_object);
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return false;
    Py_BEGIN_ALLOW_THREADS
    status = rks_reader_open(group, sources->texts, sources->count, options, &self->reader, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (status != RKS_OK)
        core_raise(&err);
    return status == RKS_OK && PyErr_Occurred() == NULL;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"group",    "sources",   "schema",    "format",  "max_sample",
                            "skip_bad", "max_total", "unit_size", "columns", "json_path",
                            "extra",    "dtype",     "key",       NULL};
    PyObject *group, *sequence;
    core_texts sources = {0};
    core_callbacks calls = {0};
    core_build_given from = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|$zzOpOOzzzzz:Reader", names, &group,
                                     &sequence, &options.schema, &options.format, &from.max_sample,
                                     &from.skip_bad, &from.max_total, &from.unit_size,
                                     &options.columns, &options.json_path, &options.extra,
                                     &options.dtype, &options.key))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    reader_object *self = (reader_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->options = Py_XNewRef(keywords);
    self->owner = core_pid();
    if (!core_texts_take(sequence, "sources", &sources) ||
        !core_build_options(&from, &calls, &options) ||
        !open_reader(self, group, &sources, &options))
        Py_CLEAR(self);
    core_texts_free(&sources);
    return (PyObject *)self;
}

static bool reader_ready(const reader_object *self)
{
    return core_check_usable(self->reader, self->owner, self->busy, "reader") == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    reader_object *reader;
    PyObject *take;
} reading;

static rks_status deliver_sample(void *user, const rks_sample *sample, uint64_t row, rks_error *err)
{
    const reading *at = user;
    rks_status status = RKS_OK;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *values =
        PyErr_Occurred() != NULL ? NULL : core_sample_dict(&at->reader->columns, sample);
    PyObject *answer = values == NULL ? NULL
                                      : PyObject_CallFunction(at->take, "Ny#K", values, sample->key,
                                                              (Py_ssize_t)sample->key_size,
                                                              (unsigned long long)row);
    if (answer == NULL)
        status = core_caught("", RKS_ERR_DATA, err); /* the exception itself is raised */
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

static PyObject *reader_read(reader_object *self, PyObject *arguments)
{
    PyObject *number, *function;
    uint64_t unit = 0;
    rks_read_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "OO:read", &number, &function) ||
        !core_number(number, "unit", 0, UINT64_MAX, &unit) || !reader_ready(self))
        return NULL;
    reading at = {self, function};
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = rks_reader_read(self->reader, unit, deliver_sample, &at, &report, &err);
    Py_END_ALLOW_THREADS
    self->busy = false;
    if (PyErr_Occurred() != NULL)
        return NULL;
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *bad_first =
        PyUnicode_DecodeUTF8(report.bad_first, (Py_ssize_t)strlen(report.bad_first), "replace");
    return bad_first == NULL
               ? NULL
               : Py_BuildValue("{s:K,s:K,s:N}", "filtered", (unsigned long long)report.filtered,
                               "bad", (unsigned long long)report.bad, "bad_first", bad_first);
}

static PyObject *reader_units(reader_object *self, PyObject *unused)
{
    (void)unused;
    if (!reader_ready(self))
        return NULL;
    uint64_t count = rks_reader_units(self->reader);
    PyObject *units = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; units != NULL && i < count; i++) {
        const char *name = "";
        uint64_t bytes = 0;
        rks_reader_unit(self->reader, i, &name, &bytes, NULL);
        PyObject *unit = Py_BuildValue("sK", name, (unsigned long long)bytes);
        if (unit == NULL)
            Py_CLEAR(units);
        else
            PyList_SetItem(units, (Py_ssize_t)i, unit);
    }
    return units;
}

static PyObject *reader_unit_size(reader_object *self, PyObject *unused)
{
    (void)unused;
    return reader_ready(self) ? PyLong_FromUnsignedLongLong(rks_reader_unit_size(self->reader))
                              : NULL;
}

static PyObject *reader_schema(reader_object *self, PyObject *unused)
{
    (void)unused;
    return reader_ready(self)
               ? PyUnicode_FromString(rks_schema_text(rks_reader_schema(self->reader)))
               : NULL;
}

static void reader_dealloc(reader_object *self)
{
    if (!core_is_foreign(self->owner))
        rks_reader_close(self->reader);
    core_values_free(self->columns);
    Py_CLEAR(self->options);
    core_free_object((PyObject *)self);
}

static PyMethodDef reader_methods[] = {
    {"units", (PyCFunction)(void (*)(void))reader_units, METH_NOARGS,
     "units(): (name of the file, bytes) of each."},
    {"unit_size", (PyCFunction)(void (*)(void))reader_unit_size, METH_NOARGS,
     "unit_size(): bytes of input in a unit."},
    {"schema", (PyCFunction)(void (*)(void))reader_schema, METH_NOARGS, "schema(): as JSON."},
    {"read", (PyCFunction)(void (*)(void))reader_read, METH_VARARGS,
     "read(unit, take): take(values, key, row) for each sample; what was left out."},
    {0},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "The samples of files."},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    .name = "rankstore._core.Reader",
    .basicsize = sizeof(reader_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = reader_slots,
};

static PyObject *source_format(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *sequence;
    const char *found = NULL;
    core_texts sources = {0};
    rks_error err = {0};
    rks_status status = RKS_OK;
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTuple(arguments, "Oz:source_format", &sequence, &options.format) ||
        !core_texts_take(sequence, "sources", &sources))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_source_format(sources.texts, sources.count, &options, &found, &err);
    Py_END_ALLOW_THREADS
    core_texts_free(&sources);
    return status != RKS_OK ? core_raise(&err) : PyUnicode_FromString(found);
}

static PyObject *unit_size_kept(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *directory;
    uint64_t unit_size = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "s:unit_size_kept", &directory))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_unit_size_kept(directory, &unit_size, &err);
    Py_END_ALLOW_THREADS
    return status != RKS_OK ? core_raise(&err) : PyLong_FromUnsignedLongLong(unit_size);
}

static PyMethodDef reader_functions[] = {
    {"unit_size_kept", (PyCFunction)(void (*)(void))unit_size_kept, METH_VARARGS,
     "unit_size_kept(directory): of its dataset or unfinished parts; 0: there are none."},
    {"source_format", (PyCFunction)(void (*)(void))source_format, METH_VARARGS,
     "source_format(sources, format): as which format build would read them."},
    {0},
};

int core_add_reader(PyObject *module)
{
    PyTypeObject *type;
    int added = core_add_type(module, &reader_spec, &type);
    Py_XDECREF((PyObject *)type);
    return added < 0 ? added : PyModule_AddFunctions(module, reader_functions);
}
