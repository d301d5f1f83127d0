/* SPDX-License-Identifier: Apache-2.0
 *
 * test_holder.c: further copies of a shard come from the rank that has it: whole ones, those that
 * become whole, damaged ones, and requests that make no sense. Rank 0 has the shard. */
#include "support/ranks.h"
#include "support/shards.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "home/arrivals.h"
#include "staging/holder.h"
#include "transport/engine.h"

enum { SAMPLES = 1000, WAIT_MS = 60000 };

static char local[256], kept[256]; /* where copies go, and a home */
static const char *const endings[] = {"rks", "sums", "json"};

static void file_at(char *path, const char *directory, const char *ending)
{
    snprintf(path, 512, "%s/a.%s", directory, ending);
}

static int make_shard(void **state)
{
    const shards_recipe recipe = {.samples = SAMPLES, .units = 4, .wide_every = 1};
    char command[1024];
    if (shards_begin(state) != 0)
        return -1;
    shards_dataset(&recipe);
    snprintf(local, sizeof(local), "%s/local", shards_here);
    snprintf(kept, sizeof(kept), "%s/kept", shards_here);
    snprintf(command, sizeof(command), "mkdir '%s' '%s' && cp '%s'/a.* '%s'", local, kept,
             shards_here, kept);
    return system(command);
}

/* Returns true if the copy's files are those of the original. */
static bool is_copied(void)
{
    bool same = true;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        char path[512], *one = NULL, *other = NULL;
        size_t one_size = 0, other_size = 0;
        rks_error unused;
        file_at(path, local, endings[i]);
        same = same && rks_file_load(path, 64 << 20, &one, &one_size, &unused) == RKS_OK;
        file_at(path, kept, endings[i]);
        same = same && rks_file_load(path, 64 << 20, &other, &other_size, &unused) == RKS_OK &&
               one_size == other_size && memcmp(one, other, one_size) == 0;
        rks_free(one);
        rks_free(other);
    }
    return same;
}

/* What the asking rank does. */
typedef struct asking {
    rks_dataset *dataset;
    rks_home *holder;
} asking;

typedef void (*asking_fn)(member *m, asking *a);

static void two_ranks(member *m)
{
    asking a = {0};
    rks_holding *holding = NULL, *empty = NULL;
    EXPECT_OK(open_group_on(m->bootstrap, NULL, 0, &m->group, &m->err));
    EXPECT_OK(rks_dataset_load(shards_here, &a.dataset, &m->err));
    if (m->failures == 0 && m->rank == 0)
        EXPECT_OK(rks_holding_open(m->group, a.dataset, shards_here, &holding, &m->err));
    if (m->failures == 0 && m->rank == 0) /* the same dataset, from a directory that has nothing */
        EXPECT_OK(rks_holding_open(m->group, a.dataset, local, &empty, &m->err));
    EXPECT_OK(rks_group_agree(m->group, "ready", RKS_OK, &m->err));
    if (m->failures == 0 && m->rank == 1) {
        EXPECT_OK(rks_holder_open(m->group, 0, a.dataset, &a.holder, &m->err));
        ((asking_fn)(uintptr_t)m->user)(m, &a);
        rks_home_close(a.holder);
    }
    EXPECT_OK(rks_group_agree(m->group, "done", RKS_OK, &m->err));
    rks_holding_close(empty);
    rks_holding_close(holding);
    rks_dataset_free(a.dataset);
}

static void run(asking_fn ask)
{
    on_threads(2, two_ranks, (void *)(uintptr_t)ask);
}

/* Brings the copy. `home` may be NULL. */
static rks_status bring(member *m, const asking *a, rks_home *home, uint64_t *from_home)
{
    rks_arrivals *set = NULL;
    rks_arrivals_count count = {0};
    bool reached = false;
    const rks_arrival_wish wish = {.home = home,
                                   .holder = a->holder,
                                   .directory = local,
                                   .name = a->dataset->shards[0].name,
                                   .manifest = a->dataset->shards[0].manifest};
    rks_status status = rks_arrivals_open(&wish, 1, false, &set, &m->err);
    if (status == RKS_OK)
        status = rks_arrivals_wait(set, RKS_ARRIVALS_ALL, WAIT_MS, &reached, &m->err);
    if (set != NULL)
        rks_arrivals_counted(set, &count);
    *from_home = count.brought;
    rks_arrivals_close(set);
    EXPECT(status != RKS_OK || reached);
    return status;
}

static void bring_from_holder(member *m, asking *a)
{
    uint64_t from_home = 1;
    EXPECT_OK(bring(m, a, NULL, &from_home));
    EXPECT(from_home == 0);
    EXPECT(is_copied());
}

static void a_copy_comes_from_its_holder(void **state)
{
    (void)state;
    run(bring_from_holder);
}

/* A fifth of a second later the shard is whole. */
static void *seal_later(void *unused)
{
    char hidden[512], path[512];
    (void)unused;
    usleep(200000);
    file_at(hidden, shards_here, "hidden");
    file_at(path, shards_here, "json");
    rename(hidden, path);
    return NULL;
}

static void a_copy_waits_until_its_holder_is_whole(void **state)
{
    (void)state;
    char hidden[512], path[512];
    pthread_t thread;
    file_at(hidden, shards_here, "hidden");
    file_at(path, shards_here, "json");
    assert_int_equal(rename(path, hidden), 0);
    assert_int_equal(pthread_create(&thread, NULL, seal_later, NULL), 0);
    run(bring_from_holder);
    pthread_join(thread, NULL);
}

static void bring_from_home_then(member *m, asking *a)
{
    rks_home *home = NULL;
    uint64_t from_home = 0;
    EXPECT_OK(rks_home_open(kept, NULL, &home, &m->err));
    EXPECT_OK(bring(m, a, home, &from_home));
    EXPECT(from_home > 0);
    EXPECT(is_copied());
    rks_home_close(home);
}

static void what_a_holder_has_wrong_comes_from_home(void **state)
{
    (void)state;
    shards_flip(shards_here, "a.rks", 3 << 20, 1);
    run(bring_from_home_then);
}

static void what_a_holder_lacks_comes_from_home(void **state)
{
    (void)state;
    char path[512];
    file_at(path, shards_here, "rks");
    assert_int_equal(truncate(path, 1 << 20), 0);
    run(bring_from_home_then);
}

static void fail_by_damage(member *m, asking *a)
{
    uint64_t from_home = 0;
    EXPECT(bring(m, a, NULL, &from_home) == RKS_ERR_CORRUPT);
    EXPECT_TEXT("rank 0 (");
    EXPECT_TEXT("a.rks: the MiB at offset 3145728 is not the one");
    EXPECT(!is_copied());
}

static void damage_at_the_only_holder_is_an_error_that_names_it(void **state)
{
    (void)state;
    shards_flip(shards_here, "a.rks", 3 << 20, 1);
    run(fail_by_damage);
}

/* Bodies that are not requests, of which each differs from a right one in one thing. */
static void ask_nonsense(member *m, asking *a)
{
    static const struct {
        size_t size;
        uint64_t first, end;
        uint8_t file, whole, id;
        const char *name, *said;
    } wrong[] = {
        {33, 0, 100, 0, 0, 0, "a", "not a request"},
        {34, 0, 100, 0, 0, 0, "", "not a request"},
        {0, 0, 100, 3, 0, 0, "a", "not a request"},
        {0, 101, 100, 0, 0, 0, "a", "not a request"},
        {0, 1, 100, 0, 1, 0, "a", "not a request"},
        {0, 0, UINT64_MAX, 0, 0, 0, "a", "not a request"},
        {0, 0, 100, 0, 0, 0, "../a", "not a request"},
        {0, 0, 100, 0, 0, 0, "kept/a", "not a request"},
        {0, 0, 100, 0, 0, 0, ".a", "not a request"},
        {0, 0, 100, 0, 0, 1, "a", "not open here"},
        {0, 0, 100, 0, 0, 0, "b", "not whole here yet"},
        {0, UINT64_C(1) << 40, (UINT64_C(1) << 40) + 1, 0, 0, 0, "a", "bytes, not"},
        {0, 0, 1, 2, 1, 0, "a", "bytes, not 1"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        uint8_t body[64] = {0}, *reply = NULL;
        size_t size = 0;
        rks_store_u64(body, a->dataset->id.low + wrong[i].id);
        rks_store_u64(body + 8, a->dataset->id.high);
        rks_store_u64(body + 16, wrong[i].first);
        rks_store_u64(body + 24, wrong[i].end);
        body[32] = wrong[i].file;
        body[33] = wrong[i].whole;
        memcpy(body + 34, wrong[i].name, strlen(wrong[i].name));
        const rks_outgoing request = {
            RKS_SERVICE_FILES, body, wrong[i].size > 0 ? wrong[i].size : 34 + strlen(wrong[i].name),
            "nonsense"};
        EXPECT(rks_engine_ask(rks_group_engine(m->group), 0, &request, 1 << 20, &reply, &size,
                              &m->err) != RKS_OK);
        EXPECT_TEXT(wrong[i].said);
        rks_free(reply);
    }
}

static void requests_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    run(ask_nonsense);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_comes_from_its_holder, make_shard, shards_end),
        cmocka_unit_test_setup_teardown(a_copy_waits_until_its_holder_is_whole, make_shard,
                                        shards_end),
        cmocka_unit_test_setup_teardown(what_a_holder_has_wrong_comes_from_home, make_shard,
                                        shards_end),
        cmocka_unit_test_setup_teardown(what_a_holder_lacks_comes_from_home, make_shard,
                                        shards_end),
        cmocka_unit_test_setup_teardown(damage_at_the_only_holder_is_an_error_that_names_it,
                                        make_shard, shards_end),
        cmocka_unit_test_setup_teardown(requests_that_make_no_sense_are_refused, make_shard,
                                        shards_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
