/* SPDX-License-Identifier: Apache-2.0
 *
 * group_calls.c: the calls of an open Group: agreements of all ranks, and what this rank tells the
 * others without waiting. */
#include "handles.h"

/* ---- collective calls ------------------------------------------------------------------------ */

PyObject *core_group_agree(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"phase", "status", "text", NULL};
    const char *phase, *text = "";
    int given = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s|is:agree", names, &phase, &given,
                                     &text))
        return NULL;
    rks_group *group = core_status(given) ? core_group_enter(object) : NULL;
    if (group == NULL)
        return NULL;
    rks_error err;
    rks_status status;
    core_set_error(&err, given, text);
    Py_BEGIN_ALLOW_THREADS
    status = rks_group_agree(group, phase, (rks_status)given, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(object);
    if (!core_succeeded(status, &err))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *list_of_bytes(const uint8_t *all, const uint64_t *offsets, unsigned size)
{
    PyObject *list = PyList_New((Py_ssize_t)size);
    for (unsigned rank = 0; list != NULL && rank < size; rank++) {
        PyObject *bytes = PyBytes_FromStringAndSize(
            (const char *)all + offsets[rank], (Py_ssize_t)(offsets[rank + 1] - offsets[rank]));
        if (bytes == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)rank, bytes);
    }
    return list;
}

PyObject *core_group_allgather(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"phase", "data", "status", "text", NULL};
    const char *phase, *text = "";
    Py_buffer data;
    int given = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "sy*|is:allgather", names, &phase, &data,
                                     &given, &text))
        return NULL;
    rks_group *group = core_status(given) ? core_group_enter(object) : NULL;
    if (group == NULL) {
        PyBuffer_Release(&data);
        return NULL;
    }
    const unsigned size = rks_group_size(group);
    rks_gathered all = {0};
    rks_error err;
    rks_status status;
    core_set_error(&err, given, text);
    Py_BEGIN_ALLOW_THREADS
    status = rks_group_allgather(group, phase, (rks_status)given, data.buf, (size_t)data.len, &all,
                                 &err);
    Py_END_ALLOW_THREADS
    core_group_leave(object);
    PyBuffer_Release(&data);
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *list = PyErr_Occurred() != NULL ? NULL : list_of_bytes(all.bytes, all.offsets, size);
    rks_release(all.bytes);
    rks_release(all.offsets);
    return list;
}

PyObject *core_group_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_group *group = core_group_enter(object);
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rks_group_stop(group);
    Py_END_ALLOW_THREADS
    core_group_leave(object);
    Py_RETURN_NONE;
}

PyObject *core_group_announce(PyObject *object, PyObject *arguments)
{
    const char *text;
    rks_group *group =
        PyArg_ParseTuple(arguments, "s:announce", &text) ? core_group_enter(object) : NULL;
    if (group == NULL)
        return NULL;
    rks_group_announce(group, text);
    core_group_leave(object);
    Py_RETURN_NONE;
}

PyObject *core_group_must_stop(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_group *group = core_group_enter(object);
    if (group == NULL)
        return NULL;
    bool must_stop = rks_group_must_stop(group, NULL) != RKS_OK;
    core_group_leave(object);
    return PyBool_FromLong(must_stop);
}

/* ---- what this rank reads ---------------------------------------------------------------------
 */

PyObject *core_group_reading(PyObject *object, PyObject *arguments)
{
    unsigned long long reader, plan, changes, epoch, step;
    int is_last;
    rks_group *group = core_group_of_readers(object);
    if (!PyArg_ParseTuple(arguments, "KKKKKp:reading", &reader, &plan, &changes, &epoch, &step,
                          &is_last))
        return NULL;
    if (group == NULL)
        Py_RETURN_NONE;
    const rks_reading given = {.reader = reader,
                               .plan = plan,
                               .changes = changes,
                               .epoch = epoch,
                               .step = step,
                               .is_last = (uint32_t)is_last};
    rks_error err;
    if (!core_succeeded(rks_group_reading(group, &given, &err), &err))
        return NULL;
    Py_RETURN_NONE;
}

PyObject *core_group_reading_ends(PyObject *object, PyObject *arguments)
{
    unsigned long long reader;
    int gone;
    if (!PyArg_ParseTuple(arguments, "Kp:reading_ends", &reader, &gone))
        return NULL;
    rks_group *group = core_group_of_readers(object);
    if (group != NULL)
        rks_group_reading_ends(group, reader, gone);
    Py_RETURN_NONE;
}

PyObject *core_group_change_begins(PyObject *object, PyObject *arguments)
{
    unsigned long long plan, changes, epoch, step;
    const char *call;
    if (!PyArg_ParseTuple(arguments, "KKKKs:change_begins", &plan, &changes, &epoch, &step, &call))
        return NULL;
    const rks_reading first = {.plan = plan, .changes = changes, .epoch = epoch, .step = step};
    rks_group *group = core_group_of_readers(object);
    if (group != NULL)
        rks_group_change_begins(group, &first, call);
    Py_RETURN_NONE;
}

PyObject *core_group_change_ends(PyObject *object, PyObject *arguments)
{
    unsigned long long plan;
    if (!PyArg_ParseTuple(arguments, "K:change_ends", &plan))
        return NULL;
    rks_group *group = core_group_of_readers(object);
    if (group != NULL)
        rks_group_change_ends(group, plan);
    Py_RETURN_NONE;
}
