/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: the shards that a build writes, from what an interrupted one left to the commit.
 *
 * A part is a shard named part-BUILD-RANDOM. The lowest rank that sees parts of this build in its
 * directory takes them over; all ranks agree on their finished units, which are not built again. A
 * dataset.json makes the sealed parts a dataset; without it they are only parts. */
#ifndef RKS_BUILDER_PARTS_H
#define RKS_BUILDER_PARTS_H

#include "builder/build.h"
#include "builder/send_ahead.h"
#include "dataset/key_description.h"
#include "group/group.h"
#include "shard/shard_writer.h"

typedef struct rks_parts rks_parts;

typedef struct rks_parts_options {
    rks_shard_options shard;   /* with build_id; its pointers must live as long as the parts */
    bool replace;              /* the commit replaces a finished dataset */
    bool append;               /* or adds these samples to it, as its next generation */
    bool no_lock;              /* as rks_build_options.no_lock */
    bool no_index;             /* write no index files: the dataset will soon be removed */
    bool wait, keep, repair;   /* as in rks_build_options */
    const char *build_options; /* JSON text for dataset.json */
    const char *made_from;     /* as rks_build_options.made_from; "" means none, too */
    const char *const *shards; /* as in rks_build_options */
    size_t shard_count;
    rks_selection selection;
    rks_send_ahead
        *ahead; /* takes the parts that are full, and sends them home; NULL: nobody does */
} rks_parts_options;

/* COLLECTIVE. Locks the directory and takes over parts. RKS_ERR_ARGUMENT if a finished dataset
 * exists and `replace` is not set. *own and *err: this rank's result so far; the other arguments
 * are used only if *own is RKS_OK. The status returned is the same on all ranks. If it is RKS_OK,
 * *own is this rank's for the next agreement: an error if there are parts and this rank lacked
 * memory for what all of them hold. Makes two agreements; one more if there are parts or a dataset
 * is kept, two if shards of it are lost, and two if a directory lacks the dataset that is kept or
 * appended to. */
rks_status rks_parts_open(rks_group *group, const char *directory, rks_status *own,
                          const rks_parts_options *options, rks_parts **parts, rks_error *err);
/* COLLECTIVE. Makes an agreement on *own of rks_parts_open, for a caller without one; none if it is
 * RKS_OK on all ranks because there are no parts. */
rks_status rks_parts_settle(rks_parts *parts, rks_status own, rks_error *err);
/* With `keep`, or if its commit was interrupted: returns the finished dataset if it is this very
 * build's, so that nothing is to be built; else NULL. It lives as long as the parts. */
const rks_dataset *rks_parts_kept(const rks_parts *parts);
/* Returns this build's dataset if shards of it are lost, which the caller builds again
 * (rks_parts_is_lost); else NULL. All its other units are finished. It lives as long as the
 * parts. */
const rks_dataset *rks_parts_repaired(const rks_parts *parts);
/* Returns true if this build makes shard `shard` of that dataset again. */
bool rks_parts_is_lost(const rks_parts *parts, size_t shard);
/* Returns how many bytes of its samples lie in a rank's directory. */
uint64_t rks_parts_held(const rks_parts *parts, uint32_t rank);
/* Seals what was written, and begins a part that takes the place of this lost shard: it gets its
 * id, so its units must be written in the order of the lost one. SIZE_MAX: a part with an id of its
 * own, for any units of lost shards. */
rks_status rks_parts_begin_lost(rks_parts *parts, size_t shard, rks_error *err);
/* Lists the units of the dataset that is kept as finished ones, to compare an input with them. */
rks_status rks_parts_list_kept(rks_parts *parts, rks_error *err);
/* Returns what is appended to, or NULL; the same on all ranks. It lives as long as the parts. */
const rks_dataset *rks_parts_base(const rks_parts *parts);
/* Closes them. What is not committed stays for a resume. NULL is allowed. */
void rks_parts_close(rks_parts *parts);

/* Returns the unit's summary if some rank's part holds it already, else NULL. */
const rks_unit_summary *rks_parts_finished(const rks_parts *parts, uint64_t unit);

/* Returns the highest number of a finished unit; 0 if there is none. */
uint64_t rks_parts_finished_last(const rks_parts *parts);
/* Removes what this build and interrupted ones before it left in the directory. After that only
 * close the parts. */
void rks_parts_discard(rks_parts *parts);

/* Returns this rank's writer, and opens it in the first call. */
rks_status rks_parts_writer(rks_parts *parts, rks_shard_writer **writer, rks_error *err);

/* Returns the bytes of samples in this rank's part that is not sealed yet. */
uint64_t rks_parts_unsealed_bytes(const rks_parts *parts);
/* Seals it if they are `max_shard` or more; 0: no limit. */
rks_status rks_parts_seal_full(rks_parts *parts, uint64_t max_shard, rks_error *err);
/* Seals what this rank has written, after its last sample. */
rks_status rks_parts_seal(rks_parts *parts, rks_error *err);
/* COLLECTIVE. Finds duplicate keys, and writes dataset.json. `status` and *err: the result of this
 * rank's samples and of rks_parts_seal. `bad`: lines about rows that this rank skipped. Fills the
 * report except seconds, input_bytes and collectives. */
rks_status rks_parts_commit(rks_parts *parts, rks_status status, const rks_buffer *bad,
                            rks_build_report *report, rks_error *err);
/* Ends a commit that needs no other run: the same build, called again, finds a finished dataset.
 * Until then it completes the commit and keeps the dataset (commit_mark.h). */
void rks_parts_end_commit(const rks_parts *parts);

/* Fills the report from a dataset, except seconds, input_bytes and collectives. */
void rks_parts_report(const rks_parts *parts, const rks_dataset *dataset, rks_build_report *report);

/* Keeps the schema that the user should pass in the directory, as schema-RANK.txt, until the next
 * commit. Returns its path (free with rks_free), or NULL. */
char *rks_parts_keep_schema(rks_parts *parts, const char *schema);

void rks_parts_describe_keys(rks_parts *parts, const rks_key_words *words); /* copied */

#endif
