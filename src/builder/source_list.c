/* SPDX-License-Identifier: Apache-2.0
 *
 * source_list.c: what sources are, and one rank's listing of those that are in stores for all. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "builder/input.h"
#include "home/address.h"
#include "ingest/format.h"
#include "ingest/ingest.h"

static const uint64_t LISTING_MOST = (uint64_t)4 << 30;

/* Finds files and format, and reads no more of them than that takes. */
static rks_status look_at_sources(const char *const *sources, size_t count,
                                  const rks_build_options *options, rks_input **input,
                                  rks_error *err)
{
    if (count == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no source given");
    rks_ingest_options reading = rks_build_ingest_options(options);
    reading.unit_size = INT64_MAX; /* finding places to cut would read whole files */
    if (reading.dtype == NULL && reading.format != NULL && strcmp(reading.format, "raw") == 0)
        reading.dtype = "uint8"; /* what the files are does not depend on it */
    return rks_input_open(sources, count, &reading, input, err);
}

rks_status rks_source_look(const char *const *sources, size_t source_count,
                           const rks_build_options *options, const char **format,
                           rks_source_file_fn each, void *user, rks_error *err)
{
    rks_build_options taken;
    rks_input *input = NULL;
    rks_status status = rks_build_options_take(options, &taken, err);
    if (status == RKS_OK)
        status = look_at_sources(sources, source_count, &taken, &input, err);
    if (status == RKS_OK)
        *format = input->format->name;
    for (size_t i = 0; status == RKS_OK && each != NULL && i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        status =
            each(user, file->name, file->size, file->version == NULL ? "" : file->version, err);
    }
    rks_input_free(input);
    return status;
}

rks_status rks_source_format(const char *const *sources, size_t source_count,
                             const rks_build_options *options, const char **format, rks_error *err)
{
    return rks_source_look(sources, source_count, options, format, NULL, NULL, err);
}

/* ---- one rank's listing for all -------------------------------------------------------------- */

static bool is_stored(const char *source)
{
    rks_home_address address;
    return source != NULL && rks_home_is_url(source) &&
           rks_home_address_of(source, &address, NULL) == RKS_OK && address.stored;
}

/* Makes one text of the sources in stores; NULL if there are none. Paths may differ between ranks.
 */
static rks_status text_of_stored(const char *const *sources, size_t count, char **text,
                                 rks_error *err)
{
    size_t stored = 0;
    *text = NULL;
    const char **urls = rks_alloc(count + 1, sizeof(*urls), err);
    if (urls == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (is_stored(sources[i]))
            urls[stored++] = sources[i];
    rks_status status = stored == 0 ? RKS_OK : rks_list_text(urls, stored, text, err);
    rks_free(urls);
    return status;
}

static rks_status list_on_this_rank(const char *const *sources, size_t count,
                                    const rks_build_options *options, char **listing,
                                    rks_error *err)
{
    rks_input *input = NULL;
    rks_status status = look_at_sources(sources, count, options, &input, err);
    if (status == RKS_OK)
        status = rks_input_listing(input, listing, err);
    rks_input_free(input);
    return status;
}

rks_status rks_input_list(rks_group *group, rks_status status, const char *const *sources,
                          size_t count, rks_build_options *options, char **listing, rks_error *err)
{
    char *urls = NULL, *mine = NULL;
    rks_agreed agreed;
    bool stored = false;
    for (size_t i = 0; i < count; i++)
        stored = stored || is_stored(sources[i]);
    if (!stored || options->listing != NULL)
        return status;
    if (status == RKS_OK)
        status = text_of_stored(sources, count, &urls, err);
    if (status == RKS_OK && rks_group_rank(group) == 0)
        status = list_on_this_rank(sources, count, options, &mine, err);
    const rks_fact facts[] = {
        rks_fact_same("the list of sources that are URLs", urls),
        rks_fact_bytes(mine, mine == NULL ? 0 : strlen(mine) + 1, LISTING_MOST)};
    status = rks_group_agree_on(group, "build: listing stores", status, facts, 2, &agreed, err);
    if (status == RKS_OK && mine == NULL) {
        const char *theirs = rks_agreed_get(&agreed, 0, 1, NULL);
        mine = theirs == NULL ? NULL : rks_strdup(theirs, err);
        status = mine == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    rks_free(urls);
    if (status == RKS_OK)
        options->listing = *listing = mine;
    else
        rks_free(mine);
    return status;
}

rks_status rks_source_list(rks_group *group, const char *const *sources, size_t source_count,
                           const rks_build_options *options, char **listing, rks_error *err)
{
    rks_build_options taken;
    *listing = NULL;
    rks_status status = rks_build_options_take(options, &taken, err);
    taken.listing = NULL;
    return rks_input_list(group, status, sources, source_count, &taken, listing, err);
}
