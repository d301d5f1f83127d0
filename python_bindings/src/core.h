/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h: what the files of the extension share.
 *
 * Ownership  A Python object owns one C handle and holds references to the objects that the handle
 *            needs (a store its group, a batch its store); a closed object has a NULL handle and
 *            raises RankStoreError ("closed") when it is used.
 * GIL        Released around every call of the library that waits, copies or computes.
 * Signals    The library asks core_interrupt in the waiting thread at least each 100 ms; an
 *            exception that a signal handler raised stays set and replaces RKS_ERR_CANCELLED.
 * Errors     rankstore.errors.make(status, rank, cause, host, text) makes the exception. */
#ifndef RANKSTORE_PYTHON_CORE_H
#define RANKSTORE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <stdbool.h>
#include <sys/types.h>

#include <rankstore.h>

/* ---- errors.c ---- */
/* Sets the exception for *err and returns NULL. An exception that is set already is a signal
 * handler's or a callback's: it stays where it ended the call (RKS_ERR_CANCELLED, or no Exception,
 * as KeyboardInterrupt), else it becomes the cause of the one that is set. */
PyObject *core_raise(const rks_error *err);
/* Of a call that asked callbacks or signals: no exception is set. Else raises what *err says, or
 * lets stand what was raised while the call came to a good end. */
bool core_succeeded(rks_status status, const rks_error *err);
/* The same for a problem of the extension's own. */
PyObject *core_raise_text(rks_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* In a callback: *err says "WHAT: TYPE: MESSAGE" (WHAT may be "") of the exception that is set,
 * which stays set, so that core_raise finds it. With RKS_ERR_CANCELLED where it is no Exception,
 * else `status`. */
rks_status core_caught(const char *what, rks_status status, rks_error *err);
/* For a status and text that Python brings to a collective call. */
void core_set_error(rks_error *err, int status, const char *text);
/* Raises "NAME is closed"; NULL. */
PyObject *core_raise_closed(const char *name);
/* Makes the library ask Python for signals; the same question, for loops of our own without the
 * GIL: is an exception set that core_caught was not called for, or was one by a signal's handler?
 */
void core_watch_signals(void);
bool core_interrupted(void);

/* ---- arguments.c ---- */
/* None (or NULL) leaves *value as it is. False with an exception that says `name`. */
bool core_number(PyObject *object, const char *name, uint64_t least, uint64_t most,
                 uint64_t *value);
/* The callable, borrowed, or NULL for None. */
bool core_callable(PyObject *object, const char *name, PyObject **callable);
/* A status that Python brings: 0 or one of librankstore's. */
bool core_status(int status);
/* Texts of a list or tuple of str, valid until core_texts_free. */
typedef struct core_texts {
    PyObject *objects;
    const char **texts;
    size_t count;
} core_texts;
bool core_texts_take(PyObject *sequence, const char *name, core_texts *texts);
void core_texts_free(core_texts *texts);
/* A key, str or bytes, valid as long as the object. */
bool core_key(PyObject *object, const void **key, size_t *size);

/* A list of a record for each rank, all of `size` bytes, into `all`. False with an exception. */
bool core_records_take(PyObject *list, unsigned ranks, size_t size, uint8_t *all);

/* ---- memory.c ---- */
/* Functions of the module. */
PyObject *core_memory_use(PyObject *self, PyObject *unused);
PyObject *core_memory_use_all(PyObject *self, PyObject *group_object);

/* ---- buffer.c ---- */
/* A Buffer over data[size], which lives as long as `owner` (a new reference is taken). */
PyObject *core_buffer(PyObject *owner, void *data, size_t size, bool writable);
/* A Buffer over a copy of its own, which may be written. */
PyObject *core_buffer_copy(const void *data, size_t size);

/* ---- values.c ---- */
/* A sample's values from Python objects: what Builder.add and Gather.add take. */
typedef struct core_values core_values;
core_values *core_values_new(const rks_schema *schema); /* NULL with an exception set */
void core_values_free(core_values *values);             /* NULL is accepted */
/* Reads the sequence; the result points into the objects and is valid until core_values_release.
 * NULL with an exception that names the column. */
const rks_value *core_values_read(core_values *values, PyObject *sequence);
void core_values_release(core_values *values);
/* A column's type, taken apart. */
typedef enum core_class {
    CORE_BOOL,
    CORE_INT,
    CORE_UINT,
    CORE_FLOAT,
    CORE_COMPLEX,
    CORE_BITS, /* bfloat16 and float8, as unsigned integers */
    CORE_BYTES,
    CORE_STR,
    CORE_JSON,
    CORE_OTHER, /* of no column */
} core_class;
typedef struct core_column {
    const char *name;
    const char *type;
    core_class class;
    uint32_t item_size;
    uint32_t dim_count;          /* 0 also for str, bytes and json */
    uint32_t dims[RKS_DIMS_MAX]; /* 0: `*` */
    uint32_t variable_dims;
} core_column;
const core_column *core_values_column(const core_values *values, uint32_t column);
/* The bytes of a view are items of the column. */
bool core_column_fits(const core_column *column, const Py_buffer *view);
/* (bytes, dims) of a value, a copy, or None; dims are () for scalars, str, bytes and json. */
PyObject *core_value_copy(const core_column *column, const rks_value *value);
/* A list of them, one a column. */
PyObject *core_values_copy(const core_values *values, const rks_value *list);

/* ---- guard.c ---- */
/* getpid without a system call: a handle is used by the process that opened it. The second is
 * called once before the first: -1 with an exception. */
pid_t core_pid(void);
int core_watch_forks(void);
/* Makes a type, adds it to the module under its name, and keeps it in *type (NULL where it fails).
 */
int core_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);
/* The end of a tp_dealloc, of types with and without garbage collection. */
void core_free_object(PyObject *self);

/* ---- group.c ---- */
/* The handle, which cannot be closed until core_group_leave: for one call, or for as long as an
 * object of the group is open. NULL with an exception if the object is of another type or closed.
 */
rks_group *core_group_enter(PyObject *group);
void core_group_leave(PyObject *group);
/* -1 with the same exception. */
int core_group_check(PyObject *group);
/* COLLECTIVE. A new Group; NULL with an exception. */
PyObject *core_group_open(const rks_group_options *options);
/* Closes it, unless an object of it is still open. */
void core_group_end(PyObject *group);
/* A store of the group that this rank needs no longer: it serves the others until all have closed it,
 * or the group is closed, and then leaves the group. Takes it over. */
void core_group_park(PyObject *group, rks_store *store);
/* Frees the parked stores that all ranks have closed. Never waits. */
void core_group_reap(PyObject *group);
/* The silence limit, in ms. */
uint32_t core_group_silence(PyObject *group);

/* ---- store.c, samples.c, plan.c: handles of their objects ---- */
/* NULL with an exception if the object is of another type. */
const rks_collate_options *core_collate(PyObject *collate);
/* Objects that take a handle over, also on failure (NULL with an exception). `store` is a Store. */
PyObject *core_samples_new(PyObject *store, rks_batch *batch);
PyObject *core_arrays_new(rks_arrays *arrays);

/* Each file adds its types and functions to the module; -1 with an exception. */
int core_add_buffer(PyObject *module);
int core_add_group(PyObject *module);
int core_add_launch(PyObject *module);
int core_add_build(PyObject *module);
int core_add_builder(PyObject *module);
int core_add_reader(PyObject *module);
int core_add_gather(PyObject *module);
int core_add_store(PyObject *module);
int core_add_samples(PyObject *module);
int core_add_rows(PyObject *module);
int core_add_collate(PyObject *module);
int core_add_plan(PyObject *module);
int core_add_arenas(PyObject *module);
int core_add_epoch(PyObject *module);
int core_add_upkeep(PyObject *module);

#endif
