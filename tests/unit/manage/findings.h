/* SPDX-License-Identifier: Apache-2.0
 *
 * findings.h: what a verification of a dataset in shards_here finds. */
#ifndef RKS_TESTS_FINDINGS_H
#define RKS_TESTS_FINDINGS_H

#include <stdlib.h>

#include "rankstore/verify.h"
#include "support/check.h"
#include "support/shards.h"

static rks_error err;

/* What one verify said; the first findings in full. */
enum { KEPT = 64 };
typedef struct kept_finding {
    char file[64]; /* without the directory */
    uint64_t offset;
    char key[64];
    size_t key_size;
    char what[256];
    bool leftover;
} kept_finding;
static kept_finding kept[KEPT];
static uint64_t kept_count;
static uint64_t samples;

static inline void keep(void *user, const rks_finding *finding)
{
    (void)user;
    assert_non_null(finding->file);
    assert_true(finding->what[0] != '\0');
    assert_true(finding->offset != UINT64_MAX); /* an unknown one is 0 */
    if (kept_count < KEPT) {
        kept_finding *to = &kept[kept_count];
        const char *slash = strrchr(finding->file, '/');
        snprintf(to->file, sizeof(to->file), "%s", slash == NULL ? finding->file : slash + 1);
        snprintf(to->what, sizeof(to->what), "%s", finding->what);
        to->offset = finding->offset;
        to->leftover = finding->leftover;
        to->key_size = finding->key_size < sizeof(to->key) ? finding->key_size : sizeof(to->key);
        if (to->key_size > 0)
            memcpy(to->key, finding->key, to->key_size);
    }
    kept_count++;
}

static inline uint64_t verify(const char *path, rks_verify_level level)
{
    uint64_t findings = 0;
    kept_count = 0;
    assert_ok(rks_verify(path, level, keep, NULL, &samples, &findings, &err), &err);
    assert_int_equal(findings, kept_count);
    return findings;
}

static inline bool kept_has(const char *file, const char *what)
{
    for (uint64_t i = 0; i < kept_count && i < KEPT; i++)
        if (strcmp(kept[i].file, file) == 0 && strstr(kept[i].what, what) != NULL)
            return true;
    for (uint64_t i = 0; i < kept_count && i < KEPT; i++)
        print_error("%s at %llu: %s\n", kept[i].file, (unsigned long long)kept[i].offset,
                    kept[i].what);
    return false;
}

static inline void write_dataset(shards_recipe *recipes)
{
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++)
        shards_write(shards_here, names[i], &recipes[i]);
    shards_commit(shards_here, names, 2);
}

#define VERIFY_TEST(name) cmocka_unit_test_setup_teardown(name, shards_begin, shards_end)

#endif
