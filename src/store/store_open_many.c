/* SPDX-License-Identifier: Apache-2.0
 *
 * store_open_many.c: one store over the datasets of several directories. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "store/store_reads.h"

typedef struct opening {
    size_t count;
    const char *const *patterns;
    const char *const *names;
    char **directories; /* expanded, without "@N" */
    rks_folders beside; /* other folders of names with a `*` */
    rks_found_dataset *looked;
    rks_dataset **datasets;
    rks_staging **stagings; /* NULL: the datasets are not kept at a home */
    size_t staging_count;
} opening;

static rks_status begin_opening(opening *o, rks_error *err)
{
    o->directories = rks_alloc(o->count, sizeof(*o->directories), err);
    o->looked = rks_alloc(o->count, sizeof(*o->looked), err);
    o->datasets = rks_alloc(o->count, sizeof(*o->datasets), err);
    o->stagings = rks_alloc(o->count, sizeof(rks_staging *), err);
    return o->directories == NULL || o->looked == NULL || o->datasets == NULL || o->stagings == NULL
               ? RKS_ERR_MEMORY
               : RKS_OK;
}

static void end_opening(opening *o)
{
    for (size_t i = 0; o->directories != NULL && i < o->count; i++)
        rks_free(o->directories[i]);
    /* Frees what a failure has left. */
    for (size_t i = 0; o->looked != NULL && i < o->count; i++) {
        rks_dataset_free(o->looked[i].dataset);
        rks_home_close(o->looked[i].home);
    }
    for (size_t i = 0; o->datasets != NULL && i < o->count; i++)
        rks_dataset_free(o->datasets[i]);
    rks_store_end_stagings(o->stagings, o->staging_count);
    rks_folders_free(&o->beside);
    rks_free(o->directories);
    rks_free(o->looked);
    rks_free(o->datasets);
}

/* Returns the last part of the name, with a "{rank}" in it: it must be the same on all ranks. Free
 * with rks_free. */
static char *default_name(const char *pattern, rks_error *err)
{
    size_t end = strlen(pattern), begin;
    while (end > 1 && pattern[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && pattern[begin - 1] != '/';)
        begin--;
    return rks_format(err, "%.*s", (int)(end - begin), pattern + begin);
}

static rks_status unite(const opening *o, const rks_store_options *options, rks_dataset **united,
                        rks_error *err)
{
    char **made = rks_alloc(o->count, sizeof(*made), err);
    const char **names = rks_alloc(o->count, sizeof(*names), err);
    rks_dataset *one = NULL;
    rks_status status = made == NULL || names == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < o->count; i++) {
        if (o->names == NULL && (made[i] = default_name(o->patterns[i], err)) == NULL)
            status = RKS_ERR_MEMORY;
        names[i] = o->names == NULL ? made[i] : o->names[i];
    }
    if (status == RKS_OK)
        status = rks_dataset_unite(o->datasets, names, o->count, options->columns,
                                   options->column_count, &one, err);
    for (size_t i = 0; status == RKS_OK && i < o->count; i++) {
        one->sources[i].directory = o->directories[i];
        o->directories[i] = NULL;
    }
    for (size_t i = 0; made != NULL && i < o->count; i++)
        rks_free(made[i]);
    rks_free(made);
    rks_free(names);
    if (status == RKS_OK)
        *united = one;
    return status;
}

/* Appends what must be the same on all ranks: the number of datasets, their names, the options. */
static rks_status put_said(const opening *o, const rks_store_options *options, char **said,
                           rks_error *err)
{
    char *names = NULL, *columns = NULL;
    /* A single directory may have another name on each rank, if no columns are chosen. */
    bool alone = o->count == 1 && o->names == NULL;
    rks_status status =
        rks_list_text(o->names == NULL ? o->patterns : o->names, alone ? 0 : o->count, &names, err);
    if (status == RKS_OK && options->columns != NULL)
        status = rks_list_text(options->columns, options->column_count, &columns, err);
    if (status == RKS_OK) {
        *said = rks_format(err, "%s %s", names, columns == NULL ? "" : columns);
        status = *said == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    rks_free(names);
    rks_free(columns);
    return status;
}

/* Takes "file://" from names; they were asked before. */
static rks_status look_for_sources(rks_group *group, opening *o, const rks_store_options *options,
                                   rks_error *err)
{
    const char **names = rks_alloc(o->count, sizeof(*names), err);
    if (names == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < o->count; i++) {
        rks_store_options ignored = *options;
        names[i] = o->patterns[i];
        (void)rks_store_choose_local(&names[i], &ignored, NULL);
    }
    rks_store_look_for_all(group, names, o->count, options, o->directories, &o->beside, o->looked);
    rks_free(names);
    return RKS_OK;
}

/* COLLECTIVE. Begins to bring the datasets from their homes. */
static rks_status make_local(rks_group *group, opening *o, const rks_store_options *options,
                             rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < o->count; i++) {
        status = rks_store_take_local(group, o->datasets[i], o->directories[i], &o->looked[i].home,
                                      options, &o->stagings[i], err);
        if (status != RKS_OK)
            break;
        o->staging_count++;
        rks_free(o->directories[i]);
        o->directories[i] = rks_strdup(rks_staging_directory(o->stagings[i]), err);
        if (o->directories[i] == NULL)
            status = RKS_ERR_MEMORY;
        status = rks_group_agree(group, "open: local", status, err);
    }
    return status;
}

/* COLLECTIVE. */
static rks_status open_united(rks_group *group, opening *o, rks_store_options *options,
                              rks_store **store, rks_error *err)
{
    char *said = NULL, *directory = NULL;
    rks_dataset *united = NULL;
    rks_status status = RKS_OK;
    if (o->count == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "open: no directory is given");
    else if (o->count > RKS_SOURCES_MAX)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "open: %zu directories; %d at most are opened as one", o->count,
                          RKS_SOURCES_MAX);
    if (status == RKS_OK)
        status = begin_opening(o, err);
    for (size_t i = 0; status == RKS_OK && i < o->count; i++) {
        const char *name = o->patterns[i];
        status = rks_store_choose_local(&name, options, err);
    }
    if (status == RKS_OK)
        status = put_said(o, options, &said, err);
    if (status == RKS_OK)
        status = look_for_sources(group, o, options, err);
    const rks_fact same = rks_fact_same("directories", said);
    status = rks_group_agree_on(group, "open: directories", status, &same, 1, NULL, err);
    rks_free(said);
    if (status == RKS_OK)
        status = rks_store_agree_datasets(group, options->exchange, o->looked, o->count,
                                          o->datasets, err);
    if (status == RKS_OK && options->local != NULL)
        status = make_local(group, o, options, err);
    if (options->local != NULL)
        options->missing = NULL; /* checked; what is missing comes */
    if (status != RKS_OK)
        return status; /* the same on all ranks */
    directory = rks_strdup(o->directories[0], err);
    status = directory == NULL ? RKS_ERR_MEMORY : unite(o, options, &united, err);
    const rks_loaded_dataset loaded = {.directory = directory,
                                       .status = status,
                                       .dataset = united,
                                       .beside = &o->beside,
                                       .stagings = o->stagings,
                                       .staging_count = o->staging_count};
    o->stagings = NULL;
    o->staging_count = 0;
    status = rks_store_open_dataset(group, &loaded, options, NULL, store, err);
    rks_free(directory);
    return status;
}

rks_status rks_store_open_many(rks_group *group, const char *const *directories,
                               const char *const *names, size_t count,
                               const rks_store_options *options, rks_store **store, rks_error *err)
{
    rks_store_options chosen;
    rks_store_take_options(options, &chosen);
    opening o = {.count = count, .patterns = directories, .names = names};
    rks_status status = open_united(group, &o, &chosen, store, err);
    end_opening(&o);
    return status;
}
