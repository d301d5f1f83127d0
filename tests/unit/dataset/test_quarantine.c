/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quarantine.c: lists of samples that an open leaves out. */
#include "support/check.h"
#include "support/shards.h"

#include <stdlib.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "dataset/quarantine.h"
#include "shard/shard_check.h"

static rks_error err;
static char *directory;
static rks_dataset *dataset;

/* 100 samples in two shards. */
static int open_dataset(void **state)
{
    (void)state;
    static const char *const names[] = {"part-0", "part-1"};
    directory = shards_directory();
    shards_write(directory, names[0], &(shards_recipe){.samples = 60});
    shards_write(directory, names[1],
                 &(shards_recipe){.first = 60, .samples = 40, .first_unit = 3});
    shards_commit(directory, names, 2);
    assert_ok(rks_dataset_load(directory, &dataset, &err), &err);
    return 0;
}

static int close_dataset(void **state)
{
    (void)state;
    rks_dataset_free(dataset);
    dataset = NULL;
    shards_directory_remove(directory);
    return 0;
}

static char *list_path(void)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/list.json", directory);
    return path;
}

static void a_list_comes_back_sorted_and_once(void **state)
{
    (void)state;
    static const uint64_t ids[] = {70, 3, 99, 3, 0};
    static const char *const reasons[] = {"a \"quoted\" word", "x", "\xff", "y", NULL};
    uint32_t *read = NULL;
    size_t count = 0;
    assert_ok(rks_quarantine_write(list_path(), directory, ids, reasons, 5, &err), &err);
    assert_ok(rks_quarantine_load(list_path(), dataset, &read, &count, &err), &err);
    assert_int_equal(count, 4);
    static const uint32_t expected[] = {0, 3, 70, 99};
    assert_memory_equal(read, expected, sizeof(expected));
    rks_free(read);
}

static void an_id_that_is_not_there_is_refused(void **state)
{
    (void)state;
    static const uint64_t ids[] = {1, 100};
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_quarantine_write(list_path(), directory, ids, NULL, 2, &err));
    assert_contains(err.text, "100");
    assert_fails(RKS_ERR_NOT_FOUND, rks_quarantine_load(list_path(), dataset, &(uint32_t *){NULL},
                                                        &(size_t){0}, &err));
}

/* Text with a right digest. */
static rks_status decode(const char *middle)
{
    char text[1024], digits[RKS_DIGEST_TEXT];
    uint32_t *read = NULL;
    size_t count = 0;
    int size = snprintf(text, sizeof(text),
                        "{\"format\":{\"major\":1,\"minor\":0},\"requires\":[]%s,\"digest\":\""
                        "00000000000000000000000000000000\"}\n",
                        middle);
    rks_digest_format(rks_checksum128(text, (size_t)size), digits);
    memcpy(text + size - 3 - 32, digits, 32);
    rks_status status =
        rks_quarantine_decode(text, (size_t)size, "list", dataset, &read, &count, &err);
    rks_free(read);
    return status;
}

static void lists_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        rks_status status;
    } cases[] = {
        {"[]", RKS_OK},
        {"[{\"sample\":99}]", RKS_OK},
        {"[{\"sample\":100}]", RKS_ERR_CORRUPT},
        {"[{\"sample\":-1}]", RKS_ERR_CORRUPT},
        {"[{\"sample\":4294967299}]", RKS_ERR_CORRUPT},
        {"[{\"sample\":5},{\"sample\":5}]", RKS_ERR_CORRUPT},
        {"[{\"sample\":6},{\"sample\":5}]", RKS_ERR_CORRUPT},
        {"[5]", RKS_ERR_CORRUPT},
        {"[{}]", RKS_ERR_CORRUPT},
        {"{}", RKS_ERR_CORRUPT},
        {"7", RKS_ERR_CORRUPT},
    };
    char id[RKS_DIGEST_TEXT], middle[512];
    rks_digest_format(dataset->id, id);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(middle, sizeof(middle), ",\"dataset\":\"%s\",\"samples\":100,\"quarantine\":%s",
                 id, cases[i].list);
        assert_fails(cases[i].status, decode(middle));
    }
    snprintf(middle, sizeof(middle), ",\"dataset\":\"%s\",\"samples\":101,\"quarantine\":[]", id);
    assert_fails(RKS_ERR_DATA, decode(middle));
    id[0] = id[0] == '0' ? '1' : '0';
    snprintf(middle, sizeof(middle), ",\"dataset\":\"%s\",\"samples\":100,\"quarantine\":[]", id);
    assert_fails(RKS_ERR_DATA, decode(middle));
    assert_contains(err.text, id);
    assert_fails(RKS_ERR_CORRUPT, decode(",\"samples\":100,\"quarantine\":[]"));
}

static void every_cut_and_flip_is_refused(void **state)
{
    (void)state;
    static const uint64_t ids[] = {7, 8};
    size_t size = 0, count = 0;
    uint32_t *read = NULL;
    assert_ok(rks_quarantine_write(list_path(), directory, ids, NULL, 2, &err), &err);
    uint8_t *text = shards_load(directory, "list.json", &size);
    for (size_t at = 0; at < size; at++)
        assert_true(rks_quarantine_decode((char *)text, at, "list", dataset, &read, &count, &err) !=
                    RKS_OK);
    for (size_t at = 0; at < size; at++) {
        text[at] ^= 0x10;
        assert_true(rks_quarantine_decode((char *)text, size, "list", dataset, &read, &count,
                                          &err) != RKS_OK);
        text[at] ^= 0x10;
    }
    free(text);
}

static void note(void *user, const rks_finding *finding)
{
    int64_t *ids = user;
    for (size_t i = 0; i < 4; i++)
        if (ids[i] == -2) {
            ids[i] = finding->sample_id;
            return;
        }
}

static void verify_tells_the_id_of_a_damaged_sample(void **state)
{
    (void)state;
    int64_t ids[4] = {-2, -2, -2, -2};
    uint64_t samples = 0, findings = 0;
    rks_shard *shard = shards_open(directory, "part-1");
    rks_record_view view;
    uint64_t row = 11, id = 60 + row; /* units of part-1 follow those of part-0 */
    assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
    size_t offset = (size_t)(view.payload - rks_shard_map(shard)->bytes);
    rks_shard_close(shard);
    shards_flip(directory, "part-1.rks", offset, 0x01);
    assert_ok(rks_verify(directory, RKS_VERIFY_FAST, note, ids, &samples, &findings, &err), &err);
    assert_int_equal(findings, 1);
    assert_int_equal(ids[0], id);
    char path[512];
    snprintf(path, sizeof(path), "%s/part-1.rks", directory);
    ids[0] = -2;
    assert_ok(rks_verify(path, RKS_VERIFY_FAST, note, ids, &samples, &findings, &err), &err);
    assert_int_equal(ids[0], -1); /* the shard alone is no dataset */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_list_comes_back_sorted_and_once, open_dataset,
                                        close_dataset),
        cmocka_unit_test_setup_teardown(an_id_that_is_not_there_is_refused, open_dataset,
                                        close_dataset),
        cmocka_unit_test_setup_teardown(lists_that_lie_are_refused, open_dataset, close_dataset),
        cmocka_unit_test_setup_teardown(every_cut_and_flip_is_refused, open_dataset, close_dataset),
        cmocka_unit_test_setup_teardown(verify_tells_the_id_of_a_damaged_sample, open_dataset,
                                        close_dataset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
