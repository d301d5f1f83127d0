/* SPDX-License-Identifier: Apache-2.0
 *
 * packed.h: compressed files and archives for tests, written by libarchive. */
#ifndef RKS_TESTS_PACKED_H
#define RKS_TESTS_PACKED_H

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include "scratch.h"

static const char *const PACKED_ENDINGS[] = {".gz", ".zst", ".xz", ".bz2"};
enum { PACKED_KINDS = 4 };

typedef struct packed_member {
    const char *name;
    const void *bytes;
    size_t size;      /* of bytes, or as the header says where bytes are NULL */
    unsigned type;    /* 0: a file */
    const char *link; /* of a symbolic link, or with type 0 of a hard one */
} packed_member;

static inline void packed_filter(struct archive *writer, int kind)
{
    int code = kind < 0    ? ARCHIVE_OK
               : kind == 0 ? archive_write_add_filter_gzip(writer)
               : kind == 1 ? archive_write_add_filter_zstd(writer)
               : kind == 2 ? archive_write_add_filter_xz(writer)
                           : archive_write_add_filter_bzip2(writer);
    assert_int_equal(code, ARCHIVE_OK);
}

static inline void packed_add(struct archive *writer, const packed_member *member)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, member->name);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_filetype(entry, member->type == 0 ? AE_IFREG : member->type);
    if (member->type == AE_IFLNK)
        archive_entry_set_symlink(entry, member->link);
    else if (member->link != NULL)
        archive_entry_set_hardlink(entry, member->link);
    if (member->type == 0 && member->link == NULL)
        archive_entry_set_size(entry, (la_int64_t)member->size);
    int code = archive_write_header(writer, entry);
    assert_true(code == ARCHIVE_OK || code == ARCHIVE_WARN); /* for names that are no UTF-8 */
    if (member->bytes != NULL)
        assert_int_equal(archive_write_data(writer, member->bytes, member->size), member->size);
    archive_entry_free(entry);
}

/* `bytes`, packed; kind is a place in PACKED_ENDINGS. */
static inline const char *packed_file(const char *name, int kind, const void *bytes, size_t size)
{
    const char *path = scratch_bytes(name, "", 0);
    struct archive *writer = archive_write_new();
    assert_int_equal(archive_write_set_format_raw(writer), ARCHIVE_OK);
    packed_filter(writer, kind);
    assert_int_equal(archive_write_open_filename(writer, path), ARCHIVE_OK);
    packed_add(writer, &(packed_member){.name = "raw", .bytes = bytes, .size = size});
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
    return path;
}

/* A tar (kind -1: plain) or, with kind -2, a zip. */
static inline const char *packed_archive(const char *name, int kind, const packed_member *members,
                                         size_t count)
{
    const char *path = scratch_bytes(name, "", 0);
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    assert_true(utf8 != (locale_t)0);
    locale_t before = uselocale(utf8);
    struct archive *writer = archive_write_new();
    if (kind == -2)
        assert_int_equal(archive_write_set_format_zip(writer), ARCHIVE_OK);
    else
        assert_int_equal(archive_write_set_format_pax_restricted(writer), ARCHIVE_OK);
    packed_filter(writer, kind);
    assert_int_equal(archive_write_open_filename(writer, path), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++)
        packed_add(writer, &members[i]);
    assert_int_equal(archive_write_close(writer), ARCHIVE_OK);
    archive_write_free(writer);
    uselocale(before); /* reading is to do without */
    freelocale(utf8);
    return path;
}

#endif
