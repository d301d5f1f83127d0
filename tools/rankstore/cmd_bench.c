/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bench.c: rankstore bench: reads epochs as training would (plan, prefetch, fetch, check) and
 * proves that every sample (with a mix, every draw) was delivered exactly once. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "balance.h"
#include "cli.h"
#include "disk_bench.h"
#include "gather_facts.h"
#include "measurement_table.h"
#include "exactly_once.h"
#include "memory.h"
#include "mix.h"
#include "trace_file.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    cli_plan_args plan;
    cli_store_args store;
    uint64_t epochs, prefetch_bytes;
    uint32_t prefetch_batches, processes;
    const char *trace; /* file; NULL: none */
    bool json, metrics, cold;
} args;

/* What each rank has to say at the end. */
typedef struct tally {
    cli_ledger delivered; /* this epoch */
    cli_ledger planned;   /* this epoch, this rank, asked anew */
    uint64_t sum[2];      /* digests of keys and contents, all epochs */
    cli_measured figures;
    cli_cold cold;  /* of the first epoch */
    uint64_t exact; /* epochs in which all was as it should be */
} tally;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* Anonymous and shared memory of this process now: what is not a page of a file. */
static uint64_t anonymous_bytes(void)
{
    char line[128];
    uint64_t total = 0, kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "RssAnon: %" SCNu64, &kib) == 1 ||
            sscanf(line, "RssShmem: %" SCNu64, &kib) == 1)
            total += kib << 10;
    fclose(file);
    return total;
}

static void watch_memory(tally *t)
{
    uint64_t bytes = anonymous_bytes();
    if (bytes > t->figures.peak_anon_bytes)
        t->figures.peak_anon_bytes = bytes;
}

static rks_status read_epoch(rks_store *store, rks_plan *plan, const rks_epoch_options *options,
                             cli_bar *bar, cli_cold_run *cold, tally *t, rks_error *err)
{
    rks_epoch *reading = NULL;
    uint64_t steps = 0, step = 0;
    double looked = 0;
    rks_status status = rks_plan_steps(plan, options->epoch, &steps, err);
    if (status == RKS_OK)
        status = rks_epoch_open(store, plan, options, &reading, err);
    while (status == RKS_OK) {
        rks_batch *batch = NULL;
        status = rks_epoch_next(reading, &batch, &step, err);
        if (status != RKS_OK || batch == NULL)
            break;
        for (size_t i = 0; i < rks_batch_count(batch); i++)
            cli_ledger_add(&t->delivered, rks_batch_id(batch, i));
        rks_batch_digest(batch, t->sum);
        if (cold != NULL)
            cli_cold_delivered(cold, rks_batch_count(batch));
        if (now() - looked > 0.05) {
            looked = now();
            watch_memory(t);
            cli_bar_part(bar, "bench", step + 1, steps);
        }
        rks_batch_free(batch);
    }
    rks_epoch_close(reading);
    return status;
}

static rks_status walk_plan(rks_plan *plan, uint64_t epoch, uint32_t rank, cli_ledger *planned,
                            rks_error *err)
{
    uint64_t steps = 0;
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    for (uint64_t step = 0; status == RKS_OK && step < steps; step++) {
        const uint32_t *ids = NULL;
        size_t count = 0;
        status = rks_plan_next_step(plan, epoch, step, &step, err);
        if (status == RKS_OK && step < steps)
            status = rks_plan_batch(plan, epoch, step, rank, &ids, &count, err);
        for (size_t i = 0; status == RKS_OK && i < count; i++)
            cli_ledger_add(planned, ids[i]);
    }
    return status;
}

/* All ranks' tallies in one. *ranks, which the caller frees, gets each rank's figures; NULL: not
 * wanted. */
static rks_status combine(rks_group *group, rks_status status, const tally *mine, tally *all,
                          cli_measured **ranks, rks_error *err)
{
    rks_gathered brought;
    uint32_t size = rks_group_size(group);
    cli_measured *each = ranks == NULL ? NULL : calloc(size, sizeof(*each));
    memset(all, 0, sizeof(*all));
    status = cli_gather(group, "bench: results", status, mine, sizeof(*mine), &brought, err);
    for (uint32_t rank = 0; status == RKS_OK && rank < size; rank++) {
        tally one;
        size_t bytes;
        memcpy(&one, cli_gathered_of(&brought, rank, &bytes), sizeof(one));
        cli_ledger_merge(&all->delivered, &one.delivered);
        cli_ledger_merge(&all->planned, &one.planned);
        all->sum[0] += one.sum[0];
        all->sum[1] += one.sum[1] + (all->sum[0] < one.sum[0]);
        cli_measured_add(&all->figures, &one.figures);
        cli_cold_add(&all->cold, &one.cold);
        if (each != NULL)
            each[rank] = one.figures;
    }
    if (ranks != NULL)
        *ranks = each;
    cli_gathered_free(&brought);
    return status;
}

/* Delivered is what was planned, and, unless the plan itself drops or repeats, or leaves steps out,
 * all samples that are there once. */
static bool is_exact(const tally *all, const rks_store *store, const args *a,
                     const rks_plan_report *report)
{
    cli_ledger every = {0};
    if (!cli_ledger_equal(&all->delivered, &all->planned))
        return false;
    if (report->left_out > 0)
        return true;
    if (report->dropped + report->repeated > 0 || a->plan.options.mix != NULL)
        return all->delivered.count == report->samples - report->absent;
    for (uint64_t id = 0; id < rks_store_count(store); id++)
        if (rks_store_owner(store, id) >= 0)
            cli_ledger_add(&every, id);
    return cli_ledger_equal(&all->delivered, &every);
}

static rks_status bench_epoch(rks_group *group, rks_store *store, rks_plan *plan, const args *a,
                              uint64_t epoch, tally *t, rks_error *err)
{
    tally all;
    cli_bar bar = {0};
    rks_plan_report report = {.struct_size = sizeof(report)};
    t->delivered = t->planned = (cli_ledger){0};
    cli_cold_run *cold = NULL;
    rks_epoch_options options;
    rks_epoch_options_default(&options);
    options.epoch = epoch;
    options.prefetch_batches = a->prefetch_batches;
    options.prefetch_bytes = a->prefetch_bytes;
    rks_status status = RKS_OK;
    if (a->cold && epoch == a->plan.epoch)
        status = cli_cold_begin(store, plan, epoch, &cold, err);
    if (status != RKS_OK)
        return status;
    cli_bar_begin(&bar, group);
    double begun = now();
    if (cold != NULL)
        cli_cold_start(cold);
    status = read_epoch(store, plan, &options, &bar, cold, t, err);
    t->figures.seconds += now() - begun;
    cli_bar_end(&bar);
    if (cold != NULL)
        t->cold = cli_cold_end(cold);
    if (status == RKS_OK)
        status = walk_plan(plan, epoch, rks_group_rank(group), &t->planned, err);
    if (status == RKS_OK)
        status = rks_plan_report_get(plan, epoch, &report, err);
    status = combine(group, status, t, &all, NULL, err);
    if (status == RKS_OK && is_exact(&all, store, a, &report))
        t->exact++;
    return status;
}

/* What a bench ends with, on rank 0. */
typedef struct outcome {
    tally all;
    cli_measured *ranks;
    cli_memory memory;
    uint32_t rank_count;
    const char *exchange, *exchange_why, *plan_digest;
    bool exact, cold;
    rks_plan_source *sources; /* with a mix, of the first epoch */
    size_t source_count;
} outcome;

static void print_bench_json(const outcome *o)
{
    char contents[33];
    json_t *object = json_pack("{s:i}", "schema_version", 1);
    snprintf(contents, sizeof(contents), "%016" PRIx64 "%016" PRIx64, o->all.sum[1], o->all.sum[0]);
    cli_measured_json(object, &o->all.figures);
    json_object_set_new(object, "exchange", json_string(o->exchange));
    json_object_set_new(object, "exchange_why", json_string(o->exchange_why));
    json_object_set_new(object, "exactly_once", json_boolean(o->exact));
    json_object_set_new(object, "digest", json_string(contents));
    json_object_set_new(object, "plan_digest", json_string(o->plan_digest));
    json_object_set_new(object, "memory", cli_memory_json(&o->memory));
    if (o->cold)
        cli_cold_json(object, &o->all.cold);
    if (o->sources != NULL)
        json_object_set_new(object, "sources", cli_mix_json(o->sources, o->source_count));
    cli_print_json(object, JSON_INDENT(2));
}

static void print_metrics(const outcome *o)
{
    cli_measured_metrics(stdout, o->ranks, o->rank_count);
    printf("# HELP rankstore_exactly_once Whether every sample was delivered exactly once.\n"
           "# TYPE rankstore_exactly_once gauge\nrankstore_exactly_once %d\n"
           "# HELP rankstore_info What ran.\n# TYPE rankstore_info gauge\n"
           "rankstore_info{version=\"%s\",exchange=\"%s\",plan_digest=\"%s\"} 1\n",
           o->exact, rks_version(), o->exchange, o->plan_digest);
}

static void print_table(const outcome *o)
{
    const cli_measured *all = &o->all.figures;
    double seconds = all->seconds > 0 ? all->seconds : 1e-9;
    printf("%s on %s in %.3f s: %s samples/s, %s/s\n", cli_counted(all->samples, "sample"),
           cli_counted(o->rank_count, "rank"), all->seconds,
           cli_count((uint64_t)((double)all->samples / seconds)),
           cli_bytes((uint64_t)((double)all->bytes / seconds)));
    printf("  local     %s\n  remote    %s\n", cli_bytes(all->local_bytes),
           cli_bytes(all->remote_bytes));
    if (o->cold)
        cli_cold_print(&o->all.cold);
    printf("  waited    %.3f s (the rank that waited longest)\n", all->wait_seconds);
    printf("  memory    %s peak, anonymous and shared; index %s a node\n",
           cli_bytes(all->peak_anon_bytes), cli_bytes(all->index_bytes_node));
    printf("  exchanged %s of index (%s; %s)\n", cli_bytes(all->exchange_bytes), o->exchange,
           o->exchange_why);
    printf("  plan      %s\n", o->plan_digest);
    cli_memory_print(&o->memory);
    cli_mix_print(o->sources, o->source_count);
    printf("  every %s delivered exactly once: %s\n", o->sources == NULL ? "sample" : "draw",
           o->exact ? "yes" : "NO");
}

static void copy_stats(cli_measured *figures, const rks_store_stats *stats)
{
    figures->samples = stats->samples;
    figures->bytes = stats->bytes;
    figures->local_bytes = stats->local_bytes;
    figures->remote_bytes = stats->remote_bytes;
    figures->served_bytes = stats->served_bytes;
    figures->wait_seconds = (double)stats->wait_ns / 1e9;
    figures->index_bytes_node = stats->index_bytes_node;
    figures->exchange_bytes = stats->exchange_bytes;
    figures->disk_bytes = stats->disk_bytes;
    figures->disk_reads = stats->disk_reads;
    figures->home_bytes = stats->home_bytes;
    figures->quarantined = stats->quarantined;
}

static rks_status write_trace(rks_group *group, const args *a, uint64_t origin, rks_error *err)
{
    uint64_t events = 0, dropped = 0;
    rks_status status = cli_trace_write(group, a->trace, origin, &events, &dropped, err);
    if (status == RKS_OK && rks_group_rank(group) == 0)
        fprintf(stderr, "%s: %s, %s dropped\n", cli_shown(a->trace), cli_counted(events, "event"),
                cli_count(dropped));
    return status;
}

static void print_outcome(const args *a, const outcome *o)
{
    if (a->json)
        print_bench_json(o);
    else if (a->metrics)
        print_metrics(o);
    else
        print_table(o);
}

/* With those that have brought the figures. */
static void count_collectives(const rks_group *group, outcome *o)
{
    o->all.figures.collectives = rks_group_collectives(group);
    for (uint32_t rank = 0; o->ranks != NULL && rank < o->rank_count; rank++)
        o->ranks[rank].collectives = o->all.figures.collectives;
}

static int bench_store(rks_group *group, rks_store *store, const args *a)
{
    rks_error err = {0};
    rks_plan *plan = NULL;
    tally mine = {0};
    uint64_t origin = 0;
    rks_plan_report report = {.struct_size = sizeof(report)};
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_status status = a->trace == NULL ? RKS_OK : cli_trace_start(group, &origin, &err);
    if (status == RKS_OK)
        status = cli_mix_plan(store, &a->plan, &a->plan.options, &plan, &err);
    watch_memory(&mine);
    for (uint64_t i = 0; status == RKS_OK && i < a->epochs; i++)
        status = bench_epoch(group, store, plan, a, a->plan.epoch + i, &mine, &err);
    rks_store_stats_get(store, &stats);
    copy_stats(&mine.figures, &stats);
    if (status == RKS_OK)
        status = rks_plan_report_get(plan, a->plan.epoch, &report, &err);
    outcome o = {.rank_count = rks_group_size(group),
                 .exchange = stats.exchange,
                 .exchange_why = stats.exchange_why,
                 .plan_digest = report.digest,
                 .cold = a->cold,
                 .exact = mine.exact == a->epochs};
    status = combine(group, status, &mine, &o.all, &o.ranks, &err);
    if (status == RKS_OK)
        status = cli_memory_gather(group, &o.memory, &err);
    count_collectives(group, &o);
    if (status == RKS_OK)
        status = cli_mix_sources(plan, &a->plan, &o.sources, &o.source_count, &err);
    rks_plan_free(plan);
    if (status == RKS_OK && a->trace != NULL)
        status = write_trace(group, a, origin, &err);
    if (status == RKS_OK && rks_group_rank(group) == 0 && o.ranks != NULL)
        print_outcome(a, &o);
    cli_memory_free(&o.memory);
    free(o.ranks);
    free(o.sources);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    return o.exact ? CLI_GOOD : CLI_PROBLEM;
}

static int run_bench(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    int code = cli_open(group, &a->words, &a->store, &store);
    if (code >= 0)
        return code;
    rks_status status = cli_mix_take(store, &a->plan, &err);
    if (status == RKS_OK)
        status = cli_balance_take(store, &a->plan, &err);
    code = status == RKS_OK ? bench_store(group, store, a) : cli_fail(group, status, &err);
    cli_mix_free(&a->plan);
    cli_balance_free(&a->plan);
    rks_store_close(store, 0);
    return code;
}

static void set_bench_defaults(void *user)
{
    args *a = user;
    a->epochs = 1;
    rks_plan_options_default(&a->plan.options);
    a->plan.options.length_multiple = 0; /* as the Python package plans */
    rks_store_options_default(&a->store.options);
}

static int bench(void *user)
{
    args *a = user;
    int code = cli_plan_cost(&cli_bench, &a->plan);
    if (code < 0)
        code = cli_mix_check(&cli_bench, &a->plan);
    if (code >= 0)
        return code;
    if (a->json && a->metrics)
        return cli_usage(&cli_bench, "--json and --metrics cannot be used together");
    return cli_run(a->processes, run_bench, a);
}

static const cli_option options[] = {
    CLI_PLAN_OPTIONS(args, plan),
    {"--epochs", "N", CLI_U64, offsetof(args, epochs), .help = "number of epochs to read",
     .normal = "1", .least = 1},
    {"--no-share", NULL, CLI_FLAG, offsetof(args, store.options.no_share),
     .help = "fetch every sample that this rank does not own over TCP, also within a node"},
    {"--exchange", "NAME", CLI_TEXT, offsetof(args, store.options.exchange),
     .help = "how ranks exchange the index; nccl takes options: nccl:rails=off,timeout=60",
     .choices = "auto local nccl mpi pull", .normal = "auto"},
    {"--no-check", NULL, CLI_FLAG, offsetof(args, store.options.no_check),
     .help = "do not compare samples with checksums"},
    CLI_STORE_OPTIONS(args, store),
    {"--prefetch-batches", "N", CLI_U32, offsetof(args, prefetch_batches),
     .help = "most batches fetched ahead", .normal = "as many as fit --prefetch-bytes", .least = 1},
    {"--prefetch-bytes", "BYTES", CLI_SIZE, offsetof(args, prefetch_bytes),
     .help = "memory of batches fetched ahead", .normal = "4 batches, or 2M of smaller ones",
     .least = 1},
    {"--cold", NULL, CLI_FLAG, offsetof(args, cold),
     .help = "drop the shards from the system's cache first, without privileges, and compare the "
             "first samples (100,000 or 1 GiB a rank at most) with 16 threads of pread"},
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print JSON"),
    {"--metrics", NULL, CLI_FLAG, offsetof(args, metrics),
     .help = "print the figures of each rank as Prometheus text"},
    {"--trace", "FILE", CLI_TEXT, offsetof(args, trace),
     .help = "write a Chrome trace of all ranks, for Perfetto or chrome://tracing: plan, "
             "prefetch, fetch by owner, copy, wait, batch"},
};

const cli_command cli_bench = {
    .name = "bench",
    .arguments = "DIR...",
    .summary = "Read epochs as training would, and check every sample",
    .examples = {"rankstore bench store --max-tokens 32k",
                 "rankstore bench store --strategy random --cold"},
    .text =
        "Every batch is planned, fetched ahead and checked against its checksums; at the end all "
        "ranks compare what was delivered with what was planned: exit code 1 where a sample is "
        "missing, or came twice.\n\n" CLI_SEVERAL,
    CLI_OPTIONS(options, args, words),
    CLI_DATASETS,
    .defaults = set_bench_defaults,
    .run = bench,
};
