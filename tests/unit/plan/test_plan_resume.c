/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_resume.c: states, and going on from them with the same ranks or others: nothing twice,
 * nothing lost. */
#include "plans.h"

#include <unistd.h>

static const uint32_t WORLDS[] = {1, 2, 3, 4, 7, 8};
enum { WORLD_COUNT = 6 };

static const char DATASET[] = "0123456789abcdef0123456789abcdef";

static rks_plan *plan_for(const uint32_t *lengths, uint64_t count, const rks_plan_options *options,
                          uint32_t world)
{
    rks_plan_options changed = *options;
    changed.world = world;
    rks_plan *plan = NULL;
    rks_status status = rks_plan_create(lengths, count, DATASET, &changed, &plan, &err);
    if (status == RKS_ERR_DATA)
        return NULL;
    assert_ok(status, &err);
    return plan;
}

/* Runs `first` steps of epoch 3 on the first plan, resumes on the second, runs to the end. */
static void cross(rks_plan *from, uint64_t first, rks_plan *to, const rks_expected *expected)
{
    char text[RKS_STATE_MAX];
    assert_ok(rks_plan_state(from, 3, first, text, sizeof(text), &err), &err);
    uint64_t epoch = 0, step = 0;
    rks_status status = rks_plan_resume(to, text, &epoch, &step, &err);
    uint64_t total = steps_of(from, 3);
    uint32_t *seen = calloc(expected->count, sizeof(*seen));
    assert_non_null(seen);
    check_steps(from, expected, 3, 0, first, seen);
    uint64_t left = expected->count - count_seen(seen, expected->count, 1);
    if (status == RKS_ERR_DATA) {
        /* Only where the rest cannot be dealt: too few for the ranks, or batches of one. */
        assert_true(left < rks_plan_world(to) || expected->options->max_tokens != 0);
        free(seen);
        return;
    }
    assert_ok(status, &err);
    if (first == total && rks_plan_world(to) != rks_plan_world(from)) {
        assert_int_equal(epoch, 4);
        assert_int_equal(step, 0);
        assert_int_equal(left, 0);
    } else {
        assert_int_equal(epoch, 3);
        assert_int_equal(step, rks_plan_world(to) == rks_plan_world(from) ? first : 0);
        check_steps(to, expected, 3, step, steps_of(to, 3), seen);
        assert_int_equal(count_seen(seen, expected->count, 1), expected->count);
    }
    /* Later epochs are whole. */
    memset(seen, 0, expected->count * sizeof(*seen));
    check_steps(to, expected, 5, 0, steps_of(to, 5), seen);
    assert_int_equal(count_seen(seen, expected->count, 1), expected->count);
    free(seen);
}

static void resumes_at_every_step_on_every_world(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    for (unsigned round = 0; round < 8; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 60 + below(&random, 60);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = strategies[round % 4];
        options.seed = rks_random_next(&random);
        if (round < 4) {
            options.batch_size = 2 + below(&random, 4);
        } else {
            options.max_tokens = 100 + below(&random, 2000);
            options.too_long = "truncate";
        }
        rks_expected expected = expect_of(lengths, count, &options);
        for (size_t a = 0; a < WORLD_COUNT; a++) {
            rks_plan *from = plan_for(lengths, count, &options, WORLDS[a]);
            for (size_t b = 0; b < WORLD_COUNT && from != NULL; b++) {
                rks_plan *to = plan_for(lengths, count, &options, WORLDS[b]);
                if (to == NULL)
                    continue;
                for (uint64_t step = 0; step <= steps_of(from, 3); step++)
                    cross(from, step, to, &expected);
                rks_plan_free(to);
            }
            rks_plan_free(from);
        }
        free(lengths);
    }
}

static void the_same_world_goes_on_exactly(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 60; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 50 + below(&random, 200);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        random_options(&random, &options);
        rks_plan *a = plan_for(lengths, count, &options, options.world);
        rks_plan *b = a == NULL ? NULL : plan_for(lengths, count, &options, options.world);
        if (a != NULL) {
            uint64_t steps;
            if (rks_plan_steps(a, 2, &steps, &err) == RKS_OK) {
                char text[RKS_STATE_MAX];
                uint64_t epoch, step, at = rks_random_below(&random, steps + 1);
                assert_ok(rks_plan_state(a, 2, at, text, sizeof(text), &err), &err);
                assert_ok(rks_plan_resume(b, text, &epoch, &step, &err), &err);
                assert_int_equal(epoch, 2);
                assert_int_equal(step, at);
                assert_string_equal(report_of(a, 2).digest, report_of(b, 2).digest);
            }
        }
        rks_plan_free(a);
        rks_plan_free(b);
        free(lengths);
    }
}

/* One chain of worlds through an epoch; *state moves along. */
static void run_chain(rks_random *random, const uint32_t *lengths, uint64_t count,
                      const rks_plan_options *options, size_t changes)
{
    rks_expected expected = expect_of(lengths, count, options);
    bool repeats = option_is(options->tail, "repeat");
    bool drops = option_is(options->tail, "drop");
    uint32_t *seen = calloc(count, sizeof(*seen));
    assert_non_null(seen);
    char text[RKS_STATE_MAX] = "";
    uint64_t epoch = 6;
    for (size_t i = 0; i <= changes; i++) {
        rks_plan *plan = plan_for(lengths, count, options, ONE_OF(random, WORLDS));
        if (plan == NULL)
            break;
        uint64_t step = 0;
        rks_status status = RKS_OK;
        if (text[0] != '\0')
            status = rks_plan_resume(plan, text, &epoch, &step, &err);
        uint64_t steps = 0;
        if (status == RKS_OK) /* with steps per epoch, an epoch may have no plan */
            status = rks_plan_steps(plan, epoch, &steps, &err);
        if (status == RKS_ERR_DATA) { /* too few are left for these ranks: the plan stays whole */
            rks_plan_free(plan);
            continue;
        }
        assert_ok(status, &err);
        if (epoch != 6) {
            assert_int_equal(step, 0);
            rks_plan_free(plan);
            break;
        }
        uint64_t to = i == changes ? steps : step + rks_random_below(random, steps - step + 1);
        check_steps(plan, &expected, epoch, step, to, seen);
        assert_ok(rks_plan_state(plan, epoch, to, text, sizeof(text), &err), &err);
        /* A second plan that takes the state over says the same. */
        rks_plan *again = plan_for(lengths, count, options, rks_plan_world(plan));
        assert_ok(rks_plan_resume(again, text, &epoch, &step, &err), &err);
        assert_int_equal(step, to);
        assert_string_equal(report_of(plan, 6).digest, report_of(again, 6).digest);
        char same[RKS_STATE_MAX];
        assert_ok(rks_plan_state(again, epoch, to, same, sizeof(same), &err), &err);
        assert_string_equal(text, same);
        rks_plan_free(again);
        rks_plan_free(plan);
        if (to == steps) {
            uint64_t kept = kept_of(&expected);
            uint64_t got = count_seen(seen, count, repeats ? UINT32_MAX : 1);
            if (!drops)
                assert_int_equal(got, kept);
            break;
        }
        count_seen(seen, count, repeats ? UINT32_MAX : 1);
    }
    free(seen);
}

static void chains_of_worlds_lose_nothing(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 600; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 40 + below(&random, 300);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        random_options(&random, &options);
        run_chain(&random, lengths, count, &options, 3 + below(&random, 4));
        free(lengths);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

/* A plan of 600 samples in single steps, for the texts below. */
static rks_plan_options usual(void)
{
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "sequential";
    options.batch_size = 1;
    options.seed = 7;
    options.world = 2;
    return options;
}

static uint32_t same_lengths[600];

static void a_state_that_grows_too_long_is_refused(void **state)
{
    (void)state;
    rks_plan_options options = usual();
    char text[RKS_STATE_MAX];
    uint64_t epoch = 0, step = 0;
    rks_plan *plan = plan_for(same_lengths, 600, &options, 2);
    assert_ok(rks_plan_state(plan, 0, 1, text, sizeof(text), &err), &err);
    rks_plan_free(plan);
    rks_status status = RKS_OK;
    unsigned changes = 0;
    while (status == RKS_OK) {
        plan = plan_for(same_lengths, 600, &options, changes % 2 == 0 ? 1 : 2);
        status = rks_plan_resume(plan, text, &epoch, &step, &err);
        if (status == RKS_ERR_DATA) { /* an odd rest on two ranks */
            rks_plan_free(plan);
            plan = plan_for(same_lengths, 600, &options, 3);
            status = rks_plan_resume(plan, text, &epoch, &step, &err);
        }
        if (status == RKS_OK)
            status = rks_plan_state(plan, epoch, step + 2, text, sizeof(text), &err);
        rks_plan_free(plan);
        changes++;
        assert_true(changes < 200);
    }
    assert_int_equal(status, RKS_ERR_STATE);
    assert_contains(err.text, "changed too often");
    assert_true(changes > 30);
}

static void a_state_of_something_else_names_the_field(void **state)
{
    (void)state;
    rks_plan_options options = usual();
    rks_plan *plan = plan_for(same_lengths, 600, &options, 2);
    char text[RKS_STATE_MAX];
    assert_ok(rks_plan_state(plan, 0, 5, text, sizeof(text), &err), &err);
    uint64_t epoch = 99, step = 99;

    rks_plan_options other = usual();
    other.seed = 8;
    rks_plan *b = plan_for(same_lengths, 600, &other, 2);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, text, &epoch, &step, &err));
    assert_string_equal(err.text, "state: seed differs: \"7\" in the state, \"8\" in this plan");
    rks_plan_free(b);
    other = usual();
    other.batch_size = 2;
    b = plan_for(same_lengths, 600, &other, 2);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, text, &epoch, &step, &err));
    assert_string_equal(err.text,
                        "state: options differ: batch_size is 1 in the state, 2 in this plan");
    rks_plan_free(b);
    other = usual();
    other.tail = "drop";
    b = plan_for(same_lengths, 600, &other, 2);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, text, &epoch, &step, &err));
    assert_string_equal(err.text,
                        "state: options differ: tail is not given in the state, drop in this plan");
    char bare[RKS_STATE_MAX];
    strcpy(bare, text);
    strcpy(strstr(bare, ", \"given\""), "}"); /* there was no room for it */
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, bare, &epoch, &step, &err));
    assert_contains(err.text, "state: options differs: \"");
    strcpy(bare, text);
    memset(strstr(bare, "batch_size=1"), '=', 12); /* words that a hostile hand wrote */
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, bare, &epoch, &step, &err));
    assert_contains(err.text, "state: options differ");
    rks_plan_free(b);
    b = plan_for(same_lengths, 598, &options, 2);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, text, &epoch, &step, &err));
    assert_contains(err.text, "samples differs");
    rks_plan_free(b);
    static uint32_t longer[600];
    longer[17] = 1;
    b = plan_for(longer, 600, &options, 2);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, text, &epoch, &step, &err));
    assert_contains(err.text, "lengths differs");
    rks_plan_free(b);
    assert_ok(rks_plan_create(same_lengths, 600, NULL, &options, &b, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(b, text, &epoch, &step, &err));
    assert_contains(err.text, "dataset differs");
    rks_plan_free(b);
    char *version = strstr(text, "\"planner\": 2");
    assert_non_null(version);
    version[11] = '9';
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, text, &epoch, &step, &err));
    assert_contains(err.text, "planner differs");
    assert_int_equal(epoch, 99);
    assert_int_equal(step, 99);
    rks_plan_free(plan);
}

#define REPLACED(text, from, to) replaced((text), (from), (to))

static const char *replaced(const char *text, const char *from, const char *to)
{
    static char made[4 * RKS_STATE_MAX];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(made, sizeof(made), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return made;
}

static void hostile_states_are_refused_and_change_nothing(void **state)
{
    (void)state;
    alarm(600);
    rks_plan_options options = usual();
    rks_plan *plan = plan_for(same_lengths, 600, &options, 2);
    char good[RKS_STATE_MAX];
    uint64_t epoch = 99, step = 99;
    assert_ok(rks_plan_state(plan, 4, 5, good, sizeof(good), &err), &err);
    rks_plan_report before = report_of(plan, 4);

    static const char *const segments[] = {
        "[]",
        "[[]]",
        "[[2]]",
        "[[2, 5, 6]]",
        "[[2, -1]]",
        "[[0, 5]]",
        "[[-2, 5]]",
        "[[2, 5.0]]",
        "[[\"2\", 5]]",
        "{\"2\": 5}",
        "null",
        "7",
        "[[2, 301]]",
        "[[2, 300], [3, 1]]",
        "[[3, 0], [2, 5]]",
        "[[1048577, 1]]",
        "[[1048576, 1], [2, 0]]",
        "[[601, 1]]",
        "[[3, 4294967296]]",
        "[[3, 201]]",
        "[[3, 200], [2, 1]]",
        "[[3, 9223372036854775807]]",
        "[[3, 10], [2, 300]]",
        "[[3, 1], [700, 1]]",
        "[2, 5]",
        "[[[2, 5]]]",
    };
    for (size_t i = 0; i < sizeof(segments) / sizeof(segments[0]); i++) {
        const char *text = REPLACED(good, "[[2, 5]]", segments[i]);
        assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, text, &epoch, &step, &err));
        assert_contains(err.text, "state: ");
    }
    static const char *const texts[] = {"", "{", "null", "[]", "{}", "\"\"", "[[[[[[[[[[[[[[[["};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, texts[i], &epoch, &step, &err));
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, NULL, &epoch, &step, &err));
    assert_fails(RKS_ERR_STATE,
                 rks_plan_resume(plan, REPLACED(good, "\"epoch\": 4", "\"epoch\": -4"), &epoch,
                                 &step, &err));
    assert_fails(RKS_ERR_STATE,
                 rks_plan_resume(plan, REPLACED(good, "\"epoch\": 4", "\"epoch\": 4, \"epoch\": 5"),
                                 &epoch, &step, &err));
    for (size_t size = 0; size + 1 < strlen(good); size++) {
        char cut[RKS_STATE_MAX];
        memcpy(cut, good, size);
        cut[size] = '\0';
        assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, cut, &epoch, &step, &err));
    }
    char much[2 * RKS_STATE_MAX];
    memset(much, ' ', sizeof(much));
    memcpy(much + RKS_STATE_MAX, good, strlen(good) + 1);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, much, &epoch, &step, &err));

    assert_int_equal(epoch, 99);
    assert_string_equal(report_of(plan, 4).digest, before.digest);
    /* Fields that a later version adds are passed over. */
    assert_ok(rks_plan_resume(plan, REPLACED(good, "{", "{\"later\": [1], "), &epoch, &step, &err),
              &err);
    assert_int_equal(epoch, 4);
    assert_int_equal(step, 5);
    rks_plan_free(plan);
}

static void flipped_bytes_never_do_harm(void **state)
{
    (void)state;
    rks_plan_options options = usual();
    rks_plan *plan = plan_for(same_lengths, 600, &options, 3);
    char good[RKS_STATE_MAX];
    uint64_t epoch, step;
    assert_ok(rks_plan_state(plan, 4, 5, good, sizeof(good), &err), &err);
    rks_plan *other = plan_for(same_lengths, 600, &options, 2);
    for (size_t at = 0; good[at] != '\0'; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            char text[RKS_STATE_MAX];
            memcpy(text, good, sizeof(text));
            text[at] = (char)(text[at] ^ (1 << bit));
            rks_status status = rks_plan_resume(other, text, &epoch, &step, &err);
            assert_true(status == RKS_OK || status == RKS_ERR_STATE || status == RKS_ERR_DATA);
            if (status == RKS_OK)
                assert_true(steps_of(other, epoch) >= step);
        }
    }
    rks_plan_free(other);
    rks_plan_free(plan);
}

static void a_state_needs_room_and_a_step_that_exists(void **state)
{
    (void)state;
    rks_plan_options options = usual();
    rks_plan *plan = plan_for(same_lengths, 600, &options, 2);
    char text[RKS_STATE_MAX] = "kept";
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_state(plan, 0, 301, text, sizeof(text), &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_state(plan, 0, 1, text, 100, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_state(plan, UINT64_MAX, 1, text, sizeof(text), &err));
    assert_string_equal(text, "kept");
    assert_ok(rks_plan_state(plan, 0, 300, text, sizeof(text), &err), &err);
    assert_true(strlen(text) < 300);
    rks_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumes_at_every_step_on_every_world),
        cmocka_unit_test(the_same_world_goes_on_exactly),
        cmocka_unit_test(chains_of_worlds_lose_nothing),
        cmocka_unit_test(a_state_that_grows_too_long_is_refused),
        cmocka_unit_test(a_state_of_something_else_names_the_field),
        cmocka_unit_test(hostile_states_are_refused_and_change_nothing),
        cmocka_unit_test(flipped_bytes_never_do_harm),
        cmocka_unit_test(a_state_needs_room_and_a_step_that_exists),
    };
    return cmocka_run_group_tests_name("plan resume", tests, NULL, NULL);
}
