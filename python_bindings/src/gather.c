/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.c: Gather, which brings uneven results of all ranks to one rank. */
#include <string.h>

#include "handles.h"

typedef struct gather_object {
    PyObject_HEAD
    rks_gather *handle; /* NULL if closed */
    PyObject *group;    /* held as long as `handle` is set */
    core_values *values;
    pid_t owner;
    atomic_bool busy; /* a call runs without the GIL */
} gather_object;

/* Claims it for a call. Returns false with an exception if it is in use, closed, or of another
 * process. */
static bool claim_gather(gather_object *self)
{
    if (core_claim(&self->busy, "gather") < 0)
        return false;
    bool is_usable = core_check_usable(self->handle, self->owner, "gather") == 0 &&
                     core_group_check(self->group) == 0;
    if (!is_usable)
        core_unclaim(&self->busy);
    return is_usable;
}

static bool open_gather(gather_object *self, const char *schema_text, const char *directory)
{
    rks_group *group = core_group_enter(self->group);
    rks_schema *schema = NULL;
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return false;
    Py_BEGIN_ALLOW_THREADS
    status = rks_gather_open(group, schema_text, directory, &self->handle, &err);
    Py_END_ALLOW_THREADS
    if (status != RKS_OK) {
        core_group_leave(self->group);
        core_raise(&err);
        return false;
    }
    if (PyErr_Occurred() != NULL)
        return false;
    if (rks_schema_parse(schema_text, &schema, &err) != RKS_OK) {
        core_raise(&err);
        return false;
    }
    self->values = core_values_new(schema);
    rks_schema_free(schema);
    return self->values != NULL;
}

/* Not in a forked child. A second call does nothing. */
static void close_gather(gather_object *self)
{
    rks_gather *handle = self->handle;
    self->handle = NULL;
    if (handle == NULL)
        return;
    if (!core_is_foreign(self->owner)) {
        Py_BEGIN_ALLOW_THREADS
        rks_gather_close(handle);
        Py_END_ALLOW_THREADS
    }
    core_group_leave(self->group);
}

static PyObject *gather_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"group", "schema", "directory", NULL};
    PyObject *group;
    const char *schema, *directory = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Os|z:Gather", names, &group, &schema,
                                     &directory))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    gather_object *self = (gather_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->group = Py_NewRef(group);
    self->owner = core_pid();
    if (!open_gather(self, schema, directory))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *gather_add(gather_object *self, PyObject *arguments)
{
    const char *name;
    Py_ssize_t name_size;
    PyObject *number, *sequence;
    uint64_t index = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "s#OO:add", &name, &name_size, &number, &sequence) ||
        !core_number(number, "index", 0, UINT64_MAX, &index) || !claim_gather(self))
        return NULL;
    const rks_value *values = core_values_read(self->values, sequence);
    if (values == NULL) {
        core_unclaim(&self->busy);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = rks_gather_add_named(self->handle, name, (size_t)name_size, index, values, &err);
    Py_END_ALLOW_THREADS
    core_values_release(self->values);
    core_unclaim(&self->busy);
    if (status != RKS_OK)
        return core_raise(&err);
    Py_RETURN_NONE;
}

typedef struct receiver {
    PyObject *callable;
    const core_values *values;
} receiver;

static rks_status receive(void *user, const rks_gather_item *item, rks_error *err)
{
    const receiver *to = user;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = NULL;
    if (PyErr_Occurred() == NULL) {
        PyObject *values = core_values_copy(to->values, item->values);
        if (values != NULL)
            answer = PyObject_CallFunction(
                to->callable, "y#KIO", item->name, (Py_ssize_t)item->name_size,
                (unsigned long long)item->index, (unsigned)item->rank, values);
        Py_XDECREF(values);
    }
    rks_status status = answer != NULL ? RKS_OK : core_caught("receive", RKS_ERR_DATA, err);
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

static PyObject *report_dict(const rks_gather_report *r)
{
    PyObject *first = PyUnicode_DecodeUTF8(
        r->gap_first, (Py_ssize_t)strnlen(r->gap_first, sizeof(r->gap_first)), "replace");
    if (first == NULL)
        return NULL;
    return Py_BuildValue("{s:K,s:K,s:K,s:N}", "items", (unsigned long long)r->items, "names",
                         (unsigned long long)r->names, "gaps", (unsigned long long)r->gaps,
                         "gap_first", first);
}

static PyObject *gather_run(gather_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"dst", "receive", "status", "text", NULL};
    PyObject *dst_object, *callable = Py_None;
    int given = 0;
    const char *text = "";
    uint64_t dst = 0;
    receiver to = {.values = self->values};
    rks_gather_report report = {.struct_size = sizeof(report)};
    rks_error err;
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|is:run", names, &dst_object,
                                     &callable, &given, &text) ||
        !core_number(dst_object, "dst", 0, UINT32_MAX, &dst) || !core_status(given) ||
        !core_callable(callable, "receive", &to.callable) || !claim_gather(self))
        return NULL;
    core_set_error(&err, given, text);
    Py_BEGIN_ALLOW_THREADS
    status = rks_gather_run(self->handle, (rks_status)given, (uint32_t)dst,
                            to.callable == NULL ? NULL : receive, &to, &report, &err);
    Py_END_ALLOW_THREADS
    core_unclaim(&self->busy);
    return core_succeeded(status, &err) ? report_dict(&report) : NULL;
}

static PyObject *gather_close(gather_object *self, PyObject *unused)
{
    (void)unused;
    if (core_claim(&self->busy, "gather") < 0)
        return NULL;
    close_gather(self);
    core_unclaim(&self->busy);
    Py_RETURN_NONE;
}

static int gather_traverse(gather_object *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->group);
    return 0;
}

static int gather_clear(PyObject *object)
{
    gather_object *self = (gather_object *)object;
    close_gather(self);
    Py_CLEAR(self->group);
    return 0;
}

static void gather_dealloc(PyObject *object)
{
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&type, &value, &trace);
    gather_clear(object);
    PyErr_Restore(type, value, trace);
    core_values_free(((gather_object *)object)->values);
    core_free_object(object);
}

static PyMethodDef gather_methods[] = {
    {"add", (PyCFunction)(void (*)(void))gather_add, METH_VARARGS,
     "add(name, index, values): one result of this rank."},
    {"run", WITH_KEYWORDS(gather_run),
     "run(dst, receive, status=0, text=''): collective; the report."},
    {"close", (PyCFunction)(void (*)(void))gather_close, METH_NOARGS,
     "Frees it and its files. Twice is fine."},
    {0},
};

static PyType_Slot gather_slots[] = {
    {Py_tp_doc, "Results of all ranks, on their way to one."},
    {Py_tp_new, gather_new},
    {Py_tp_dealloc, gather_dealloc},
    {Py_tp_traverse, gather_traverse},
    {Py_tp_clear, gather_clear},
    {Py_tp_methods, gather_methods},
    {0, NULL},
};

static PyType_Spec gather_spec = {
    .name = "rankstore._core.Gather",
    .basicsize = sizeof(gather_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = gather_slots,
};

int core_add_gather(PyObject *module)
{
    PyTypeObject *type;
    int added = core_add_type(module, &gather_spec, &type);
    Py_XDECREF((PyObject *)type);
    return added;
}
