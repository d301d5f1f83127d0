/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron.c: Megatron's indexed dataset: NAME.bin holds tokens, NAME.idx says where sequences lie,
 * little-endian. Either file stands for both.
 *
 *   0   9  "MMIDIDX\0\0"
 *   9   8  version, 1
 *   17  1  type of a token
 *   18  8  sequences n
 *   26  8  documents m
 *   34     i32[n] tokens of each | i64[n] its place in NAME.bin | i64[m] not looked at
 *
 * A sample is a sequence: the column "tokens" (or the only one of the schema), with the key
 * "NAME:sequence". Units are runs of sequences: offset is the first one, size the bytes of both
 * files. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/input_file.h"

enum { HEAD = 34, ENTRY = 12, BATCH = 4096, CHUNK = 1 << 20, ENDING = 4 };

static const struct {
    const char *item;
    rks_kind kind;
    uint32_t size;
} TYPES[] = {
    {"uint8", RKS_KIND_UINT8, 1},     {"int8", RKS_KIND_INT8, 1},
    {"int16", RKS_KIND_INT16, 2},     {"int32", RKS_KIND_INT32, 4},
    {"int64", RKS_KIND_INT64, 8},     {"float64", RKS_KIND_FLOAT64, 8},
    {"float32", RKS_KIND_FLOAT32, 4}, {"uint16", RKS_KIND_UINT16, 2},
};
enum { TYPE_COUNT = sizeof(TYPES) / sizeof(TYPES[0]) };

typedef struct corpus {
    rks_input_file index, data; /* paths are the corpus's own */
    int index_fd, data_fd;
    size_t type; /* in TYPES */
    uint64_t count;
} corpus;

static bool ends_with(const char *name, const char *ending)
{
    size_t size = strlen(name);
    return size > ENDING && strcmp(name + size - ENDING, ending) == 0;
}

static bool is_named(const char *name)
{
    return ends_with(name, ".idx") || ends_with(name, ".bin");
}

static void close_corpus(corpus *c)
{
    if (c->index_fd >= 0)
        close(c->index_fd);
    if (c->data_fd >= 0)
        close(c->data_fd);
    rks_free(c->index.path);
    rks_free(c->data.path);
}

/* One of the two files, open. */
static rks_status open_half(const rks_input_file *given, const char *ending, rks_input_file *file,
                            int *fd, rks_error *err)
{
    struct stat info;
    size_t stem = strlen(given->path) - ENDING;
    file->path = rks_format(err, "%.*s%s", (int)stem, given->path, ending);
    if (file->path == NULL)
        return RKS_ERR_MEMORY;
    file->size = given->size;
    if (strcmp(file->path, given->path) != 0) {
        if (stat(file->path, &info) != 0)
            return errno == ENOENT
                       ? rks_fail(err, RKS_ERR_NOT_FOUND, errno,
                                  "%s: %.*s.bin and .idx belong together; one is missing "
                                  "(give --format if it is another thing)",
                                  file->path, (int)stem, given->path)
                       : rks_fail_errno(err, errno, "%s", file->path);
        file->size = (uint64_t)info.st_size;
    }
    return rks_input_file_open(file, fd, err);
}

static rks_status read_head(corpus *c, rks_error *err)
{
    const char *path = c->index.path;
    uint8_t head[HEAD] = {0};
    uint64_t room = c->index.size < HEAD ? 0 : c->index.size - HEAD;
    rks_status status = c->index.size < HEAD
                            ? RKS_OK
                            : rks_input_file_read_all(&c->index, c->index_fd, 0, head, HEAD, err);
    if (status != RKS_OK)
        return status;
    if (memcmp(head, "MMIDIDX\0\0", 9) != 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: no index of Megatron's (MMIDIDX)", path);
    uint64_t version = rks_load_u64(head + 9), documents = rks_load_u64(head + 26);
    c->count = rks_load_u64(head + 18);
    c->type = (size_t)head[17] - 1;
    if (version != 1)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: version %" PRIu64 "; only 1 is known", path,
                        version);
    if (c->type >= TYPE_COUNT)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: dtype code %d; 1 to 8 are known", path,
                        head[17]);
    if (c->count > room / ENTRY || documents > (room - c->count * ENTRY) / 8)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %" PRIu64 " sequences and %" PRIu64
                        " documents do not fit into its %" PRIu64 " bytes",
                        path, c->count, documents, c->index.size);
    return RKS_OK;
}

/* To be closed in every case. */
static rks_status open_corpus(const rks_input_file *given, corpus *c, rks_error *err)
{
    *c = (corpus){.index_fd = -1, .data_fd = -1};
    if (!is_named(given->path))
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: its name ends neither in .idx nor in .bin",
                        given->path);
    rks_status status = open_half(given, ".idx", &c->index, &c->index_fd, err);
    if (status == RKS_OK)
        status = open_half(given, ".bin", &c->data, &c->data_fd, err);
    return status == RKS_OK ? read_head(c, err) : status;
}

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct cutting {
    rks_input *input;
    uint64_t unit_size;
    size_t room;
} cutting;

static rks_status add_unit(cutting *cut, size_t file, uint64_t first, rks_error *err)
{
    rks_input *input = cut->input;
    if (input->unit_count == RKS_UNITS_MAX)
        return rks_too_many_units(cut->unit_size, err);
    if (input->unit_count == cut->room) {
        size_t room = cut->room == 0 ? 64 : cut->room * 2;
        rks_input_unit *grown = rks_realloc(input->units, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        input->units = grown;
        cut->room = room;
    }
    input->units[input->unit_count] = (rks_input_unit){
        .number = input->unit_count,
        .first_file = file,
        .file_count = 1,
        .offset = first,
        .first_of_file = first == 0,
    };
    input->unit_count++;
    return RKS_OK;
}

static rks_status bad_sequence(const corpus *c, uint64_t at, int64_t size, uint64_t place,
                               rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s: sequence %" PRIu64 " lies outside %s (byte %" PRId64 ", %" PRId64
                    " items, the file has %" PRIu64 " bytes)",
                    c->index.path, at, c->data.path, (int64_t)place, size, c->data.size);
}

static rks_status cut_file(cutting *cut, size_t file, rks_error *err)
{
    corpus c;
    uint8_t sizes[BATCH * 4];
    rks_status status = open_corpus(&cut->input->files[file], &c, err);
    rks_input_unit *unit = NULL;
    for (uint64_t at = 0; status == RKS_OK && at < c.count; at += BATCH) {
        uint64_t count = c.count - at < BATCH ? c.count - at : BATCH;
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_input_file_read_all(&c.index, c.index_fd, HEAD + at * 4, sizes,
                                             (size_t)count * 4, err);
        for (uint64_t i = 0; status == RKS_OK && i < count; i++) {
            int32_t size = (int32_t)rks_load_u32(sizes + i * 4);
            if (size < 0 || (uint64_t)size > c.data.size / TYPES[c.type].size) {
                status = bad_sequence(&c, at + i, size, 0, err);
                break;
            }
            uint64_t bytes = (uint64_t)size * TYPES[c.type].size + ENTRY;
            if (unit == NULL || bytes > cut->unit_size || unit->size > cut->unit_size - bytes) {
                status = add_unit(cut, file, at + i, err);
                if (status != RKS_OK)
                    break;
                unit = &cut->input->units[cut->input->unit_count - 1];
            }
            unit->size += bytes;
        }
    }
    close_corpus(&c);
    return status;
}

static int by_name(const void *name, const void *file)
{
    return strcmp(name, ((const rks_input_file *)file)->name);
}

/* *beside: file `i` is the .bin of a .idx that is in the list. */
static rks_status is_beside(const rks_input *input, size_t i, bool *beside, rks_error *err)
{
    const rks_input_file *file = &input->files[i];
    *beside = false;
    if (!ends_with(file->name, ".bin"))
        return RKS_OK;
    char *name = rks_strdup(file->name, err);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    memcpy(name + strlen(name) - ENDING, ".idx", ENDING);
    const rks_input_file *index =
        bsearch(name, input->files, input->file_count, sizeof(*input->files), by_name);
    size_t size = strlen(file->path);
    *beside = index != NULL && strlen(index->path) == size &&
              memcmp(index->path, file->path, size - ENDING) == 0;
    rks_free(name);
    return RKS_OK;
}

static rks_status cut(rks_input *input, uint64_t unit_size, rks_error *err)
{
    cutting cut = {.input = input, .unit_size = unit_size};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++) {
        bool beside = false;
        status = is_beside(input, i, &beside, err);
        if (status == RKS_OK && !beside)
            status = cut_file(&cut, i, err);
    }
    for (size_t i = 0; status == RKS_OK && i < input->unit_count; i++)
        if (input->units[i].first_of_file) { /* keys are without the ending */
            char *name = input->files[input->units[i].first_file].name;
            name[strlen(name) - ENDING] = '\0';
        }
    return status;
}

/* Sequences of the unit, which go to where the next one begins. */
static uint64_t sequences(const rks_input *input, const rks_input_unit *unit, uint64_t all)
{
    size_t next = (size_t)unit->number + 1;
    bool more = next < input->unit_count && !input->units[next].first_of_file;
    return (more ? input->units[next].offset : all) - unit->offset;
}

static rks_status count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    corpus c;
    const rks_input_unit *at = &input->units[unit];
    rks_status status = open_corpus(&input->files[at->first_file], &c, err);
    if (status == RKS_OK)
        *rows = sequences(input, at, c.count);
    close_corpus(&c);
    return status;
}

/* ---- schema ---------------------------------------------------------------------------------- */

static rks_status infer(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    corpus c;
    char *made = NULL;
    rks_status status = open_corpus(&input->files[input->units[unit].first_file], &c, err);
    if (status == RKS_OK) {
        made = rks_format(err, "{\"tokens\":\"%s[*]\"}", TYPES[c.type].item);
        status = made == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK)
        *schema_text = made;
    close_corpus(&c);
    return status;
}

static rks_status check_schema(const rks_schema *schema, rks_error *err)
{
    if (rks_schema_columns(schema) == 1)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: sequences make one column, not %.100s",
                    rks_schema_text(schema));
}

/* ---- sequences ------------------------------------------------------------------------------- */

typedef struct reader {
    corpus corpus;
    const rks_column *column;
    rks_buffer window; /* bytes of the data file */
    uint64_t begin;    /* of the window */
    uint64_t done;     /* bytes of the unit */
} reader;

/* The bytes, in place for numbers. Reads ahead where sequences follow each other. */
static rks_status load(reader *r, uint64_t place, uint64_t size, const uint8_t **bytes,
                       rks_error *err)
{
    uint64_t end = r->begin + r->window.size;
    bool inside = r->window.data != NULL && place >= r->begin && place + size <= end &&
                  (place - r->begin) % TYPES[r->corpus.type].size == 0;
    rks_status status = RKS_OK;
    if (!inside) {
        bool follows = place >= r->begin && place <= end;
        uint64_t left = r->corpus.data.size - place;
        uint64_t want = follows && size < CHUNK ? CHUNK : size;
        want = want < left ? want : left;
        r->window.size = 0;
        status = rks_buffer_reserve(&r->window, (size_t)want + 1, err);
        if (status == RKS_OK)
            status = rks_input_file_read_all(&r->corpus.data, r->corpus.data_fd, place,
                                             r->window.data, (size_t)want, err);
        if (status != RKS_OK)
            return status;
        r->window.size = (size_t)want;
        r->begin = place;
    }
    *bytes = r->window.data + (place - r->begin);
    return RKS_OK;
}

/* `fatal` is set where the file is to blame, not the sequence. */
static rks_status take(rks_job *job, reader *r, uint64_t place, uint32_t items, bool *fatal,
                       rks_error *err)
{
    const uint8_t *bytes = NULL;
    uint64_t size = (uint64_t)items * TYPES[r->corpus.type].size;
    if (size > job->max_sample)
        return rks_job_too_long(job, size, err);
    if (r->column->dims[0] != 0 && r->column->dims[0] != items)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" is %s, the sequence has %" PRIu32,
                        r->column->name, r->column->type, items);
    rks_status status = load(r, place, size, &bytes, err);
    *fatal = status != RKS_OK;
    if (status != RKS_OK)
        return status;
    const rks_value value = {.data = bytes, .size = (size_t)size, .dims = {items}};
    return rks_job_offer(job, &value, err);
}

static rks_status read_batch(rks_job *job, reader *r, uint64_t first, uint64_t count,
                             rks_error *err)
{
    const corpus *c = &r->corpus;
    const rks_place place = {.path = c->index.path};
    uint8_t sizes[BATCH * 4], places[BATCH * 8];
    uint32_t item = TYPES[c->type].size;
    rks_status status = rks_input_file_read_all(&c->index, c->index_fd, HEAD + first * 4, sizes,
                                                (size_t)count * 4, err);
    if (status == RKS_OK)
        status = rks_input_file_read_all(&c->index, c->index_fd, HEAD + c->count * 4 + first * 8,
                                         places, (size_t)count * 8, err);
    for (uint64_t i = 0; status == RKS_OK && i < count; i++) {
        int32_t items = (int32_t)rks_load_u32(sizes + i * 4);
        uint64_t at = rks_load_u64(places + i * 8);
        bool fatal = false;
        if (items < 0 || at > c->data.size || (uint64_t)items > (c->data.size - at) / item)
            return bad_sequence(c, first + i, items, at, err);
        if (rks_job_takes(job))
            status = take(job, r, at, (uint32_t)items, &fatal, err);
        if (!fatal)
            status = rks_job_row(job, &place, status, err);
        r->done += (uint64_t)items * item + ENTRY;
        if (status == RKS_OK)
            status = rks_job_tick(job, r->done, err);
    }
    return status;
}

static rks_status read_sequences(rks_job *job, reader *r, rks_error *err)
{
    const corpus *c = &r->corpus;
    uint64_t first = job->unit->offset, count = sequences(job->input, job->unit, c->count);
    rks_status status = RKS_OK;
    if (r->column->kind != TYPES[c->type].kind || r->column->dim_count != 1)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: sequences of %s, the schema has %s",
                        c->index.path, TYPES[c->type].item, r->column->type);
    for (uint64_t at = 0; status == RKS_OK && at < count; at += BATCH) {
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = read_batch(job, r, first + at, count - at < BATCH ? count - at : BATCH, err);
    }
    if (status == RKS_OK)
        status = rks_input_file_unchanged(&c->index, c->index_fd, err);
    return status == RKS_OK ? rks_input_file_unchanged(&c->data, c->data_fd, err) : status;
}

static rks_status read_unit(rks_job *job, rks_error *err)
{
    reader r = {.column = rks_schema_column(job->schema, 0)};
    rks_status status = open_corpus(&job->input->files[job->unit->first_file], &r.corpus, err);
    if (status == RKS_OK)
        status = read_sequences(job, &r, err);
    close_corpus(&r.corpus);
    rks_buffer_free(&r.window);
    return status;
}

const rks_input_format rks_format_megatron = {
    .name = "megatron",
    .is_named = is_named,
    .cut = cut,
    .count_rows = count_rows,
    .infer = infer,
    .check_schema = check_schema,
    .read = read_unit,
};
