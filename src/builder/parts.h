/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: the shards that a build writes, from what an interrupted one left to the commit.
 *
 * A part is a shard named part-BUILD-RANDOM. Parts of this build that lie in the directory are
 * taken over by the lowest rank that sees them; their finished units are agreed and not built
 * again. A dataset.json makes the sealed parts a dataset; without it they are only parts. */
#ifndef RKS_BUILDER_PARTS_H
#define RKS_BUILDER_PARTS_H

#include "builder/build.h"
#include "group/group.h"
#include "shard/shard_writer.h"

typedef struct rks_parts rks_parts;

typedef struct rks_parts_options {
    rks_shard_options shard;   /* build_id included; copied by reference: must outlive the parts */
    bool replace;              /* a finished dataset is replaced at the commit */
    bool append;               /* or gets these samples as its next generation */
    bool no_lock;              /* as rks_build_options.no_lock */
    bool wait, keep;           /* as rks_build_options.wait and .keep */
    const char *build_options; /* JSON text for dataset.json */
    const char *made_from;     /* as rks_build_options.made_from; "" is none, too */
    rks_selection selection;
} rks_parts_options;

/* COLLECTIVE. Locks the directory, takes over parts. RKS_ERR_ARGUMENT if a finished dataset is
 * there and `replace` is not set. *own and *err are what became of this rank so far; the other
 * arguments are not looked at unless *own is RKS_OK. The status returned is the same on all ranks. If
 * it is RKS_OK, *own is this rank's for the next agreement: it is not RKS_OK if there are parts and
 * this rank lacked memory for what all of them hold. Two agreements; one more if there are parts, and
 * two for an append if a directory lacks the dataset. */
rks_status rks_parts_open(rks_group *group, const char *directory, rks_status *own,
                          const rks_parts_options *options, rks_parts **parts, rks_error *err);
/* COLLECTIVE. One agreement on *own of rks_parts_open, for a caller with none of its own; none if it is
 * RKS_OK on all ranks because there are no parts. */
rks_status rks_parts_settle(rks_parts *parts, rks_status own, rks_error *err);
/* With `keep`: the finished dataset that is this very build's, so that nothing is left to do; else
 * NULL. It lives as long as the parts. */
const rks_dataset *rks_parts_kept(const rks_parts *parts);
/* What is appended to, or NULL; the same on all ranks. It lives as long as the parts. */
const rks_dataset *rks_parts_base(const rks_parts *parts);
/* NULL is accepted. What is not committed stays for a resume. */
void rks_parts_close(rks_parts *parts);

/* The unit's summary if some rank's part holds it already, else NULL. */
const rks_unit_summary *rks_parts_finished(const rks_parts *parts, uint64_t unit);
/* How many units were taken over. */
size_t rks_parts_finished_count(const rks_parts *parts);

/* This rank's writer; opened at the first call. */
rks_status rks_parts_writer(rks_parts *parts, rks_shard_writer **writer, rks_error *err);

/* Seals what this rank has written, once its last sample is. */
rks_status rks_parts_seal(rks_parts *parts, rks_error *err);
/* COLLECTIVE. `status` and *err are what became of this rank's samples and of rks_parts_seal. Looks for
 * duplicate keys, and writes dataset.json. `bad`: lines about rows that this rank skipped. Fills the
 * report's figures but for seconds, input_bytes and collectives. */
rks_status rks_parts_commit(rks_parts *parts, rks_status status, const rks_buffer *bad,
                            rks_build_report *report, rks_error *err);

/* A dataset's figures into the report, but for seconds, input_bytes and collectives. */
void rks_parts_report(const rks_parts *parts, const rks_dataset *dataset, rks_build_report *report);

/* Keeps the schema that a build should be given in the directory, as schema-RANK.txt, until the next
 * commit. Its path (rks_free), or NULL. */
char *rks_parts_keep_schema(rks_parts *parts, const char *schema);

void rks_parts_describe_keys(rks_parts *parts, const rks_key_words *words); /* copied */

#endif
