/* SPDX-License-Identifier: Apache-2.0
 *
 * mds.c: reads a directory of Mosaic's MDS shards, as its index.json lists them. A shard is a unit.
 * It may be compressed (unpack.h); its name is that of the unpacked file.
 *
 *   u32 samples n | u32[n + 1] places of samples | JSON, passed over | samples
 *   a sample: u32 sizes of the columns without a fixed one | the columns (mds_type.h)
 *
 * Of the hashes that the index has of a shard (unpacked), the fastest one is verified. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/named_hash.h"
#include "ingest/format.h"
#include "ingest/schema_inference.h"
#include "ingest/mds_index.h"
#include "ingest/mds_type.h"
#include "ingest/window.h"

enum { STEP = 64 << 10 };

/* ---- units ----------------------------------------------------------------------------------- */

static int compare_shard_name(const void *name, const void *file)
{
    return strcmp(name, ((const rks_input_file *)file)->name);
}

/* Finds the file beside the index in the list; *found is NULL if there is none. */
static rks_status find_beside(const rks_input *input, const rks_input_file *index, const char *base,
                              rks_input_file **found, rks_error *err)
{
    *found = NULL;
    if (base == NULL)
        return RKS_OK;
    char *name =
        rks_format(err, "%.*s%s", (int)rks_mds_folder_size(index->name), index->name, base);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    *found =
        bsearch(name, input->files, input->file_count, sizeof(*input->files), compare_shard_name);
    rks_free(name);
    return RKS_OK;
}

/* The indexes, parsed once, and their entry for each file. */
typedef struct cut_shards {
    json_t *roots;          /* a list */
    const json_t **entries; /* NULL if the file is not a shard */
} cut_shards;

static void free_cut(rks_input *input)
{
    cut_shards *kept = input->cut;
    json_decref(kept->roots);
    rks_free(kept->entries);
    rks_free(kept);
    input->cut = NULL;
}

/* Adds a shard, which is identified by its unpacked name. */
static rks_status add_shard(rks_input *input, const rks_input_file *index, const json_t *entry,
                            uint64_t unit_size, rks_error *err)
{
    const json_t **entries = ((cut_shards *)input->cut)->entries;
    const char *base = rks_mds_base_name(entry, "raw_data");
    rks_input_file *file = NULL;
    rks_status status = find_beside(input, index, base, &file, err);
    bool packed = status == RKS_OK && file == NULL;
    if (packed)
        status = find_beside(input, index, rks_mds_base_name(entry, "zip_data"), &file, err);
    if (status != RKS_OK)
        return status;
    if (file == NULL)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: shard %s is missing, or is in no folder that is a source", index->path,
                        base);
    size_t at = (size_t)(file - input->files);
    if (entries[at] != NULL)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: shard %s appears twice", index->path, base);
    entries[at] = entry;
    file->packing = packed ? RKS_PACKING_ZSTD : RKS_PACKING_NONE; /* open_shard finds which one */
    return rks_unit_of_bytes(input, at, 0, file->size, unit_size, err);
}

static rks_status cut_index(rks_input *input, const rks_input_file *index, uint64_t unit_size,
                            rks_error *err)
{
    json_t *root = NULL;
    rks_status status = rks_mds_index_load(index, &root, err);
    if (status != RKS_OK)
        return status;
    const json_t *shards = json_object_get(root, "shards");
    if (json_array_append_new(((cut_shards *)input->cut)->roots, root) != 0)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for %s", index->path);
    for (size_t i = 0; status == RKS_OK && i < json_array_size(shards); i++) {
        status = rks_mds_check_entry(json_array_get(shards, i), i, index->path, err);
        if (status == RKS_OK)
            status = add_shard(input, index, json_array_get(shards, i), unit_size, err);
    }
    return status;
}

/* Gives packed shards their unpacked names. Until now files were found by their names on disk. */
static rks_status name_shards(rks_input *input, rks_error *err)
{
    const json_t **entries = ((cut_shards *)input->cut)->entries;
    for (size_t i = 0; i < input->file_count; i++) {
        rks_input_file *file = &input->files[i];
        if (entries[i] == NULL || file->packing == RKS_PACKING_NONE)
            continue;
        char *name = rks_format(err, "%.*s%s", (int)rks_mds_folder_size(file->name), file->name,
                                rks_mds_base_name(entries[i], "raw_data"));
        if (name == NULL)
            return RKS_ERR_MEMORY;
        rks_free(file->name);
        file->name = name;
    }
    return RKS_OK;
}

static rks_status cut_mds(rks_input *input, uint64_t unit_size, rks_error *err)
{
    bool any = false;
    cut_shards *kept = rks_alloc(1, sizeof(*kept), err);
    if (kept == NULL)
        return RKS_ERR_MEMORY;
    input->cut = kept;
    kept->roots = json_array();
    kept->entries = rks_alloc(input->file_count, sizeof(json_t *), err);
    rks_status status = kept->entries == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        if (strcmp(file->path + rks_mds_folder_size(file->path), RKS_MDS_INDEX) != 0)
            continue;
        any = true;
        status = cut_index(input, file, unit_size, err);
    }
    if (status == RKS_OK && !any)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: there is no %s", input->files[0].path,
                          RKS_MDS_INDEX);
    return status == RKS_OK ? name_shards(input, err) : status;
}

/* ---- a shard --------------------------------------------------------------------------------- */

typedef struct column {
    const char *name;
    rks_mds_type type;
    int64_t fixed; /* bytes; below 0 if each sample has its own size */
    size_t at;     /* position in the current sample */
    size_t size;
} column;

typedef struct shard {
    const json_t *entry; /* the input's */
    rks_input_file file; /* as the list has it, with its packing */
    column *columns;
    size_t column_count;
    rks_window window;
    rks_named_hash *hash; /* of all that was read; NULL: the index has none, or nobody asks */
    const char *hash_name;
    rks_buffer places; /* u32[samples + 1] */
    uint64_t samples;
    uint8_t *sample; /* the current sample, in the window */
    size_t size;
} shard;

static void close_shard(shard *s)
{
    rks_window_close(&s->window);
    rks_buffer_free(&s->places);
    rks_named_hash_free(s->hash);
    rks_free(s->columns);
}

static rks_status read_columns(shard *s, rks_error *err)
{
    const json_t *names = json_object_get(s->entry, "column_names");
    const json_t *encodings = json_object_get(s->entry, "column_encodings");
    const json_t *sizes = json_object_get(s->entry, "column_sizes");
    size_t count = json_array_size(names);
    if (count == 0 || count > RKS_COLUMNS_MAX || json_array_size(encodings) != count ||
        json_array_size(sizes) != count)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %s lacks its column_names, column_encodings or column_sizes",
                        s->file.path, RKS_MDS_INDEX);
    s->columns = rks_alloc(count, sizeof(*s->columns), err);
    if (s->columns == NULL)
        return RKS_ERR_MEMORY;
    s->column_count = count;
    for (size_t i = 0; i < count; i++) {
        column *made = &s->columns[i];
        const char *encoding = json_string_value(json_array_get(encodings, i));
        const json_t *size = json_array_get(sizes, i);
        rks_error why = {0};
        made->name = json_string_value(json_array_get(names, i));
        made->fixed = json_is_integer(size) ? json_integer_value(size) : -1;
        if (made->name == NULL || encoding == NULL ||
            (json_is_integer(size) ? made->fixed < 0 : !json_is_null(size)))
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: %s: column %zu is malformed", s->file.path,
                            RKS_MDS_INDEX, i);
        for (size_t k = 0; k < i; k++)
            if (strcmp(s->columns[k].name, made->name) == 0)
                return rks_fail(err, RKS_ERR_DATA, 0, "%s: column \"%.64s\" appears twice",
                                s->file.path, made->name);
        if (rks_mds_type_parse(encoding, &made->type, &why) != RKS_OK)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: column \"%.64s\": %s", s->file.path,
                            made->name, why.text);
    }
    return RKS_OK;
}

static const char *hash_of(const shard *s, const char *name)
{
    const json_t *raw = json_object_get(s->entry, "raw_data");
    return json_string_value(json_object_get(json_object_get(raw, "hashes"), name));
}

static rks_status begin_hash(shard *s, rks_error *err)
{
    for (size_t i = 0; (s->hash_name = rks_named_hash_name(i)) != NULL; i++) {
        if (hash_of(s, s->hash_name) == NULL)
            continue;
        s->hash = rks_named_hash_create(s->hash_name, err);
        return s->hash == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    return RKS_OK;
}

/* Compares the hash of the whole shard with the index's. */
static rks_status check_hash(shard *s, rks_error *err)
{
    char found[RKS_NAMED_HASH_TEXT];
    if (s->hash == NULL)
        return RKS_OK;
    rks_named_hash_result(s->hash, found);
    return strcmp(found, hash_of(s, s->hash_name)) == 0
               ? RKS_OK
               : rks_fail(err, RKS_ERR_DATA, 0,
                          "%s: its %s is not the one in %s: the shard is damaged; get it again, or "
                          "build with check_source=False",
                          s->file.path, s->hash_name, RKS_MDS_INDEX);
}

static rks_status fill_window(shard *s, rks_error *err)
{
    uint64_t before = s->window.read_to;
    rks_status status = rks_window_fill(&s->window, err);
    size_t got = (size_t)(s->window.read_to - before);
    if (s->hash != NULL)
        rks_named_hash_update(s->hash, s->window.data + s->window.filled - got, got);
    return status;
}

static rks_status refill_window(shard *s, rks_error *err)
{
    return !s->window.ended
               ? fill_window(s, err)
               : rks_fail(err, RKS_ERR_DATA, 0, "%s: ends after %" PRIu64 " bytes of the shard",
                          s->file.path, s->window.read_to);
}

/* Gets the next bytes, in the window. The window grows with the bytes that are there, not with the
 * size that the file claims. */
static rks_status next_bytes(shard *s, uint64_t size, uint8_t **bytes, rks_error *err)
{
    rks_status status = RKS_OK;
    while (status == RKS_OK && s->window.filled - s->window.begin < size)
        status = refill_window(s, err);
    *bytes = s->window.data + s->window.begin;
    if (status == RKS_OK)
        rks_window_pass(&s->window, (size_t)size);
    return status;
}

static uint64_t place_of(const shard *s, uint64_t row)
{
    return rks_load_u32(s->places.data + row * 4);
}

static rks_status read_places(shard *s, rks_error *err)
{
    uint8_t *at = NULL;
    uint64_t bytes = (uint64_t)json_integer_value(
        json_object_get(json_object_get(s->entry, "raw_data"), "bytes"));
    json_int_t said = json_integer_value(json_object_get(s->entry, "samples"));
    rks_status status = next_bytes(s, 4, &at, err);
    if (status != RKS_OK)
        return status;
    s->samples = rks_load_u32(at);
    if ((json_int_t)s->samples != said)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: %" PRIu64 " samples, %s says %lld", s->file.path,
                        s->samples, RKS_MDS_INDEX, (long long)said);
    for (uint64_t left = (s->samples + 1) * 4, step; status == RKS_OK && left > 0; left -= step) {
        step = left < STEP ? left : STEP;
        status = next_bytes(s, step, &at, err);
        if (status == RKS_OK)
            status = rks_buffer_add(&s->places, at, (size_t)step, err);
    }
    if (status != RKS_OK)
        return status;
    bool good = place_of(s, 0) >= s->window.position && place_of(s, s->samples) == bytes;
    for (uint64_t i = 0; good && i < s->samples; i++)
        good = place_of(s, i) <= place_of(s, i + 1);
    if (!good)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: places of samples that are not in order, or do not end at the %" PRIu64
                        " bytes that %s says",
                        s->file.path, bytes, RKS_MDS_INDEX);
    return RKS_OK;
}

/* Opens a shard. Close it also on failure. `whole`: it is read to its end, and its hash verified.
 */
static rks_status open_shard(const rks_input *input, const rks_input_unit *unit, bool whole,
                             shard *s, rks_error *err)
{
    const cut_shards *kept = input->cut;
    *s = (shard){.file = input->files[unit->first_file], .entry = kept->entries[unit->first_file]};
    rks_status status = read_columns(s, err);
    if (status == RKS_OK && s->file.packing != RKS_PACKING_NONE) {
        status = rks_packing_find(&s->file, &s->file.packing, err);
        if (status == RKS_OK && s->file.packing == RKS_PACKING_NONE)
            status = rks_fail(err, RKS_ERR_DATA, 0,
                              "%s: neither zstd, gzip, bzip2 nor xz; decompress it", s->file.path);
    }
    if (status == RKS_OK && whole)
        status = begin_hash(s, err);
    if (status == RKS_OK)
        status = rks_window_open(&s->window, &s->file, 0, s->file.size, err);
    return status == RKS_OK ? read_places(s, err) : status;
}

static rks_status pass_over(shard *s, uint64_t until, rks_error *err)
{
    rks_window *window = &s->window;
    for (;;) {
        uint64_t left = until - window->position, here = window->filled - window->begin;
        rks_window_pass(window, (size_t)(left < here ? left : here));
        if (left <= here)
            return RKS_OK;
        rks_status status = refill_window(s, err);
        if (status != RKS_OK)
            return status;
    }
}

/* Makes the row (in order) the current sample, or skips it. */
static rks_status next_sample(shard *s, uint64_t row, bool wanted, rks_error *err)
{
    uint64_t begin = place_of(s, row), end = place_of(s, row + 1);
    rks_status status = pass_over(s, wanted ? begin : end, err);
    s->size = (size_t)(end - begin);
    return status == RKS_OK && wanted ? next_bytes(s, s->size, &s->sample, err) : status;
}

static rks_status check_end(shard *s, rks_error *err)
{
    rks_window *window = &s->window;
    uint64_t end = place_of(s, s->samples);
    rks_status status = pass_over(s, end, err); /* JSON, without samples */
    while (status == RKS_OK && !window->ended && window->begin == window->filled)
        status = fill_window(s, err);
    if (status == RKS_OK && window->begin < window->filled)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: more than the %" PRIu64 " bytes that %s says",
                          s->file.path, end, RKS_MDS_INDEX);
    if (status == RKS_OK)
        status = rks_window_unchanged(window, err);
    return status == RKS_OK ? check_hash(s, err) : status;
}

/* Finds the columns' places in the sample. */
static rks_status split(shard *s, rks_error *err)
{
    size_t open = 0, sized = 0;
    for (size_t i = 0; i < s->column_count; i++)
        open += s->columns[i].fixed < 0;
    uint64_t at = 4 * (uint64_t)open, all = s->size;
    for (size_t i = 0; i < s->column_count; i++) {
        column *c = &s->columns[i];
        uint64_t size = (uint64_t)c->fixed;
        if (c->fixed < 0 && all >= 4 * open)
            size = rks_load_u32(s->sample + 4 * sized++);
        if (at > all || size > all - at)
            return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" ends after the sample", c->name);
        c->at = (size_t)at;
        c->size = (size_t)size;
        at += size;
    }
    if (at != all)
        return rks_fail(err, RKS_ERR_DATA, 0, "%" PRIu64 " bytes after the last column", all - at);
    return RKS_OK;
}

/* Puts the column before the error's text. */
static rks_status fail_in(const column *c, rks_status status, rks_error *err)
{
    rks_error inner = *err;
    if (status != RKS_ERR_DATA)
        return status;
    return rks_fail(err, status, 0, "column \"%s\": %s", c->name, inner.text);
}

/* ---- schema ---------------------------------------------------------------------------------- */

static rks_status count_mds_samples(const rks_input *input, size_t unit, uint64_t *rows,
                                    rks_error *err)
{
    shard s;
    rks_status status = open_shard(input, &input->units[unit], false, &s, err);
    if (status == RKS_OK)
        *rows = s.samples;
    close_shard(&s);
    return status;
}

static rks_status guess_sample(shard *s, rks_guesses *guesses, uint64_t row, rks_error *err)
{
    rks_status status = split(s, err);
    for (size_t i = 0; status == RKS_OK && i < s->column_count; i++) {
        const column *c = &s->columns[i];
        char type[128];
        status = rks_mds_type_of(&c->type, s->sample + c->at, c->size, type, err);
        status = status == RKS_OK ? rks_guesses_add_type(guesses, c->name, type, row, err)
                                  : fail_in(c, status, err);
    }
    return status;
}

static rks_status infer_mds(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    shard s;
    rks_guesses guesses = {0};
    uint64_t samples = 0;
    rks_status status = open_shard(input, &input->units[unit], false, &s, err);
    for (uint64_t row = 0;
         status == RKS_OK && row < s.samples && row < input->infer_rows &&
         s.window.position < rks_infer_bytes(input, unit) + (uint64_t)s.places.size;
         row++) {
        bool fits = place_of(&s, row + 1) - place_of(&s, row) <= input->max_sample;
        status = next_sample(&s, row, fits, err);
        if (status != RKS_OK || !fits)
            continue; /* reading the unit names it */
        status = guess_sample(&s, &guesses, row, err);
        samples += status == RKS_OK;
        if (status == RKS_ERR_DATA && input->skip_bad)
            status = RKS_OK;
        else if (status == RKS_ERR_DATA) {
            rks_error inner = *err;
            rks_fail(err, status, 0, "%s: row %" PRIu64 ": %s", s.file.path, row, inner.text);
        }
    }
    if (status == RKS_OK && samples > 0)
        status = rks_guesses_text(&guesses, samples, schema_text, err);
    rks_guesses_free(&guesses);
    close_shard(&s);
    return status;
}

/* ---- samples --------------------------------------------------------------------------------- */

typedef struct taker {
    shard shard;
    int *columns; /* schema column of each shard column; -1 if skipped */
    rks_value *values;
    rks_member_value *made;
    rks_buffer store;
} taker;

static rks_status match(rks_job *job, taker *t, rks_error *err)
{
    const shard *s = &t->shard;
    for (size_t i = 0; i < s->column_count; i++) {
        t->columns[i] = rks_schema_find(job->schema, s->columns[i].name);
        if (t->columns[i] < 0 && rks_job_refuses_extra(job))
            return rks_fail_no_column(job->schema_from, s->file.path, s->columns[i].name, err);
    }
    for (uint32_t k = 0; k < rks_schema_columns(job->schema); k++) {
        bool there = rks_schema_column(job->schema, k)->nullable;
        for (size_t i = 0; i < s->column_count && !there; i++)
            there = t->columns[i] == (int)k;
        if (!there)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: there is no column \"%.64s\"", s->file.path,
                            rks_schema_name(job->schema, k));
    }
    return RKS_OK;
}

static rks_status add_mds_sample(rks_job *job, taker *t, rks_error *err)
{
    shard *s = &t->shard;
    uint32_t count = rks_schema_columns(job->schema);
    memset(t->made, 0, count * sizeof(*t->made));
    t->store.size = 0;
    rks_status status = split(s, err);
    for (size_t i = 0; status == RKS_OK && i < s->column_count; i++) {
        const column *c = &s->columns[i];
        if (t->columns[i] < 0)
            continue;
        uint32_t k = (uint32_t)t->columns[i];
        status = rks_mds_value(&c->type, rks_schema_column(job->schema, k), s->sample + c->at,
                               c->size, &t->store, &t->made[k], err);
        if (status != RKS_OK)
            return fail_in(c, status, err);
    }
    for (uint32_t k = 0; k < count; k++) {
        t->values[k] = t->made[k].value;
        if (t->made[k].stored)
            t->values[k].data = t->store.data + t->made[k].place;
    }
    return status == RKS_OK ? rks_job_emit(job, t->values, err) : status;
}

static rks_status read_samples(rks_job *job, taker *t, rks_error *err)
{
    shard *s = &t->shard;
    const rks_place place = {.path = s->file.path, .called = "row"};
    rks_status status = RKS_OK;
    for (uint64_t row = 0; status == RKS_OK && row < s->samples; row++) {
        uint64_t size = place_of(s, row + 1) - place_of(s, row);
        bool taken = rks_job_is_sampled(job), fits = size <= job->max_sample;
        status = next_sample(s, row, taken && fits, err);
        if (status != RKS_OK)
            return status;
        if (taken)
            status = fits ? add_mds_sample(job, t, err) : rks_job_too_long(job, size, err);
        status = rks_job_row(job, &place, status, err);
        if (status == RKS_OK)
            status = rks_job_tick(job, rks_window_done(&s->window), err);
    }
    return status == RKS_OK ? check_end(s, err) : status;
}

static rks_status read_mds_unit(rks_job *job, rks_error *err)
{
    uint32_t count = rks_schema_columns(job->schema);
    taker t = {0};
    rks_status status = open_shard(job->input, job->unit, !job->input->unchecked, &t.shard, err);
    if (status == RKS_OK &&
        ((t.columns = rks_alloc(t.shard.column_count, sizeof(*t.columns), err)) == NULL ||
         (t.values = rks_alloc(count, sizeof(*t.values), err)) == NULL ||
         (t.made = rks_alloc(count, sizeof(*t.made), err)) == NULL))
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = match(job, &t, err);
    if (status == RKS_OK)
        status = read_samples(job, &t, err);
    close_shard(&t.shard);
    rks_free(t.columns);
    rks_free(t.values);
    rks_free(t.made);
    rks_buffer_free(&t.store);
    return status;
}

const rks_input_format rks_format_mds = {
    .name = "mds",
    .is_folder = rks_mds_is_folder,
    .cut = cut_mds,
    .free_cut = free_cut,
    .count_rows = count_mds_samples,
    .infer = infer_mds,
    .read = read_mds_unit,
};
