/* SPDX-License-Identifier: Apache-2.0
 *
 * merge.c: makes one dataset of several: links or copies of their shards, and a dataset.json for
 * all.
 *
 *   know the sources ─► join ─► lock the target ─► bring shards ─► compare keys ─► commit */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/forbidden_call.h"
#include "base/memory.h"
#include "base/stream.h"
#include "dataset/build_directory.h"
#include "dataset/key_description.h"
#include "dataset/length_description.h"
#include "rankstore/manage.h"
#include "store/duplicates.h"
#include "store/index_commit.h"
#include "store/store.h"

enum { COPY = 4 << 20 };

/* The manifest comes last: a shard without it is not sealed. */
static const char *const endings[] = {".rks", ".sums", ".json"};

/* Counts of a source and those before it. */
typedef struct source_end {
    size_t units, shards;
} source_end;

typedef struct merge {
    rks_group *group;
    rks_merge_options options;
    rks_merge_report report;
    char **directories; /* the sources, as this rank names them */
    size_t count;
    char *target;
    rks_dataset **parts; /* the sources' datasets, until they are joined */
    rks_dataset *dataset;
    source_end *ends; /* by source */
    rks_lock_file *lock;
    bool writes;
    rks_index_commit index;
    bool made; /* the target did not exist */
    uint64_t done, ticked_ms;
} merge;

/* ---- files -------------------------------------------------------------------------------- */

static void count_merge_progress(merge *m, uint64_t bytes)
{
    uint64_t now = rks_now_ms(), total = 0;
    m->done += bytes;
    if (m->options.progress == NULL || now - m->ticked_ms < 100)
        return;
    m->ticked_ms = now;
    for (size_t i = 0; i < m->dataset->shard_count; i++)
        total += m->dataset->shards[i].file_bytes;
    m->options.progress(m->options.progress_user, "merge", m->done, total, m->dataset->count);
}

/* Copies a range of at most COPY bytes, in the kernel if both file systems can. Returns 0 at the
 * end of `from`. */
static ssize_t copy_range(int from, int to, size_t size, uint8_t *room)
{
    if (room == NULL)
        return copy_file_range(from, NULL, to, NULL, size, 0);
    ssize_t got = read(from, room, size);
    for (ssize_t at = 0, put; at < got; at += put) {
        put = write(to, room + at, (size_t)(got - at));
        if (put < 0 && errno == EINTR)
            put = 0;
        else if (put <= 0)
            return -1;
    }
    return got;
}

/* A file that is being copied. */
typedef struct file_copy {
    int from, to;
    const char *path; /* of `to` */
    uint64_t size;
    rks_stream source;
    uint8_t *room; /* if the kernel cannot copy between the two; else NULL */
} file_copy;

static rks_status copy_ranges(merge *m, file_copy *c, rks_error *err)
{
    for (uint64_t at = 0; at < c->size;) {
        rks_stream_reach(&c->source, at);
        rks_status status = rks_group_must_stop(m->group, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        ssize_t put =
            copy_range(c->from, c->to, c->size - at < COPY ? c->size - at : COPY, c->room);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && c->room == NULL && at == 0 &&
            (errno == EXDEV || errno == EINVAL || rks_call_is_forbidden(errno))) {
            if ((c->room = rks_alloc_raw(COPY, 1, err)) == NULL)
                return RKS_ERR_MEMORY;
            continue;
        }
        if (put < 0)
            return rks_fail_write(err, errno, c->path, c->size - at);
        if (put == 0)
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: its source was cut while it was copied",
                            c->path);
        at += (uint64_t)put;
        count_merge_progress(m, (uint64_t)put);
    }
    return RKS_OK;
}

static rks_status copy_bytes(merge *m, file_copy *c, rks_error *err)
{
    if (ioctl(c->to, FICLONE, c->from) == 0) { /* shares the blocks if the file system can */
        count_merge_progress(m, c->size);
        return RKS_OK;
    }
    rks_status status = copy_ranges(m, c, err);
    rks_free(c->room);
    return status;
}

static rks_status copy_file(merge *m, const char *from, const char *to, rks_error *err)
{
    file_copy c = {.from = -1, .to = -1, .path = to, .source = {.fd = -1}};
    rks_status status = rks_file_open(from, &c.from, &c.size, err);
    if (status == RKS_OK) {
        rks_stream_begin(&c.source, from, c.size);
        c.to = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        status = c.to < 0 ? rks_fail_write(err, errno, to, c.size) : copy_bytes(m, &c, err);
    }
    if (status == RKS_OK && fsync(c.to) != 0)
        status = rks_fail_write(err, errno, to, c.size);
    rks_stream_end(&c.source);
    m->report.copied_bytes += status == RKS_OK ? c.size : 0;
    if (c.from >= 0)
        close(c.from);
    if (c.to >= 0)
        close(c.to);
    return status;
}

/* Copies under a name of this rank's own, then renames: ranks that share a target may bring the
 * same file. */
static rks_status bring_file(merge *m, const char *from, const char *to, rks_error *err)
{
    struct stat info;
    char *own = rks_format(err, "%s.%" PRIu32 ".tmp", to, rks_group_rank(m->group));
    rks_status status = own == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK) {
        unlink(own);
        /* of a symbolic link the file: the link itself may be relative */
        bool linked =
            !m->options.copy && linkat(AT_FDCWD, from, AT_FDCWD, own, AT_SYMLINK_FOLLOW) == 0;
        if (linked && stat(own, &info) == 0) {
            m->report.linked_bytes += (uint64_t)info.st_size;
            count_merge_progress(m, (uint64_t)info.st_size);
        }
        if (!linked)
            status = copy_file(m, from, own, err);
    }
    if (status == RKS_OK && rename(own, to) != 0)
        status = rks_fail_errno(err, errno, "%s: renaming into place", to);
    if (own != NULL)
        unlink(own); /* needed if the rename found the same file there, which leaves both names */
    rks_free(own);
    return status;
}

/* ---- shards ------------------------------------------------------------------------------- */

/* Returns the source whose dataset lists the shard. */
static size_t source_that_lists(const merge *m, size_t number)
{
    size_t low = 0, high = m->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (m->ends[middle].shards <= number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Takes the shard from the source that lists it, or from the first one that has it. *brought: one
 * has it. */
static rks_status bring_shard(merge *m, size_t number, bool *brought, rks_error *err)
{
    const rks_dataset_shard *shard = &m->dataset->shards[number];
    size_t own = source_that_lists(m, number);
    rks_status status = RKS_OK;
    *brought = false;
    for (size_t turn = 0; status == RKS_OK && turn <= m->count && !*brought; turn++) {
        size_t source = turn == 0 ? own : turn - 1;
        char *manifest = rks_format(err, "%s/%s.json", m->directories[source], shard->name);
        bool here = manifest != NULL && access(manifest, F_OK) == 0;
        status = manifest == NULL ? RKS_ERR_MEMORY : RKS_OK;
        rks_free(manifest);
        for (size_t i = 0; here && status == RKS_OK && i < 3; i++) {
            char *from =
                rks_format(err, "%s/%s%s", m->directories[source], shard->name, endings[i]);
            char *to = rks_format(err, "%s/%s%s", m->target, shard->name, endings[i]);
            status = from == NULL || to == NULL ? RKS_ERR_MEMORY : bring_file(m, from, to, err);
            rks_free(from);
            rks_free(to);
        }
        *brought = here && status == RKS_OK;
    }
    return status;
}

static bool is_brought(const rks_agreed *agreed, size_t shard)
{
    bool brought = false;
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++)
        brought = brought || ((const uint8_t *)rks_agreed_get(agreed, rank, 0, NULL))[shard] != 0;
    return brought;
}

/* Checks that some rank brought each shard; a rank's fact has a byte for each. The error names the
 * first source that lacks one. */
static rks_status check_brought(const merge *m, const rks_agreed *agreed, rks_error *err)
{
    for (size_t source = 0, shard = 0; source < m->count; source++) {
        size_t before = shard, end = m->ends[source].shards, missing = 0, first = 0;
        for (; shard < end; shard++)
            if (!is_brought(agreed, shard) && missing++ == 0)
                first = shard;
        if (missing > 0)
            return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                            "%s: shard %s is not on any rank's disk (%zu of %zu shards are "
                            "missing); copy their files to one of the nodes",
                            m->directories[source], m->dataset->shards[first].name, missing,
                            end - before);
    }
    return RKS_OK;
}

static rks_status bring_shards(merge *m, rks_error *err)
{
    size_t shards = m->dataset->shard_count;
    uint8_t *brought = rks_alloc(shards, 1, err);
    rks_agreed agreed;
    rks_status status = brought == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < shards; i++) {
        bool is = false;
        status = bring_shard(m, i, &is, err);
        brought[i] = is;
    }
    if (status == RKS_OK) {
        char *path = rks_format(err, "%s/dataset.json", m->target);
        status = path == NULL ? RKS_ERR_MEMORY : rks_file_sync_directory_of(path, err);
        rks_free(path);
    }
    const rks_fact fact = rks_fact_fixed(brought, shards);
    status = rks_group_agree_on(m->group, "merge: shards", status, &fact, 1, &agreed, err);
    rks_free(brought);
    return status == RKS_OK ? check_brought(m, &agreed, err) : status;
}

static void remove_file(const char *directory, const char *name, const char *ending)
{
    char *path = rks_format(NULL, "%s/%s%s", directory, name, ending);
    if (path != NULL)
        unlink(path);
    rks_free(path);
}

/* Removes everything of a merge that failed. The dataset goes first; it exists if only the last
 * step of the commit, or another rank's commit, failed. */
static void remove_all(const merge *m)
{
    if (m->writes)
        remove_file(m->target, "dataset", ".json");
    for (size_t i = 0; m->writes && m->dataset != NULL && i < m->dataset->shard_count; i++)
        for (size_t k = 3; k-- > 0;)
            remove_file(m->target, m->dataset->shards[i].name, endings[k]);
    if (m->writes && m->dataset != NULL && m->dataset->excluded.samples > 0)
        remove_file(m->target, m->dataset->excluded.name, "");
    for (size_t i = 0; m->writes && m->dataset != NULL && i < m->dataset->index_file_count; i++)
        remove_file(m->target, m->dataset->index_files[i].name, "");
}

/* ---- the dataset ----------------------------------------------------------------------------- */

typedef struct length_words {
    json_t *options; /* the object that holds `column` */
    const char *column;
    uint32_t unit;
    char by[24]; /* " / 4" */
} length_words;

/* `column` becomes NULL if the build used a function, or counts what it counts by default: builds
 * record that, too, so nobody may have asked for it. */
static void read_length(const rks_dataset *dataset, length_words *words)
{
    *words = (length_words){.unit = 1};
    words->options =
        dataset->build_options == NULL ? NULL : json_loads(dataset->build_options, 0, NULL);
    const rks_recorded_length recorded = rks_recorded_length_read(words->options);
    words->column = recorded.by_function ? NULL : recorded.name;
    const char *key = json_string_value(json_object_get(words->options, "key"));
    const rks_column *usual = rks_schema_length(dataset->schema, key);
    if (words->column != NULL && usual != NULL && strcmp(words->column, usual->name) == 0)
        words->column = NULL;
    if (recorded.unit > 1) {
        words->unit = recorded.unit;
        snprintf(words->by, sizeof(words->by), " / %" PRIu32, recorded.unit);
    }
}

/* Lengths with two definitions cannot be mixed in batches. If samples are added to an existing
 * dataset this is not checked, since there the caller chooses. */
static rks_status check_lengths(const rks_dataset *a, const rks_dataset *b, rks_error *err)
{
    length_words one, other;
    rks_status status = RKS_OK;
    read_length(a, &one);
    read_length(b, &other);
    if (one.column != NULL && other.column != NULL &&
        (strcmp(one.column, other.column) != 0 || one.unit != other.unit))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "the lengths of the first are %.80s%s, those of the second %.80s%s",
                          one.column, one.by, other.column, other.by);
    json_decref(one.options);
    json_decref(other.options);
    return status;
}

/* COLLECTIVE. Reads the source's dataset. `status`: the result of the source before. Returns this
 * rank's own result. */
static rks_status look_at_source(merge *m, rks_status status, const char *pattern, rks_error *err)
{
    rks_dataset *one = NULL;
    char *directory = NULL;
    rks_found_dataset found = {.directory = pattern};
    if (status != RKS_OK)
        found = (rks_found_dataset){.directory = pattern, .status = status, .error = *err};
    else
        found.status = rks_directory_expand(m->group, pattern, &directory, &found.error);
    if (found.status == RKS_OK) {
        m->directories[m->count] = directory;
        rks_store_look(directory, rks_dataset_take_generation(directory), &found);
    }
    status = rks_store_agree_dataset(m->group, NULL, &found, &one, err);
    if (directory != NULL)
        m->parts[m->count++] = one;
    if (status == RKS_OK && m->count > 1) {
        rks_error what = {0};
        status = check_lengths(m->parts[0], one, &what);
        if (status != RKS_OK)
            rks_fail(err, status, 0, "%s: %s", pattern, what.text);
    }
    return status;
}

/* Joins the sources' datasets. */
static rks_status join_parts(merge *m, const char *const *sources, rks_error *err)
{
    rks_error what = {0};
    size_t which = 0;
    rks_status status = rks_dataset_join_all((const rks_dataset *const *)m->parts, m->count,
                                             &m->dataset, &which, &what);
    if (status == RKS_ERR_DATA)
        for (size_t i = 0; i < which; i++)
            if (rks_digest_equal(m->parts[i]->id, m->parts[which]->id))
                return rks_fail(err, status, 0,
                                "%s and %s hold shards of one dataset, not two: copy the files of "
                                "both into one directory, or open it on ranks that see them",
                                sources[i], sources[which]);
    if (status != RKS_OK)
        return rks_fail(err, status, 0, "%s: %s", sources[which], what.text);
    m->dataset->generation = 1;
    source_end end = {0};
    for (size_t i = 0; i < m->count; i++) {
        end.units += m->parts[i]->unit_count;
        end.shards += m->parts[i]->shard_count;
        m->ends[i] = end;
        rks_dataset_free(m->parts[i]);
        m->parts[i] = NULL;
    }
    return RKS_OK;
}

/* COLLECTIVE. */
static rks_status lock_target(merge *m, rks_status status, rks_error *err)
{
    struct stat info;
    if (status == RKS_OK)
        status = rks_directory_lock_try(m->group, m->target, m->options.no_lock, &m->lock, err);
    status = rks_group_agree(m->group, "merge: lock", status, err);
    if (status == RKS_OK)
        status = rks_directory_lock_settle(m->group, m->target, &m->lock, err);
    m->writes = m->lock != NULL;
    char *path = status == RKS_OK ? rks_format(err, "%s/dataset.json", m->target) : NULL;
    if (status == RKS_OK && path == NULL)
        status = RKS_ERR_MEMORY;
    else if (status == RKS_OK && lstat(path, &info) == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, EEXIST, "%s: already holds a finished dataset",
                          m->target);
    rks_free(path);
    const uint8_t writes = m->writes;
    const rks_fact fact = rks_fact_fixed(&writes, sizeof(writes));
    rks_agreed agreed;
    status = rks_group_agree_on(m->group, "merge: target is free", status, &fact, 1, &agreed, err);
    if (status == RKS_OK)
        rks_commit_choose_index_writer(&agreed, 0, &m->index);
    m->index.directory = m->target;
    return status;
}

/* Writes "row 7 of unit 2 of DIR". */
static void describe_merged_row(void *user, const rks_dataset *dataset, size_t unit, uint64_t row,
                                char *text, size_t room)
{
    const merge *m = user;
    size_t source = 0;
    while (source + 1 < m->count && unit >= m->ends[source].units)
        source++;
    size_t first = source == 0 ? 0 : m->ends[source - 1].units;
    const char *name = m->directories[source];
    (void)dataset;
    snprintf(text, room, "row %" PRIu64 " of unit %zu of %s", row, unit - first,
             rks_text_end(name, RKS_PLACE_NAME));
}

/* COLLECTIVE. */
static rks_status check_and_commit(merge *m, rks_error *err)
{
    const rks_key_words words = {.place = describe_merged_row, .user = m};
    uint64_t pairs = 0;
    rks_status status = rks_commit_check_names(m->dataset, &words, err);
    const rks_sealed_dataset sealed = {
        .directory = m->target, .status = status, .dataset = m->dataset};
    status = rks_commit_open(m->group, &sealed, &pairs, &m->index.store, err);
    if (status == RKS_OK)
        status = rks_commit_compare_keys(m->index.store, pairs, m->dataset, NULL, &words, err);
    if (status == RKS_OK) {
        if (m->writes)
            status = rks_commit_index(&m->index, m->dataset, err);
        if (m->writes && status == RKS_OK)
            status = rks_dataset_commit(m->target, m->dataset, err);
        status = rks_group_agree(m->group, "merge: commit", status, err);
    }
    rks_store_close(m->index.store, 0);
    return status;
}

static rks_status begin_merge(merge *m, size_t count, const char *target, rks_error *err)
{
    struct stat info;
    if (count < 2)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "merge: give at least two datasets");
    m->directories = rks_alloc(count, sizeof(char *), err);
    if (m->directories == NULL)
        return RKS_ERR_MEMORY;
    m->ends = rks_alloc(count, sizeof(*m->ends), err);
    m->parts = rks_alloc(count, sizeof(rks_dataset *), err);
    if (m->ends == NULL || m->parts == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_directory_expand_target(m->group, target, &m->target, err);
    if (status == RKS_OK)
        m->made = lstat(m->target, &info) != 0; /* asked before any rank makes it */
    return status;
}

/* COLLECTIVE. Prepares the sources and the target. */
static rks_status join_sources(merge *m, const char *const *sources, size_t count, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; i < count; i++)
        status = look_at_source(m, status, sources[i], err);
    if (status == RKS_OK)
        status = join_parts(m, sources, err);
    return lock_target(m, status, err);
}

static void report_merge(merge *m, rks_merge_report *report)
{
    size_t room = report->struct_size;
    m->report.samples = m->dataset->count;
    m->report.shards = m->dataset->shard_count;
    rks_digest_format(m->dataset->id, m->report.dataset);
    memcpy(report, &m->report, room < sizeof(m->report) ? room : sizeof(m->report));
    report->struct_size = room;
}

rks_status rks_merge(rks_group *group, const char *const *sources, size_t count, const char *target,
                     const rks_merge_options *options, rks_merge_report *report, rks_error *err)
{
    merge m = {.group = group, .report = {.struct_size = sizeof(m.report)}};
    bool committed = false;
    if (options != NULL)
        memcpy(&m.options, options,
               options->struct_size < sizeof(m.options) ? options->struct_size : sizeof(m.options));
    rks_status status = begin_merge(&m, count, target, err);
    status = rks_group_agree(group, "merge: begin", status, err);
    if (status == RKS_OK)
        status = join_sources(&m, sources, count, err);
    if (status == RKS_OK) {
        status = bring_shards(&m, err);
        if (status == RKS_OK)
            status = check_and_commit(&m, err);
        committed = status == RKS_OK;
        if (!committed)
            remove_all(&m);
    }
    rks_lock_file_release(m.lock);
    if (!committed && m.writes && m.made)
        rmdir(m.target); /* fails if it is not empty, since then it holds files of others */
    if (committed && report != NULL)
        report_merge(&m, report);
    for (size_t i = 0; i < m.count; i++) {
        rks_free(m.directories[i]);
        rks_dataset_free(m.parts[i]);
    }
    rks_free(m.parts);
    rks_free(m.directories);
    rks_free(m.ends);
    rks_free(m.target);
    rks_dataset_free(m.dataset);
    return status;
}
