/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c: what lives on after a store has been closed, because a Buffer or a plan needs it: its
 * index; and values as (Buffer, dims). */
#include "handles.h"

#include <string.h>
#include <unistd.h>

typedef struct held {
    PyObject_HEAD
    rks_index *index;
    pid_t pid;
} held;

static PyTypeObject *held_type;

PyObject *core_index_new(rks_index *index)
{
    held *self = (held *)PyType_GenericAlloc(held_type, 0);
    if (self == NULL) {
        rks_index_close(index);
        return NULL;
    }
    self->index = index;
    self->pid = getpid();
    return (PyObject *)self;
}

static void held_dealloc(PyObject *object)
{
    held *self = (held *)object;
    if (!core_is_foreign(self->pid))
        rks_index_close(self->index);
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

static PyType_Slot held_slots[] = {
    {Py_tp_doc, (void *)"What a Buffer keeps: the index of a store."},
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
