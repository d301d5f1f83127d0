/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lists.c: generations share the lists that hold their shards and units. */
#include "dataset_fixture.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "shard/json_text.h"

enum { APPENDS = 40, ENTRIES = 6 /* of each: two shards, four units */, ROWS = 11 };

static rks_schema *schema;
static long held; /* by the schema */

static void make_part(fixture *f, uint64_t number)
{
    good_fixture(f, schema);
    f->dataset.build_id = (rks_digest){number, 77};
    for (size_t i = 0; i < 2; i++) {
        f->shards[i].id = (rks_digest){1000 * (i + 1) + (number * 7919) % 997, number};
        snprintf(f->shards[i].name, sizeof(f->shards[i].name), "part-%d-%zu", (int)number, i);
    }
}

/* Loads what lies there, appends one part, commits. */
static rks_status append(uint64_t number)
{
    fixture f;
    rks_dataset *base = NULL, *joined = NULL;
    make_part(&f, number);
    if (number == 1)
        return rks_dataset_commit(test_directory, &f.dataset, &err);
    rks_status status = rks_dataset_load(test_directory, &base, &err);
    if (status == RKS_OK)
        status = rks_dataset_join(base, &f.dataset, &joined, &err);
    if (status == RKS_OK)
        status = rks_dataset_commit(test_directory, joined, &err);
    rks_dataset_free(base);
    rks_dataset_free(joined);
    return status;
}

static char *flat_text(const rks_dataset *dataset)
{
    char *text = NULL;
    size_t size = 0;
    assert_ok(rks_dataset_encode(dataset, &text, &size, &err), &err);
    return text;
}

static uint64_t bytes_of(const char *front)
{
    struct dirent *entry;
    struct stat info;
    uint64_t bytes = 0;
    DIR *stream = opendir(test_directory);
    while ((entry = readdir(stream)) != NULL)
        if (strncmp(entry->d_name, front, strlen(front)) == 0 &&
            fstatat(dirfd(stream), entry->d_name, &info, 0) == 0)
            bytes += (uint64_t)info.st_size;
    closedir(stream);
    return bytes;
}

static void expect_few_lists(const rks_dataset *dataset)
{
    uint64_t next = 0;
    assert_true(dataset->list_count <= 6); /* log2(240 / 16), and those that are inside */
    for (size_t i = dataset->list_count; i-- > 0;) {
        uint64_t entries = dataset->lists[i].shards + dataset->lists[i].units;
        assert_true(entries >= 2 * next);
        next = entries;
    }
}

static void each_generation_is_what_was_joined_and_lists_are_shared(void **state)
{
    (void)state;
    rks_dataset *all = NULL;
    char *texts[APPENDS + 1];
    directory_begin();
    for (uint64_t i = 1; i <= APPENDS; i++) {
        fixture f;
        rks_dataset *joined = NULL;
        make_part(&f, i);
        assert_ok(append(i), &err);
        if (i == 1) {
            texts[i] = flat_text(&f.dataset);
            continue;
        }
        fixture first;
        make_part(&first, 1);
        assert_ok(rks_dataset_join(all == NULL ? &first.dataset : all, &f.dataset, &joined, &err),
                  &err);
        rks_dataset_free(all);
        all = joined;
        texts[i] = flat_text(all);
    }
    rks_dataset_free(all);
    for (uint64_t i = 1; i <= APPENDS; i++) {
        rks_dataset *dataset = NULL;
        rks_dataset_summary summary;
        assert_ok(rks_dataset_load_generation(test_directory, i, &dataset, &err), &err);
        char *text = flat_text(dataset);
        assert_string_equal(text, texts[i]);
        assert_ok(rks_dataset_summarize(test_directory, i == APPENDS ? 0 : i, &summary, &err),
                  &err);
        assert_int_equal(summary.generation, i);
        assert_int_equal(summary.samples, i * ROWS);
        assert_int_equal(summary.bytes, rks_dataset_bytes(dataset));
        assert_true(rks_digest_equal(summary.id, dataset->id));
        assert_int_equal(dataset->list_count == 0, i * ENTRIES <= RKS_DATASET_INLINE);
        expect_few_lists(dataset);
        rks_free(text);
        rks_free(texts[i]);
        rks_dataset_free(dataset);
    }
    /* Each entry is written at most log2 times: not once for each later generation. */
    assert_in_range(bytes_of("list-"), 1, APPENDS * ENTRIES * 6 * 120);
    assert_in_range(bytes_of("dataset."), 1, APPENDS * (RKS_DATASET_INLINE * 340 + 6 * 150 + 800));
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

/* Appends up to the first generation with a list; its name. */
static void make_list(rks_dataset_list *list)
{
    rks_dataset_summary summary = {0};
    directory_begin();
    for (uint64_t i = 1; i <= 3; i++)
        assert_ok(append(i), &err);
    assert_ok(rks_dataset_summarize(test_directory, 0, &summary, &err), &err);
    assert_int_equal(summary.list_count, 1);
    *list = summary.lists[0];
}

static void an_earlier_reader_refuses_it_by_name(void **state)
{
    (void)state;
    rks_dataset_list list;
    rks_dataset *dataset = NULL;
    char *text = NULL;
    size_t size = 0;
    make_list(&list);
    assert_ok(rks_file_load(path_of("dataset.json"), 1 << 20, &text, &size, &err), &err);
    assert_contains(text, "\"requires\":[\"builds\",\"lists\"]");
    assert_fails(RKS_ERR_UNSUPPORTED, rks_dataset_decode(text, size, "d.json", &dataset, &err));
    assert_contains(err.text, "lists");
    rks_free(text);
    directory_end();
}

static void a_missing_or_damaged_list_is_named(void **state)
{
    (void)state;
    rks_dataset_list list;
    rks_dataset *dataset = NULL;
    char *bytes = NULL;
    size_t size = 0;
    make_list(&list);
    assert_ok(rks_file_load(path_of(list.name), 1 << 20, &bytes, &size, &err), &err);
    assert_int_equal(size, list.bytes);
    for (size_t i = 0; i < size; i += 5) {
        bytes[i] ^= 0x10;
        assert_ok(rks_file_replace(path_of(list.name), bytes, size, &err), &err);
        bytes[i] ^= 0x10;
        assert_fails(RKS_ERR_CORRUPT, rks_dataset_load(test_directory, &dataset, &err));
        assert_contains(err.text, list.name);
    }
    assert_int_equal(unlink(path_of(list.name)), 0);
    assert_fails(RKS_ERR_CORRUPT, rks_dataset_load(test_directory, &dataset, &err));
    assert_contains(err.text, "missing: dataset.json refers to it");
    rks_free(bytes);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

/* Whoever writes a list can also write its digest: each byte changed, and each end. */
static void hostile_lists_are_bounded(void **state)
{
    (void)state;
    rks_dataset_list list;
    char *bytes = NULL;
    size_t size = 0, taken = 0;
    make_list(&list);
    assert_ok(rks_file_load(path_of(list.name), 1 << 20, &bytes, &size, &err), &err);
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    for (size_t i = 0; i < 3 * size + size; i++) {
        rks_dataset *dataset = rks_alloc(1, sizeof(*dataset), &err);
        bool cut = i >= 3 * size;
        char *at = &bytes[cut ? 0 : i / 3];
        uint8_t flip = cut ? 0 : flips[i % 3];
        size_t length = cut ? i - 3 * size : size;
        rks_dataset_list other = list;
        *at = (char)(*at ^ flip);
        other.bytes = length;
        other.digest = rks_checksum128(bytes, length);
        rks_status status = rks_dataset_list_decode(&other, bytes, length, 1, "l", dataset, &err);
        assert_true(status == RKS_OK || status == RKS_ERR_CORRUPT);
        taken += status == RKS_OK;
        *at = (char)(*at ^ flip);
        rks_dataset_free(dataset);
    }
    assert_in_range(taken, 1, 3 * size);
    /* Counts that no file has. */
    rks_dataset *dataset = rks_alloc(1, sizeof(*dataset), &err);
    list.units = UINT64_MAX / 2;
    rks_store_u64(bytes + 16, list.units);
    list.digest = rks_checksum128(bytes, size);
    assert_fails(RKS_ERR_CORRUPT,
                 rks_dataset_list_decode(&list, bytes, size, 1, "l", dataset, &err));
    rks_dataset_free(dataset);
    rks_free(bytes);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

/* A changed text, with its digest. */
static void write_signed(const char *text, size_t size)
{
    rks_buffer json = {0};
    size_t tail = strlen(strrchr(text, ',')); /* of the digest's member */
    assert_ok(rks_buffer_add(&json, text, size - tail, &err), &err);
    assert_ok(rks_json_finish(&json, NULL, &err), &err);
    assert_int_equal(json.size, size);
    assert_ok(rks_file_replace(path_of("dataset.json"), json.data, json.size, &err), &err);
    rks_buffer_free(&json);
}

/* Names decide what is read, kept by a prune and written again. */
static void a_list_has_the_name_of_its_digest_and_is_there_once(void **state)
{
    (void)state;
    rks_dataset_list list;
    rks_dataset *dataset = NULL;
    rks_dataset_summary summary;
    char *text = NULL, other[64];
    size_t size = 0;
    make_list(&list);
    assert_ok(rks_file_load(path_of("dataset.json"), 1 << 20, &text, &size, &err), &err);
    char *at = strstr(text, list.name);
    assert_non_null(at);
    memcpy(other, list.name, sizeof(other));
    memcpy(other, "lost", 4);
    memcpy(at, other, strlen(other));
    write_signed(text, size);
    assert_fails(RKS_ERR_CORRUPT, rks_dataset_load(test_directory, &dataset, &err));
    assert_contains(err.text, other);
    assert_contains(err.text, "is not the name of a list");
    assert_fails(RKS_ERR_CORRUPT, rks_dataset_summarize(test_directory, 0, &summary, &err));
    rks_free(text);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

/* Its lists would have room for it; but ranks tell it each other as one text. */
static void what_cannot_be_opened_is_not_committed(void **state)
{
    (void)state;
    enum { UNITS = 27000, NAME = 400 };
    fixture f;
    rks_dataset *again = NULL;
    char *name = rks_alloc(NAME + 1, 1, &err);
    rks_dataset_unit *units = rks_alloc(UNITS, sizeof(*units), &err);
    directory_begin();
    assert_ok(append(1), &err);
    memset(name, 1, NAME);
    make_part(&f, 2);
    for (size_t i = 0; i < UNITS; i++)
        units[i] =
            i < 4 ? f.units[i]
                  : (rks_dataset_unit){.summary = {.unit = 3 + i}, .shard = 1, .key_name = name};
    f.dataset.units = units;
    f.dataset.unit_count = UNITS;
    f.dataset.generation = 2;
    f.dataset.id = rks_dataset_fold(units, UNITS, schema);
    assert_fails(RKS_ERR_DATA, rks_dataset_commit(test_directory, &f.dataset, &err));
    assert_contains(err.text, "at most 67108864 are allowed");
    assert_int_equal(bytes_of("list-"), 0);
    assert_ok(rks_dataset_load(test_directory, &again, &err), &err);
    assert_true(again->generation <= 1);
    rks_dataset_free(again);
    rks_free(units);
    rks_free(name);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

/* Lists that the newest generation does not refer to, as a prune that keeps nothing else. */
static void remove_other_lists(void)
{
    struct dirent *entry;
    rks_dataset_summary now;
    assert_ok(rks_dataset_summarize(test_directory, 0, &now, &err), &err);
    DIR *stream = opendir(test_directory);
    while ((entry = readdir(stream)) != NULL) {
        bool named = strncmp(entry->d_name, "list-", 5) != 0;
        for (size_t i = 0; i < now.list_count && !named; i++)
            named = strcmp(now.lists[i].name, entry->d_name) == 0;
        if (!named)
            unlinkat(dirfd(stream), entry->d_name, 0);
    }
    closedir(stream);
}

typedef struct reading {
    atomic_bool end;
    uint64_t read, failed;
    rks_error error;
} reading;

static void *read_again_and_again(void *user)
{
    reading *r = user;
    while (!atomic_load(&r->end)) {
        rks_dataset *dataset = NULL;
        rks_error why;
        if (rks_dataset_load(test_directory, &dataset, &why) != RKS_OK) {
            r->error = why;
            r->failed++;
        }
        r->read++;
        rks_dataset_free(dataset);
    }
    return NULL;
}

static void a_prune_beside_a_reader_takes_nothing_of_the_newest(void **state)
{
    (void)state;
    pthread_t thread;
    reading r = {0};
    directory_begin();
    assert_ok(append(1), &err);
    assert_int_equal(pthread_create(&thread, NULL, read_again_and_again, &r), 0);
    for (uint64_t i = 2; i <= 80; i++) {
        assert_ok(append(i), &err);
        remove_other_lists();
    }
    atomic_store(&r.end, true);
    pthread_join(thread, NULL);
    if (r.failed > 0)
        fail_msg("%d of %d: %s", (int)r.failed, (int)r.read, r.error.text);
    assert_true(r.read > 0);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

/* A directory that has not the lists of the dataset's own one gets all in one new list. */
static void another_directory_gets_lists_of_its_own(void **state)
{
    (void)state;
    rks_dataset_list list;
    fixture f;
    rks_dataset *base = NULL, *joined = NULL, *again = NULL;
    make_list(&list);
    make_part(&f, 4);
    assert_ok(rks_dataset_load(test_directory, &base, &err), &err);
    assert_ok(rks_dataset_join(base, &f.dataset, &joined, &err), &err);
    char *other = rks_format(&err, "%s/other", test_directory);
    assert_ok(rks_directory_make(other, &err), &err);
    assert_ok(rks_dataset_commit(other, joined, &err), &err);
    assert_ok(rks_dataset_load(other, &again, &err), &err);
    char *one = flat_text(joined), *two = flat_text(again);
    assert_string_equal(one, two);
    assert_int_equal(again->list_count, 1);
    assert_int_equal(again->lists[0].shards, 8);
    rks_free(one);
    rks_free(two);
    char *name = rks_format(&err, "%s/%s", other, again->lists[0].name);
    assert_int_equal(unlink(name), 0);
    rks_free(name);
    name = rks_format(&err, "%s/dataset.json", other);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(rmdir(other), 0);
    rks_free(name);
    rks_free(other);
    rks_dataset_free(base);
    rks_dataset_free(joined);
    rks_dataset_free(again);
    directory_end();
    assert_int_equal(rks_memory_in_use(), held);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    rks_dataset_list list;
    rks_status status = RKS_ERR_MEMORY;
    long nth = 1;
    make_list(&list);
    for (; status != RKS_OK; nth++) {
        assert_true(nth < 2000);
        rks_memory_fail_at(nth);
        status = append(4);
        rks_memory_fail_at(0);
        if (status == RKS_ERR_DATA) /* committed, and then the directory's sync failed */
            break;
        assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
        assert_int_equal(rks_memory_in_use(), held);
    }
    assert_true(nth > 60);
    directory_end();
}

static int begin(void **state)
{
    (void)state;
    schema = schema_of("t:str,n:int64");
    held = rks_memory_in_use();
    return 0;
}

static int no_schema(void **state)
{
    (void)state;
    rks_schema_free(schema);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_generation_is_what_was_joined_and_lists_are_shared),
        cmocka_unit_test(an_earlier_reader_refuses_it_by_name),
        cmocka_unit_test(a_missing_or_damaged_list_is_named),
        cmocka_unit_test(hostile_lists_are_bounded),
        cmocka_unit_test(a_list_has_the_name_of_its_digest_and_is_there_once),
        cmocka_unit_test(a_prune_beside_a_reader_takes_nothing_of_the_newest),
        cmocka_unit_test(what_cannot_be_opened_is_not_committed),
        cmocka_unit_test(another_directory_gets_lists_of_its_own),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("lists", tests, begin, no_schema);
}
