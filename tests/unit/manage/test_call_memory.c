/* SPDX-License-Identifier: Apache-2.0
 *
 * test_call_memory.c: the formulas of base/call_memory.h for dedup, diff and the search for keys
 * against what the kernel says. `test_call_memory N`: with datasets of N samples. */
#include "support/check.h"

#include "base/call_memory.h"
#include "rankstore.h"
#include "support/folder.h"
#include "support/peak.h"
#include "support/rows.h"

enum { UNIT_ROWS = 50000 };

static uint64_t count = 1000000;
static char folder[FOLDER_PATH], a[FOLDER_PATH + 16], b[FOLDER_PATH + 16], c[FOLDER_PATH + 16];
static rks_error err;

static rks_status make_unit(void *user, uint64_t unit, rks_sink *sink, rks_error *error)
{
    (void)user;
    rks_status status = RKS_OK;
    for (uint64_t i = unit * UNIT_ROWS; status == RKS_OK && i < (unit + 1) * UNIT_ROWS && i < count;
         i++) {
        char key[24];
        const rks_value value = {.data = &i, .size = sizeof(i)};
        snprintf(key, sizeof(key), "%llu", (unsigned long long)i);
        status = rows_add(sink, &value, key, strlen(key), error);
    }
    return status;
}

static rks_status build(const char *directory, bool dedup)
{
    rks_group *group = NULL;
    rks_build_options options;
    const made_rows rows = {.make = make_unit, .units = (count + UNIT_ROWS - 1) / UNIT_ROWS};
    rks_build_options_default(&options);
    options.schema = "number:int64";
    options.own_keys = true;
    options.dedup = dedup;
    assert_ok(rks_group_open(NULL, &group, &err), &err);
    rks_status status = rows_build(group, directory, &options, &rows, NULL, &err);
    rks_group_close(group);
    return status;
}

/* What dedup takes beyond the same build without it. */
static int measure_dedup(const void *user)
{
    (void)user;
    peak plain, dedup;
    uint64_t without, with;
    peak_begin(&plain);
    if (build(c, false) != RKS_OK)
        return 3;
    without = peak_end(&plain);
    if (folder_remove(c) != 0)
        return 4;
    peak_begin(&dedup);
    if (build(c, true) != RKS_OK)
        return 3;
    with = peak_end(&dedup);
    printf("build: %.1f MB, with dedup %.1f MB\n", (double)without / 1e6, (double)with / 1e6);
    fflush(stdout);
    return with <= without + rks_memory_of_dedup(count, 1) * 14 / 10 ? 0 : 1;
}

static int measure_diff(const void *user)
{
    (void)user;
    rks_group *group = NULL;
    rks_store *one = NULL, *other = NULL;
    rks_diff_options options;
    rks_diff_report report = {.struct_size = sizeof(report)};
    rks_diff_options_default(&options);
    if (rks_group_open(NULL, &group, &err) != RKS_OK ||
        rks_store_open(group, a, NULL, &one, &err) != RKS_OK ||
        rks_store_open(group, b, NULL, &other, &err) != RKS_OK)
        return 3;
    /* The first one reads all pages of the files, and makes the search for keys. */
    rks_status status = rks_diff(one, other, &options, NULL, NULL, &report, &err);
    uint64_t before = peak_reset();
    if (status == RKS_OK)
        status = rks_diff(one, other, &options, NULL, NULL, &report, &err);
    uint64_t took = peak_high() - before;
    rks_store_close(one, 1000);
    rks_store_close(other, 1000);
    rks_group_close(group);
    if (status != RKS_OK || report.same != count)
        return 4;
    return peak_is("diff", took, rks_memory_of_diff(count) - rks_memory_of_find(count)) ? 0 : 1;
}

static int measure_find(const void *user)
{
    (void)user;
    rks_group *group = NULL;
    rks_store *store = NULL;
    uint64_t id = 0;
    if (rks_group_open(NULL, &group, &err) != RKS_OK ||
        rks_store_open(group, a, NULL, &store, &err) != RKS_OK)
        return 3;
    peak_reset(); /* what opening freed goes back */
    uint64_t before = peak_taken();
    rks_status status = rks_store_find(store, "77", 2, &id, &err);
    uint64_t took = peak_taken() - before; /* it stays */
    rks_store_close(store, 1000);
    rks_group_close(group);
    if (status != RKS_OK)
        return 4;
    return peak_is("find by key", took, rks_memory_of_find(count)) ? 0 : 1;
}

static void a_diff_takes_what_the_formula_says(void **state)
{
    (void)state;
    peak_in_child(measure_diff, NULL);
}

static void a_search_for_a_key_takes_what_the_formula_says(void **state)
{
    (void)state;
    peak_in_child(measure_find, NULL);
}

static void dedup_takes_no_more_than_the_formula_says(void **state)
{
    (void)state;
    peak_in_child(measure_dedup, NULL);
}

static int begin(void **state)
{
    (void)state;
    if (!folder_make(folder))
        return -1;
    snprintf(a, sizeof(a), "%s/a", folder);
    snprintf(b, sizeof(b), "%s/b", folder);
    snprintf(c, sizeof(c), "%s/c", folder);
    return build(a, false) == RKS_OK && build(b, false) == RKS_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return folder_remove(folder);
}

int main(int words, char **given)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_diff_takes_what_the_formula_says),
        cmocka_unit_test(a_search_for_a_key_takes_what_the_formula_says),
        cmocka_unit_test(dedup_takes_no_more_than_the_formula_says),
    };
    if (words > 1)
        count = strtoull(given[1], NULL, 10);
    return cmocka_run_group_tests_name("call_memory", tests, begin, end);
}
