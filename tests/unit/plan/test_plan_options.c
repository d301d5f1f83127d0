/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_options.c: options that are refused, samples that are too long, failing allocations,
 * and the digests that pin the planner's version. */
#include "plans.h"

static uint32_t lengths[4000];

static rks_plan_options defaults(void)
{
    rks_plan_options options;
    rks_plan_options_default(&options);
    return options;
}

/* Creating must fail with this status and text. */
static void refused(const rks_plan_options *options, uint64_t count, rks_status expected,
                    const char *text)
{
    rks_plan *plan = NULL;
    assert_fails(expected, rks_plan_create(lengths, count, NULL, options, &plan, &err));
    assert_null(plan);
    assert_contains(err.text, text);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    options.strategy = "buckets";
    refused(&options, 100, RKS_ERR_ARGUMENT, "strategy \"buckets\": did you mean \"bucket\"?");
    options.strategy = "sequental";
    refused(&options, 100, RKS_ERR_ARGUMENT, "did you mean \"sequential\"?");
    options.strategy = "";
    refused(&options, 100, RKS_ERR_ARGUMENT, "strategy");
    char endless[5000];
    memset(endless, 's', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    options.strategy = endless;
    refused(&options, 100, RKS_ERR_ARGUMENT, "strategy");
    options = defaults();
    options.cost = "quadratics";
    refused(&options, 100, RKS_ERR_ARGUMENT, "cost \"quadratics\": did you mean \"quadratic\"?");
    options = defaults();
    options.too_long = "trunc";
    refused(&options, 100, RKS_ERR_ARGUMENT, "too_long");
    options = defaults();
    options.tail = "splt";
    refused(&options, 100, RKS_ERR_ARGUMENT, "did you mean \"split\"?");
    options = defaults();
    options.steps = "epoch";
    refused(&options, 100, RKS_ERR_ARGUMENT, "steps \"epoch\": did you mean \"per_epoch\"?");
    options.steps = "per_epoch";
    refused(&options, 100, RKS_ERR_ARGUMENT, "steps \"per_epoch\"");
    options = defaults();
    options.order = "longest";
    refused(&options, 100, RKS_ERR_ARGUMENT, "order \"longest\" is not one of plan, longest_first");
    options = defaults();
    options.batch_size = UINT32_MAX;
    refused(&options, 100, RKS_ERR_ARGUMENT, "batch_size 4294967295 is above 16777216");
    options = defaults();
    options.batch_size = 4;
    options.batch_multiple = 8;
    refused(&options, 100, RKS_ERR_ARGUMENT, "batch_multiple 8 is above batch_size 4");
    options = defaults();
    options.batch_multiple = UINT32_MAX;
    refused(&options, 100, RKS_ERR_ARGUMENT, "batch_multiple");
    options = defaults();
    options.world = UINT32_MAX;
    refused(&options, 100, RKS_ERR_ARGUMENT, "world 4294967295");
    options = defaults();
    options.struct_size = 0;
    refused(&options, 100, RKS_ERR_ARGUMENT, "struct_size");
    options.struct_size = sizeof(options) + 8;
    refused(&options, 100, RKS_ERR_ARGUMENT, "struct_size");

    rks_plan *plan = NULL;
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_create(lengths, 9, "abc", NULL, &plan, &err));
    assert_contains(err.text, "dataset \"abc\"");
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_create(NULL, 9, NULL, NULL, &plan, &err));
    assert_fails(RKS_ERR_UNSUPPORTED,
                 rks_plan_create(lengths, 1ull << 32, NULL, NULL, &plan, &err));
    assert_contains(err.text, "less than 2^32");
    uint64_t bytes = 77;
    assert_fails(RKS_ERR_UNSUPPORTED, rks_plan_order_bytes(1ull << 32, NULL, &bytes, &err));
    assert_fails(RKS_ERR_UNSUPPORTED, rks_plan_sort(lengths, 1ull << 32, &bytes, &err));
    assert_int_equal(bytes, 77);
}

static void no_options_and_null_names_mean_the_defaults(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    options.strategy = options.cost = options.too_long = options.tail = options.steps = NULL;
    options.batch_multiple = 0;
    rks_plan *a, *b;
    assert_ok(rks_plan_create(lengths, 1000, NULL, NULL, &a, &err), &err);
    assert_ok(rks_plan_create(lengths, 1000, NULL, &options, &b, &err), &err);
    assert_int_equal(rks_plan_world(a), 1);
    assert_string_equal(report_of(a, 1).digest, report_of(b, 1).digest);
    assert_int_equal(report_of(a, 0).steps, (1000 + 63) / 64);
    rks_plan_free(a);
    rks_plan_free(b);
    rks_plan_free(NULL);
    uint64_t bytes;
    assert_ok(rks_plan_order_bytes(1000, NULL, &bytes, &err), &err);
    assert_int_equal(bytes, 4000);
    options = defaults();
    options.strategy = "random";
    assert_ok(rks_plan_order_bytes(1000, &options, &bytes, &err), &err);
    assert_int_equal(bytes, 0);
}

static void a_shorter_struct_of_an_older_caller_is_taken(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    options.batch_size = 10;
    options.world = 9; /* after what this caller knows */
    options.struct_size = offsetof(rks_plan_options, max_tokens);
    rks_plan *plan;
    assert_ok(rks_plan_create(lengths, 1000, NULL, &options, &plan, &err), &err);
    assert_int_equal(rks_plan_world(plan), 1);
    assert_int_equal(report_of(plan, 0).steps, 100);
    struct {
        rks_plan_report report;
        char after[8];
    } caller = {.report = {.struct_size = offsetof(rks_plan_report, repeated)}, .after = "kept"};
    caller.report.repeated = 1234;
    assert_ok(rks_plan_report_get(plan, 0, &caller.report, &err), &err);
    assert_int_equal(caller.report.samples, 1000);
    assert_int_equal(caller.report.repeated, 1234);
    caller.report.struct_size = 0;
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_report_get(plan, 0, &caller.report, &err));
    rks_plan_free(plan);
}

static void too_few_samples_are_refused_unless_they_repeat(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    for (size_t i = 0; i < 4; i++) {
        rks_plan_options options = defaults();
        options.strategy = strategies[i];
        options.world = 8;
        refused(&options, 7, RKS_ERR_DATA, "7 samples for 8 ranks");
        options.tail = "drop";
        refused(&options, 7, RKS_ERR_DATA, "7 samples for 8 ranks");
        options.batch_size = 2;
        refused(&options, 15, RKS_ERR_DATA, "7 full batches for 8 ranks");
        options.tail = "split";
        options.batch_size = 1;
        refused(&options, 9, RKS_ERR_DATA, "9 batches cannot be split");
        options.tail = "repeat";
        rks_plan *plan;
        assert_ok(rks_plan_create(lengths, 3, NULL, &options, &plan, &err), &err);
        rks_plan_report report = report_of(plan, 0);
        assert_int_equal(report.samples, 8);
        assert_int_equal(report.repeated, 5);
        assert_int_equal(report.steps, 1);
        rks_plan_free(plan);
        refused(&options, 0, RKS_ERR_DATA, "no samples");
    }
}

static void samples_that_are_too_long_follow_the_option(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    static uint32_t some[100];
    for (size_t i = 0; i < 100; i++)
        some[i] = 10;
    some[17] = 150;
    some[60] = 80;
    for (size_t i = 0; i < 4; i++) {
        rks_plan_options options = defaults();
        options.strategy = strategies[i];
        options.max_tokens = 120;
        rks_plan *plan = NULL;
        assert_fails(RKS_ERR_DATA, rks_plan_create(some, 100, NULL, &options, &plan, &err));
        assert_contains(err.text, "sample 17 has length 150, above max_tokens 120");
        options.max_length = 70;
        assert_fails(RKS_ERR_DATA, rks_plan_create(some, 100, NULL, &options, &plan, &err));
        assert_contains(err.text, "sample 17 has length 150, above max_length 70");
        options.too_long = "drop";
        assert_ok(rks_plan_create(some, 100, NULL, &options, &plan, &err), &err);
        assert_int_equal(report_of(plan, 0).dropped, 2);
        assert_int_equal(report_of(plan, 0).samples, 98);
        rks_plan_free(plan);
        options.too_long = "truncate";
        assert_ok(rks_plan_create(some, 100, NULL, &options, &plan, &err), &err);
        assert_int_equal(report_of(plan, 0).truncated, 2);
        assert_int_equal(report_of(plan, 0).tokens, 98 * 10 + 2 * 70);
        rks_plan_free(plan);
        options.too_long = "alone";
        assert_ok(rks_plan_create(some, 100, NULL, &options, &plan, &err), &err);
        rks_plan_report report = report_of(plan, 0);
        assert_int_equal(report.tokens, 98 * 10 + 230);
        assert_int_equal(report.largest_batch, 150);
        assert_int_equal(report.samples, 100);
        rks_plan_free(plan);
    }
}

static void questions_out_of_range_are_refused(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    options.world = 4;
    rks_plan *plan;
    assert_ok(rks_plan_create(lengths, 1000, NULL, &options, &plan, &err), &err);
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, 0, &steps, &err), &err);
    const uint32_t *ids = lengths;
    size_t count = 7;
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_batch(plan, 0, steps, 0, &ids, &count, &err));
    assert_contains(err.text, "epoch 0 has 4 steps");
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_batch(plan, 0, UINT64_MAX, 0, &ids, &count, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_batch(plan, 0, 0, 4, &ids, &count, &err));
    assert_contains(err.text, "rank 4 of a plan for 4 ranks");
    assert_ptr_equal(ids, lengths);
    assert_int_equal(count, 7);
    rks_plan_free(plan);
}

static void the_largest_lengths_and_budgets_do_not_overflow(void **state)
{
    (void)state;
    /* The largest lengths and budgets there are: no sum or product may overflow. */
    static uint32_t huge[64];
    for (size_t i = 0; i < 64; i++)
        huge[i] = RKS_LENGTH_ABSENT - 1 - (uint32_t)i;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    static const char *const costs[] = {"padded", "tokens", "quadratic"};
    for (size_t i = 0; i < 12; i++) {
        rks_plan_options options = defaults();
        options.strategy = strategies[i % 4];
        options.cost = costs[i / 4];
        options.max_tokens = UINT64_MAX;
        options.batch_size = 5;
        options.world = 3;
        rks_expected expected = expect_of(huge, 64, &options);
        uint32_t seen[64] = {0};
        rks_plan *plan;
        assert_ok(rks_plan_create(huge, 64, NULL, &options, &plan, &err), &err);
        uint64_t steps;
        assert_ok(rks_plan_steps(plan, 0, &steps, &err), &err);
        check_steps(plan, &expected, 0, 0, steps, seen);
        for (size_t j = 0; j < 64; j++)
            assert_int_equal(seen[j], 1);
        assert_true(report_of(plan, 0).balance > 0.5);
        rks_plan_free(plan);
    }
}

/* A plan, a batch, a report, a state and a resume on another world. */
static rks_status use_all(const rks_plan_options *options, uint64_t count)
{
    rks_plan *a = NULL, *b = NULL;
    rks_plan_options other = *options;
    other.world = 2;
    char text[RKS_STATE_MAX];
    uint64_t epoch, step;
    const uint32_t *ids;
    size_t size;
    rks_plan_report report = {.struct_size = sizeof(report)};
    rks_status status = rks_plan_create(lengths, count, NULL, options, &a, &err);
    if (status == RKS_OK)
        status = rks_plan_batch(a, 1, 2, 0, &ids, &size, &err);
    if (status == RKS_OK)
        status = rks_plan_report_get(a, 1, &report, &err);
    if (status == RKS_OK)
        status = rks_plan_state(a, 1, 3, text, sizeof(text), &err);
    if (status == RKS_OK)
        status = rks_plan_create(lengths, count, NULL, &other, &b, &err);
    if (status == RKS_OK)
        status = rks_plan_resume(b, text, &epoch, &step, &err);
    if (status == RKS_OK)
        status = rks_plan_batch(b, 1, 0, 1, &ids, &size, &err);
    if (status == RKS_OK)
        status = rks_plan_batch(b, 2, 0, 1, &ids, &size, &err);
    rks_plan_free(a);
    rks_plan_free(b);
    return status;
}

static void each_failing_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential", "random"};
    for (size_t i = 0; i < 5; i++) {
        rks_plan_options options = defaults();
        options.strategy = strategies[i];
        options.max_tokens = 3000;
        options.world = 3;
        options.tail = i % 2 == 0 ? "split" : "repeat";
        options.steps = i == 4 ? "per_epoch" : "constant";
        lengths[5] = i % 2 == 0 ? 70000 : 5; /* the other sort */
        options.too_long = "alone";
        rks_status status = RKS_ERR_MEMORY;
        for (long nth = 1; status != RKS_OK; nth++) {
            assert_true(nth < 1000);
            rks_memory_fail_at(nth);
            status = use_all(&options, 3000);
            rks_memory_fail_at(0);
            assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
            assert_int_equal(rks_memory_in_use(), 0);
            assert_int_equal(counted_memory(), 0);
        }
    }
    lengths[5] = 5;
}

static void a_plan_goes_on_after_a_failed_allocation(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    options.world = 2;
    rks_plan *plan;
    assert_ok(rks_plan_create(lengths, 1000, NULL, &options, &plan, &err), &err);
    rks_plan_report before = report_of(plan, 1);
    rks_memory_fail_at(1);
    const uint32_t *ids;
    size_t count;
    assert_fails(RKS_ERR_MEMORY, rks_plan_batch(plan, 2, 0, 0, &ids, &count, &err));
    rks_memory_fail_at(0);
    assert_string_equal(report_of(plan, 1).digest, before.digest);
    rks_plan_free(plan);
}

/* Digests of epoch 1. Where one changes, plans made before cannot be resumed: raise
 * RKS_PLAN_VERSION with it. */
static void digests_are_those_of_this_version(void **state)
{
    (void)state;
    static const struct {
        const char *strategy, *tail, *cost, *too_long;
        uint32_t batch_size;
        uint64_t max_tokens;
        uint32_t multiple, world;
        const char *steps, *digest;
    } golden[] = {
        {"bucket", "split", "padded", "error", 0, 5000, 1, 4, "constant",
         "c0c766b3445bf8e2eee98b0a79dd17ce"},
        {"bucket", "repeat", "quadratic", "error", 16, 5000, 8, 8, "constant",
         "74a315349a60445ce99cf1a30e471601"},
        {"bucket", "drop", "tokens", "alone", 0, 300, 1, 3, "constant",
         "3ef52fa6a7c94ebe6d6ea698ec10d971"},
        {"sorted", "split", "padded", "error", 0, 5000, 1, 4, "constant",
         "c2457e01a6a7ccb52ac9117bccd77077"},
        {"sorted", "repeat", "tokens", "error", 0, 3000, 4, 7, "constant",
         "97a9dd4edf451913d49c86f7eb81b191"},
        {"random", "split", "padded", "error", 32, 0, 1, 4, "constant",
         "0e2db57afef365a9c7f30075edad68b6"},
        {"random", "split", "padded", "truncate", 0, 400, 1, 8, "constant",
         "d826fe06b8a2b456fce119cc2cdb6cc0"},
        {"random", "split", "tokens", "error", 0, 2000, 1, 2, "per_epoch",
         "98be2ed6a0c2874002658debb8d1cba4"},
        {"random", "drop", "tokens", "drop", 0, 400, 1, 8, "constant",
         "9ff441862a8fe83d04fc7652ace6769e"},
        {"bucket", "split", "padded", "error", 16, 0, 1, 4, "constant",
         "b38650235f355ce86f953f8a49dbe317"},
        {"sequential", "split", "padded", "drop", 0, 350, 1, 4, "constant",
         "447f280c77b121835c92327e005ca56f"},
        {"sequential", "repeat", "padded", "error", 64, 0, 1, 7, "constant",
         "f30ed532a26820b8ca33cc933d975964"},
    };
    assert_int_equal(RKS_PLAN_VERSION, 2);
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        rks_plan_options options = defaults();
        options.strategy = golden[i].strategy;
        options.tail = golden[i].tail;
        options.cost = golden[i].cost;
        options.too_long = golden[i].too_long;
        options.batch_size = golden[i].batch_size;
        options.max_tokens = golden[i].max_tokens;
        options.batch_multiple = golden[i].multiple;
        options.world = golden[i].world;
        options.steps = golden[i].steps;
        options.seed = 11;
        rks_plan *plan;
        assert_ok(rks_plan_create(lengths, 4000, NULL, &options, &plan, &err), &err);
        assert_string_equal(report_of(plan, 1).digest, golden[i].digest);
        rks_plan_free(plan);
    }
}

static void a_large_plan_has_its_digest_too(void **state)
{
    (void)state;
    /* Large enough for shuffles in parts. */
    enum { COUNT = 600000 };
    uint32_t *many = calloc(COUNT, sizeof(*many));
    assert_non_null(many);
    rks_random random = {43};
    for (size_t i = 0; i < COUNT; i++)
        many[i] = 1 + below(&random, 100);
    rks_plan_options options = defaults();
    options.strategy = "random";
    options.batch_size = 32;
    options.world = 8;
    rks_plan *plan;
    assert_ok(rks_plan_create(many, COUNT, NULL, &options, &plan, &err), &err);
    assert_string_equal(report_of(plan, 1).digest, "71de60735f0423fe4e5207677a1bea9f");
    uint32_t *seen = calloc(COUNT, sizeof(*seen));
    assert_non_null(seen);
    rks_expected expected = expect_of(many, COUNT, &options);
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, 1, &steps, &err), &err);
    check_steps(plan, &expected, 1, 0, steps, seen);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(seen[i], 1);
    rks_plan_free(plan);
    free(seen);
    free(many);
}

static void the_state_is_these_bytes(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    options.seed = UINT64_MAX;
    options.world = 4;
    rks_plan *plan;
    assert_ok(
        rks_plan_create(lengths, 4000, "00112233445566778899aabbccddeeff", &options, &plan, &err),
        &err);
    char text[RKS_STATE_MAX];
    assert_ok(rks_plan_state(plan, 9, 5, text, sizeof(text), &err), &err);
    assert_string_equal(
        text,
        "{\"format\": 1, \"planner\": 2, \"dataset\": \"00112233445566778899aabbccddeeff\", "
        "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"f8caddd0f6ccd9b4\", "
        "\"seed\": \"18446744073709551615\", \"epoch\": 9, \"segments\": [[4, 5]], "
        "\"given\": \"\"}");
    uint64_t epoch = 0, step = 0;
    strcpy(strstr(text, ", \"given\""), "}"); /* one that was saved before there was that field */
    assert_ok(rks_plan_resume(plan, text, &epoch, &step, &err), &err);
    assert_true(epoch == 9 && step == 5);
    rks_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_those_of_this_version),
        cmocka_unit_test(a_large_plan_has_its_digest_too),
        cmocka_unit_test(the_state_is_these_bytes),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(no_options_and_null_names_mean_the_defaults),
        cmocka_unit_test(a_shorter_struct_of_an_older_caller_is_taken),
        cmocka_unit_test(too_few_samples_are_refused_unless_they_repeat),
        cmocka_unit_test(samples_that_are_too_long_follow_the_option),
        cmocka_unit_test(questions_out_of_range_are_refused),
        cmocka_unit_test(the_largest_lengths_and_budgets_do_not_overflow),
        cmocka_unit_test(each_failing_allocation_is_an_error_and_leaks_nothing),
        cmocka_unit_test(a_plan_goes_on_after_a_failed_allocation),
    };
    fixed_lengths(lengths, 4000);
    return cmocka_run_group_tests_name("plan options", tests, NULL, NULL);
}
