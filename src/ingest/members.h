/* SPDX-License-Identifier: Apache-2.0
 *
 * members.h: the members of an archive as samples, as WebDataset has them.
 *
 * Sample   Members that follow each other and have the same path up to the first dot of its last
 *          part: "a/b.seg.png" is column "seg.png" (in lower case) of sample "a/b". Folders are
 *          passed over.
 * Columns  "__key__" (str), and one for each ending, by what is behind its last dot: json as in
 *          JSON lines (a text stays json), txt and text str, cls and cls2 int64, npy the array, all
 *          else bytes. A column's type decides where a schema is given, and its columns are also
 *          found by the endings that an export gives them (member_ending.h).
 * Key      The sample's name; or what is in its member "__key__.txt" or "__key__.bin".
 * Refused  Links, devices, FIFOs and sockets, what is encrypted, names that are absolute, go up by
 *          "..", are not UTF-8 or have no ending, a column twice, a sample above max_sample: by the
 *          member's name, as a malformed sample. An archive that is damaged, or holds more than
 *          max_total, ends the build. Nothing is ever written under a member's name. */
#ifndef RKS_INGEST_MEMBERS_H
#define RKS_INGEST_MEMBERS_H

#include "codec/archive.h"
#include "codec/member_ending.h"
#include "ingest/format.h"

/* A walk over the members of one file that begin in [offset, stop); the rest is for its callers to
 * see, not to set. */
typedef struct rks_members {
    const rks_input_file *file;
    rks_archive *archive;
    uint64_t stop;  /* UINT64_MAX: all */
    uint64_t total; /* bytes that the members seen so far say they hold */
    rks_member member;
    size_t base;   /* bytes of the name that are the sample's */
    bool end;      /* instead of a member */
    bool first;    /* of its sample */
    char *current; /* the sample's name; valid until the next one begins */
    size_t current_size;
    size_t current_room;
} rks_members;

/* Those of the unit, of a tar or a zip as the input's format says. `members` needs no preparation,
 * and is closed in every case. */
rks_status rks_members_open(rks_members *members, const rks_input *input,
                            const rks_input_unit *unit, rks_error *err);
rks_status rks_members_next(rks_members *members, rks_error *err);
void rks_members_close(rks_members *members);

/* The operations of a format of archives. */
rks_status rks_members_count(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);
rks_status rks_members_infer(const rks_input *input, size_t unit, char **schema_text,
                             rks_error *err);
rks_status rks_members_read(rks_job *job, rks_error *err);

/* RKS_ERR_DATA: the member is refused whatever it holds, and why. */
rks_status rks_member_check(const rks_member *member, rks_error *err);
/* What the column of the member's name is ("seg.png"), in lower case; valid until the next call.
 * RKS_ERR_DATA: the member is refused, and why. */
rks_status rks_member_column(const rks_members *members, char column[256], rks_error *err);
/* All of the member's bytes behind what is in `data`; RKS_ERR_DATA with *refused set: above
 * max_sample, and not read. */
rks_status rks_member_load(rks_members *members, uint64_t max_sample, rks_buffer *data,
                           bool *refused, rks_error *err);
#endif
