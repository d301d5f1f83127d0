/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/reader.h: samples of an input, read without building. Part of rankstore.h. */
#ifndef RANKSTORE_READER_H
#define RANKSTORE_READER_H

#include "rankstore/build.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A reader gives the samples of an input to callers that make their own samples of them, for a
 * builder. It finds, divides and reads the input as rks_build does. */
typedef struct rks_reader rks_reader;

typedef struct rks_read_report {
    size_t struct_size;
    uint64_t filtered;   /* rows dropped by where, filter, length or sample_rate */
    uint64_t bad;        /* rows that skip_bad skipped */
    char bad_first[512]; /* the first of them, a whole line each */
} rks_read_report;

/* COLLECTIVE. Looks at the input and agrees on a schema, like rks_build. Options about the target
 * (replace, append, dedup, sample, index) are not used. The strings and callbacks of `options` must
 * outlive the reader. The group is not needed later. Errors are those of rks_build. The caller owns
 * *reader. */
RKS_API rks_status rks_reader_open(rks_group *group, const char *const *sources,
                                   size_t source_count, const rks_build_options *options,
                                   rks_reader **reader, rks_error *err);
RKS_API const rks_schema *rks_reader_schema(const rks_reader *reader); /* valid as the reader */
RKS_API uint64_t rks_reader_units(const rks_reader *reader);
RKS_API uint64_t rks_reader_unit_size(const rks_reader *reader); /* bytes of input */
/* Returns the unit's first file, as keys name it (valid as long as the reader), and the unit's
 * bytes. RKS_ERR_ARGUMENT if there is no such unit. */
RKS_API rks_status rks_reader_unit(const rks_reader *reader, uint64_t unit, const char **name,
                                   uint64_t *bytes, rks_error *err);
/* Calls `take` for each sample of a unit, in order. One thread at a time. `report` may be NULL. Not
 * collective. */
RKS_API rks_status rks_reader_read(rks_reader *reader, uint64_t unit, rks_read_fn take, void *user,
                                   rks_read_report *report, rks_error *err);
RKS_API void rks_reader_close(rks_reader *reader); /* NULL is accepted */

/* Returns the format that rks_build would read the sources as, such as "jsonl". *format is static.
 */
RKS_API rks_status rks_source_format(const char *const *sources, size_t source_count,
                                     const rks_build_options *options, const char **format,
                                     rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
