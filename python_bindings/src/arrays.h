/* SPDX-License-Identifier: Apache-2.0
 *
 * arrays.h: checks the arguments of Sink.add_arrays. */
#ifndef RANKSTORE_PYTHON_ARRAYS_H
#define RANKSTORE_PYTHON_ARRAYS_H

#include "core.h"

/* One column of many samples. */
typedef struct core_array {
    const core_column *column;
    Py_buffer data, offsets;
    bool has_data, has_offsets;
    uint64_t item; /* bytes of one item along the first dimension, or of one sample */
} core_array;

typedef struct core_arrays_given {
    uint32_t count;
    core_array *list;
    rks_value *values; /* of one sample */
    PyObject *columns; /* the caller's columns, as a tuple */
    PyObject *keys;    /* a tuple, or NULL */
    const void **key;
    size_t *key_size;
} core_arrays_given;

/* Checks and takes the arguments. *all must be zeroed; free it also on failure. Returns false with
 * an exception that names the column. */
bool core_arrays_take(const core_values *values, core_arrays_given *all, PyObject *columns,
                      PyObject *keys, uint64_t count);
void core_arrays_free(core_arrays_given *all);
/* Points all->values at a sample (needs no GIL); returns its bytes. */
uint64_t core_arrays_sample(const core_arrays_given *all, uint64_t sample);

#endif
