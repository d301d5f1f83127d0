/* SPDX-License-Identifier: Apache-2.0
 *
 * members_read.c: collects the members of a sample and makes them the values of a row. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/member_value.h"
#include "ingest/members.h"

typedef struct part {
    bool there;
    size_t at; /* in data; divisible by 8 */
    size_t size;
    char ending[8]; /* the part after the last dot, cut to size */
} part;

typedef struct sample {
    rks_job *job;
    char **endings;    /* endings with which the schema's columns would be exported; NULL if the
                        * schema is inferred */
    bool taken;        /* sample_rate takes the current sample */
    bool key_there;    /* the key has a member of its own */
    int key;           /* column "__key__", or -1 */
    rks_buffer name;   /* name of the sample, or of a refused member */
    rks_buffer base;   /* the sample's key */
    rks_error refused; /* error of the first refused member; status RKS_OK if none */
    rks_buffer data;   /* the members' bytes */
    rks_buffer store;  /* converted values */
    part *parts;       /* one a column */
    rks_value *values;
    rks_member_value *made;
} sample;

static rks_status set_text(rks_buffer *text, const char *from, rks_error *err)
{
    text->size = 0;
    return rks_buffer_add(text, from, strlen(from) + 1, err);
}

static rks_status begin_sample(sample *at, const rks_members *members, rks_error *err)
{
    uint32_t columns = rks_schema_columns(at->job->schema);
    memset(at->parts, 0, columns * sizeof(*at->parts));
    at->data.size = at->store.size = 0;
    at->refused.status = RKS_OK;
    at->key_there = false;
    at->taken = rks_job_is_sampled(at->job);
    rks_status status = set_text(&at->base, members->current, err);
    return status == RKS_OK ? set_text(&at->name, members->current, err) : status;
}

static int column_of(const sample *at, const rks_members *members, const char *lower)
{
    const rks_schema *schema = at->job->schema;
    const char *ending = members->member.name + members->base + 1;
    int found = rks_schema_find(schema, ending);
    for (uint32_t i = 0; found < 0 && at->endings != NULL && i < rks_schema_columns(schema); i++)
        if (strcmp(at->endings[i], ending) == 0)
            found = (int)i;
    return found < 0 ? rks_schema_find(schema, lower) : found;
}

/* Reads a member that holds the sample's key. */
static rks_status read_key_member(sample *at, rks_members *members, bool *refused, rks_error *err)
{
    size_t place = at->data.size;
    *refused = at->key_there;
    if (*refused)
        return rks_fail(err, RKS_ERR_DATA, 0, "the sample's key appears twice");
    at->key_there = true;
    rks_status status = rks_member_load(members, at->job->max_sample, &at->data, refused, err);
    at->base.size = 0;
    if (status == RKS_OK)
        status = rks_buffer_add(&at->base, at->data.data + place, at->data.size - place, err);
    at->data.size = place;
    return status == RKS_OK ? rks_buffer_add(&at->base, "", 1, err) : status;
}

/* Collects a member; sets *refused if the member is to blame. */
static rks_status collect(sample *at, rks_members *members, bool *refused, rks_error *err)
{
    char column[256];
    rks_status status = rks_member_column(members, column, err);
    *refused = status == RKS_ERR_DATA;
    if (status != RKS_OK)
        return status;
    int found = column_of(at, members, column);
    if ((found < 0 || found == at->key) && rks_member_holds_key(column))
        return read_key_member(at, members, refused, err);
    *refused =
        found < 0 ? rks_job_refuses_extra(at->job) : found == at->key || at->parts[found].there;
    if (*refused && found < 0)
        return rks_fail_no_column(at->job->schema_from, NULL, column, err);
    if (*refused)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%.64s\" appears twice", column);
    if (found < 0)
        return RKS_OK;
    size_t place = rks_round_up(at->data.size, 8);
    status = rks_buffer_reserve(&at->data, place - at->data.size + 1, err);
    if (status != RKS_OK)
        return status;
    at->data.size = place;
    status = rks_member_load(members, at->job->max_sample, &at->data, refused, err);
    at->parts[found] = (part){.there = true, .at = place, .size = at->data.size - place};
    snprintf(at->parts[found].ending, sizeof(at->parts[found].ending), "%s",
             rks_member_ending(column));
    return status;
}

static rks_status add_member(sample *at, rks_members *members, rks_error *err)
{
    bool refused = false;
    if (!at->taken || at->refused.status != RKS_OK)
        return RKS_OK;
    rks_status status = collect(at, members, &refused, err);
    if (status == RKS_OK || !refused)
        return status;
    at->refused = *err;
    return set_text(&at->name, members->member.name, err);
}

static rks_status make_value(sample *at, uint32_t i, rks_error *err)
{
    const rks_column *column = rks_schema_column(at->job->schema, i);
    rks_member_value *made = &at->made[i];
    *made = (rks_member_value){0};
    if ((int)i == at->key) {
        made->value = rks_blob_value(at->base.data, at->base.size - 1);
        return RKS_OK;
    }
    if (at->parts[i].there)
        return rks_member_value_make(column, at->parts[i].ending, at->data.data + at->parts[i].at,
                                     at->parts[i].size, &at->store, made, err);
    if (at->job->schema_from != RKS_SCHEMA_GIVEN && column->kind == RKS_KIND_JSON &&
        !column->nullable)
        made->value = rks_blob_value("null", 4);
    else if (!column->nullable)
        return rks_fail(err, RKS_ERR_DATA, 0, "column \"%s\" (%s) is missing", column->name,
                        column->type);
    return RKS_OK;
}

/* Offers the sample. All members are in `data`, which no longer moves. */
static rks_status offer(sample *at, rks_error *err)
{
    uint32_t columns = rks_schema_columns(at->job->schema);
    if (at->refused.status != RKS_OK) {
        *err = at->refused;
        return (rks_status)err->status;
    }
    rks_status status = RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < columns; i++)
        status = make_value(at, i, err);
    if (status != RKS_OK)
        return status;
    for (uint32_t i = 0; i < columns; i++) {
        at->values[i] = at->made[i].value;
        if (at->made[i].stored)
            at->values[i].data = at->store.data + at->made[i].place;
    }
    return rks_job_emit(at->job, at->values, err);
}

static rks_status end_sample(sample *at, const rks_members *members, rks_error *err)
{
    rks_text_clean((char *)at->name.data);
    const rks_place place = {.path = members->file->path, .member = (const char *)at->name.data};
    rks_status status = rks_job_row(at->job, &place, at->taken ? offer(at, err) : RKS_OK, err);
    uint64_t done = rks_archive_taken(members->archive);
    if (status == RKS_OK && done > at->job->unit->offset)
        status = rks_job_tick(at->job, done - at->job->unit->offset, err);
    return status;
}

static rks_status read_all(sample *at, rks_members *members, rks_error *err)
{
    bool open = false;
    for (;;) {
        rks_status status = rks_members_next(members, err);
        if (status == RKS_OK && open && (members->end || members->first))
            status = end_sample(at, members, err);
        if (status != RKS_OK || members->end)
            return status;
        if (members->first)
            status = begin_sample(at, members, err);
        open = true;
        if (status == RKS_OK)
            status = add_member(at, members, err);
        if (status != RKS_OK)
            return status;
    }
}

/* Notes what was skipped beside the lines about malformed rows. */
static rks_status note_macos(rks_job *job, const rks_members *members, rks_error *err)
{
    if (members->macos == 0)
        return RKS_OK;
    rks_error note;
    rks_status turn = rks_job_wait_turn(job, err); /* lines come in the order of units */
    if (turn != RKS_OK)
        return turn;
    rks_fail(&note, RKS_ERR_DATA, 0,
             "%s: not read, for macOS alone (__MACOSX/, ._NAME, .DS_Store): %" PRIu64,
             members->file->path, members->macos);
    return rks_job_list(job, note.text, err);
}

static rks_status spell_endings(sample *at, rks_error *err)
{
    uint32_t columns = rks_schema_columns(at->job->schema);
    at->endings = rks_alloc(columns, sizeof(*at->endings), err);
    rks_status status = at->endings == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < columns; i++) {
        rks_buffer ending = {0};
        status = rks_member_ending_of(rks_schema_column(at->job->schema, i), &ending, err);
        at->endings[i] = (char *)ending.data;
    }
    return status;
}

static void free_endings(sample *at)
{
    for (uint32_t i = 0; at->endings != NULL && i < rks_schema_columns(at->job->schema); i++)
        rks_free(at->endings[i]);
    rks_free(at->endings);
}

rks_status rks_members_read(rks_job *job, rks_error *err)
{
    uint32_t columns = rks_schema_columns(job->schema);
    rks_members members = {0};
    sample at = {
        .job = job,
        .key = rks_schema_find(job->schema, "__key__"),
    };
    rks_status status = RKS_ERR_MEMORY;
    at.parts = rks_alloc(columns, sizeof(*at.parts), err);
    at.values = at.parts == NULL ? NULL : rks_alloc(columns, sizeof(*at.values), err);
    at.made = at.values == NULL ? NULL : rks_alloc(columns, sizeof(*at.made), err);
    if (at.made != NULL)
        status = job->schema_from == RKS_SCHEMA_INFERRED ? RKS_OK : spell_endings(&at, err);
    if (status == RKS_OK)
        status = rks_members_open(&members, job->input, job->unit, err);
    if (status == RKS_OK)
        status = read_all(&at, &members, err);
    if (status == RKS_OK)
        status = note_macos(job, &members, err);
    rks_members_close(&members);
    free_endings(&at);
    rks_free(at.made);
    rks_free(at.values);
    rks_free(at.parts);
    rks_buffer_free(&at.store);
    rks_buffer_free(&at.data);
    rks_buffer_free(&at.base);
    rks_buffer_free(&at.name);
    return status;
}
