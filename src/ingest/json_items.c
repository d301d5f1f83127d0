/* SPDX-License-Identifier: Apache-2.0
 *
 * json_items.c: follows brackets and strings byte by byte; passes names and items to the parser. */
#include "ingest/json_items.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"

enum { NAME_MOST = 64 << 10, NAMES_SHOWN = 8, NAME_SHOWN = 40, NO_BYTE = -1 };

/* ---- the end of a value ---------------------------------------------------------------------- */

typedef struct scan {
    uint64_t depth; /* depth of brackets */
    bool string;
    bool escaped; /* the byte before was a backslash in a string */
    bool scalar;  /* a number or a word: it ends before its terminator */
    bool ended;
} scan;

static bool is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Returns the bytes of a string from `at` on, with its closing quote. */
static size_t scan_string(scan *s, const uint8_t *at, size_t size)
{
    size_t i = 0;
    if (s->escaped && size > 0) {
        s->escaped = false;
        i = 1;
    }
    for (;;) {
        while (i < size && at[i] != '"' && at[i] != '\\')
            i++;
        if (i >= size)
            return size;
        if (at[i] == '"')
            break;
        s->escaped = i + 1 == size;
        i += 2;
    }
    s->string = false;
    s->ended = s->depth == 0;
    return i + 1;
}

/* Returns how many of the bytes belong to the value: fewer than `size` only if it has ended. */
static size_t scan_value(scan *s, const uint8_t *at, size_t size)
{
    size_t i = 0;
    while (i < size && !s->ended) {
        if (s->string) {
            i += scan_string(s, at + i, size - i);
            continue;
        }
        uint8_t byte = at[i];
        bool closes = byte == ']' || byte == '}';
        if (s->depth == 0 && s->scalar && (closes || byte == ',' || is_space(byte))) {
            s->ended = true;
            return i;
        }
        i++;
        if (byte == '"')
            s->string = true;
        else if (byte == '[' || byte == '{')
            s->depth++;
        else if (closes && s->depth > 0)
            s->ended = --s->depth == 0;
        else if (s->depth == 0)
            s->scalar = true;
    }
    return i;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static rks_status wrong(const rks_json_items *items, const char *what, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: at byte %" PRIu64 ": %s", items->window.file->path,
                    items->window.position, what);
}

/* Finds the next byte that is not a space, without consuming it; NO_BYTE at the end. */
static rks_status peek(rks_json_items *items, int *byte, rks_error *err)
{
    rks_window *w = &items->window;
    for (;;) {
        size_t at = w->begin;
        while (at < w->filled && is_space(w->data[at]))
            at++;
        rks_window_pass(w, at - w->begin);
        if (w->begin < w->filled) {
            *byte = w->data[w->begin];
            return RKS_OK;
        }
        *byte = NO_BYTE;
        if (w->ended)
            return RKS_OK;
        rks_status status = rks_window_fill(w, err);
        if (status != RKS_OK)
            return status;
    }
}

/* Passes the value that starts here. If `item` is not NULL and the value is at most `limit` bytes,
 * *item is the value in the window. */
static rks_status read_value(rks_json_items *items, uint64_t limit, rks_line *item, rks_error *err)
{
    rks_window *w = &items->window;
    scan s = {0};
    size_t looked = 0; /* bytes searched from data[begin] on */
    uint64_t passed = 0;
    bool keep = item != NULL;
    for (;;) {
        looked += scan_value(&s, w->data + w->begin + looked, w->filled - w->begin - looked);
        if (s.ended || (w->ended && s.scalar && s.depth == 0))
            break;
        if (w->ended)
            return wrong(items, "the file ends within a value", err);
        if (!keep || looked > limit) {
            keep = false;
            rks_window_pass(w, looked);
            passed += looked;
            looked = 0;
        }
        rks_status status = rks_window_fill(w, err);
        if (status != RKS_OK)
            return status;
    }
    const uint8_t *text = w->data + w->begin;
    if (item != NULL)
        *item = (rks_line){.text = text,
                           .size = (size_t)passed + looked,
                           .readable = rks_window_readable(w, text),
                           .too_long = passed + looked > limit};
    rks_window_pass(w, looked);
    return RKS_OK;
}

static rks_status expect(rks_json_items *items, uint8_t wanted, const char *what, rks_error *err)
{
    int byte = NO_BYTE;
    rks_status status = peek(items, &byte, err);
    if (status != RKS_OK)
        return status;
    if (byte != wanted)
        return wrong(items, byte == NO_BYTE ? "the file ends here" : what, err);
    rks_window_pass(&items->window, 1);
    return RKS_OK;
}

/* ---- the path -------------------------------------------------------------------------------- */

/* Reads a member's name and its colon. *name is valid until the next one. */
static rks_status read_name(rks_json_items *items, const char **name, size_t *size, rks_error *err)
{
    rks_line text = {0};
    rks_json parsed = {0};
    int byte = NO_BYTE;
    rks_status status = peek(items, &byte, err);
    if (status != RKS_OK)
        return status;
    if (byte != '"')
        return wrong(items, byte == NO_BYTE ? "the file ends here" : "not a member's name", err);
    status = read_value(items, NAME_MOST, &text, err);
    if (status != RKS_OK)
        return status;
    if (text.too_long)
        return wrong(items, "a name of more than 64 KiB", err);
    if (rks_json_read(&items->names, text.text, text.size, text.readable, &parsed, err) != RKS_OK)
        return wrong(items, "not a member's name", err);
    *name = rks_json_text(parsed, size);
    status = expect(items, ':', "no ':' after a name", err);
    return status == RKS_OK ? peek(items, &byte, err) : status; /* moves to the value's start */
}

/* Returns true if the name is the path's name of this level. */
static bool is_level(const rks_json_items *items, uint32_t level, const char *name, size_t size)
{
    const char *at = items->path;
    for (; level > 0; level--)
        at = strchr(at, '.') + 1;
    size_t wanted = strcspn(at, ".");
    return wanted == size && memcmp(at, name, size) == 0;
}

/* After a member: reads a comma (*more) or the object's end. */
static rks_status read_comma(rks_json_items *items, char closing, bool *more, rks_error *err)
{
    int byte = NO_BYTE;
    rks_status status = peek(items, &byte, err);
    if (status != RKS_OK)
        return status;
    *more = byte == ',';
    if (!*more && byte != closing)
        return wrong(items,
                     byte == NO_BYTE  ? "the file ends here"
                     : closing == ']' ? "neither ',' nor ']' after an item"
                                      : "neither ',' nor '}' after a member",
                     err);
    rks_window_pass(&items->window, 1);
    return RKS_OK;
}

/* After a member's name: skips its value, and the comma or the object's end. */
static rks_status pass_member(rks_json_items *items, bool *more, rks_error *err)
{
    rks_status status = read_value(items, 0, NULL, err);
    return status == RKS_OK ? read_comma(items, '}', more, err) : status;
}

/* Appends a member's name to the list in a message: "a, b". */
static rks_status note_name(rks_buffer *names, const char *name, size_t size, rks_error *err)
{
    return rks_buffer_print(names, err, "%s%.*s", names->size == 0 ? "" : ", ",
                            (int)(size < NAME_SHOWN ? size : NAME_SHOWN), name);
}

/* Skips the members of the object that starts here, and lists those that are arrays, or all. */
static rks_status list_members(rks_json_items *items, bool arrays, rks_buffer *names,
                               rks_error *err)
{
    const char *name = NULL;
    size_t size = 0, count = 0;
    bool more = true;
    int byte = NO_BYTE;
    rks_status status = peek(items, &byte, err);
    if (status == RKS_OK && byte == '}')
        return RKS_OK;
    while (status == RKS_OK && more && count < NAMES_SHOWN) {
        status = read_name(items, &name, &size, err);
        if (status == RKS_OK)
            status = peek(items, &byte, err);
        if (status != RKS_OK)
            return status;
        if (byte == '[' || !arrays) {
            status = note_name(names, name, size, err);
            if (status != RKS_OK)
                return status;
            count++;
        }
        status = pass_member(items, &more, err);
    }
    return status;
}

static rks_status fail_no_path(rks_json_items *items, rks_error *err)
{
    rks_buffer names = {0};
    rks_status status = list_members(items, true, &names, err);
    const char *path = items->window.file->path;
    if (status == RKS_OK && names.size == 0)
        status = rks_fail(err, RKS_ERR_DATA, 0,
                          "%s: one object over many lines, and none of its members is an array; "
                          "for an object a line: jq -c . FILE",
                          path);
    else if (status == RKS_OK)
        status = rks_fail(err, RKS_ERR_DATA, 0,
                          "%s: an object, not an array; its members that are arrays: %.*s; name "
                          "the one that holds the samples: json_path=NAME",
                          path, (int)names.size, (const char *)names.data);
    rks_buffer_free(&names);
    return status;
}

/* Moves into the member of this level; its object's bracket was read. `names` collects the members
 * before it. */
static rks_status find_level(rks_json_items *items, uint32_t level, rks_buffer *names,
                             rks_error *err)
{
    const char *name = NULL;
    size_t size = 0;
    bool more = true;
    int byte = NO_BYTE;
    rks_status status = peek(items, &byte, err);
    while (status == RKS_OK && more && byte != '}') {
        status = read_name(items, &name, &size, err);
        if (status != RKS_OK || is_level(items, level, name, size))
            return status;
        if (names->size < NAMES_SHOWN * NAME_SHOWN)
            status = note_name(names, name, size, err);
        if (status == RKS_OK)
            status = pass_member(items, &more, err);
    }
    if (status != RKS_OK)
        return status;
    return rks_fail(err, RKS_ERR_DATA, 0, "%s: there is no member \"%.100s\"; the object has %.*s",
                    items->window.file->path, items->path, names->size == 0 ? 4 : (int)names->size,
                    names->size == 0 ? "none" : (const char *)names->data);
}

static rks_status enter_level(rks_json_items *items, uint32_t level, rks_error *err)
{
    rks_buffer names = {0};
    rks_status status = expect(items, '{', "not an object, which json_path needs", err);
    if (status == RKS_OK)
        status = find_level(items, level, &names, err);
    rks_buffer_free(&names);
    return status;
}

static rks_status pass_bom(rks_window *w, rks_error *err)
{
    while (w->filled - w->begin < RKS_BOM_SIZE && !w->ended) {
        rks_status status = rks_window_fill(w, err);
        if (status != RKS_OK)
            return status;
    }
    if (w->filled - w->begin >= RKS_BOM_SIZE &&
        memcmp(w->data + w->begin, "\xef\xbb\xbf", RKS_BOM_SIZE) == 0)
        rks_window_pass(w, RKS_BOM_SIZE);
    return RKS_OK;
}

/* Moves from the file's start into the array. */
static rks_status enter_array(rks_json_items *items, rks_error *err)
{
    rks_window *w = &items->window;
    int byte = NO_BYTE;
    rks_status status = pass_bom(w, err);
    for (uint32_t level = 0; status == RKS_OK && level < items->levels; level++)
        status = enter_level(items, level, err);
    if (status == RKS_OK)
        status = peek(items, &byte, err);
    if (status != RKS_OK)
        return status;
    if (byte == '{' && items->levels == 0) {
        rks_window_pass(w, 1);
        return fail_no_path(items, err);
    }
    return expect(items, '[', "not an array", err);
}

/* Moves to the end of an object that contains the array in its member of this level. */
static rks_status leave_level(rks_json_items *items, uint32_t level, rks_error *err)
{
    const char *name = NULL;
    size_t size = 0;
    bool more = true;
    rks_status status = read_comma(items, '}', &more, err);
    while (status == RKS_OK && more) {
        status = read_name(items, &name, &size, err);
        if (status != RKS_OK)
            return status;
        if (is_level(items, level, name, size))
            return wrong(items, "this member appears twice", err);
        status = pass_member(items, &more, err);
    }
    return status;
}

/* After the array: checks that the objects around it end, and then the file. */
static rks_status leave_array(rks_json_items *items, rks_error *err)
{
    int byte = NO_BYTE;
    rks_status status = RKS_OK;
    for (uint32_t level = items->levels; status == RKS_OK && level > 0; level--)
        status = leave_level(items, level - 1, err);
    if (status == RKS_OK)
        status = peek(items, &byte, err);
    if (status == RKS_OK && byte != NO_BYTE)
        return wrong(items, "bytes after the array's end", err);
    return status;
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Returns true if an object spans lines. In JSON lines an object ends in its line; after a line
 * that lacks a bracket comes another object, whereas an object over many lines goes on with a name
 * or inside a list. */
static bool goes_over_lines(const uint8_t *bytes, size_t size)
{
    scan s = {0};
    size_t at = 0;
    while (at < size && !s.ended && (s.string || bytes[at] != '\n'))
        at += scan_value(&s, bytes + at, 1);
    if (at == size || s.ended)
        return false;
    while (at < size && is_space(bytes[at]))
        at++;
    return at < size && (s.depth > 1 || bytes[at] != '{');
}

bool rks_bytes_are_json_items(const uint8_t *bytes, size_t size)
{
    size_t at =
        size >= RKS_BOM_SIZE && memcmp(bytes, "\xef\xbb\xbf", RKS_BOM_SIZE) == 0 ? RKS_BOM_SIZE : 0;
    while (at < size && is_space(bytes[at]))
        at++;
    if (at < size && bytes[at] == '{')
        return goes_over_lines(bytes + at, size - at);
    if (at == size || bytes[at] != '[')
        return false;
    do
        at++;
    while (at < size && is_space(bytes[at]));
    if (at == size || bytes[at] != ']')
        return at < size && bytes[at] == '{';
    do /* an empty array, and nothing after it */
        at++;
    while (at < size && is_space(bytes[at]));
    return at == size;
}

rks_status rks_json_items_open(rks_json_items *items, const rks_input_file *file, uint64_t offset,
                               uint64_t size, uint64_t limit, const char *path, rks_error *err)
{
    bool packed = file->packing != RKS_PACKING_NONE;
    *items = (rks_json_items){
        .limit = limit,
        .stop = packed || offset + size >= file->size ? UINT64_MAX : offset + size,
        .path = path,
        .begun = offset > 0,
    };
    for (const char *at = path; at != NULL; items->levels++) {
        at = strchr(at, '.');
        at = at == NULL ? NULL : at + 1;
    }
    rks_status status = rks_window_open(&items->window, file, offset, size, err);
    if (status == RKS_OK && items->levels > RKS_JSON_PATH_MOST)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "json_path: more than %d names: \"%.100s\"",
                          RKS_JSON_PATH_MOST, path);
    return status == RKS_OK && offset == 0 ? enter_array(items, err) : status;
}

/* Moves to the start of the next item, or sets *more to false. */
static rks_status find_item(rks_json_items *items, int *byte, bool *more, rks_error *err)
{
    rks_status status = RKS_OK;
    *more = true;
    if (items->behind)
        status = read_comma(items, ']', more, err);
    if (status == RKS_OK && *more)
        status = peek(items, byte, err);
    if (status == RKS_OK && *more && !items->begun && *byte == ']') {
        rks_window_pass(&items->window, 1);
        *more = false;
    }
    if (status == RKS_OK && !*more)
        status = leave_array(items, err);
    if (status == RKS_OK && *more)
        *more = items->window.position < items->stop;
    return status;
}

rks_status rks_json_items_next(rks_json_items *items, rks_line *item, uint64_t *position,
                               rks_error *err)
{
    bool more = false;
    int byte = NO_BYTE;
    *item = (rks_line){0};
    if (items->closed)
        return RKS_OK;
    rks_status status = find_item(items, &byte, &more, err);
    if (status == RKS_OK && !more) {
        items->closed = true;
        return rks_window_unchanged(&items->window, err);
    }
    if (status == RKS_OK && (byte == NO_BYTE || byte == ']' || byte == '}' || byte == ','))
        status = wrong(items, byte == NO_BYTE ? "the file ends here" : "expected an item", err);
    if (status != RKS_OK)
        return status;
    *position = items->window.position;
    items->begun = items->behind = true;
    return read_value(items, items->limit, item, err);
}

void rks_json_items_close(rks_json_items *items)
{
    rks_json_parser_free(&items->names);
    rks_window_close(&items->window);
    *items = (rks_json_items){0};
}
