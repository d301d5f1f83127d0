/* SPDX-License-Identifier: Apache-2.0
 *
 * handles.h: what the objects of an open store share: who may use a handle, and what keeps what.
 *
 *   Epoch ──► Plan ──► index ◄── Buffer of lengths or a column
 *     └─────► Store ───┘
 *               ▲
 *   Samples ────┘          view ◄── Buffer of a value        Arrays ◄── Buffer of an array
 *
 * Process  A handle belongs to the process that opened it. In a fork of that, using it is
 *          StateError, and closing or freeing it leaves the C object as it is: its threads and
 *          locks did not come along, and its connections are the parent's. */
#ifndef RANKSTORE_PYTHON_HANDLES_H
#define RANKSTORE_PYTHON_HANDLES_H

#include <sys/types.h>

#include "core.h"

/* ---- guard.c ---- */
/* Did another process open it? */
bool core_is_foreign(pid_t pid);
/* -1 with StateError if so. */
int core_check_process(pid_t pid, const char *name);
/* -1 with RuntimeError where a call of it runs in another thread, or in a callback of its own. */
int core_check_idle(bool busy, const char *name);
/* Of what refuses a second thread: open (`handle` is there), this process's, and not busy; else -1
 * with an exception. */
int core_check_usable(const void *handle, pid_t pid, bool busy, const char *name);
/* What Builder and Gather share: a handle of the C library that takes values, of one group. */
typedef struct core_taker {
    void *handle;    /* NULL: closed */
    PyObject *group; /* held as long as `handle` is there */
    core_values *values;
    pid_t owner;
    bool busy; /* a call runs without the GIL */
} core_taker;
/* Opens it: `open` runs without the GIL and sets `taker->handle`. False with an exception. */
bool core_taker_open(core_taker *taker, PyObject *group, const char *schema,
                     rks_status (*open)(rks_group *group, void *user, void **handle,
                                        rks_error *err),
                     void *user);
/* False with an exception if it is closed, of another process, or in use. */
bool core_taker_ready(const core_taker *taker, const char *name);
/* `close` runs without the GIL, and not in a fork. Twice is fine. */
void core_taker_close(core_taker *taker, void (*close)(void *handle));
/* One thread at a time. Waiting releases the GIL and looks for signals: -1 with an exception. */
int core_lock(PyThread_type_lock lock);
/* A sample's number below `count`; -1 with IndexError. */
int core_sample(PyObject *object, uint64_t count, uint64_t *sample);
/* A list of them (to be freed with PyMem_Free), from ints or an array of 32 or 64 bit integers. */
int core_samples(PyObject *samples, uint64_t count, uint64_t **ids, size_t *size);

/* ---- group.c, at_exit.c ---- */
/* A store that only serves other ranks. */
typedef struct core_parked {
    rks_store *store;
    struct core_parked *next;
} core_parked;
/* Takes both over: they end with the process, when its exit code is known. After the first group's silence
 * limit, without it: then the other ranks hear that this one has left. -1 where memory lacks. */
int core_close_at_exit(rks_group *group, core_parked *parked, uint32_t silence_ms);

/* ---- view.c ---- */
int core_add_view(PyObject *module);
/* An object that owns the index (or view) and gives it back; on failure, too. */
PyObject *core_index_new(rks_index *index);
PyObject *core_view_new(rks_view *view);
/* Dimensions of a column's values: 0 for scalars, str, bytes and json. */
uint8_t core_dim_count(const char *type);
/* (Buffer over the value, dims), or None where it is missing. */
PyObject *core_value(PyObject *owner, uint8_t dim_count, const rks_value *value, bool writable);
/* A list of these for all columns of a view. `dim_counts`: one a column. */
PyObject *core_view_values(PyObject *view, const uint8_t *dim_counts, uint32_t columns);

/* ---- store.c ---- */
bool core_is_store(PyObject *object);
/* The handle, which stays open until core_store_leave; NULL with an exception. */
rks_store *core_store_enter(PyObject *store);
void core_store_leave(PyObject *store);
/* The same for what is possible without the store, too: waits while it is being closed. 1: entered,
 * 0: closed, -1 with an exception. */
int core_store_try_enter(PyObject *store);
/* Of a Store, also one that is closed: what keeps its index (borrowed), and its columns. */
PyObject *core_store_index(PyObject *store);
uint32_t core_store_columns(PyObject *store);
uint64_t core_store_count(PyObject *store);
const uint8_t *core_store_dim_counts(PyObject *store);

/* An epoch in its store's list: the store closes those that are left. */
typedef struct core_epoch {
    rks_epoch *handle; /* NULL: closed, and in no list */
    struct core_epoch *next, **back;
} core_epoch;
void core_store_add_epoch(PyObject *store, core_epoch *epoch);
/* Closes it if it is open. No call of it may run. */
void core_store_close_epoch(PyObject *store, core_epoch *epoch);

/* ---- arenas.c ---- */
/* Borrowed; NULL with an exception. */
rks_arenas *core_arenas(PyObject *object);
/* Frees the buffers that the library is done with: wherever it may have become so. */
void core_free_arenas(void);

/* ---- mix.c ---- */
/* The option `mix` of a plan, and what it points to until core_mix_clear. */
typedef struct core_mix {
    rks_plan_mix options;
    const char **names;
    double *weights;
    uint64_t *bounds;
} core_mix;
/* From (names, weights or None, bounds or None, source_of or None, samples, tokens, counts or None,
 * odds or None); the last three arrays are bytes, which must outlive the plan. False with an
 * exception. */
bool core_mix_take(PyObject *given, core_mix *mix);
/* Weights alone, of a list. */
bool core_mix_weights(PyObject *list, core_mix *mix, size_t *count);
void core_mix_clear(core_mix *mix);
/* The sources in an epoch, as {name: {...}}. */
PyObject *core_mix_sources(rks_plan *plan, uint64_t epoch);

/* ---- store_samples.c: methods of Store ---- */
PyObject *core_store_owner(PyObject *object, PyObject *number);
PyObject *core_store_key(PyObject *object, PyObject *number);
PyObject *core_store_find(PyObject *object, PyObject *arguments);
PyObject *core_store_split(PyObject *object, PyObject *arguments);
PyObject *core_store_fetch(PyObject *object, PyObject *samples);
PyObject *core_store_collate(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_store_view(PyObject *object, PyObject *number);

/* ---- plan.c ---- */
/* The handle, for this thread alone until core_plan_leave; NULL with an exception. */
rks_plan *core_plan_enter(PyObject *plan);
void core_plan_leave(PyObject *plan);
uint32_t core_plan_world(PyObject *plan);
/* A bytes object of this size that is to be filled; NULL with an exception. */
PyObject *core_bytes(size_t size);

/* ---- plan_batches.c: methods of Plan ---- */
PyObject *core_plan_steps(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_batch(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_bins(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_batches(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_pieces(PyObject *object, PyObject *arguments, PyObject *keywords);

#endif
