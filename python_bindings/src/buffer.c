/* SPDX-License-Identifier: Apache-2.0
 *
 * buffer.c: bytes of a C object through the buffer protocol. A view keeps the Buffer alive, and the
 * Buffer its owner. */
#include <string.h>

#include "handles.h"

typedef struct buffer {
    PyObject_HEAD
    PyObject *owner;
    void *own;               /* NULL if the owner holds the data */
    void (*release)(void *); /* frees `own` */
    void *data;
    Py_ssize_t size;
    bool writable;
} buffer;

static PyTypeObject *buffer_type;

PyObject *core_buffer(PyObject *owner, void *data, size_t size, bool writable)
{
    static char nothing[1]; /* numpy wants an address for an empty buffer, too */
    buffer *self = (buffer *)PyType_GenericAlloc(buffer_type, 0);
    if (self == NULL)
        return NULL;
    self->owner = Py_NewRef(owner);
    self->data = size == 0 || data == NULL ? nothing : data;
    self->size = (Py_ssize_t)size;
    self->writable = writable;
    return (PyObject *)self;
}

PyObject *core_buffer_copy(const void *data, size_t size)
{
    buffer *self = (buffer *)PyType_GenericAlloc(buffer_type, 0);
    if (self == NULL)
        return NULL;
    self->own = PyMem_Malloc(size + 1);
    if (self->own == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memcpy(self->own, data, size);
    self->release = PyMem_Free;
    self->data = self->own;
    self->size = (Py_ssize_t)size;
    self->writable = true;
    return (PyObject *)self;
}

PyObject *core_buffer_take(void *data, size_t size)
{
    buffer *self = (buffer *)PyType_GenericAlloc(buffer_type, 0);
    if (self == NULL) {
        rks_release(data);
        return NULL;
    }
    self->own = self->data = data;
    self->release = rks_release;
    self->size = (Py_ssize_t)size;
    self->writable = true;
    return (PyObject *)self;
}

static void buffer_dealloc(PyObject *object)
{
    buffer *self = (buffer *)object;
    if (self->own != NULL)
        self->release(self->own);
    Py_XDECREF(((buffer *)object)->owner);
    core_free_object(object);
}

static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    buffer *self = (buffer *)object;
    return PyBuffer_FillInfo(view, object, self->data, self->size, !self->writable, flags);
}

static Py_ssize_t buffer_length(PyObject *object)
{
    return ((buffer *)object)->size;
}

static PyObject *buffer_writable(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((buffer *)object)->writable);
}

static PyGetSetDef buffer_getters[] = {
    {"writable", buffer_writable, NULL, "May its bytes be written?", NULL},
    {0},
};

static PyType_Slot buffer_slots[] = {
    {Py_tp_doc,
     (void *)"Bytes of a C object, by the buffer protocol (format \"B\", one dimension)."},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_tp_getset, buffer_getters},
    {Py_bf_getbuffer, buffer_get},
    {Py_sq_length, buffer_length},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "rankstore._core.Buffer",
    .basicsize = sizeof(buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = buffer_slots,
};

int core_add_buffer(PyObject *module)
{
    return core_add_type(module, &buffer_spec, &buffer_type);
}
