/* SPDX-License-Identifier: Apache-2.0
 *
 * stored_listing.c: what stores held when one rank asked them, as text for the others:
 *
 *   format NAME
 *   source FOLDER HIDDEN URL     a source; FOLDER: 0 or 1; HIDDEN: objects that were left out
 *   SIZE VERSION SKIP OBJECT     an object of it; its name begins after SKIP bytes of OBJECT
 *
 * Names and versions hold no control characters, and versions no space. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/stored.h"

static const char SOURCE[] = "source ", FORMAT[] = "format ";

/* ---- writing --------------------------------------------------------------------------------- */

rks_status rks_stored_note(rks_stores *stores, const char *url, bool folder, uint64_t hidden,
                           const rks_found_list *list, size_t from, rks_error *err)
{
    rks_status status =
        rks_buffer_print(&stores->noted, err, "%s%d %" PRIu64 " %s\n", SOURCE, folder, hidden, url);
    for (size_t i = from; status == RKS_OK && i < list->count; i++) {
        const rks_input_file *file = &list->found[i].file;
        const char *object = rks_stored_object(file);
        status = rks_buffer_print(&stores->noted, err, "%" PRIu64 " %s %zu %s\n", file->size,
                                  file->version, strlen(object) - strlen(file->name), object);
    }
    return status;
}

rks_status rks_input_listing(const rks_input *input, char **listing, rks_error *err)
{
    const rks_buffer *noted = &input->stores->noted;
    rks_buffer text = {0};
    rks_status status = rks_buffer_print(&text, err, "%s%s\n", FORMAT, input->format->name);
    if (status == RKS_OK)
        status = rks_buffer_add(&text, noted->data, noted->size, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&text, "", 1, err);
    if (status == RKS_OK)
        *listing = (char *)text.data;
    else
        rks_buffer_free(&text);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool begins(const char *line, const char *word)
{
    return strncmp(line, word, strlen(word)) == 0;
}

static const char *after_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL ? line + strlen(line) : end + 1;
}

/* Reads a number and the space after it. */
static bool read_number_at(const char **at, uint64_t *number)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    *number = strtoull(*at, &end, 10);
    *at = end + 1;
    return *end == ' ';
}

static rks_status fail_listing(const char *url, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                    "listing: does not have %s as rks_source_list writes it; give what it "
                    "returned for these sources",
                    url);
}

/* Returns the line after the source's own; NULL if there is none. */
static const char *find_source(const char *listing, const char *url, bool *folder, uint64_t *hidden)
{
    uint64_t number = 0;
    for (const char *line = listing; *line != '\0'; line = after_line(line)) {
        const char *at = line + strlen(SOURCE);
        if (!begins(line, SOURCE) || !read_number_at(&at, &number) ||
            !read_number_at(&at, hidden) || !begins(at, url) || at[strlen(url)] != '\n')
            continue;
        *folder = number != 0;
        return after_line(line);
    }
    return NULL;
}

static rks_status add_noted(const char *line, const rks_stored_root *root, size_t source,
                            rks_found_list *list, rks_error *err)
{
    const char *at = line;
    uint64_t size = 0, skip = 0;
    bool good = read_number_at(&at, &size);
    const char *version = at;
    size_t version_size = good ? strcspn(at, " \n") : 0;
    good = good && version_size > 0 && version_size < RKS_HOME_VERSION && at[version_size] == ' ';
    at += good ? version_size + 1 : 0;
    good = good && read_number_at(&at, &skip);
    size_t object_size = good ? strcspn(at, "\n") : 0;
    if (!good || object_size > RKS_OBJECT_NAME || skip >= object_size)
        return fail_listing(root->url, err);
    const rks_input_file file = {
        .path = rks_format(err, "%s/%.*s", root->url, (int)object_size, at),
        .name = rks_format(err, "%.*s", (int)(object_size - skip), at + skip),
        .size = size,
        .store = &root->store,
        .version = rks_format(err, "%.*s", (int)version_size, version)};
    return rks_found_add(list, source, &file, err);
}

rks_status rks_stored_recall(const char *listing, const char *url, const rks_stored_root *root,
                             size_t source, rks_found_list *list, bool *folder, rks_error *err)
{
    uint64_t hidden = 0;
    rks_status status = RKS_OK;
    const char *line = find_source(listing, url, folder, &hidden);
    if (line == NULL)
        return fail_listing(url, err);
    list->not_read.hidden += hidden;
    for (; status == RKS_OK && *line != '\0' && !begins(line, SOURCE); line = after_line(line))
        status = add_noted(line, root, source, list, err);
    return status;
}

bool rks_listing_format(const char *listing, char *name, size_t room)
{
    const char *at = listing + strlen(FORMAT);
    size_t size = begins(listing, FORMAT) ? strcspn(at, "\n") : 0;
    if (size == 0 || size >= room)
        return false;
    memcpy(name, at, size);
    name[size] = '\0';
    return true;
}
