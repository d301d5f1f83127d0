/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.c: makes one dataset.json of the sealed parts of all ranks.
 *
 * Each rank reports what its parts hold (reported_parts.h). All of them then make the same
 * dataset. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/commit_mark.h"
#include "builder/earlier_keys.h"
#include "builder/exclusions.h"
#include "builder/parts_state.h"
#include "builder/reported_parts.h"
#include "dataset/key_description.h"
#include "dataset/length_description.h"
#include "ingest/row_sampling.h"
#include "store/duplicates.h"
#include "store/index_commit.h"
#include "store/store.h"

/* What a rank reports about its rows. */
enum { SEALED_PARTS, SEALED_BAD, SEALED_OFFER, SEALED_WRITES, SEALED_FACTS };

static int by_number(const void *a, const void *b)
{
    const rks_dataset_unit *left = a, *right = b;
    if (left->summary.unit != right->summary.unit)
        return left->summary.unit < right->summary.unit ? -1 : 1;
    return left->shard < right->shard ? -1 : left->shard > right->shard;
}

/* Checks that equal units in several parts hold the same. There are such units if a disk was away
 * during a resume. */
static rks_status count_repeated(const rks_dataset *dataset, size_t *repeated, rks_error *err)
{
    for (size_t i = 1; i < dataset->unit_count; i++) {
        const rks_dataset_unit *one = &dataset->units[i - 1], *other = &dataset->units[i];
        if (one->summary.unit != other->summary.unit)
            continue;
        (*repeated)++;
        if (!rks_digest_equal(one->summary.digest, other->summary.digest))
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "unit %" PRIu64 " was added twice with different contents: it lies in "
                            "%s and in %s",
                            one->summary.unit, dataset->shards[one->shard].name,
                            dataset->shards[other->shard].name);
    }
    return RKS_OK;
}

/* Returns true if another part that is kept has unit `i`, too. Equal units are neighbours. */
static bool is_elsewhere(const rks_dataset *dataset, const bool *kept, size_t i)
{
    const rks_dataset_unit *units = dataset->units;
    size_t first = i, end = i + 1;
    while (first > 0 && units[first - 1].summary.unit == units[i].summary.unit)
        first--;
    while (end < dataset->unit_count && units[end].summary.unit == units[i].summary.unit)
        end++;
    for (size_t k = first; k < end; k++)
        if (units[k].shard != units[i].shard && kept[units[k].shard])
            return true;
    return false;
}

/* Drops parts whose units are all in other parts, too, the last part first. */
static void choose_parts(const rks_dataset *dataset, bool *kept)
{
    for (size_t shard = dataset->shard_count; shard-- > 0;) {
        bool needed = false;
        for (size_t i = 0; i < dataset->unit_count && !needed; i++)
            needed = dataset->units[i].shard == shard && !is_elsewhere(dataset, kept, i);
        kept[shard] = needed;
    }
}

static void drop_parts(rks_dataset *dataset, uint32_t *holders, const bool *kept, uint32_t *place)
{
    size_t units = 0, shards = 0;
    for (size_t shard = 0; shard < dataset->shard_count; shard++) {
        place[shard] = (uint32_t)shards;
        if (!kept[shard])
            continue;
        holders[shards] = holders[shard];
        dataset->shards[shards++] = dataset->shards[shard];
    }
    dataset->shard_count = shards;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        rks_dataset_unit *unit = &dataset->units[i];
        if (!kept[unit->shard]) {
            rks_free((char *)(uintptr_t)unit->key_name);
            continue;
        }
        unit->shard = place[unit->shard];
        dataset->units[units++] = *unit;
    }
    dataset->unit_count = units;
}

/* Sorts units by number, and keeps each once. A part is kept or dropped as a whole. */
static rks_status settle_units(rks_dataset *dataset, uint32_t *holders, rks_error *err)
{
    size_t repeated = 0;
    if (dataset->unit_count == 0)
        return RKS_OK;
    qsort(dataset->units, dataset->unit_count, sizeof(*dataset->units), by_number);
    rks_status status = count_repeated(dataset, &repeated, err);
    if (status != RKS_OK || repeated == 0)
        return status;
    bool *kept = rks_alloc(dataset->shard_count, sizeof(*kept), err);
    uint32_t *place = rks_alloc(dataset->shard_count, sizeof(*place), err);
    status = kept == NULL || place == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK) {
        memset(kept, true, dataset->shard_count * sizeof(*kept));
        choose_parts(dataset, kept);
        drop_parts(dataset, holders, kept, place);
    }
    rks_free(kept);
    rks_free(place);
    for (size_t i = 1; status == RKS_OK && i < dataset->unit_count; i++)
        if (dataset->units[i - 1].summary.unit == dataset->units[i].summary.unit)
            status = rks_fail(err, RKS_ERR_STATE, 0,
                              "unit %" PRIu64 " is in both %s and %s, and each also has units that "
                              "the other lacks; remove one of these parts and run the build again",
                              dataset->units[i].summary.unit,
                              dataset->shards[dataset->units[i - 1].shard].name,
                              dataset->shards[dataset->units[i].shard].name);
    return status;
}

static rks_status copy_index_names(rks_dataset *dataset, const rks_shard_options *options,
                                   rks_error *err)
{
    dataset->index = rks_alloc(options->index_count, sizeof(char *), err);
    if (dataset->index == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < options->index_count; i++) {
        dataset->index[i] = rks_strdup(options->index[i], err);
        if (dataset->index[i] == NULL)
            return RKS_ERR_MEMORY;
        dataset->index_count++;
    }
    return RKS_OK;
}

/* (*holders)[s]: the rank that brings shard s. The list grows with the list of shards. */
static rks_status add_rank_parts(rks_dataset *dataset, uint32_t rank, uint32_t **holders,
                                 const uint8_t *report, size_t size, rks_error *err)
{
    size_t before = dataset->shard_count;
    rks_status status = rks_reported_parts_take(dataset, report, size, err);
    if (status != RKS_OK || dataset->shard_count == before)
        return status;
    uint32_t *grown = rks_realloc(*holders, dataset->shard_count, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    *holders = grown;
    for (size_t shard = before; shard < dataset->shard_count; shard++)
        grown[shard] = rank;
    return RKS_OK;
}

static rks_status make_dataset(const rks_parts *parts, const rks_agreed *agreed,
                               rks_dataset **dataset, uint32_t **holders, rks_error *err)
{
    const rks_shard_options *options = &parts->options.shard;
    rks_dataset *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->build_id = options->build_id;
    made->derived_keys = options->derived_keys;
    made->unit_size = options->unit_size;
    made->revision = parts->revision;
    rks_status status = rks_schema_parse(rks_schema_text(options->schema), &made->schema, err);
    if (status == RKS_OK)
        status = copy_index_names(made, options, err);
    if (status == RKS_OK) {
        const char *asked = parts->options.build_options;
        made->build_options = rks_strdup(asked == NULL ? "{}" : asked, err);
        status = made->build_options == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const uint8_t *report = rks_agreed_get(agreed, rank, SEALED_PARTS, &size);
        status = add_rank_parts(made, rank, holders, report, size, err);
    }
    if (status == RKS_OK)
        status = settle_units(made, *holders, err);
    if (status == RKS_OK)
        status = rks_commit_check_names(made, NULL, err);
    if (status == RKS_OK) {
        for (size_t i = 0; i < made->unit_count; i++)
            made->count += made->units[i].summary.samples;
        made->id = rks_dataset_fold(made->units, made->unit_count, made->schema);
        /* Checked before anything is allocated because of what another rank reports. */
        status = rks_dataset_check(made, RKS_DATASET_FILE, RKS_ERR_ARGUMENT, err);
    }
    if (status != RKS_OK) {
        rks_dataset_free(made);
        return status;
    }
    *dataset = made;
    return RKS_OK;
}

/* Makes *dataset the next generation of `base`, with what is added. No rank has brought the shards
 * of `base`: they count as rank 0's. */
static rks_status append_to(const rks_dataset *base, const rks_dataset *added,
                            rks_dataset **dataset, uint32_t **holders, rks_error *err)
{
    size_t before = base->shard_count, more = added->shard_count;
    uint32_t *grown = rks_realloc(*holders, before + more, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    *holders = grown;
    memmove(grown + before, grown, more * sizeof(*grown));
    memset(grown, 0, before * sizeof(*grown));
    rks_status status = rks_dataset_join(base, added, dataset, err);
    return status == RKS_OK ? rks_commit_check_names(*dataset, NULL, err) : status;
}

/* Collects the first lines about skipped rows from all ranks, as many as fit. */
static void report_bad(const rks_parts *parts, const rks_agreed *agreed, rks_build_report *report)
{
    char lines[2 * sizeof(report->bad_first)];
    size_t used = 0;
    for (uint32_t rank = 0; rank < rks_group_size(parts->group); rank++) {
        size_t size = 0;
        const void *theirs = rks_agreed_get(agreed, rank, SEALED_BAD, &size);
        size = size < sizeof(lines) - used ? size : sizeof(lines) - used;
        if (size > 0)
            memcpy(lines + used, theirs, size);
        used += size;
    }
    rks_text_lines(lines, used, report->bad_first, sizeof(report->bad_first));
}

/* COLLECTIVE. Makes *agreed what all ranks sealed, until the next agreement. `status`: the result
 * of reading and sealing. */
static rks_status agree_on_sealed(rks_parts *parts, rks_status status, const rks_buffer *bad,
                                  const rks_fd_offer *offer, rks_agreed *agreed, rks_error *err)
{
    rks_buffer mine = {0};
    const uint8_t writes = parts->lock != NULL;
    size_t room = sizeof(((rks_build_report *)NULL)->bad_first);
    for (size_t i = 0; status == RKS_OK && i < parts->sealed_count; i++)
        status = rks_reported_parts_put(&mine, parts->sealed[i], err);
    const rks_fact facts[] = {
        [SEALED_PARTS] = rks_fact_bytes(mine.data, mine.size, RKS_PARTS_REPORTED_MAX),
        [SEALED_BAD] = rks_fact_bytes(bad->data, bad->size < room ? bad->size : room,
                                      rks_group_size(parts->group) * room),
        [SEALED_OFFER] = rks_fd_offer_fact(offer),
        [SEALED_WRITES] = rks_fact_fixed(&writes, sizeof(writes)),
    };
    status = rks_group_agree_on(parts->group, "build: rows read", status, facts, SEALED_FACTS,
                                agreed, err);
    rks_buffer_free(&mine);
    rks_group_on_wait(parts->group, NULL, NULL); /* the reading is over */
    rks_group_tell_progress(parts->group, NULL, "");
    return status;
}

/* Counts rows that sample_rate left out: they follow from the unit's number and rows. */
static uint64_t left_out(const rks_parts *parts, const rks_dataset *dataset)
{
    const rks_selection *selection = &parts->options.selection;
    uint64_t limit = rks_draw_limit(selection->sample_rate), count = 0;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_unit_summary *unit = &dataset->units[i].summary;
        count += rks_draw_left_out(limit, selection->seed, unit->unit, unit->seen);
    }
    return count;
}

void rks_parts_report(const rks_parts *parts, const rks_dataset *dataset, rks_build_report *report)
{
    report->samples = dataset->count;
    report->filtered = report->bad = report->bytes = 0;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        report->filtered += dataset->units[i].summary.filtered;
        report->bad += dataset->units[i].summary.bad;
        report->bytes += dataset->units[i].summary.bytes;
    }
    report->sampled_out = left_out(parts, dataset);
    report->filtered -= report->sampled_out; /* units count both kinds together */
    report->sampled_out += dataset->excluded.samples - dataset->excluded.duplicates;
    report->duplicates = dataset->excluded.duplicates;
    report->bytes -= dataset->excluded.bytes;
    report->units = dataset->unit_count;
    report->units_resumed =
        parts->kept != NULL || parts->repaired != NULL ? 0 : parts->finished_count;
    report->unit_size = parts->options.shard.unit_size;
    rks_digest_format(dataset->id, report->dataset);
    rks_dataset_length_words(dataset, report->length);
}

/* On a file system that does not keep locks of nodes apart, another build may have taken over a
 * directory. */
static rks_status write_dataset(const rks_parts *parts, const rks_dataset *dataset, rks_error *err)
{
    if (!rks_lock_file_is_ours(parts->lock))
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "%s: build.lock was removed, or is another build's; nothing is committed",
                        parts->directory);
    rks_status status = rks_commit_mark_write(parts->directory, dataset->build_id, err);
    return status == RKS_OK ? rks_dataset_commit(parts->directory, dataset, err) : status;
}

/* What a commit makes. */
typedef struct commit {
    rks_dataset *dataset;
    uint32_t *holders; /* by shard: the rank that brings it */
    rks_earlier_keys earlier;
    rks_dataset *added; /* what is appended; NULL: the commit has nothing else */
    rks_store *store;   /* its last samples are those that are added; NULL: not open */
    rks_index_commit index;
    bool lacks_index; /* an index file that it would contain is not in this rank's directory */
} commit;

/* Returns true if the base has index files. */
static bool adds_to_index(const rks_parts *parts)
{
    return !parts->options.no_index && parts->base != NULL && parts->base->index_file_count > 0;
}

/* Returns true if an earlier version built the base, without index files: this commit writes those
 * of all samples. */
static bool completes_index(const rks_parts *parts)
{
    return !parts->options.no_index && parts->base != NULL && parts->base->count > 0 &&
           parts->base->index_file_count == 0;
}

/* COLLECTIVE. Opens the shards that may hold equal keys, if keys are stored, and those that are
 * added, for the index files. `status`: this rank's result so far. */
static rks_status open_sealed(const rks_parts *parts, rks_status status, commit *made,
                              uint64_t *pairs, rks_error *err)
{
    rks_dataset *part = NULL;
    const rks_dataset *opened = made->dataset;
    bool derived = parts->options.shard.derived_keys, whole = completes_index(parts);
    if (derived && parts->options.no_index)
        return rks_group_agree(parts->group, "build: dataset made", status, err);
    if (status == RKS_OK && !derived)
        status = rks_earlier_keys_narrow(&made->earlier, parts, made->dataset, &part, err);
    if (part != NULL && !whole)
        opened = part;
    else if (derived && !whole && made->added != NULL)
        opened = made->added;
    const rks_sealed_dataset sealed = {
        .directory = parts->directory,
        .status = status,
        .dataset = opened,
        /* Keys that are stored are compared with those of all shards. */
        .missing = whole && derived ? "partial" : NULL,
        .shards = parts->options.shards,
        .shard_count = parts->options.shard_count,
        .note = made->lacks_index,
        .noted = &made->index.keeps_all,
    };
    status = rks_commit_open(parts->group, &sealed, derived ? NULL : pairs, &made->store, err);
    rks_dataset_free(part);
    return status;
}

/* COLLECTIVE. `status`: this rank's result so far. */
static rks_status check_sealed(const rks_parts *parts, rks_status status, commit *made,
                               rks_error *err)
{
    uint64_t pairs = 0;
    status = open_sealed(parts, status, made, &pairs, err);
    if (status != RKS_OK || parts->options.shard.derived_keys)
        return status;
    return rks_commit_compare_keys(made->store, pairs, made->dataset, made->holders, &parts->words,
                                   err);
}

/* COLLECTIVE. Makes the dataset of all parts, or the next generation of `base`. `status`: this
 * rank's own. */
static rks_status make_new(rks_parts *parts, rks_status status, const rks_buffer *bad, commit *made,
                           rks_build_report *report, rks_error *err)
{
    rks_agreed agreed;
    rks_exclusions exclusions = {.group = parts->group,
                                 .parts = parts,
                                 .selection = &parts->options.selection,
                                 .key = -1,
                                 .offered = -1,
                                 .memory = -1};
    if (status == RKS_OK)
        status = rks_exclusions_begin(&exclusions, err);
    status = agree_on_sealed(parts, status, bad, exclusions.offer, &agreed, err);
    if (status == RKS_OK) {
        report_bad(parts, &agreed, report);
        rks_commit_choose_index_writer(&agreed, SEALED_WRITES, &made->index);
        status = rks_exclusions_receive(&exclusions, &agreed, SEALED_OFFER, err);
        if (status == RKS_OK)
            status = make_dataset(parts, &agreed, &made->dataset, &made->holders, err);
    }
    status = rks_exclusions_run(&exclusions, status, made->dataset, made->holders, err);
    rks_exclusions_end(&exclusions);
    if (status == RKS_OK && parts->base != NULL) {
        made->added = made->dataset;
        made->dataset = NULL;
        status = append_to(parts->base, made->added, &made->dataset, &made->holders, err);
    }
    if (status == RKS_OK && parts->lock != NULL && adds_to_index(parts))
        made->lacks_index =
            rks_commit_lacks_index(parts->directory, parts->base, made->added->count);
    return check_sealed(parts, status, made, err);
}

/* COLLECTIVE. Makes the next revision of the dataset whose shards were lost. What was built is
 * removed if it is not what was lost. */
static rks_status mend(rks_parts *parts, rks_status status, const rks_buffer *bad, commit *made,
                       rks_build_report *report, rks_error *err)
{
    rks_agreed agreed;
    status = agree_on_sealed(parts, status, bad, NULL, &agreed, err);
    if (status == RKS_OK) {
        report_bad(parts, &agreed, report);
        status = rks_parts_mend(parts, &agreed, SEALED_PARTS, &made->dataset, err);
    }
    bool changed = status == RKS_ERR_DATA;
    status = rks_group_agree(parts->group, "build: dataset made", status, err);
    for (size_t i = 0; changed && i < parts->sealed_count; i++) {
        char name[128];
        rks_part_name(parts->sealed[i], name);
        rks_parts_remove(parts, name);
    }
    if (status == RKS_OK) {
        report->shards_rebuilt = parts->lost.count;
        for (size_t i = 0; i < parts->repaired->unit_count; i++)
            report->units_rebuilt += parts->lost.lost[parts->repaired->units[i].shard];
    }
    return status;
}

/* Writes the index files and, last, dataset.json, on the rank that has the directory's lock. */
static rks_status write_all(const rks_parts *parts, commit *made, rks_error *err)
{
    rks_status status = RKS_OK;
    made->index.directory = parts->directory;
    made->index.base = completes_index(parts) ? NULL : parts->base;
    made->index.store = made->store;
    if (parts->repaired == NULL && !parts->options.no_index &&
        (!completes_index(parts) || made->store->missing_shards == 0))
        status = rks_commit_index(&made->index, made->dataset, err);
    return status == RKS_OK ? write_dataset(parts, made->dataset, err) : status;
}

rks_status rks_parts_commit(rks_parts *parts, rks_status status, const rks_buffer *bad,
                            rks_build_report *report, rks_error *err)
{
    commit made = {0};
    bool mends = parts->repaired != NULL;
    status = mends ? mend(parts, status, bad, &made, report, err)
                   : make_new(parts, status, bad, &made, report, err);
    if (status == RKS_OK) {
        if (!mends && parts->options.made_from != NULL)
            snprintf(made.dataset->made_from, sizeof(made.dataset->made_from), "%s",
                     parts->options.made_from);
        if (parts->lock != NULL)
            status = write_all(parts, &made, err);
        status = rks_group_agree(parts->group, "build: commit", status, err);
    }
    if (status == RKS_OK && parts->lock != NULL) {
        rks_earlier_keys_keep(&made.earlier, parts, made.dataset);
        rks_parts_remove_strangers(parts, made.dataset);
    }
    rks_earlier_keys_free(&made.earlier);
    rks_store_close(made.store, 0);
    rks_dataset_free(made.added);
    if (status == RKS_OK)
        rks_parts_report(parts, made.dataset, report);
    rks_dataset_free(made.dataset);
    rks_free(made.holders);
    return status;
}

void rks_parts_end_commit(const rks_parts *parts)
{
    if (parts->lock != NULL)
        rks_commit_mark_remove(parts->directory);
}
