/* SPDX-License-Identifier: Apache-2.0
 *
 * test_publish.c: a dataset is published by ranks that are nodes of their own: what home has
 * afterwards, and what if one of them fails, is interrupted, or has no memory. */
#include "unit/store/world.h"

#include <fcntl.h>
#include <stdatomic.h>

#include "base/file.h"

enum { RANKS = 3, MORE = 3 }; /* units of an append */

static char place[64], source[96], home[96];

static rks_status build_units(rks_group *group, uint64_t first, uint64_t count, bool append,
                              rks_error *err)
{
    rks_build_options options;
    world_build_options(&options);
    options.append = append;
    options.source = append ? "more" : "first";
    return world_build_units(group, source, &options, first, count, NULL, err);
}

static void build_source(member *m)
{
    if (world_enter(m, true))
        EXPECT_OK(build_units(m->group, 0, UNITS, false, &m->err));
}

static int make_source(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(source, sizeof(source), "%s/source-{rank}", place);
    snprintf(home, sizeof(home), "%s/home", place);
    on_threads(RANKS, build_source, NULL);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    rks_set_interrupt(NULL, NULL);
    world_remove(place);
    return 0;
}

static void look(member *m, uint64_t count)
{
    rks_store *store = NULL;
    EXPECT_OK(rks_store_open(m->group, home, NULL, &store, &m->err));
    EXPECT(store != NULL && rks_store_count(store) == count);
    for (uint64_t id = m->rank; store != NULL && id < count && m->failures == 0; id += m->size) {
        rks_batch *batch = NULL;
        EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
        EXPECT(batch != NULL && world_is(batch, 0, id));
        rks_batch_free(batch);
    }
    rks_store_close(store, CLOSE_MS);
}

/* No claim, no file on its way. */
static void expect_clean(member *m)
{
    EXPECT_OK(rks_group_agree(m->group, "test: looked", RKS_OK, &m->err));
    EXPECT(world_files(home, ".claim") == 0 && world_files(home, ".sending") == 0);
}

static rks_status publish(member *m, rks_publish_report *report)
{
    *report = (rks_publish_report){.struct_size = sizeof(*report)};
    return rks_publish(m->group, source, home, NULL, report, &m->err);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void publish_and_grow(member *m)
{
    rks_publish_report report;
    if (!world_enter(m, true))
        return;
    EXPECT_OK(publish(m, &report));
    EXPECT(report.before == 0 && report.generation == 1 && report.shards == RANKS);
    EXPECT(report.sent_shards == RANKS && report.there_bytes == 0 && !report.nothing_to_do);
    uint64_t sent = report.sent_bytes;
    look(m, SAMPLES);
    EXPECT_OK(publish(m, &report));
    EXPECT(report.sent_shards == 0 && report.sent_bytes == 0 && report.before == 1);
    EXPECT(report.there_bytes > sent / 2);
    EXPECT_OK(build_units(m->group, UNITS, MORE, true, &m->err));
    EXPECT_OK(publish(m, &report));
    EXPECT(report.before == 1 && report.generation == 2 && report.sent_shards > 0);
    EXPECT(report.sent_shards + RANKS == report.shards);
    look(m, SAMPLES + MORE * UNIT_ROWS);
    expect_clean(m);
}

static void home_has_what_all_ranks_have(void **state)
{
    (void)state;
    on_threads(RANKS, publish_and_grow, NULL);
}

/* A shard that no rank has is not missed if home has it. */
static void publish_without_a_disk(member *m)
{
    rks_publish_report report;
    char command[256];
    if (!world_enter(m, true))
        return;
    EXPECT_OK(publish(m, &report));
    snprintf(command, sizeof(command), "rm -r %s/source-1 %s/home/dataset.json", place, place);
    EXPECT(m->rank != 1 || system(command) == 0);
    EXPECT_OK(rks_group_agree(m->group, "test: lost", RKS_OK, &m->err));
    EXPECT_OK(publish(m, &report));
    EXPECT(report.before == 0 && report.sent_shards == 0);
    look(m, SAMPLES);
    snprintf(command, sizeof(command), "rm %s/home/part-*.rks", place);
    EXPECT_OK(rks_group_agree(m->group, "test: seen", RKS_OK, &m->err));
    EXPECT(m->rank != 1 || system(command) == 0);
    EXPECT_OK(rks_group_agree(m->group, "test: lost there", RKS_OK, &m->err));
    EXPECT(publish(m, &report) == RKS_ERR_NOT_FOUND);
    EXPECT_TEXT("is not on any rank's disk, and ");
}

static void what_home_has_needs_no_rank(void **state)
{
    (void)state;
    on_threads(RANKS, publish_without_a_disk, NULL);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void flip(member *m, const char *directory)
{
    char path[512], command[256];
    snprintf(command, sizeof(command), "ls %s/part-*.rks", directory);
    FILE *names = popen(command, "r");
    EXPECT(names != NULL && fgets(path, sizeof(path), names) != NULL);
    if (names != NULL)
        pclose(names);
    path[strcspn(path, "\n")] = '\0';
    uint8_t byte = 0;
    int fd = open(path, O_RDWR);
    EXPECT(fd >= 0 && pread(fd, &byte, 1, 5000) == 1);
    byte ^= 4;
    EXPECT(pwrite(fd, &byte, 1, 5000) == 1);
    close(fd);
}

static void publish_damage(member *m)
{
    rks_publish_report report;
    char directory[128];
    snprintf(directory, sizeof(directory), "%s/source-2", place);
    if (m->rank == 2)
        flip(m, directory);
    if (!world_enter(m, true))
        return;
    EXPECT(publish(m, &report) == RKS_ERR_CORRUPT);
    EXPECT(m->err.rank == 2);
    EXPECT_TEXT("source-2/part-");
    EXPECT_TEXT(".rks: MiB 0 does not match its sum");
    EXPECT(world_files(home, "dataset.json") == 0);
    expect_clean(m);
    if (m->rank == 2)
        flip(m, directory);
    EXPECT_OK(rks_group_agree(m->group, "test: mended", RKS_OK, &m->err));
    EXPECT_OK(publish(m, &report));
    EXPECT(report.sent_shards >= 1 && report.shards == RANKS);
    look(m, SAMPLES);
    expect_clean(m);
}

static void damage_on_one_rank_is_the_same_error_on_all(void **state)
{
    (void)state;
    on_threads(RANKS, publish_damage, NULL);
}

static void build_alone(member *m)
{
    if (world_enter(m, true))
        EXPECT_OK(build_units(m->group, 0, 4, false, &m->err));
}

static atomic_int asked, last_ask;

static int interrupt_later(void *user)
{
    (void)user;
    return atomic_fetch_add(&asked, 1) >= atomic_load(&last_ask);
}

static void publish_interrupted(member *m)
{
    rks_publish_report report;
    if (!world_enter(m, true))
        return;
    rks_status status = publish(m, &report);
    EXPECT(status == RKS_ERR_CANCELLED || status == RKS_OK);
    m->code = status == RKS_OK ? 0 : 7;
    rks_set_interrupt(NULL, NULL);
    EXPECT(world_files(home, ".claim") == 0);
}

/* One rank is enough to ask at each place; its calls are always the same. */
static void an_interrupt_ends_it_and_the_next_call_goes_on(void **state)
{
    (void)state;
    member_start start = {publish_interrupted, NULL};
    rks_error err = {0};
    int code = 7, rounds = 0;
    snprintf(source, sizeof(source), "%s/alone", place);
    on_threads(1, build_alone, NULL);
    for (; code == 7; rounds++) {
        assert_true(rounds < 1000);
        if (rounds % 2 == 0) /* else it goes on */
            world_remove(home);
        atomic_store(&asked, 0);
        atomic_store(&last_ask, rounds);
        rks_set_interrupt(interrupt_later, NULL);
        rks_launch_threads(1, run_member, &start, &code, &err);
        rks_set_interrupt(NULL, NULL);
        assert_int_equal(rks_memory_in_use(), 0);
        if (code != 0 && code != 7) /* before it: the group could not be opened */
            code = 7;
    }
    assert_true(rounds > 5);
}

static void publish_with_little_memory(member *m)
{
    rks_publish_report report;
    if (!world_enter(m, true))
        return;
    int failed = 0;
    for (long nth = 1;; nth++) {
        rks_memory_fail_at(nth);
        rks_status status = publish(m, &report);
        bool all = rks_memory_fail_left() > 0;
        rks_memory_fail_at(0);
        EXPECT(world_files(home, ".sending") == 0);
        if (all) {
            EXPECT(status == RKS_OK);
            break;
        }
        failed += status != RKS_OK;
        EXPECT(status == RKS_OK || status == RKS_ERR_MEMORY);
        if (m->failures > 0)
            break;
    }
    EXPECT(failed > 50);
    look(m, 4 * UNIT_ROWS);
    EXPECT(world_files(home, ".claim") == 0);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    snprintf(source, sizeof(source), "%s/alone", place);
    on_threads(1, build_alone, NULL);
    on_threads(1, publish_with_little_memory, NULL);
}

static void refuse(member *m)
{
    rks_publish_report report = {.struct_size = sizeof(report)};
    char inside[128], none[128];
    snprintf(inside, sizeof(inside), "%s/source-1/x/home", place);
    snprintf(none, sizeof(none), "%s/none", place);
    if (!world_enter(m, true))
        return;
    EXPECT(rks_publish(m->group, source, inside, NULL, &report, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("whose home it would be");
    EXPECT(m->err.rank == 1);
    EXPECT(rks_publish(m->group, none, home, NULL, &report, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT(rks_publish(m->group, source, m->rank == 0 ? home : none, NULL, &report, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT_TEXT("home differs");
    EXPECT(rks_publish(m->group, source, "", NULL, &report, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT(access(home, F_OK) != 0);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    on_threads(RANKS, refuse, NULL);
}

int main(void)
{
#define WITH_SOURCE(test) cmocka_unit_test_setup_teardown(test, make_source, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_SOURCE(home_has_what_all_ranks_have),
        WITH_SOURCE(what_home_has_needs_no_rank),
        WITH_SOURCE(damage_on_one_rank_is_the_same_error_on_all),
        WITH_SOURCE(an_interrupt_ends_it_and_the_next_call_goes_on),
        WITH_SOURCE(each_allocation_may_fail),
        WITH_SOURCE(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("publish", tests, NULL, NULL);
}
