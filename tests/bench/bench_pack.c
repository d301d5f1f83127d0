/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_pack.c: what plans of strategy pack cost and how good they are, one thread, beside a plain
 * best-fit decreasing over a histogram (no shuffle, no equal steps, floating point) in the same
 * run.
 *
 *   bench_pack [--runs N] [SHAPE SAMPLES CAPACITY RANKS [MICRO_BATCHES]]...   medians of N runs (5)
 *   bench_pack [--runs N] --histogram FILE CAPACITY RANKS
 *   bench_pack --plain FILE CAPACITY      the plain one alone, over the uint32 lengths in FILE:
 * once for each line of standard input; seconds and bins a line bench_pack --draw FILE SHAPE
 * SAMPLES CAPACITY      writes lengths, uint32
 *
 * FILE has how many samples have length 1, 2, ..., numbers with anything but digits between them.
 *
 * Shapes of lengths: A, chat: completion lognormal(median 700, sigma 0.9) in 16..4096, a tenth of
 * them 4096, plus a prompt lognormal(256, 0.5) in 32..1024; C, long documents: lognormal(600, 1) in
 * 16..32768, 5 % replaced by lognormal(24000, 0.8) in 2000..131072; G, gamma(5, 20); U, uniform
 * 1..512. The cost is L + L^2 / 49152. With micro-batches an optimizer step is mixed.
 *
 * ns a sample: first, of a plan with its first epoch; later, of another epoch; plain. Fill: of all
 * bins, and of all but those of the emptiest optimizer step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <malloc.h>

#include "base/clock.h"
#include "plan/plan.h"
#include "plan/order/random.h"

enum { RUNS_MAX = 99 };

static const double QUADRATIC = 1.0 / 49152;

static void check(rks_status status, const rks_error *err)
{
    if (status == RKS_OK)
        return;
    fprintf(stderr, "bench_pack: %s: %s\n", rks_status_name(status), err->text);
    exit(3);
}

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL)
        exit(3);
    return memory;
}

/* ---- lengths --------------------------------------------------------------------------------- */

static double uniform(rks_random *random)
{
    return ((double)(rks_random_next(random) >> 11) + 1) * 0x1p-53;
}

static double lognormal(rks_random *random, double median, double sigma, double low, double high)
{
    double normal = sqrt(-2 * log(uniform(random))) * cos(6.283185307179586 * uniform(random));
    double length = median * exp(sigma * normal);
    return length < low ? low : length > high ? high : length;
}

static uint32_t draw(rks_random *random, char shape)
{
    double length = 0;
    switch (shape) {
    case 'A':
        length = lognormal(random, 700, 0.9, 16, 4096);
        if (rks_random_below(random, 10) == 0)
            length = 4096;
        return (uint32_t)(length + lognormal(random, 256, 0.5, 32, 1024));
    case 'C':
        length = lognormal(random, 600, 1, 16, 32768);
        if (rks_random_below(random, 20) == 0)
            length = lognormal(random, 24000, 0.8, 2000, 131072);
        return (uint32_t)length;
    case 'G':
        for (int i = 0; i < 5; i++)
            length -= 20 * log(uniform(random));
        return length < 1 ? 1 : (uint32_t)length;
    default:
        return 1 + (uint32_t)rks_random_below(random, 512);
    }
}

/* ---- the plain algorithm --------------------------------------------------------------------- */

typedef struct part {
    uint32_t before, length, count;
} part;

typedef struct bin_group {
    double cost;
    uint32_t next, room, bins, last;
} bin_group;

typedef struct plain {
    uint32_t capacity;
    uint32_t *counts, *at, *order, *heads;
    uint64_t *rooms, *words; /* bits of rooms that have a group, and of words that are not 0 */
    part *parts;
    bin_group *groups;
    uint32_t part_count, part_room, group_count, group_room;
} plain;

static void plain_add(plain *p, const bin_group *base, uint32_t length, uint32_t bins,
                      uint32_t each)
{
    if (p->part_count == p->part_room)
        p->parts = realloc(p->parts, (p->part_room *= 2) * sizeof(*p->parts));
    if (p->group_count == p->group_room)
        p->groups = realloc(p->groups, (p->group_room *= 2) * sizeof(*p->groups));
    if (p->parts == NULL || p->groups == NULL)
        exit(3);
    bin_group group = *base;
    p->parts[p->part_count] = (part){group.last, length, each};
    group.last = p->part_count++;
    group.room -= each * length;
    group.bins = bins;
    group.cost += each * (length + QUADRATIC * length * length);
    group.next = p->heads[group.room];
    p->heads[group.room] = p->group_count;
    p->groups[p->group_count++] = group;
    p->rooms[group.room / 64] |= UINT64_C(1) << group.room % 64;
    p->words[group.room / 4096] |= UINT64_C(1) << group.room / 64 % 64;
}

static void plain_take(plain *p, uint32_t room)
{
    p->heads[room] = p->groups[p->heads[room]].next;
    if (p->heads[room] != UINT32_MAX)
        return;
    p->rooms[room / 64] &= ~(UINT64_C(1) << room % 64);
    if (p->rooms[room / 64] == 0)
        p->words[room / 4096] &= ~(UINT64_C(1) << room / 64 % 64);
}

static uint32_t plain_find(const plain *p, uint32_t length)
{
    uint64_t bits = p->rooms[length / 64] >> length % 64;
    if (bits != 0)
        return length + (uint32_t)__builtin_ctzll(bits);
    uint32_t word = length / 64 + 1;
    for (uint32_t i = word / 64; i <= p->capacity / 4096; i++) {
        bits = p->words[i] & (i == word / 64 ? ~UINT64_C(0) << word % 64 : ~UINT64_C(0));
        if (bits == 0)
            continue;
        word = i * 64 + (uint32_t)__builtin_ctzll(bits);
        return word * 64 + (uint32_t)__builtin_ctzll(p->rooms[word]);
    }
    return UINT32_MAX;
}

static void plain_fill(plain *p, const bin_group *base, uint32_t length, uint32_t left)
{
    uint32_t each = base->room / length;
    if (left >= each)
        plain_add(p, base, length, left / each, each);
    if (left % each != 0)
        plain_add(p, base, length, 1, left % each);
}

static void plain_pack(plain *p)
{
    for (uint32_t length = p->capacity; length > 0; length--) {
        uint32_t left = p->counts[length];
        while (left > 0) {
            bin_group base = {.last = UINT32_MAX, .room = p->capacity};
            uint32_t room = plain_find(p, length);
            if (room != UINT32_MAX) {
                bin_group *best = &p->groups[p->heads[room]];
                base = *best;
                uint32_t each = room / length, most = best->bins * each;
                uint32_t taken = left < most ? left : most;
                best->bins -= (taken + each - 1) / each;
                if (best->bins == 0)
                    plain_take(p, room);
                plain_fill(p, &base, length, taken);
                left -= taken;
            } else {
                plain_fill(p, &base, length, left);
                left = 0;
            }
        }
    }
}

static int dearest_first(const void *a, const void *b)
{
    double x = ((const bin_group *)a)->cost, y = ((const bin_group *)b)->cost;
    return (x < y) - (x > y);
}

/* Sorts, packs and deals; the number of bins. */
static uint64_t run_plain(const uint32_t *lengths, uint64_t count, uint32_t capacity, double *ns)
{
    uint64_t begun = rks_now_ns(), bins = 0, at = 0;
    plain p = {.capacity = capacity, .part_room = 1 << 16, .group_room = 1 << 16};
    p.counts = need(capacity + 1, sizeof(uint32_t));
    p.at = need(capacity + 1, sizeof(uint32_t));
    p.heads = need(capacity + 1, sizeof(uint32_t));
    p.rooms = need(capacity / 64 + 1, sizeof(uint64_t));
    p.words = need(capacity / 4096 + 1, sizeof(uint64_t));
    p.parts = need(p.part_room, sizeof(part));
    p.groups = need(p.group_room, sizeof(bin_group));
    p.order = malloc(count * sizeof(uint32_t));
    uint32_t *ids = malloc(count * sizeof(uint32_t)), *starts = malloc(count * sizeof(uint32_t));
    if (p.order == NULL || ids == NULL || starts == NULL)
        exit(3);
    memset(p.heads, 0xff, (capacity + 1) * sizeof(uint32_t));
    for (uint64_t i = 0; i < count; i++)
        p.counts[lengths[i]]++;
    uint32_t next = 0;
    for (uint32_t length = capacity; length > 0; length--) {
        p.at[length] = next;
        next += p.counts[length];
    }
    for (uint64_t i = 0; i < count; i++)
        p.order[p.at[lengths[i]]++] = (uint32_t)i;
    for (uint32_t length = capacity; length > 0; length--)
        p.at[length] -= p.counts[length];
    plain_pack(&p);
    qsort(p.groups, p.group_count, sizeof(*p.groups), dearest_first);
    for (uint32_t i = 0; i < p.group_count; i++)
        for (uint32_t bin = 0; bin < p.groups[i].bins; bin++) {
            starts[bins++] = (uint32_t)at;
            for (uint32_t q = p.groups[i].last; q != UINT32_MAX; q = p.parts[q].before) {
                const part *from = &p.parts[q];
                memcpy(ids + at, p.order + p.at[from->length], from->count * sizeof(*ids));
                p.at[from->length] += from->count;
                at += from->count;
            }
        }
    *ns = (double)(rks_now_ns() - begun) / (double)count;
    if (at != count)
        exit(3);
    void *all[] = {p.counts, p.at,     p.heads, p.rooms, p.words,
                   p.parts,  p.groups, p.order, ids,     starts};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
    return bins;
}

/* ---- both ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return values[count / 2];
}

static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* Tokens of all bins but those of the optimizer step that has the fewest, by their room: equal
 * steps leave one that may be nearly empty, and the shuffle puts it anywhere. */
static double fill_but_least(rks_plan *plan, const uint32_t *lengths, const rks_plan_report *report,
                             uint32_t capacity, uint32_t ranks, uint32_t micros)
{
    rks_error err;
    uint64_t tokens = 0, bins = 0, least = UINT64_MAX, bins_of_least = 0;
    for (uint64_t step = 0; step < report->steps; step++) {
        tokens = step % micros == 0 ? 0 : tokens;
        bins = step % micros == 0 ? 0 : bins;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const uint32_t *ids, *bounds;
            size_t size, count;
            check(rks_plan_batch(plan, 1, step, rank, &ids, &size, &err), &err);
            check(rks_plan_bins(plan, 1, step, rank, &bounds, &count, &err), &err);
            bins += count;
            for (size_t i = 0; i < size; i++)
                tokens += lengths[ids[i]];
        }
        if (step % micros == micros - 1 && tokens < least) {
            least = tokens;
            bins_of_least = bins;
        }
    }
    if (report->bins == bins_of_least)
        return NAN;
    return (double)(report->tokens - least) / ((double)(report->bins - bins_of_least) * capacity);
}

static void measure(char shape, const uint32_t *lengths, uint64_t count, uint32_t capacity,
                    uint32_t ranks, uint32_t micros, int runs)
{
    rks_error err;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = capacity;
    options.world = ranks;
    options.micro_batches = micros;
    options.mixed = micros > 1;
    options.cost = "polynomial";
    options.cost_linear = 1;
    options.cost_quadratic = QUADRATIC;
    double first[RUNS_MAX], later[RUNS_MAX], plain_ns[RUNS_MAX], bytes = 0, but_least = 0;
    uint64_t bins = 0;
    rks_plan_report report = {.struct_size = sizeof(report)};
    for (int run = 0; run < runs; run++) {
        rks_plan *plan;
        const uint32_t *ids;
        size_t size, before = allocated();
        uint64_t t0 = rks_now_ns();
        check(rks_plan_create(lengths, count, NULL, &options, &plan, &err), &err);
        check(rks_plan_batch(plan, 0, 0, 0, &ids, &size, &err), &err);
        uint64_t t1 = rks_now_ns();
        check(rks_plan_batch(plan, 1, 0, 0, &ids, &size, &err), &err);
        uint64_t t2 = rks_now_ns();
        bytes = (double)(allocated() - before) / (double)count;
        first[run] = (double)(t1 - t0) / (double)count;
        later[run] = (double)(t2 - t1) / (double)count;
        if (run == 0) {
            check(rks_plan_report_get(plan, 1, &report, &err), &err);
            but_least = fill_but_least(plan, lengths, &report, capacity, ranks, micros);
        }
        rks_plan_free(plan);
        bins = run_plain(lengths, count, capacity, &plain_ns[run]);
    }
    printf("%c %9" PRIu64 " %7" PRIu32 " %5" PRIu32 " %5" PRIu32 " %7.2f %7.2f %7.2f %7.2f"
           " %9" PRIu64 " %9" PRIu64 " %7.4f %7.4f %8.4f %8.4f %8.4f %7" PRIu64 "\n",
           shape, count, capacity, ranks, micros, median(first, runs), median(later, runs),
           median(plain_ns, runs), bytes, report.bins, bins, report.fill, but_least, report.balance,
           report.token_balance, report.lost, report.steps / micros);
    fflush(stdout);
}

static uint32_t *draw_all(char shape, uint64_t count, uint32_t capacity)
{
    rks_random random = {5};
    uint32_t *lengths = need(count, sizeof(*lengths));
    for (uint64_t i = 0; i < count; i++) {
        lengths[i] = draw(&random, shape);
        lengths[i] = lengths[i] < capacity ? lengths[i] : capacity;
    }
    return lengths;
}

static void write_lengths(const char *path, const uint32_t *lengths, uint64_t count)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(lengths, sizeof(*lengths), count, file) != count ||
        fclose(file) != 0) {
        fprintf(stderr, "bench_pack: %s: cannot be written\n", path);
        exit(3);
    }
}

static void measure_shape(char shape, uint64_t count, uint32_t capacity, uint32_t ranks,
                          uint32_t micros, int runs)
{
    uint32_t *lengths = draw_all(shape, count, capacity);
    measure(shape, lengths, count, capacity, ranks, micros, runs);
    free(lengths);
}

/* Samples of the lengths that the file counts, in random order. */
static void measure_histogram(const char *path, uint32_t capacity, uint32_t ranks, int runs)
{
    rks_random random = {5};
    uint64_t count = 0, number = 0, room = 0;
    uint32_t length = 0, *lengths = NULL;
    bool in_number = false;
    FILE *file = fopen(path, "r");
    for (int c = 0; file != NULL && c != EOF;) {
        c = getc(file);
        if (c >= '0' && c <= '9') {
            number = number * 10 + (uint64_t)(c - '0');
            in_number = true;
        } else if (in_number) {
            length += length < capacity;
            if (count + number > UINT32_MAX)
                exit(3);
            if (count + number > room) {
                room = 2 * (count + number);
                lengths = realloc(lengths, room * sizeof(*lengths));
                if (lengths == NULL)
                    exit(3);
            }
            while (number > 0) {
                lengths[count++] = length;
                number--;
            }
            in_number = false;
        }
    }
    if (file == NULL || count == 0) {
        fprintf(stderr, "bench_pack: %s: no counts of lengths\n", path);
        exit(2);
    }
    fclose(file);
    for (uint64_t i = count - 1; i > 0; i--) {
        uint64_t other = rks_random_below(&random, i + 1);
        uint32_t kept = lengths[i];
        lengths[i] = lengths[other];
        lengths[other] = kept;
    }
    measure('H', lengths, count, capacity, ranks, 1, runs);
    free(lengths);
}

/* For a program that takes turns with others. */
static void run_turns(const char *path, uint32_t capacity)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "bench_pack: %s: cannot be read\n", path);
        exit(3);
    }
    uint64_t count = (uint64_t)ftell(file) / sizeof(uint32_t);
    uint32_t *lengths = need(count, sizeof(*lengths));
    rewind(file);
    if (fread(lengths, sizeof(*lengths), count, file) != count)
        exit(3);
    fclose(file);
    for (uint64_t i = 0; i < count; i++)
        if (lengths[i] == 0 || lengths[i] > capacity) {
            fprintf(stderr,
                    "bench_pack: %s: a length of %" PRIu32 "; they are from 1 to %" PRIu32 "\n",
                    path, lengths[i], capacity);
            exit(2);
        }
    for (int c; (c = getchar()) != EOF;) {
        double ns;
        if (c != '\n')
            continue;
        uint64_t bins = run_plain(lengths, count, capacity, &ns);
        printf("%.9f %" PRIu64 "\n", ns * (double)count / 1e9, bins);
        fflush(stdout);
    }
    free(lengths);
}

static uint64_t number(const char *text, uint64_t least, uint64_t most)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*end == '\0' && value >= least && value <= most)
        return value;
    fprintf(stderr, "bench_pack: %s is not a number from %" PRIu64 " to %" PRIu64 "\n", text, least,
            most);
    exit(2);
}

int main(int argc, char **argv)
{
    int runs = 5, at = 1;
    if (argc > 2 && strcmp(argv[1], "--runs") == 0) {
        runs = (int)number(argv[2], 1, RUNS_MAX);
        at = 3;
    }
    if (argc == 4 && strcmp(argv[1], "--plain") == 0) {
        run_turns(argv[2], (uint32_t)number(argv[3], 1, RKS_PLAN_CAPACITY_MAX));
        return 0;
    }
    if (argc == 6 && strcmp(argv[1], "--draw") == 0) {
        uint64_t count = number(argv[4], 1, UINT32_MAX);
        uint32_t *lengths =
            draw_all(argv[3][0], count, (uint32_t)number(argv[5], 1, RKS_PLAN_CAPACITY_MAX));
        write_lengths(argv[2], lengths, count);
        free(lengths);
        return 0;
    }
    printf("                                     ns a sample           bytes a           plain's\n"
           "    samples     cap ranks micro   first   later   plain  sample      bins      bins    "
           "fill but one  balance   tokens     lost   steps\n");
    if (at + 3 < argc && strcmp(argv[at], "--histogram") == 0) {
        uint32_t capacity = (uint32_t)number(argv[at + 2], 1, RKS_PLAN_CAPACITY_MAX);
        uint32_t ranks = (uint32_t)number(argv[at + 3], 1, RKS_PLAN_WORLD_MAX);
        measure_histogram(argv[at + 1], capacity, ranks, runs);
        return 0;
    }
    if (at == argc) {
        measure_shape('A', 20000, 8192, 8, 1, runs);
        measure_shape('C', 20000, 131072, 16, 1, runs);
        measure_shape('C', 1000000, 131072, 16, 8, runs);
        measure_shape('A', 10000000, 8192, 8, 1, runs);
        measure_shape('G', 100000, 2048, 8, 1, runs);
        measure_shape('U', 10000, 512, 1, 1, runs);
    }
    while (at + 3 < argc) {
        char shape = argv[at][0];
        uint64_t count = number(argv[at + 1], 1, UINT32_MAX);
        uint32_t capacity = (uint32_t)number(argv[at + 2], 1, RKS_PLAN_CAPACITY_MAX);
        uint32_t ranks = (uint32_t)number(argv[at + 3], 1, RKS_PLAN_WORLD_MAX), micros = 1;
        at += 4;
        if (at < argc && argv[at][0] >= '0' && argv[at][0] <= '9')
            micros = (uint32_t)number(argv[at++], 1, RKS_PLAN_MICRO_MAX);
        measure_shape(shape, count, capacity, ranks, micros, runs);
    }
    return 0;
}
