/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.c: Gather, which brings uneven results of all ranks to one rank. */
#include <string.h>

#include "handles.h"

typedef struct gather_object {
    PyObject_HEAD
    core_taker taker; /* an rks_gather */
} gather_object;

static bool gather_ready(const gather_object *self)
{
    return core_taker_ready(&self->taker, "gather");
}

typedef struct opening {
    const char *schema, *directory;
} opening;

static rks_status open_gather(rks_group *group, void *user, void **handle, rks_error *err)
{
    const opening *o = user;
    rks_gather *gather = NULL;
    rks_status status = rks_gather_open(group, o->schema, o->directory, &gather, err);
    *handle = gather;
    return status;
}

static void close_gather(void *handle)
{
    rks_gather_close(handle);
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
    if (!core_taker_open(&self->taker, group, schema, open_gather,
                         &(opening){.schema = schema, .directory = directory}))
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
        !core_number(number, "index", 0, UINT64_MAX, &index) || !gather_ready(self))
        return NULL;
    self->taker.busy = true;
    const rks_value *values = core_values_read(self->taker.values, sequence);
    if (values == NULL) {
        self->taker.busy = false;
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = rks_gather_add_named(self->taker.handle, name, (size_t)name_size, index, values, &err);
    Py_END_ALLOW_THREADS
    core_values_release(self->taker.values);
    self->taker.busy = false;
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
    receiver to = {.values = self->taker.values};
    rks_gather_report report = {.struct_size = sizeof(report)};
    rks_error err;
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|is:run", names, &dst_object,
                                     &callable, &given, &text) ||
        !core_number(dst_object, "dst", 0, UINT32_MAX, &dst) || !core_status(given) ||
        !core_callable(callable, "receive", &to.callable) || !gather_ready(self))
        return NULL;
    core_set_error(&err, given, text);
    self->taker.busy = true;
    Py_BEGIN_ALLOW_THREADS
    status = rks_gather_run(self->taker.handle, (rks_status)given, (uint32_t)dst,
                            to.callable == NULL ? NULL : receive, &to, &report, &err);
    Py_END_ALLOW_THREADS
    self->taker.busy = false;
    return core_succeeded(status, &err) ? report_dict(&report) : NULL;
}

static PyObject *gather_close(gather_object *self, PyObject *unused)
{
    (void)unused;
    if (core_check_idle(self->taker.busy, "gather") < 0)
        return NULL;
    core_taker_close(&self->taker, close_gather);
    Py_RETURN_NONE;
}

static int gather_traverse(gather_object *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->taker.group);
    return 0;
}

static int gather_clear(PyObject *object)
{
    gather_object *self = (gather_object *)object;
    core_taker_close(&self->taker, close_gather);
    Py_CLEAR(self->taker.group);
    return 0;
}

static void gather_dealloc(PyObject *object)
{
    core_taker_dealloc(object, &((gather_object *)object)->taker, gather_clear);
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
