/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gather_memory.c: the formula of base/call_memory.h for gather against what the kernel says;
 * and that what does not fit is refused. `test_gather_memory N`: with N results. */
#include "support/check.h"

#include <stdlib.h>

#include "base/available_memory.h"
#include "base/call_memory.h"
#include "support/folder.h"
#include "support/peak.h"

enum { LISTED = 18 };

static uint32_t count = 200000;
static char folder[FOLDER_PATH];
static rks_error err;

/* ---- a gather -------------------------------------------------------------------------------- */

static rks_status receive(void *user, const rks_gather_item *item, rks_error *error)
{
    (void)error;
    *(uint64_t *)user += LISTED + item->name_size;
    return RKS_OK;
}

/* Gathers `count` results whose names have about `name_size` bytes; *listed: what their list
 * takes. */
static rks_status gather_all(int name_size, uint64_t *listed)
{
    rks_group *group = NULL;
    rks_gather *gather = NULL;
    rks_gather_report report = {.struct_size = sizeof(report)};
    assert_ok(rks_group_open(NULL, &group, &err), &err);
    assert_ok(rks_gather_open(group, "score:float32", folder, &gather, &err), &err);
    for (uint32_t i = 0; i < count; i++) {
        char name[128];
        float score = (float)i;
        const rks_value value = {.data = &score, .size = sizeof(score)};
        snprintf(name, sizeof(name), "%0*u", name_size, i * 2654435761u);
        assert_ok(rks_gather_add(gather, name, i, &value, &err), &err);
    }
    rks_status status = rks_gather_run(gather, RKS_OK, 0, receive, listed, &report, &err);
    rks_gather_close(gather);
    rks_group_close(group);
    return status;
}

static int measure(const void *user)
{
    const int *name_size = user;
    char of[32];
    uint64_t listed = 0;
    peak most;
    peak_begin(&most);
    rks_status status = gather_all(*name_size, &listed);
    uint64_t took = peak_end(&most);
    if (status != RKS_OK)
        return 3;
    snprintf(of, sizeof(of), "names of %d", *name_size);
    return peak_is(of, took, rks_memory_of_gather(count, listed, listed)) ? 0 : 1;
}

static void a_gather_takes_what_the_formula_says(void **state)
{
    (void)state;
    static const int sizes[] = {14, 60};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        peak_in_child(measure, &sizes[i]);
}

/* What the machine has left, as a test wants it; 0: what it has. */
static uint64_t pretended;

uint64_t __real_rks_memory_obtainable(const char *root);
uint64_t __wrap_rks_memory_obtainable(const char *root);

uint64_t __wrap_rks_memory_obtainable(const char *root)
{
    return pretended != 0 ? pretended : __real_rks_memory_obtainable(root);
}

static void what_does_not_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    uint64_t listed = 0;
    uint32_t usual = count;
    count = 2400000; /* 256 MiB */
    pretended = 100 << 20;
    rks_status status = gather_all(10, &listed);
    count = usual;
    pretended = 0;
    assert_int_equal(status, RKS_ERR_MEMORY);
    assert_contains(err.text, "gather: 2400000 results needs 0.3 GiB of memory");
    assert_contains(err.text, "has 0.1 GiB left; gather fewer at once");
    assert_int_equal(listed, 0);
}

static int begin(void **state)
{
    (void)state;
    return folder_make(folder) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return folder_remove(folder);
}

int main(int words, char **given)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gather_takes_what_the_formula_says),
        cmocka_unit_test(what_does_not_fit_is_refused_with_both_numbers),
    };
    if (words > 1)
        count = (uint32_t)strtoul(given[1], NULL, 10);
    return cmocka_run_group_tests_name("gather_memory", tests, begin, end);
}
