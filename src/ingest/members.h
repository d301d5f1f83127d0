/* SPDX-License-Identifier: Apache-2.0
 *
 * members.h: the members of an archive as samples, as in WebDataset.
 *
 * Sample   Consecutive members with the same path up to the first dot of its last part:
 * "a/b.seg.png"
 *          is column "seg.png" (in lower case) of sample "a/b". Folders are skipped.
 * Columns  "__key__" (str), and one for each ending. The part after the last dot gives the type:
 * json
 *          as in JSON lines (text stays json), txt and text are str, cls and cls2 int64, npy the
 *          array, all others bytes. If there is a schema, it decides the types, and its columns are
 *          also found by the endings that an export gives them (codec/member_suffix.h).
 * Key      The sample's name, or the contents of its member "__key__.txt" or "__key__.bin".
 * Refused  Links, devices, FIFOs and sockets; encrypted members; names that are absolute, go up by
 *          "..", are not UTF-8 or have no ending; a column twice; a sample above max_sample. The
 *          error names the member, and the sample counts as malformed. A damaged archive, or one
 *          that holds more than max_total, ends the build. No file is ever written under a member's
 *          name. */
#ifndef RKS_INGEST_MEMBERS_H
#define RKS_INGEST_MEMBERS_H

#include "codec/archive.h"
#include "codec/member_suffix.h"
#include "ingest/format.h"

/* A walk over the members of one file that start in [offset, stop). Callers may read the other
 * fields but not set them. */
typedef struct rks_members {
    const rks_input_file *file;
    rks_archive *archive;
    uint64_t stop;  /* UINT64_MAX for all members */
    uint64_t macos; /* members that only macOS reads, which were skipped so far */
    uint64_t total; /* total size of the members so far, as their headers say */
    rks_member member;
    size_t base;   /* bytes of the name that are the sample's name */
    bool end;      /* there are no more members */
    bool first;    /* the member is the first of its sample */
    char *current; /* the sample's name; valid until the next sample starts */
    size_t current_size;
    size_t current_room;
} rks_members;

/* Opens the unit's members, of a tar or zip as the input's format says. `members` needs no
 * preparation; close it also on failure. */
rks_status rks_members_open(rks_members *members, const rks_input *input,
                            const rks_input_unit *unit, rks_error *err);
rks_status rks_members_next(rks_members *members, rks_error *err);
void rks_members_close(rks_members *members);

/* The operations of an archive format. */
rks_status rks_members_count(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);
rks_status rks_members_infer(const rks_input *input, size_t unit, char **schema_text,
                             rks_error *err);
rks_status rks_members_read(rks_job *job, rks_error *err);

/* Returns RKS_ERR_DATA if the member is refused whatever it holds, and says why. */
rks_status rks_member_check(const rks_member *member, rks_error *err);
/* Gets the column in the member's name ("seg.png"), in lower case. RKS_ERR_DATA if the member is
 * refused, and why. */
rks_status rks_member_column(const rks_members *members, char column[256], rks_error *err);
/* Appends all bytes of the member to `data`. If the sample is above max_sample, sets *refused and
 * returns RKS_ERR_DATA. */
rks_status rks_member_load(rks_members *members, uint64_t max_sample, rks_buffer *data,
                           bool *refused, rks_error *err);
#endif
