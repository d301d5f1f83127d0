/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: passes the rows of a program's input to the job that reads its unit. */
#include "ingest/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"

enum { LOOK_ROWS = 256, LOOK_BYTES = 4 << 20 };

typedef struct rows {
    const rks_input_ops *ops;
    void *object;
    rks_stream_kind stream;
    const char *identity;
    uint64_t length; /* of the row that is being added */
    uint64_t read;   /* units of a stream that were read */
    size_t file_room;
    char base[RKS_DIGEST_TEXT]; /* "": none */
    uint64_t generation;
} rows;

static void drop_files(rks_input *input)
{
    for (size_t i = 0; i < input->file_count; i++)
        rks_free(input->files[i].name);
    input->file_count = input->unit_count = 0;
}

/* ---- reading a unit -------------------------------------------------------------------------- */

/* The sink of a job; without one, of a unit that is read past. */
typedef struct job_sink {
    rks_sink sink;
    rks_job *job;
    rows *rows;
    uint64_t looked_rows, looked_bytes; /* since the job last reported */
} job_sink;

static rks_status report_progress(job_sink *s, const rks_input_row *row, rks_error *err)
{
    for (uint32_t i = 0; i < rks_schema_columns(s->sink.schema); i++)
        s->looked_bytes += row->values[i].size;
    if (++s->looked_rows < LOOK_ROWS && s->looked_bytes < LOOK_BYTES)
        return RKS_OK;
    s->looked_rows = s->looked_bytes = 0;
    return rks_job_report(s->job, 0, err);
}

static rks_status add_row(rks_sink *sink, const rks_input_row *row, rks_error *err)
{
    job_sink *s = (job_sink *)sink;
    rks_job *job = s->job;
    if (job == NULL)
        return RKS_OK;
    if (job->rows == UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 ": more than 2^32 samples",
                        job->unit->number);
    bool own_keys = job->options->own_keys;
    if (own_keys != (row->key != NULL))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        own_keys ? "own_keys is set, but no key is given"
                                 : "a key is given, but own_keys is not set");
    rks_status status = report_progress(s, row, err);
    s->rows->length = row->length;
    if (status == RKS_OK && rks_job_is_sampled(job))
        status = rks_job_emit_keyed(job, row->values, row->key, row->key_size, err);
    job->rows += status == RKS_OK;
    return status;
}

static rks_status count_left_out(rks_sink *sink, uint64_t filtered, uint64_t bad, const char *lines,
                                 rks_error *err)
{
    job_sink *s = (job_sink *)sink;
    if (s->job == NULL)
        return RKS_OK;
    if (filtered > UINT32_MAX || bad > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "unit %" PRIu64 ": more than 2^32 samples left out", s->job->unit->number);
    s->job->filtered += filtered;
    s->job->bad += bad;
    return lines == NULL || lines[0] == '\0' ? RKS_OK : rks_job_list(s->job, lines, err);
}

static rks_status read_unit(const rks_input *input, const rks_schema *schema, rks_job *job,
                            rks_error *err)
{
    rows *r = input->cut;
    job_sink s = {.sink = {.struct_size = sizeof(s.sink),
                           .schema = schema,
                           .drops = job == NULL,
                           .row = add_row,
                           .left_out = count_left_out},
                  .job = job,
                  .rows = r};
    uint64_t unit = r->stream != RKS_STREAM_NONE ? r->read++ : (uint64_t)(job->unit - input->units);
    return r->ops->read(r->object, unit, &s.sink, err);
}

static rks_status read_job_rows(rks_job *job, rks_error *err)
{
    return read_unit(job->input, job->schema, job, err);
}

rks_status rks_rows_pass(const rks_input *input, const rks_schema *schema, rks_error *err)
{
    return read_unit(input, schema, NULL, err);
}

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct listing {
    rks_scan scan;
    rks_input *input;
    uint64_t number; /* of a stream's unit */
    size_t added;
} listing;

static rks_status make_file_room(rks_input *input, rks_error *err)
{
    rows *r = input->cut;
    if (input->file_count < r->file_room)
        return RKS_OK;
    size_t room = r->file_room == 0 ? 16 : r->file_room * 2;
    rks_input_file *files = rks_realloc(input->files, room, sizeof(*files), err);
    if (files == NULL)
        return RKS_ERR_MEMORY;
    input->files = files;
    r->file_room = room;
    return RKS_OK;
}

static rks_status add_unit(rks_scan *scan, const char *name, uint64_t weight, rks_error *err)
{
    listing *l = (listing *)scan;
    rks_input *input = l->input;
    bool streams = scan->stream != RKS_STREAM_NONE;
    if (name == NULL || name[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %zu: the name is empty", input->unit_count);
    if (streams && l->added > 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "a stream's scan adds one unit at a time, not \"%s\" too", name);
    rks_status status = make_file_room(input, err);
    if (status != RKS_OK)
        return status;
    rks_input_file *file = &input->files[input->file_count];
    *file = (rks_input_file){.name = rks_strdup(name, err), .size = weight};
    if (file->name == NULL)
        return RKS_ERR_MEMORY;
    input->file_count++;
    const rks_input_unit unit = {.first_file = input->file_count - 1,
                                 .size = weight == 0 ? 1 : weight,
                                 .first_of_file = true};
    status = rks_unit_add(input, unit, 0, err);
    if (status != RKS_OK)
        return status;
    input->units[input->unit_count - 1].file_count = 0; /* opening a file costs nothing here */
    if (streams)
        input->units[0].number = l->number;
    l->added++;
    return RKS_OK;
}

void rks_rows_set_base(rks_input *input, const char *base, uint64_t generation)
{
    rows *r = input->cut;
    snprintf(r->base, sizeof(r->base), "%s", base == NULL ? "" : base);
    r->generation = generation;
}

rks_status rks_rows_scan(rks_input *input, uint64_t number, bool *found, rks_error *err)
{
    rows *r = input->cut;
    listing l = {.scan = {.struct_size = sizeof(l.scan),
                          .unit = add_unit,
                          .base = r->base[0] == '\0' ? NULL : r->base,
                          .generation = r->generation,
                          .stream = r->stream},
                 .input = input,
                 .number = number};
    drop_files(input);
    rks_status status = r->ops->scan(r->object, &l.scan, err);
    if (status != RKS_OK)
        return status;
    r->stream = l.scan.stream;
    r->identity = l.scan.identity;
    if (r->identity != NULL && strlen(r->identity) > RKS_IDENTITY_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "an identity of more than %d bytes",
                        RKS_IDENTITY_MAX);
    *found = l.added > 0;
    return RKS_OK;
}

/* ---- the input ------------------------------------------------------------------------------- */

static void free_rows(rks_input *input)
{
    rks_free(input->cut);
}

static const rks_input_format rows_format = {
    .name = "rows",
    .free_cut = free_rows,
    .read = read_job_rows,
};

rks_status rks_rows_open(const rks_input_ops *ops, void *object, rks_input **input, rks_error *err)
{
    rows *r = rks_alloc(1, sizeof(*r), err);
    rks_input *opened = r == NULL ? NULL : rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL) {
        rks_free(r);
        return RKS_ERR_MEMORY;
    }
    *r = (rows){.ops = ops, .object = object, .generation = 1};
    opened->format = &rows_format;
    opened->cut = r;
    *input = opened;
    return RKS_OK;
}

bool rks_input_is_rows(const rks_input *input)
{
    return input->format == &rows_format;
}

rks_stream_kind rks_rows_stream(const rks_input *input)
{
    const rows *r = input->cut;
    return r->stream;
}

const char *rks_rows_identity(const rks_input *input)
{
    const rows *r = input->cut;
    return r->identity;
}

rks_status rks_rows_digest(const rks_input *input, rks_digest *digest, rks_error *err)
{
    const rows *r = input->cut;
    uint64_t stream = r->stream;
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    rks_digester_update(digester, &stream, sizeof(stream));
    for (size_t i = 0; stream == RKS_STREAM_NONE && i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        rks_digester_update(digester, file->name, strlen(file->name) + 1);
        rks_digester_update(digester, &file->size, sizeof(file->size));
    }
    *digest = rks_digester_result(digester);
    rks_digester_free(digester);
    return RKS_OK;
}

static rks_status own_length(void *user, const rks_sample *sample, uint64_t *length, rks_error *err)
{
    (void)sample, (void)err;
    *length = *(const uint64_t *)user;
    return RKS_OK;
}

void rks_rows_own_lengths(const rks_input *input, rks_length_fn *length_fn, void **user)
{
    rows *r = input->cut;
    *length_fn = own_length;
    *user = &r->length;
}
