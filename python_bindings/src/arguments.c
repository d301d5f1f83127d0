/* SPDX-License-Identifier: Apache-2.0
 *
 * arguments.c: converts the Python arguments that several calls share. */
#include <string.h>

#include "core.h"

static void raise_outside(const char *name, PyObject *number, uint64_t least, uint64_t most)
{
    PyObject *shown = PyObject_Str(number);
    const char *text = shown == NULL ? NULL : PyUnicode_AsUTF8AndSize(shown, NULL);
    if (text != NULL)
        core_raise_text(RKS_ERR_ARGUMENT, "%s: %.40s is not from %llu to %llu", name, text,
                        (unsigned long long)least, (unsigned long long)most);
    Py_XDECREF(shown);
}

bool core_number(PyObject *object, const char *name, uint64_t least, uint64_t most, uint64_t *value)
{
    if (object == NULL || object == Py_None)
        return true;
    PyObject *number = PyNumber_Index(object);
    if (number == NULL) {
        PyErr_Format(PyExc_TypeError, "%s: an int or None, not %R", name, Py_TYPE(object));
        return false;
    }
    unsigned long long taken = PyLong_AsUnsignedLongLong(number);
    bool outside = taken == (unsigned long long)-1 && PyErr_Occurred() != NULL;
    PyErr_Clear();
    if (outside || taken < least || taken > most)
        raise_outside(name, number, least, most);
    else
        *value = taken;
    Py_DECREF(number);
    return PyErr_Occurred() == NULL;
}

bool core_callable(PyObject *object, const char *name, PyObject **callable)
{
    *callable = object == Py_None ? NULL : object;
    if (*callable == NULL || PyCallable_Check(*callable))
        return true;
    PyErr_Format(PyExc_TypeError, "%s: a callable or None, not %R", name, Py_TYPE(object));
    return false;
}

bool core_status(int status)
{
    if (status <= 0 && status >= RKS_ERR_CANCELLED)
        return true;
    PyErr_Format(PyExc_ValueError, "status: %d is not from %d to 0", status, RKS_ERR_CANCELLED);
    return false;
}

bool core_texts_take(PyObject *sequence, const char *name, core_texts *texts)
{
    *texts = (core_texts){0};
    if (sequence == NULL || sequence == Py_None)
        return true;
    if (PyUnicode_Check(sequence) || PyBytes_Check(sequence) ||
        (texts->objects = PySequence_Tuple(sequence)) == NULL) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: a sequence of str, not %R", name, Py_TYPE(sequence));
        return false;
    }
    Py_ssize_t count = PyTuple_Size(texts->objects);
    texts->texts = PyMem_Calloc((size_t)count + 1, sizeof(char *));
    if (texts->texts == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; PyErr_Occurred() == NULL && i < count; i++) {
        PyObject *text = PyTuple_GetItem(texts->objects, i);
        Py_ssize_t size = 0;
        if (!PyUnicode_Check(text))
            PyErr_Format(PyExc_TypeError, "%s: a sequence of str, with %R in it", name,
                         Py_TYPE(text));
        else
            texts->texts[i] = PyUnicode_AsUTF8AndSize(text, &size);
        for (Py_ssize_t at = 0; texts->texts[i] != NULL && at < size; at++)
            if (texts->texts[i][at] == '\0') {
                PyErr_Format(PyExc_ValueError, "%s: %R has a zero byte", name, text);
                break;
            }
    }
    texts->count = (size_t)count;
    if (PyErr_Occurred() == NULL)
        return true;
    core_texts_free(texts);
    return false;
}

void core_texts_free(core_texts *texts)
{
    PyMem_Free(texts->texts);
    Py_CLEAR(texts->objects);
    texts->texts = NULL;
    texts->count = 0;
}

bool core_key(PyObject *object, const void **key, size_t *size)
{
    Py_ssize_t length = 0;
    char *bytes = NULL;
    if (PyUnicode_Check(object)) {
        *key = PyUnicode_AsUTF8AndSize(object, &length);
    } else if (PyBytes_Check(object) && PyBytes_AsStringAndSize(object, &bytes, &length) == 0) {
        *key = bytes;
    } else {
        PyErr_Format(PyExc_TypeError, "key: str or bytes, not %R", Py_TYPE(object));
        return false;
    }
    *size = (size_t)length;
    return *key != NULL;
}

static bool copy_record(PyObject *item, size_t size, uint8_t *place, Py_ssize_t rank)
{
    Py_buffer view;
    if (PyObject_GetBuffer(item, &view, PyBUF_SIMPLE) < 0)
        return false;
    bool fits = view.len == (Py_ssize_t)size;
    if (fits)
        memcpy(place, view.buf, size);
    else
        PyErr_Format(PyExc_ValueError, "rank %zd's record has %zd bytes, not %zu", rank, view.len,
                     size);
    PyBuffer_Release(&view);
    return fits;
}

bool core_records_take(PyObject *list, unsigned ranks, size_t size, uint8_t *all)
{
    PyObject *records = PySequence_Tuple(list);
    if (records == NULL)
        return false;
    bool fits = PyTuple_Size(records) == (Py_ssize_t)ranks;
    if (!fits)
        PyErr_Format(PyExc_ValueError, "%zd records for %u ranks", PyTuple_Size(records), ranks);
    for (Py_ssize_t rank = 0; fits && rank < (Py_ssize_t)ranks; rank++)
        fits = copy_record(PyTuple_GetItem(records, rank), size, all + (size_t)rank * size, rank);
    Py_DECREF(records);
    return fits;
}
