/* SPDX-License-Identifier: Apache-2.0
 *
 * test_arrivals.c: shards that come from a directory: whole and in turns, after kills and other
 * boots, with damage here and there, and the bytes that somebody waits for first. */
#include "support/check.h"
#include "support/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "home/arrivals.h"

/* HEAD: a shard's head has fewer bytes, which come alone first and with their pieces again. */
enum { SHARDS = 3, LIMIT_MS = 60000, SHORT_MS = 300, HEAD = 64 << 10 };

static rks_error err;
static char *home_directory;
static char local[128];
static const char *const names[SHARDS] = {"a", "b", "c"};
static rks_home *home;
static rks_arrival_wish wishes[SHARDS];
static uint64_t sizes[SHARDS]; /* of NAME.rks */

static char *file_of(const char *directory, const char *name, const char *ending)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s.%s", directory, name, ending);
    return path;
}

/* Three shards of more than 5 MiB at home. */
static int make_home(void **state)
{
    (void)state;
    static const rks_home_limits limits = {.stall_ms = 5000, .timeout_ms = SHORT_MS};
    home_directory = shards_directory();
    for (size_t i = 0; i < SHARDS; i++) {
        const shards_recipe recipe = {
            .first = 1000 * i, .samples = 1000, .units = 4, .wide_every = 1};
        shards_write(home_directory, names[i], &recipe);
        rks_shard *shard = shards_open(home_directory, names[i]);
        struct stat info;
        assert_int_equal(stat(rks_shard_path(shard), &info), 0);
        sizes[i] = (uint64_t)info.st_size;
        wishes[i] = (rks_arrival_wish){
            .directory = local, .name = names[i], .manifest = rks_shard_manifest_digest(shard)};
        rks_shard_close(shard);
    }
    assert_ok(rks_home_open(home_directory, &limits, &home, &err), &err);
    for (size_t i = 0; i < SHARDS; i++)
        wishes[i].home = home;
    return 0;
}

static int remove_home(void **state)
{
    (void)state;
    rks_home_close(home);
    shards_directory_remove(home_directory);
    return 0;
}

static int make_local(void **state)
{
    (void)state;
    snprintf(local, sizeof(local), "%s/local", home_directory);
    return mkdir(local, 0755);
}

static int remove_local(void **state)
{
    (void)state;
    char command[256];
    rks_pieces_pretend_boot(NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", local);
    return system(command);
}

static bool has_file(const char *name, const char *ending)
{
    return access(file_of(local, name, ending), F_OK) == 0;
}

static void check_whole(const char *name)
{
    shards_same(home_directory, local, name);
    assert_false(has_file(name, "arriving"));
    assert_false(has_file(name, "pieces"));
    assert_false(has_file(name, "manifest"));
}

static rks_status bring_all(size_t count, uint64_t *brought)
{
    rks_arrivals *set = NULL;
    rks_arrivals_count counted;
    bool whole = false;
    assert_ok(rks_arrivals_open(wishes, count, false, &set, &err), &err);
    rks_status status = rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &err);
    rks_arrivals_counted(set, &counted);
    *brought = counted.brought;
    if (status == RKS_OK)
        assert_true(whole);
    rks_arrivals_close(set);
    return status;
}

/* The arrival of shard 0, and its pieces `chosen`. */
static void bring_some(uint64_t chosen)
{
    rks_arrival *arrival = NULL;
    bool whole = true;
    uint64_t brought = 0;
    uint8_t *room = rks_alloc_raw(1, RKS_PIECE, &err);
    assert_ok(rks_arrival_open(&wishes[0], &arrival, &whole, &err), &err);
    assert_false(whole);
    for (uint64_t i = 0; i < rks_pieces_count(rks_arrival_pieces(arrival)); i++)
        if ((chosen >> i & 1) != 0)
            assert_ok(rks_arrival_bring(arrival, i, 1, room, &brought, &err), &err);
    rks_arrival_close(arrival);
    rks_free(room);
}

static void all_come_whole_and_once(void **state)
{
    (void)state;
    uint64_t brought = 0;
    assert_ok(bring_all(SHARDS, &brought), &err);
    assert_in_range(brought, sizes[0] + sizes[1] + sizes[2],
                    sizes[0] + sizes[1] + sizes[2] + SHARDS * HEAD);
    for (size_t i = 0; i < SHARDS; i++) {
        check_whole(names[i]);
        assert_int_equal(rks_arrival_look(local, names[i], wishes[i].manifest, 77), 77);
    }
    assert_ok(bring_all(SHARDS, &brought), &err);
    assert_int_equal(brought, 0);
}

static void what_has_come_does_not_come_again(void **state)
{
    (void)state;
    uint64_t brought = 0;
    assert_int_equal(rks_arrival_look(local, "a", wishes[0].manifest, UINT64_MAX), 0);
    bring_some(0x5);
    assert_int_equal(rks_arrival_look(local, "a", wishes[0].manifest, UINT64_MAX), 2 * RKS_PIECE);
    assert_int_equal(rks_arrival_look(local, "a", (rks_digest){1, 2}, UINT64_MAX), 0);
    assert_ok(bring_all(1, &brought), &err);
    assert_in_range(brought, sizes[0] - 2 * RKS_PIECE, sizes[0] - 2 * RKS_PIECE + SHARDS * HEAD);
    check_whole("a");
}

static void write_at(const char *ending, uint64_t at, const char *text)
{
    int fd = open(file_of(local, "a", ending), O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, text, strlen(text), (off_t)at), strlen(text));
    close(fd);
}

/* A power cut keeps marks and loses bytes: piece 2 is damaged, 0 and 4 are right. */
static void another_boot_checks_what_it_finds(void **state)
{
    (void)state;
    uint64_t brought = 0;
    rks_pieces_pretend_boot("one");
    bring_some(0x15);
    write_at("arriving", 2 * RKS_PIECE + 5000, "lost");
    rks_pieces_pretend_boot("two");
    assert_ok(bring_all(1, &brought), &err);
    assert_in_range(brought, sizes[0] - 2 * RKS_PIECE, sizes[0] - 2 * RKS_PIECE + SHARDS * HEAD);
    check_whole("a");
}

/* Each state that a kill can leave between the calls of the end. */
static void an_end_that_was_killed_is_finished(void **state)
{
    (void)state;
    uint64_t brought = 0;
    for (int step = 0; step < 4; step++) {
        rks_pieces_pretend_boot("one");
        bring_some(0xff);
        if (step >= 1)
            assert_int_equal(rename(file_of(local, "a", "arriving"), file_of(local, "a", "rks")),
                             0);
        if (step >= 2)
            assert_int_equal(rename(file_of(local, "a", "manifest"), file_of(local, "a", "json")),
                             0);
        if (step == 3)
            unlink(file_of(local, "a", "pieces"));
        if (step == 1)
            rks_pieces_pretend_boot("two");
        assert_ok(bring_all(1, &brought), &err);
        assert_in_range(brought, 0, HEAD);
        if (step == 2) /* nobody opens it again: who looks removes its marks */
            assert_int_equal(rks_arrival_look(local, "a", wishes[0].manifest, 9), 9);
        check_whole("a");
        remove_local(NULL);
        make_local(NULL);
    }
}

static void lost_marks_and_lost_files_are_noticed(void **state)
{
    (void)state;
    uint64_t brought = 0;
    bring_some(0x3);
    unlink(file_of(local, "a", "arriving"));
    assert_ok(bring_all(1, &brought), &err);
    assert_in_range(brought, sizes[0], sizes[0] + SHARDS * HEAD);
    check_whole("a");
    unlink(file_of(local, "a", "json"));
    assert_ok(bring_all(1, &brought), &err); /* no marks: all is claimed, and right */
    assert_in_range(brought, 0, HEAD);
    check_whole("a");
    unlink(file_of(local, "a", "rks")); /* the manifest stays */
    assert_int_equal(rks_arrival_look(local, "a", wishes[0].manifest, UINT64_MAX), 0);
    write_at("sums", 3, "x");
    assert_ok(bring_all(1, &brought), &err);
    assert_in_range(brought, sizes[0], sizes[0] + SHARDS * HEAD);
    check_whole("a");
    assert_int_equal(truncate(file_of(local, "a", "rks"), RKS_PIECE), 0);
    assert_ok(bring_all(1, &brought), &err);
    assert_in_range(brought, sizes[0], sizes[0] + SHARDS * HEAD);
    check_whole("a");
}

static void flip(const char *ending, uint64_t at)
{
    char file[64];
    snprintf(file, sizeof(file), "a.%s", ending);
    shards_flip(home_directory, file, at, 1);
}

static void damage_at_home_is_named_and_never_written(void **state)
{
    (void)state;
    uint64_t brought = 0;
    static const char *const endings[] = {"rks", "sums", "json"};
    static const char *const said[] = {"a.rks: the MiB at offset 2097152 is not", "a.sums: not the",
                                       "a.json"};
    for (size_t i = 0; i < 3; i++) {
        uint64_t at = i == 0 ? 2 * RKS_PIECE + 77 : 40;
        flip(endings[i], at);
        assert_fails(RKS_ERR_CORRUPT, bring_all(1, &brought));
        assert_contains(err.text, said[i]);
        assert_contains(err.text, home_directory);
        assert_false(has_file("a", "json"));
        flip(endings[i], at);
        assert_ok(bring_all(1, &brought), &err);
        check_whole("a");
        remove_local(NULL);
        make_local(NULL);
    }
}

static void a_missing_file_at_home_is_an_error(void **state)
{
    (void)state;
    uint64_t brought = 0;
    rks_arrival_wish kept = wishes[0];
    wishes[0].name = "nowhere";
    assert_fails(RKS_ERR_NOT_FOUND, bring_all(1, &brought));
    assert_contains(err.text, "nowhere.json");
    wishes[0] = kept;
}

/* ---- needs ----------------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int calls;
static rks_error said;

static void note(rks_need *need, bool alone, const rks_error *why)
{
    (void)need;
    (void)alone;
    pthread_mutex_lock(&mutex);
    calls++;
    said = *why;
    pthread_mutex_unlock(&mutex);
}

static int calls_so_far(void)
{
    pthread_mutex_lock(&mutex);
    int now = calls;
    pthread_mutex_unlock(&mutex);
    return now;
}

static void wait_for_calls(int wanted)
{
    uint64_t until = rks_now_ms() + LIMIT_MS;
    while (calls_so_far() < wanted && rks_now_ms() < until)
        usleep(1000);
    assert_int_equal(calls_so_far(), wanted);
}

static void a_need_comes_while_the_rest_is_paused(void **state)
{
    (void)state;
    rks_arrivals *set = NULL;
    rks_arrivals_count counted, before;
    bool headed = false;
    rks_need need = {.shard = 1, .first = 3 * RKS_PIECE - 10, .end = 3 * RKS_PIECE + 10};
    rks_need again = need, late = {.shard = 2, .first = 0, .end = 1};
    need.here = again.here = late.here = note;
    calls = 0;
    assert_ok(rks_arrivals_open(wishes, SHARDS, true, &set, &err), &err);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_HEADS, LIMIT_MS, &headed, &err), &err);
    assert_true(headed);
    for (size_t i = 0; i < SHARDS; i++)
        assert_true(rks_arrival_has_head(rks_arrivals_get(set, i)));
    rks_arrivals_counted(set, &before);
    assert_true(before.here < sizes[0] + sizes[1] + sizes[2]);
    rks_arrivals_need(set, &need);
    wait_for_calls(1);
    assert_int_equal(said.status, RKS_OK);
    rks_arrivals_need(set, &again); /* it is here */
    assert_int_equal(calls_so_far(), 2);
    rks_arrivals_need(set, &late);
    wait_for_calls(3);
    rks_arrivals_counted(set, &counted);
    assert_int_equal(before.here, 0);
    assert_int_equal(counted.here, 3 * RKS_PIECE);
    rks_arrivals_go(set, true);
    bool whole = false;
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &err), &err);
    assert_true(whole);
    need.first = 0;
    rks_arrivals_need(set, &need);
    assert_int_equal(calls_so_far(), 4);
    rks_arrivals_close(set);
    check_whole("b");
}

static void a_failure_ends_its_needs_alone(void **state)
{
    (void)state;
    rks_arrivals *set = NULL;
    rks_need need = {.shard = 0, .first = 2 * RKS_PIECE, .end = 2 * RKS_PIECE + 1, .here = note};
    rks_need beside = need, again = need, late = need;
    beside.first = 0;
    beside.end = 1;
    calls = 0;
    flip("rks", 2 * RKS_PIECE + 1);
    assert_ok(rks_arrivals_open(wishes, 1, true, &set, &err), &err);
    rks_arrivals_need(set, &need);
    wait_for_calls(1);
    assert_int_equal(said.status, RKS_ERR_CORRUPT);
    assert_contains(said.text, "a.rks: the MiB at offset 2097152 is not");
    rks_arrivals_need(set, &beside);
    wait_for_calls(2);
    assert_int_equal(said.status, RKS_OK);
    flip("rks", 2 * RKS_PIECE + 1); /* home is mended */
    rks_arrivals_need(set, &again);
    wait_for_calls(3);
    assert_int_equal(said.status, RKS_OK);
    rks_arrivals_stop(set);
    late.first = 4 * RKS_PIECE;
    late.end = late.first + 1;
    rks_arrivals_need(set, &late);
    assert_int_equal(calls_so_far(), 4);
    assert_int_equal(said.status, RKS_ERR_CANCELLED);
    rks_arrivals_close(set);
}

/* A home whose reads of less than a piece wait at a gate, those of shard b at one of their own. It
 * notes what is read of shard a. Heads come slowly, so that records are read alone after them. */
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static bool a_shut, b_shut, slow;
enum { SLOW_US = 100000 };
static int at_gate; /* how many wait */
static uint64_t firsts[256];
static size_t first_count;

static rks_status read_at_gate(void *state, rks_home_read *read, rks_error *why)
{
    pthread_mutex_lock(&mutex);
    const bool of_b = read->name[0] == 'b', small = read->end - read->first < RKS_PIECE;
    at_gate += small;
    while (small && (of_b ? b_shut : a_shut))
        pthread_cond_wait(&gate, &mutex);
    at_gate -= small;
    const bool waits = slow && small;
    if (!of_b && small && first_count < sizeof(firsts) / sizeof(firsts[0]))
        firsts[first_count++] = read->first;
    pthread_mutex_unlock(&mutex);
    if (waits)
        usleep(SLOW_US);
    return rks_home_directory.read(state, read, why);
}

static void set_gates(bool a, bool b)
{
    pthread_mutex_lock(&mutex);
    a_shut = a;
    b_shut = b;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&mutex);
}

static uint64_t all_right(const rks_need *need, const uint8_t *bytes, uint64_t size)
{
    (void)need;
    (void)bytes;
    return size;
}

static void wait_at_gate(int wanted)
{
    uint64_t until = rks_now_ms() + LIMIT_MS;
    int now = 0;
    while (now < wanted && rks_now_ms() < until) {
        usleep(1000);
        pthread_mutex_lock(&mutex);
        now = at_gate;
        pthread_mutex_unlock(&mutex);
    }
    assert_int_equal(now, wanted);
}

/* A set with its heads, whose home has a gate. */
static rks_arrivals *open_gated(rks_home *gated, rks_home_ops *ops, rks_arrival_wish *two)
{
    rks_arrivals *set = NULL;
    bool headed = false;
    *ops = rks_home_directory;
    ops->read = read_at_gate;
    *gated = *home;
    gated->ops = ops;
    calls = 0;
    slow = true;
    for (size_t i = 0; i < 2; i++) {
        two[i] = wishes[i];
        two[i].home = gated;
    }
    assert_ok(rks_arrivals_open(two, 2, true, &set, &err), &err);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_HEADS, LIMIT_MS, &headed, &err), &err);
    assert_true(headed);
    pthread_mutex_lock(&mutex);
    slow = false;
    first_count = 0;
    pthread_mutex_unlock(&mutex);
    return set;
}

/* Wants `count` records of shard b, which wait at its gate. */
static void hold_threads(rks_arrivals *set, rks_need *needs, int count)
{
    for (int i = 0; i < count; i++) {
        needs[i] = (rks_need){.shard = 1, .check = all_right, .here = note};
        needs[i].first = RKS_PIECE + 1000 * (uint64_t)i;
        needs[i].end = needs[i].first + 1000;
        rks_arrivals_need(set, &needs[i]);
    }
    wait_at_gate(count);
}

/* Another job brings the piece after the need was queued, and before a thread takes it. */
static void a_need_ends_that_another_job_has_met(void **state)
{
    (void)state;
    rks_home gated;
    rks_home_ops ops;
    rks_arrival_wish two[2];
    rks_need busy[RKS_ARRIVALS_THREADS];
    rks_need need = {.end = 1, .here = note};
    rks_arrivals *set = open_gated(&gated, &ops, two);
    set_gates(true, true);
    hold_threads(set, busy, RKS_ARRIVALS_THREADS);
    rks_arrivals_need(set, &need);
    bring_some(1);
    set_gates(false, false);
    wait_for_calls(RKS_ARRIVALS_THREADS + 1);
    bool whole = false;
    rks_arrivals_go(set, true);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &err), &err);
    assert_true(whole);
    rks_arrivals_close(set);
}

static uint64_t all_wrong(const rks_need *need, const uint8_t *bytes, uint64_t size)
{
    (void)need;
    (void)bytes;
    (void)size;
    return 0;
}

/* Its pieces come while the record is read, which is then not right. */
static void a_need_ends_whose_record_is_wrong_when_its_piece_is_here(void **state)
{
    (void)state;
    rks_home gated;
    rks_home_ops ops;
    rks_arrival_wish two[2];
    rks_need alone = {.first = 0, .end = 1000, .check = all_wrong, .here = note};
    rks_need by_pieces = {.first = 5000, .end = 5001, .here = note};
    rks_arrivals *set = open_gated(&gated, &ops, two);
    set_gates(true, true);
    rks_arrivals_need(set, &alone);
    wait_at_gate(1);
    rks_arrivals_need(set, &by_pieces);
    wait_for_calls(1);
    set_gates(false, false);
    wait_for_calls(2);
    assert_int_equal(said.status, RKS_OK);
    rks_arrivals_close(set);
}

/* Behind a slow link the rest waits while needs are likely, and comes in the end. */
static void the_rest_waits_for_the_next_needs(void **state)
{
    (void)state;
    enum { NEEDS = 5, EACH = 1000 };
    rks_need needs[NEEDS];
    rks_home gated;
    rks_home_ops ops;
    rks_arrival_wish two[2];
    rks_arrivals_count counted;
    rks_arrivals *set = open_gated(&gated, &ops, two);
    const uint64_t begun = rks_now_ms();
    rks_arrivals_go(set, true);
    for (int i = 0; i < NEEDS; i++) {
        needs[i] = (rks_need){.first = RKS_PIECE + EACH * (uint64_t)i, .check = all_right};
        needs[i].end = needs[i].first + EACH;
        needs[i].here = note;
        rks_arrivals_need(set, &needs[i]);
        wait_for_calls(i + 1);
        usleep(20000); /* a step */
        rks_arrivals_counted(set, &counted);
        if (rks_now_ms() - begun < 200) /* else the pause is over, on a slow machine */
            assert_int_equal(counted.here, 0);
    }
    bool whole = false;
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &err), &err);
    assert_true(whole);
    rks_arrivals_close(set);
}

static void ranks_that_ask_take_turns(void **state)
{
    (void)state;
    enum { MANY = 50, EACH = 1000, HELD = RKS_ARRIVALS_THREADS - 1 };
    static rks_need needs[MANY + 1];
    rks_need held[HELD];
    rks_home gated;
    rks_home_ops ops;
    rks_arrival_wish two[2];
    rks_arrivals *set = open_gated(&gated, &ops, two);
    set_gates(true, true);
    hold_threads(set, held, HELD); /* one thread is left */
    first_count = 0;
    for (size_t i = 0; i <= MANY; i++) { /* rank 0 reads far ahead, then rank 3 wants one record */
        needs[i] = (rks_need){.first = RKS_PIECE + i * EACH,
                              .end = RKS_PIECE + (i + 1) * EACH,
                              .check = all_right,
                              .here = note,
                              .asker = i == MANY ? 3 : 0};
        rks_arrivals_need(set, &needs[i]);
    }
    wait_at_gate(HELD + 1);
    set_gates(false, true);
    wait_for_calls(MANY + 1);
    assert_int_equal(first_count, MANY + 1);
    assert_true(firsts[1] == needs[MANY].first || firsts[2] == needs[MANY].first);
    set_gates(false, false);
    rks_arrivals_close(set);
}

static atomic_ullong largest_read;

/* A link of 100 MB/s, on which a piece is slow. */
static rks_status read_slowly(void *state, rks_home_read *read, rks_error *why)
{
    const unsigned long long bytes = read->end - read->first;
    unsigned long long before = atomic_load(&largest_read);
    while (bytes > before && !atomic_compare_exchange_weak(&largest_read, &before, bytes)) {
    }
    usleep((useconds_t)(bytes / 100));
    return rks_home_directory.read(state, read, why);
}

/* Nobody waits for records, so the rest comes in large requests from its first one on. */
static void a_set_that_nobody_reads_comes_at_once(void **state)
{
    (void)state;
    rks_home gated;
    rks_home_ops ops;
    rks_arrival_wish two[2];
    bool whole = false;
    rks_arrivals *set = open_gated(&gated, &ops, two);
    ops.read = read_slowly;
    atomic_store(&largest_read, 0);
    rks_arrivals_go(set, false);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &err), &err);
    assert_true(whole);
    assert_true(atomic_load(&largest_read) > RKS_PIECE);
    rks_arrivals_close(set);
}

/* A rank that has not got the shard whole yet. */
static rks_status read_later(void *state, rks_home_read *read, rks_error *unused)
{
    rks_error why;
    (void)state;
    (void)unused;
    rks_fail(&why, RKS_ERR_NOT_FOUND, 0, "not whole here yet");
    pthread_mutex_lock(&mutex);
    calls++;
    pthread_mutex_unlock(&mutex);
    read->done(read, RKS_HOME_BUSY, &why);
    return RKS_OK;
}

static void a_copy_that_waits_for_its_holder_is_in_nobodys_way(void **state)
{
    (void)state;
    rks_home_ops ops = rks_home_directory;
    ops.read = read_later;
    rks_home holder = *home;
    holder.ops = &ops;
    holder.limits.timeout_ms = holder.limits.tell_ms = UINT32_MAX;
    rks_arrival_wish copy = wishes[0];
    copy.holder = &holder;
    copy.optional = true;
    rks_arrivals *waits = NULL, *other = NULL;
    bool whole = false;
    calls = 0;
    assert_ok(rks_arrivals_open(&copy, 1, false, &waits, &err), &err);
    while (calls_so_far() == 0)
        usleep(1000);
    assert_ok(rks_arrivals_open(wishes, 1, false, &other, &err), &err);
    assert_ok(rks_arrivals_wait(other, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &err), &err);
    assert_true(whole);
    rks_arrivals_close(other);
    rks_arrivals_close(waits);
    check_whole("a");
}

/* It is no failure of the set, but nobody may wait for it for ever. */
static void needs_of_a_copy_that_fails_end(void **state)
{
    (void)state;
    rks_arrivals *set = NULL;
    bool all = false;
    rks_need need = {.shard = 0, .first = 2 * RKS_PIECE, .end = 2 * RKS_PIECE + 1, .here = note};
    rks_arrival_wish copy = wishes[0];
    copy.optional = true;
    calls = 0;
    flip("rks", 2 * RKS_PIECE + 1);
    assert_ok(rks_arrivals_open(&copy, 1, true, &set, &err), &err);
    rks_arrivals_need(set, &need);
    rks_arrivals_go(set, true);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_ALL, LIMIT_MS, &all, &err), &err);
    assert_true(all);
    wait_for_calls(1);
    assert_int_equal(said.status, RKS_ERR_CORRUPT);
    rks_need late = need;
    rks_arrivals_need(set, &late);
    assert_int_equal(calls_so_far(), 2);
    assert_int_equal(said.status, RKS_ERR_CORRUPT);
    assert_contains(said.text, "a.rks: the MiB at offset 2097152 is not");
    rks_arrivals_close(set);
    flip("rks", 2 * RKS_PIECE + 1);
}

/* ---- two at once, no room, no memory -----------------------------------------------------------
 */

static void *bring_beside(void *brought)
{
    static rks_error why;
    rks_arrivals *set = NULL;
    rks_arrivals_count counted;
    bool whole = false;
    if (rks_arrivals_open(wishes, SHARDS, false, &set, &why) != RKS_OK)
        return &why;
    rks_status status = rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &whole, &why);
    rks_arrivals_counted(set, &counted);
    *(uint64_t *)brought = counted.brought;
    rks_arrivals_close(set);
    return status == RKS_OK && whole ? NULL : &why;
}

static void two_jobs_bring_into_one_directory(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        pthread_t other;
        uint64_t mine = 0, theirs = 0;
        void *why = NULL;
        assert_int_equal(pthread_create(&other, NULL, bring_beside, &theirs), 0);
        rks_status status = bring_all(SHARDS, &mine);
        pthread_join(other, &why);
        assert_ok(status, &err);
        if (why != NULL)
            fail_msg("%s", ((rks_error *)why)->text);
        for (size_t i = 0; i < SHARDS; i++)
            check_whole(names[i]);
        remove_local(NULL);
        make_local(NULL);
    }
}

/* Else the other one could not seal what it has brought. */
static void an_opening_that_fails_leaves_the_marks_of_others(void **state)
{
    (void)state;
    rks_arrival *mine = NULL, *other = NULL;
    bool whole = false, failed = true;
    bring_some(0xff);
    assert_ok(rks_arrival_open(&wishes[0], &mine, &whole, &err), &err);
    for (long n = 1; failed; n++) {
        rks_memory_fail_at(n);
        rks_status status = rks_arrival_open(&wishes[0], &other, &whole, &err);
        failed = rks_memory_fail_left() == 0;
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_arrival_close(other);
        assert_true(has_file("a", "pieces"));
    }
    assert_ok(rks_arrival_finish(mine, &err), &err);
    rks_arrival_close(mine);
    check_whole("a");
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    uint64_t brought = 0;
    bool failed = true;
    for (long n = 1; failed; n++) {
        rks_arrival *arrival = NULL;
        bool whole = false;
        rks_memory_fail_at(n);
        rks_status status = rks_arrival_open(&wishes[0], &arrival, &whole, &err);
        failed = rks_memory_fail_left() == 0;
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_arrival_close(arrival);
        assert_true(n < 1000);
        if (n % 3 == 0) { /* with and without what an earlier try has left */
            remove_local(NULL);
            make_local(NULL);
        }
    }
    assert_ok(bring_all(1, &brought), &err);
    check_whole("a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_come_whole_and_once, make_local, remove_local),
        cmocka_unit_test_setup_teardown(what_has_come_does_not_come_again, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(another_boot_checks_what_it_finds, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(an_end_that_was_killed_is_finished, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(lost_marks_and_lost_files_are_noticed, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(damage_at_home_is_named_and_never_written, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(a_missing_file_at_home_is_an_error, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(a_need_comes_while_the_rest_is_paused, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(a_failure_ends_its_needs_alone, make_local, remove_local),
        cmocka_unit_test_setup_teardown(needs_of_a_copy_that_fails_end, make_local, remove_local),
        cmocka_unit_test_setup_teardown(the_rest_waits_for_the_next_needs, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(ranks_that_ask_take_turns, make_local, remove_local),
        cmocka_unit_test_setup_teardown(a_set_that_nobody_reads_comes_at_once, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(a_copy_that_waits_for_its_holder_is_in_nobodys_way,
                                        make_local, remove_local),
        cmocka_unit_test_setup_teardown(a_need_ends_that_another_job_has_met, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(a_need_ends_whose_record_is_wrong_when_its_piece_is_here,
                                        make_local, remove_local),
        cmocka_unit_test_setup_teardown(two_jobs_bring_into_one_directory, make_local,
                                        remove_local),
        cmocka_unit_test_setup_teardown(an_opening_that_fails_leaves_the_marks_of_others,
                                        make_local, remove_local),
        cmocka_unit_test_setup_teardown(survives_each_failing_allocation, make_local, remove_local),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
