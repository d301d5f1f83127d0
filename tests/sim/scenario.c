/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario.c: see scenario.h. */
#include "scenario.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

#include "base/clock.h"
#include "faulty_home.h"
#include "faulty_store.h"
#include "scheduler.h"
#include "transport/memory_net.h"
#include "unit/store/world.h"

enum {
    RESULTS = 5,
    TEXT = 256,
};

#define MS 1000000u

static const char *const PHASE_NAMES[] = {"group", "build", "open",   "plan",
                                          "epoch", "keys",  "gather", "end"};

/* How a rank ended. */
typedef struct outcome {
    uint32_t phase; /* of PHASE_NAMES */
    rks_status status;
    int32_t rank;
    char text[TEXT];
    bool over;
} outcome;

static struct {
    const scenario *s;
    rks_transport *transport;
    char directory[FOLDER_PATH];
    outcome outcomes[SIM_RANKS_MOST];
    uint32_t delivered[SAMPLES];
    uint32_t gathered;
    uint32_t running; /* ranks that have not ended */
    uint64_t begun_ns;
    bool silent; /* FAULT_SILENT has begun */
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* a rank has ended */
} run;

/* ---- the network ----------------------------------------------------------------------------- */

static uint64_t delay(void *user, uint32_t from, uint32_t to, size_t size)
{
    const scenario *s = user;
    sim_event((uint64_t)from << 48 ^ (uint64_t)to << 32 ^ size);
    if (run.silent && from == s->victim && to == s->other)
        return RKS_NEVER;
    uint64_t ns = s->latency_ns + (s->jitter_ns > 0 ? sim_below(s->jitter_ns) : 0);
    if (s->jitter_ns > 0 && sim_below(500) == 0) /* a packet was lost, and is sent again */
        ns += 200 * (uint64_t)MS;
    return ns;
}

static size_t some(void *user, uint32_t from, uint32_t to, size_t size, bool writing)
{
    const scenario *s = user;
    (void)from;
    (void)to;
    if (!s->narrow || size < 2)
        return size;
    if (writing && sim_below(6) == 0)
        return 0;
    size_t most = 1 + sim_below(2000);
    return size < most ? size : most;
}

static void wait_until(uint64_t at_ns)
{
    pthread_mutex_lock(&run.mutex);
    while (run.running > 0 && rks_now_ns() < at_ns)
        rks_cond_wait_until(&run.cond, &run.mutex, at_ns);
    pthread_mutex_unlock(&run.mutex);
}

/* Until all ranks have ended but the victim. */
static void wait_for_survivors(void)
{
    pthread_mutex_lock(&run.mutex);
    while (run.running > (run.outcomes[run.s->victim].over ? 0 : 1))
        pthread_cond_wait(&run.cond, &run.mutex);
    pthread_mutex_unlock(&run.mutex);
}

/* The thread that brings the fault about. */
static void *fate(void *user)
{
    const scenario *s = user;
    sim_belong(SIM_NO_RANK);
    wait_until(run.begun_ns + s->fault_ns);
    switch (s->fault) {
    case FAULT_PAUSE:
        sim_stop((int32_t)s->victim);
        wait_until(rks_now_ns() + s->silence_ms / 3 * (uint64_t)MS);
        sim_go_on((int32_t)s->victim);
        break;
    case FAULT_STOP:
    case FAULT_DIE:
        sim_stop((int32_t)s->victim);
        if (s->fault == FAULT_DIE)
            rks_memory_transport_kill(run.transport, s->victim);
        wait_for_survivors();
        sim_go_on((int32_t)s->victim);
        break;
    case FAULT_CUT:
        for (uint32_t i = 0; i < s->cuts; i++) {
            rks_memory_transport_cut(run.transport, s->victim, s->other,
                                     (rks_memory_cut)sim_below(RKS_CUTS));
            wait_until(rks_now_ns() + s->gap_ns);
        }
        break;
    case FAULT_SILENT:
        run.silent = true;
        break;
    default:
        break;
    }
    return NULL;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* RKS_OK, or the error that this rank brings to this phase. */
static rks_status own_error(uint32_t rank, uint32_t phase, rks_error *err)
{
    const scenario *s = run.s;
    if (s->fault != FAULT_ERROR || rank != s->victim || phase != s->phase)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_DATA, 4711, "planted in '%s'", PHASE_NAMES[phase]);
}

/* After its last unit, the rank brings its error. */
static rks_status make_unit(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const rks_group *group = user;
    bool own_keys = true;
    rks_status status = world_make_unit(&own_keys, unit, sink, err);
    return status == RKS_OK && unit + rks_group_size(group) >= UNITS
               ? own_error(rks_group_rank(group), 1, err)
               : status;
}

/* A rank that gets no unit brings its error here. */
static rks_status scan_units(void *input, rks_scan *scan, rks_error *err)
{
    const made_rows *rows = input;
    uint32_t rank = rks_group_rank(rows->user);
    rks_status status = rank < UNITS ? RKS_OK : own_error(rank, 1, err);
    return status == RKS_OK ? rows_scan(input, scan, err) : status;
}

static rks_status build(rks_group *group, rks_error *err)
{
    const rks_input_ops ops = {.struct_size = sizeof(ops), .scan = scan_units, .read = rows_read};
    rks_build_options options;
    rks_build_report report = {.struct_size = sizeof(report)};
    made_rows rows = {.make = make_unit, .user = group, .units = UNITS, .name = "part"};
    world_build_options(&options);
    rks_status status = rks_build_input(group, &ops, &rows, run.directory, &options, &report, err);
    if (status == RKS_OK && report.samples != SAMPLES)
        sim_fail("the build reports %" PRIu64 " samples", report.samples);
    return status;
}

static void check_batch(rks_batch *batch)
{
    for (size_t i = 0; i < rks_batch_count(batch); i++) {
        uint64_t id = rks_batch_id(batch, i);
        if (id >= SAMPLES || !world_is(batch, i, id))
            sim_fail("sample %" PRIu64 " is not as it was built", id);
        run.delivered[id]++;
    }
}

static rks_status read_epoch(rks_store *store, rks_plan *plan, rks_error *err)
{
    rks_epoch_options options;
    rks_epoch *epoch = NULL;
    rks_epoch_options_default(&options);
    rks_status status = rks_epoch_open(store, plan, &options, &epoch, err);
    uint64_t next = 0, step = 0;
    while (status == RKS_OK) {
        rks_batch *batch = NULL;
        status = rks_epoch_next(epoch, &batch, &step, err);
        if (status != RKS_OK || batch == NULL)
            break;
        if (step != next++)
            sim_fail("step %" PRIu64 " came instead of %" PRIu64, step, next - 1);
        check_batch(batch);
        rks_batch_free(batch);
    }
    rks_epoch_close(epoch);
    return status;
}

static rks_status find_keys(rks_store *store, uint32_t rank, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint64_t id = rank % 37; status == RKS_OK && id < SAMPLES; id += 61) {
        uint8_t key[RKS_KEY_MAX];
        size_t size = 0;
        uint64_t found = SAMPLES;
        world_sample sample;
        world_make(id, &sample);
        status = rks_store_find(store, sample.key, strlen(sample.key), &found, err);
        if (status == RKS_OK)
            status = rks_store_key(store, id, key, &size, err);
        if (status == RKS_OK &&
            (found != id || size != strlen(sample.key) || memcmp(key, sample.key, size) != 0))
            sim_fail("sample %" PRIu64 " is found as %" PRIu64, id, found);
    }
    return status;
}

static rks_status receive(void *user, const rks_gather_item *item, rks_error *err)
{
    (void)user;
    (void)err;
    uint32_t value;
    memcpy(&value, item->values[0].data, sizeof(value));
    if (item->index % run.s->ranks != item->rank || value != item->index * 3 ||
        item->index != run.gathered)
        sim_fail("result %" PRIu64 " of rank %u came out of order or wrong", item->index,
                 item->rank);
    run.gathered++;
    return RKS_OK;
}

static rks_status gather(rks_group *group, rks_error *err)
{
    rks_gather *results = NULL;
    uint32_t rank = rks_group_rank(group), ranks = rks_group_size(group);
    rks_status status = rks_gather_open(group, "value:int32", run.directory, &results, err);
    if (status != RKS_OK)
        return status;
    for (uint64_t i = 0; status == RKS_OK && i < RESULTS; i++) {
        uint64_t index = i * ranks + rank;
        int32_t value = (int32_t)(index * 3);
        const rks_value values[1] = {{.data = &value, .size = sizeof(value)}};
        status = rks_gather_add(results, "result", index, values, err);
    }
    rks_gather_report report = {.struct_size = sizeof(report)};
    status = rks_gather_run(results, status, run.s->other, receive, NULL, &report, err);
    rks_gather_close(results);
    return status;
}

static rks_status use_store(rks_group *group, rks_store *store, uint32_t *phase, rks_error *err)
{
    rks_plan_options options;
    rks_plan *plan = NULL;
    uint32_t rank = rks_group_rank(group);
    rks_plan_options_default(&options);
    options.strategy = run.s->strategy;
    options.batch_size = run.s->batch_size;
    options.seed = run.s->seed;
    if (run.s->ranks > SCARCE)
        options.tail = "repeat"; /* there are hardly more samples than ranks */
    *phase = 3;
    rks_status status = own_error(rank, *phase, err);
    status = rks_group_agree(group, "before the plan", status, err);
    if (status == RKS_OK)
        status = rks_plan_open(store, &options, &plan, err);
    if (status == RKS_OK) {
        *phase = 4;
        status = read_epoch(store, plan, err);
        if (status == RKS_OK)
            status = own_error(rank, *phase, err);
        status = rks_group_agree(group, "epoch", status, err);
    }
    if (status == RKS_OK) {
        *phase = 5;
        status = find_keys(store, rank, err);
        if (status == RKS_OK)
            status = own_error(rank, *phase, err);
        status = rks_group_agree(group, "keys", status, err);
    }
    rks_plan_free(plan);
    return status;
}

static rks_status work(rks_group *group, uint32_t *phase, rks_error *err)
{
    rks_store_options options;
    rks_store *store = NULL;
    *phase = 1;
    rks_status status = build(group, err);
    if (status != RKS_OK)
        return status;
    rks_store_options_default(&options);
    options.exchange = run.s->exchange;
    options.no_share = run.s->no_share;
    char local[FOLDER_PATH + 16];
    snprintf(local, sizeof(local), "%s/l{node}", run.directory);
    options.local = run.s->home ? local : NULL;
    *phase = 2;
    status = own_error(rks_group_rank(group), *phase, err);
    status = rks_group_agree(group, "before the store", status, err);
    if (status == RKS_OK)
        status = rks_store_open(group, run.s->stored ? "s3://bucket/tokens" : run.directory,
                                &options, &store, err);
    if (status == RKS_OK)
        status = use_store(group, store, phase, err);
    rks_store_close(store, 0);
    if (status != RKS_OK)
        return status;
    *phase = 6;
    status = gather(group, err);
    if (status == RKS_OK)
        *phase = 7;
    return status;
}

static int rank_main(const rks_bootstrap *given, void *user)
{
    const scenario *s = user;
    rks_bootstrap bootstrap = *given;
    rks_group_options options;
    rks_group *group = NULL;
    rks_error err = {.rank = -1};
    char node[16];
    outcome *mine = &run.outcomes[given->rank];
    sim_belong((int32_t)given->rank);
    bootstrap.local_hub = run.transport;
    rks_group_options_default(&options);
    options.bootstrap = &bootstrap;
    options.silence_ms = s->silence_ms;
    if (s->ranks > SCARCE)
        options.io_threads = 2; /* a process may have only so many maps, two for each thread */
    snprintf(node, sizeof(node), "n%u", given->rank * s->nodes / s->ranks);
    options.node = node;
    mine->status = rks_group_open(&options, &group, &err);
    if (mine->status == RKS_OK)
        mine->status = work(group, &mine->phase, &err);
    if (mine->status != RKS_OK) {
        mine->rank = err.rank;
        snprintf(mine->text, sizeof(mine->text), "%.255s", err.text);
    }
    rks_group_close(group);
    pthread_mutex_lock(&run.mutex);
    mine->over = true;
    run.running--;
    pthread_cond_broadcast(&run.cond);
    pthread_mutex_unlock(&run.mutex);
    return 0;
}

/* ---- what must be true at the end ------------------------------------------------------------ */

static void show(void)
{
    for (uint32_t rank = 0; rank < run.s->ranks && rank < 20; rank++) {
        const outcome *o = &run.outcomes[rank];
        printf("  rank %u: %s: %s, rank %d: %s\n", rank, PHASE_NAMES[o->phase],
               rks_status_name(o->status), o->rank, o->text);
    }
}

#define MUST(condition, ...)                                                                       \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            show();                                                                                \
            sim_fail(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

static bool is_loss(const outcome *o)
{
    return o->status == RKS_ERR_PEER || o->status == RKS_ERR_TIMEOUT;
}

/* Does this rank's outcome count? A rank that was lost may end as it likes. */
static bool survives(uint32_t rank)
{
    const scenario *s = run.s;
    return rank != s->victim || (s->fault != FAULT_STOP && s->fault != FAULT_DIE);
}

static void check_all_good(void)
{
    for (uint32_t rank = 0; rank < run.s->ranks; rank++)
        MUST(run.outcomes[rank].status == RKS_OK, "rank %u failed, and nothing was wrong", rank);
    for (uint32_t id = 0; id < SAMPLES; id++)
        MUST(run.delivered[id] == 1 || (run.delivered[id] > 0 && run.s->ranks > SCARCE),
             "sample %u was delivered %u times", id, run.delivered[id]);
    MUST(run.gathered == RESULTS * run.s->ranks, "%u results came", run.gathered);
}

static void check_same_error(void)
{
    const outcome *first = &run.outcomes[run.s->victim];
    for (uint32_t rank = 0; rank < run.s->ranks; rank++) {
        const outcome *o = &run.outcomes[rank];
        MUST(o->status == RKS_ERR_DATA && o->rank == (int32_t)run.s->victim,
             "rank %u does not have the error of rank %u", rank, run.s->victim);
        MUST(strcmp(o->text, first->text) == 0 && o->phase == first->phase,
             "the error has other words on rank %u", rank);
    }
}

/* Do two survivors that blame the same rank say the same of it? The collective in which they heard
 * may be another: the last result may have reached one of them alone. */
static bool same_words(const outcome *a, const outcome *b)
{
    const char *behind = " during '";
    const char *a_end = strstr(a->text, behind), *b_end = strstr(b->text, behind);
    size_t a_size = a_end == NULL ? strlen(a->text) : (size_t)(a_end - a->text);
    size_t b_size = b_end == NULL ? strlen(b->text) : (size_t)(b_end - b->text);
    /* One that is silent may not have answered a hello of the other. */
    bool silent = a->status == RKS_ERR_TIMEOUT && b->status == RKS_ERR_TIMEOUT;
    return silent ||
           (a->status == b->status && a_size == b_size && memcmp(a->text, b->text, a_size) == 0);
}

static void check_words(void)
{
    for (uint32_t rank = 0; rank < run.s->ranks; rank++)
        for (uint32_t other = 0; other < rank; other++) {
            const outcome *a = &run.outcomes[other], *b = &run.outcomes[rank];
            if (survives(other) && survives(rank) && a->status != RKS_OK && b->status != RKS_OK &&
                a->rank == b->rank)
                MUST(same_words(a, b), "ranks %u and %u say different things of rank %d", other,
                     rank, a->rank);
        }
}

/* A rank or a connection was lost: all that survive came to the end, or all hear who was lost. */
static void check_loss(void)
{
    const scenario *s = run.s;
    bool cut = s->fault == FAULT_SILENT;
    uint32_t good = 0, lost = 0, last = 0;
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        const outcome *o = &run.outcomes[rank];
        if (!survives(rank))
            continue;
        good += o->status == RKS_OK;
        lost += o->status != RKS_OK;
        MUST(o->status == RKS_OK || is_loss(o), "rank %u ended in another way", rank);
        MUST(o->status == RKS_OK || o->rank == (int32_t)s->victim ||
                 (cut && o->rank == (int32_t)s->other),
             "rank %u blames rank %d, not rank %u", rank, o->rank, s->victim);
        if (o->status != RKS_OK && o->phase > last)
            last = o->phase;
    }
    /* The last collective's result may have reached some, and not the others. */
    MUST(good == 0 || lost == 0 || last >= 5, "some survivors failed, and others did not");
    check_words();
}

static bool is_denied(const outcome *o)
{
    return strstr(o->text, "403 Forbidden") != NULL;
}

/* A store denied its bytes from some time on: all had theirs by then, or say so. */
static void check_denied(void)
{
    uint32_t denied = 0;
    for (uint32_t rank = 0; rank < run.s->ranks; rank++)
        denied += is_denied(&run.outcomes[rank]);
    if (denied == 0) {
        check_all_good();
        return;
    }
    for (uint32_t rank = 0; rank < run.s->ranks; rank++) {
        const outcome *o = &run.outcomes[rank];
        MUST(o->status == RKS_OK || is_denied(o), "rank %u does not say what the store said", rank);
    }
}

/* Each sample may be asked for alone, and shards in pieces; each failure costs a request more, and
 * ranks pause after them. */
static void check_requests(void)
{
    const uint64_t failed = faulty_store_failed(), good = faulty_store_reads() - failed;
    MUST(good <= SAMPLES + 16 * run.s->ranks, "%" PRIu64 " reads of the store", good);
    MUST(failed <= SAMPLES + 40 * run.s->ranks, "%" PRIu64 " reads of the store failed", failed);
}

static void check_nothing_left(size_t descriptors)
{
    MUST(sim_threads() == 1, "%u threads are left", sim_threads() - 1);
    MUST(rks_memory_in_use() == 0, "%ld allocations are left", rks_memory_in_use());
    MUST(counted_memory() == 0, "%" PRIu64 " bytes are counted as held", counted_memory());
    MUST(world_descriptors() == descriptors, "%zu descriptors are left",
         world_descriptors() - descriptors);
    MUST(world_files(run.directory, ".tmp") == 0, "temporary files are left");
}

static void remove_directory(void)
{
    folder_remove(run.directory);
}

void scenario_run(const scenario *s, char *result, size_t size)
{
    const rks_memory_rules rules = {.user = (void *)(uintptr_t)s, .delay_ns = delay, .some = some};
    rks_error err = {0};
    int code = 0;
    pthread_t thread;
    size_t descriptors = world_descriptors();
    run.s = s;
    run.running = s->ranks;
    run.begun_ns = sim_now_ns();
    pthread_mutex_init(&run.mutex, NULL);
    rks_cond_init(&run.cond);
    if (!folder_make_in_memory(run.directory))
        sim_fail("no directory: %s", strerror(errno));
    sim_on_fail(remove_directory);
    faulty_home_begin(s);
    faulty_store_begin(s, run.directory);
    rks_status status = rks_memory_transport_create(&rules, &run.transport, &err);
    if (status == RKS_OK) {
        pthread_create(&thread, NULL, fate, (void *)(uintptr_t)s);
        status = rks_launch_threads(s->ranks, rank_main, (void *)(uintptr_t)s, &code, &err);
        pthread_join(thread, NULL);
    }
    MUST(status == RKS_OK, "%s", err.text);
    rks_memory_transport_free(run.transport);
    check_requests();
    if (s->denied_ns != UINT64_MAX)
        check_denied();
    else if (s->fault == FAULT_NONE || s->fault == FAULT_PAUSE || s->fault == FAULT_CUT)
        check_all_good();
    else if (s->fault == FAULT_ERROR)
        check_same_error();
    else
        check_loss();
    check_nothing_left(descriptors);
    remove_directory();
    const outcome *o = &run.outcomes[s->victim == 0 ? 1 : 0];
    snprintf(result, size, "%s: %s%s%s", PHASE_NAMES[o->phase], rks_status_name(o->status),
             o->text[0] == '\0' ? "" : ": ", o->text);
}
