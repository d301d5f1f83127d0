/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_mix.c: weights of sources: how many times each sample occurs, over random sources,
 * weights, strategies, ranks and interruptions; how even sources are; states. */
#include "plans.h"

#include <math.h>

enum { SOURCES_MAX = 6, SAMPLES_MAX = 500 };

static const char *const NAMES[SOURCES_MAX] = {"web", "code", "math", "books", "news", "chat"};
static const uint32_t WORLDS[] = {1, 2, 3, 4, 7};

/* A random dataset and its mix. */
typedef struct mixture {
    uint32_t *lengths;
    uint64_t count;
    uint64_t bounds[SOURCES_MAX + 1];
    uint16_t *source_of;
    double weights[SOURCES_MAX];
    rks_plan_mix mix;
    rks_plan_options options;
} mixture;

static void make_mixture(rks_random *random, mixture *m)
{
    memset(m, 0, sizeof(*m));
    size_t sources = 1 + below(random, SOURCES_MAX);
    m->count = 20 * sources + below(random, SAMPLES_MAX);
    m->lengths = random_lengths(random, m->count);
    m->source_of = calloc(m->count, sizeof(*m->source_of));
    assert_non_null(m->source_of);
    for (size_t i = 0; i + 1 < sources; i++) /* some of one sample */
        m->bounds[i + 1] = m->bounds[i] + 1 + (below(random, 4) == 0 ? 0 : below(random, 19));
    m->bounds[sources] = m->count;
    for (size_t i = 0; i < sources; i++) {
        m->weights[i] = below(random, 5) == 0 ? 0 : 1 + below(random, 40);
        for (uint64_t id = m->bounds[i]; id < m->bounds[i + 1]; id++)
            m->source_of[id] = (uint16_t)i;
    }
    m->weights[below(random, (uint32_t)sources)] = 7;
    rks_plan_mix_default(&m->mix);
    m->mix.sources = sources;
    m->mix.names = NAMES;
    m->mix.weights = m->weights;
    m->mix.samples = below(random, 3) == 0 ? 0 : 30 + below(random, 2000);
    if (below(random, 2) == 0)
        m->mix.bounds = m->bounds;
    else
        m->mix.source_of = m->source_of;
    random_options(random, &m->options);
    m->options.tail = "split";
    m->options.world = ONE_OF(random, WORLDS);
    m->options.mix = &m->mix;
    if (below(random, 4) == 0) {
        rks_plan_options_default(&m->options);
        m->options.strategy = "pack";
        m->options.capacity = 1000 + below(random, 2000);
        m->options.too_long = below(random, 2) == 0 ? "drop" : "truncate";
        m->options.batch_size = 1 + below(random, 3);
        m->options.world = ONE_OF(random, WORLDS);
        m->options.seed = rks_random_next(random);
        m->options.mix = &m->mix;
    }
}

static void free_mixture(mixture *m)
{
    free(m->lengths);
    free(m->source_of);
}

static bool is_pack(const mixture *m)
{
    return option_is(m->options.strategy, "pack");
}

static uint64_t limit_of(const mixture *m)
{
    rks_expected expected = expect_of(m->lengths, m->count, &m->options);
    return is_pack(m) ? m->options.capacity : expected.limit;
}

static bool can_be_drawn(const mixture *m, uint64_t id)
{
    return !option_is(m->options.too_long, "drop") || m->lengths[id] <= limit_of(m);
}

/* NULL for a refusal that has its reason. */
static rks_plan *plan_of(const mixture *m, uint32_t world)
{
    rks_plan_options options = m->options;
    options.world = world;
    rks_plan *plan = NULL;
    rks_status status = rks_plan_create(m->lengths, m->count, NULL, &options, &plan, &err);
    if (status == RKS_ERR_DATA)
        return NULL;
    if (status == RKS_ERR_ARGUMENT) { /* all of a source are dropped, or too many draws */
        assert_true(strstr(err.text, "no samples to draw") != NULL ||
                    strstr(err.text, "set samples") != NULL);
        return NULL;
    }
    assert_ok(status, &err);
    return plan;
}

/* Counts deliveries of steps [first, end), and that batches keep their bounds. */
static void deliver(const mixture *m, rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t end,
                    uint32_t *seen)
{
    rks_expected expected = expect_of(m->lengths, m->count, &m->options);
    if (!is_pack(m)) {
        check_steps(plan, &expected, epoch, first, end, seen);
        return;
    }
    for (uint64_t step = first; step < end; step++)
        for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++) {
            const uint32_t *ids, *bounds;
            size_t count, bins;
            assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
            assert_ok(rks_plan_bins(plan, epoch, step, rank, &bounds, &bins, &err), &err);
            assert_true(count > 0 && bins > 0 && bins <= m->options.batch_size);
            for (size_t bin = 0; bin < bins; bin++) {
                uint64_t sum = 0;
                for (uint32_t i = bounds[bin]; i < bounds[bin + 1]; i++) {
                    uint32_t id = ids[i - bounds[0]], length = m->lengths[id];
                    sum += length < m->options.capacity ? length : m->options.capacity;
                    seen[id]++;
                }
                assert_true(sum <= m->options.capacity);
            }
        }
}

/* The draws of each source are its share, and its samples occur as often as each other, to one. */
static void check_occurrences(const mixture *m, const uint32_t *seen)
{
    uint64_t draws[SOURCES_MAX] = {0}, sizes[SOURCES_MAX] = {0}, all = 0;
    double weights = 0;
    for (uint64_t id = 0; id < m->count; id++) {
        size_t source = m->source_of[id];
        if (!can_be_drawn(m, id)) {
            assert_int_equal(seen[id], 0);
            continue;
        }
        sizes[source]++;
        draws[source] += seen[id];
        all += seen[id];
    }
    for (size_t i = 0; i < m->mix.sources; i++)
        weights += m->weights[i];
    for (size_t i = 0; i < m->mix.sources; i++)
        assert_true(fabs((double)draws[i] - m->weights[i] / weights * (double)all) < 1 + 1e-6);
    if (m->mix.samples != 0)
        assert_int_equal(all, m->mix.samples);
    for (uint64_t id = 0; id < m->count; id++) {
        size_t source = m->source_of[id];
        if (!can_be_drawn(m, id))
            continue;
        uint64_t least = draws[source] / sizes[source];
        assert_true(seen[id] == least ||
                    (draws[source] % sizes[source] != 0 && seen[id] == least + 1));
        if (m->mix.samples == 0 && m->weights[source] > 0)
            assert_true(seen[id] > 0);
    }
}

static void each_source_has_its_share(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    unsigned made = 0;
    for (unsigned round = 0; round < 800; round++) {
        rks_random random = {rks_random_key(seed, round)};
        mixture m;
        make_mixture(&random, &m);
        rks_plan *plan = plan_of(&m, m.options.world);
        for (uint64_t epoch = 0; epoch < 2 && plan != NULL; epoch++) {
            uint32_t *seen = calloc(m.count, sizeof(*seen));
            uint64_t steps;
            assert_non_null(seen);
            if (rks_plan_steps(plan, epoch, &steps, &err) == RKS_OK) {
                deliver(&m, plan, epoch, 0, steps, seen);
                check_occurrences(&m, seen);
                made++;
                rks_plan_report report = report_of(plan, epoch);
                uint64_t draws = 0, distinct = 0;
                for (uint64_t id = 0; id < m.count; id++) {
                    draws += seen[id];
                    distinct += seen[id] > 0;
                }
                assert_int_equal(report.samples, draws);
                assert_int_equal(report.repeated, draws - distinct);
            }
            free(seen);
        }
        rks_plan_free(plan);
        free_mixture(&m);
    }
    assert_true(made > 800);
}

/* One sample less than the default would leave one out. */
static void the_default_is_the_fewest_draws(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 200; round++) {
        rks_random random = {rks_random_key(seed, round)};
        mixture m;
        make_mixture(&random, &m);
        rks_plan_options_default(&m.options);
        m.options.strategy = "sequential";
        m.options.mix = &m.mix;
        m.mix.samples = 0;
        rks_plan *plan = plan_of(&m, 1);
        m.mix.samples = report_of(plan, 0).samples - 1;
        rks_plan_free(plan);
        plan = m.mix.samples == 0 ? NULL : plan_of(&m, 1);
        if (plan != NULL) {
            uint32_t *seen = calloc(m.count, sizeof(*seen));
            assert_non_null(seen);
            deliver(&m, plan, 0, 0, steps_of(plan, 0), seen);
            bool lacks = false;
            for (uint64_t id = 0; id < m.count; id++)
                lacks = lacks || (seen[id] == 0 && m.weights[m.source_of[id]] > 0);
            assert_true(lacks);
            free(seen);
        }
        rks_plan_free(plan);
        free_mixture(&m);
    }
}

/* After any number of draws, each source has had its share, give or take one draw; a source repeats
 * no sample before all of them came. */
static void random_draws_are_even(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 150; round++) {
        rks_random random = {rks_random_key(seed, round)};
        mixture m;
        make_mixture(&random, &m);
        rks_plan_options_default(&m.options);
        m.options.strategy = round % 3 == 0 ? "sequential" : "random";
        m.options.batch_size = 1 + below(&random, 9);
        m.options.mix = &m.mix;
        rks_plan *plan = plan_of(&m, 1);
        rks_plan_report report = report_of(plan, 0);
        uint64_t draws[SOURCES_MAX] = {0}, sums[SOURCES_MAX] = {0}, at = 0;
        uint32_t *seen = calloc(m.count, sizeof(*seen));
        assert_non_null(seen);
        for (int pass = 0; pass < 2; pass++)
            for (uint64_t step = 0; step < report.steps; step++) {
                const uint32_t *ids;
                size_t count;
                assert_ok(rks_plan_batch(plan, 0, step, 0, &ids, &count, &err), &err);
                for (size_t i = 0; i < count; i++) {
                    size_t source = m.source_of[ids[i]];
                    if (pass == 0) {
                        sums[source]++;
                        continue;
                    }
                    uint64_t size = m.bounds[source + 1] - m.bounds[source];
                    assert_int_equal(seen[ids[i]]++, draws[source]++ / size);
                    at++;
                    for (size_t s = 0; s < m.mix.sources; s++) {
                        double share = (double)at * (double)sums[s] / (double)report.samples;
                        assert_true(fabs((double)draws[s] - share) < 1);
                    }
                }
            }
        free(seen);
        rks_plan_free(plan);
        free_mixture(&m);
    }
}

/* ---- windows of steps ------------------------------------------------------------------------ */

enum { WINDOW_SOURCES = 3, WINDOW_SAMPLES = 12000, WINDOW_DRAWS = 40000 };

typedef struct windowed {
    uint64_t bounds[WINDOW_SOURCES + 1], steps;
    double weights[WINDOW_SOURCES];
    uint32_t *lengths;
    rks_plan_mix mix;
    rks_plan_options options;
} windowed;

/* Three sources of like lengths. Some have few samples that come often. */
static void make_windowed(rks_random *random, uint32_t *lengths, windowed *w)
{
    static const char *const strategies[] = {"random", "bucket", "pack", "random", "bucket"};
    size_t kind = below(random, 5);
    memset(w, 0, sizeof(*w));
    w->lengths = lengths;
    for (size_t i = 0; i < WINDOW_SAMPLES; i++)
        lengths[i] = 1 + below(random, 500);
    w->bounds[1] = 500 + below(random, 2000);
    w->bounds[2] = 5000;
    w->bounds[3] = WINDOW_SAMPLES;
    rks_plan_mix_default(&w->mix);
    for (size_t i = 0; i < WINDOW_SOURCES; i++)
        w->weights[i] = 1 + below(random, 9);
    w->mix.sources = WINDOW_SOURCES;
    w->mix.bounds = w->bounds;
    w->mix.weights = w->weights;
    w->mix.samples = WINDOW_DRAWS;
    rks_plan_options_default(&w->options);
    w->options.strategy = strategies[kind];
    w->options.world = 1 + below(random, 8);
    w->options.seed = rks_random_next(random);
    w->options.batch_size = option_is(w->options.strategy, "pack") ? 1 : kind > 2 ? 0 : 8;
    w->options.capacity = option_is(w->options.strategy, "pack") ? 4096 : 0;
    w->options.max_tokens = kind > 2 ? 4096 : 0;
    w->options.mix = &w->mix;
}

/* Returns the draws of each step and source, and of all sources after them. */
static double (*count_steps(windowed *w, rks_plan *plan)) [WINDOW_SOURCES + 1] {
    w->steps = steps_of(plan, 0);
    double (*counts)[WINDOW_SOURCES + 1] = calloc(w->steps, sizeof(*counts));
    assert_non_null(counts);
    for (uint64_t step = 0; step < w->steps; step++)
        for (uint32_t rank = 0; rank < w->options.world; rank++) {
            const uint32_t *ids;
            size_t count;
            assert_ok(rks_plan_batch(plan, 0, step, rank, &ids, &count, &err), &err);
            for (size_t i = 0; i < count; i++)
                counts[step][(ids[i] >= w->bounds[1]) + (ids[i] >= w->bounds[2])]++;
            counts[step][WINDOW_SOURCES] += (double)count;
        }
    return counts;
}

/* What draws of a source are above its share: a step's, and the most of any window. */
typedef struct offs {
    double most, deviation; /* of windows: in draws, and as a part of a window's draws */
    double bound;           /* of `most`, for any order of these steps */
    double chance;          /* standard deviation of a window if steps come in random order */
} offs;

static int ascending(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static offs measure_windows(const windowed *w, double (*counts)[WINDOW_SOURCES + 1], size_t source)
{
    offs found = {0};
    uint64_t window = w->steps < RKS_MIX_WINDOW ? w->steps : RKS_MIX_WINDOW;
    double *off = calloc(w->steps, sizeof(*off)), all = 0, mine = 0, sum = 0, draws = 0;
    double squares = 0, least = 0, most = 0;
    assert_non_null(off);
    for (uint64_t step = 0; step < w->steps; step++) {
        mine += counts[step][source];
        all += counts[step][WINDOW_SOURCES];
    }
    for (uint64_t step = 0; step < w->steps; step++) {
        off[step] = counts[step][source] - mine / all * counts[step][WINDOW_SOURCES];
        squares += off[step] * off[step];
        sum += off[step];
        draws += counts[step][WINDOW_SOURCES];
        if (step >= window) {
            sum -= off[step - window];
            draws -= counts[step - window][WINDOW_SOURCES];
        }
        if (step + 1 < window)
            continue;
        found.most = fmax(found.most, fabs(sum));
        found.deviation = fmax(found.deviation, fabs(sum) / draws);
    }
    qsort(off, w->steps, sizeof(*off), ascending);
    for (uint64_t i = 0; i < window; i++) {
        least += off[i];
        most += off[w->steps - 1 - i];
    }
    found.bound = fmax(most, -least);
    found.chance =
        sqrt(squares / (double)w->steps * (double)window * (1 - (double)window / (double)w->steps));
    free(off);
    return found;
}

/* mix.h: the bound of rks_mix_interleave holds for each window; how much better the order is than a
 * random one is known on average alone. */
static void windows_are_even(void **state)
{
    (void)state;
    enum { ROUNDS = 60, SMALL = 200 };
    uint64_t seed = test_seed(0);
    uint32_t *lengths = calloc(WINDOW_SAMPLES, sizeof(*lengths));
    double sum = 0, count_of_sum = 0;
    assert_non_null(lengths);
    for (unsigned round = 0; round < ROUNDS; round++) {
        rks_random random = {rks_random_key(seed, round)};
        windowed w;
        make_windowed(&random, lengths, &w);
        rks_plan *plan = NULL;
        assert_ok(rks_plan_create(lengths, WINDOW_SAMPLES, NULL, &w.options, &plan, &err), &err);
        rks_plan_source list[WINDOW_SOURCES] = {{.struct_size = sizeof(list[0])}};
        size_t count = 0;
        assert_ok(rks_plan_sources(plan, 0, list, WINDOW_SOURCES, &count, &err), &err);
        assert_int_equal(count, WINDOW_SOURCES);
        double (*counts)[WINDOW_SOURCES + 1] = count_steps(&w, plan);
        for (size_t i = 0; i < WINDOW_SOURCES; i++) {
            offs found = measure_windows(&w, counts, i);
            assert_true(fabs(list[i].deviation - found.deviation) < 1e-9);
            assert_true(found.most <= found.bound * (1 + 1e-9));
            assert_int_equal(list[i].samples, w.bounds[i + 1] - w.bounds[i]);
            if (option_is(w.options.strategy, "random"))
                assert_true(found.deviation <= 0.01);
            else if (w.steps >= SMALL) {
                sum += found.most / found.chance;
                count_of_sum++;
            }
        }
        assert_true(report_of(plan, 0).balance > 0.85);
        rks_plan_free(plan);
        free(counts);
    }
    assert_true(count_of_sum > 0 && sum / count_of_sum < 1); /* a random order: above 2 */
    free(lengths);
}

/* An epoch that goes on with other ranks, twice, has the draws of an uninterrupted one. */
static void a_resumed_epoch_has_the_same_draws(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    unsigned made = 0;
    for (unsigned round = 0; round < 400; round++) {
        rks_random random = {rks_random_key(seed, round)};
        mixture m;
        make_mixture(&random, &m);
        uint32_t *whole = calloc(m.count, sizeof(*whole)), *seen = calloc(m.count, sizeof(*seen));
        assert_non_null(whole);
        assert_non_null(seen);
        rks_plan *plan = plan_of(&m, m.options.world);
        if (plan != NULL)
            deliver(&m, plan, 0, 0, steps_of(plan, 0), whole);
        uint64_t epoch = 0, step = 0;
        for (int part = 0; part < 3 && plan != NULL; part++) {
            uint64_t steps = steps_of(plan, 0);
            uint64_t to = part == 2 ? steps : step + rks_random_below(&random, steps - step);
            deliver(&m, plan, 0, step, to, seen);
            if (part == 2) {
                assert_memory_equal(whole, seen, m.count * sizeof(*seen));
                made++;
                break;
            }
            char text[RKS_STATE_MAX];
            assert_ok(rks_plan_state(plan, 0, to, text, sizeof(text), &err), &err);
            rks_plan_free(plan);
            plan = plan_of(&m, ONE_OF(&random, WORLDS));
            rks_status status =
                plan == NULL ? RKS_ERR_DATA : rks_plan_resume(plan, text, &epoch, &step, &err);
            if (status == RKS_ERR_DATA) /* the rest is too little for these ranks */
                break;
            assert_ok(status, &err);
            assert_int_equal(epoch, 0);
        }
        rks_plan_free(plan);
        free(whole);
        free(seen);
        free_mixture(&m);
    }
    assert_true(made > 200);
}

static void states_know_the_mix(void **state)
{
    (void)state;
    uint32_t lengths[100] = {0};
    uint64_t bounds[] = {0, 40, 100}, epoch, step;
    double weights[] = {1, 2};
    char with[RKS_STATE_MAX], without[RKS_STATE_MAX];
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = 2;
    mix.bounds = bounds;
    mix.weights = weights;
    rks_plan_options options;
    rks_plan_options_default(&options);
    rks_plan *plain = NULL, *mixed = NULL, *other = NULL;
    assert_ok(rks_plan_create(lengths, 100, NULL, &options, &plain, &err), &err);
    options.mix = &mix;
    assert_ok(rks_plan_create(lengths, 100, NULL, &options, &mixed, &err), &err);
    weights[0] = 1.5;
    assert_ok(rks_plan_create(lengths, 100, NULL, &options, &other, &err), &err);
    assert_ok(rks_plan_state(mixed, 0, 1, with, sizeof(with), &err), &err);
    assert_ok(rks_plan_state(plain, 0, 1, without, sizeof(without), &err), &err);
    assert_null(strstr(without, "mix"));
    assert_ok(rks_plan_resume(mixed, with, &epoch, &step, &err), &err);
    const char *after =
        "; make the plan with the same mix, weights and samples, and change weights by "
        "a remix afterwards";
    char text[256];
    assert_int_equal(rks_plan_resume(plain, with, &epoch, &step, &err), RKS_ERR_STATE);
    snprintf(text, sizeof(text), "%s%s",
             "state: mix differs: it was saved with another one, and this plan has none", after);
    assert_string_equal(err.text, text);
    assert_int_equal(rks_plan_resume(mixed, without, &epoch, &step, &err), RKS_ERR_STATE);
    snprintf(text, sizeof(text), "%s%s",
             "state: mix differs: it was saved without one, and this plan has one", after);
    assert_string_equal(err.text, text);
    assert_int_equal(rks_plan_resume(other, with, &epoch, &step, &err), RKS_ERR_STATE);
    rks_plan_source list;
    size_t count;
    assert_int_equal(rks_plan_sources(plain, 0, &list, 1, &count, &err), RKS_ERR_STATE);
    assert_string_equal(err.text, "sources: the plan has no mix");
    rks_plan_free(plain);
    rks_plan_free(mixed);
    rks_plan_free(other);
}

/* Each allocation may fail. */
static void lacking_memory_is_an_error(void **state)
{
    (void)state;
    static const char *const strategies[] = {"random", "bucket", "pack"};
    uint32_t lengths[400];
    uint64_t bounds[] = {0, 40, 400};
    double weights[] = {1, 2};
    for (size_t i = 0; i < 400; i++)
        lengths[i] = 1 + (uint32_t)(i * 7 % 50);
    for (size_t round = 0; round < 3; round++) {
        rks_plan_mix mix;
        rks_plan_mix_default(&mix);
        mix.sources = 2;
        mix.bounds = bounds;
        mix.weights = weights;
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = strategies[round];
        options.capacity = round == 2 ? 100 : 0;
        options.world = 2;
        options.mix = &mix;
        long before = rks_memory_in_use();
        for (long at = 1;; at++) {
            rks_plan *plan = NULL;
            rks_memory_fail_at(at);
            rks_status status = rks_plan_create(lengths, 400, NULL, &options, &plan, &err);
            bool failed = rks_memory_fail_left() == 0;
            rks_memory_fail_at(0);
            assert_int_equal(status, failed ? RKS_ERR_MEMORY : RKS_OK);
            rks_plan_free(plan);
            assert_int_equal(rks_memory_in_use(), before);
            if (!failed)
                break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_source_has_its_share),
        cmocka_unit_test(the_default_is_the_fewest_draws),
        cmocka_unit_test(random_draws_are_even),
        cmocka_unit_test(windows_are_even),
        cmocka_unit_test(a_resumed_epoch_has_the_same_draws),
        cmocka_unit_test(states_know_the_mix),
        cmocka_unit_test(lacking_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
