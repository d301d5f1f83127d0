/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h: ranks as threads, datasets that are built from memory, and samples of which all follows
 * from their number. Unit u holds the samples u * UNIT_ROWS and on. */
#ifndef RKS_TESTS_STORE_WORLD_H
#define RKS_TESTS_STORE_WORLD_H

#include "support/folder.h"
#include "support/ranks.h"
#include "support/rows.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UNIT_ROWS = 40, UNITS = 7, SAMPLES = UNIT_ROWS * UNITS, TEXT_MOST = 700 };

static const char WORLD_SCHEMA[] = "id:int64,text:str,vec:float32[*]";
static const char *const WORLD_INDEX[] = {"id"};

/* ---- directories ------------------------------------------------------------------------- */

static inline void world_directory(char directory[FOLDER_PATH])
{
    assert_true(folder_make(directory));
}

static inline void world_remove(const char *directory)
{
    folder_remove(directory);
}

/* How many files of the directory end so. */
static inline size_t world_files(const char *directory, const char *ending)
{
    size_t count = 0, size = strlen(ending);
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        size_t length = strlen(entry->d_name);
        count += entry->d_name[0] != '.' && length >= size &&
                 strcmp(entry->d_name + length - size, ending) == 0;
    }
    if (stream != NULL)
        closedir(stream);
    return count;
}

/* Moves all parts of a directory, sealed or not, to another one. */
static inline void world_move_parts(const char *from, const char *to)
{
    DIR *stream = opendir(from);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char old[600], new[600];
        if (strncmp(entry->d_name, "part-", 5) != 0)
            continue;
        snprintf(old, sizeof(old), "%s/%s", from, entry->d_name);
        snprintf(new, sizeof(new), "%s/%s", to, entry->d_name);
        assert_int_equal(rename(old, new), 0);
    }
    closedir(stream);
}

/* The path of a directory's index file; empty if it has none. */
static inline void world_index_file(const char *directory, char path[400])
{
    DIR *stream = opendir(directory);
    assert_non_null(stream);
    path[0] = '\0';
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (strncmp(entry->d_name, "index-", 6) == 0)
            snprintf(path, 400, "%s/%s", directory, entry->d_name);
    closedir(stream);
}

static inline size_t world_descriptors(void)
{
    return world_files("/proc/self/fd", "");
}

/* ---- ranks ------------------------------------------------------------------------------- */

/* False: a failure is counted, and there is nothing to go on with. */
static inline bool world_enter(member *m, bool own_nodes)
{
    char node[16];
    snprintf(node, sizeof(node), "n%u", m->rank);
    EXPECT_OK(open_group_on(m->bootstrap, own_nodes ? node : NULL, 5000, &m->group, &m->err));
    return m->group != NULL;
}

/* ---- samples ------------------------------------------------------------------------------ */

typedef struct world_sample {
    int64_t id;
    char text[TEXT_MOST];
    float vec[8];
    char key[32];
    rks_value values[3];
} world_sample;

static inline uint32_t world_text_size(uint64_t number)
{
    return (uint32_t)(number * 31 % 83 + (number % 50 == 3 ? 600 : 0));
}

static inline void world_make(uint64_t number, world_sample *sample)
{
    uint32_t size = world_text_size(number);
    sample->id = (int64_t)number;
    for (uint32_t i = 0; i < size; i++)
        sample->text[i] = (char)('a' + (number + i) % 26);
    for (uint32_t i = 0; i < number % 6; i++)
        sample->vec[i] = (float)(number + i);
    snprintf(sample->key, sizeof(sample->key), "key %05llu", (unsigned long long)number);
    memset(sample->values, 0, sizeof(sample->values));
    sample->values[0] = (rks_value){.data = &sample->id, .size = 8};
    sample->values[1] = (rks_value){.data = sample->text, .size = size};
    sample->values[2] = (rks_value){.data = sample->vec, .size = number % 6 * 4};
}

/* Is sample i of the batch the one of this number? */
static inline bool world_is(rks_batch *batch, size_t i, uint64_t number)
{
    world_sample sample;
    world_make(number, &sample);
    for (uint32_t column = 0; column < 3; column++) {
        rks_value value;
        if (rks_batch_value(batch, i, column, &value, NULL) != RKS_OK ||
            value.size != sample.values[column].size ||
            (value.size > 0 && memcmp(value.data, sample.values[column].data, value.size) != 0))
            return false;
    }
    return rks_batch_length(batch, i) == world_text_size(number);
}

/* ---- builds ------------------------------------------------------------------------------- */

static inline void world_build_options(rks_build_options *options)
{
    rks_build_options_default(options);
    options->schema = WORLD_SCHEMA;
    options->length = "text";
    options->index = WORLD_INDEX;
    options->index_count = 1;
    options->own_keys = true;
    options->block_size = 64 << 10;
}

/* A rows_fn; *user: whether rows have their own keys. */
static inline rks_status world_make_unit(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const bool *own_keys = user;
    world_sample sample;
    rks_status status = RKS_OK;
    for (uint64_t row = 0; status == RKS_OK && row < UNIT_ROWS; row++) {
        world_make(unit * UNIT_ROWS + row, &sample);
        status = rows_add(sink, sample.values, *own_keys ? sample.key : NULL,
                          *own_keys ? strlen(sample.key) : 0, err);
    }
    return status;
}

/* Some units, dealt over the ranks. */
static inline rks_status world_build_units(rks_group *group, const char *directory,
                                           const rks_build_options *options, uint64_t first,
                                           uint64_t units, rks_build_report *report, rks_error *err)
{
    bool own_keys = options->own_keys;
    const made_rows rows = {
        .make = world_make_unit, .user = &own_keys, .units = units, .first = first, .name = "part"};
    return rows_build(group, directory, options, &rows, report, err);
}

/* All UNITS units. */
static inline rks_status world_build(rks_group *group, const char *directory,
                                     const rks_build_options *options, rks_build_report *report,
                                     rks_error *err)
{
    return world_build_units(group, directory, options, 0, UNITS, report, err);
}

typedef struct world_job {
    const char *directory;
    bool own_nodes;
    rks_build_options options;
    rks_build_report report; /* rank 0's */
} world_job;

static inline void world_build_rank(member *m)
{
    world_job *job = m->user;
    rks_build_report report = {.struct_size = sizeof(report)};
    if (!world_enter(m, job->own_nodes))
        return;
    EXPECT_OK(world_build(m->group, job->directory, &job->options, &report, &m->err));
    if (m->rank == 0)
        job->report = report;
}

/* The dataset of all SAMPLES samples, built by `ranks` ranks. */
static inline rks_build_report world_dataset(const char *directory, uint32_t ranks, bool own_nodes)
{
    world_job job = {.directory = directory, .own_nodes = own_nodes};
    world_build_options(&job.options);
    on_threads(ranks, world_build_rank, &job);
    return job.report;
}

#endif
