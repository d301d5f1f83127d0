/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron.c: Megatron's indexed datasets (megatron_index.h). Either file, or their common stem,
 * stands for both.
 *
 * A sample is a sequence: the column "tokens" (or the only one of the schema), with the key
 * "NAME:sequence". Units are runs of sequences: offset is the first sequence, size the bytes of
 * both files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/megatron_index.h"

enum { ENTRY = 12, BATCH = RKS_MEGATRON_BATCH, CHUNK = 1 << 20, ENDING = RKS_MEGATRON_ENDING };

/* ---- units ----------------------------------------------------------------------------------- */

static uint64_t sequence_bytes(const rks_megatron *pair, const rks_megatron_sequence *sequence)
{
    return (uint64_t)sequence->items * pair->item_size + ENTRY;
}

static rks_status cut_batch(rks_input *input, size_t file, const rks_megatron *pair, uint64_t first,
                            uint64_t count, uint64_t unit_size, rks_error *err)
{
    rks_megatron_sequence sequences[BATCH];
    rks_status status = rks_megatron_read(pair, first, count, sequences, err);
    for (uint64_t i = 0; status == RKS_OK && i < count; i++) {
        uint64_t bytes = sequence_bytes(pair, &sequences[i]);
        rks_input_unit *unit = first + i == 0 ? NULL : &input->units[input->unit_count - 1];
        if (unit == NULL || bytes > unit_size || unit->size > unit_size - bytes) {
            const rks_input_unit begun = {
                .first_file = file, .offset = first + i, .first_of_file = first + i == 0};
            status = rks_unit_add(input, begun, unit_size, err);
            if (status != RKS_OK)
                return status;
            unit = &input->units[input->unit_count - 1];
        }
        unit->size += bytes;
    }
    return status;
}

static rks_status cut_pair(rks_input *input, size_t file, uint64_t unit_size, rks_error *err)
{
    rks_megatron pair;
    rks_status status = rks_megatron_open(&pair, &input->files[file], err);
    for (uint64_t at = 0; status == RKS_OK && at < pair.count; at += BATCH) {
        uint64_t count = pair.count - at < BATCH ? pair.count - at : BATCH;
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = cut_batch(input, file, &pair, at, count, unit_size, err);
    }
    rks_megatron_close(&pair);
    return status;
}

static int compare_pair_name(const void *name, const void *file)
{
    return strcmp(name, ((const rks_input_file *)file)->name);
}

/* Sets *beside if file `i` is the .bin of an .idx in the list. */
static rks_status is_beside(const rks_input *input, size_t i, bool *beside, rks_error *err)
{
    const rks_input_file *file = &input->files[i];
    *beside = false;
    if (!rks_name_ends(file->name, ".bin"))
        return RKS_OK;
    char *name = rks_strdup(file->name, err);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    memcpy(name + strlen(name) - ENDING, ".idx", ENDING);
    const rks_input_file *index =
        bsearch(name, input->files, input->file_count, sizeof(*input->files), compare_pair_name);
    size_t size = strlen(file->path);
    *beside = index != NULL && strlen(index->path) == size &&
              memcmp(index->path, file->path, size - ENDING) == 0;
    rks_free(name);
    return RKS_OK;
}

static rks_status cut_megatron(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++) {
        bool beside = false;
        status = is_beside(input, i, &beside, err);
        if (status == RKS_OK && !beside)
            status = cut_pair(input, i, unit_size, err);
    }
    for (size_t i = 0; status == RKS_OK && i < input->unit_count; i++)
        if (input->units[i].first_of_file) { /* keys lack the ending */
            char *name = input->files[input->units[i].first_file].name;
            name[strlen(name) - ENDING] = '\0';
        }
    return status;
}

/* Returns the number of sequences of the unit, which ends where the next one starts. */
static uint64_t sequences_of(const rks_input *input, const rks_input_unit *unit, uint64_t all)
{
    size_t next = (size_t)unit->number + 1;
    bool more = next < input->unit_count && !input->units[next].first_of_file;
    return (more ? input->units[next].offset : all) - unit->offset;
}

static rks_status count_sequences(const rks_input *input, size_t unit, uint64_t *rows,
                                  rks_error *err)
{
    rks_megatron pair;
    const rks_input_unit *at = &input->units[unit];
    rks_status status = rks_megatron_open(&pair, &input->files[at->first_file], err);
    if (status == RKS_OK)
        *rows = sequences_of(input, at, pair.count);
    rks_megatron_close(&pair);
    return status;
}

/* ---- schema ---------------------------------------------------------------------------------- */

static rks_status infer_megatron(const rks_input *input, size_t unit, char **schema_text,
                                 rks_error *err)
{
    rks_megatron pair;
    char *made = NULL;
    rks_status status = rks_megatron_open(&pair, &input->files[input->units[unit].first_file], err);
    if (status == RKS_OK) {
        made = rks_format(err, "{\"tokens\":\"%s[*]\"}", pair.item);
        status = made == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK)
        *schema_text = made;
    rks_megatron_close(&pair);
    return status;
}

static rks_status check_megatron_schema(const rks_schema *schema, rks_error *err)
{
    if (rks_schema_columns(schema) == 1)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: sequences make one column, not %.100s",
                    rks_schema_text(schema));
}

/* ---- sequences ------------------------------------------------------------------------------- */

typedef struct reader {
    rks_megatron pair;
    const rks_column *column;
    rks_buffer window; /* bytes of the data file */
    uint64_t begin;    /* position of the window */
    uint64_t done;     /* bytes of the unit that are done */
} reader;

/* Loads a sequence's bytes, aligned for its numbers. Reads ahead if sequences follow each other. */
static rks_status load_tokens(reader *r, uint64_t place, uint64_t size, const uint8_t **bytes,
                              rks_error *err)
{
    uint64_t end = r->begin + r->window.size;
    bool inside = r->window.data != NULL && place >= r->begin && place + size <= end &&
                  (place - r->begin) % r->pair.item_size == 0;
    rks_status status = RKS_OK;
    if (!inside) {
        bool follows = place >= r->begin && place <= end;
        uint64_t left = r->pair.data.size - place;
        uint64_t want = follows && size < CHUNK ? CHUNK : size;
        want = want < left ? want : left;
        r->window.size = 0;
        status = rks_buffer_reserve(&r->window, (size_t)want + 1, err);
        if (status == RKS_OK)
            status = rks_input_file_read_all(&r->pair.data, r->pair.data_handle, place,
                                             r->window.data, (size_t)want, err);
        if (status != RKS_OK)
            return status;
        r->window.size = (size_t)want;
        r->begin = place;
    }
    *bytes = r->window.data + (place - r->begin);
    return RKS_OK;
}

/* Adds a sequence. Sets *fatal if the file is to blame, not the sequence. */
static rks_status add_sequence(rks_job *job, reader *r, const rks_megatron_sequence *sequence,
                               bool *fatal, rks_error *err)
{
    const uint8_t *bytes = NULL;
    uint64_t size = (uint64_t)sequence->items * r->pair.item_size;
    if (size > job->max_sample)
        return rks_job_too_long(job, size, err);
    if (r->column->dims[0] != 0 && r->column->dims[0] != sequence->items)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" is %s, the sequence has %" PRIu32,
                        r->column->name, r->column->type, sequence->items);
    rks_status status = load_tokens(r, sequence->place, size, &bytes, err);
    *fatal = status != RKS_OK;
    if (status != RKS_OK)
        return status;
    const rks_value value = {.data = bytes, .size = (size_t)size, .dims = {sequence->items}};
    return rks_job_emit(job, &value, err);
}

static rks_status read_batch(rks_job *job, reader *r, uint64_t first, uint64_t count,
                             rks_error *err)
{
    const rks_place place = {.path = r->pair.index.path};
    rks_megatron_sequence sequences[BATCH];
    rks_status status = rks_megatron_read(&r->pair, first, count, sequences, err);
    for (uint64_t i = 0; status == RKS_OK && i < count; i++) {
        bool fatal = false;
        if (rks_job_is_sampled(job))
            status = add_sequence(job, r, &sequences[i], &fatal, err);
        if (!fatal)
            status = rks_job_row(job, &place, status, err);
        r->done += sequence_bytes(&r->pair, &sequences[i]);
        if (status == RKS_OK)
            status = rks_job_tick(job, r->done, err);
    }
    return status;
}

static rks_status read_sequences(rks_job *job, reader *r, rks_error *err)
{
    const rks_megatron *pair = &r->pair;
    uint64_t first = job->unit->offset, count = sequences_of(job->input, job->unit, pair->count);
    rks_status status = RKS_OK;
    if (r->column->kind != pair->kind || r->column->dim_count != 1)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: sequences of %s, the schema has %s",
                        pair->index.path, pair->item, r->column->type);
    for (uint64_t at = 0; status == RKS_OK && at < count; at += BATCH) {
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = read_batch(job, r, first + at, count - at < BATCH ? count - at : BATCH, err);
    }
    if (status == RKS_OK)
        status = rks_input_file_unchanged(&pair->index, pair->index_handle, err);
    return status == RKS_OK ? rks_input_file_unchanged(&pair->data, pair->data_handle, err)
                            : status;
}

static rks_status read_megatron_unit(rks_job *job, rks_error *err)
{
    reader r = {.column = rks_schema_column(job->schema, 0)};
    rks_status status = rks_megatron_open(&r.pair, &job->input->files[job->unit->first_file], err);
    if (status == RKS_OK)
        status = read_sequences(job, &r, err);
    rks_megatron_close(&r.pair);
    rks_buffer_free(&r.window);
    return status;
}

const rks_input_format rks_format_megatron = {
    .name = "megatron",
    .is_named = rks_megatron_is_named,
    .find_source = rks_megatron_of_stem,
    .cut = cut_megatron,
    .count_rows = count_sequences,
    .infer = infer_megatron,
    .check_schema = check_megatron_schema,
    .read = read_megatron_unit,
};
