/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/input.h: what an input of a build is: units, and the rows of each. Part of rankstore.h.
 *
 *   scan ──► units ──► dealt to the ranks ──► read, a unit at a time ──► rows ──► sink
 *
 * An input is a table of functions and an object of the caller's. rks_build_input() builds a
 * dataset of it, and rks_build() of files and folders. An input that wraps another one
 * reads the inner input into a sink of its own, and passes on what it makes of each row. */
#ifndef RANKSTORE_INPUT_H
#define RANKSTORE_INPUT_H

#include "rankstore/schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct rks_input_row {
    size_t struct_size;
    const rks_value *values; /* one a column of the sink's schema */
    const void *key;         /* given if and only if rks_build_options.own_keys is set */
    size_t key_size;
    uint64_t length; /* used if and only if rks_build_options.own_lengths is set */
    uint64_t number; /* of files: the row's number in its file, from 0. A build does not use it */
} rks_input_row;

/* Receives the rows of a unit. The library makes the one that `read` gets; a wrapping input fills
 * its own. Calls come from the thread that runs `read`. */
typedef struct rks_sink {
    size_t struct_size;
    const rks_schema *schema; /* the columns of rows */
    bool drops;               /* rows are dropped, so the input need not make them: another rank's
                               * unit of RKS_STREAM_SAME */
    /* Takes a row; the row and what it points to are needed during the call only. Of a build:
     * options about lengths, keys, `where` and `sample_rate` apply. A row that is refused (wrong
     * type, key empty or above 511 bytes, sample above max_sample) is RKS_ERR_DATA and was not
     * added; the next one may follow. */
    rks_status (*row)(struct rks_sink *sink, const rks_input_row *row, rks_error *err);
    /* Counts rows that the input dropped, as `filtered` or as `bad`. The unit stores the counts, so
     * reports have them also if a later build resumes it. Rows of derived keys do not count them.
     * `lines` names bad ones, a line each; may be NULL. */
    rks_status (*left_out)(struct rks_sink *sink, uint64_t filtered, uint64_t bad,
                           const char *lines, rks_error *err);
    void *user; /* of the sink's maker */
} rks_sink;

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Not a stream (the default): one call of `scan` adds all units, the same ones on each rank. A
 * stream's units are found while it is read: each call of `scan` adds the next one, and none at the
 * end. */
typedef enum rks_stream_kind {
    RKS_STREAM_NONE,
    RKS_STREAM_OWN,  /* each rank has its own units. Samples are numbered by turns of units */
    RKS_STREAM_SAME, /* all ranks have the same units, and take turns */
} rks_stream_kind;

/* What `scan` fills. */
typedef struct rks_scan {
    size_t struct_size;
    /* Adds a unit. `name` is unique in the dataset; derived keys are "name:row". `weight` is its
     * share of the work, such as its bytes: units are dealt to the ranks by it. */
    rks_status (*unit)(struct rks_scan *scan, const char *name, uint64_t weight, rks_error *err);
    const char *base;    /* id of the dataset that is appended to, 32 digits; NULL: none */
    uint64_t generation; /* that this build makes, from 1 */
    /* Set by the input. */
    rks_stream_kind stream;
    /* Of RKS_STREAM_OWN, at the end: what distinguishes this rank's rows, at most 128 bytes. Equal
     * on two ranks is RKS_ERR_ARGUMENT, since each sample would be there twice. NULL: not compared.
     * Borrowed until `close`. */
    const char *identity;
} rks_scan;

typedef struct rks_input_ops {
    size_t struct_size;
    /* Called on every rank once its directory is locked, before the first unit is read. */
    rks_status (*scan)(void *input, rks_scan *scan, rks_error *err);
    /* Reads a unit, counted from 0 in the order of `scan`: passes each row to the sink. An error,
     * its own or the sink's, ends the build on all ranks. A rank reads its units in ascending
     * order, in the thread that called rks_build_input. A resumed build does not read the units
     * that it finds finished. A stream is read to its end: units that are finished
     * are compared with what it has now, by counts and digest; if they differ, RKS_ERR_DATA with
     * cause ESTALE, and what is left of the interrupted build is removed. */
    rks_status (*read)(void *input, uint64_t unit, rks_sink *sink, rks_error *err);
    /* Called once at the end of rks_build_input, also after an error. NULL: nothing to do. */
    void (*close)(void *input);
} rks_input_ops;

#ifdef __cplusplus
}
#endif

#endif
