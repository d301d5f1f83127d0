/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h: what the files of the extension share.
 *
 * Ownership  A Python object owns one C handle and holds references to the objects that the handle
 *            needs (a store its group, a batch its store); a closed object has a NULL handle and
 *            raises RankStoreError ("closed") when it is used.
 * GIL        Released around every call of the library that waits, copies or computes. Where
 *            Python has none (free-threaded), CORE_HELD does for one object what the GIL does for
 *            all: it guards the fields that change after the object was made.
 * Module     One process loads it once, in the main interpreter: the library's threads, signals
 *            and forks belong to the process. Subinterpreters refuse to import it.
 * Signals    The library asks core_interrupt in the waiting thread at least each 100 ms; an
 *            exception that a signal handler raised stays set and replaces RKS_ERR_CANCELLED.
 * Errors     rankstore.errors.make(status, rank, cause, host, text) makes the exception. */
#ifndef RANKSTORE_PYTHON_CORE_H
#define RANKSTORE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <sys/types.h>

#include <rankstore.h>

/* ---- errors.c ---- */
/* Sets the exception for *err and returns NULL. If an exception is already set, a signal handler or
 * a callback raised it. It stays if it ended the call (RKS_ERR_CANCELLED) or is not an Exception
 * (KeyboardInterrupt); otherwise it becomes the cause of the new one. */
PyObject *core_raise(const rks_error *err);
/* Call it after a library call that ran callbacks or signal handlers. Returns true if the call
 * succeeded and no exception is set. Otherwise raises what *err says, or keeps the exception that
 * was raised although the call succeeded. */
bool core_succeeded(rks_status status, const rks_error *err);
/* Raises an error of the extension's own; returns NULL. */
PyObject *core_raise_text(rks_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Call it in a callback with an exception set. Fills *err with "WHAT: TYPE: MESSAGE" (`what` may be
 * "") and leaves the exception set, so that core_raise finds it. Returns RKS_ERR_CANCELLED if it is
 * not an Exception, else `status`. */
rks_status core_caught(const char *what, rks_status status, rks_error *err);
/* Fills *err from a status and text that Python passes to a collective call. */
void core_set_error(rks_error *err, int status, const char *text);
/* Raises "NAME is closed"; returns NULL. */
PyObject *core_raise_closed(const char *name);
/* core_watch_signals makes the library ask Python for signals. core_interrupted asks the same, for
 * loops of our own without the GIL: it returns true if an exception is set that core_caught did not
 * handle, or a signal handler raised one. */
void core_watch_signals(void);
bool core_interrupted(void);

/* ---- arguments.c ---- */
/* Reads an integer from `least` to `most`. None (or NULL) leaves *value unchanged. Returns false
 * with an exception that contains `name`. */
bool core_number(PyObject *object, const char *name, uint64_t least, uint64_t most,
                 uint64_t *value);
/* Gets the callable, borrowed, or NULL for None. */
bool core_callable(PyObject *object, const char *name, PyObject **callable);
/* Returns true if a status from Python is 0 or one of librankstore's. */
bool core_status(int status);
/* The texts of a list or tuple of str, valid until core_texts_free. */
typedef struct core_texts {
    PyObject *objects;
    const char **texts;
    size_t count;
} core_texts;
bool core_texts_take(PyObject *sequence, const char *name, core_texts *texts);
void core_texts_free(core_texts *texts);
/* Gets the bytes of a key, str or bytes; they are valid as long as the object. */
bool core_key(PyObject *object, const void **key, size_t *size);

/* Copies a list with one record a rank, each of `size` bytes, to `all`. Returns false with an
 * exception. */
bool core_records_take(PyObject *list, unsigned ranks, size_t size, uint8_t *all);

/* ---- memory.c ---- */
/* Functions of the module. */
PyObject *core_memory_use(PyObject *self, PyObject *unused);
PyObject *core_memory_use_all(PyObject *self, PyObject *group_object);

/* ---- buffer.c ---- */
/* Makes a Buffer over data[size]. It takes a new reference to `owner`, which must keep the data
 * alive. */
PyObject *core_buffer(PyObject *owner, void *data, size_t size, bool writable);
/* Makes a writable Buffer over its own copy of the data. */
PyObject *core_buffer_copy(const void *data, size_t size);
/* Makes a writable Buffer over memory of the library, which it frees with rks_release, also on
 * failure. */
PyObject *core_buffer_take(void *data, size_t size);

/* ---- values.c ---- */
/* Reads a sample's values from Python objects, for Sink.add, Gather.add and SampleList.add. */
typedef struct core_values core_values;
core_values *core_values_new(const rks_schema *schema); /* NULL with an exception set */
void core_values_free(core_values *values);             /* NULL is accepted */
/* Reads the sequence. The result points into its objects and is valid until core_values_release.
 * Returns NULL with an exception that names the column. */
const rks_value *core_values_read(core_values *values, PyObject *sequence);
void core_values_release(core_values *values);
/* A column's type, parsed. */
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
    CORE_OTHER, /* not a column's type */
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
/* Returns true if the view's items are those of the column. */
bool core_column_fits(const core_column *column, const Py_buffer *view);
/* Returns (bytes, dims) with a copy of a value, or None; dims are () for scalars, str, bytes and
 * json. */
PyObject *core_value_copy(const core_column *column, const rks_value *value);
/* _core.has_other_names. */
PyObject *core_has_other_names(PyObject *module, PyObject *value);
/* Returns a list of these, one a column. */
PyObject *core_values_copy(const core_values *values, const rks_value *list);

/* ---- guard.c ---- */
/* The value of the expression `call`, which other threads' held calls of this object do not
 * interrupt, except where it waits, releases the GIL or runs Python code: there they may run. So a
 * field that such code relies on needs a lock or a count of its own, with or without a GIL. */
#ifdef Py_GIL_DISABLED
#define CORE_HELD(object, call)                                                                    \
    __extension__({                                                                                \
        __typeof__(call) held_result;                                                              \
        Py_BEGIN_CRITICAL_SECTION(object);                                                         \
        held_result = (call);                                                                      \
        Py_END_CRITICAL_SECTION();                                                                 \
        held_result;                                                                               \
    })
#else
#define CORE_HELD(object, call) (call)
#endif
/* Returns -1 with ImportError in an interpreter that is not the main one. */
int core_check_interpreter(void);
/* core_pid is getpid without a system call; a handle may only be used by the process that opened
 * it. Call core_watch_forks once before it; returns -1 with an exception. */
pid_t core_pid(void);
int core_watch_forks(void);
/* The function and flags of a PyMethodDef whose function takes keywords. */
#define WITH_KEYWORDS(function)                                                                    \
    (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
/* Makes a type, adds it to the module under its name, and keeps it in *type (NULL on failure). */
int core_add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type);
/* Ends a tp_dealloc, for types with and without garbage collection. */
void core_free_object(PyObject *self);

/* ---- group.c ---- */
/* Returns the handle, which stays open until core_group_leave: for one call, or as long as an
 * object of the group is open. Returns NULL with an exception if the object is of another type or
 * closed. */
rks_group *core_group_enter(PyObject *group);
void core_group_leave(PyObject *group);
/* Returns -1 with the same exception. */
int core_group_check(PyObject *group);
/* Returns NULL without an exception if the group is closed or another process's: then nothing that
 * this rank reads is compared. */
rks_group *core_group_of_readers(PyObject *group);
/* COLLECTIVE. Opens a new Group; returns NULL with an exception. */
PyObject *core_group_open(const rks_group_options *options);
/* Closes the group, unless one of its objects is still open. */
void core_group_end(PyObject *group);
/* Takes over a store that this rank no longer needs. It serves the other ranks until all have
 * closed it or the group is closed, then leaves the group. */
void core_group_park(PyObject *group, rks_store *store);
/* Frees the parked stores that all ranks have closed. Never waits. */
void core_group_reap(PyObject *group);
/* Returns the silence limit in milliseconds. */
uint32_t core_group_silence(PyObject *group);

/* ---- store.c, samples.c, plan.c: handles of their objects ---- */
/* Returns NULL with an exception if `collate` is of another type. */
const rks_collate_options *core_collate(PyObject *collate);
/* Make objects that take the handle over, even on failure (NULL with an exception). `store` is a
 * Store. */
PyObject *core_samples_new(PyObject *store, rks_batch *batch);
PyObject *core_arrays_new(rks_arrays *arrays);

/* Each file adds its types and functions to the module; returns -1 with an exception. */
int core_add_buffer(PyObject *module);
int core_add_group(PyObject *module);
int core_add_launch(PyObject *module);
int core_add_build(PyObject *module);
int core_add_input(PyObject *module);
int core_add_files(PyObject *module);
int core_add_gather(PyObject *module);
int core_add_store(PyObject *module);
int core_add_samples(PyObject *module);
int core_add_rows(PyObject *module);
int core_add_collate(PyObject *module);
int core_add_sample_list(PyObject *module);
int core_add_plan(PyObject *module);
int core_add_arenas(PyObject *module);
int core_add_epoch(PyObject *module);
int core_add_upkeep(PyObject *module);
int core_add_workers(PyObject *module);

#endif
