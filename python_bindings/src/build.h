/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: what build, build_input and the operations on whole datasets share: options, callbacks,
 * the report. */
#ifndef RANKSTORE_PYTHON_BUILD_H
#define RANKSTORE_PYTHON_BUILD_H

#include "core.h"

typedef struct core_callbacks {
    PyObject *filter, *length_fn, *progress; /* NULL if not given */
    core_values *columns; /* columns that callbacks see; made with the first sample */
} core_callbacks;

/* Options as Python objects; NULL if not given. */
typedef struct core_build_given {
    PyObject *length_unit, *index, *filter, *length_fn, *max_sample, *max_total, *unit_size,
        *input_bytes, *block_size, *max_shard, *progress, *threads, *shards, *counts;
    PyObject *min_length, *max_length, *sample, *seed;
    int skip_bad, unchecked, own_keys, own_lengths, replace, dedup, append, no_lock, flatten, wait,
        keep;
    core_texts names, folders, rules; /* of index, of shards, of counts */
} core_build_given;

/* Reads the options. Returns false with an exception; free `from` in either case. The
 * options point into `from` and `calls`. */
bool core_build_options(core_build_given *from, core_callbacks *calls, rks_build_options *options);
void core_build_given_free(core_build_given *from);
/* Returns {column: (bytes, dims, type), or None} for a sample; makes *columns with the first
 * sample. */
PyObject *core_sample_dict(core_values **columns, const rks_sample *sample);
/* An rks_progress_fn for a core_callbacks with `progress`. An exception stays set and ends the
 * library's call as a signal does. */
void core_call_progress(void *user, const char *phase, uint64_t done, uint64_t total,
                        uint64_t samples);
PyObject *core_build_report(const rks_build_report *report);

#endif
