/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: reports the memory of this process, and of each rank of a group. */
#include "core.h"

/* Returns {name: (current, peak)}; NULL with an exception. */
static PyObject *figures(const rks_memory_use *use)
{
    PyObject *found = PyDict_New();
    for (uint32_t i = 0; found != NULL && i < RKS_MEMORY_KINDS; i++) {
        PyObject *pair = Py_BuildValue("(KK)", (unsigned long long)use->kinds[i].current,
                                       (unsigned long long)use->kinds[i].peak);
        if (pair == NULL || PyDict_SetItemString(found, rks_memory_kind_name(i), pair) < 0)
            Py_CLEAR(found);
        Py_XDECREF(pair);
    }
    return found;
}

PyObject *core_memory_use(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    rks_memory_use use = {.struct_size = sizeof(use)};
    rks_memory_use_get(&use);
    return figures(&use);
}

/* Returns {name: (current, current_rank, peak, peak_rank, least_peak)}; NULL with an exception. */
static PyObject *extremes(const rks_memory_most *most)
{
    PyObject *found = PyDict_New();
    for (uint32_t i = 0; found != NULL && i < RKS_MEMORY_KINDS; i++) {
        const rks_memory_extreme *of = &most->kinds[i];
        PyObject *one = Py_BuildValue("(KIKIK)", (unsigned long long)of->current, of->current_rank,
                                      (unsigned long long)of->peak, of->peak_rank,
                                      (unsigned long long)of->least_peak);
        if (one == NULL || PyDict_SetItemString(found, rks_memory_kind_name(i), one) < 0)
            Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

PyObject *core_memory_use_all(PyObject *self, PyObject *group_object)
{
    (void)self;
    rks_memory_use *ranks = NULL;
    rks_memory_most most = {.struct_size = sizeof(most)};
    rks_error err = {0};
    rks_status status;
    rks_group *group = core_group_enter(group_object);
    if (group == NULL)
        return NULL;
    uint32_t size = rks_group_size(group);
    Py_BEGIN_ALLOW_THREADS
    status = rks_memory_use_all(group, sizeof(*ranks), &ranks, &most, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *list = PyList_New(0), *of_all = extremes(&most);
    for (uint32_t rank = 0; list != NULL && rank < size; rank++) {
        PyObject *one = figures(&ranks[rank]);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    rks_release(ranks);
    if (list == NULL || of_all == NULL) {
        Py_XDECREF(list);
        Py_XDECREF(of_all);
        return NULL;
    }
    return Py_BuildValue("(NN)", list, of_all);
}
