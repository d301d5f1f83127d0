/* SPDX-License-Identifier: Apache-2.0
 *
 * mix.c: the option `mix` of a plan: how many times each sample occurs in an epoch. */
#include "handles.h"

#include <stdlib.h>

/* Reads a list of numbers. Returns NULL with an exception, or for None. */
static double *read_doubles(PyObject *list, Py_ssize_t count)
{
    double *made = PyMem_Malloc((size_t)(count > 0 ? count : 1) * sizeof(*made));
    if (made == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; made != NULL && i < count; i++) {
        made[i] = PyFloat_AsDouble(PyList_GetItem(list, i));
        if (PyErr_Occurred() != NULL) {
            PyMem_Free(made);
            return NULL;
        }
    }
    return made;
}

static bool read_bounds(PyObject *list, Py_ssize_t count, core_mix *mix)
{
    if (!PyList_Check(list) || PyList_Size(list) != count) {
        PyErr_SetString(PyExc_ValueError, "mix: bounds are one more than sources");
        return false;
    }
    mix->bounds = PyMem_Malloc((size_t)count * sizeof(*mix->bounds));
    for (Py_ssize_t i = 0; mix->bounds != NULL && i < count; i++)
        if (!core_number(PyList_GetItem(list, i), "bounds", 0, UINT64_MAX, &mix->bounds[i]))
            return false;
    if (mix->bounds == NULL)
        PyErr_NoMemory();
    mix->options.bounds = mix->bounds;
    return mix->bounds != NULL;
}

static bool read_names(PyObject *names, core_mix *mix)
{
    Py_ssize_t count = PyList_Size(names);
    mix->options.sources = (size_t)count;
    mix->names = PyMem_Malloc((size_t)(count > 0 ? count : 1) * sizeof(*mix->names));
    if (mix->names == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; mix->names != NULL && i < count; i++) {
        mix->names[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(names, i), NULL);
        if (mix->names[i] == NULL)
            return false;
    }
    mix->options.names = mix->names;
    return mix->names != NULL;
}

static const void *bytes_or_null(PyObject *object)
{
    return object == Py_None ? NULL : PyBytes_AsString(object);
}

bool core_mix_take(PyObject *given, core_mix *mix)
{
    PyObject *names, *weights, *bounds, *source_of, *samples, *counts, *odds;
    int tokens = 0;
    rks_plan_mix_default(&mix->options);
    if (given == Py_None)
        return true;
    if (!PyArg_ParseTuple(given, "O!OOOOpOO:mix", &PyList_Type, &names, &weights, &bounds,
                          &source_of, &samples, &tokens, &counts, &odds))
        return false;
    mix->options.tokens = tokens;
    bool taken = core_number(samples, "samples", 0, UINT64_MAX, &mix->options.samples) &&
                 read_names(names, mix);
    if (taken && weights != Py_None) {
        Py_ssize_t count = PyList_Check(weights) ? PyList_Size(weights) : -1;
        if (count == PyList_Size(names))
            mix->weights = read_doubles(weights, count);
        else
            PyErr_SetString(PyExc_ValueError, "mix: as many weights as sources");
        mix->options.weights = mix->weights;
        taken = mix->weights != NULL;
    }
    if (taken && bounds != Py_None)
        taken = read_bounds(bounds, PyList_Size(names) + 1, mix);
    mix->options.source_of = bytes_or_null(source_of);
    mix->options.counts = bytes_or_null(counts);
    mix->options.odds = bytes_or_null(odds);
    taken = taken && PyErr_Occurred() == NULL;
    if (!taken)
        core_mix_clear(mix);
    return taken;
}

bool core_mix_weights(PyObject *list, core_mix *mix, size_t *count)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "weights: a list");
        return false;
    }
    *count = (size_t)PyList_Size(list);
    mix->weights = read_doubles(list, PyList_Size(list));
    return mix->weights != NULL;
}

void core_mix_clear(core_mix *mix)
{
    PyMem_Free(mix->names);
    PyMem_Free(mix->weights);
    PyMem_Free(mix->bounds);
    mix->names = NULL;
    mix->weights = NULL;
    mix->bounds = NULL;
}

static PyObject *dict_of(const rks_plan_source *list, size_t count)
{
    PyObject *made = PyDict_New();
    for (size_t i = 0; made != NULL && i < count; i++) {
        PyObject *one = Py_BuildValue("{sd,sK,sK,sK,sK,sK,sd}", "share", list[i].share, "samples",
                                      list[i].samples, "draws", list[i].draws, "distinct",
                                      list[i].distinct, "repeats", list[i].draws - list[i].distinct,
                                      "tokens", list[i].tokens, "deviation", list[i].deviation);
        if (one == NULL || PyDict_SetItemString(made, list[i].name, one) < 0)
            Py_CLEAR(made);
        Py_XDECREF(one);
    }
    return made;
}

PyObject *core_mix_sources(rks_plan *plan, uint64_t epoch)
{
    size_t count = 0;
    rks_error err = {0};
    rks_status status = rks_plan_sources(plan, epoch, NULL, 0, &count, &err);
    if (status != RKS_OK)
        return core_raise(&err);
    rks_plan_source *list = calloc(count, sizeof(*list));
    if (list == NULL)
        return PyErr_NoMemory();
    list[0].struct_size = sizeof(*list);
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_sources(plan, epoch, list, count, &count, &err);
    Py_END_ALLOW_THREADS
    PyObject *made = status == RKS_OK ? dict_of(list, count) : core_raise(&err);
    free(list);
    return made;
}
