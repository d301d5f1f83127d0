/* SPDX-License-Identifier: Apache-2.0
 *
 * test_sweep.c: each allocation of the store's calls fails in turn, of whichever rank and thread:
 * the call succeeds or is RKS_ERR_MEMORY on all ranks, nothing is left behind, and afterwards the
 * same directory is as good as ever. RKS_TEST_ALL tries each one of two ranks', too. */
#include "files.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "store/store.h"
#include "support/seed.h"

enum { MOST = 20000, RANKS_MOST = 4, EACH = 40, SKIP = 15 };

/* Two sources with equal rows; a store of the first, one of other keys, and what stages make. */
static char place[64], source[96], twin[96], target[96], other[96], made[96], exported[96];
static char unfinished[96]; /* two of three parts of a build into it */

/* A part of the path: what runs before allocations fail, and what runs while one does. */
typedef struct stage {
    const char *name;
    bool opens;      /* the store is open before */
    bool collective; /* its status is the same on all ranks */
    rks_status (*run)(rks_group *group, rks_store *store, rks_error *err);
    const char *makes;     /* a dataset, which is removed before each try; or NULL */
    bool slow;             /* of two ranks' allocations fewer are tried */
    void (*prepare)(void); /* before each try; NULL: nothing */
} stage;

typedef struct job {
    const stage *stage;
    long nth;
    rks_status statuses[RANKS_MOST];
    rks_error errors[RANKS_MOST];
    bool broken[RANKS_MOST]; /* the group is, since the engine itself lacked memory */
    long left;
    pthread_barrier_t barrier;
} job;

static int make_files(void **state)
{
    (void)state;
    if (!folder_make_in_memory(place)) /* it is synced thousands of times */
        return 1;
    snprintf(source, sizeof(source), "%s/rows.jsonl", place);
    snprintf(twin, sizeof(twin), "%s/twin.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    snprintf(other, sizeof(other), "%s/other", place);
    snprintf(made, sizeof(made), "%s/made", place);
    snprintf(unfinished, sizeof(unfinished), "%s/unfinished", place);
    snprintf(exported, sizeof(exported), "%s/exported", place);
    file_write(source, 0, FILE_ROWS, NULL);
    file_write(twin, 0, FILE_ROWS, NULL);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static rks_status check_sample(rks_batch *batch, size_t i, uint64_t number, rks_error *err)
{
    rks_value value;
    rks_status status = rks_batch_value(batch, i, 0, &value, err); /* the others need no memory */
    if (status == RKS_OK && !file_is(batch, i, number))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "sample %zu of a batch is wrong", i);
    return status;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static rks_status run_build(rks_group *group, rks_store *store, rks_error *err)
{
    const char *sources[] = {source};
    rks_build_options options;
    rks_build_report report = {.struct_size = sizeof(report)};
    (void)store;
    file_options(&options);
    return rks_build(group, sources, 1, target, &options, &report, err);
}

static rks_status build_into(rks_group *group, const char *directory, rks_build_report *report,
                             rks_error *err)
{
    const char *sources[] = {source};
    rks_build_options options;
    file_options(&options);
    options.key = "id";
    return rks_build(group, sources, 1, directory, &options, report, err);
}

static rks_status run_unfinished(rks_group *group, rks_store *store, rks_error *err)
{
    (void)store;
    return build_into(group, unfinished, NULL, err);
}

/* Goes on with the parts that two of three ranks have left, which one rank takes over. */
static rks_status run_resume(rks_group *group, rks_store *store, rks_error *err)
{
    rks_build_report report = {.struct_size = sizeof(report)};
    (void)store;
    rks_status status = build_into(group, made, &report, err);
    if (status == RKS_OK && (report.samples != FILE_ROWS || report.units_resumed == 0 ||
                             report.units_resumed == report.units))
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu of %llu units resumed",
                     (unsigned long long)report.units_resumed, (unsigned long long)report.units);
    return status;
}

/* Leaves two parts of a finished build. */
static void unfinish(void)
{
    char path[512], part[256] = "";
    snprintf(path, sizeof(path), "%s/dataset.json", unfinished);
    assert_int_equal(unlink(path), 0);
    DIR *stream = opendir(unfinished);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (strstr(entry->d_name, ".rks") != NULL)
            snprintf(part, sizeof(part), "%.*s", (int)strlen(entry->d_name) - 4, entry->d_name);
    closedir(stream);
    static const char *const endings[] = {"json", "rks", "sums"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s.%s", unfinished, part, endings[i]);
        assert_int_equal(unlink(path), 0);
    }
}

static void copy_file(const char *from, const char *to)
{
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0644);
    struct stat info;
    assert_true(in >= 0 && out >= 0 && fstat(in, &info) == 0);
    assert_int_equal(sendfile(out, in, NULL, (size_t)info.st_size), info.st_size);
    close(in);
    close(out);
}

static void copy_unfinished(void)
{
    DIR *stream = opendir(unfinished);
    assert_non_null(stream);
    world_remove(made);
    assert_int_equal(mkdir(made, 0755), 0);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char from[512], to[512];
        snprintf(from, sizeof(from), "%s/%s", unfinished, entry->d_name);
        snprintf(to, sizeof(to), "%s/%s", made, entry->d_name);
        if (strncmp(entry->d_name, "part-", 5) == 0)
            copy_file(from, to);
    }
    closedir(stream);
}

typedef struct file_counts {
    rks_scan scan;
    rks_sink sink;
    uint64_t units;
} file_counts;

static rks_status count_unit(rks_scan *scan, const char *name, uint64_t weight, rks_error *err)
{
    (void)name, (void)weight, (void)err;
    ((file_counts *)scan)->units++;
    return RKS_OK;
}

static rks_status count_row(rks_sink *sink, const rks_input_row *row, rks_error *err)
{
    (void)row, (void)err;
    ++*(uint64_t *)sink->user;
    return RKS_OK;
}

static rks_status count_left_out(rks_sink *sink, uint64_t filtered, uint64_t bad, const char *lines,
                                 rks_error *err)
{
    (void)sink, (void)filtered, (void)bad, (void)lines, (void)err;
    return RKS_OK;
}

/* Reading is each rank's own: what it lacks is told by the agreement after it. */
static rks_status run_files(rks_group *group, rks_store *store, rks_error *err)
{
    const char *sources[] = {source, twin};
    const rks_input_ops *ops = rks_files_input();
    rks_build_options options;
    rks_files *files = NULL;
    uint64_t rows = 0;
    file_counts counts = {.scan = {.struct_size = sizeof(counts.scan), .unit = count_unit},
                          .sink = {.struct_size = sizeof(counts.sink),
                                   .row = count_row,
                                   .left_out = count_left_out,
                                   .user = &rows}};
    (void)store;
    file_options(&options);
    rks_status status = rks_files_open(group, sources, 2, &options, &files, err);
    if (status != RKS_OK)
        return status;
    status = ops->scan(files, &counts.scan, err);
    for (uint64_t unit = 0; status == RKS_OK && unit < counts.units; unit++)
        status = ops->read(files, unit, &counts.sink, err);
    if (status == RKS_OK && rows != 2 * FILE_ROWS)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu rows", (unsigned long long)rows);
    rks_files_close(files);
    return rks_group_agree(group, "sweep: read", status, err);
}

static rks_status run_other(rks_group *group, rks_store *store, rks_error *err)
{
    const char *sources[] = {twin};
    rks_build_options options;
    (void)store;
    file_options(&options);
    return rks_build(group, sources, 1, other, &options, NULL, err);
}

static rks_status run_choose(rks_group *group, rks_store *store, rks_error *err)
{
    const char *sources[] = {source, twin};
    rks_build_options options;
    rks_build_report report = {.struct_size = sizeof(report)};
    (void)store;
    file_options(&options);
    options.dedup = true;
    options.sample = FILE_ROWS / 2;
    rks_status status = rks_build(group, sources, 2, made, &options, &report, err);
    if (status == RKS_OK && (report.duplicates != FILE_ROWS || report.samples != FILE_ROWS / 2))
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu samples", (unsigned long long)report.samples);
    return status;
}

static rks_status run_merge(rks_group *group, rks_store *store, rks_error *err)
{
    const char *sources[] = {target, other};
    const rks_merge_options options = {.struct_size = sizeof(options), .copy = true};
    rks_merge_report report = {.struct_size = sizeof(report)};
    (void)store;
    rks_status status = rks_merge(group, sources, 2, made, &options, &report, err);
    if (status == RKS_OK && report.samples != 2 * FILE_ROWS)
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu samples", (unsigned long long)report.samples);
    return status;
}

static rks_status run_prune(rks_group *group, rks_store *store, rks_error *err)
{
    rks_prune_report report = {.struct_size = sizeof(report)};
    (void)store;
    rks_status status = rks_prune(group, target, NULL, &report, err);
    if (status == RKS_OK && report.files != 0)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu files", (unsigned long long)report.files);
    return status;
}

static rks_status run_diff(rks_group *group, rks_store *store, rks_error *err)
{
    rks_diff_report report = {.struct_size = sizeof(report)};
    (void)group;
    rks_status status = rks_diff(store, store, NULL, NULL, NULL, &report, err);
    if (status == RKS_OK && report.same != FILE_ROWS)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu equal", (unsigned long long)report.same);
    return status;
}

static rks_status run_export(rks_group *group, rks_store *store, rks_error *err)
{
    static const char *const formats[] = {"jsonl", "tar", "npz", "dir", "lmdb"};
    rks_export_options options;
    rks_status status = RKS_OK;
    (void)group;
    for (size_t i = 0; status == RKS_OK && i < sizeof(formats) / sizeof(formats[0]); i++) {
        char path[112];
        rks_export_report report = {.struct_size = sizeof(report)};
        rks_export_options_default(&options);
        options.to = formats[i];
        options.force = true;
        options.where = "id < 3";
        snprintf(path, sizeof(path), "%s.%s", exported, formats[i]);
        status = rks_store_export(store, path, &options, &report, err);
        if (status == RKS_OK && report.samples != 3)
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu samples",
                              (unsigned long long)report.samples);
    }
    return status;
}

static rks_status run_open(rks_group *group, rks_store *store, rks_error *err)
{
    (void)store;
    rks_status status = rks_store_open(group, target, NULL, &store, err);
    if (status == RKS_OK)
        rks_store_close(store, CLOSE_MS);
    return status;
}

static rks_status run_plan(rks_group *group, rks_store *store, rks_error *err)
{
    rks_plan *plan = NULL;
    (void)group;
    rks_status status = rks_plan_open(store, NULL, &plan, err);
    rks_plan_free(plan);
    return status;
}

static rks_status run_epoch(rks_group *group, rks_store *store, rks_error *err)
{
    rks_plan *plan = NULL;
    rks_epoch *epoch = NULL;
    rks_batch *batch = NULL;
    uint64_t samples = 0;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.batch_size = 16;
    rks_status status = rks_plan_open(store, &options, &plan, err);
    if (status != RKS_OK)
        return status;
    status = rks_epoch_open(store, plan, NULL, &epoch, err);
    while (status == RKS_OK) {
        status = rks_epoch_next(epoch, &batch, NULL, err);
        if (status != RKS_OK || batch == NULL)
            break;
        samples += rks_batch_count(batch);
        for (size_t i = 0; status == RKS_OK && i < rks_batch_count(batch); i++)
            status = check_sample(batch, i, rks_batch_id(batch, i), err);
        rks_batch_free(batch);
        batch = NULL;
    }
    rks_epoch_close(epoch);
    rks_plan_free(plan);
    if (status == RKS_OK && samples != FILE_ROWS / rks_group_size(group))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu samples", (unsigned long long)samples);
    return status;
}

static rks_status run_fetch(rks_group *group, rks_store *store, rks_error *err)
{
    rks_batch *batch = NULL;
    uint64_t ids[FILE_ROWS];
    size_t size;
    (void)group;
    for (uint64_t i = 0; i < FILE_ROWS; i++)
        ids[i] = i * 7 % FILE_ROWS;
    rks_status status = rks_store_fetch(store, ids, FILE_ROWS, &batch, err);
    for (size_t i = 0; status == RKS_OK && i < FILE_ROWS; i++)
        status = check_sample(batch, i, ids[i], err);
    if (status == RKS_OK && rks_batch_key(batch, 0, &size) == NULL)
        status = RKS_ERR_MEMORY;
    rks_batch_free(batch);
    return status;
}

static rks_status run_keys(rks_group *group, rks_store *store, rks_error *err)
{
    rks_status status = RKS_OK;
    (void)group;
    for (uint64_t id = 3; status == RKS_OK && id < FILE_ROWS; id += 70) {
        uint8_t key[RKS_KEY_MAX];
        size_t size = 0;
        uint64_t found = UINT64_MAX;
        char *json = NULL;
        status = rks_store_key(store, id, key, &size, err);
        if (status == RKS_OK)
            status = rks_store_find(store, key, size, &found, err);
        if (status == RKS_OK && found != id)
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "another id");
        if (status == RKS_OK)
            status = rks_store_info_json(store, &json, err);
        rks_release(json);
    }
    return status;
}

static rks_status count_item(void *user, const rks_gather_item *item, rks_error *err)
{
    (void)item;
    (void)err;
    ++*(uint64_t *)user;
    return RKS_OK;
}

static rks_status run_gather(rks_group *group, rks_store *store, rks_error *err)
{
    rks_gather *gather = NULL;
    uint64_t received = 0;
    uint32_t rank = rks_group_rank(group);
    (void)store;
    rks_status status = rks_gather_open(group, "score:float32", place, &gather, err);
    if (status != RKS_OK)
        return status;
    for (uint64_t i = 0; status == RKS_OK && i < 10; i++) {
        float score = (float)i;
        const rks_value value = {.data = &score, .size = 4};
        status = rks_gather_add(gather, rank == 0 ? "a" : "b", i, &value, err);
    }
    status = rks_gather_run(gather, status, 0, count_item, &received, NULL, err);
    rks_gather_close(gather);
    if (status == RKS_OK && rank == 0 && received != 10 * (uint64_t)rks_group_size(group))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%llu results", (unsigned long long)received);
    return status;
}

static const stage stages[] = {
    {"build", false, true, run_build, target, false, NULL},
    {"open", false, true, run_open, NULL, false, NULL},
    {"plan", true, true, run_plan, NULL, false, NULL},
    {"epoch", true, false, run_epoch, NULL, false, NULL},
    {"fetch", true, false, run_fetch, NULL, false, NULL},
    {"keys", true, false, run_keys, NULL, false, NULL},
    {"gather", false, true, run_gather, NULL, false, NULL},
    {"resume", false, true, run_resume, made, true, copy_unfinished},
    {"choose", false, true, run_choose, made, true, NULL},
    {"merge", false, true, run_merge, made, true, NULL},
    {"prune", false, true, run_prune, NULL, false, NULL},
    {"diff", true, true, run_diff, NULL, true, NULL},
    {"export", true, true, run_export, NULL, true, NULL},
    {"files", false, true, run_files, NULL, true, NULL},
};

/* ---- one try --------------------------------------------------------------------------------- */

/* All ranks come; one of them sets which allocation fails. */
static void meet(job *j, long nth)
{
    pthread_barrier_wait(&j->barrier);
    if (nth == 0)
        j->left = rks_memory_fail_left();
    if (nth >= 0)
        rks_memory_fail_at(nth);
    pthread_barrier_wait(&j->barrier);
}

static void try_rank(member *m)
{
    job *j = m->user;
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.no_share = true;
    if (!world_enter(m, false))
        return;
    if (j->stage->opens)
        EXPECT_OK(rks_store_open(m->group, target, &options, &store, &m->err));
    /* All are connected when allocations begin to be counted. */
    EXPECT_OK(rks_group_agree(m->group, "test: connected", RKS_OK, &m->err));
    meet(j, m->rank == 0 ? j->nth : -1);
    j->statuses[m->rank] =
        m->failures == 0 ? j->stage->run(m->group, store, &j->errors[m->rank]) : -99;
    meet(j, m->rank == 0 ? 0 : -1);
    j->broken[m->rank] = m->group != NULL && rks_group_failed(m->group);
    rks_store_close(store, CLOSE_MS);
}

static void try_once(uint32_t ranks, job *j)
{
    if (j->stage->prepare != NULL)
        j->stage->prepare();
    assert_int_equal(pthread_barrier_init(&j->barrier, NULL, ranks), 0);
    const uint64_t begun = rks_now_ms();
    on_threads(ranks, try_rank, j);
    assert_true(rks_now_ms() - begun < CLOSE_MS); /* no word of the close was lost and waited for */
    pthread_barrier_destroy(&j->barrier);
}

static void run_well(uint32_t ranks, const stage *what)
{
    job j = {.stage = what};
    try_once(ranks, &j);
    for (uint32_t rank = 0; rank < ranks; rank++)
        assert_ok(j.statuses[rank], &j.errors[rank]);
}

/* The same code, rank and words on all. */
static bool same_error(uint32_t ranks, const job *j)
{
    for (uint32_t rank = 1; rank < ranks; rank++)
        if (memcmp(&j->errors[rank], &j->errors[0], sizeof(j->errors[0])) != 0)
            return false;
    return j->errors[0].rank >= 0 && j->errors[0].reserved[0] == 0;
}

/* The same on all ranks; but for a rank whose engine lacks memory for what it hears. That closes
 * the connection, so the other one has lost its peer, or, if that was the last thing to hear, is
 * done. Returns 1 where the call failed. */
static int expect_right(uint32_t ranks, const job *j, long nth)
{
    int good = 0, no_memory = 0, lost = 0;
    bool broken = false;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        good += j->statuses[rank] == RKS_OK;
        no_memory += j->statuses[rank] == RKS_ERR_MEMORY;
        lost += j->statuses[rank] == RKS_ERR_PEER && j->broken[rank];
        broken = broken || j->broken[rank];
    }
    bool right = good == (int)ranks ||
                 (j->left == 0 && no_memory > 0 && good + no_memory + lost == (int)ranks &&
                  (good == 0 || !j->stage->collective || broken) &&
                  (!j->stage->collective || broken || same_error(ranks, j)));
    for (uint32_t rank = 0; !right && rank < ranks; rank++)
        print_error("%s, allocation %ld, rank %u of %u: %s: %s\n", j->stage->name, nth, rank, ranks,
                    rks_status_name(j->statuses[rank]), j->errors[rank].text);
    assert_true(right);
    return good < (int)ranks;
}

/* Two ranks make thousands of allocations: of those after the first ones, some at random. So does a
 * rank alone under the thread sanitizer (check.h); the other builds try each of its allocations. */
static long next_allocation(uint32_t ranks, bool slow, long nth)
{
    if (nth < EACH || getenv("RKS_TEST_ALL") != NULL)
        return nth + 1;
    if (ranks == 1)
        return nth + 1 + (RACE_STRIDE == 1 ? 0 : random() % (2 * RACE_STRIDE - 1));
    return nth + 1 + random() % (slow ? 5 * SKIP : SKIP);
}

static void sweep(uint32_t ranks, const stage *what)
{
    if (what->makes == NULL)
        run_well(ranks, what);
    else
        world_remove(what->makes);
    size_t files = world_files(place, ""), descriptors = world_descriptors();
    long n = 1;
    int failed = 0;
    for (bool reached = true; reached; n = next_allocation(ranks, what->slow, n)) {
        assert_true(n < MOST);
        job j = {.stage = what, .nth = n};
        try_once(ranks, &j);
        reached = j.left == 0;
        failed += expect_right(ranks, &j, n);
        if (what->makes != NULL) { /* goes on with what is there */
            if (world_files(what->makes, "dataset.json") == 0)
                run_well(ranks, what);
            world_remove(what->makes);
        }
        assert_int_equal(world_descriptors(), descriptors);
    }
    assert_int_equal(world_files(place, ""), files);
    assert_true(failed > 0);
    print_message("%s: %ld allocations of %u ranks\n", what->name, n, ranks);
    fflush(stdout);
}

static void sweep_all(uint32_t ranks)
{
    const stage other_store = {.name = "other", .run = run_other};
    const stage three_parts = {.name = "unfinished", .run = run_unfinished};
    run_well(ranks, &stages[0]); /* the event loop's own descriptors stay */
    world_remove(target);
    run_well(ranks, &other_store);
    run_well(3, &three_parts);
    unfinish();
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        sweep(ranks, &stages[i]);
        run_well(ranks, &stages[i]);
    }
    world_remove(target);
    world_remove(other);
    world_remove(made);
    world_remove(unfinished);
}

static void each_failing_allocation_of_a_rank_alone_is_an_error(void **state)
{
    (void)state;
    sweep_all(1);
}

static void each_failing_allocation_of_two_ranks_is_both_s_error(void **state)
{
    (void)state;
    sweep_all(2);
}

int main(void)
{
    srandom((unsigned)test_seed(0));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_failing_allocation_of_a_rank_alone_is_an_error),
        cmocka_unit_test(each_failing_allocation_of_two_ranks_is_both_s_error),
    };
    return cmocka_run_group_tests_name("sweep", tests, make_files, remove_files);
}
