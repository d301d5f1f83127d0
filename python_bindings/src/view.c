/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c: objects that outlive a closed store because a Buffer or a plan needs them: its index, and
 * views of samples; and values as (Buffer, dims). */
#include "handles.h"

#include <string.h>

typedef struct held {
    PyObject_HEAD
    rks_index *index; /* exactly one of these two is set */
    rks_view *view;
    pid_t pid;
} held;

static PyTypeObject *held_type;

static PyObject *hold(rks_index *index, rks_view *view)
{
    held *self = (held *)PyType_GenericAlloc(held_type, 0);
    if (self == NULL) {
        rks_index_close(index);
        rks_view_free(view);
        return NULL;
    }
    self->index = index;
    self->view = view;
    self->pid = core_pid();
    return (PyObject *)self;
}

PyObject *core_index_new(rks_index *index)
{
    return hold(index, NULL);
}

PyObject *core_view_new(rks_view *view)
{
    return hold(NULL, view);
}

static void held_dealloc(PyObject *object)
{
    held *self = (held *)object;
    if (!core_is_foreign(self->pid)) {
        rks_index_close(self->index);
        rks_view_free(self->view);
    }
    core_free_object(object);
}

uint8_t core_dim_count(const char *type)
{
    const char *at = strchr(type, '[');
    uint8_t count = at != NULL;
    for (; at != NULL && *at != '\0'; at++)
        count = (uint8_t)(count + (*at == ','));
    return count;
}

PyObject *core_value(PyObject *owner, uint8_t dim_count, const rks_value *value, bool writable)
{
    if (value->data == NULL)
        Py_RETURN_NONE;
    PyObject *dims = PyTuple_New(dim_count);
    PyObject *bytes = NULL;
    if (dims != NULL)
        bytes = core_buffer(owner, (void *)(uintptr_t)value->data, value->size, writable);
    for (uint8_t i = 0; bytes != NULL && i < dim_count; i++) {
        PyObject *size = PyLong_FromUnsignedLong(value->dims[i]);
        if (size == NULL)
            Py_CLEAR(bytes);
        else
            PyTuple_SetItem(dims, i, size);
    }
    if (bytes == NULL) {
        Py_XDECREF(dims);
        return NULL;
    }
    return Py_BuildValue("(NN)", bytes, dims);
}

PyObject *core_view_values(PyObject *view, const uint8_t *dim_counts, uint32_t columns)
{
    PyObject *list = PyList_New((Py_ssize_t)columns);
    for (uint32_t column = 0; list != NULL && column < columns; column++) {
        rks_error err = {0};
        rks_value value;
        PyObject *entry = rks_view_value(((held *)view)->view, column, &value, &err) == RKS_OK
                              ? core_value(view, dim_counts[column], &value, false)
                              : core_raise(&err);
        if (entry == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)column, entry);
    }
    return list;
}

static PyType_Slot held_slots[] = {
    {Py_tp_doc, (void *)"What a Buffer keeps: the index of a store, or a view of a sample."},
    {Py_tp_dealloc, held_dealloc},
    {0, NULL},
};

static PyType_Spec held_spec = {
    .name = "rankstore._core.Held",
    .basicsize = sizeof(held),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = held_slots,
};

int core_add_view(PyObject *module)
{
    return core_add_type(module, &held_spec, &held_type);
}
