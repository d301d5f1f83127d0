/* SPDX-License-Identifier: Apache-2.0
 *
 * json_rows.c: infers a schema from JSON objects, and reads objects by a schema. */
#include "ingest/json_rows.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/row.h"

enum { PLACE_ROOM = 16 }; /* for ":LINE: " and the text before the advice */

void rks_json_looking_free(rks_json_looking *looking)
{
    rks_json_parser_free(&looking->parser);
    rks_guesses_free(&looking->all);
}

rks_status rks_json_look(rks_json_looking *at, const rks_line *line, uint64_t row, bool *counts,
                         rks_error *err)
{
    rks_json object = {0};
    rks_status status;
    if (line->too_long)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%zu bytes, above max_sample (%" PRIu64 ")",
                          line->size, at->input->max_sample);
    else if (rks_line_is_blank(line->text, line->size))
        return RKS_OK;
    else
        status = rks_json_line(&at->parser, line->text, line->size, line->readable, &object, err);
    if (status == RKS_ERR_DATA && at->input->skip_bad)
        return RKS_OK; /* reading the unit counts and lists it */
    at->all.flatten = at->input->flatten;
    if (status == RKS_OK)
        status = rks_guesses_add(&at->all, object, row, err);
    *counts = status == RKS_OK;
    return status;
}

rks_status rks_json_looked(rks_json_looking *at, uint64_t samples, const char *path,
                           char **schema_text, rks_error *err)
{
    rks_error why = {0};
    if (at->all.count > 0) {
        rks_status status = rks_guesses_text(&at->all, samples, schema_text, &why);
        return status == RKS_OK ? status
                                : rks_fail(err, status, why.cause, "%s: %s", path, why.text);
    }
    return samples == 0
               ? RKS_OK
               : rks_fail(err, RKS_ERR_DATA, 0, "%s: objects without a member; give schema", path);
}

/* Returns a line's own schema as canonical text; NULL if it has none. */
static char *schema_of_line(const rks_job *job, rks_row *row, const rks_line *line)
{
    rks_guesses guesses = {.flatten = job->input->flatten};
    rks_json object = {0};
    char *seen = NULL;
    if (rks_json_line(&row->parser, line->text, line->size, line->readable, &object, NULL) ==
            RKS_OK &&
        rks_guesses_add(&guesses, object, 0, NULL) == RKS_OK && guesses.count > 0)
        rks_guesses_text(&guesses, 1, &seen, NULL);
    rks_guesses_free(&guesses);
    return seen;
}

/* Returns "a:int64,b:str?" for a canonical schema; NULL if it has no column. */
static char *schema_as_given(const char *canonical)
{
    rks_schema *schema = NULL;
    rks_buffer text = {0};
    rks_status status = rks_schema_parse(canonical, &schema, NULL);
    for (uint32_t i = 0; status == RKS_OK && i < rks_schema_columns(schema); i++) {
        const rks_column *column = rks_schema_column(schema, i);
        status =
            rks_buffer_print(&text, NULL, "%s%s:%s", i == 0 ? "" : ",", column->name, column->type);
    }
    char *made = status == RKS_OK && text.size > 0
                     ? rks_format(NULL, "%.*s", (int)text.size, (char *)text.data)
                     : NULL;
    rks_buffer_free(&text);
    rks_schema_free(schema);
    return made;
}

/* Returns the schema that the line would fit, too, in the form of the option schema; NULL if there
 * is none. */
static char *wider_schema(const rks_job *job, rks_row *row, const rks_line *line)
{
    char *seen = schema_of_line(job, row, line), *wide = NULL, *made = NULL;
    if (seen != NULL && rks_ingest_merge(rks_schema_text(job->schema), seen, &wide, NULL) == RKS_OK)
        made = schema_as_given(wide);
    rks_free(wide);
    rks_free(seen);
    return made;
}

/* Fails a line that does not fit an inferred schema, and shows the schema that it would fit. */
static rks_status advise(rks_job *job, rks_row *row, const rks_line *line, rks_error *err)
{
    static const char GIVE[] = "give schema";
    rks_error inner = *err;
    rks_status turn = rks_job_wait_turn(job, err); /* only one unit may keep a schema */
    if (turn != RKS_OK)
        return turn;
    char *wide = wider_schema(job, row, line);
    if (wide == NULL)
        return RKS_ERR_DATA;
    const rks_ingest_progress *progress = job->progress;
    size_t size = strlen(inner.text), tail = sizeof(GIVE) - 1;
    bool said = size > tail && strcmp(inner.text + size - tail, GIVE) == 0;
    /* The place is put before the text later. */
    size_t place = strlen(job->input->files[job->unit->first_file].path) + PLACE_ROOM;
    bool fits = place + size + tail + strlen(wide) < sizeof(err->text);
    char *kept = fits || progress == NULL || progress->keep_schema == NULL
                     ? NULL
                     : progress->keep_schema(progress->user, wide);
    const char *quote = kept == NULL ? "'" : "";
    rks_status status =
        rks_fail(err, RKS_ERR_DATA, inner.cause, "%s%s %s%s%s", inner.text,
                 said ? "" : "; give schema", quote, kept == NULL ? wide : kept, quote);
    rks_free(kept);
    rks_free(wide);
    return status;
}

rks_status rks_json_row_create(const rks_job *job, rks_row **row, rks_error *err)
{
    rks_status status = rks_row_create(job->schema, job->schema_from, row, err);
    if (status == RKS_OK) {
        const char *extra = job->options->extra;
        (*row)->flatten = job->input->flatten;
        (*row)->refuses_extra = rks_job_refuses_extra(job);
        if (extra != NULL && strcmp(extra, "json") == 0)
            (*row)->extra_column = rks_schema_find(job->schema, RKS_EXTRA_COLUMN);
    }
    return status;
}

rks_status rks_json_take(rks_job *job, rks_row *row, const rks_line *line, rks_error *err)
{
    if (rks_line_is_blank(line->text, line->size))
        return RKS_OK;
    rks_status status = rks_row_parse(row, line->text, line->size, line->readable, err);
    if (status == RKS_ERR_DATA && job->schema_from == RKS_SCHEMA_INFERRED && !job->skip_bad)
        return advise(job, row, line, err);
    return status == RKS_OK ? rks_job_emit(job, row->values, err) : status;
}
