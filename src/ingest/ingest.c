/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest.c: passes a unit's rows, as their format reads them, through the selector to the
 * writer. */
#include "ingest/ingest.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "ingest/row_sampling.h"
#include "ingest/format.h"
#include "ingest/row.h"
#include "ingest/stored.h"
#include "ingest/unpack.h"
#include "shard/block.h"

enum { BAD_ROOM = 64 << 10, KEPT_MOST = 64 << 20 };

/* Of samples that wait for the unit's turn. Returns false if they find no room. */
static bool hold_samples(rks_job *job, uint64_t bytes)
{
    return job->input->stores == NULL || rks_stores_hold(job->input->stores, &job->held, bytes);
}

rks_status rks_job_wait_turn(rks_job *job, rks_error *err)
{
    if (job->turn == NULL)
        return RKS_OK;
    rks_status status = job->turn->wait(job->turn->user, &job->first_row, err);
    if (status != RKS_OK)
        return status;
    job->turn = NULL;
    status = rks_unit_writer_place(job->writer, job->first_row, err);
    hold_samples(job, 0);
    return status;
}

rks_status rks_job_report(rks_job *job, uint64_t bytes, rks_error *err)
{
    job->ticked = bytes;
    if (job->turn != NULL && job->turn->has_come(job->turn->user)) {
        rks_status status = rks_job_wait_turn(job, err);
        if (status != RKS_OK)
            return status;
    }
    if (job->progress == NULL || job->progress->tick == NULL)
        return RKS_OK;
    uint64_t most = job->unit->size; /* the last line may end after the unit */
    return job->progress->tick(job->progress->user, bytes < most ? bytes : most, job->kept, err);
}

bool rks_job_draws(rks_job *job)
{
    bool taken =
        rks_row_is_sampled(job->draw_limit, job->options->seed, job->unit->number, job->rows);
    job->filtered += !taken;
    return taken;
}

static rks_status hand_over(rks_job *at, const rks_value *values, const void *key, size_t key_size,
                            uint32_t length, rks_error *err)
{
    char derived[RKS_KEY_MAX + 1];
    uint64_t row = at->first_row + at->rows;
    if (rks_selector_derived_keys(at->selector)) {
        const char *name = at->input->files[at->unit->first_file].name;
        key_size = rks_key_derive(name, strlen(name), row, derived);
        key = derived;
    }
    const rks_input_row given = {.struct_size = sizeof(given),
                                 .values = values,
                                 .key = key,
                                 .key_size = key_size,
                                 .length = length,
                                 .number = row};
    rks_status status = at->sink->row(at->sink, &given, err);
    at->sink_failed = status != RKS_OK;
    return status;
}

/* Writes a sample. The writer's error may name the sample's key, which is known only in the unit's
 * turn; so a refused sample is written again then. */
static rks_status write_sample(rks_job *at, const rks_value *values, const void *key,
                               size_t key_size, uint32_t length, rks_error *err)
{
    rks_status status =
        rks_unit_writer_add(at->writer, values, key, key_size, length, (uint32_t)at->rows, err);
    if (at->turn == NULL)
        return status;
    const uint64_t kept = rks_unit_writer_kept(at->writer);
    const bool refused = status == RKS_ERR_DATA;
    if (refused || (status == RKS_OK && (kept >= KEPT_MOST || !hold_samples(at, kept)))) {
        status = rks_job_wait_turn(at, err);
        if (status == RKS_OK && refused)
            return write_sample(at, values, key, key_size, length, err);
    }
    return status;
}

rks_status rks_job_emit(rks_job *at, const rks_value *values, rks_error *err)
{
    return rks_job_emit_keyed(at, values, NULL, 0, err);
}

rks_status rks_job_emit_keyed(rks_job *at, const rks_value *values, const void *key,
                              size_t key_size, rks_error *err)
{
    bool keep = false;
    uint32_t length = 0;
    values = rks_selector_count(at->selector, values);
    rks_status status =
        rks_selector_apply(at->selector, values, &keep, &length, &key, &key_size, err);
    if (status != RKS_OK)
        return status;
    if (!keep) {
        at->filtered++;
        return RKS_OK;
    }
    if (at->sink != NULL)
        status = hand_over(at, values, key, key_size, length, err);
    else if (at->check != NULL)
        status =
            rks_unit_check_add(at->check, values, key, key_size, length, (uint32_t)at->rows, err);
    else
        status = write_sample(at, values, key, key_size, length, err);
    if (status == RKS_OK)
        at->kept++;
    return status;
}

static void say_place(const rks_job *at, const rks_place *place, rks_error *err)
{
    rks_error inner = *err;
    uint64_t row = at->first_row + at->rows;
    if (place->line)
        rks_fail_at_row(err, place->path, row);
    else if (place->called != NULL)
        rks_fail(err, (rks_status)inner.status, inner.cause, "%s: %s %" PRIu64 ": %s", place->path,
                 place->called, row, inner.text);
    else if (place->member != NULL)
        rks_fail(err, (rks_status)inner.status, inner.cause, "%s: %s: %s", place->path,
                 place->member, inner.text);
    else
        rks_fail(err, (rks_status)inner.status, inner.cause, "%s: %s", place->path, inner.text);
}

rks_status rks_job_list(rks_job *job, const char *line, rks_error *err)
{
    if (job->bad_list->size + strlen(line) + 1 > BAD_ROOM)
        return RKS_OK;
    return rks_buffer_print(job->bad_list, err, "%s\n", line);
}

/* Handles a row that ended with `status` and *err: lists and skips it, or ends the unit. Puts the
 * row's place before the error if the row, or a callback that saw it, is to blame; not for a full
 * disk. */
static rks_status settle(rks_job *at, const rks_place *place, rks_status status, rks_error *err)
{
    bool callback = rks_selector_callback_failed(at->selector) || at->sink_failed;
    if (status == RKS_OK || (status != RKS_ERR_DATA && !callback))
        return status;
    rks_error turn_failed;
    rks_status turn = rks_job_wait_turn(at, &turn_failed);
    if (turn != RKS_OK) {
        *err = turn_failed;
        return turn;
    }
    say_place(at, place, err);
    if (callback || !at->skip_bad)
        return status;
    at->bad++;
    rks_error full;
    rks_status added = rks_job_list(at, err->text, &full);
    if (added != RKS_OK)
        *err = full;
    return added;
}

rks_status rks_job_finish_row(rks_job *job, const rks_place *place, rks_status status,
                              rks_error *err)
{
    if (job->rows == UINT32_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: more than 2^32 - 1 rows in a unit; take a smaller unit_size",
                        place->path);
    status = settle(job, place, status, err);
    job->rows++;
    return status;
}

bool rks_job_refuses_extra(const rks_job *job)
{
    const char *extra = job->options->extra;
    return extra == NULL ? job->schema_from != RKS_SCHEMA_GIVEN : strcmp(extra, "error") == 0;
}

rks_status rks_job_too_long(const rks_job *job, uint64_t size, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "%" PRIu64 " bytes, above max_sample (%" PRIu64 ")", size,
                    job->max_sample);
}

static rks_status check_utf8(const rks_input_file *file, rks_error *err)
{
    rks_unpack *stream = NULL;
    uint8_t first[2];
    size_t got = 0;
    rks_status status = rks_unpack_open(file, 0, &stream, err);
    if (status == RKS_OK)
        status = rks_unpack_read(stream, first, sizeof(first), &got, err);
    rks_unpack_close(stream);
    if (status == RKS_OK && rks_bytes_are_utf16(first, got))
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: " RKS_UTF16_ADVICE, file->path);
    return status;
}

rks_status rks_ingest_infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen;
    if (unit >= input->unit_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %zu of %zu", unit, input->unit_count);
    const rks_input_unit *at = &input->units[unit];
    if (input->format->utf8 && at->first_of_file) {
        rks_status status = check_utf8(&input->files[at->first_file], err);
        if (status != RKS_OK)
            return status;
    }
    return input->format->infer(input, unit, schema_text, err);
}

/* Sets up a job, without the receiver of its samples. */
static rks_status begin_job(rks_job *at, const rks_ingest_reading *with, size_t unit,
                            uint64_t first_row, rks_error *err)
{
    const rks_input *input = with->input;
    const rks_ingest_options *options = with->options;
    if (unit >= input->unit_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %zu of %zu", unit, input->unit_count);
    if (input->stores != NULL)
        input->stores->reads_once = true;
    *at = (rks_job){
        .input = input,
        .unit = &input->units[unit],
        .schema = rks_selector_rows(with->selector),
        .schema_from = options->schema != NULL ? RKS_SCHEMA_GIVEN
                       : input->keeps_schema   ? RKS_SCHEMA_KEPT
                                               : RKS_SCHEMA_INFERRED,
        .options = options,
        .selector = with->selector,
        .bad_list = with->bad,
        .skip_bad = options->skip_bad,
        .max_sample = options->max_sample != 0 ? options->max_sample : input->max_sample,
        .draw_limit = rks_draw_limit(options->sample_rate),
        .first_row = first_row,
    };
    const rks_input_format *format = input->format;
    rks_status status =
        format->check_schema == NULL ? RKS_OK : format->check_schema(at->schema, err);
    if (status == RKS_OK && format->named_only && rks_selector_derived_keys(with->selector))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "key: samples of %s input need a key column",
                          format->name);
    return status;
}

/* Reads a unit from start to end into the shard. */
static rks_status read_into(rks_job *at, rks_shard_writer *shard, bool derived, rks_error *err)
{
    const char *name = derived ? at->input->files[at->unit->first_file].name : NULL;
    rks_status status = rks_unit_writer_create(shard, at->unit->number, name, &at->writer, err);
    if (status == RKS_OK && at->turn == NULL)
        status = rks_unit_writer_place(at->writer, at->first_row, err);
    if (status == RKS_OK)
        status = at->input->format->read(at, err);
    if (status == RKS_OK)
        status = rks_job_wait_turn(at, err);
    return status == RKS_OK ? rks_unit_writer_end(at->writer, at->rows, at->filtered, at->bad, err)
                            : status;
}

rks_status rks_ingest_unit(const rks_ingest_reading *with, size_t unit, uint64_t first_row,
                           rks_shard_writer *writer, const rks_ingest_progress *progress,
                           const rks_ingest_turn *turn, rks_error *err)
{
    rks_job at;
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen; /* a row's error decides what happens to it */
    rks_status status = begin_job(&at, with, unit, first_row, err);
    if (status != RKS_OK)
        return status;
    at.progress = progress;
    at.turn = turn;
    status = read_into(&at, writer, rks_selector_derived_keys(with->selector), err);
    rks_unit_writer_free(at.writer);
    hold_samples(&at, 0);
    return status == RKS_OK ? rks_job_report(&at, at.unit->size, err) : status;
}

rks_status rks_ingest_check(const rks_ingest_reading *with, size_t unit, uint64_t max_sample,
                            const rks_ingest_progress *progress, const rks_unit_summary *wanted,
                            bool *same, rks_error *err)
{
    rks_job at;
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen;
    rks_status status = begin_job(&at, with, unit, 0, err);
    if (status != RKS_OK)
        return status;
    bool derived = rks_selector_derived_keys(with->selector) && !with->options->own_keys;
    at.progress = progress;
    status = rks_unit_check_create(with->schema,
                                   derived ? with->input->files[at.unit->first_file].name : NULL,
                                   max_sample, &at.check, err);
    if (status == RKS_OK)
        status = at.input->format->read(&at, err);
    *same = status == RKS_OK && at.rows == wanted->seen && at.filtered == wanted->filtered &&
            at.bad == wanted->bad && rks_unit_check_is(at.check, wanted);
    rks_unit_check_free(at.check);
    return status;
}

rks_status rks_ingest_read(const rks_ingest_reading *with, size_t unit, uint64_t first_row,
                           rks_sink *sink, uint64_t *left_out, uint64_t *bad_rows, rks_error *err)
{
    rks_job at;
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen;
    rks_status status = begin_job(&at, with, unit, first_row, err);
    if (status != RKS_OK)
        return status;
    at.sink = sink;
    status = at.input->format->read(&at, err);
    if (status == RKS_OK) {
        *left_out = at.filtered;
        *bad_rows = at.bad;
    }
    return status;
}
