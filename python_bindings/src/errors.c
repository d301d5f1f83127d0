/* SPDX-License-Identifier: Apache-2.0
 *
 * errors.c: converts rks_error to exceptions and back, and checks for signals while the library
 * waits. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

/* The exception that is set and that the library has received; only compared with. */
static _Thread_local const PyObject *received;

/* Makes a new exception; returns NULL with another one set. */
static PyObject *make(const rks_error *err)
{
    size_t host = strnlen(err->host, sizeof(err->host));
    size_t text = strnlen(err->text, sizeof(err->text));
    PyObject *module = PyImport_ImportModule("rankstore.errors");
    PyObject *host_text = PyUnicode_DecodeUTF8(err->host, (Py_ssize_t)host, "replace");
    PyObject *line = PyUnicode_DecodeUTF8(err->text, (Py_ssize_t)text, "replace");
    PyObject *error = NULL;
    if (module != NULL && host_text != NULL && line != NULL)
        error = PyObject_CallMethod(module, "make", "iiLOO", (int)err->status, (int)err->rank,
                                    (long long)err->cause, host_text, line);
    Py_XDECREF(module);
    Py_XDECREF(host_text);
    Py_XDECREF(line);
    return error;
}

/* Clears the exception that is set and returns it, with its traceback. */
static PyObject *fetch_exception(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL && value != NULL)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
}

PyObject *core_raise(const rks_error *err)
{
    PyObject *cause = NULL;
    received = NULL;
    if (PyErr_Occurred() != NULL) {
        if (err->status == RKS_ERR_CANCELLED || !PyErr_ExceptionMatches(PyExc_Exception))
            return NULL;
        cause = fetch_exception();
    }
    PyObject *error = make(err);
    if (error == NULL) {
        Py_XDECREF(cause);
        return NULL;
    }
    if (cause != NULL)
        PyException_SetCause(error, cause); /* takes it over */
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_DECREF(error);
    return NULL;
}

PyObject *core_raise_text(rks_status status, const char *format, ...)
{
    char line[sizeof(((rks_error *)0)->text)];
    rks_error err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    core_set_error(&err, status, line);
    return core_raise(&err);
}

PyObject *core_raise_closed(const char *name)
{
    return core_raise_text(RKS_ERR_STATE, "%s is closed", name);
}

void core_set_error(rks_error *err, int status, const char *text)
{
    memset(err, 0, sizeof(*err));
    err->status = status;
    err->rank = -1;
    size_t size = strlen(text);
    if (size >= sizeof(err->text)) { /* cut before a character, not in it */
        size = sizeof(err->text) - 1;
        while (size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80)
            size--;
    }
    for (size_t i = 0; i < size; i++) {
        bool control = (unsigned char)text[i] < 0x20 || text[i] == 0x7f;
        err->text[i] = control ? ' ' : text[i];
    }
}

bool core_succeeded(rks_status status, const rks_error *err)
{
    if (status != RKS_OK)
        core_raise(err);
    return PyErr_Occurred() == NULL;
}

rks_status core_caught(const char *what, rks_status status, rks_error *err)
{
    char line[1024];
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        status = RKS_ERR_CANCELLED;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *name = type == NULL ? NULL : PyType_GetName((PyTypeObject *)type);
    PyObject *message = value == NULL ? NULL : PyObject_Str(value);
    const char *name_text = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
    const char *text = message == NULL ? NULL : PyUnicode_AsUTF8AndSize(message, NULL);
    snprintf(line, sizeof(line), "%s%s%s%s%s", what, what[0] == '\0' ? "" : ": ",
             name_text == NULL ? "an exception" : name_text,
             text == NULL || text[0] == '\0' ? "" : ": ", text == NULL ? "" : text);
    Py_XDECREF(name);
    Py_XDECREF(message);
    PyErr_Clear(); /* of a __str__ that failed */
    received = status == RKS_ERR_CANCELLED ? NULL : value;
    PyErr_Restore(type, value, trace);
    if (err != NULL)
        core_set_error(err, status, line);
    return status;
}

/* Returns true if an exception is set that the library has not received, or one of a signal
 * handler. One that it has received is on its way to the other ranks, so calls that wait for them
 * continue. */
static bool is_asked_to_stop(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (type == NULL)
        received = NULL;
    bool known = type == NULL || value == received;
    if (known && PyErr_CheckSignals() != 0) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
        return true;
    }
    PyErr_Restore(type, value, trace);
    return !known;
}

/* The interrupt callback. The library's own threads take no part in Python, and never wait for
 * it. */
static int core_interrupt(void *user)
{
    (void)user;
    if (PyGILState_GetThisThreadState() == NULL)
        return 0;
    PyGILState_STATE state = PyGILState_Ensure();
    int stop = is_asked_to_stop();
    PyGILState_Release(state);
    return stop;
}

bool core_interrupted(void)
{
    return core_interrupt(NULL) != 0;
}

void core_watch_signals(void)
{
    rks_set_interrupt(core_interrupt, NULL);
}
