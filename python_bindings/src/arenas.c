/* SPDX-License-Identifier: Apache-2.0
 *
 * arenas.c: Python buffers in which an epoch's arrays lie. When a thread of the library is done
 * with a buffer, it only puts it on a list. Such threads never wait for the GIL, which nobody gives
 * them at the end of the interpreter. Python's threads empty the list. */
#include <stdatomic.h>
#include <stdlib.h>

#include "handles.h"

/* Allocated with malloc, since it outlives the interpreter. */
typedef struct lent_buffer {
    struct lent_buffer *next;
    Py_buffer view; /* holds the object */
    pid_t pid;
} lent_buffer;

static _Atomic(lent_buffer *) done_list;

static void put_on_list(void *user)
{
    lent_buffer *buffer = user, *first = atomic_load(&done_list);
    do
        buffer->next = first;
    while (!atomic_compare_exchange_weak(&done_list, &first, buffer));
}

void core_free_arenas(void)
{
    if (atomic_load_explicit(&done_list, memory_order_relaxed) == NULL)
        return;
    lent_buffer *buffer = atomic_exchange(&done_list, NULL);
    while (buffer != NULL) {
        lent_buffer *next = buffer->next;
        if (!core_is_foreign(buffer->pid)) { /* a forked child leaves the parent's buffers */
            PyBuffer_Release(&buffer->view);
            free(buffer);
        }
        buffer = next;
    }
}

typedef struct arenas {
    PyObject_HEAD
    rks_arenas *handle;
    pid_t pid;
} arenas;

static PyTypeObject *arenas_type;

rks_arenas *core_arenas(PyObject *object)
{
    if (!PyObject_TypeCheck(object, arenas_type))
        return (rks_arenas *)(void *)PyErr_Format(PyExc_TypeError, "arenas: Arenas, not %R",
                                                  Py_TYPE(object));
    arenas *self = (arenas *)object;
    return core_check_process(self->pid, "arenas") < 0 ? NULL : self->handle;
}

static PyObject *arenas_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {NULL};
    rks_error err = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, ":Arenas", names))
        return NULL;
    core_free_arenas();
    arenas *self = (arenas *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->pid = core_pid();
    if (rks_arenas_create(&self->handle, &err) != RKS_OK) {
        Py_DECREF(self);
        return core_raise(&err);
    }
    return (PyObject *)self;
}

static void arenas_dealloc(PyObject *object)
{
    arenas *self = (arenas *)object;
    if (!core_is_foreign(self->pid)) {
        Py_BEGIN_ALLOW_THREADS /* where the epoch is still open, for what is being written */
        rks_arenas_free(self->handle);
        Py_END_ALLOW_THREADS
        core_free_arenas();
    }
    core_free_object(object);
}

static PyObject *arenas_wanted(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_arenas *handle = core_arenas(object);
    core_free_arenas();
    return handle == NULL ? NULL : PyLong_FromSize_t(rks_arenas_wanted(handle));
}

static PyObject *arenas_add(PyObject *object, PyObject *given)
{
    rks_error err = {0};
    rks_arenas *handle = core_arenas(object);
    if (handle == NULL)
        return NULL;
    lent_buffer *buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL)
        return PyErr_NoMemory();
    buffer->pid = core_pid();
    if (PyObject_GetBuffer(given, &buffer->view, PyBUF_WRITABLE) < 0) {
        free(buffer);
        return NULL;
    }
    rks_status status = rks_arenas_add(handle, buffer->view.buf, (size_t)buffer->view.len,
                                       put_on_list, buffer, &err);
    if (status != RKS_OK) {
        PyBuffer_Release(&buffer->view);
        free(buffer);
        return core_raise(&err);
    }
    core_free_arenas();
    Py_RETURN_NONE;
}

static PyMethodDef arenas_methods[] = {
    {"wanted", arenas_wanted, METH_NOARGS,
     "The bytes of an arena that a batch lacked, reported once; 0: none did."},
    {"add", arenas_add, METH_O,
     "A writable buffer of so many bytes, which is held as long as arrays may lie in it."},
    {0},
};

static PyType_Slot arenas_slots[] = {
    {Py_tp_doc, (void *)"Memory for the arrays of an epoch."},
    {Py_tp_new, arenas_new},
    {Py_tp_dealloc, arenas_dealloc},
    {Py_tp_methods, arenas_methods},
    {0, NULL},
};

static PyType_Spec arenas_spec = {
    .name = "rankstore._core.Arenas",
    .basicsize = sizeof(arenas),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = arenas_slots,
};

int core_add_arenas(PyObject *module)
{
    return core_add_type(module, &arenas_spec, &arenas_type);
}
