/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.c: who may use a handle (one thread at a time, of the process that opened it), and which
 * samples an argument names. */
#include "handles.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

int core_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromSpec(spec);
    return *type == NULL ? -1 : PyModule_AddType(module, *type);
}

void core_free_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Only the main interpreter has the number 0. */
int core_check_interpreter(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
        return 0;
    PyErr_SetString(PyExc_ImportError,
                    "rankstore cannot be imported in a subinterpreter: its threads and its group "
                    "of ranks belong to the process; import it in the main interpreter");
    return -1;
}

/* Read for each batch and each sample that is added, so a system call would cost too much. */
static pid_t process;

static void note_process(void)
{
    process = getpid();
}

int core_watch_forks(void)
{
    if (process != 0)
        return 0;
    int error = pthread_atfork(NULL, NULL, note_process);
    if (error != 0) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    note_process();
    return 0;
}

pid_t core_pid(void)
{
    return process;
}

bool core_is_foreign(pid_t pid)
{
    return pid != core_pid();
}

int core_check_process(pid_t pid, const char *name)
{
    if (!core_is_foreign(pid))
        return 0;
    core_raise_text(
        RKS_ERR_STATE,
        "%s: process %ld opened it, and this is a fork of that; open it again in this process",
        name, (long)pid);
    return -1;
}

int core_claim(atomic_bool *busy, const char *name)
{
    if (!atomic_exchange(busy, true))
        return 0;
    PyErr_Format(PyExc_RuntimeError, "%s: in use by another thread or callback", name);
    return -1;
}

void core_unclaim(atomic_bool *busy)
{
    atomic_store(busy, false);
}

int core_check_usable(const void *handle, pid_t pid, const char *name)
{
    if (handle == NULL) {
        core_raise_closed(name);
        return -1;
    }
    return core_check_process(pid, name);
}

int core_lock(PyThread_type_lock lock)
{
    enum { SLICE_US = 50000 };
    if (PyThread_acquire_lock(lock, NOWAIT_LOCK))
        return 0;
    for (;;) {
        PyLockStatus got;
        Py_BEGIN_ALLOW_THREADS
        got = PyThread_acquire_lock_timed(lock, SLICE_US, 1);
        Py_END_ALLOW_THREADS
        if (got == PY_LOCK_ACQUIRED)
            return 0;
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
}

int core_sample(PyObject *object, uint64_t count, uint64_t *sample)
{
    PyObject *number = PyNumber_Index(object);
    if (number == NULL)
        return -1;
    unsigned long long id = PyLong_AsUnsignedLongLong(number);
    bool within = !PyErr_Occurred() && id < count;
    if (!within) {
        PyErr_Clear(); /* negative, or beyond 64 bits */
        PyErr_Format(PyExc_IndexError, "sample %S is out of range: the dataset has %llu", number,
                     (unsigned long long)count);
    }
    Py_DECREF(number);
    *sample = id;
    return within ? 0 : -1;
}

/* ---- lists of samples -------------------------------------------------------------------- */

/* Reads the items of an array of this format as 64 bits; negative ones become larger than any
 * dataset. Returns false for another format. */
static bool read_items(const Py_buffer *view, uint64_t *ids)
{
    size_t count = (size_t)view->len / (size_t)(view->itemsize == 0 ? 1 : view->itemsize);
    const char *format = view->format;
    if (format == NULL || view->ndim != 1)
        return false;
    format += format[0] == '@' || format[0] == '=' || format[0] == '<';
    if (format[0] == '\0' || format[1] != '\0' || strchr("iIlLqQ", format[0]) == NULL)
        return false;
    bool is_signed = format[0] >= 'a';
    if (view->itemsize == 8) {
        memcpy(ids, view->buf, count * 8);
        return true;
    }
    if (view->itemsize != 4)
        return false;
    for (size_t i = 0; i < count; i++) {
        uint32_t item = ((const uint32_t *)view->buf)[i];
        ids[i] = is_signed ? (uint64_t)(int64_t)(int32_t)item : item;
    }
    return true;
}

static int ids_of_array(const Py_buffer *view, uint64_t limit, uint64_t **ids, size_t *count)
{
    size_t items = (size_t)view->len / (size_t)(view->itemsize == 0 ? 1 : view->itemsize);
    uint64_t *list = PyMem_Malloc((items + 1) * sizeof(*list));
    if (list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    bool readable = read_items(view, list);
    if (!readable)
        PyErr_Format(PyExc_TypeError,
                     "samples: an array of %d dimensions and items \"%s\"; one dimension of int32, "
                     "uint32, int64 or "
                     "uint64 is needed",
                     view->ndim, view->format == NULL ? "B" : view->format);
    for (size_t i = 0; readable && i < items; i++) {
        if (list[i] < limit)
            continue;
        PyErr_Format(PyExc_IndexError, "sample %lld is out of range: the dataset has %llu",
                     (long long)list[i], (unsigned long long)limit);
        readable = false;
    }
    if (!readable) {
        PyMem_Free(list);
        return -1;
    }
    *ids = list;
    *count = items;
    return 0;
}

static int ids_of_sequence(PyObject *samples, uint64_t limit, uint64_t **ids, size_t *count)
{
    PyObject *items = PySequence_Tuple(samples);
    if (items == NULL)
        return -1;
    Py_ssize_t size = PyTuple_Size(items);
    uint64_t *list = PyMem_Malloc(((size_t)size + 1) * sizeof(*list));
    bool good = list != NULL;
    if (!good)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; good && i < size; i++)
        good = core_sample(PyTuple_GetItem(items, i), limit, &list[i]) == 0;
    Py_DECREF(items);
    if (!good) {
        PyMem_Free(list);
        return -1;
    }
    *ids = list;
    *count = (size_t)size;
    return 0;
}

int core_samples(PyObject *samples, uint64_t limit, uint64_t **ids, size_t *count)
{
    Py_buffer view;
    if (!PyObject_CheckBuffer(samples))
        return ids_of_sequence(samples, limit, ids, count);
    if (PyObject_GetBuffer(samples, &view, PyBUF_ND | PyBUF_FORMAT) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
            return -1;
        PyErr_Clear(); /* with strides: item by item */
        return ids_of_sequence(samples, limit, ids, count);
    }
    int status = ids_of_array(&view, limit, ids, count);
    PyBuffer_Release(&view);
    return status;
}
