/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs.h: one build from files by ranks that are threads: what it is asked for, what must become of
 * it, and what did. */
#ifndef RKS_TESTS_BUILDER_JOBS_H
#define RKS_TESTS_BUILDER_JOBS_H

#include "unit/store/files.h"

typedef struct job {
    rks_build_options options;
    rks_status expected;
    rks_build_report report; /* rank 0's */
    rks_error errors[4];     /* by rank */
    void (*look)(member *m, rks_store *store);
} job;

/* A member's part; then it looks at the store, where there is a `look`. */
static inline void build_files(member *m, const char *const *sources, size_t count,
                               const char *target)
{
    job *j = m->user;
    rks_store *store = NULL;
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    rks_status status = rks_build(m->group, sources, count, target, &j->options, &report, &m->err);
    if (status != j->expected)
        fprintf(stderr, "rank %u: %s\n", m->rank, m->err.text);
    EXPECT(status == j->expected);
    j->errors[m->rank] = m->err;
    if (m->rank == 0)
        j->report = report;
    if (status == RKS_OK && j->look != NULL) {
        EXPECT_OK(rks_store_open(m->group, target, NULL, &store, &m->err));
        if (store != NULL)
            j->look(m, store);
        rks_store_close(store, CLOSE_MS);
    }
}

#endif
