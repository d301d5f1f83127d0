/* SPDX-License-Identifier: Apache-2.0
 *
 * test_old_headers.c: a program that was compiled when options had fewer fields than the library
 * knows. */
#include "files.h"

#include "rankstore.h"

/* rks_store_options as it might once have been. */
typedef struct old_options {
    size_t struct_size;
    const char *exchange;
    bool no_share, no_check;
    uint64_t inflight_bytes;
} old_options;

/* The library's function, as such a program knows it. */
static void(old_options_default)(old_options *options)
{
    (rks_store_options_default)((rks_store_options *)(void *)options);
}

RKS_SIZED_DEFAULT(old_options)

static char place[FOLDER_PATH], source[FOLDER_PATH + 32], target[FOLDER_PATH + 32];

static int make_place(void **state)
{
    (void)state;
    world_directory(place);
    snprintf(source, sizeof(source), "%s/rows.jsonl", place);
    snprintf(target, sizeof(target), "%s/store", place);
    file_write(source, 0, FILE_ROWS, NULL);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    world_remove(place);
    return 0;
}

static void open_as_before(member *m)
{
    const char *sources[] = {source};
    struct {
        old_options options;
        uint8_t behind[RKS_OPTIONS_ROOM]; /* another of the program's variables */
    } frame;
    rks_build_options building;
    rks_store *store = NULL;
    memset(&frame, 0xa5, sizeof(frame));
    old_options_default_sized(&frame.options);
    EXPECT(frame.options.struct_size == sizeof(old_options));
    EXPECT(strcmp(frame.options.exchange, "auto") == 0);
    EXPECT(frame.options.inflight_bytes == UINT64_C(256) << 20);
    for (size_t i = 0; i < sizeof(frame.behind); i++)
        EXPECT(frame.behind[i] == 0xa5);
    file_options(&building);
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_build(m->group, sources, 1, target, &building, NULL, &m->err));
    frame.options.no_share = true; /* what lies after the struct is not read: 0xa5... is no list */
    EXPECT_OK(rks_store_open(m->group, target, (const rks_store_options *)(void *)&frame.options,
                             &store, &m->err));
    rks_store_close(store, CLOSE_MS);
}

static void an_older_program_s_options_are_filled_and_read_as_far_as_it_knows_them(void **state)
{
    (void)state;
    on_threads(2, open_as_before, NULL);
}

static void all_options_fit_their_room_and_say_their_size(void **state)
{
    (void)state;
#define SAYS_ITS_SIZE(type)                                                                        \
    {                                                                                              \
        type options;                                                                              \
        _Static_assert(sizeof(type) < RKS_OPTIONS_ROOM / 2, #type);                                \
        memset(&options, 0xa5, sizeof(options));                                                   \
        type##_default(&options);                                                                  \
        assert_int_equal(options.struct_size, sizeof(options));                                    \
        type##_default(NULL);                                                                      \
    }
    SAYS_ITS_SIZE(rks_build_options)
    SAYS_ITS_SIZE(rks_collate_options)
    SAYS_ITS_SIZE(rks_diff_options)
    SAYS_ITS_SIZE(rks_epoch_options)
    SAYS_ITS_SIZE(rks_export_options)
    SAYS_ITS_SIZE(rks_group_options)
    SAYS_ITS_SIZE(rks_plan_mix)
    SAYS_ITS_SIZE(rks_plan_options)
    SAYS_ITS_SIZE(rks_store_options)
    SAYS_ITS_SIZE(rks_verify_options)
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(an_older_program_s_options_are_filled_and_read_as_far_as_it_knows_them),
        cmocka_unit_test(all_options_fit_their_room_and_say_their_size),
    };
    return cmocka_run_group_tests_name("old_headers", tests, NULL, NULL);
}
