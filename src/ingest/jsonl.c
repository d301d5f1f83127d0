/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonl.c: a JSON object a line (row.h). */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/by_line.h"
#include "ingest/guess.h"
#include "ingest/row.h"

static bool is_jsonl_name(const char *name)
{
    return rks_name_ends(name, ".jsonl") || rks_name_ends(name, ".ndjson") ||
           rks_name_ends(name, ".json");
}

static bool looks_like_jsonl(const uint8_t *bytes, size_t size, bool all)
{
    size_t at = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < size && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r')))
        at++;
    return at < size && bytes[at] == '{' && rks_bytes_are_text(bytes, size, all);
}

typedef struct looking {
    const rks_input *input;
    rks_guesses all;
    rks_json_parser parser;
} looking;

static rks_status look_at_line(void *user, const rks_line *line, uint64_t row, bool *counts,
                               rks_error *err)
{
    looking *at = user;
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
        return RKS_OK; /* it is counted and listed when it is read */
    if (status == RKS_OK)
        status = rks_guesses_add(&at->all, object, row, err);
    *counts = status == RKS_OK;
    return status;
}

static rks_status infer_jsonl(const rks_input *input, size_t unit, char **schema_text,
                              rks_error *err)
{
    looking at = {.input = input};
    uint64_t samples = 0;
    rks_status status = rks_by_line_look(input, unit, look_at_line, &at, &samples, err);
    if (status == RKS_OK && at.all.count > 0)
        status = rks_guesses_text(&at.all, samples, schema_text, err);
    else if (status == RKS_OK && samples > 0)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: objects without a member; give --schema",
                          input->files[input->units[unit].first_file].path);
    rks_json_parser_free(&at.parser);
    rks_guesses_free(&at.all);
    return status;
}

/* The schema that a line would fit too, as the user can give it: "a:int64,b:str?"; NULL where there
 * is none. */
static char *wider_schema(const rks_job *job, rks_row *row, const rks_line *line)
{
    rks_guesses guesses = {0};
    rks_json object = {0};
    char *seen = NULL, *wide = NULL;
    rks_schema *schema = NULL;
    rks_buffer text = {0};
    rks_status status = rks_json_line(&row->parser, line->text, line->size, line->readable, &object,
                                      NULL);
    if (status == RKS_OK)
        status = rks_guesses_add(&guesses, object, 0, NULL);
    if (status == RKS_OK && guesses.count > 0)
        status = rks_guesses_text(&guesses, 1, &seen, NULL);
    if (status == RKS_OK && seen != NULL)
        status = rks_ingest_merge(rks_schema_text(job->schema), seen, &wide, NULL);
    if (status == RKS_OK && wide != NULL)
        status = rks_schema_parse(wide, &schema, NULL);
    for (uint32_t i = 0; status == RKS_OK && i < rks_schema_columns(schema); i++) {
        const rks_column *column = rks_schema_column(schema, i);
        status = rks_buffer_print(&text, NULL, "%s%s:%s", i == 0 ? "" : ",", column->name,
                                  column->type);
    }
    char *made = status == RKS_OK && text.size > 0
                     ? rks_format(NULL, "%.*s", (int)text.size, (char *)text.data)
                     : NULL;
    rks_buffer_free(&text);
    rks_schema_free(schema);
    rks_free(wide);
    rks_free(seen);
    rks_guesses_free(&guesses);
    return made;
}

/* A line that does not fit a schema that was inferred: with the one that it would fit. */
static rks_status advise(const rks_job *job, rks_row *row, const rks_line *line, rks_error *err)
{
    static const char GIVE[] = "give --schema";
    rks_error inner = *err;
    char *wide = wider_schema(job, row, line);
    if (wide == NULL)
        return RKS_ERR_DATA;
    size_t size = strlen(inner.text), tail = sizeof(GIVE) - 1;
    bool said = size > tail && strcmp(inner.text + size - tail, GIVE) == 0;
    rks_status status = rks_fail(err, RKS_ERR_DATA, inner.cause, "%s%s '%s'", inner.text,
                                 said ? "" : "; give --schema", wide);
    rks_free(wide);
    return status;
}

static rks_status take_line(rks_job *job, void *user, const rks_line *line, rks_error *err)
{
    rks_row *row = user;
    if (rks_line_is_blank(line->text, line->size))
        return RKS_OK;
    rks_status status = rks_row_parse_in(row, line->text, line->size, line->readable, err);
    if (status == RKS_ERR_DATA && job->schema_from == RKS_SCHEMA_INFERRED && !job->skip_bad)
        return advise(job, row, line, err);
    return status == RKS_OK ? rks_job_offer(job, row->values, err) : status;
}

static rks_status read_jsonl_unit(rks_job *job, rks_error *err)
{
    rks_row *row = NULL;
    rks_status status = rks_row_create(job->schema, job->schema_from, &row, err);
    if (status == RKS_OK)
        status = rks_by_line_read(job, take_line, row, err);
    rks_row_free(row);
    return status;
}

const rks_input_format rks_format_jsonl = {
    .name = "jsonl",
    .is_named = is_jsonl_name,
    .looks_like = looks_like_jsonl,
    .packable = true,
    .utf8 = true,
    .cut = rks_by_line_cut,
    .count_rows = rks_by_line_count,
    .infer = infer_jsonl,
    .read = read_jsonl_unit,
};
