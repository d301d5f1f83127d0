/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/reader.h: samples of an input, read without building. Part of rankstore.h. */
#ifndef RANKSTORE_READER_H
#define RANKSTORE_READER_H

#include "rankstore/build.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For callers that make samples of their own of what an input holds, and give them to a builder.
 * The input is found, cut and read as rks_build does it. */
typedef struct rks_reader rks_reader;

typedef struct rks_read_report {
    size_t struct_size;
    uint64_t filtered;   /* rows dropped by where, filter, length or sample_rate */
    uint64_t bad;        /* rows that skip_bad passed over */
    char bad_first[512]; /* the first of them, a whole line each */
} rks_read_report;

/* COLLECTIVE. Looks at the input and agrees a schema, as rks_build; what options say of the target
 * (replace, append, dedup, sample, index) is not used. The strings and callbacks of `options` must
 * outlive the reader, which the caller owns. The group is not needed later. Errors as of
 * rks_build. */
RKS_API rks_status rks_reader_open(rks_group *group, const char *const *sources,
                                   size_t source_count, const rks_build_options *options,
                                   rks_reader **reader, rks_error *err);
RKS_API const rks_schema *rks_reader_schema(const rks_reader *reader); /* valid as the reader */
RKS_API uint64_t rks_reader_units(const rks_reader *reader);
RKS_API uint64_t rks_reader_unit_size(const rks_reader *reader); /* bytes of input */
/* The unit's first file, as keys name it (valid as the reader), and its bytes. RKS_ERR_ARGUMENT for
 * a unit that is not there. */
RKS_API rks_status rks_reader_unit(const rks_reader *reader, uint64_t unit, const char **name,
                                   uint64_t *bytes, rks_error *err);
/* Not collective: each sample of a unit, in order. One thread at a time. *report may be NULL. */
RKS_API rks_status rks_reader_read(rks_reader *reader, uint64_t unit, rks_read_fn take, void *user,
                                   rks_read_report *report, rks_error *err);
RKS_API void rks_reader_close(rks_reader *reader); /* NULL is accepted */

/* The format that rks_build would read the sources as, "jsonl" for one. *format is static. */
RKS_API rks_status rks_source_format(const char *const *sources, size_t source_count,
                                     const rks_build_options *options, const char **format,
                                     rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
