/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron_index.c: reads an index; checks it against its own size and the data's before use. */
#include "ingest/megatron_index.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

enum { HEAD = 34, OLDER_HEAD = 56, FAIRSEQ_HEAD = 48, BATCH = RKS_MEGATRON_BATCH };
enum { ENDING = RKS_MEGATRON_ENDING };

/* By their codes, counted from 1. In the older index code 6 means either float; the size shows
 * which. */
static const rks_kind TYPES[] = {
    RKS_KIND_UINT8, RKS_KIND_INT8,    RKS_KIND_INT16,   RKS_KIND_INT32,
    RKS_KIND_INT64, RKS_KIND_FLOAT64, RKS_KIND_FLOAT32, RKS_KIND_UINT16,
};
enum { TYPE_COUNT = sizeof(TYPES) / sizeof(TYPES[0]), FLOAT64 = 6, FLOAT32 = 7 };

/* ---- two files ------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *ending)
{
    size_t size = strlen(name);
    return size > ENDING && strcmp(name + size - ENDING, ending) == 0;
}

bool rks_megatron_is_named(const char *name)
{
    return ends_with(name, ".idx") || ends_with(name, ".bin");
}

static bool is_file(const char *path)
{
    struct stat info;
    return path != NULL && stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

char *rks_megatron_of_stem(const char *path)
{
    char *index = rks_format(NULL, "%s.idx", path), *data = rks_format(NULL, "%s.bin", path);
    bool both = is_file(index) && is_file(data);
    rks_free(data);
    if (both)
        return index;
    rks_free(index);
    return NULL;
}

void rks_megatron_close(rks_megatron *pair)
{
    rks_input_file_close(pair->index_handle);
    rks_input_file_close(pair->data_handle);
    rks_free(pair->index.path);
    rks_free(pair->index.version);
    rks_free(pair->data.path);
    rks_free(pair->data.version);
    *pair = (rks_megatron){0};
}

/* Finds the size of the other file, and its version in a store. */
static rks_status look_for_half(rks_input_file *file, rks_error *err)
{
    struct stat info;
    if (file->store != NULL)
        return file->store->find(file->store, file->path, &file->size, &file->version, err);
    if (stat(file->path, &info) != 0)
        return errno == ENOENT
                   ? rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no such file", file->path)
                   : rks_fail_errno(err, errno, "%s", file->path);
    file->size = (uint64_t)info.st_size;
    return RKS_OK;
}

/* Opens one of the two files. */
static rks_status open_half(const rks_input_file *given, const char *ending, rks_input_file *file,
                            rks_input_handle **handle, rks_error *err)
{
    size_t stem = strlen(given->path) - ENDING;
    file->path = rks_format(err, "%.*s%s", (int)stem, given->path, ending);
    if (file->path == NULL)
        return RKS_ERR_MEMORY;
    file->size = given->size;
    file->store = given->store;
    if (strcmp(file->path, given->path) != 0) {
        rks_status status = look_for_half(file, err);
        if (status == RKS_ERR_NOT_FOUND)
            return rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT,
                            "%s: %.*s.bin and .idx belong together; one is missing "
                            "(give format if it is another thing)",
                            file->path, (int)stem, given->path);
        if (status != RKS_OK)
            return status;
    } else if (given->store != NULL) {
        file->version = rks_strdup(given->version, err);
        if (file->version == NULL)
            return RKS_ERR_MEMORY;
    }
    return rks_input_file_open(file, handle, err);
}

/* ---- the index's head ------------------------------------------------------------------------ */

static rks_status set_type(rks_megatron *pair, uint64_t code, rks_error *err)
{
    if (code < 1 || code > TYPE_COUNT)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: dtype code %" PRIu64 "; 1 to %d are known",
                        pair->index.path, code, TYPE_COUNT);
    pair->kind = TYPES[code - 1];
    pair->item = rks_kinds[pair->kind].name;
    pair->item_size = rks_kinds[pair->kind].size;
    return RKS_OK;
}

static rks_status check_version(const rks_megatron *pair, uint64_t version, rks_error *err)
{
    return version == 1 ? RKS_OK
                        : rks_fail(err, RKS_ERR_DATA, 0, "%s: version %" PRIu64 "; only 1 is known",
                                   pair->index.path, version);
}

/* Checks the index's size: after the head it has `lists` bytes a sequence, `more` bytes, and 8 a
 * document. */
static rks_status check_size(const rks_megatron *pair, uint64_t lists, uint64_t more,
                             uint64_t documents, rks_error *err)
{
    uint64_t size = pair->index.size, before = pair->head + more;
    if (size >= before && pair->count <= (size - before) / lists &&
        documents <= (size - before - pair->count * lists) / 8)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s: %" PRIu64 " sequences and %" PRIu64
                    " documents do not fit into its %" PRIu64 " bytes",
                    pair->index.path, pair->count, documents, size);
}

static rks_status read_mapped(rks_megatron *pair, const uint8_t *head, rks_error *err)
{
    pair->count = rks_load_u64(head + 18);
    pair->head = HEAD;
    rks_status status = check_version(pair, rks_load_u64(head + 9), err);
    if (status == RKS_OK)
        status = set_type(pair, head[17], err);
    return status == RKS_OK ? check_size(pair, 12, 0, rks_load_u64(head + 26), err) : status;
}

static rks_status read_older(rks_megatron *pair, const uint8_t *head, rks_error *err)
{
    uint64_t code = rks_load_u64(head + 16), size = rks_load_u64(head + 24), rest;
    uint64_t sizes = rks_load_u64(head + 40), documents = rks_load_u64(head + 48);
    pair->older = true;
    pair->count = rks_load_u64(head + 32);
    rks_status status = check_version(pair, rks_load_u64(head + 8), err);
    if (code == FLOAT64 || code == FLOAT32)
        code = size == 4 ? FLOAT32 : FLOAT64;
    if (status == RKS_OK)
        status = set_type(pair, code, err);
    if (status != RKS_OK)
        return status;
    if (size != pair->item_size)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: tokens of %" PRIu64 " bytes, %s has %" PRIu32,
                        pair->index.path, size, pair->item, pair->item_size);
    if (sizes != pair->count)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %" PRIu64 " sizes of %" PRIu64
                        " sequences; only sequences of one dimension are supported",
                        pair->index.path, sizes, pair->count);
    /* fairseq's index has no documents, and ends after the sizes. */
    bool fairseq = !__builtin_mul_overflow(pair->count, 24, &rest) &&
                   !__builtin_add_overflow(rest, FAIRSEQ_HEAD + 16, &rest) &&
                   rest == pair->index.size;
    pair->head = fairseq ? FAIRSEQ_HEAD : OLDER_HEAD;
    return check_size(pair, 24, 16, fairseq ? 0 : documents, err);
}

static rks_status read_head(rks_megatron *pair, rks_error *err)
{
    uint8_t head[OLDER_HEAD] = {0};
    size_t size = pair->index.size < OLDER_HEAD ? (size_t)pair->index.size : OLDER_HEAD;
    rks_status status =
        rks_input_file_read_all(&pair->index, pair->index_handle, 0, head, size, err);
    if (status != RKS_OK)
        return status;
    if (size >= HEAD && memcmp(head, "MMIDIDX\0\0", 9) == 0)
        return read_mapped(pair, head, err);
    if (size == OLDER_HEAD && memcmp(head, "TNTIDX\0\0", 8) == 0)
        return read_older(pair, head, err);
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: not a Megatron index (MMIDIDX or TNTIDX)",
                    pair->index.path);
}

rks_status rks_megatron_open(rks_megatron *pair, const rks_input_file *given, rks_error *err)
{
    *pair = (rks_megatron){0};
    if (!rks_megatron_is_named(given->path))
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: its name ends neither in .idx nor in .bin",
                        given->path);
    rks_status status = open_half(given, ".idx", &pair->index, &pair->index_handle, err);
    if (status == RKS_OK)
        status = open_half(given, ".bin", &pair->data, &pair->data_handle, err);
    return status == RKS_OK ? read_head(pair, err) : status;
}

/* ---- sequences ------------------------------------------------------------------------------- */

static rks_status check_sequence(const rks_megatron *pair, uint64_t number, int64_t items,
                                 uint64_t place, rks_megatron_sequence *made, rks_error *err)
{
    uint64_t all = pair->data.size;
    if (items < 0 || items > UINT32_MAX || place > all ||
        (uint64_t)items > (all - place) / pair->item_size)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: sequence %" PRIu64 " lies outside its .bin (byte %" PRId64 ", %" PRId64
                        " items, the file has %" PRIu64 " bytes)",
                        pair->index.path, number, (int64_t)place, items, all);
    *made = (rks_megatron_sequence){.items = (uint32_t)items, .place = place};
    return RKS_OK;
}

static rks_status read_list(const rks_megatron *pair, uint64_t place, void *list, size_t size,
                            rks_error *err)
{
    return rks_input_file_read_all(&pair->index, pair->index_handle, place, list, size, err);
}

static rks_status read_from_mapped(const rks_megatron *pair, uint64_t first, uint64_t count,
                                   rks_megatron_sequence *sequences, rks_error *err)
{
    uint8_t sizes[BATCH * 4], places[BATCH * 8];
    rks_status status = read_list(pair, pair->head + first * 4, sizes, (size_t)count * 4, err);
    if (status == RKS_OK)
        status = read_list(pair, pair->head + pair->count * 4 + first * 8, places,
                           (size_t)count * 8, err);
    for (uint64_t i = 0; status == RKS_OK && i < count; i++)
        status = check_sequence(pair, first + i, (int32_t)rks_load_u32(sizes + i * 4),
                                rks_load_u64(places + i * 8), &sequences[i], err);
    return status;
}

static rks_status read_from_older(const rks_megatron *pair, uint64_t first, uint64_t count,
                                  rks_megatron_sequence *sequences, rks_error *err)
{
    uint8_t dims[BATCH * 8], places[BATCH * 8], sizes[BATCH * 8];
    uint64_t list = (pair->count + 1) * 8, at = pair->head + first * 8;
    size_t size = (size_t)count * 8;
    rks_status status = read_list(pair, at, dims, size, err);
    if (status == RKS_OK)
        status = read_list(pair, at + list, places, size, err);
    if (status == RKS_OK)
        status = read_list(pair, at + 2 * list, sizes, size, err);
    for (uint64_t i = 0; status == RKS_OK && i < count; i++) {
        uint64_t place = rks_load_u64(places + i * 8);
        if (rks_load_u64(dims + i * 8) != first + i)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%s: sequence %" PRIu64
                            ": only sequences of one dimension are supported",
                            pair->index.path, first + i);
        if (__builtin_mul_overflow(place, pair->item_size, &place))
            place = UINT64_MAX;
        status = check_sequence(pair, first + i, (int64_t)rks_load_u64(sizes + i * 8), place,
                                &sequences[i], err);
    }
    return status;
}

rks_status rks_megatron_read(const rks_megatron *pair, uint64_t first, uint64_t count,
                             rks_megatron_sequence *sequences, rks_error *err)
{
    return pair->older ? read_from_older(pair, first, count, sequences, err)
                       : read_from_mapped(pair, first, count, sequences, err);
}
