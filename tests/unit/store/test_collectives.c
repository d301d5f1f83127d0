/* SPDX-License-Identifier: Apache-2.0
 *
 * test_collectives.c: how many collective calls a build, an open and an epoch take on one node. Each
 * is a walk over all ranks, one after the other, so their number must not grow unnoticed. */
#include "files.h"

enum { RANKS = 4, BUILD_MOST = 10, OPEN_MOST = 6, JOB_MOST = 12 };

static char source[FOLDER_PATH + 32], more[FOLDER_PATH + 32], target[FOLDER_PATH + 32];

typedef struct job {
    rks_build_options options;
    bool all_resumed; /* every unit is there already */
    bool append; /* of the other file */
    bool own_directories;
} job;

static void build_rank(member *m)
{
    const job *j = m->user;
    const char *sources[] = {j->append ? more : source};
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    uint64_t before = rks_group_collectives(m->group);
    EXPECT_OK(rks_build(m->group, sources, 1, target, &j->options, &report, &m->err));
    EXPECT(report.collectives == rks_group_collectives(m->group) - before);
    EXPECT(report.units > RANKS &&
           report.units_resumed == (j->all_resumed ? report.units : 0));
    if (report.collectives > BUILD_MOST)
        print_error("%llu collectives\n", (unsigned long long)report.collectives);
    EXPECT(report.collectives > 0 && report.collectives <= BUILD_MOST);
}

/* An epoch as a job reads it. */
static uint64_t read_epoch(member *m, rks_store *store)
{
    rks_plan *plan = NULL;
    rks_epoch *epoch = NULL;
    rks_plan_options options;
    uint64_t samples = 0;
    rks_plan_options_default(&options);
    options.batch_size = 8;
    EXPECT_OK(rks_plan_open(store, &options, &plan, &m->err));
    rks_status status = plan == NULL ? RKS_ERR_STATE
                                     : rks_epoch_open(store, plan, NULL, &epoch, &m->err);
    while (status == RKS_OK) {
        rks_batch *batch = NULL;
        status = rks_epoch_next(epoch, &batch, NULL, &m->err);
        if (status != RKS_OK || batch == NULL)
            break;
        samples += rks_batch_count(batch);
        rks_batch_free(batch);
    }
    EXPECT_OK(status);
    rks_epoch_close(epoch);
    rks_plan_free(plan);
    return samples;
}

static void open_rank(member *m)
{
    const job *j = m->user;
    char own[FOLDER_PATH + 48];
    rks_store *store = NULL;
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    snprintf(own, sizeof(own), "%s%s", target, j->own_directories && m->rank > 0 ? "-none" : "");
    if (!world_enter(m, false))
        return;
    uint64_t before = rks_group_collectives(m->group);
    EXPECT(before <= 1);
    EXPECT_OK(rks_store_open(m->group, own, NULL, &store, &m->err));
    if (store == NULL)
        return;
    rks_store_stats_get(store, &stats);
    if (stats.collectives - before > OPEN_MOST)
        print_error("%llu collectives\n", (unsigned long long)(stats.collectives - before));
    EXPECT(stats.collectives > before && stats.collectives - before <= OPEN_MOST);
    EXPECT(read_epoch(m, store) > 0);
    EXPECT(read_epoch(m, store) > 0); /* the sorted order is there */
    rks_store_close(store, 0);
    EXPECT(rks_group_collectives(m->group) <= JOB_MOST);
}

static int make_place(void **state)
{
    (void)state;
    char place[FOLDER_PATH];
    world_directory(place);
    snprintf(source, sizeof(source), "%s/rows.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    snprintf(more, sizeof(more), "%s/more.jsonl", place);
    file_write(source, 0, FILE_ROWS, NULL);
    file_write(more, FILE_ROWS, FILE_ROWS, NULL);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    *strrchr(source, '/') = '\0';
    world_remove(source);
    return 0;
}

static void a_build_and_an_append_take_ten_at_most(void **state)
{
    (void)state;
    job plain = {0}, keyed;
    file_options(&plain.options); /* units begin inside the file: their rows are counted */
    keyed = plain;
    keyed.options.key = "id";
    on_threads(RANKS, build_rank, &plain);
    char path[sizeof(target) + 16]; /* as if it had been killed before its last step */
    snprintf(path, sizeof(path), "%s/dataset.json", target);
    assert_int_equal(unlink(path), 0);
    plain.all_resumed = true;
    on_threads(RANKS, build_rank, &plain);
    world_remove(target);
    on_threads(RANKS, build_rank, &keyed);
    world_remove(target);
    keyed.options.schema = "id:int64,text:str";
    on_threads(RANKS, build_rank, &keyed);
    keyed.options.schema = NULL;
    keyed.append = true;
    keyed.options.append = true;
    on_threads(RANKS, build_rank, &keyed);
    world_remove(target);
    on_threads(RANKS, build_rank, &keyed); /* to nothing: the schema is inferred */
    world_remove(target);
}

static void an_open_takes_six_and_a_job_twelve_at_most(void **state)
{
    (void)state;
    job j = {0};
    file_options(&j.options);
    on_threads(RANKS, build_rank, &j);
    on_threads(RANKS, open_rank, &j);
    on_threads(1, open_rank, &j);
    j.own_directories = true; /* ranks that have no dataset.json get it from another */
    on_threads(RANKS, open_rank, &j);
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(a_build_and_an_append_take_ten_at_most),
        WITH_PLACE(an_open_takes_six_and_a_job_twelve_at_most),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
