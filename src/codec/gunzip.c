/* SPDX-License-Identifier: Apache-2.0
 *
 * gunzip.c: reads member after member. Zero bytes may follow the last one, as gzip's own tool
 * allows. */
#include "codec/gunzip.h"

#include <inttypes.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/input_file.h"

enum { ROOM = 256 << 10, GZIP_ONLY = 16 + MAX_WBITS };

struct rks_gunzip {
    const rks_input_file *file;
    rks_input_handle *plain;
    uint64_t read_to;
    z_stream z;
    bool made;   /* z must be ended */
    bool inside; /* inside a member */
    bool padded; /* inside the zeros at the end */
    uint8_t data[ROOM];
};

static void *allocate_for_zlib(void *unused, unsigned count, unsigned size)
{
    (void)unused;
    return rks_alloc_raw(count, size, NULL);
}

static void give_memory(void *unused, void *memory)
{
    (void)unused;
    rks_free(memory);
}

rks_status rks_gunzip_open(const rks_input_file *file, rks_gunzip **unzip, rks_error *err)
{
    rks_gunzip *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->file = file;
    made->z.zalloc = allocate_for_zlib;
    made->z.zfree = give_memory;
    rks_status status = rks_input_file_open(file, &made->plain, err);
    if (status == RKS_OK && inflateInit2(&made->z, GZIP_ONLY) != Z_OK)
        status = rks_fail(err, RKS_ERR_MEMORY, 0, "%s: out of memory for unpacking", file->path);
    made->made = status == RKS_OK;
    if (status != RKS_OK) {
        rks_gunzip_close(made);
        return status;
    }
    made->inside = true;
    *unzip = made;
    return RKS_OK;
}

uint64_t rks_gunzip_taken(const rks_gunzip *unzip)
{
    return unzip->read_to - unzip->z.avail_in;
}

static rks_status report_damaged_stream(const rks_gunzip *unzip, const char *what, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s: damaged at about byte %" PRIu64 " of %" PRIu64 ": gzip: %s",
                    unzip->file->path, rks_gunzip_taken(unzip), unzip->file->size, what);
}

static rks_status refill_input(rks_gunzip *unzip, rks_error *err)
{
    uint64_t left = unzip->file->size - unzip->read_to;
    size_t got = 0;
    rks_status status = rks_check_interrupt(err);
    if (status == RKS_OK)
        status = rks_input_file_read(unzip->file, unzip->plain, unzip->read_to, unzip->data,
                                     left < ROOM ? (size_t)left : ROOM, &got, err);
    if (status != RKS_OK)
        return status;
    unzip->read_to += got;
    unzip->z.next_in = unzip->data;
    unzip->z.avail_in = (unsigned)got;
    return RKS_OK;
}

/* Between members: skips zeros, and begins the next member if there is one. */
static rks_status begin_member(rks_gunzip *unzip, rks_error *err)
{
    while (unzip->z.avail_in > 0 && *unzip->z.next_in == 0) {
        unzip->padded = true;
        unzip->z.next_in++;
        unzip->z.avail_in--;
    }
    if (unzip->z.avail_in == 0)
        return RKS_OK;
    if (unzip->padded)
        return report_damaged_stream(unzip, "bytes after the zeros at its end", err);
    inflateReset(&unzip->z);
    unzip->inside = true;
    return RKS_OK;
}

rks_status rks_gunzip_read(rks_gunzip *unzip, void *bytes, size_t size, size_t *got, rks_error *err)
{
    z_stream *z = &unzip->z;
    z->next_out = bytes;
    unsigned room = size < (1u << 30) ? (unsigned)size : 1u << 30;
    z->avail_out = room;
    while (z->avail_out == room) {
        bool all = unzip->read_to == unzip->file->size;
        rks_status status = RKS_OK;
        if (z->avail_in == 0 && all && unzip->inside)
            return report_damaged_stream(unzip, "cut, the end is missing", err);
        if (z->avail_in == 0 && all)
            break;
        if (z->avail_in == 0)
            status = refill_input(unzip, err);
        if (status == RKS_OK && !unzip->inside)
            status = begin_member(unzip, err);
        if (status != RKS_OK)
            return status;
        if (!unzip->inside)
            continue;
        int code = inflate(z, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            unzip->inside = false;
        else if (code == Z_MEM_ERROR)
            return rks_fail(err, RKS_ERR_MEMORY, 0, "%s: out of memory for unpacking",
                            unzip->file->path);
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return report_damaged_stream(unzip, z->msg != NULL ? z->msg : "not gzip", err);
    }
    *got = room - z->avail_out;
    return *got > 0 ? RKS_OK : rks_input_file_unchanged(unzip->file, unzip->plain, err);
}

void rks_gunzip_close(rks_gunzip *unzip)
{
    if (unzip == NULL)
        return;
    if (unzip->made)
        inflateEnd(&unzip->z);
    rks_input_file_close(unzip->plain);
    rks_free(unzip);
}
