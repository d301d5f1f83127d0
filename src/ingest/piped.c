/* SPDX-License-Identifier: Apache-2.0
 *
 * piped.c: the block lies at the beginning of the buffer; what the pipe gave beyond it follows. */
#include "ingest/piped.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"

enum { CHUNK = 1 << 20 };

#define NAME "standard input"

struct rks_piped {
    rks_input_store store; /* first: the file has it */
    int fd;
    bool ended; /* the pipe */
    rks_buffer read;
    size_t block; /* bytes of the block */
    size_t least; /* bytes of a block, but of the last */
    uint64_t first_row, bytes;
    rks_input input;
    rks_input_file file;
};

/* ---- the file -------------------------------------------------------------------------------- */

static rks_status open_block(const rks_input_store *store, const rks_input_file *file,
                             void **object, rks_error *err)
{
    (void)file, (void)err;
    *object = (void *)(uintptr_t)store;
    return RKS_OK;
}

static rks_status copy_block(void *object, uint64_t offset, void *bytes, size_t size, size_t *got,
                             rks_error *err)
{
    const rks_piped *piped = object;
    if (offset >= piped->block)
        return rks_fail(err, RKS_ERR_DATA, 0, NAME ": the block ends at %zu", piped->block);
    size_t left = piped->block - (size_t)offset;
    *got = left < size ? left : size;
    memcpy(bytes, piped->read.data + offset, *got);
    return RKS_OK;
}

static void until_end(void *object, uint64_t end)
{
    (void)object, (void)end;
}

static void read_ahead(const rks_input_store *store, const rks_input_file *file, uint64_t first,
                       uint64_t end)
{
    (void)store, (void)file, (void)first, (void)end;
}

static void close_block(void *object)
{
    (void)object;
}

/* ---- the pipe -------------------------------------------------------------------------------- */

static rks_status wait_for_bytes(const rks_piped *piped, rks_error *err)
{
    struct pollfd at = {.fd = piped->fd, .events = POLLIN};
    rks_status status = RKS_OK;
    for (int ready = 0; status == RKS_OK && ready == 0;) {
        ready = poll(&at, 1, RKS_WAIT_SLICE_MS);
        if (ready < 0 && errno == EINTR)
            ready = 0;
        if (ready < 0)
            return rks_fail_errno(err, errno, NAME ": waiting");
        status = rks_check_interrupt(err);
    }
    return status;
}

/* Reads some bytes, or sets `ended`. */
static rks_status read_more(rks_piped *piped, rks_error *err)
{
    rks_buffer *to = &piped->read;
    rks_status status = rks_buffer_reserve(to, CHUNK, err);
    if (status == RKS_OK)
        status = wait_for_bytes(piped, err);
    if (status != RKS_OK)
        return status;
    ssize_t got = read(piped->fd, to->data + to->size, CHUNK);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return RKS_OK;
    if (got < 0)
        return rks_fail_errno(err, errno, NAME);
    to->size += (size_t)got;
    piped->ended = got == 0;
    return RKS_OK;
}

/* Reads until a line ends at the block's least size or behind it, or the pipe does. The block is
 * the shortest such: the same for the same bytes, however they come. */
static rks_status find_block(rks_piped *piped, rks_error *err)
{
    rks_buffer *read = &piped->read;
    size_t looked = piped->least - 1; /* no such line ends before */
    for (;;) {
        const uint8_t *end =
            read->size <= looked ? NULL : memchr(read->data + looked, '\n', read->size - looked);
        if (end != NULL || piped->ended) {
            piped->block = end != NULL ? (size_t)(end - read->data) + 1 : read->size;
            return RKS_OK;
        }
        looked = read->size > looked ? read->size : looked;
        if (looked >= piped->least && looked - piped->least > piped->input.max_sample)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            NAME ": a line after row %" PRIu64 " has more than max_sample (%" PRIu64
                                 ") bytes",
                            piped->first_row, piped->input.max_sample);
        rks_status status = read_more(piped, err);
        if (status != RKS_OK)
            return status;
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

rks_status rks_piped_next(rks_piped *piped, uint64_t rows, bool *found, rks_error *err)
{
    rks_buffer *read = &piped->read;
    piped->first_row += rows;
    read->size -= piped->block;
    if (piped->block > 0 && read->size > 0)
        memmove(read->data, read->data + piped->block, read->size);
    piped->block = 0;
    rks_status status = find_block(piped, err);
    *found = status == RKS_OK && piped->block > 0;
    if (!*found)
        return status;
    piped->bytes += piped->block;
    piped->file.size = piped->block;
    return rks_input_cut(&piped->input, piped->block, err);
}

rks_input *rks_piped_input(const rks_piped *piped)
{
    return (rks_input *)(uintptr_t)&piped->input;
}

uint64_t rks_piped_first_row(const rks_piped *piped)
{
    return piped->first_row;
}

uint64_t rks_piped_bytes(const rks_piped *piped)
{
    return piped->bytes;
}

static rks_status refuse_options(const rks_ingest_options *options, const rks_input_format *format,
                                 rks_error *err)
{
    if (options->infer_all)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: \"auto:all\" reads its input twice, and " NAME
                        " comes once; give the schema, or write a file");
    return rks_input_refuse_options(options, format, err);
}

rks_status rks_piped_open(int fd, const rks_ingest_options *options, rks_piped **piped,
                          rks_error *err)
{
    static char path[] = NAME, version[] = "";
    const char *asked = options->format;
    const rks_input_format *format = asked == NULL || strcmp(asked, "jsonl") == 0
                                         ? &rks_format_jsonl
                                     : strcmp(asked, "text") == 0 ? &rks_format_text
                                                                  : NULL;
    if (format == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "format: " NAME " is read as lines, jsonl or text; for %.32s write a file",
                        asked);
    rks_status status = refuse_options(options, format, err);
    if (status != RKS_OK)
        return status;
    rks_piped *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->store = (rks_input_store){.open = open_block,
                                    .read = copy_block,
                                    .until = until_end,
                                    .ahead = read_ahead,
                                    .close = close_block};
    made->fd = fd;
    made->least = options->unit_size != 0 ? options->unit_size : RKS_PIPED_UNIT;
    made->file =
        (rks_input_file){.path = path, .name = path, .version = version, .store = &made->store};
    made->input.files = &made->file;
    made->input.file_count = 1;
    rks_input_take_options(&made->input, options, format);
    *piped = made;
    return RKS_OK;
}

void rks_piped_close(rks_piped *piped)
{
    if (piped == NULL)
        return;
    rks_free(piped->input.units);
    rks_buffer_free(&piped->read);
    rks_free(piped);
}
