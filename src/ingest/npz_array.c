/* SPDX-License-Identifier: Apache-2.0
 *
 * npz_array.c: finds the arrays in one walk over the zip, then reads each array in a walk of its
 * own. */
#include "ingest/npz_array.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/members.h"
#include "ingest/unpack.h"

enum { CHUNK = 64 << 10, STEP = 1 << 20, ZIP_NAME = 30 };

static const char ENDING[] = ".npy";

static bool is_array(const char *name, size_t size)
{
    size_t ending = sizeof(ENDING) - 1;
    return size > ending && memcmp(name + size - ending, ENDING, ending) == 0;
}

bool rks_npz_looks_like(const uint8_t *bytes, size_t size, bool all)
{
    (void)all;
    if (size < ZIP_NAME || memcmp(bytes, "PK\3\4", 4) != 0)
        return false;
    size_t name = rks_load_u16(bytes + 26);
    return name <= size - ZIP_NAME && is_array((const char *)bytes + ZIP_NAME, name) &&
           memchr(bytes + ZIP_NAME, '/', name) == NULL;
}

/* ---- the arrays of a file -------------------------------------------------------------------- */

void rks_npz_close(rks_npz *npz)
{
    for (size_t i = 0; i < npz->count; i++)
        rks_free(npz->arrays[i].name);
    rks_free(npz->arrays);
    *npz = (rks_npz){0};
}

const rks_npz_array *rks_npz_find(const rks_npz *npz, const char *name, const char *ending)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < npz->count; i++)
        if (strncmp(npz->arrays[i].name, name, size) == 0 &&
            strcmp(npz->arrays[i].name + size, ending) == 0)
            return &npz->arrays[i];
    return NULL;
}

static rks_status refuse_array(const rks_npz *npz, const char *name, const char *why,
                               rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: %s: %s", npz->file->path, name, why);
}

/* Reads an array's header; sets *refused if the error is the array's, not the file's. */
static rks_status read_header(const rks_npz *npz, rks_archive *archive, const rks_member *member,
                              uint8_t *head, rks_npy *npy, bool *refused, rks_error *err)
{
    rks_error why = {0};
    size_t size = 0;
    *refused = true;
    if (!is_array(member->name, strlen(member->name)))
        return refuse_array(npz, member->name, "members are arrays, called NAME.npy", err);
    rks_status status = rks_archive_read_head(archive, head, RKS_NPY_HEADER_MAX, &size, err);
    *refused = false;
    if (status != RKS_OK)
        return status;
    *refused = true;
    status = rks_npy_parse(head, size, npy, &why);
    if (status != RKS_OK)
        return refuse_array(npz, member->name, why.text, err);
    if (member->size < npy->begin || member->size - npy->begin != npy->size)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %s: a member of %" PRIu64 " bytes, its header of %zu promises %" PRIu64
                        " bytes of items",
                        npz->file->path, member->name, member->size, npy->begin, npy->size);
    return RKS_OK;
}

static rks_status add_array(rks_npz *npz, rks_archive *archive, const rks_member *member,
                            uint64_t number, uint8_t *head, rks_error *err)
{
    rks_error why = {0};
    bool refused = false;
    if (rks_member_check(member, &why) != RKS_OK)
        return refuse_array(npz, member->name, why.text, err);
    if (npz->count == RKS_NPZ_ARRAYS_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: more than %d arrays", npz->file->path,
                        RKS_NPZ_ARRAYS_MAX);
    char *name = rks_strdup(member->name, err);
    if (name == NULL)
        return RKS_ERR_MEMORY;
    if (is_array(name, strlen(name)))
        name[strlen(name) - (sizeof(ENDING) - 1)] = '\0';
    rks_npz_array made = {.name = name, .member = number};
    rks_status status = RKS_OK;
    if (rks_npz_find(npz, name, "") != NULL)
        status = refuse_array(npz, member->name, "appears twice", err);
    else
        status = read_header(npz, archive, member, head, &made.npy, &refused, err);
    if (status != RKS_OK && refused) {
        made.refused = *err;
        status = RKS_OK;
    }
    rks_npz_array *grown =
        status != RKS_OK ? NULL : rks_realloc(npz->arrays, npz->count + 1, sizeof(*grown), err);
    if (grown == NULL) {
        rks_free(name);
        return status == RKS_OK ? RKS_ERR_MEMORY : status;
    }
    npz->arrays = grown;
    npz->arrays[npz->count++] = made;
    return RKS_OK;
}

static rks_status find_arrays(rks_npz *npz, rks_archive *archive, uint8_t *head, rks_error *err)
{
    rks_member member;
    bool end = false;
    uint64_t total = 0;
    for (uint64_t number = 0;; number++) {
        rks_status status = rks_archive_next(archive, &member, &end, err);
        if (status != RKS_OK || end)
            return status;
        if (member.folder)
            continue;
        status = rks_unpack_check(npz->file, npz->file->size, total, member.size, err);
        total += member.size;
        if (status == RKS_OK)
            status = add_array(npz, archive, &member, number, head, err);
        if (status != RKS_OK)
            return status;
    }
}

rks_status rks_npz_open(rks_npz *npz, const rks_input_file *file, rks_error *err)
{
    rks_archive *archive = NULL;
    rks_error unseen;
    if (err == NULL)
        err = &unseen;
    *npz = (rks_npz){.file = file};
    uint8_t *head = rks_alloc_raw(RKS_NPY_HEADER_MAX, 1, err);
    if (head == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_archive_open(RKS_ARCHIVE_ZIP, file, 0, &archive, err);
    if (status == RKS_OK)
        status = find_arrays(npz, archive, head, err);
    rks_archive_close(archive);
    rks_free(head);
    return status;
}

/* ---- the items of an array ------------------------------------------------------------------- */

static rks_status ended(const rks_npz_items *items, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: %s.npy: ends before its last item",
                    items->file->path, items->array->name);
}

/* Reads until the window holds at least `size` bytes. */
static rks_status fill_window(rks_npz_items *items, size_t size, rks_error *err)
{
    rks_buffer *window = &items->window;
    while (window->size < size) {
        /* Trust the header's size only step by step. */
        size_t want = size - window->size > STEP ? STEP : size - window->size, got = 0;
        want = want < CHUNK ? CHUNK : want;
        want = items->left < want ? (size_t)items->left : want;
        rks_status status = rks_buffer_reserve(window, want, err);
        if (status == RKS_OK)
            status = rks_archive_read(items->archive, window->data + window->size, want, &got, err);
        if (status != RKS_OK)
            return status;
        if (got == 0)
            return ended(items, err);
        window->size += got;
        items->left -= got;
    }
    return RKS_OK;
}

rks_status rks_npz_items_skip(rks_npz_items *items, uint64_t size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (;;) {
        size_t here = items->window.size - items->at;
        if (status != RKS_OK || size <= here) {
            items->at += status == RKS_OK ? (size_t)size : 0;
            return status;
        }
        size -= here;
        items->at = items->window.size = 0;
        status = fill_window(items, 1, err);
    }
}

rks_status rks_npz_items_take(rks_npz_items *items, size_t size, uint8_t **bytes, rks_error *err)
{
    rks_buffer *window = &items->window;
    size_t here = window->size - items->at;
    if (here < size) {
        memmove(window->data, window->data + items->at, here);
        window->size = here;
        items->at = 0;
        rks_status status = fill_window(items, size, err);
        if (status != RKS_OK)
            return status;
    }
    *bytes = window->data + items->at;
    items->at += size;
    rks_npy npy = items->array->npy;
    npy.fortran = false;
    npy.size = size;
    return rks_npy_arrange(&npy, *bytes, err);
}

rks_status rks_npz_items_open(rks_npz_items *items, const rks_npz *npz, const rks_npz_array *array,
                              rks_error *err)
{
    rks_member member = {0};
    bool end = false;
    *items = (rks_npz_items){.file = npz->file, .array = array};
    rks_status status = rks_buffer_reserve(&items->window, CHUNK, err); /* so never NULL */
    if (status == RKS_OK)
        status = rks_archive_open(RKS_ARCHIVE_ZIP, npz->file, 0, &items->archive, err);
    for (uint64_t number = 0; status == RKS_OK && !end && number <= array->member; number++)
        status = rks_archive_next(items->archive, &member, &end, err);
    if (status != RKS_OK)
        return status;
    if (end || member.size != array->npy.begin + array->npy.size)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: changed during the build", npz->file->path);
    items->left = array->npy.begin;
    status = rks_npz_items_skip(items, array->npy.begin, err);
    items->at = items->window.size = 0; /* items start where the window does, so they are aligned */
    items->left = array->npy.size;
    return status;
}

rks_status rks_npz_items_end(rks_npz_items *items, rks_error *err)
{
    uint8_t byte;
    size_t got = 0;
    rks_status status = rks_archive_read(items->archive, &byte, 1, &got, err);
    if (status == RKS_OK && got > 0)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: %s.npy: continues after its last item",
                          items->file->path, items->array->name);
    return status;
}

void rks_npz_items_close(rks_npz_items *items)
{
    rks_archive_close(items->archive);
    rks_buffer_free(&items->window);
    *items = (rks_npz_items){0};
}
