/* SPDX-License-Identifier: Apache-2.0
 *
 * archive.c: libarchive over the file's bytes (for gzip: over what zlib unpacks).
 *
 * Reads grow from 4 KiB to 256 KiB as long as they follow each other, and start small again after a
 * seek. So skipping members costs little more than reading their headers. */
#include "codec/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "codec/archive_writer.h"
#include "codec/gunzip.h"
#include "codec/input_file.h"

enum { FIRST_READ = 4 << 10, ROOM = 256 << 10 };

/* A zip's local header: its size without a name, usual and largest sizes, and where its fields are.
 */
enum {
    ZIP_HEADER = 30,
    ZIP_HEADER_USUAL = 512,
    ZIP_HEADER_MOST = ZIP_HEADER + 2 * UINT16_MAX,
    ZIP_FLAGS = 6,
    ZIP_NAME_SIZE = 26,
    ZIP_EXTRA_SIZE = 28,
    ZIP_IS_UTF8 = 1 << 11
};

struct rks_archive {
    struct archive *reader;
    const rks_input_file *file;
    rks_gunzip *gunzip; /* used instead of `plain` for gzip */
    rks_input_handle *plain;
    /* libarchive converts UTF-8 names to the thread's locale. To C.UTF-8 it composes characters
     * ("e" and an accent become one); to C it cannot, and keeps the bytes of a tar's names. A zip's
     * are lost then, so they are read again. */
    locale_t locale;
    bool is_zip;
    rks_buffer name; /* the header of a zip's member */
    uint64_t offset;
    uint64_t read_to;
    size_t next_read;
    rks_error failed; /* error of a read, to be passed through libarchive */
    uint8_t data[ROOM];
};

static la_ssize_t read_block(struct archive *reader, void *user, const void **bytes)
{
    rks_archive *at = user;
    size_t got = 0;
    *bytes = at->data;
    rks_status status = rks_check_interrupt(&at->failed);
    if (status == RKS_OK && at->gunzip != NULL) {
        status = rks_gunzip_read(at->gunzip, at->data, ROOM, &got, &at->failed);
    } else if (status == RKS_OK && at->read_to < at->file->size) {
        uint64_t left = at->file->size - at->read_to;
        status = rks_input_file_read(at->file, at->plain, at->read_to, at->data,
                                     left < at->next_read ? (size_t)left : at->next_read, &got,
                                     &at->failed);
        at->next_read = at->next_read < ROOM ? 2 * at->next_read : ROOM;
    }
    if (status != RKS_OK) {
        archive_set_error(reader, EIO, "%s", at->failed.text);
        return -1;
    }
    at->read_to += got;
    return (la_ssize_t)got;
}

static la_int64_t skip_bytes(struct archive *reader, void *user, la_int64_t size)
{
    (void)reader;
    rks_archive *at = user;
    if (at->gunzip != NULL || size < ROOM / 4)
        return 0; /* reading is as cheap as skipping */
    uint64_t left = at->file->size - at->read_to;
    uint64_t step = (uint64_t)size < left ? (uint64_t)size : left;
    at->read_to += step;
    at->next_read = FIRST_READ;
    return (la_int64_t)step;
}

static la_int64_t seek_to(struct archive *reader, void *user, la_int64_t offset, int from)
{
    rks_archive *at = user;
    int64_t base = from == SEEK_SET   ? 0
                   : from == SEEK_CUR ? (int64_t)at->read_to
                                      : (int64_t)at->file->size;
    int64_t to;
    if (__builtin_add_overflow(base, offset, &to) || to < 0) {
        archive_set_error(reader, EINVAL, "seek before the file's start");
        return ARCHIVE_FATAL;
    }
    at->read_to = (uint64_t)to < at->file->size ? (uint64_t)to : at->file->size;
    at->next_read = FIRST_READ;
    return (la_int64_t)at->read_to;
}

static rks_status archive_error(rks_archive *at, rks_error *err)
{
    if (at->failed.status != RKS_OK) {
        *err = at->failed;
        return (rks_status)err->status;
    }
    const char *why = archive_error_string(at->reader);
    if (archive_errno(at->reader) == ENOMEM)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "%s: out of memory for unpacking", at->file->path);
    return rks_fail(
        err, RKS_ERR_DATA, 0, "%s: damaged or cut at about byte %" PRIu64 " of %" PRIu64 ": %.120s",
        at->file->path, rks_archive_taken(at), at->file->size, why == NULL ? "unreadable" : why);
}

static int choose_archive_format(rks_archive *at, rks_archive_kind kind)
{
    struct archive *reader = at->reader;
    int code = ARCHIVE_OK;
    if (at->file->packing == RKS_PACKING_ZSTD)
        code = archive_read_support_filter_zstd(reader);
    else if (at->file->packing == RKS_PACKING_XZ)
        code = archive_read_support_filter_xz(reader);
    else if (at->file->packing == RKS_PACKING_BZIP2)
        code = archive_read_support_filter_bzip2(reader);
    if (code != ARCHIVE_OK)
        return code; /* it warns if it would run another program, which we never do */
    if (kind == RKS_ARCHIVE_ZIP)
        return archive_read_support_format_zip_seekable(reader);
    archive_read_support_format_empty(reader);
    if (kind == RKS_ARCHIVE_RAW)
        return archive_read_support_format_raw(reader);
    code = archive_read_support_format_tar(reader);
    /* Also what comes after the end of a tar, as `cat a.tar b.tar` and `tar -i` have it: the stream
     * is then read to its end, where gzip, xz and zstd have their checksums. */
    return code != ARCHIVE_OK
               ? code
               : archive_read_set_option(reader, "tar", "read_concatenated_archives", "1");
}

static rks_status open_reader(rks_archive *at, rks_archive_kind kind, rks_error *err)
{
    const char *name = kind == RKS_ARCHIVE_ZIP ? "C.UTF-8" : "C";
    at->locale = newlocale(LC_CTYPE_MASK, name, (locale_t)0);
    if (at->locale == (locale_t)0)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, errno, "the locale %s is missing", name);
    at->reader = archive_read_new();
    if (at->reader == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for reading %s", at->file->path);
    if (choose_archive_format(at, kind) != ARCHIVE_OK)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "%s: libarchive was built without %s",
                        at->file->path,
                        at->file->packing == RKS_PACKING_ZSTD ? "zstd"
                        : at->file->packing == RKS_PACKING_XZ ? "liblzma"
                                                              : "a format that this needs");
    rks_status status = at->file->packing == RKS_PACKING_GZIP
                            ? rks_gunzip_open(at->file, &at->gunzip, err)
                            : rks_input_file_open(at->file, &at->plain, err);
    if (status != RKS_OK)
        return status;
    archive_read_set_read_callback(at->reader, read_block);
    archive_read_set_callback_data(at->reader, at);
    if (kind != RKS_ARCHIVE_RAW && at->gunzip == NULL)
        archive_read_set_skip_callback(at->reader, skip_bytes);
    if (kind == RKS_ARCHIVE_ZIP)
        archive_read_set_seek_callback(at->reader, seek_to);
    locale_t before = uselocale(at->locale);
    int code = archive_read_open1(at->reader);
    uselocale(before);
    return code < ARCHIVE_WARN ? archive_error(at, err) : RKS_OK;
}

rks_status rks_archive_open(rks_archive_kind kind, const rks_input_file *file, uint64_t offset,
                            rks_archive **archive, rks_error *err)
{
    rks_error unseen;
    rks_archive *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->file = file;
    made->is_zip = kind == RKS_ARCHIVE_ZIP;
    made->offset = made->read_to = offset;
    made->next_read = kind == RKS_ARCHIVE_ZIP ? FIRST_READ : ROOM;
    rks_status status = open_reader(made, kind, err == NULL ? &unseen : err);
    if (status != RKS_OK) {
        rks_archive_close(made);
        return status;
    }
    *archive = made;
    return RKS_OK;
}

static const char *to_refuse(struct archive_entry *entry)
{
    mode_t type = archive_entry_filetype(entry);
    if (archive_entry_hardlink(entry) != NULL)
        return "a hard link";
    if (archive_entry_is_data_encrypted(entry) > 0 ||
        archive_entry_is_metadata_encrypted(entry) > 0)
        return "encrypted";
    return type == AE_IFREG || type == AE_IFDIR   ? NULL
           : type == AE_IFLNK                     ? "a symbolic link"
           : type == AE_IFCHR || type == AE_IFBLK ? "a device"
           : type == AE_IFIFO                     ? "a FIFO"
           : type == AE_IFSOCK                    ? "a socket"
                                                  : "not a regular file";
}

/* Finds the local header of a zip that ends at `end`: its place in `bytes`, which end there, too.
 * Returns `size` if there is none. */
static size_t find_zip_header(const uint8_t *bytes, size_t size)
{
    for (size_t at = size; at-- > 0;)
        if (size - at >= ZIP_HEADER && memcmp(bytes + at, "PK\3\4", 4) == 0 &&
            (size_t)ZIP_HEADER + rks_load_u16(bytes + at + ZIP_NAME_SIZE) +
                    rks_load_u16(bytes + at + ZIP_EXTRA_SIZE) ==
                size - at)
            return at;
    return size;
}

/* Reads the local header that ends at `end`. *header is its place in at->name; at->name.size if it
 * was not found. */
static rks_status read_zip_header(rks_archive *at, uint64_t end, size_t *header, rks_error *err)
{
    static const size_t most[] = {ZIP_HEADER_USUAL, ZIP_HEADER_MOST};
    rks_buffer *bytes = &at->name;
    *header = bytes->size = 0;
    for (size_t i = 0; i < 2 && *header == bytes->size; i++) {
        size_t size = end < most[i] ? (size_t)end : most[i];
        bytes->size = 0;
        rks_status status = rks_buffer_reserve(bytes, size + 1, err);
        if (status == RKS_OK)
            status =
                rks_input_file_read_all(at->file, at->plain, end - size, bytes->data, size, err);
        if (status != RKS_OK)
            return status;
        bytes->size = size;
        *header = find_zip_header(bytes->data, size);
    }
    return RKS_OK;
}

/* Reads a zip's member's name as it is in the header that was read last. *name stays as it is if
 * the header does not say that its name is UTF-8, or if it has the separators of Windows. */
static rks_status read_zip_name(rks_archive *at, const char **name, rks_error *err)
{
    size_t header = 0;
    uint64_t end = (uint64_t)archive_filter_bytes(at->reader, 0);
    rks_status status = read_zip_header(at, end, &header, err);
    uint8_t *bytes = at->name.data + header;
    if (status != RKS_OK || header == at->name.size ||
        (rks_load_u16(bytes + ZIP_FLAGS) & ZIP_IS_UTF8) == 0)
        return status;
    size_t length = rks_load_u16(bytes + ZIP_NAME_SIZE);
    char *found = (char *)bytes + ZIP_HEADER;
    if (length == 0 || memchr(found, '\\', length) != NULL || memchr(found, '\0', length) != NULL)
        return RKS_OK;
    found[length] = '\0'; /* there is room for it */
    *name = found;
    return RKS_OK;
}

rks_status rks_archive_next(rks_archive *archive, rks_member *member, bool *end, rks_error *err)
{
    struct archive_entry *entry = NULL;
    rks_error unseen;
    if (err == NULL)
        err = &unseen;
    rks_status status = rks_check_interrupt(err);
    if (status != RKS_OK)
        return status;
    locale_t before = uselocale(archive->locale);
    int code = archive_read_next_header(archive->reader, &entry);
    const char *name = entry == NULL || code < ARCHIVE_WARN ? NULL : archive_entry_pathname(entry);
    uselocale(before);
    *end = code == ARCHIVE_EOF;
    if (*end && archive->gunzip == NULL)
        return rks_input_file_unchanged(archive->file, archive->plain, err);
    if (*end)
        return RKS_OK;
    if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
        return archive_error(archive, err); /* ARCHIVE_RETRY: a header with a wrong checksum */
    if (archive->is_zip && name != NULL && (status = read_zip_name(archive, &name, err)) != RKS_OK)
        return status;
    int64_t size = archive_entry_size(entry);
    *member = (rks_member){
        .name = name == NULL ? "" : name,
        .size = size < 0 ? 0 : (uint64_t)size,
        .position = archive->offset + (uint64_t)archive_read_header_position(archive->reader),
        .folder = archive_entry_filetype(entry) == AE_IFDIR,
        .refuse = to_refuse(entry),
    };
    return RKS_OK;
}

rks_status rks_archive_read(rks_archive *archive, void *bytes, size_t size, size_t *got,
                            rks_error *err)
{
    rks_error unseen;
    la_ssize_t count = archive_read_data(archive->reader, bytes, size);
    if (count < 0)
        return archive_error(archive, err == NULL ? &unseen : err);
    *got = (size_t)count;
    return RKS_OK;
}

rks_status rks_archive_read_head(rks_archive *archive, uint8_t *bytes, size_t room, size_t *size,
                                 rks_error *err)
{
    size_t got = 1;
    rks_status status = RKS_OK;
    for (*size = 0; status == RKS_OK && got > 0 && *size < room; *size += got)
        status = rks_archive_read(archive, bytes + *size, room - *size, &got, err);
    return status;
}

uint64_t rks_archive_taken(const rks_archive *archive)
{
    return archive->gunzip != NULL ? rks_gunzip_taken(archive->gunzip) : archive->read_to;
}

void rks_archive_close(rks_archive *archive)
{
    if (archive == NULL)
        return;
    if (archive->reader != NULL)
        archive_read_free(archive->reader);
    if (archive->locale != (locale_t)0)
        freelocale(archive->locale);
    rks_gunzip_close(archive->gunzip);
    rks_buffer_free(&archive->name);
    rks_input_file_close(archive->plain);
    rks_free(archive);
}

/* ---- writing ------------------------------------------------------------------------------ */

enum { TIME_OF_ALL = 315532800 }; /* 1980-01-01, the earliest time in a zip */

struct rks_archive_writer {
    struct archive *archive;
    struct archive_entry *entry;
    const char *path;
    int fd;
    /* Error of a write to the file. libarchive is not informed: it would leak its buffers. */
    rks_status status;
    rks_error err;
};

static rks_status write_failed(const rks_archive_writer *writer, rks_error *err)
{
    int error = archive_errno(writer->archive);
    const char *what = archive_error_string(writer->archive);
    return rks_fail(err, error == ENOMEM ? RKS_ERR_MEMORY : RKS_ERR_IO, error, "%s: %s",
                    writer->path, what == NULL ? "writing the archive" : what);
}

/* Returns the status of a call of libarchive, or of a write in it. */
static rks_status outcome(const rks_archive_writer *writer, bool good, rks_error *err)
{
    if (writer->status == RKS_OK)
        return good ? RKS_OK : write_failed(writer, err);
    if (err != NULL)
        *err = writer->err;
    return writer->status;
}

static la_ssize_t write_out(struct archive *archive, void *user, const void *bytes, size_t size)
{
    rks_archive_writer *writer = user;
    (void)archive;
    if (writer->status == RKS_OK)
        writer->status = rks_file_write(writer->fd, writer->path, bytes, size, &writer->err);
    return (la_ssize_t)size;
}

static int set_format(const rks_archive_writer *writer, rks_archive_kind kind)
{
    if (kind == RKS_ARCHIVE_TAR)
        return archive_write_set_format_pax_restricted(writer->archive);
    int code = archive_write_set_format_zip(writer->archive);
    return code == ARCHIVE_OK ? archive_write_zip_set_compression_store(writer->archive) : code;
}

rks_status rks_archive_writer_open(rks_archive_kind kind, int fd, const char *path,
                                   rks_archive_writer **writer, rks_error *err)
{
    rks_archive_writer *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->fd = fd;
    opened->path = path;
    opened->archive = archive_write_new();
    opened->entry = archive_entry_new();
    rks_status status = RKS_OK;
    if (opened->archive == NULL || opened->entry == NULL)
        status = rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: %s", path);
    else if (set_format(opened, kind) != ARCHIVE_OK ||
             archive_write_open(opened->archive, opened, NULL, write_out, NULL) != ARCHIVE_OK)
        status = write_failed(opened, err);
    if (status != RKS_OK) {
        rks_archive_writer_close(opened);
        return status;
    }
    *writer = opened;
    return RKS_OK;
}

rks_status rks_archive_writer_begin(rks_archive_writer *writer, const char *name, uint64_t size,
                                    rks_error *err)
{
    archive_entry_clear(writer->entry);
    archive_entry_set_pathname(writer->entry, name);
    archive_entry_set_filetype(writer->entry, AE_IFREG);
    archive_entry_set_perm(writer->entry, 0644);
    archive_entry_set_mtime(writer->entry, TIME_OF_ALL, 0);
    archive_entry_set_size(writer->entry, (la_int64_t)size);
    bool good = archive_write_header(writer->archive, writer->entry) == ARCHIVE_OK;
    return outcome(writer, good, err);
}

rks_status rks_archive_writer_put(rks_archive_writer *writer, const void *bytes, size_t size,
                                  rks_error *err)
{
    bool good = true;
    for (size_t done = 0; good && done < size && writer->status == RKS_OK;) {
        la_ssize_t put =
            archive_write_data(writer->archive, (const uint8_t *)bytes + done, size - done);
        good = put > 0;
        done += good ? (size_t)put : 0;
    }
    return outcome(writer, good, err);
}

rks_status rks_archive_writer_end(rks_archive_writer *writer, rks_error *err)
{
    return outcome(writer, archive_write_finish_entry(writer->archive) == ARCHIVE_OK, err);
}

rks_status rks_archive_writer_finish(rks_archive_writer *writer, rks_error *err)
{
    return outcome(writer, archive_write_close(writer->archive) == ARCHIVE_OK, err);
}

void rks_archive_writer_close(rks_archive_writer *writer)
{
    if (writer == NULL)
        return;
    archive_entry_free(writer->entry);
    if (writer->status == RKS_OK) /* unfinished data must not be written now */
        writer->status = RKS_ERR_STATE;
    if (writer->archive != NULL)
        archive_write_free(writer->archive);
    rks_free(writer);
}

const char *rks_archive_library(void)
{
    return archive_version_details();
}
