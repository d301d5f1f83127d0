/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_absent_steps.c: the laws of absent_steps.h: a deal of counts, then plans of all
 * strategies beside the same plans without absent samples. */
#include "plans.h"

#include "plan/absent_steps.h"
#include "plan/plan.h"

static uint64_t seed = 12345;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

/* ---- the deal -------------------------------------------------------------------------------- */

enum { WORLD = 9 };

static void check_deal(const uint64_t *present, uint32_t world)
{
    rks_step_part parts[WORLD];
    uint64_t sum = 0, dealt = 0, most = 0;
    bool lacks = false;
    for (uint32_t rank = 0; rank < world; rank++) {
        sum += present[rank];
        most = present[rank] > most ? present[rank] : most;
        lacks = lacks || present[rank] == 0;
    }
    assert_int_equal(rks_step_deal(present, world, parts), sum >= world);
    if (sum < world)
        return;
    for (uint32_t rank = 0; rank < world; rank++) {
        const rks_step_part *part = &parts[rank];
        dealt += part->count;
        assert_true(part->count > 0 && part->count <= most);
        assert_true(part->first + part->count <= present[part->from]);
        assert_true(present[rank] == 0 || (part->from == rank && part->first == 0));
        assert_true(lacks || part->count == present[rank]);
        for (uint32_t other = 0; other < rank; other++)
            assert_true(parts[other].from != part->from ||
                        parts[other].first + parts[other].count <= part->first ||
                        part->first + part->count <= parts[other].first);
    }
    assert_int_equal(dealt, sum);
}

static void any_counts_are_dealt_by_the_laws(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t present[WORLD];
        uint32_t world = 1 + draw(WORLD), most = 1 + draw(12);
        for (uint32_t rank = 0; rank < world; rank++)
            present[rank] = draw(3) == 0 ? draw(most) : 0;
        check_deal(present, world);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

enum { COUNT = 400, BATCH_MOST = 512 };

static uint32_t lengths[COUNT];
static bool gone[COUNT];
static rks_absent_run runs[COUNT];
static size_t run_count;

/* A share of the samples, in runs; sometimes nearly all. */
static void lose_samples(uint32_t share)
{
    run_count = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        lengths[i] = 1 + draw(200);
        gone[i] = i > 0 && draw(4) != 0 ? gone[i - 1] : draw(100) < share;
        if (!gone[i])
            continue;
        if (i > 0 && gone[i - 1])
            runs[run_count - 1].count++;
        else
            runs[run_count++] = (rks_absent_run){i, 1};
    }
}

static void choose_options(int i, rks_plan_options *options)
{
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential", "pack"};
    rks_plan_options_default(options);
    options->strategy = strategies[i % 5];
    options->world = 1 + draw(5);
    options->seed = draw(1000);
    if (i % 5 == 4) {
        options->capacity = 256;
        options->batch_size = 1 + draw(3);
        options->micro_batches = 1 + draw(3);
    } else {
        options->batch_size = 1 + draw(9);
        options->tail = "repeat";
    }
    if (draw(3) == 0) {
        options->max_length = 70;
        options->too_long = "split";
    }
}

static rks_plan *make(const rks_plan_options *options, bool complete)
{
    rks_plan *plan = NULL;
    const rks_plan_samples samples = {.lengths = lengths,
                                      .count = COUNT,
                                      .absent = runs,
                                      .absent_count = complete ? 0 : run_count};
    assert_ok(rks_plan_create_shared(&samples, options, NULL, &plan, &err), &err);
    return plan;
}

/* A batch: each sample with the start of its piece, and where its bins end. */
typedef struct batch {
    uint64_t items[BATCH_MOST];
    size_t count;
    uint32_t ends[BATCH_MOST];
    size_t bins;
} batch;

static void read_batch(rks_plan *plan, const rks_plan_options *options, uint64_t step,
                       uint32_t rank, batch *b)
{
    const uint32_t *ids = NULL, *bounds = NULL;
    const rks_piece *pieces = NULL;
    size_t piece_count = 0, at = 0;
    *b = (batch){.count = 0};
    assert_ok(rks_plan_batch(plan, 1, step, rank, &ids, &b->count, &err), &err);
    assert_ok(rks_plan_pieces(plan, 1, step, rank, &pieces, &piece_count, &err), &err);
    assert_true(b->count <= BATCH_MOST);
    for (size_t i = 0; i < b->count; i++) {
        bool is_piece = at < piece_count && pieces[at].place == i;
        b->items[i] = ids[i] | (uint64_t)(is_piece ? 1 + pieces[at].start : 0) << 32;
        at += is_piece;
    }
    assert_int_equal(at, piece_count);
    if (strcmp(options->strategy, "pack") != 0)
        return;
    assert_ok(rks_plan_bins(plan, 1, step, rank, &bounds, &b->bins, &err), &err);
    for (size_t i = 0; i < b->bins; i++)
        b->ends[i] = bounds[i + 1] - bounds[0];
}

static bool is_gone(uint64_t item)
{
    return gone[item & UINT32_MAX];
}

/* The batch has the present samples of a stretch of one planned batch, in its order. */
static bool is_part_of(const batch *b, const batch *planned)
{
    for (size_t start = 0; start < planned->count; start++) {
        size_t at = 0;
        for (size_t i = start; i < planned->count && at < b->count; i++) {
            if (is_gone(planned->items[i]))
                continue;
            if (planned->items[i] != b->items[at])
                break;
            at++;
        }
        if (at == b->count)
            return true;
    }
    return false;
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static size_t sort_present(const batch *batches, uint32_t world, uint64_t *items)
{
    size_t count = 0;
    for (uint32_t rank = 0; rank < world; rank++)
        for (size_t i = 0; i < batches[rank].count; i++)
            if (!is_gone(batches[rank].items[i]))
                items[count++] = batches[rank].items[i];
    qsort(items, count, sizeof(*items), by_value);
    return count;
}

static void check_delivered(const batch *whole, const batch *rest, uint32_t world)
{
    static uint64_t expected[BATCH_MOST * 8], found[BATCH_MOST * 8];
    size_t count = sort_present(whole, world, expected);
    for (uint32_t rank = 0; rank < world; rank++) {
        bool part = false;
        assert_true(rest[rank].count > 0);
        for (size_t i = 0; i < rest[rank].count; i++)
            assert_false(is_gone(rest[rank].items[i]));
        for (uint32_t from = 0; from < world; from++)
            part = part || is_part_of(&rest[rank], &whole[from]);
        assert_true(part);
        for (size_t i = 0; i < rest[rank].bins; i++)
            assert_true(rest[rank].ends[i] > (i == 0 ? 0 : rest[rank].ends[i - 1]));
        assert_true(rest[rank].bins <= whole[0].bins + BATCH_MOST);
        if (rest[rank].bins > 0)
            assert_int_equal(rest[rank].ends[rest[rank].bins - 1], rest[rank].count);
    }
    assert_int_equal(sort_present(rest, world, found), count);
    assert_memory_equal(found, expected, count * sizeof(*found));
}

/* Returns true if the step has fewer present samples than ranks. */
static bool has_too_few(rks_plan *whole, const rks_plan_options *options, uint64_t step)
{
    static batch planned;
    size_t present = 0;
    for (uint32_t rank = 0; rank < options->world; rank++) {
        read_batch(whole, options, step, rank, &planned);
        for (size_t i = 0; i < planned.count; i++)
            present += !is_gone(planned.items[i]);
    }
    return present < options->world;
}

static void check_left(rks_plan *whole, rks_plan *rest, const rks_plan_options *options)
{
    static batch planned[8], delivered[8];
    uint64_t steps = 0, left = 0, counted = 0, micro = options->micro_batches;
    assert_ok(rks_plan_steps(rest, 1, &steps, &err), &err);
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t next = 0;
        bool left_out = false;
        for (uint64_t i = step - step % micro; i < step - step % micro + micro; i++)
            left_out = left_out || has_too_few(whole, options, i);
        assert_ok(rks_plan_next_step(rest, 1, step, &next, &err), &err);
        assert_int_equal(next != step, left_out);
        assert_ok(rks_plan_skipped(rest, 1, step, &counted, &err), &err);
        assert_int_equal(counted, left);
        left += left_out;
        for (uint32_t rank = 0; rank < options->world && !left_out; rank++) {
            read_batch(whole, options, step, rank, &planned[rank]);
            read_batch(rest, options, step, rank, &delivered[rank]);
        }
        if (!left_out)
            check_delivered(planned, delivered, options->world);
    }
    rks_plan_report report = {.struct_size = sizeof(report)}, other = report;
    assert_ok(rks_plan_report_get(rest, 1, &report, &err), &err);
    assert_ok(rks_plan_report_get(whole, 1, &other, &err), &err);
    assert_int_equal(report.left_out, left);
    assert_string_equal(report.digest, other.digest);
    assert_true(report.samples == other.samples && other.absent == 0 && other.left_out == 0);
}

/* Asked in any order, beside steps that the user skips, of two epochs in turn. */
static void check_counts(rks_plan *rest, const rks_plan_options *options)
{
    for (int i = 0; i < 12; i++) {
        uint64_t epoch = 1 + (uint64_t)i / 2 % 2, steps = 0, at = 0, delivered = 0, counted = 0;
        assert_ok(rks_plan_steps(rest, epoch, &steps, &err), &err);
        uint64_t groups = steps / options->micro_batches, first = draw((uint32_t)groups);
        uint64_t last = first + draw((uint32_t)(groups - first));
        if (i % 3 == 2)
            assert_ok(rks_plan_skip(rest, epoch, first * options->micro_batches,
                                    (last + 1) * options->micro_batches - 1, &err),
                      &err);
        uint64_t end = draw((uint32_t)steps + 2);
        assert_ok(rks_plan_skipped(rest, epoch, end, &counted, &err), &err);
        end = end < steps ? end : steps;
        while (at < end) {
            assert_ok(rks_plan_next_step(rest, epoch, at, &at, &err), &err);
            delivered += at < end;
            at++;
        }
        assert_int_equal(counted, end - delivered);
    }
}

static void what_is_there_of_a_step_stays_in_it_on_all_ranks(void **state)
{
    (void)state;
    uint64_t left_out = 0, whole_plans = 0;
    for (int i = 0; i < 150; i++) {
        rks_plan_options options;
        char text[RKS_STATE_MAX], same[RKS_STATE_MAX];
        uint64_t epoch = 0, step = 0;
        lose_samples(i % 3 == 0 ? 90 : i % 3 == 1 ? 30 : 3);
        choose_options(i, &options);
        rks_plan *whole = make(&options, true), *rest = make(&options, false);
        check_left(whole, rest, &options);
        uint64_t at = options.micro_batches, counted = 0;
        assert_ok(rks_plan_state(whole, 1, at, text, sizeof(text), &err), &err);
        assert_ok(rks_plan_state(rest, 1, at, same, sizeof(same), &err), &err);
        assert_string_equal(text, same);
        assert_ok(rks_plan_resume(rest, text, &epoch, &step, &err), &err);
        assert_true(epoch == 1 && step == at);
        assert_ok(rks_plan_skipped(rest, 1, UINT32_MAX, &counted, &err), &err);
        left_out += counted;
        whole_plans += counted == 0;
        check_counts(rest, &options);
        rks_plan_free(whole);
        rks_plan_free(rest);
    }
    assert_true(left_out > 100 && whole_plans > 20); /* both kinds have come */
}

/* What a plan says of its samples makes the same plan again. */
static void a_plan_is_made_again_of_lengths_and_runs(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        rks_plan_options options;
        rks_plan *again = NULL;
        const uint32_t *over = NULL;
        uint64_t count = 0, steps = 0, one = 0, other = 0;
        lose_samples(30);
        choose_options(i, &options);
        rks_plan *rest = make(&options, false);
        rks_plan_lengths(rest, &over, &count);
        rks_plan_absent(rest, &options.absent, &options.absent_count);
        assert_true(over == lengths && count == COUNT && options.absent_count == run_count);
        assert_ok(rks_plan_create(over, count, NULL, &options, &again, &err), &err);
        assert_ok(rks_plan_steps(rest, 1, &steps, &err), &err);
        assert_ok(rks_plan_skipped(rest, 1, steps, &one, &err), &err);
        assert_ok(rks_plan_skipped(again, 1, steps, &other, &err), &err);
        assert_int_equal(one, other);
        for (uint64_t step = 0; step < steps; step++)
            for (uint32_t rank = 0; rank < options.world; rank++) {
                static batch mine, theirs;
                read_batch(rest, &options, step, rank, &mine);
                read_batch(again, &options, step, rank, &theirs);
                assert_int_equal(mine.count, theirs.count);
                assert_memory_equal(mine.items, theirs.items, mine.count * sizeof(*mine.items));
            }
        rks_plan_free(rest);
        rks_plan_free(again);
    }
}

static void wrong_runs_are_refused(void **state)
{
    (void)state;
    const rks_absent_run wrong[][2] = {
        {{3, 0}, {5, 1}},         {{3, 2}, {5, 1}},         {{9, 1}, {2, 1}},
        {{0, COUNT}, {COUNT, 1}}, {{0, 1}, {COUNT - 1, 2}}, {{0, 1}, {UINT32_MAX, UINT32_MAX}}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rks_plan_options options;
        rks_plan *plan = NULL;
        rks_plan_options_default(&options);
        options.absent = wrong[i];
        options.absent_count = 2;
        assert_int_equal(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err),
                         RKS_ERR_ARGUMENT);
        assert_non_null(strstr(err.text, "runs are ascending"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_counts_are_dealt_by_the_laws),
        cmocka_unit_test(what_is_there_of_a_step_stays_in_it_on_all_ranks),
        cmocka_unit_test(a_plan_is_made_again_of_lengths_and_runs),
        cmocka_unit_test(wrong_runs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
