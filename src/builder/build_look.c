/* SPDX-License-Identifier: Apache-2.0
 *
 * build_look.c: what a build finds out before it writes: its input, the directory, the schema. */
#include <stdio.h>
#include <stdlib.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "builder/build_state.h"
#include "builder/resume_state.h"
#include "ingest/item_count.h"
#include "dataset/build_directory.h"
#include "dataset/length_description.h"
#include "ingest/format.h"
#include "ingest/rows.h"

/* What a rank reports about the input, after the values that must be the same. */
enum { FACT_INFERRED = RKS_BUILD_SAME, FACT_RECORDED, FACT_FOUND, FACTS };

/* Takes over the rules of `counts`; others would count one column in two ways. */
static rks_status inherit_counts(rks_build_state *b, rks_error *err)
{
    rks_build_options *o = &b->options;
    size_t count = 0;
    bool equal = true;
    rks_status status = rks_recorded_counts(b->base_options, &b->counts, &count, err);
    if (status == RKS_OK && o->counts_count > 0 && count > 0)
        status = rks_item_counts_equal(o->counts, o->counts_count, b->counts, count, &equal, err);
    if (status == RKS_OK && !equal)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "count: the dataset counts by other rules (%s%s); leave the option out",
                        b->counts[0], count > 1 ? ", ..." : "");
    if (status == RKS_OK && o->counts_count == 0) {
        o->counts = b->counts;
        o->counts_count = count;
    }
    return status;
}

/* An append may measure otherwise, as a tokenizer of its own does. Plans then mix both. */
static void tell_other_lengths(const rks_build_state *b, const rks_recorded_length *recorded,
                               const char *key)
{
    const rks_build_options *o = &b->options;
    char words[RKS_LENGTH_WORDS], unit[16] = "";
    const char *name = rks_recorded_length_name(recorded, b->base->schema, key);
    if (o->length == NULL || rks_group_rank(b->group) != 0 ||
        (name != NULL && strcmp(o->length, name) == 0 &&
         (recorded->unit == 0 || recorded->unit == o->length_unit)))
        return;
    rks_dataset_length_words(b->base, words);
    if (o->length_unit > 1)
        snprintf(unit, sizeof(unit), " / %" PRIu32, o->length_unit);
    rks_log(
        "%s: the samples that are added are measured by %s%s, those that are there by %s; plans "
        "take both as they are",
        b->directory, o->length, unit, words);
}

/* COLLECTIVE. Options of an append default to the dataset's. Returns this rank's own status. */
static rks_status inherit(rks_build_state *b, const rks_agreed *agreed, rks_status status,
                          rks_error *err)
{
    rks_build_options *o = &b->options;
    rks_error none = {0};
    rks_status found =
        rks_store_settle_found(b->group, agreed, FACT_FOUND, &b->found, &b->base, &none);
    if (found == RKS_ERR_NOT_FOUND || status != RKS_OK)
        return status;
    if (found != RKS_OK) {
        if (err != NULL)
            *err = none;
        return found;
    }
    b->base_options = json_loads(b->base->build_options, 0, NULL);
    const char *key = json_string_value(json_object_get(b->base_options, "key"));
    const rks_recorded_length recorded = rks_recorded_length_read(b->base_options);
    if (key != NULL && key[0] != '\0' && b->given_key != NULL && b->given_key[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "key: the dataset's keys are those of its column \"%s\"; keys of path and "
                        "row (key='') cannot be appended to it: leave the option out",
                        key);
    o->key = o->key != NULL || o->own_keys ? o->key : key;
    /* The commit refuses another schema; its columns may not hold what is measured. */
    bool other = b->schema != NULL &&
                 strcmp(rks_schema_text(b->schema), rks_schema_text(b->base->schema)) != 0;
    if (!other)
        tell_other_lengths(b, &recorded, key);
    if (o->length == NULL && o->length_fn == NULL && !other) {
        o->length = recorded.name;
        o->length_unit = recorded.unit != 0 ? recorded.unit : o->length_unit;
    }
    status = inherit_counts(b, err);
    if (status == RKS_OK && o->schema == NULL) {
        b->input->keeps_schema = true;
        status = rks_schema_parse(rks_schema_text(b->base->schema), &b->schema, err);
    }
    if (o->index_count == 0) {
        o->index = (const char *const *)b->base->index;
        o->index_count = b->base->index_count;
    }
    return status;
}

static rks_status inferred_status(const rks_build_state *b, rks_error *err)
{
    if (b->infer_status != RKS_OK && err != NULL)
        *err = b->infer_error;
    return b->infer_status;
}

static rks_status look_at_files(rks_build_state *b, rks_error *err)
{
    if (b->source->path_count == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no source given");
    rks_status status =
        rks_input_look(b->source->paths, b->source->path_count, &b->options, &b->input, err);
    if (status == RKS_OK)
        status = rks_input_choose_deal(b->input, rks_group_size(b->group), err);
    if (status != RKS_OK)
        return status;
    b->input_digest = rks_input_digest(b->input);
    b->page_cache = rks_page_cache_look(b->input);
    return RKS_OK;
}

static rks_status look_at_rows(rks_build_state *b, rks_error *err)
{
    rks_build_options *o = &b->options;
    if (o->schema == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: an input of rows needs one");
    if (o->own_keys && o->key != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "key: column \"%s\" is named, but own_keys is set", o->key);
    if (o->own_lengths && (o->length != NULL || o->length_fn != NULL || o->filter != NULL))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "own_lengths cannot be used together with length, length_fn or filter");
    rks_status status = rks_rows_open(b->source->ops, b->source->object, &b->input, err);
    if (status == RKS_OK && o->own_lengths)
        rks_rows_own_lengths(b->input, &o->length_fn, &o->callback_user);
    if (o->source != NULL)
        b->input_digest = rks_checksum128(o->source, strlen(o->source));
    return status;
}

rks_status rks_build_look(rks_build_state *b, const char *directory, rks_error *err)
{
    const rks_build_options *o = &b->options;
    if (o->append && o->replace)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "append and replace cannot be used together");
    rks_status status = rks_directory_expand_target(b->group, directory, &b->directory, err);
    if (status == RKS_OK)
        status = b->source->ops != NULL ? look_at_rows(b, err) : look_at_files(b, err);
    if (status != RKS_OK)
        return status;
    status = rks_build_options_text(o, &b->options_text, err);
    if (status == RKS_OK && o->schema != NULL)
        status = rks_input_schema(o, o->schema, &b->schema, err);
    if (status != RKS_OK)
        return status;
    if (o->append) {
        rks_store_look(b->directory, 0, &b->found);
        status = rks_store_dataset_description(&b->found, &b->described, err);
        if (status != RKS_OK)
            return status;
    }
    if (o->schema == NULL && b->described.found == 0)
        b->infer_status = rks_input_infer(b->group, b->input, &b->inferred, &b->infer_error);
    if (!o->append) /* else another rank may know the schema */
        status = inferred_status(b, err);
    return status == RKS_OK && b->source->ops == NULL
               ? rks_resume_collect(b->directory, o->replace, &b->recorded, err)
               : status;
}

rks_status rks_build_agree(rks_build_state *b, rks_status status, rks_agreed *agreed,
                           rks_error *err)
{
    rks_fact facts[FACTS];
    const char *what = b->source->ops != NULL ? "source" : "the list of input files";
    rks_build_same(facts, what, &b->input_digest, b->schema, &b->options, b->options_text);
    facts[FACT_INFERRED] = rks_input_inferred(b->group, b->inferred);
    facts[FACT_RECORDED] = rks_fact_bytes(b->recorded.data, b->recorded.size,
                                          rks_group_size(b->group) * RKS_RESUME_MAX);
    facts[FACT_FOUND] = rks_fact_fixed(&b->described, sizeof(b->described));
    return rks_group_agree_on(b->group, "build: input", status, facts, FACTS, agreed, err);
}

/* Sets unit size and inferred schema to those of this build's work in a directory, if there is
 * some; else, for an append, the unit size of the dataset. Cuts the input by it. */
static rks_status keep_own(rks_build_state *b, rks_error *err)
{
    rks_build_options *o = &b->options;
    rks_schema *schema = NULL;
    const rks_resume_request request = {.input = b->input,
                                        .unit_size = o->unit_size,
                                        .schema = b->schema,
                                        /* a schema of all rows is preferred to one of some rows */
                                        .schema_given = o->schema != NULL || b->base != NULL ||
                                                        b->input->infer_all,
                                        .options_text = b->options_text};
    rks_status status = rks_resume_find(&request, &b->recorded, &schema, err);
    if (status == RKS_OK && schema != NULL && o->replace) {
        rks_schema_free(schema); /* of what the files held before, which may be something else */
    } else if (status == RKS_OK && schema != NULL) {
        rks_schema_free(b->schema);
        b->schema = schema;
    } else if (status == RKS_OK && o->unit_size == 0) {
        uint64_t bytes = b->input->bytes;
        uint64_t size = b->base == NULL ? rks_unit_size_for(bytes)
                                        : rks_resume_append_size(b->base->unit_size, bytes);
        if (size != b->input->unit_size)
            status = rks_input_cut(b->input, size, err);
    } else if (status == RKS_OK && o->unit_size != b->input->unit_size) {
        status = rks_input_cut(b->input, o->unit_size, err);
    }
    o->unit_size = b->input->unit_size;
    return status;
}

/* Joins what all directories hold, and the ranks' schemas if none is given and nothing is appended
 * to. */
static rks_status join_looks(rks_build_state *b, const rks_agreed *agreed, rks_error *err)
{
    rks_status status = rks_resume_join(b->group, agreed, FACT_RECORDED, &b->recorded, err);
    if (status != RKS_OK || b->options.schema != NULL ||
        !rks_store_none_found(b->group, agreed, FACT_FOUND))
        return status;
    status = inferred_status(b, err);
    return status == RKS_OK ? rks_input_join(b->input, agreed, FACT_INFERRED, &b->schema_text, err)
                            : status;
}

/* For a build that appends to nothing. */
static rks_status choose_key_and_length(rks_build_state *b, rks_error *err)
{
    rks_input_key(b->input, b->given_key, b->schema, &b->options);
    const char *length = rks_build_default_length(b->schema, &b->options);
    if (length == NULL)
        return RKS_OK;
    b->length = rks_strdup(length, err); /* keep_own frees the schema */
    b->options.length = b->length;
    return b->length == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* Completes the options with what was inherited or inferred. */
static rks_status settle_options(rks_build_state *b, rks_error *err)
{
    rks_status status = RKS_OK;
    if (b->schema == NULL)
        status = rks_input_schema(&b->options, b->schema_text, &b->schema, err);
    if (status == RKS_OK && b->base == NULL)
        status = choose_key_and_length(b, err);
    if (status != RKS_OK)
        return status;
    rks_free(b->options_text);
    b->options_text = NULL;
    status = rks_build_options_text(&b->options, &b->options_text, err);
    if (status == RKS_OK && b->source->ops == NULL)
        status = keep_own(b, err);
    if (status != RKS_OK)
        return status;
    rks_ingest_options reading = rks_build_ingest_options(&b->options);
    if (b->base != NULL && reading.length == NULL && reading.length_fn == NULL) {
        const rks_recorded_length none = {0};
        reading.length = rks_recorded_length_name(&none, b->schema, b->options.key);
    }
    return rks_selector_create(b->schema, &reading, &b->selector, err);
}

rks_status rks_build_choose(rks_build_state *b, const rks_agreed *agreed, rks_error *err)
{
    rks_status status = join_looks(b, agreed, err);
    if (b->options.append) /* it may make agreements, so every rank calls it */
        status = inherit(b, agreed, status, err);
    return status == RKS_OK ? settle_options(b, err) : status;
}
