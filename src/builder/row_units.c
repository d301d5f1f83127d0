/* SPDX-License-Identifier: Apache-2.0
 *
 * row_units.c: a stream is read to its end. Units that are finished are read, too, and compared:
 * nothing else tells whether it is the stream that an interrupted build read. */
#include "builder/row_units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ingest/rows.h"

rks_status rks_row_units_list(rks_group *group, rks_status status, rks_input *input,
                              const rks_parts *parts, bool *more, rks_error *err)
{
    char id[RKS_DIGEST_TEXT];
    rks_digest units = {0};
    const rks_dataset *base = status == RKS_OK ? rks_parts_base(parts) : NULL;
    if (base != NULL) {
        rks_digest_format(base->id, id);
        rks_rows_set_base(input, id, rks_dataset_number(base) + 1);
    }
    if (status == RKS_OK)
        status = rks_rows_scan(input, rks_group_rank(group), more, err);
    if (status == RKS_OK)
        status = rks_rows_digest(input, &units, err);
    const rks_fact fact =
        rks_fact_same_bytes("the units of the input", &units, sizeof(units), NULL);
    status = rks_group_agree_on(group, "build: units", status, &fact, 1, NULL, err);
    if (status == RKS_OK && *more && rks_rows_stream(input) == RKS_STREAM_SAME)
        input->units[0].number = 0;
    return status;
}

typedef struct walk {
    const rks_read_units *reading;
    uint64_t samples; /* of units that have ended */
} walk;

static rks_status tick(void *user, uint64_t bytes, uint64_t samples, rks_error *err)
{
    const walk *w = user;
    return w->reading->tick(w->reading->user, bytes, w->samples + samples, err);
}

static rks_status read_one(walk *w, rks_selector *selector, rks_error *err)
{
    const rks_read_units *r = w->reading;
    const rks_ingest_progress progress = {.tick = tick, .user = w};
    const rks_ingest_reading with = {r->input, r->schema, r->options, selector, r->bad};
    rks_shard_writer *writer = NULL;
    size_t count = 0;
    rks_status status = rks_parts_writer(r->parts, &writer, err);
    if (status == RKS_OK)
        status = rks_ingest_unit(&with, 0, 0, writer, &progress, NULL, err);
    if (status != RKS_OK)
        return status;
    const rks_unit_summary *units = rks_shard_writer_units(writer, &count);
    w->samples += units[count - 1].samples;
    return rks_parts_seal_full(r->parts, r->max_shard, err);
}

/* Refuses a stream that has changed. `how` goes before "than". */
static rks_status fail_changed(const rks_read_units *reading, const char *how, rks_error *err)
{
    if (rks_parts_kept(reading->parts) != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, ESTALE, "source: %s than the finished dataset", how);
    if (rks_parts_repaired(reading->parts) != NULL)
        return rks_fail(err, RKS_ERR_DATA, ESTALE,
                        "source: %s than the dataset whose lost shards are to be built again; "
                        "nothing is changed there",
                        how);
    return rks_fail(err, RKS_ERR_DATA, ESTALE,
                    "source: %s than an interrupted build stored; what that build left is removed, "
                    "and the same call builds anew",
                    how);
}

static rks_status fail_other(const rks_read_units *reading, rks_error *err)
{
    char how[160];
    snprintf(how, sizeof(how), "\"%.120s\" has other samples",
             reading->input->files[reading->input->units[0].first_file].name);
    return fail_changed(reading, how, err);
}

/* Compares a unit that is finished with what the stream holds now. */
static rks_status check_one(walk *w, rks_selector *selector, const rks_unit_summary *wanted,
                            rks_error *err)
{
    const rks_read_units *r = w->reading;
    const rks_ingest_progress progress = {.tick = tick, .user = w};
    const rks_ingest_reading with = {r->input, r->schema, r->options, selector, r->bad};
    bool same = false;
    rks_status status =
        rks_ingest_check(&with, 0, r->options->max_sample, &progress, wanted, &same, err);
    return status == RKS_OK && !same ? fail_other(r, err) : status;
}

/* Fails if an interrupted build stored units that come after the stream's end. */
static rks_status check_stream_end(const rks_read_units *reading, uint64_t number, uint64_t step,
                                   rks_error *err)
{
    uint64_t last = rks_parts_finished_last(reading->parts);
    for (; number <= last; number += step) {
        if (rks_parts_finished(reading->parts, number) == NULL)
            continue;
        char how[64];
        snprintf(how, sizeof(how), "it ends before unit %" PRIu64 ", earlier", number);
        return fail_changed(reading, how, err);
    }
    return RKS_OK;
}

rks_status rks_row_units_read(const rks_read_units *reading, rks_input *input, uint32_t ranks,
                              bool more, uint64_t *samples, rks_error *err)
{
    walk w = {.reading = reading};
    rks_selector *selector = NULL;
    bool same = rks_rows_stream(input) == RKS_STREAM_SAME;
    uint64_t number = same ? 0 : reading->rank, step = same ? 1 : ranks;
    rks_status status = rks_selector_create(reading->schema, reading->options, &selector, err);
    while (status == RKS_OK && more) {
        const rks_unit_summary *finished = rks_parts_finished(reading->parts, number);
        if (same && number % ranks != reading->rank)
            status = rks_rows_pass(input, rks_selector_rows(selector), err);
        else if (finished != NULL)
            status = check_one(&w, selector, finished, err);
        else if (rks_parts_kept(reading->parts) != NULL)
            status = fail_other(reading, err);
        else
            status = read_one(&w, selector, err);
        number += step;
        if (status == RKS_OK)
            status = rks_rows_scan(input, number, &more, err);
    }
    if (status == RKS_OK)
        status = check_stream_end(reading, number, step, err);
    *samples = w.samples;
    rks_selector_free(selector);
    return status;
}

static rks_status find_equal(const rks_agreed *agreed, uint32_t rank, rks_error *err)
{
    const char *one = rks_agreed_get(agreed, rank, 0, NULL);
    for (uint32_t other = 0; one != NULL && other < rank; other++) {
        const char *seen = rks_agreed_get(agreed, other, 0, NULL);
        if (seen != NULL && strcmp(one, seen) == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, ENOTUNIQ,
                            "source: the streams of rank %u and rank %u are equal (%s), and each "
                            "sample would be there twice",
                            other, rank, one);
    }
    return RKS_OK;
}

rks_status rks_row_units_compare(rks_group *group, rks_status status, const rks_input *input,
                                 rks_error *err)
{
    uint32_t ranks = rks_group_size(group);
    const char *mine = status == RKS_OK ? rks_rows_identity(input) : NULL;
    const rks_fact fact = rks_fact_bytes(mine, mine == NULL ? 0 : strlen(mine) + 1,
                                         ranks * (uint64_t)(RKS_IDENTITY_MAX + 1));
    rks_agreed agreed;
    status = rks_group_agree_on(group, "build: streams", status, &fact, 1, &agreed, err);
    for (uint32_t rank = 1; status == RKS_OK && rank < ranks; rank++)
        status = find_equal(&agreed, rank, err);
    return status;
}
