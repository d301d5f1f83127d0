/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.c: many samples as arrays: checks them once, then points at one sample after the other. */
#include <string.h>

#include "arrays.h"

void core_arrays_free(core_arrays_given *all)
{
    for (uint32_t i = 0; all->list != NULL && i < all->count; i++) {
        if (all->list[i].has_data)
            PyBuffer_Release(&all->list[i].data);
        if (all->list[i].has_offsets)
            PyBuffer_Release(&all->list[i].offsets);
    }
    PyMem_Free(all->list);
    PyMem_Free(all->values);
    PyMem_Free(all->key);
    PyMem_Free(all->key_size);
    Py_XDECREF(all->columns);
    Py_XDECREF(all->keys);
}

static bool is_blob(const core_column *column)
{
    return column->class == CORE_STR || column->class == CORE_JSON || column->class == CORE_BYTES;
}

static bool refuse(PyObject *kind, const core_column *column, const char *what)
{
    PyErr_Format(kind, "column \"%s\" (%s): %s", column->name, column->type, what);
    return false;
}

/* Checks that every sample's start and end lie in the data. */
static bool check_offsets(const core_array *a, uint64_t count)
{
    const int64_t *at = a->offsets.buf;
    const char *format = a->offsets.format;
    format += strchr("@=<", *format) != NULL;
    if (a->offsets.itemsize != 8 || strchr("lqn", *format) == NULL || *format == '\0')
        return refuse(PyExc_TypeError, a->column, "offsets are not int64");
    if ((uint64_t)a->offsets.len / 8 != count + 1) {
        PyErr_Format(PyExc_ValueError, "column \"%s\": %zd offsets for %llu samples, not %llu",
                     a->column->name, a->offsets.len / 8, (unsigned long long)count,
                     (unsigned long long)count + 1);
        return false;
    }
    uint64_t items = (uint64_t)a->data.len / a->item;
    for (uint64_t i = 0; i <= count; i++)
        if (at[i] < (i == 0 ? 0 : at[i - 1]) || (uint64_t)at[i] > items) {
            PyErr_Format(PyExc_ValueError,
                         "column \"%s\": offset %llu is %lld; offsets rise, from 0 to %llu at most",
                         a->column->name, (unsigned long long)i, (long long)at[i],
                         (unsigned long long)items);
            return false;
        }
    return true;
}

/* Accepts a flat array, or one whose last dimensions are those of the column. */
static bool check_shape(const core_array *a)
{
    const core_column *column = a->column;
    bool first = a->has_offsets && !is_blob(column);
    uint32_t fixed = column->dim_count - (first ? 1 : 0);
    if (a->data.ndim <= 1)
        return true;
    if (a->data.ndim != (int)fixed + 1)
        return refuse(PyExc_ValueError, column, "the array's dimensions are not the column's");
    for (uint32_t i = 0; i < fixed; i++)
        if ((uint64_t)a->data.shape[1 + i] != column->dims[column->dim_count - fixed + i])
            return refuse(PyExc_ValueError, column, "the array's dimensions are not the column's");
    return true;
}

static bool read_array(core_array *a, PyObject *pair, uint64_t count)
{
    const core_column *column = a->column;
    bool blob = is_blob(column);
    if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
        return refuse(PyExc_TypeError, column, "not a tuple (values, offsets)");
    PyObject *offsets = PyTuple_GetItem(pair, 1);
    bool variable = blob || column->variable_dims > 0;
    if (column->variable_dims > 1 || (column->variable_dims == 1 && column->dims[0] != 0))
        return refuse(PyExc_ValueError, column, "only a first dimension may vary in arrays");
    if (variable != (offsets != Py_None))
        return refuse(PyExc_ValueError, column,
                      variable ? "it needs offsets" : "it has no offsets, as its shape is fixed");
    if (PyObject_GetBuffer(PyTuple_GetItem(pair, 0), &a->data, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) <
        0)
        return false;
    a->has_data = true;
    if (variable) {
        if (PyObject_GetBuffer(offsets, &a->offsets, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0)
            return false;
        a->has_offsets = true;
    }
    if (blob ? a->data.itemsize != 1 : !core_column_fits(column, &a->data))
        return refuse(PyExc_TypeError, column, "the array's items are of another type");
    a->item = column->item_size;
    for (uint32_t i = 0; i < column->dim_count; i++)
        a->item *= column->dims[i] == 0 ? 1 : column->dims[i];
    if (variable)
        return check_shape(a) && check_offsets(a, count);
    if ((uint64_t)a->data.len / a->item != count || (uint64_t)a->data.len % a->item != 0)
        return refuse(PyExc_ValueError, column, "the array's size is not that of `count` samples");
    return check_shape(a);
}

static bool read_keys(core_arrays_given *all, PyObject *keys, uint64_t count)
{
    if (keys == Py_None)
        return true;
    if (PyUnicode_Check(keys) || PyBytes_Check(keys)) {
        PyErr_SetString(PyExc_TypeError, "keys: a sequence of str or bytes");
        return false;
    }
    all->keys = PySequence_Tuple(keys);
    if (all->keys == NULL)
        return false;
    if ((uint64_t)PyTuple_Size(all->keys) != count) {
        PyErr_Format(PyExc_ValueError, "keys: %zd for %llu samples", PyTuple_Size(all->keys),
                     (unsigned long long)count);
        return false;
    }
    all->key = PyMem_Calloc(count + 1, sizeof(*all->key));
    all->key_size = PyMem_Calloc(count + 1, sizeof(*all->key_size));
    if (all->key == NULL || all->key_size == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint64_t i = 0; i < count; i++)
        if (!core_key(PyTuple_GetItem(all->keys, (Py_ssize_t)i), &all->key[i], &all->key_size[i]))
            return false;
    return true;
}

bool core_arrays_take(const core_values *values, core_arrays_given *all, PyObject *columns,
                      PyObject *keys, uint64_t count)
{
    while (core_values_column(values, all->count) != NULL)
        all->count++;
    all->columns = PySequence_Tuple(columns);
    if (all->columns == NULL)
        return false;
    if (PyTuple_Size(all->columns) != (Py_ssize_t)all->count) {
        PyErr_Format(PyExc_ValueError, "%zd arrays for %u columns", PyTuple_Size(all->columns),
                     all->count);
        return false;
    }
    all->list = PyMem_Calloc(all->count, sizeof(*all->list));
    all->values = PyMem_Calloc(all->count, sizeof(*all->values));
    if (all->list == NULL || all->values == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        all->list[i].column = core_values_column(values, i);
        if (!read_array(&all->list[i], PyTuple_GetItem(all->columns, (Py_ssize_t)i), count))
            return false;
    }
    return read_keys(all, keys, count);
}

uint64_t core_arrays_sample(const core_arrays_given *all, uint64_t sample)
{
    static const uint8_t nothing;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const core_array *a = &all->list[i];
        rks_value *value = &all->values[i];
        uint64_t begin = sample, end = sample + 1;
        if (a->has_offsets) {
            begin = (uint64_t)((const int64_t *)a->offsets.buf)[sample];
            end = (uint64_t)((const int64_t *)a->offsets.buf)[sample + 1];
        }
        value->data =
            a->data.buf == NULL ? &nothing : (const uint8_t *)a->data.buf + begin * a->item;
        value->size = (end - begin) * a->item; /* the size gives the variable dimension */
        bytes += value->size;
    }
    return bytes;
}
