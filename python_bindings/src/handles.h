/* SPDX-License-Identifier: Apache-2.0
 *
 * handles.h: what the objects of an open store share: who may use a handle, and which object keeps
 * which alive.
 *
 *   Epoch ──► Plan ──► index ◄── Buffer of lengths or a column
 *     └─────► Store ───┘
 *               ▲
 *   Samples ────┘          view ◄── Buffer of a value        Arrays ◄── Buffer of an array
 *
 * Process  A handle belongs to the process that opened it. In a forked child, using it raises
 *          StateError, and closing or freeing it leaves the C object as it is: the child has
 *          neither its threads nor its locks, and its connections are the parent's. */
#ifndef RANKSTORE_PYTHON_HANDLES_H
#define RANKSTORE_PYTHON_HANDLES_H

#include <stdatomic.h>
#include <sys/types.h>

#include "core.h"

/* ---- guard.c ---- */
/* Returns true if another process opened the handle. */
bool core_is_foreign(pid_t pid);
/* Returns -1 with StateError if so. */
int core_check_process(pid_t pid, const char *name);
/* Checks that a handle is open (not NULL) and this process's; else returns -1 with an exception. */
int core_check_usable(const void *handle, pid_t pid, const char *name);
/* For handles that one call may use at a time: *busy is true while it does. core_claim returns -1
 * with RuntimeError if another thread's call has it, or this one runs in a callback of that call;
 * core_unclaim gives it back. */
int core_claim(atomic_bool *busy, const char *name);
void core_unclaim(atomic_bool *busy);
/* Takes a lock. Waiting releases the GIL and checks for signals: returns -1 with an exception. */
int core_lock(PyThread_type_lock lock);
/* Reads a sample's number, which must be below `count`; returns -1 with IndexError. */
int core_sample(PyObject *object, uint64_t count, uint64_t *sample);
/* Reads a list of samples' numbers (free with PyMem_Free) from ints or an array of 32 or 64 bit
 * integers. */
int core_samples(PyObject *samples, uint64_t count, uint64_t **ids, size_t *size);

/* ---- group.c, at_exit.c ---- */
/* A store that only serves other ranks. */
typedef struct core_parked {
    rks_store *store;
    struct core_parked *next;
} core_parked;
/* Takes both over and closes them at the end of the process, when its exit code is known. Without
 * an exit code after the first group's silence limit, tells the other ranks that this one has left.
 * Returns -1 if memory is short. */
int core_close_at_exit(rks_group *group, core_parked *parked, uint32_t silence_ms);

/* ---- group_calls.c: methods of Group ---- */
PyObject *core_group_agree(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_group_allgather(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_group_stop(PyObject *object, PyObject *unused);
PyObject *core_group_announce(PyObject *object, PyObject *arguments);
PyObject *core_group_must_stop(PyObject *object, PyObject *unused);
PyObject *core_group_reading(PyObject *object, PyObject *arguments);
PyObject *core_group_reading_ends(PyObject *object, PyObject *arguments);
PyObject *core_group_change_begins(PyObject *object, PyObject *arguments);
PyObject *core_group_change_ends(PyObject *object, PyObject *arguments);

/* ---- view.c ---- */
int core_add_view(PyObject *module);
/* Make an object that owns the index (or view) and frees it; even on failure. */
PyObject *core_index_new(rks_index *index);
PyObject *core_view_new(rks_view *view);
/* Returns the number of dimensions of a column's values: 0 for scalars, str, bytes and json. */
uint8_t core_dim_count(const char *type);
/* Returns (Buffer over the value, dims), or None if it is missing. */
PyObject *core_value(PyObject *owner, uint8_t dim_count, const rks_value *value, bool writable);
/* Returns a list of these for all columns of a view. `dim_counts` has one entry a column. */
PyObject *core_view_values(PyObject *view, const uint8_t *dim_counts, uint32_t columns);

/* ---- store.c ---- */
bool core_is_store(PyObject *object);
/* Returns the handle, which stays open until core_store_leave; NULL with an exception. */
rks_store *core_store_enter(PyObject *store);
void core_store_leave(PyObject *store);
/* Like core_store_enter, for operations that also work without the store; waits while it is being
 * closed. Returns 1 if entered, 0 if closed, -1 with an exception. */
int core_store_try_enter(PyObject *store);
/* These also work on a closed Store: the object that keeps its index (borrowed), and its
 * columns. */
PyObject *core_store_index(PyObject *store);
uint32_t core_store_columns(PyObject *store);
uint64_t core_store_count(PyObject *store);
const uint8_t *core_store_dim_counts(PyObject *store);

/* An epoch in its store's list; the store closes those that are left. */
typedef struct core_epoch {
    rks_epoch *handle; /* NULL if closed and in no list */
    struct core_epoch *next, **back;
} core_epoch;
void core_store_add_epoch(PyObject *store, core_epoch *epoch);
/* Closes the epoch if it is open. None of its calls may be running. */
void core_store_close_epoch(PyObject *store, core_epoch *epoch);

/* ---- arenas.c ---- */
/* Returns the handle, borrowed; NULL with an exception. */
rks_arenas *core_arenas(PyObject *object);
/* Frees the buffers that the library no longer uses; call it wherever that may have happened. */
void core_free_arenas(void);

/* ---- mix.c ---- */
/* The option `mix` of a plan, and what it points to until core_mix_clear. */
typedef struct core_mix {
    rks_plan_mix options;
    const char **names;
    double *weights;
    uint64_t *bounds;
} core_mix;
/* Reads (names, weights or None, bounds or None, source_of or None, samples, tokens, counts or
 * None, odds or None); the last three arrays are bytes, which must outlive the plan. Returns false
 * with an exception. */
bool core_mix_take(PyObject *given, core_mix *mix);
/* Reads weights alone, from a list. */
bool core_mix_weights(PyObject *list, core_mix *mix, size_t *count);
void core_mix_clear(core_mix *mix);
/* Returns the sources of an epoch, as {name: {...}}. */
PyObject *core_mix_sources(rks_plan *plan, uint64_t epoch);

/* ---- store_facts.c: methods of Store ---- */
PyObject *core_store_lengths(PyObject *object, PyObject *unused);
PyObject *core_store_column(PyObject *object, PyObject *name);
PyObject *core_store_units(PyObject *object, PyObject *unused);
PyObject *core_store_sources(PyObject *object, PyObject *unused);
PyObject *core_store_counted(PyObject *object, PyObject *unused);
PyObject *core_store_info(PyObject *object, PyObject *unused);
PyObject *core_store_placement(PyObject *object, PyObject *unused);
PyObject *core_store_stats(PyObject *object, PyObject *unused);
PyObject *core_store_earlier(PyObject *object, PyObject *unused);

/* ---- store_samples.c: methods of Store ---- */
PyObject *core_store_owner(PyObject *object, PyObject *number);
PyObject *core_store_key(PyObject *object, PyObject *number);
PyObject *core_store_find(PyObject *object, PyObject *arguments);
PyObject *core_store_split(PyObject *object, PyObject *arguments);
PyObject *core_store_fetch(PyObject *object, PyObject *samples);
PyObject *core_store_collate(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_store_view(PyObject *object, PyObject *number);

/* ---- plan.c ---- */
/* Returns the handle, for this thread alone until core_plan_leave; NULL with an exception. */
rks_plan *core_plan_enter(PyObject *plan);
/* The same for a method with the argument `epoch`, default 0; `format` is "|O:" and its name. */
rks_plan *core_plan_enter_epoch(PyObject *plan, PyObject *arguments, PyObject *keywords,
                                const char *format, uint64_t *epoch);
void core_plan_leave(PyObject *plan);
uint32_t core_plan_world(PyObject *plan);
/* Returns a bytes object of this size, to be filled; NULL with an exception. */
PyObject *core_bytes(size_t size);

/* ---- plan_options.c ---- */
/* Arguments of Plan that are not numbers or names; borrowed. */
typedef struct core_plan_arguments {
    PyObject *source, *mix, *balance, *skip, *absent;
    const char *dataset;
} core_plan_arguments;
/* Reads the options over the defaults in *options; texts point into the arguments. Returns false
 * with an exception. */
bool core_plan_take_options(PyObject *arguments, PyObject *keywords, core_plan_arguments *given,
                            rks_plan_options *options);
/* Reads ranges of steps into the options; the caller frees them. Returns -1 with an exception. */
int core_plan_take_skip(PyObject *skip, rks_plan_options *options);
/* A function of the module: the limits of a plan with these options. */
PyObject *core_plan_limits(PyObject *self, PyObject *arguments, PyObject *keywords);

/* ---- plan_batches.c: methods of Plan ---- */
PyObject *core_plan_steps(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_batch(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_bins(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_batches(PyObject *object, PyObject *arguments, PyObject *keywords);
PyObject *core_plan_pieces(PyObject *object, PyObject *arguments, PyObject *keywords);

#endif
