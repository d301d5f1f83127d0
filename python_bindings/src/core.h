/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h: what the files of the extension share.
 *
 * Ownership  A Python object owns one C handle and holds references to the objects that the handle
 *            needs (a store its group, a batch its store); a closed object has a NULL handle and
 *            raises RankStoreError ("closed") when it is used.
 * GIL        Released around every call of the library that waits, copies or computes.
 * Signals    The library asks core_interrupt in the waiting thread at least each 100 ms; an exception
 *            that a signal handler raised stays set and replaces RKS_ERR_CANCELLED.
 * Errors     rankstore.errors.make(status, rank, cause, host, text) makes the exception. */
#ifndef RANKSTORE_CORE_H
#define RANKSTORE_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdbool.h>

#include <rankstore.h>

/* ---- errors.c ---- */
/* Sets the exception for *err (an exception that is set already stays). Always returns NULL. */
PyObject *core_raise(const rks_error *err);
/* For a status and text that Python brings to a collective call. */
void core_set_error(rks_error *err, int status, const char *text);
/* Raises "NAME is closed"; NULL. */
PyObject *core_raise_closed(const char *name);

/* ---- buffer.c ---- */
/* A Buffer over data[size], which lives as long as `owner` (a new reference is taken). */
PyObject *core_buffer(PyObject *owner, void *data, size_t size, bool writable);

/* ---- values.c ---- */
/* A sample's values from Python objects: what Builder.add and Gather.add take. */
typedef struct core_values core_values;
core_values *core_values_new(const rks_schema *schema); /* NULL with an exception set */
void core_values_free(core_values *values);             /* NULL is accepted */
/* Reads the sequence; the result points into the objects and is valid until core_values_release. NULL with an
 * exception that names the column. */
const rks_value *core_values_read(core_values *values, PyObject *sequence);
void core_values_release(core_values *values);

/* ---- group.c, store.c, samples.c, plan.c: handles of their objects ---- */
/* NULL with an exception where the object is of another type or closed. */
rks_group *core_group(PyObject *group);
rks_store *core_store(PyObject *store);
rks_plan *core_plan(PyObject *plan);
const rks_collate_options *core_collate(PyObject *collate);
/* Objects that take a handle over, also on failure (NULL with an exception). `store` is a Store. */
PyObject *core_samples_new(PyObject *store, rks_batch *batch);
PyObject *core_arrays_new(rks_arrays *arrays);
/* Stores and epochs that are open: close refuses, or closes them first. */
void core_group_hold(PyObject *group, int change);

/* Each file adds its types and functions to the module; -1 with an exception. */
int core_add_buffer(PyObject *module);
int core_add_group(PyObject *module);
int core_add_build(PyObject *module);
int core_add_gather(PyObject *module);
int core_add_store(PyObject *module);
int core_add_samples(PyObject *module);
int core_add_collate(PyObject *module);
int core_add_plan(PyObject *module);
int core_add_epoch(PyObject *module);

#endif
