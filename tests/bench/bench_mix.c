/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_mix.c: what a draw costs where sources are mixed by weight: time and memory of a plan and
 * of its epochs, over unequal sources (source i of S has a share of samples of about 1 / (i + 1),
 * and a weight of its own), 8 ranks, one thread.
 *
 *   bench_mix [--strategy random|sequential|bucket|sorted|pack] [--sources S] [--samples M]
 *             [--epochs N] [--bytes-at-most B] [DRAWS]
 *
 * By default all five strategies, S 100, M half of the draws, N 3 and DRAWS 1,000,000. Prints for
 * each strategy the processor time, in ns a draw, that the plan (with epoch 0) and a later epoch
 * (the median of N) took, and the most bytes a draw that the plan's arrays took at a time, lengths
 * left out; above B it ends with 1. 1 G draws of 500 M samples take 2 GB of lengths and 8 to 15 GB
 * of arrays. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/plan.h"
#include "plan/order/random.h"

enum { EPOCHS_MAX = 99, WORLD = 8 };

typedef struct settings {
    const char *strategy;                     /* NULL: each */
    uint64_t sources, samples, epochs, bytes; /* bytes a draw at most */
} settings;

static void check(rks_status status, const rks_error *err)
{
    if (status == RKS_OK)
        return;
    fprintf(stderr, "bench_mix: %s: %s\n", rks_status_name(status), err->text);
    exit(3);
}

static void *allocate(uint64_t count, size_t size)
{
    void *made = malloc(count * size);
    if (made == NULL) {
        fprintf(stderr, "bench_mix: no memory for %" PRIu64 " x %zu bytes\n", count, size);
        exit(3);
    }
    return made;
}

/* Log-normal, median 300, sigma 1, from 8 to 8192: 4,096 of them, in turn at random. */
static uint32_t *draw_lengths(uint64_t count)
{
    enum { KINDS = 4096 };
    uint32_t kinds[KINDS], *lengths = allocate(count, sizeof(*lengths));
    rks_random random = {5};
    for (size_t i = 0; i < KINDS; i++) {
        double u = ((double)(rks_random_next(&random) >> 11) + 1) * 0x1p-53;
        double v = (double)(rks_random_next(&random) >> 11) * 0x1p-53;
        double length = 300 * exp(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
        kinds[i] = (uint32_t)(length < 8 ? 8 : length > 8192 ? 8192 : length);
    }
    for (uint64_t i = 0; i < count; i++)
        lengths[i] = kinds[rks_random_next(&random) % KINDS];
    return lengths;
}

/* Bounds of unequal sources, one sample each at least, and weights that are not their shares. */
static void draw_sources(const settings *s, uint64_t *bounds, double *weights)
{
    rks_random random = {6};
    double all = 0, sum = 0;
    for (uint64_t i = 0; i < s->sources; i++)
        all += 1.0 / (double)(i + 1);
    bounds[0] = 0;
    for (uint64_t i = 0; i < s->sources; i++) {
        sum += 1.0 / (double)(i + 1);
        uint64_t end = (uint64_t)((double)s->samples * sum / all), rest = s->sources - i - 1;
        end = end < bounds[i] + 1 ? bounds[i] + 1 : end;
        bounds[i + 1] = rest == 0 ? s->samples : end > s->samples - rest ? s->samples - rest : end;
        weights[i] = (double)(1 + rks_random_next(&random) % 1000);
    }
}

/* Of this process: planning is one thread's work, and others on the machine do not count. */
static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t plan_bytes_at_most(void)
{
    rks_memory_use use = {.struct_size = sizeof(use)};
    rks_memory_use_get(&use);
    return use.kinds[RKS_MEMORY_PLAN].peak;
}

static int measure(const settings *s, const char *strategy, const uint32_t *lengths, uint64_t draws)
{
    rks_error err;
    rks_plan_options options;
    rks_plan_mix mix;
    rks_plan_options_default(&options);
    rks_plan_mix_default(&mix);
    uint64_t *bounds = allocate(s->sources + 1, sizeof(*bounds));
    double *weights = allocate(s->sources, sizeof(*weights)), later[EPOCHS_MAX], n = (double)draws;
    draw_sources(s, bounds, weights);
    mix.sources = s->sources;
    mix.bounds = bounds;
    mix.weights = weights;
    mix.samples = draws;
    bool packs = strcmp(strategy, "pack") == 0, counts = strcmp(strategy, "random") == 0;
    options.strategy = strategy;
    options.batch_size = packs ? 0 : 64;
    options.max_tokens = packs || counts ? 0 : 16384;
    options.capacity = packs ? 8192 : 0;
    options.world = WORLD;
    options.seed = 1;
    options.mix = &mix;
    uint64_t before = plan_bytes_at_most(), begun = processor_ns(), steps = 0;
    rks_plan *plan;
    check(rks_plan_create(lengths, s->samples, NULL, &options, &plan, &err), &err);
    double made = (double)(processor_ns() - begun) / n; /* epoch 0 is planned with it */
    for (uint64_t epoch = 1; epoch <= s->epochs; epoch++) {
        const uint32_t *ids;
        size_t size;
        begun = processor_ns();
        check(rks_plan_batch(plan, epoch, 0, 0, &ids, &size, &err), &err);
        later[epoch - 1] = (double)(processor_ns() - begun) / n;
    }
    check(rks_plan_steps(plan, 0, &steps, &err), &err);
    qsort(later, s->epochs, sizeof(*later), by_value);
    double bytes = (double)(plan_bytes_at_most() - before) / n;
    printf("%-10s %11" PRIu64 " %7" PRIu64 " %8.1f %8.1f %10.1f %10" PRIu64 "\n", strategy, draws,
           s->sources, made, later[s->epochs / 2], bytes, steps);
    fflush(stdout);
    rks_plan_free(plan);
    free(bounds);
    free(weights);
    if (s->bytes == 0 || bytes <= (double)s->bytes)
        return 0;
    fprintf(stderr, "bench_mix: %s: %.1f bytes a draw, above %" PRIu64 "\n", strategy, bytes,
            s->bytes);
    return 1;
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0' || value < least || value > most) {
        fprintf(stderr, "bench_mix: \"%s\" is not from %" PRIu64 " to %" PRIu64 "\n", text, least,
                most);
        exit(2);
    }
    return value;
}

/* Each strategy in a process of its own: the most memory is a process's. */
static int run_alone(const settings *s, const char *strategy, const uint32_t *lengths,
                     uint64_t draws)
{
    pid_t child = fork();
    if (child == 0) {
        exit(measure(s, strategy, lengths, draws));
    }
    int ended = -1;
    if (child < 0 || waitpid(child, &ended, 0) != child)
        perror("bench_mix");
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : 3;
}

int main(int argc, char **argv)
{
    static const char *const strategies[] = {"random", "sequential", "bucket", "sorted", "pack"};
    settings s = {.sources = 100, .epochs = 3};
    uint64_t draws = 1000000;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--strategy") == 0)
            s.strategy = next;
        else if (strcmp(argv[i], "--sources") == 0)
            s.sources = number(next, 1, RKS_MIX_SOURCES_MAX);
        else if (strcmp(argv[i], "--samples") == 0)
            s.samples = number(next, 1, UINT32_MAX - 1);
        else if (strcmp(argv[i], "--epochs") == 0)
            s.epochs = number(next, 1, EPOCHS_MAX);
        else if (strcmp(argv[i], "--bytes-at-most") == 0)
            s.bytes = number(next, 1, UINT32_MAX);
        else
            draws = number(argv[i--], 8, UINT32_MAX - 1);
        i++;
    }
    s.samples = s.samples == 0 ? draws / 2 : s.samples;
    if (s.samples < s.sources) {
        fprintf(stderr, "bench_mix: each source needs a sample\n");
        return 2;
    }
    uint32_t *lengths = draw_lengths(s.samples);
    int failed = 0;
    printf("                                ns a draw        bytes a\n"
           "strategy         draws sources     make    later       draw      steps\n");
    fflush(stdout);
    for (size_t i = 0; i < sizeof(strategies) / sizeof(*strategies); i++)
        if (s.strategy == NULL || strcmp(s.strategy, strategies[i]) == 0)
            failed |= run_alone(&s, strategies[i], lengths, draws);
    free(lengths);
    return failed;
}
