/* SPDX-License-Identifier: Apache-2.0
 *
 * files.c: Files, an input that another one can wrap: it passes rows to a function. */
#include <string.h>

#include "build.h"
#include "handles.h"

typedef struct files_object {
    PyObject_HEAD
    rks_files *files;
    PyObject *options; /* keeps the texts that the files point to */
    core_values *columns;
    pid_t owner;
    atomic_bool busy; /* a read runs */
} files_object;

static bool open_files(files_object *self, PyObject *group_object, const core_texts *sources,
                       const rks_build_options *options)
{
    rks_group *group = core_group_enter(group_object);
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return false;
    Py_BEGIN_ALLOW_THREADS
    status = rks_files_open(group, sources->texts, sources->count, options, &self->files, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (status != RKS_OK)
        core_raise(&err);
    return status == RKS_OK && PyErr_Occurred() == NULL;
}

static PyObject *files_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"group",       "sources",   "schema",    "format",    "max_sample",
                            "skip_bad",    "max_total", "unit_size", "columns",   "json_path",
                            "extra",       "dtype",     "key",       "unchecked", "storage_options",
                            "input_bytes", "listing",   NULL};
    PyObject *group, *sequence;
    core_texts sources = {0};
    core_callbacks calls = {0};
    core_build_given from = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|$zzOpOOzzzzzpzOz:Files", names,
                                     &group, &sequence, &options.schema, &options.format,
                                     &from.max_sample, &from.skip_bad, &from.max_total,
                                     &from.unit_size, &options.columns, &options.json_path,
                                     &options.extra, &options.dtype, &options.key, &from.unchecked,
                                     &options.storage_options, &from.input_bytes, &options.listing))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    files_object *self = (files_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->options = Py_XNewRef(keywords);
    self->owner = core_pid();
    if (!core_texts_take(sequence, "sources", &sources) ||
        !core_build_options(&from, &calls, &options) ||
        !open_files(self, group, &sources, &options))
        Py_CLEAR(self);
    core_texts_free(&sources);
    return (PyObject *)self;
}

/* Claims the files for a call. Returns false with an exception. */
static bool claim_files(files_object *self)
{
    return core_check_usable(self->files, self->owner, "files") == 0 &&
           core_claim(&self->busy, "files") == 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct reading {
    rks_sink sink;
    files_object *files;
    PyObject *take;
    PyObject *left_out; /* NULL until the unit's end */
} reading;

static rks_status deliver_row(rks_sink *sink, const rks_input_row *row, rks_error *err)
{
    reading *at = (reading *)sink;
    const rks_sample sample = {
        .schema = sink->schema, .values = row->values, .key = row->key, .key_size = row->key_size};
    rks_status status = RKS_OK;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *values =
        PyErr_Occurred() != NULL ? NULL : core_sample_dict(&at->files->columns, &sample);
    PyObject *answer = values == NULL ? NULL
                                      : PyObject_CallFunction(at->take, "Ny#K", values, row->key,
                                                              (Py_ssize_t)row->key_size,
                                                              (unsigned long long)row->number);
    if (answer == NULL)
        status = core_caught("", RKS_ERR_DATA, err); /* the exception itself is raised */
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

static rks_status keep_left_out(rks_sink *sink, uint64_t filtered, uint64_t bad, const char *lines,
                                rks_error *err)
{
    reading *at = (reading *)sink;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *text = PyUnicode_DecodeUTF8(lines, (Py_ssize_t)strlen(lines), "replace");
    if (text != NULL)
        at->left_out = Py_BuildValue("{s:K,s:K,s:N}", "filtered", (unsigned long long)filtered,
                                     "bad", (unsigned long long)bad, "bad_first", text);
    rks_status status = at->left_out == NULL ? core_caught("", RKS_ERR_MEMORY, err) : RKS_OK;
    PyGILState_Release(state);
    return status;
}

static PyObject *files_read(files_object *self, PyObject *arguments)
{
    PyObject *number, *function;
    uint64_t unit = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "OO:read", &number, &function) ||
        !core_number(number, "unit", 0, UINT64_MAX, &unit) || !claim_files(self))
        return NULL;
    reading at = {.sink = {.struct_size = sizeof(at.sink),
                           .schema = rks_files_schema(self->files),
                           .row = deliver_row,
                           .left_out = keep_left_out},
                  .files = self,
                  .take = function};
    Py_BEGIN_ALLOW_THREADS
    status = rks_files_input()->read(self->files, unit, &at.sink, &err);
    Py_END_ALLOW_THREADS
    core_unclaim(&self->busy);
    if (PyErr_Occurred() == NULL && status == RKS_OK)
        return at.left_out;
    Py_XDECREF(at.left_out);
    return PyErr_Occurred() != NULL ? NULL : core_raise(&err);
}

typedef struct listing {
    rks_scan scan;
    PyObject *units;
} listing;

static rks_status list_unit(rks_scan *scan, const char *name, uint64_t weight, rks_error *err)
{
    listing *at = (listing *)scan;
    PyObject *unit = Py_BuildValue("sK", name, (unsigned long long)weight);
    bool listed = unit != NULL && PyList_Append(at->units, unit) == 0;
    Py_XDECREF(unit);
    return listed ? RKS_OK : core_caught("", RKS_ERR_MEMORY, err);
}

static PyObject *files_units(files_object *self, PyObject *unused)
{
    (void)unused;
    listing at = {.scan = {.struct_size = sizeof(at.scan), .unit = list_unit}};
    rks_error err = {0};
    if ((at.units = PyList_New(0)) == NULL)
        return NULL;
    if (!claim_files(self)) {
        Py_DECREF(at.units);
        return NULL;
    }
    rks_status status = rks_files_input()->scan(self->files, &at.scan, &err);
    core_unclaim(&self->busy);
    if (status == RKS_OK)
        return at.units;
    Py_DECREF(at.units);
    return PyErr_Occurred() != NULL ? NULL : core_raise(&err);
}

static PyObject *files_unit_size(files_object *self, PyObject *unused)
{
    (void)unused;
    return core_check_usable(self->files, self->owner, "files") < 0
               ? NULL
               : PyLong_FromUnsignedLongLong(rks_files_unit_size(self->files));
}

static PyObject *files_schema(files_object *self, PyObject *unused)
{
    (void)unused;
    return core_check_usable(self->files, self->owner, "files") < 0
               ? NULL
               : PyUnicode_FromString(rks_schema_text(rks_files_schema(self->files)));
}

static void files_dealloc(files_object *self)
{
    if (!core_is_foreign(self->owner))
        rks_files_close(self->files);
    core_values_free(self->columns);
    Py_CLEAR(self->options);
    core_free_object((PyObject *)self);
}

static PyMethodDef files_methods[] = {
    {"units", (PyCFunction)(void (*)(void))files_units, METH_NOARGS,
     "units(): (name of the file, bytes) of each."},
    {"unit_size", (PyCFunction)(void (*)(void))files_unit_size, METH_NOARGS,
     "unit_size(): bytes of input in a unit."},
    {"schema", (PyCFunction)(void (*)(void))files_schema, METH_NOARGS, "schema(): as JSON."},
    {"read", (PyCFunction)(void (*)(void))files_read, METH_VARARGS,
     "read(unit, take): take(values, key, row) for each sample; what was left out."},
    {0},
};

static PyType_Slot files_slots[] = {
    {Py_tp_doc, "Files, as an input that another one can wrap."},
    {Py_tp_new, files_new},
    {Py_tp_dealloc, files_dealloc},
    {Py_tp_methods, files_methods},
    {0, NULL},
};

static PyType_Spec files_spec = {
    .name = "rankstore._core.Files",
    .basicsize = sizeof(files_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = files_slots,
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

static rks_status add_found(void *user, const char *name, uint64_t size, const char *version,
                            rks_error *err)
{
    rks_status status = RKS_OK;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *one =
        Py_BuildValue("(NKs)", PyUnicode_DecodeFSDefault(name), (unsigned long long)size, version);
    if (one == NULL || PyList_Append(user, one) < 0)
        status = core_caught("", RKS_ERR_MEMORY, err);
    Py_XDECREF(one);
    PyGILState_Release(state);
    return status;
}

static PyObject *source_look(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *sequence, *list;
    const char *found = NULL;
    core_texts sources = {0};
    rks_error err = {0};
    rks_status status = RKS_OK;
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTuple(arguments, "Ozzz:source_look", &sequence, &options.format,
                          &options.storage_options, &options.listing) ||
        !core_texts_take(sequence, "sources", &sources))
        return NULL;
    list = PyList_New(0);
    if (list != NULL) {
        Py_BEGIN_ALLOW_THREADS
        status =
            rks_source_look(sources.texts, sources.count, &options, &found, add_found, list, &err);
        Py_END_ALLOW_THREADS
    }
    core_texts_free(&sources);
    if (list != NULL && core_succeeded(status, &err))
        return Py_BuildValue("(sN)", found, list);
    Py_XDECREF(list);
    return NULL;
}

static PyObject *source_list(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *group_object, *sequence, *listed = NULL;
    core_texts sources = {0};
    char *text = NULL;
    rks_error err = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTuple(arguments, "OOzz:source_list", &group_object, &sequence, &options.format,
                          &options.storage_options) ||
        !core_texts_take(sequence, "sources", &sources))
        return NULL;
    rks_group *group = core_group_enter(group_object);
    if (group != NULL) {
        rks_status status;
        Py_BEGIN_ALLOW_THREADS
        status = rks_source_list(group, sources.texts, sources.count, &options, &text, &err);
        Py_END_ALLOW_THREADS
        core_group_leave(group_object);
        if (core_succeeded(status, &err))
            listed = text == NULL ? Py_NewRef(Py_None) : PyUnicode_DecodeFSDefault(text);
    }
    rks_release(text);
    core_texts_free(&sources);
    return listed;
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

static PyMethodDef files_functions[] = {
    {"unit_size_kept", (PyCFunction)(void (*)(void))unit_size_kept, METH_VARARGS,
     "unit_size_kept(directory): of its dataset or unfinished parts; 0: there are none."},
    {"source_look", (PyCFunction)(void (*)(void))source_look, METH_VARARGS,
     "source_look(sources, format, storage_options, listing): the format, and what files there "
     "are."},
    {"source_list", (PyCFunction)(void (*)(void))source_list, METH_VARARGS,
     "source_list(group, sources, format, storage_options): what the stores of URLs hold, for all "
     "ranks."},
    {"source_format", (PyCFunction)(void (*)(void))source_format, METH_VARARGS,
     "source_format(sources, format): as which format build would read them."},
    {0},
};

int core_add_files(PyObject *module)
{
    PyTypeObject *type;
    int added = core_add_type(module, &files_spec, &type);
    Py_XDECREF((PyObject *)type);
    return added < 0 ? added : PyModule_AddFunctions(module, files_functions);
}
