/* SPDX-License-Identifier: Apache-2.0
 *
 * test_index.c: the index's memory, where samples lie, and ids by hash. */
#include "index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/scratch.h"
#include "base/shared_memory.h"
#include "index/index_layout.h"
#include "layouts.h"
#include "support/folder.h"

static rks_error err;
static layout_random the_random;

static void tells_its_size_and_refuses_too_many_samples(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    rks_index_column columns[2] = {{"a", 8, "int64"}, {"b", 1, "bool"}};
    rks_index_layout layout = {.count = 1000, .columns = columns, .column_count = 2};
    assert_ok(rks_index_size(&layout, &bytes, &err), &err);
    assert_true(bytes >= 21000 && bytes < 21000 + 4 * 64 + 4096);
    layout.count = UINT32_MAX;
    assert_ok(rks_index_size(&layout, &bytes, &err), &err);
    assert_true(bytes >= UINT64_C(21) * UINT32_MAX);
    layout.count = (uint64_t)UINT32_MAX + 1;
    assert_fails(RKS_ERR_UNSUPPORTED, rks_index_size(&layout, &bytes, &err));
    assert_contains(err.text, "4294967296");
    layout.count = UINT64_MAX;
    assert_fails(RKS_ERR_UNSUPPORTED, rks_index_size(&layout, &bytes, &err));
    layout.count = 10;
    columns[1].item_size = 0;
    assert_fails(RKS_ERR_ARGUMENT, rks_index_size(&layout, &bytes, &err));
    columns[1].item_size = UINT32_MAX;
    assert_fails(RKS_ERR_ARGUMENT, rks_index_size(&layout, &bytes, &err));
    layout.column_count = 5000;
    assert_fails(RKS_ERR_ARGUMENT, rks_index_size(&layout, &bytes, &err));
}

static void refuses_spans_that_do_not_hold_each_id_and_row_once(void **state)
{
    (void)state;
    static const struct {
        uint64_t count;
        rks_span spans[2];
    } cases[] = {
        {20, {{0, 10, 0, 0}, {11, 9, 1, 0}}},               /* a gap */
        {20, {{0, 10, 0, 0}, {9, 11, 1, 0}}},               /* an overlap */
        {20, {{1, 10, 0, 0}, {11, 9, 1, 0}}},               /* does not begin at 0 */
        {20, {{0, 20, 0, 0}, {20, 0, 1, 0}}},               /* an empty span */
        {20, {{0, 10, 0, 0}, {10, 9, 1, 0}}},               /* too few */
        {20, {{0, 10, 0, 0}, {10, 11, 1, 0}}},              /* too many */
        {20, {{0, 10, 0, 0}, {10, UINT64_MAX, 1, 0}}},      /* the sum overflows */
        {20, {{0, 10, 0, 0}, {10, 10, 1, UINT64_MAX - 5}}}, /* rows overflow */
        {20, {{0, 10, 3, 5}, {10, 10, 3, 14}}},             /* row 14 twice */
        {20, {{0, 10, 3, 14}, {10, 10, 3, 5}}},             /* the same, other order */
        {20, {{0, 10, 3, 5}, {10, 10, 3, 5}}},              /* all rows twice */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_index_layout layout = {cases[i].count, cases[i].spans, 2, NULL, 0};
        int fd = -1;
        rks_index *index = NULL;
        assert_ok(rks_index_memory(&layout, NULL, &fd, &err), &err);
        assert_fails(RKS_ERR_ARGUMENT, rks_index_open(&layout, fd, &index, &err));
        assert_null(index);
        assert_int_equal(close(fd), 0); /* still the caller's */
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void refuses_memory_of_another_size(void **state)
{
    (void)state;
    rks_span spans[] = {{0, 5000, 0, 0}};
    rks_index_layout layout = {5000, spans, 1, NULL, 0};
    int fd = -1;
    rks_index *index = NULL;
    assert_ok(rks_shared_memfd("index", 8192, &fd, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_index_open(&layout, fd, &index, &err));
    close(fd);
    assert_fails(RKS_ERR_IO, rks_index_open(&layout, -1, &index, &err));
}

static void maps_are_shared_and_read_only_after_the_seal(void **state)
{
    (void)state;
    rks_span spans[] = {{0, 3000, 0, 0}};
    rks_index_layout layout = {3000, spans, 1, NULL, 0};
    int fd = -1;
    rks_index *leader = NULL, *other = NULL;
    assert_ok(rks_index_memory(&layout, NULL, &fd, &err), &err);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 4096), -1); /* nobody can make a reader fault */
    int copy = dup(fd);
    assert_ok(rks_index_open(&layout, fd, &leader, &err), &err);
    assert_ok(rks_index_open(&layout, copy, &other, &err), &err);
    assert_true(fcntl(copy, F_GETFD) & FD_CLOEXEC);
    rks_index_lengths(leader)[2999] = 7;
    assert_int_equal(rks_index_lengths(other)[2999], 7);

    assert_ok(rks_index_seal(leader, true, &err), &err);
    rks_index_lengths(other)[0] = 9; /* a rank that has not sealed yet has its map */
    assert_ok(rks_index_seal(other, false, &err), &err);
    assert_int_equal(rks_index_lengths(leader)[0], 9);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
    assert_ptr_equal(map, MAP_FAILED);
    assert_int_equal(write(copy, "x", 1), -1);
    /* The first page of the map cannot be read into: it is read-only. */
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(zero, rks_index_lengths(leader), 4), -1);
    assert_int_equal(errno, EFAULT);
    close(zero);
    rks_index_close(leader);
    rks_index_close(other);
    rks_index_close(NULL);
}

static void an_unnamed_file_leaves_no_name(void **state)
{
    (void)state;
    char directory[] = "/tmp/rks-index-XXXXXX";
    assert_non_null(mkdtemp(directory));
    int fd = -1;
    assert_ok(rks_shared_file("index", 36864, directory, &fd, &err), &err);
    struct stat stat;
    assert_int_equal(fstat(fd, &stat), 0);
    assert_int_equal(stat.st_size, 36864);
    assert_int_equal(stat.st_nlink, 0);
    assert_true(stat.st_blocks * 512 >= 36864);
    rks_span spans[] = {{0, 3000, 0, 0}};
    rks_index_layout layout = {3000, spans, 1, NULL, 0};
    rks_index *index = NULL;
    assert_ok(rks_index_open(&layout, fd, &index, &err), &err);
    layout_fill(index, &layout, 1);
    assert_ok(rks_index_seal(index, true, &err), &err);
    rks_index_close(index);
    assert_int_equal(rmdir(directory), 0); /* empty */
    assert_fails(RKS_ERR_IO, rks_shared_file("index", 4096, directory, &fd, &err));
    assert_contains(err.text, directory);
}

/* The machine as the tests want it. */
static uint64_t pretended_memory;
static const char *pretended_shared; /* a path on NFS, or "*": all are */

uint64_t __wrap_rks_memory_available(const char *root);
const char *__wrap_rks_shared_filesystem(const char *path, bool *memory);

uint64_t __wrap_rks_memory_available(const char *root)
{
    assert_string_equal(root, "");
    return pretended_memory;
}

const char *__wrap_rks_shared_filesystem(const char *path, bool *memory)
{
    *memory = false;
    return strcmp(pretended_shared, "*") == 0 || strcmp(pretended_shared, path) == 0 ? "NFS" : NULL;
}

/* Whether the descriptor is an unnamed file in that directory. */
static bool is_file_in(int fd, const char *directory)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof(path) - 1) > 0 &&
           strncmp(path, directory, strlen(directory)) == 0 && strstr(path, "(deleted)") != NULL;
}

static void large_memory_goes_where_it_is_told(void **state)
{
    (void)state;
    char own[FOLDER_PATH];
    assert_true(folder_make(own));
    const struct {
        const char *directory; /* index_dir */
        uint64_t available;
        const char *shared;
        const char *file; /* where it goes; NULL: memory */
    } cases[] = {
        {own, 1 << 20, "", own},         /* named, although memory would do */
        {own, 0, "*", own},              /* named, although it is shared */
        {NULL, 4 * 8192 + 4, "*", NULL}, /* less than a quarter */
        {NULL, 4 * 8192, "", own},       /* TMPDIR first */
        {NULL, 0, own, "/tmp/"},
    };
    setenv("TMPDIR", own, 1);
    rks_shared_memory_memfd_max(8191);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int fd = -1, small = -1;
        pretended_memory = cases[i].available;
        pretended_shared = cases[i].shared;
        assert_ok(rks_shared_memory("index", 8192, cases[i].directory, &fd, &err), &err);
        assert_ok(rks_shared_memory("index", 8191, cases[i].directory, &small, &err), &err);
        assert_int_equal(fcntl(fd, F_GET_SEALS) < 0, cases[i].file != NULL);
        assert_true(cases[i].file == NULL || is_file_in(fd, cases[i].file));
        assert_true(fcntl(small, F_GET_SEALS) >= 0);
        assert_ok(rks_shared_memory_seal("index", fd, &err), &err);
        close(fd);
        close(small);
    }
    rks_shared_memory_memfd_max(0);
    unsetenv("TMPDIR");
    assert_int_equal(rmdir(own), 0); /* empty */
}

/* As in a control group: the kernel would end a process that takes more. */
static void small_memory_goes_to_a_file_where_it_does_not_fit(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20;
    const struct {
        uint64_t bytes, available;
        const char *directory;
        bool file;
    } cases[] = {
        {16 * mib, 32 * mib, NULL, true},     {16 * mib, 32 * mib + 2, NULL, false},
        {16 * mib, 0, "/var/tmp", true},      {16 * mib, UINT64_MAX, "/var/tmp", false},
        {16 * mib - 1, 0, "/var/tmp", false}, /* too little to matter */
    };
    unsetenv("TMPDIR");
    pretended_shared = "";
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int fd = -1;
        pretended_memory = cases[i].available;
        assert_ok(rks_shared_memory("index", cases[i].bytes, cases[i].directory, &fd, &err), &err);
        assert_int_equal(fcntl(fd, F_GET_SEALS) < 0, cases[i].file);
        close(fd);
    }
    pretended_shared = "*";
    pretended_memory = 0;
    int none = -1;
    assert_fails(RKS_ERR_IO, rks_shared_memory("index", 16 * mib, NULL, &none, &err));
    assert_contains(err.text, "index: no memory and no local disk for 16 MB");
}

static void no_room_for_large_memory_names_index_dir(void **state)
{
    (void)state;
    int fd = -1;
    pretended_memory = 0;
    pretended_shared = "*";
    unsetenv("TMPDIR");
    rks_shared_memory_memfd_max(8191);
    assert_fails(RKS_ERR_IO, rks_shared_memory("index", 5000000, NULL, &fd, &err));
    assert_string_equal(err.text,
                        "index: no memory and no local disk for 5 MB (/tmp: NFS, /var/tmp: NFS); "
                        "name a directory with index_dir");
    assert_fails(RKS_ERR_IO,
                 rks_shared_memory("index", 8192, "/tmp/rks-no-such-directory", &fd, &err));
    assert_contains(err.text, "index in /tmp/rks-no-such-directory: No such file or directory");
    rks_shared_memory_memfd_max(0);
}

static void a_limit_on_file_sizes_is_an_error_and_no_signal(void **state)
{
    (void)state;
    struct rlimit old, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int fd = -1;
    rks_status memory = rks_shared_memfd("index", 1 << 20, &fd, &err);
    rks_status file = rks_shared_file("index", 1 << 20, "/tmp", &fd, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_fails(RKS_ERR_IO, memory);
    assert_fails(RKS_ERR_IO, file);
    assert_contains(err.text, "ulimit -f");
    assert_int_equal(fd, -1);
}

static void a_full_disk_is_an_error_and_no_signal(void **state)
{
    (void)state;
    int fd = -1; /* no disk has this much */
    assert_fails(RKS_ERR_IO, rks_shared_file("index", UINT64_C(1) << 53, "/tmp", &fd, &err));
    assert_contains(err.text, "/tmp");
    assert_int_equal(fd, -1);
}

static void an_empty_dataset_has_an_index(void **state)
{
    (void)state;
    rks_index_layout layout = {0};
    rks_index *index = layout_open(&layout);
    assert_int_equal(rks_index_count(index), 0);
    assert_int_equal(rks_index_stream_size(index, 0), 0);
    assert_ok(rks_index_find(index, 5, NULL, NULL, &err), &err);
    assert_ok(rks_index_equal_hashes(index, 0, 1, NULL, NULL, &err), &err);
    assert_ok(rks_index_seal(index, true, &err), &err);
    rks_index_close(index);
}

static void check_against_table(const rks_index_layout *layout)
{
    rks_index *index = layout_open(layout);
    assert_int_equal(rks_index_count(index), layout->count);
    for (size_t i = 0; i < layout->span_count; i++) {
        const rks_span *span = &layout->spans[i];
        for (uint64_t j = 0; j < span->count; j++) {
            uint32_t shard = UINT32_MAX;
            uint64_t row = UINT64_MAX;
            rks_index_locate(index, span->first_id + j, &shard, &row);
            assert_int_equal(shard, span->shard);
            assert_int_equal(row, span->first_row + j);
        }
    }
    rks_index_close(index);
}

static void locates_as_a_plain_table_does(void **state)
{
    (void)state;
    static const struct {
        size_t spans;
        uint64_t samples;
        uint32_t shards;
    } cases[] = {{1, 1, 1}, {1, 1000, 1}, {2, 3, 2}, {100, 1, 5}, {300, 50, 7}, {40, 3000, 3}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int gaps = 0; gaps < 2; gaps++) {
            rks_span *spans;
            rks_index_layout layout = layout_make(&the_random, cases[i].spans, cases[i].samples,
                                                  cases[i].shards, gaps, &spans);
            check_against_table(&layout);
            free(spans);
        }
    }
}

static void locates_among_very_uneven_spans(void **state)
{
    (void)state;
    /* 2,000 spans of one sample after one of 40,000, and before another: one block holds many. */
    rks_span *spans = calloc(2002, sizeof(*spans));
    rks_index_layout layout = {.spans = spans, .span_count = 2002};
    for (size_t i = 0; i < 2002; i++) {
        uint64_t count = i == 0 || i == 2001 ? 40000 : 1;
        spans[i] = (rks_span){layout.count, count, 1, layout.count};
        layout.count += count;
    }
    check_against_table(&layout);
    free(spans);
}

typedef struct found_ids {
    uint64_t ids[8];
    size_t count;
    size_t limit;
} found_ids;

static bool collect(void *user, uint64_t id)
{
    found_ids *found = user;
    found->ids[found->count++] = id;
    return found->count < found->limit;
}

static void finds_each_id_by_its_hash(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < 6000; count = count * 3 + 1) {
        rks_span spans[] = {{0, count, 0, 0}};
        rks_index_layout layout = {count, spans, 1, NULL, 0};
        rks_index *index = layout_open(&layout);
        layout_fill(index, &layout, layout_next(&the_random));
        uint64_t *hashes = rks_index_key_hashes(index);
        uint64_t planted[3] = {0, count / 2, count - 1};
        for (int i = 0; i < 3; i++)
            hashes[planted[i]] = UINT64_MAX;
        for (uint64_t id = 0; id < count; id++) {
            found_ids found = {.limit = 8};
            assert_ok(rks_index_find(index, hashes[id], collect, &found, &err), &err);
            if (hashes[id] != UINT64_MAX) {
                assert_int_equal(found.count, 1);
                assert_int_equal(found.ids[0], id);
            }
        }
        found_ids found = {.limit = 8};
        assert_ok(rks_index_find(index, UINT64_MAX, collect, &found, &err), &err);
        for (size_t i = 1; i < found.count; i++)
            assert_true(found.ids[i - 1] < found.ids[i]);
        assert_int_equal(found.count, count == 1 ? 1 : 3);
        found = (found_ids){.limit = 1};
        assert_ok(rks_index_find(index, UINT64_MAX, collect, &found, &err), &err);
        assert_int_equal(found.count, 1); /* visit ended it */
        found = (found_ids){.limit = 8};
        assert_ok(rks_index_find(index, 12345, collect, &found, &err), &err);
        assert_int_equal(found.count, 0);
        rks_index_close(index);
    }
}

static void *find_many(void *user)
{
    rks_index *index = user;
    rks_error error;
    for (uint64_t id = 0; id < rks_index_count(index); id += 7) {
        found_ids found = {.limit = 8};
        if (rks_index_find(index, rks_index_key_hashes(index)[id], collect, &found, &error) !=
                RKS_OK ||
            found.count != 1 || found.ids[0] != id)
            return user;
    }
    return NULL;
}

static void the_table_to_find_in_may_lie_in_a_file(void **state)
{
    rks_scratch_memory_max(1);
    finds_each_id_by_its_hash(state);
    rks_scratch_memory_max(0);
}

static void threads_may_find_at_once(void **state)
{
    (void)state;
    rks_span spans[] = {{0, 20000, 0, 0}};
    rks_index_layout layout = {20000, spans, 1, NULL, 0};
    rks_index *index = layout_open(&layout);
    layout_fill(index, &layout, 5);
    assert_ok(rks_index_seal(index, true, &err), &err);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, find_many, index), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(threads[i], &bad);
        assert_null(bad);
    }
    rks_index_close(index);
}

typedef struct pair_list {
    const uint64_t *hashes;
    uint64_t last;
    size_t count;
    size_t fail_at;
} pair_list;

static rks_status take_pair(void *user, uint64_t a, uint64_t b, rks_error *error)
{
    (void)error;
    pair_list *list = user;
    assert_true(a < b);
    assert_int_equal(list->hashes[a], list->hashes[b]);
    assert_true(list->count == 0 || list->last <= list->hashes[a]);
    list->last = list->hashes[a];
    list->count++;
    return list->count == list->fail_at ? RKS_ERR_DATA : RKS_OK;
}

static void reports_equal_hashes_in_each_partition_once(void **state)
{
    (void)state;
    uint64_t count = 30000;
    rks_span spans[] = {{0, count, 0, 0}};
    rks_index_layout layout = {count, spans, 1, NULL, 0};
    rks_index *index = layout_open(&layout);
    uint64_t *hashes = rks_index_key_hashes(index);
    pair_list all = {.hashes = hashes};
    for (uint32_t parts = 1; parts < 9; parts += 3) {
        layout_fill(index, &layout, layout_next(&the_random));
        for (uint64_t i = 0; i < 100; i++) /* 100 pairs, then a group of 51 */
            hashes[i] = hashes[count - 1 - i];
        for (uint64_t i = 1000; i < 1051; i++)
            hashes[i] = 77;
        size_t pairs = 0;
        for (uint32_t part = 0; part < parts; part++) {
            all.count = 0;
            assert_ok(rks_index_equal_hashes(index, part, parts, take_pair, &all, &err), &err);
            pairs += all.count;
        }
        assert_int_equal(pairs, 150);
    }
    for (uint64_t i = 0; i < count; i++) /* as hostile as can be */
        hashes[i] = 0x0102030405060708;
    all.count = 0;
    assert_ok(rks_index_equal_hashes(index, 0, 1, take_pair, &all, &err), &err);
    assert_int_equal(all.count, count - 1);
    all = (pair_list){.hashes = hashes, .fail_at = 3};
    assert_fails(RKS_ERR_DATA, rks_index_equal_hashes(index, 0, 1, take_pair, &all, &err));
    assert_int_equal(all.count, 3);
    assert_fails(RKS_ERR_ARGUMENT, rks_index_equal_hashes(index, 2, 2, take_pair, &all, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_index_equal_hashes(index, 0, 0, take_pair, &all, &err));
    rks_index_close(index);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

/* All pairs of ids with equal hashes, in the order in which they are told. */
typedef struct told_pairs {
    uint64_t ids[2 * 4096];
    size_t count;
} told_pairs;

static rks_status note_pair(void *user, uint64_t a, uint64_t b, rks_error *error)
{
    (void)error;
    told_pairs *told = user;
    assert_true(told->count + 2 <= sizeof(told->ids) / sizeof(told->ids[0]));
    told->ids[told->count++] = a;
    told->ids[told->count++] = b;
    return RKS_OK;
}

/* Some spread over all numbers, some that differ late, many of one value. */
static void fill_hostile(uint64_t *hashes, uint64_t count)
{
    for (uint64_t id = 0; id < count; id++) {
        uint64_t any = layout_next(&the_random);
        hashes[id] = any % 4 == 0   ? any >> 50 << 50
                     : any % 4 == 1 ? UINT64_C(0xabcdef0123450000) | (any >> 8 & 63)
                     : any % 4 == 2 ? UINT64_MAX - (any >> 8 & 1)
                                    : any >> 8 & 0xff000000000000ff;
    }
}

static void equal_hashes_are_the_same_however_few_are_looked_at_at_a_time(void **state)
{
    (void)state;
    static told_pairs all, again;
    uint64_t count = 3000;
    rks_span spans[] = {{0, count, 0, 0}};
    rks_index_layout layout = {count, spans, 1, NULL, 0};
    rks_index *index = layout_open(&layout);
    layout_fill(index, &layout, 1);
    fill_hostile(rks_index_key_hashes(index), count);
    for (uint32_t parts = 1; parts < 4; parts += 2)
        for (uint32_t part = 0; part < parts; part++) {
            all.count = 0;
            assert_ok(rks_index_equal_hashes(index, part, parts, note_pair, &all, &err), &err);
            assert_true(all.count > 100);
            for (size_t room = 1; room < 2000; room = room * 5 + 2) {
                rks_index_entries_max(room);
                again.count = 0;
                assert_ok(rks_index_equal_hashes(index, part, parts, note_pair, &again, &err),
                          &err);
                assert_int_equal(again.count, all.count);
                assert_memory_equal(again.ids, all.ids, all.count * sizeof(all.ids[0]));
            }
            rks_index_entries_max(16u << 20);
        }
    rks_index_close(index);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_span spans[] = {{0, 100, 0, 0}, {100, 50, 1, 0}};
    rks_index_column columns[] = {{"a", 8, "int64"}};
    rks_index_layout layout = {150, spans, 2, columns, 1};
    bool passed = false;
    for (long nth = 1; !passed; nth++) {
        assert_true(nth < 100);
        int fd = -1;
        assert_ok(rks_index_memory(&layout, NULL, &fd, &err), &err);
        rks_index *index = NULL;
        pair_list list = {0};
        found_ids found = {.limit = 8};
        rks_memory_fail_at(nth);
        rks_status status = rks_index_open(&layout, fd, &index, &err);
        if (status == RKS_OK) {
            list.hashes = rks_index_key_hashes(index);
            status = rks_index_find(index, 5, collect, &found, &err);
            if (status == RKS_OK)
                status = rks_index_equal_hashes(index, 0, 1, take_pair, &list, &err);
        } else {
            close(fd);
        }
        passed = status == RKS_OK;
        rks_memory_fail_at(0);
        if (!passed)
            assert_int_equal(status, RKS_ERR_MEMORY);
        if (index != NULL) /* it goes on after a failure */
            assert_ok(rks_index_find(index, 5, collect, &found, &err), &err);
        rks_index_close(index);
        assert_int_equal(rks_memory_in_use(), 0);
        assert_int_equal(counted_memory(), 0);
    }
}

int main(void)
{
    the_random = layout_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_its_size_and_refuses_too_many_samples),
        cmocka_unit_test(refuses_spans_that_do_not_hold_each_id_and_row_once),
        cmocka_unit_test(refuses_memory_of_another_size),
        cmocka_unit_test(maps_are_shared_and_read_only_after_the_seal),
        cmocka_unit_test(an_unnamed_file_leaves_no_name),
        cmocka_unit_test(large_memory_goes_where_it_is_told),
        cmocka_unit_test(no_room_for_large_memory_names_index_dir),
        cmocka_unit_test(small_memory_goes_to_a_file_where_it_does_not_fit),
        cmocka_unit_test(a_limit_on_file_sizes_is_an_error_and_no_signal),
        cmocka_unit_test(a_full_disk_is_an_error_and_no_signal),
        cmocka_unit_test(an_empty_dataset_has_an_index),
        cmocka_unit_test(locates_as_a_plain_table_does),
        cmocka_unit_test(locates_among_very_uneven_spans),
        cmocka_unit_test(finds_each_id_by_its_hash),
        cmocka_unit_test(the_table_to_find_in_may_lie_in_a_file),
        cmocka_unit_test(threads_may_find_at_once),
        cmocka_unit_test(reports_equal_hashes_in_each_partition_once),
        cmocka_unit_test(equal_hashes_are_the_same_however_few_are_looked_at_at_a_time),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
