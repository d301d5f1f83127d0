/* SPDX-License-Identifier: Apache-2.0
 *
 * csv_record.c: finds newlines and quotes with memchr. A record is searched once for its end and
 * once for its fields. */
#include "ingest/csv_record.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "codec/input_file.h"

enum { CHUNK = 128 << 10 }; /* stays in the cache between reading and searching */

rks_status rks_csv_open(rks_csv *csv, const rks_input_file *file, uint64_t offset, uint64_t size,
                        uint64_t limit, rks_error *err)
{
    *csv = (rks_csv){.limit = limit};
    return rks_window_open(&csv->window, file, offset, size, err);
}

void rks_csv_close(rks_csv *csv)
{
    rks_window_close(&csv->window);
}

/* Continues the search in bytes[scan->at, size) for the newline that ends a record. Returns true if
 * it is found. */
static bool find_end(const uint8_t *bytes, size_t size, rks_csv_scan *scan)
{
    while (scan->at < size) {
        const uint8_t *from = bytes + scan->at;
        if (scan->inside) {
            const uint8_t *quote = memchr(from, '"', size - scan->at);
            scan->at = quote == NULL ? size : (size_t)(quote - bytes) + 1;
            scan->inside = quote == NULL;
            continue;
        }
        if (scan->quoted_to <= scan->at) {
            const uint8_t *quote = memchr(from, '"', size - scan->at);
            scan->quoted_to = (quote == NULL ? size : (size_t)(quote - bytes)) + 1;
        }
        const uint8_t *newline = memchr(from, '\n', scan->quoted_to - 1 - scan->at);
        if (newline != NULL) {
            scan->at = (size_t)(newline - bytes);
            return true;
        }
        bool quote = scan->quoted_to <= size;
        scan->at = quote ? scan->quoted_to : size;
        scan->inside = quote;
        scan->quoted |= quote;
    }
    return false;
}

/* Reads more bytes; keeps the position of the search. */
static rks_status read_ahead(rks_csv *csv, rks_error *err)
{
    size_t looked = csv->scan.at - csv->window.begin;
    rks_status status = rks_window_fill(&csv->window, err);
    csv->scan.at = csv->window.begin + looked;
    csv->scan.quoted_to = 0;
    return status;
}

static void emit(rks_csv *csv, size_t size, size_t step, rks_csv_record *record)
{
    uint8_t *text;
    rks_window_trim(&csv->window, &text, &size);
    *record = (rks_csv_record){
        .text = text, .size = size, .too_long = size > csv->limit, .quoted = csv->scan.quoted};
    rks_window_pass(&csv->window, step);
}

/* Skips a record above the limit. */
static rks_status discard(rks_csv *csv, rks_csv_record *record, rks_error *err)
{
    rks_window *window = &csv->window;
    uint64_t begin = window->position;
    bool found = false;
    while (!found) { /* all bytes searched so far belong to the record */
        rks_window_pass(window, csv->scan.at - window->begin);
        if (window->begin == window->filled) {
            if (window->ended)
                break;
            rks_status status = read_ahead(csv, err);
            if (status != RKS_OK)
                return status;
        }
        found = find_end(window->data, window->filled, &csv->scan);
    }
    size_t looked = csv->scan.at - window->begin;
    *record = (rks_csv_record){.text = window->data, .too_long = true};
    record->size = (size_t)(window->position - begin) + looked;
    rks_window_pass(window, looked + found);
    return RKS_OK;
}

rks_status rks_csv_next(rks_csv *csv, rks_csv_record *record, rks_error *err)
{
    rks_window *window = &csv->window;
    *record = (rks_csv_record){0};
    if (window->position >= window->stop)
        return rks_window_unchanged(window, err);
    csv->scan.at = window->begin;
    csv->scan.inside = csv->scan.quoted = false;
    for (;;) {
        size_t left = window->filled - window->begin;
        if (find_end(window->data, window->filled, &csv->scan)) {
            size_t size = csv->scan.at - window->begin;
            emit(csv, size, size + 1, record);
            return RKS_OK;
        }
        if (window->ended && left > 0)
            emit(csv, left, left, record);
        if (window->ended)
            return RKS_OK; /* a packed file's end is known only now */
        if (rks_window_above(window, csv->limit))
            return discard(csv, record, err);
        rks_status status = read_ahead(csv, err);
        if (status != RKS_OK)
            return status;
    }
}

/* Reads a quoted field; *at is after its first quote. */
static rks_status read_quoted(uint8_t *text, size_t size, size_t *at, char separator,
                              rks_csv_field *field, size_t number, rks_error *err)
{
    size_t from = *at, to = *at;
    field->quoted = true;
    field->text = (const char *)text + from;
    for (;;) {
        const uint8_t *quote = memchr(text + from, '"', size - from);
        if (quote == NULL)
            return rks_fail(err, RKS_ERR_DATA, 0, "field %zu: its quote is not closed", number);
        size_t span = (size_t)(quote - text) - from;
        bool doubled = from + span + 1 < size && text[from + span + 1] == '"';
        if (to != from)
            memmove(text + to, text + from, span + doubled);
        to += span + doubled;
        from += span + 1 + doubled;
        if (!doubled)
            break;
    }
    field->size = (size_t)((const char *)text + to - field->text);
    *at = from;
    if (from < size && text[from] != (uint8_t)separator)
        return rks_fail(err, RKS_ERR_DATA, 0, "field %zu: text after its closing quote", number);
    return RKS_OK;
}

rks_status rks_csv_fields(rks_csv_record *record, char separator, rks_csv_field *fields,
                          size_t room, size_t *count, rks_error *err)
{
    uint8_t *text = record->text;
    size_t at = 0, number = 0, size = record->size;
    for (;;) {
        /* Made in place: copying what was just written would stall. */
        rks_csv_field unused, *field = number < room ? &fields[number] : &unused;
        field->text = (const char *)text + at;
        field->quoted = false;
        number++;
        if (at < size && text[at] == '"') {
            at++;
            rks_status status = read_quoted(text, size, &at, separator, field, number, err);
            if (status != RKS_OK)
                return status;
        } else {
            const uint8_t *end = at < size ? memchr(text + at, separator, size - at) : NULL;
            field->size = end == NULL ? size - at : (size_t)(end - text) - at;
            if (record->quoted && field->size > 0 && memchr(field->text, '"', field->size) != NULL)
                return rks_fail(err, RKS_ERR_DATA, 0,
                                "field %zu: a quote in a field that is not in quotes; put it in "
                                "quotes, and double "
                                "those inside: \"a \"\"x\"\" b\"",
                                number);
            at += field->size;
        }
        if (at == size)
            break;
        at++; /* the separator */
    }
    *count = number;
    return RKS_OK;
}

/* Returns true if the bytes hold an odd number of quotes. The compiler vectorises this. */
static bool odd_quotes(const uint8_t *bytes, size_t size)
{
    uint8_t odd = 0;
    for (size_t i = 0; i < size; i++)
        odd ^= bytes[i] == '"';
    return odd != 0;
}

rks_status rks_csv_cuts(const rks_input_file *file, uint64_t unit_size,
                        rks_status (*cut)(void *user, uint64_t offset, rks_error *err), void *user,
                        rks_error *err)
{
    rks_input_handle *handle = NULL;
    rks_csv_scan scan = {0};
    uint64_t base = 0, next = unit_size;
    uint8_t *room = rks_alloc_raw(CHUNK + RKS_FILE_PAGE, 1, err);
    uint8_t *bytes = room == NULL ? NULL : rks_file_place(room, 0); /* chunks are whole pages */
    rks_status status = room == NULL ? RKS_ERR_MEMORY : rks_input_file_open(file, &handle, err);
    while (status == RKS_OK && base < file->size && next < file->size) {
        size_t got = 0, at = 0;
        scan.quoted_to = 0;
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_input_file_read(file, handle, base, bytes, CHUNK, &got, err);
        while (status == RKS_OK && at < got) {
            /* Before the place where the search for a cut begins, only the parity of quotes
             * matters. */
            if (base + at < next - 1) {
                uint64_t span = next - 1 - (base + at);
                size_t to = span < got - at ? at + (size_t)span : got;
                scan.inside ^= odd_quotes(bytes + at, to - at);
                at = to;
                continue;
            }
            scan.at = at;
            if (!find_end(bytes, got, &scan))
                break;
            at = scan.at + 1;
            uint64_t offset = base + at;
            if (offset < file->size)
                status = cut(user, offset, err);
            while (next <= offset)
                next += unit_size < UINT64_MAX - next ? unit_size : UINT64_MAX - next;
        }
        base += got;
    }
    rks_input_file_close(handle);
    rks_free(room);
    return status;
}
