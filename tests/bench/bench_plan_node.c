/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_plan_node.c: what a plan takes on a node, whose ranks are processes here: memory beside the
 * lengths, the wait at a new epoch, and going on at 90 % of an epoch. Lengths are made up (median
 * 300, sigma 1, from 8 to 8192) and lie once in shared memory, as an index does.
 *
 *   bench_plan_node [--private] [--strategy NAME] [--ranks N] SAMPLES...
 *
 * --private: each rank makes its own epochs, as with no_share. Memory is what all ranks allocated
 * (RssAnon), the places of the epochs and the sorted order; "peak" is looked at each 5 ms. Times
 * are those of the slowest rank. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "plan/plan.h"
#include "plan/order/random.h"
#include "plan/cache/epoch_cache_area.h"

enum { RANKS_MAX = 64, NAP_US = 5000, BATCH = 64, TOKENS = 16384 };
enum { CREATE, FIRST, SECOND, THIRD, RESUME_SAME, RESUME_OTHER, PHASES };

typedef struct board {
    atomic_uint phase, done;
    double seconds[PHASES][RANKS_MAX];
    char same[RKS_STATE_MAX], other[RKS_STATE_MAX];
} board;

static board *shown;
static const uint32_t *lengths;
static const uint32_t *order;
static rks_plan_options options;
static uint32_t ranks = 8;

static void check(rks_status status, const rks_error *err)
{
    if (status == RKS_OK)
        return;
    fprintf(stderr, "bench_plan_node: %s: %s\n", rks_status_name(status), err->text);
    exit(3);
}

static void *shared(uint64_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        exit(3);
    return map;
}

/* From a table: a log-normal number for each is slower than what is measured. */
static uint32_t *draw_lengths(uint64_t count)
{
    enum { TABLE = 1 << 16 };
    static uint32_t table[TABLE];
    rks_random random = {5};
    for (size_t i = 0; i < TABLE; i++) {
        double u = ((double)(rks_random_next(&random) >> 11) + 1) * 0x1p-53;
        double v = (double)(rks_random_next(&random) >> 11) * 0x1p-53;
        double length = 300 * exp(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
        table[i] = (uint32_t)(length < 8 ? 8 : length > 8192 ? 8192 : length);
    }
    uint32_t *made = shared(count * sizeof(*made));
    for (uint64_t i = 0; i < count; i++)
        made[i] = table[rks_random_below(&random, TABLE)];
    return made;
}

/* ---- a rank -----------------------------------------------------------------------------------
 */

static void wait_for(unsigned phase)
{
    while (atomic_load(&shown->phase) < phase)
        usleep(200);
}

static rks_plan *create(uint64_t count, uint32_t rank, int memory)
{
    rks_error err;
    rks_plan *plan = NULL;
    const rks_plan_share_options share = {.fd = memory, .rank = rank, .silence_ms = 60000};
    const rks_plan_samples samples = {.lengths = lengths, .count = count, .order = order};
    check(rks_plan_create_shared(&samples, &options, memory < 0 ? NULL : &share, &plan, &err),
          &err);
    return plan;
}

static void ask(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank)
{
    rks_error err;
    const uint32_t *ids;
    size_t count;
    check(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
}

static void resume(uint64_t count, uint32_t rank, int memory, const char *state, double *seconds)
{
    rks_error err;
    uint64_t epoch, step;
    rks_plan *plan = create(count, rank, memory);
    uint64_t begun = rks_now_ns();
    check(rks_plan_resume(plan, state, &epoch, &step, &err), &err);
    ask(plan, epoch, step, rank);
    *seconds = (double)(rks_now_ns() - begun) * 1e-9;
    rks_plan_free(plan);
}

static void run_rank(uint64_t count, uint32_t rank, const int *memories)
{
    rks_plan *plan = NULL;
    for (unsigned phase = 0; phase < PHASES; phase++) {
        wait_for(phase + 1);
        uint64_t begun = rks_now_ns();
        double *seconds = &shown->seconds[phase][rank];
        if (phase == CREATE)
            plan = create(count, rank, memories[0]);
        else if (phase <= THIRD)
            ask(plan, phase - FIRST, 0, rank);
        *seconds = (double)(rks_now_ns() - begun) * 1e-9;
        if (phase == RESUME_SAME) {
            rks_plan_free(plan);
            resume(count, rank, memories[1], shown->same, seconds);
        } else if (phase == RESUME_OTHER) {
            resume(count, rank, memories[2], shown->other, seconds);
        }
        atomic_fetch_add(&shown->done, 1);
    }
    _exit(0);
}

/* ---- the node ---------------------------------------------------------------------------------
 */

static uint64_t allocated_by(pid_t pid)
{
    char path[64], line[256];
    uint64_t kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib * 1024;
}

static uint64_t held(const pid_t *pids, const int *memories)
{
    uint64_t bytes = 0;
    struct stat info;
    for (uint32_t i = 0; i < ranks; i++)
        bytes += allocated_by(pids[i]);
    for (size_t i = 0; i < 3; i++)
        bytes +=
            memories[i] >= 0 && fstat(memories[i], &info) == 0 ? (uint64_t)info.st_blocks * 512 : 0;
    return bytes;
}

/* No rank makes anything any more. */
static bool is_quiet(int memory)
{
    rks_error err;
    rks_cache_area area;
    const rks_plan_share_options share = {.fd = memory};
    bool quiet = true;
    if (memory < 0)
        return true;
    check(rks_cache_area_open(&share, &area, &err), &err);
    check(rks_cache_enter(&area, area.options.fd, false, &err), &err);
    for (size_t i = 0; i < CACHE_EPOCHS; i++)
        quiet = quiet && area.control->places[i].state != CACHE_MAKING;
    rks_cache_leave(&area, area.options.fd);
    rks_cache_area_close(&area);
    return quiet;
}

static void save_states(uint64_t count)
{
    rks_error err;
    uint64_t steps;
    uint32_t world = options.world;
    for (unsigned other = 0; other < 2; other++) {
        rks_plan *plan = NULL;
        options.world = other ? world * 2 : world;
        check(rks_plan_create_sorted(lengths, count, order, NULL, &options, &plan, &err), &err);
        check(rks_plan_steps(plan, 3, &steps, &err), &err);
        check(rks_plan_state(plan, 3, steps * 9 / 10, other ? shown->other : shown->same,
                             RKS_STATE_MAX, &err),
              &err);
        rks_plan_free(plan);
    }
    options.world = world;
}

static double slowest(unsigned phase)
{
    double most = 0;
    for (uint32_t i = 0; i < ranks; i++)
        most = shown->seconds[phase][i] > most ? shown->seconds[phase][i] : most;
    return most;
}

static void measure(uint64_t count, bool is_private)
{
    rks_error err;
    pid_t pids[RANKS_MAX];
    int memories[3] = {-1, -1, -1};
    uint64_t order_bytes = 0, peak = 0, steady = 0, after = 0;
    lengths = draw_lengths(count);
    order = NULL;
    check(rks_plan_order_bytes(count, &options, &order_bytes, &err), &err);
    if (order_bytes > 0) {
        order = shared(order_bytes);
        check(rks_plan_sort(lengths, count, (void *)(uintptr_t)order, &err), &err);
    }
    shown = shared(sizeof(*shown));
    save_states(count);
    for (size_t i = 0; i < 3 && !is_private; i++)
        check(rks_plan_share_memory(&memories[i], &err), &err);
    for (uint32_t rank = 0; rank < ranks; rank++)
        if ((pids[rank] = fork()) == 0)
            run_rank(count, rank, memories);
    for (unsigned phase = 0; phase < PHASES; phase++) {
        atomic_store(&shown->phase, phase + 1);
        while (atomic_load(&shown->done) < (phase + 1) * ranks || !is_quiet(memories[0])) {
            uint64_t now = held(pids, memories);
            peak = now > peak && phase <= THIRD ? now : peak;
            usleep(NAP_US);
        }
        if (phase == THIRD)
            steady = held(pids, memories);
        after = phase;
    }
    (void)after;
    for (uint32_t rank = 0; rank < ranks; rank++)
        waitpid(pids[rank], NULL, 0);
    for (size_t i = 0; i < 3; i++)
        if (memories[i] >= 0)
            close(memories[i]);
    double samples = (double)count;
    printf("%12" PRIu64 " %7.2f %7.2f %8.0f %8.3f %8.3f %9.1f %9.1f %8.3f %8.3f\n", count,
           (double)(steady + order_bytes) / samples, (double)(peak + order_bytes) / samples,
           (double)(steady + order_bytes) / 1e6, slowest(CREATE), slowest(FIRST),
           slowest(SECOND) * 1e3, slowest(THIRD) * 1e3, slowest(RESUME_SAME),
           slowest(RESUME_OTHER));
    fflush(stdout);
    munmap((void *)(uintptr_t)lengths, count * sizeof(*lengths));
    if (order != NULL)
        munmap((void *)(uintptr_t)order, order_bytes);
    munmap(shown, sizeof(*shown));
}

int main(int argc, char **argv)
{
    bool is_private = false, headed = false;
    rks_plan_options_default(&options);
    options.strategy = "bucket";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--private") == 0) {
            is_private = true;
        } else if (strcmp(argv[i], "--strategy") == 0 && i + 1 < argc) {
            options.strategy = argv[++i];
        } else if (strcmp(argv[i], "--ranks") == 0 && i + 1 < argc) {
            ranks = (uint32_t)strtoul(argv[++i], NULL, 10);
            if (ranks == 0 || ranks > RANKS_MAX)
                return 2;
        } else {
            options.world = ranks;
            options.seed = 1;
            if (strcmp(options.strategy, "pack") == 0)
                options.capacity = TOKENS;
            else
                options.batch_size = BATCH;
            if (!headed)
                printf("%s, %u ranks, epochs %s\n%12s %7s %7s %8s %8s %8s %9s %9s %8s %8s\n",
                       options.strategy, ranks, is_private ? "of each rank" : "shared", "samples",
                       "B each", "peak", "MB", "create s", "epoch 0", "1: ms", "2: ms", "resume s",
                       "other s");
            headed = true;
            measure(strtoull(argv[i], NULL, 10), is_private);
        }
    }
    return headed ? 0 : 2;
}
