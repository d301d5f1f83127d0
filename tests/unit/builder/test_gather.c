/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gather.c: uneven results of all ranks to one, in order, once each, or an error on all. */
#include "unit/store/world.h"

static const char SCHEMA[] = "frame:uint8[*],score:float32";

enum scene {
    UNEVEN,    /* rank r adds 30 * r results; parts of one name on several ranks */
    NOTHING,   /* no rank adds any */
    TWICE,     /* rank 1 and rank 2 add the same */
    GAPS,      /* indices are missing */
    LARGE,     /* a few of megabytes among many small ones */
    RECEIVER,  /* the callback fails */
    BAD,       /* one rank brings an error */
    NO_SUCH,   /* dst out of range */
    DIFFERENT, /* ranks name different destinations */
    NO_RECEIVER,
};

typedef struct job {
    char directory[64];
    enum scene scene;
    uint32_t dst;
    bool own_nodes;
    /* of the receiver, on dst only */
    uint64_t received, bytes;
    uint64_t span; /* indices from the first to the last one of each name, summed */
    char last_name[512];
    uint64_t last_index;
    bool ordered, right;
} job;

static size_t frame_size(enum scene scene, uint64_t index)
{
    return scene == LARGE && index % 20 == 7 ? (3u << 20) + index : index % 97;
}

static rks_status receive(void *user, const rks_gather_item *item, rks_error *err)
{
    job *j = user;
    float score;
    if (j->scene == RECEIVER && j->received == 40)
        return rks_fail(err, RKS_ERR_IO, 28, "the disk is full at %s", item->name);
    int order = strcmp(j->last_name, item->name);
    if (j->received > 0 && (order > 0 || (order == 0 && j->last_index >= item->index)))
        j->ordered = false;
    j->span += j->received > 0 && order == 0 ? item->index - j->last_index : 1;
    snprintf(j->last_name, sizeof(j->last_name), "%s", item->name);
    j->last_index = item->index;
    memcpy(&score, item->values[1].data, sizeof(score));
    const uint8_t *frame = item->values[0].data;
    size_t size = (size_t)item->values[0].size;
    if (size != frame_size(j->scene, item->index) ||
        (size > 0 &&
         (frame[0] != (uint8_t)item->index || frame[size - 1] != (uint8_t)item->index)) ||
        score != (float)item->rank)
        j->right = false;
    j->received++;
    j->bytes += size;
    return RKS_OK;
}

static rks_status add(rks_gather *gather, enum scene scene, const char *name, uint64_t index,
                      uint32_t rank, rks_error *err)
{
    size_t size = frame_size(scene, index);
    uint8_t *frame = malloc(size + 1);
    float score = (float)rank;
    memset(frame, (int)(index & 0xff), size);
    const rks_value values[2] = {{.data = frame, .size = size}, {.data = &score, .size = 4}};
    rks_status status = rks_gather_add(gather, name, index, values, err);
    free(frame);
    return status;
}

/* Names "a", "b", "ab", each cut over the ranks; a long one from the last rank. */
static rks_status add_all(rks_gather *gather, const job *j, uint32_t rank, uint32_t ranks,
                          rks_error *err)
{
    static const char *const names[] = {"b", "a", "ab"};
    char longest[512];
    rks_status status = RKS_OK;
    uint64_t count = j->scene == NOTHING ? 0 : 30 * (uint64_t)rank;
    memset(longest, 'z', 511);
    longest[511] = '\0';
    for (uint64_t i = 0; status == RKS_OK && i < count; i++)
        if (j->scene != GAPS || i % 10 != 4)
            status = add(gather, j->scene, names[i % 3], i * ranks + rank, rank, err);
    if (status == RKS_OK && j->scene == TWICE && rank > 0)
        status = add(gather, j->scene, longest, 1234567, rank, err);
    else if (status == RKS_OK && j->scene != NOTHING && rank + 1 == ranks)
        status = add(gather, j->scene, longest, UINT64_MAX, rank, err);
    return status;
}

static void expect_good(member *m, rks_status status, const rks_gather_report *report)
{
    const job *j = m->user;
    uint32_t ranks = m->size;
    uint64_t expected = j->scene == NOTHING ? 0 : 1;
    for (uint64_t r = 0; r < ranks && j->scene != NOTHING; r++)
        expected += j->scene == GAPS ? 27 * r : 30 * r;
    EXPECT_OK(status);
    EXPECT(report->items == expected);
    EXPECT(report->names == (j->scene == NOTHING ? 0u : ranks == 1 ? 1u : 4u));
    EXPECT((report->gaps > 0) == (j->scene != NOTHING && ranks > 1));
    if (j->scene == GAPS && ranks > 1)
        EXPECT(strstr(report->gap_first, "a: ") != NULL);
    if (m->rank == j->dst)
        EXPECT(j->received == expected && j->ordered && j->right &&
               report->gaps == j->span - expected);
}

static void expect_bad(member *m, rks_status status)
{
    const job *j = m->user;
    static const struct {
        rks_status status;
        const char *first, *second;
    } expected[] = {
        [TWICE] = {RKS_ERR_DATA, "rank 1", "rank 2"},
        [RECEIVER] = {RKS_ERR_IO, "the disk is full", ""},
        [BAD] = {RKS_ERR_UNSUPPORTED, "no such codec", ""},
        [NO_SUCH] = {RKS_ERR_ARGUMENT, "dst", "99"},
        [DIFFERENT] = {RKS_ERR_ARGUMENT, "dst", "rank 1"},
        [NO_RECEIVER] = {RKS_ERR_ARGUMENT, "receive", ""},
    };
    EXPECT(status == expected[j->scene].status);
    EXPECT_TEXT(expected[j->scene].first);
    EXPECT_TEXT(expected[j->scene].second);
}

static void gather_rank(member *m)
{
    job *j = m->user;
    rks_gather *gather = NULL;
    rks_gather_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, j->own_nodes))
        return;
    EXPECT_OK(rks_gather_open(m->group, SCHEMA, j->directory, &gather, &m->err));
    EXPECT(add(gather, UNEVEN, "", 0, m->rank, &m->err) == RKS_ERR_ARGUMENT);
    rks_status status = add_all(gather, j, m->rank, m->size, &m->err);
    EXPECT(status == RKS_OK);
    if (j->scene == BAD && m->rank == 1)
        status = rks_fail(&m->err, RKS_ERR_UNSUPPORTED, 0, "no such codec");
    uint32_t dst = j->scene == NO_SUCH ? 99 : j->scene == DIFFERENT ? m->rank : j->dst;
    status = rks_gather_run(gather, status, dst, j->scene == NO_RECEIVER ? NULL : receive, j,
                            &report, &m->err);
    if (j->scene == UNEVEN || j->scene == NOTHING || j->scene == GAPS || j->scene == LARGE)
        expect_good(m, status, &report);
    else
        expect_bad(m, status);
    EXPECT(rks_gather_run(gather, RKS_OK, j->dst, receive, j, NULL, &m->err) == RKS_ERR_STATE);
    rks_gather_close(gather);
    EXPECT_OK(rks_group_agree(m->group, "after", RKS_OK, &m->err));
}

static void run_scene(enum scene scene, uint32_t ranks, uint32_t dst, bool own_nodes)
{
    job j = {.scene = scene, .dst = dst, .own_nodes = own_nodes, .ordered = true, .right = true};
    world_directory(j.directory);
    on_threads(ranks, gather_rank, &j);
    assert_int_equal(world_files(j.directory, ""), 0); /* what it wrote is gone */
    world_remove(j.directory);
}

static void uneven_results_arrive_in_order(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        for (int own_nodes = 0; own_nodes < 2; own_nodes++)
            run_scene(UNEVEN, ranks, ranks / 2, own_nodes == 1);
}

static void no_results_at_all_are_no_error(void **state)
{
    (void)state;
    run_scene(NOTHING, 1, 0, false);
    run_scene(NOTHING, 3, 1, true);
}

static void a_result_that_is_there_twice_names_both_ranks(void **state)
{
    (void)state;
    run_scene(TWICE, 3, 0, false);
    run_scene(TWICE, 3, 0, true);
}

static void missing_indices_are_reported(void **state)
{
    (void)state;
    run_scene(GAPS, 3, 2, false);
}

static void large_results_come_through(void **state)
{
    (void)state;
    run_scene(LARGE, 3, 0, false);
    run_scene(LARGE, 3, 0, true);
}

static void whatever_fails_on_one_rank_fails_on_all(void **state)
{
    (void)state;
    for (int scene = RECEIVER; scene <= NO_RECEIVER; scene++)
        run_scene((enum scene)scene, 3, 2, scene % 2 == 0);
}

/* NULs, other control characters, no UTF-8, and long names that differ where a key has no room. */
typedef struct any_name {
    uint8_t bytes[RKS_KEY_MAX];
    size_t size;
} any_name;

static size_t any_names(any_name *names)
{
    static const char *const texts[] = {"a", "a\0", "a\0b", "\0", "\xff\xfe", "a\nb", "\x1b[2J"};
    static const size_t sizes[] = {1, 2, 3, 1, 2, 3, 4};
    size_t count = 0;
    for (; count < 7; count++) {
        memcpy(names[count].bytes, texts[count], sizes[count]);
        names[count].size = sizes[count];
    }
    for (size_t size = 500; size <= RKS_KEY_MAX; size++)
        for (int last = 'x'; last <= 'y'; last++) {
            memset(names[count].bytes, 'k', size);
            names[count].bytes[size - 1] = (uint8_t)last;
            names[count++].size = size;
        }
    return count;
}

typedef struct any_seen {
    any_name names[40];
    size_t count, received;
    bool right;
} any_seen;

static rks_status take_any(void *user, const rks_gather_item *item, rks_error *err)
{
    (void)err;
    any_seen *seen = user;
    size_t at = 0;
    while (at < seen->count && (seen->names[at].size != item->name_size ||
                                memcmp(seen->names[at].bytes, item->name, item->name_size) != 0))
        at++;
    uint64_t value;
    memcpy(&value, item->values[0].data, sizeof(value));
    seen->right = seen->right && at < seen->count && item->index == seen->received % 3 &&
                  value == 10 * at + item->index && item->name[item->name_size] == '\0';
    seen->received++;
    return RKS_OK;
}

static void any_names_rank(member *m)
{
    any_seen *seen = m->user;
    rks_gather *gather = NULL;
    rks_gather_report report = {.struct_size = sizeof(report)};
    static const uint8_t long_name[RKS_KEY_MAX + 1] = {1};
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_gather_open(m->group, "n:uint64", NULL, &gather, &m->err));
    const rks_value none = {0};
    EXPECT(rks_gather_add_named(gather, long_name, sizeof(long_name), 0, &none, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT_TEXT("1 to 511 bytes, not 512");
    for (size_t i = 0; i < seen->count; i++)
        for (uint64_t index = m->rank; index < 3; index += m->size) {
            uint64_t number = 10 * i + index;
            const rks_value value = {.data = &number, .size = sizeof(number)};
            EXPECT_OK(rks_gather_add_named(gather, seen->names[i].bytes, seen->names[i].size, index,
                                           &value, &m->err));
        }
    EXPECT_OK(rks_gather_run(gather, RKS_OK, 0, take_any, seen, &report, &m->err));
    EXPECT(report.names == seen->count && report.gaps == 0);
    rks_gather_close(gather);
}

static void names_are_any_bytes(void **state)
{
    (void)state;
    any_seen seen = {.right = true};
    seen.count = any_names(seen.names);
    on_threads(2, any_names_rank, &seen);
    assert_int_equal(seen.received, 3 * seen.count);
    assert_true(seen.right);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uneven_results_arrive_in_order),
        cmocka_unit_test(names_are_any_bytes),
        cmocka_unit_test(no_results_at_all_are_no_error),
        cmocka_unit_test(a_result_that_is_there_twice_names_both_ranks),
        cmocka_unit_test(missing_indices_are_reported),
        cmocka_unit_test(large_results_come_through),
        cmocka_unit_test(whatever_fails_on_one_rank_fails_on_all),
    };
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}
