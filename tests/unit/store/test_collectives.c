/* SPDX-License-Identifier: Apache-2.0
 *
 * test_collectives.c: how many collective calls a build, an open and an epoch take on one node.
 * Each is a walk over all ranks, one after the other, so their number must not grow unnoticed. */
#include "files.h"

#include <dirent.h>

enum { RANKS = 4, BUILD_MOST = 10, OPEN_MOST = 6, JOB_MOST = 12 };

static char source[FOLDER_PATH + 32], more[FOLDER_PATH + 32], twin[FOLDER_PATH + 32],
    target[FOLDER_PATH + 32];

typedef struct job {
    rks_build_options options;
    bool all_resumed; /* every unit is there already */
    bool some_resumed;
    uint64_t base_units;   /* of what is appended to */
    uint64_t units;        /* that rank 0's report told */
    bool append;           /* of the other file */
    bool with_twin;        /* the same rows again */
    uint64_t samples;      /* that must come of it; 0: all */
    uint64_t most;         /* collectives; 0: BUILD_MOST */
    uint64_t most_resumed; /* 0: `most` */
    bool own_directories;
} job;

static void build_rank(member *m)
{
    job *j = m->user;
    const char *sources[] = {j->append ? more : source, twin};
    uint64_t most = j->most > 0 ? j->most : BUILD_MOST;
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, false))
        return;
    uint64_t before = rks_group_collectives(m->group);
    EXPECT_OK(
        rks_build(m->group, sources, j->with_twin ? 2 : 1, target, &j->options, &report, &m->err));
    EXPECT(report.collectives == rks_group_collectives(m->group) - before);
    uint64_t added = report.units - j->base_units;
    EXPECT(added > RANKS);
    if (j->some_resumed)
        EXPECT(report.units_resumed > 0 && report.units_resumed < added);
    else
        EXPECT(report.units_resumed == (j->all_resumed ? added : 0));
    if (m->rank == 0)
        j->units = report.units;
    if (report.collectives > most)
        print_error("%llu collectives\n", (unsigned long long)report.collectives);
    EXPECT(report.collectives > 0 && report.collectives <= most);
    EXPECT(j->samples == 0 || report.samples == j->samples);
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
    rks_status status =
        plan == NULL ? RKS_ERR_STATE : rks_epoch_open(store, plan, NULL, &epoch, &m->err);
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
    rks_store_close(store, CLOSE_MS);
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
    snprintf(twin, sizeof(twin), "%s/twin.jsonl", place);
    file_write(more, FILE_ROWS, FILE_ROWS, NULL);
    file_write(twin, 0, FILE_ROWS, NULL);
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

/* What is made of the directory that a build has committed: as if it had been killed before its
 * last step, with one part less if `part` is. */
static void unmake(const char *part)
{
    char path[2 * sizeof(target)], kept[2 * sizeof(target)];
    snprintf(path, sizeof(path), "%s/dataset.json", target);
    snprintf(kept, sizeof(kept), "%s/dataset.1.json", target);
    assert_int_equal(unlink(path), 0);
    if (access(kept, F_OK) == 0) /* an append had been */
        assert_int_equal(rename(kept, path), 0);
    static const char *const endings[] = {"json", "rks", "sums"};
    for (size_t i = 0; part != NULL && i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%.*s.%s", target, (int)strlen(part) - 4, part, endings[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* A part's file that `but` does not list, into `name`; all of them, a line each, into `all`. */
static void pick_part(const char *but, char name[256], char *all, size_t room)
{
    size_t used = 0;
    DIR *stream = opendir(target);
    assert_non_null(stream);
    name[0] = all[0] = '\0';
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        size_t size = strlen(entry->d_name);
        if (size < 4 || strcmp(entry->d_name + size - 4, ".rks") != 0)
            continue;
        used += (size_t)snprintf(all + used, room - used, "%s\n", entry->d_name);
        assert_true(used < room);
        if (strstr(but, entry->d_name) == NULL)
            snprintf(name, 256, "%s", entry->d_name);
    }
    closedir(stream);
    assert_true(name[0] != '\0');
}

/* The build, and then all that can be left of it when it is run again. */
static void resume(job *j, const char *before, char *parts, size_t room)
{
    char part[256];
    on_threads(RANKS, build_rank, j);
    pick_part(before, part, parts, room);
    j->all_resumed = true;
    j->most = j->most_resumed > 0 ? j->most_resumed : j->most;
    unmake(NULL);
    on_threads(RANKS, build_rank, j);
    j->all_resumed = false;
    j->some_resumed = true;
    unmake(part);
    on_threads(RANKS, build_rank, j);
    j->some_resumed = false;
}

static void a_resumed_build_and_append_take_ten_at_most(void **state)
{
    (void)state;
    static const char *const keys[] = {NULL, "id"};
    for (size_t i = 0; i < 2; i++) {
        char parts[4096], all[4096];
        job j = {0};
        file_options(&j.options);
        j.options.key = keys[i];
        resume(&j, "", parts, sizeof(parts));
        j.append = j.options.append = true;
        j.base_units = j.units;
        char part[256]; /* what the resumed build has made is none of the append's either */
        pick_part("", part, parts, sizeof(parts));
        resume(&j, parts, all, sizeof(all));
        world_remove(target);
    }
}

/* Without duplicates, of a sample of N, or both: see build.c for what takes more than ten. */
static void a_build_that_leaves_samples_out_takes_few(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool dedup, sample;
        uint64_t most, most_resumed;
    } cases[] = {
        {NULL, true, false, 11, 12}, {NULL, false, true, 11, 12}, {NULL, true, true, 13, 14},
        {"id", true, false, 11, 12}, {"id", false, true, 11, 12}, {"id", true, true, 13, 14},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char parts[4096];
        job j = {.with_twin = cases[i].dedup};
        file_options(&j.options);
        j.options.key = cases[i].key;
        j.options.dedup = cases[i].dedup;
        j.options.sample = cases[i].sample ? FILE_ROWS / 2 : 0;
        j.samples = cases[i].sample ? FILE_ROWS / 2 : FILE_ROWS;
        j.most = cases[i].most;
        j.most_resumed = cases[i].most_resumed;
        resume(&j, "", parts, sizeof(parts));
        world_remove(target);
    }
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
        WITH_PLACE(a_resumed_build_and_append_take_ten_at_most),
        WITH_PLACE(a_build_that_leaves_samples_out_takes_few),
        WITH_PLACE(an_open_takes_six_and_a_job_twelve_at_most),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
