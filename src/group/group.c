/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: from a bootstrap to connected ranks. Two rounds of the bootstrap's all-gather: first who
 * is where (so that the engine knows what to listen on), then the engines' addresses. After that
 * ranks speak over the engine. */
#include "group/rank_facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "group/slurm_step.h"

static const char OPENING[] = "opening the group"; /* the phase */

void(rks_group_options_default)(rks_group_options *options)
{
    *options = (rks_group_options){
        .struct_size = sizeof(*options),
        .silence_ms = 15000,
        .patience_ms = 60000,
        .io_threads = 16,
        .arrival_ms = 300000,
    };
}

/* Runs one round of the bootstrap. A rank that does not come is named like a lost one. */
static rks_status gather(rks_group *group, const void *record, size_t size, void *all,
                         uint32_t timeout_ms, rks_error *err)
{
    rks_error why = {.rank = -1};
    rks_status status =
        group->bootstrap.allgather(group->bootstrap.user, record, size, all, timeout_ms, &why);
    if (status == RKS_OK)
        return RKS_OK;
    if (why.rank >= 0 || status == RKS_ERR_CANCELLED)
        rks_group_name_rank(group, &why);
    rks_group_name_phase(OPENING, &why);
    if (err != NULL)
        *err = why;
    return status;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* Reads RKS_ENCRYPT. Other words are refused: they might mean yes, and bytes would be readable. */
static rks_status read_encrypt(bool *encrypts, rks_error *err)
{
    const char *given = getenv("RKS_ENCRYPT");
    if (given != NULL && given[0] != '\0' && strcmp(given, "0") != 0 && strcmp(given, "1") != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "RKS_ENCRYPT=%.20s: set it to 1 (encrypt) or 0",
                        given);
    *encrypts = given != NULL && strcmp(given, "1") == 0;
    return RKS_OK;
}

static rks_status open_engine(rks_group *group, const rks_group_options *options,
                              const rks_rank_facts *all, rks_error *err)
{
    char interface[32];
    rks_engine_options engine;
    rks_engine_options_default(&engine);
    engine.rank = group->rank;
    engine.size = group->size;
    engine.silence_ms = group->silence_ms;
    engine.io_threads = options->io_threads;
    if (group->bootstrap.local_hub != NULL)
        engine.transport = group->bootstrap.local_hub;
    engine.listen = options->listen != NULL ? options->listen : getenv("RKS_LISTEN");
    rks_status asked = read_encrypt(&group->encrypts, err);
    if (asked != RKS_OK)
        return asked;
    engine.encrypt = group->encrypts;
    bool one_network = true;
    for (uint32_t rank = 1; rank < group->size; rank++)
        one_network = one_network && memcmp(all[rank].network, all[0].network, 16) == 0;
    if (engine.listen == NULL && !one_network) {
        rks_status status = rks_interface_find(interface, err);
        if (status != RKS_OK)
            return status;
        engine.listen = interface;
    }
    return rks_engine_open(&engine, &group->engine, err);
}

/* Errors before the engine runs are sent in the bootstrap's second round: a status and text with
 * each address. */
typedef struct hello {
    rks_address address;
    rks_error error;
} hello;

static rks_status join_engine(rks_group *group, const rks_address *addresses,
                              const rks_rank_facts *all, const job_secret *job, rks_error *err)
{
    uint8_t *keys = rks_alloc(group->size, RKS_KEY_SIZE, err);
    if (keys == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < group->size; rank++)
        memcpy(keys + RKS_KEY_SIZE * (size_t)rank, all[rank].public_key, RKS_KEY_SIZE);
    rks_status status = rks_engine_set_keys(group->engine, job->private_key, keys, err);
    rks_free(keys);
    return status == RKS_OK
               ? rks_engine_join(group->engine, addresses, all[0].session, job->secret, err)
               : status;
}

static rks_status exchange_addresses(rks_group *group, rks_status status, const rks_rank_facts *all,
                                     const job_secret *job, rks_error *err)
{
    hello mine = {0};
    rks_address *addresses = rks_alloc(group->size, sizeof(*addresses), NULL);
    hello *others = rks_alloc(group->size, sizeof(*others), NULL);
    if (status == RKS_OK && (addresses == NULL || others == NULL))
        status = rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: addresses");
    if (status == RKS_OK) {
        mine.address = *rks_engine_address(group->engine);
    } else if (err != NULL) {
        mine.error = *err;
        rks_error_place(&mine.error, group->rank, all[group->rank].host);
    } else {
        mine.error.status = status;
        mine.error.rank = (int32_t)group->rank;
    }
    if (others == NULL) {
        rks_free(addresses);
        return status; /* the others find out that this rank is missing */
    }
    rks_status met = gather(group, &mine, sizeof(mine), others, group->silence_ms, err);
    if (met == RKS_OK)
        for (uint32_t rank = 0; rank < group->size; rank++) {
            if (others[rank].error.status != RKS_OK) {
                rks_error_sanitize(&others[rank].error);
                if (err != NULL)
                    *err = others[rank].error;
                met = others[rank].error.status;
                break;
            }
            if (addresses != NULL)
                addresses[rank] = others[rank].address;
        }
    if (met == RKS_OK)
        met = join_engine(group, addresses, all, job, err);
    rks_free(addresses);
    rks_free(others);
    return met;
}

static rks_status prepare_mail(rks_group *group, rks_error *err)
{
    group->partials = rks_alloc(group->size, sizeof(*group->partials), err);
    group->left = rks_alloc(group->size, sizeof(*group->left), err);
    group->progress = rks_alloc(group->size, sizeof(*group->progress), err);
    group->places = rks_alloc(group->size, sizeof(*group->places), err);
    group->granted = rks_alloc(group->size, sizeof(*group->granted), err);
    return group->partials == NULL || group->left == NULL || group->progress == NULL ||
                   group->places == NULL || group->granted == NULL
               ? RKS_ERR_MEMORY
               : rks_readings_create(group, err);
}

/* Prepares this rank before it connects to the others. */
static rks_status prepare_group(rks_group *group, const rks_group_options *options,
                                const rks_rank_facts *all, job_secret *job, rks_error *err)
{
    rks_status status = rks_rank_facts_compare(all, group->size, err);
    if (status != RKS_OK)
        return status;
    status = rks_job_secret_find(job, all[0].session, err);
    if (status != RKS_OK)
        return status;
    status = rks_group_number_nodes(group, all, err);
    if (status != RKS_OK)
        return status;
    status = rks_tree_plant(group, err);
    if (status != RKS_OK)
        return status;
    status = prepare_mail(group, err);
    return status == RKS_OK && group->size > 1 ? open_engine(group, options, all, err) : status;
}

/* Each side makes a connection of its own. If the parent's were lost unnoticed, a result on it
 * would be waited for without end. */
static rks_status keep_neighbours(rks_group *group, rks_error *err)
{
    rks_status status = RKS_OK;
    if (group->parent >= 0)
        status = rks_engine_keep(group->engine, (uint32_t)group->parent, err);
    for (uint32_t i = 0; i < group->child_count && status == RKS_OK; i++)
        status = rks_engine_keep(group->engine, group->children[i], err);
    return status;
}

static rks_status connect_ranks(rks_group *group, const rks_group_options *options,
                                const rks_rank_facts *all, job_secret *job, rks_error *err)
{
    group->id = rks_checksum64(all[0].session, sizeof(all[0].session));
    rks_status status = prepare_group(group, options, all, job, err);
    if (group->size == 1)
        return status;
    if (group->engine != NULL) {
        rks_engine_serve(group->engine, RKS_SERVICE_GROUP, NULL, rks_inbox_on_note, group);
        rks_engine_watch(group->engine, rks_group_on_lost, group);
    }
    status = exchange_addresses(group, status, all, job, err);
    if (status == RKS_OK)
        status = keep_neighbours(group, err);
    return status == RKS_OK ? rks_group_agree(group, OPENING, RKS_OK, err) : status;
}

static rks_status find_bootstrap(const rks_group_options *options, rks_bootstrap *bootstrap,
                                 rks_error *err)
{
    if (options->bootstrap != NULL) {
        size_t room = options->bootstrap->struct_size;
        memcpy(bootstrap, options->bootstrap,
               room < sizeof(*bootstrap) ? room : sizeof(*bootstrap));
        return RKS_OK;
    }
    if (!rks_mpi_detected() && rks_slurm_detected()) {
        rks_slurm_step step;
        rks_status status = rks_slurm_step_read(&step, err);
        return status != RKS_OK ? status
                                : rks_bootstrap_slurm(&step, options->arrival_ms,
                                                      options->patience_ms, bootstrap, err);
    }
    if (!rks_mpi_detected()) {
        rks_status status = rks_launcher_check(err);
        return status == RKS_OK ? rks_bootstrap_solo(bootstrap) : status;
    }
    const rks_mpi_ops *ops = rks_mpi_load(err);
    return ops == NULL ? RKS_ERR_UNSUPPORTED : ops->open(bootstrap, err);
}

static rks_status meet(rks_group *group, const rks_group_options *options, rks_error *err)
{
    job_secret job = {0};
    rks_rank_facts mine = {0};
    rks_rank_facts *all = rks_alloc(group->size, sizeof(*all), err);
    if (all == NULL)
        return RKS_ERR_MEMORY;
    /* A rank with an error of its own still comes, and reports it. */
    if (rks_rank_facts_own(options, group->rank, group->size > 1, &mine, &job, &mine.error) !=
        RKS_OK)
        rks_error_place(&mine.error, group->rank, mine.host);
    /* Twice as long as any other wait: a rank that starts late looks like one that has failed. */
    rks_status status = gather(group, &mine, sizeof(mine), all, 2 * group->silence_ms, err);
    for (uint32_t rank = 0; status == RKS_OK && rank < group->size; rank++)
        rks_rank_facts_end_texts(&all[rank]);
    if (status == RKS_OK)
        status = connect_ranks(group, options, all, &job, err);
    rks_job_secret_end(&job);
    rks_free(all);
    return status;
}

rks_status rks_group_open(const rks_group_options *options, rks_group **group, rks_error *err)
{
    rks_group_options chosen;
    rks_group_options_default(&chosen);
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    if (chosen.silence_ms < 200 || chosen.silence_ms > 3600000)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "silence_ms: %u is not from 200 to 3,600,000",
                        chosen.silence_ms);
    if (chosen.io_threads == 0)
        chosen.io_threads = 16;
    if (chosen.io_threads > 1024)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "io_threads: %u is not from 1 to 1024",
                        chosen.io_threads);
    if (chosen.arrival_ms == 0)
        chosen.arrival_ms = 300000;
    rks_hold_standard_files();
    rks_group *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    pthread_mutex_init(&opened->sending, NULL);
    pthread_mutex_init(&opened->mutex, NULL);
    rks_cond_init(&opened->cond);
    opened->inbox_end = &opened->inbox;
    opened->parent = -1;
    opened->silence_ms = chosen.silence_ms;
    opened->patience_ms = chosen.patience_ms;
    rks_status status = rks_group_link_open(opened, err);
    if (status == RKS_OK)
        status = find_bootstrap(&chosen, &opened->bootstrap, err);
    if (status == RKS_OK) {
        opened->rank = opened->bootstrap.rank;
        opened->size = opened->bootstrap.size;
        status = meet(opened, &chosen, err);
    }
    if (status != RKS_OK) {
        rks_group_close(opened);
        return status;
    }
    opened->opened = true;
    *group = opened;
    return RKS_OK;
}

/* After a failure some rank may be silent, and what is queued for the others needs less than T. The
 * rank that caused it stays a little longer: a launcher that sees its end may kill the others
 * before they report it. */
static uint32_t linger_ms(rks_group *group)
{
    enum { FAILED_MS = 1000 };
    pthread_mutex_lock(&group->mutex);
    const group_error *failure = group->failed ? &group->failure : NULL;
    bool is_cause =
        failure != NULL && failure->own_words && failure->error.rank == (int64_t)group->rank;
    uint32_t most = failure == NULL ? group->silence_ms
                    : is_cause      ? rks_group_words_ms(group)
                                    : FAILED_MS;
    pthread_mutex_unlock(&group->mutex);
    return most < group->silence_ms ? most : group->silence_ms;
}

/* For tools that look for lost memory. */
static void keep_in_reach(rks_group *group)
{
    static _Atomic(rks_group *) last;
    group->next = atomic_exchange(&last, group);
}

void rks_group_close(rks_group *group)
{
    if (group == NULL)
        return;
    if (group->closing != NULL)
        group->closing(group);
    rks_group_link_end(group);
    rks_group_fail_interrupted(group);
    bool failed = rks_group_failed(group);
    rks_engine_close(group->engine, linger_ms(group));
    while (group->inbox != NULL) {
        message *m = group->inbox;
        group->inbox = m->next;
        rks_inbox_free(m);
    }
    for (uint32_t rank = 0; group->partials != NULL && rank < group->size; rank++)
        rks_buffer_free(&group->partials[rank].body);
    if (failed && group->bootstrap.name != NULL && strcmp(group->bootstrap.name, "mpi") == 0)
        rks_mpi_abandon(); /* finalizing MPI would wait for the rank that is lost */
    if (group->bootstrap.close != NULL)
        group->bootstrap.close(group->bootstrap.user);
    if (group->outlives) {
        keep_in_reach(group);
        return;
    }
    pthread_cond_destroy(&group->cond);
    pthread_mutex_destroy(&group->mutex);
    pthread_mutex_destroy(&group->sending);
    rks_free(group->partials);
    rks_free(group->left);
    rks_free(group->progress);
    rks_free(group->places);
    rks_free(group->granted);
    rks_readings_free(group);
    rks_buffer_free(&group->agreed);
    rks_free(group->children);
    rks_free(group->below);
    rks_free(group->hosts);
    rks_free(group->node_of);
    rks_free(group->leaders);
    rks_free(group->node_begin);
    rks_free(group->by_node);
    rks_free(group);
}

void rks_group_outlive(rks_group *group)
{
    group->outlives = true;
}

void rks_group_on_wait(rks_group *group, void (*waiting)(void *user), void *user)
{
    group->waiting = waiting;
    group->waiting_user = user;
}

void rks_group_on_close(rks_group *group, void (*closing)(rks_group *group))
{
    group->closing = closing;
}

uint32_t rks_group_rank(const rks_group *group)
{
    return group->rank;
}

uint32_t rks_group_size(const rks_group *group)
{
    return group->size;
}

uint64_t rks_group_id(const rks_group *group)
{
    return group->id;
}

rks_engine *rks_group_engine(rks_group *group)
{
    return group->engine;
}

const char *rks_group_host(const rks_group *group, uint32_t rank)
{
    return group->hosts[rank];
}

uint32_t rks_group_silence_ms(const rks_group *group)
{
    return group->silence_ms;
}

uint32_t rks_group_patience_ms(const rks_group *group)
{
    return group->patience_ms;
}

bool rks_group_encrypts(const rks_group *group)
{
    return group->encrypts;
}

bool rks_group_is_threads(const rks_group *group)
{
    return group->bootstrap.local_hub != NULL;
}

const rks_bootstrap *rks_group_bootstrap(const rks_group *group)
{
    return &group->bootstrap;
}
