/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_list.c: SampleList, samples of the user's own that become arrays. */
#include "handles.h"

typedef struct sample_list {
    PyObject_HEAD
    rks_sample_list *handle;
    core_values *values;
    pid_t pid;
    atomic_bool busy; /* a call runs without the GIL */
} sample_list;

static PyTypeObject *list_type;

static bool open_list(sample_list *self, const char *text)
{
    rks_schema *schema = NULL;
    rks_error err = {0};
    if (rks_schema_parse(text, &schema, &err) != RKS_OK ||
        rks_sample_list_create(text, &self->handle, &err) != RKS_OK)
        core_raise(&err);
    else
        self->values = core_values_new(schema);
    rks_schema_free(schema);
    return self->values != NULL;
}

static PyObject *list_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"schema", NULL};
    const char *text;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s:SampleList", names, &text))
        return NULL;
    sample_list *self = (sample_list *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->pid = core_pid();
    if (!open_list(self, text))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void list_dealloc(PyObject *object)
{
    sample_list *self = (sample_list *)object;
    if (!core_is_foreign(self->pid))
        rks_sample_list_free(self->handle);
    core_values_free(self->values);
    core_free_object(object);
}

static PyObject *list_add(PyObject *object, PyObject *arguments)
{
    sample_list *self = (sample_list *)object;
    PyObject *sequence, *id_object, *length_object;
    uint64_t id = 0, length = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "OOO:add", &sequence, &id_object, &length_object) ||
        !core_number(id_object, "id", 0, UINT64_MAX, &id) ||
        !core_number(length_object, "length", 0, UINT32_MAX, &length) ||
        core_check_usable(self->handle, self->pid, "sample list") < 0 ||
        core_claim(&self->busy, "sample list") < 0)
        return NULL; /* claimed here, since a conversion may run code that calls us */
    const rks_value *values = core_values_read(self->values, sequence);
    if (values == NULL) {
        core_unclaim(&self->busy);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = rks_sample_list_add(self->handle, values, id, (uint32_t)length, &err);
    Py_END_ALLOW_THREADS
    core_values_release(self->values);
    core_unclaim(&self->busy);
    if (!core_succeeded(status, &err))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *list_collate(PyObject *object, PyObject *arguments)
{
    sample_list *self = (sample_list *)object;
    PyObject *collate;
    Py_buffer bins = {0};
    rks_arrays *arrays = NULL;
    rks_error err = {0};
    rks_status status;
    PyObject *made = NULL;
    if (!PyArg_ParseTuple(arguments, "O|z*:collate", &collate, &bins))
        return NULL;
    const rks_collate_options *options = core_collate(collate);
    if (options != NULL && core_check_usable(self->handle, self->pid, "sample list") == 0 &&
        core_claim(&self->busy, "sample list") == 0) {
        size_t bounds = (size_t)bins.len / sizeof(uint32_t);
        Py_BEGIN_ALLOW_THREADS
        status = rks_sample_list_collate(self->handle, options, bounds == 0 ? NULL : bins.buf,
                                         bounds == 0 ? 0 : bounds - 1, &arrays, &err);
        Py_END_ALLOW_THREADS
        core_unclaim(&self->busy);
        made = status == RKS_OK ? core_arrays_new(arrays) : core_raise(&err);
    }
    PyBuffer_Release(&bins);
    return made;
}

static PyMethodDef list_methods[] = {
    {"add", list_add, METH_VARARGS, "add(values, id, length): a sample, a value a column"},
    {"collate", list_collate, METH_VARARGS,
     "collate(Collate, bins=None) -> Arrays; bins: uint32 bounds of the layout rows"},
    {0},
};

static PyType_Slot list_slots[] = {
    {Py_tp_doc, (void *)"Samples of the user's own, to be made arrays."},
    {Py_tp_new, list_new},
    {Py_tp_dealloc, list_dealloc},
    {Py_tp_methods, list_methods},
    {0, NULL},
};

static PyType_Spec list_spec = {
    .name = "rankstore._core.SampleList",
    .basicsize = sizeof(sample_list),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = list_slots,
};

int core_add_sample_list(PyObject *module)
{
    return core_add_type(module, &list_spec, &list_type);
}
