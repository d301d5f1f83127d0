/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: makes one line of text for a person, at most 191 bytes long. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/c_locale.h"

/* Returns how many bytes the control character at `text` has; 0 if it is none. */
static size_t control_size(const char *text)
{
    unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    if (first == 0xc2 && second >= 0x80 && second < 0xa0)
        return 2; /* terminals read U+009B as ESC [ */
    return (first != '\0' && first < 0x20) || first == 0x7f;
}

void rks_text_clean(char *text)
{
    for (size_t size; *text != '\0'; text += size == 0 ? 1 : size) {
        size = control_size(text);
        memset(text, '?', size);
    }
}

const char *rks_text_shown(const void *bytes, size_t size, char text[RKS_SHOWN_ROOM])
{
    const unsigned char *from = bytes;
    size_t most = size, at = 0;
    if (size > RKS_SHOWN_MAX)
        for (most = RKS_SHOWN_MAX; most > 0 && (from[most] & 0xc0) == 0x80;)
            most--; /* whole characters of UTF-8 */
    for (size_t i = 0; i < most; i++) {
        memcpy(text + at, from[i] == 0 ? "\\x00" : (const char *)from + i, from[i] == 0 ? 4 : 1);
        at += from[i] == 0 ? 4 : 1;
    }
    memcpy(text + at, most < size ? "..." : "", most < size ? 4 : 1);
    return text;
}

const char *rks_text_end(const char *text, size_t most)
{
    size_t size = strlen(text);
    text += size > most ? size - most : 0;
    while (((unsigned char)*text & 0xc0) == 0x80)
        text++;
    return text;
}

void rks_text_lines(const void *lines, size_t size, char *text, size_t room)
{
    static const char cut[] = "...\n";
    bool whole = size < room;
    size_t taken = whole ? size : room - 1;
    if (taken > 0)
        memcpy(text, lines, taken);
    const char *end = whole || taken == 0 ? NULL : memrchr(text, '\n', taken);
    if (end != NULL) {
        taken = (size_t)(end - text) + 1;
    } else if (!whole && room > sizeof(cut)) {
        taken = room - sizeof(cut);
        while (taken > 0 && ((unsigned char)text[taken] & 0xc0) == 0x80)
            taken--;
        memcpy(text + taken, cut, sizeof(cut) - 1);
        taken += sizeof(cut) - 1;
    }
    text[taken] = '\0';
}

enum { TEXT_ROOM = 8 * 1024 }; /* of a text before it is shortened: a path has up to 4 KiB */

/* Copies `text` and shows its control characters as \xNN. Returns the size. */
static size_t show_controls(const char *text, char *shown, size_t room)
{
    size_t size = 0;
    size_t hidden = 0; /* bytes of a control character still to show */
    for (const char *c = text; *c != '\0' && size + 5 < room; c++) {
        hidden = hidden > 0 ? hidden : control_size(c);
        if (hidden > 0) {
            size += (size_t)snprintf(shown + size, 5, "\\x%02x", (unsigned)(unsigned char)*c);
            hidden--;
        } else {
            shown[size++] = *c;
        }
    }
    return size;
}

static bool inside_character(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Replaces text[begin, end), or a bit more, by "...": never cuts a character. Returns the new
 * size. */
static size_t cut_out(char *text, size_t size, size_t begin, size_t end)
{
    while (begin > 0 && inside_character(text[begin]))
        begin--;
    while (end < size && inside_character(text[end]))
        end++;
    memmove(text + begin + 3, text + end, size - end);
    memcpy(text + begin, "...", 3);
    return begin + 3 + size - end;
}

/* Finds the longest word with a slash. Returns its length; 0 if there is none. */
static size_t longest_path(const char *text, size_t size, size_t *where)
{
    size_t longest = 0;
    for (size_t begin = 0; begin < size; begin++) {
        const char *end = memchr(text + begin, ' ', size - begin);
        size_t length = end == NULL ? size - begin : (size_t)(end - text) - begin;
        if (length > longest && memchr(text + begin, '/', length) != NULL) {
            longest = length;
            *where = begin;
        }
        begin += length;
    }
    return longest;
}

/* Cuts the middle out of paths first: a file's own name and the words around the path help most. */
static size_t shorten_paths(char *text, size_t size, size_t room)
{
    enum { LEAST = 48, HEAD = 12 };
    size_t where = 0, length;
    while (size > room && (length = longest_path(text, size, &where)) > LEAST) {
        size_t over = size - room < length - LEAST ? size - room : length - LEAST;
        size = cut_out(text, size, where + HEAD, where + HEAD + over + 3);
    }
    return size;
}

/* Copies `text` into err->text. If it is too long, keeps its beginning, which says where, and its
 * end, which says what was wrong. */
static void put_text(rks_error *err, const char *text)
{
    char shown[TEXT_ROOM];
    size_t room = sizeof(err->text) - 1;
    size_t size = shorten_paths(shown, show_controls(text, shown, sizeof(shown)), room);
    if (size > room) {
        size_t head = room / 2 - 2;
        size = cut_out(shown, size, head, size - (room - head - 3));
    }
    memcpy(err->text, shown, size);
    err->text[size] = '\0';
}

/* Adds the limit on address space, if there is one: the kernel says the same as without memory. */
static void add_limit(char *text, size_t used, size_t room)
{
    struct rlimit limit;
    if (used < room && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        snprintf(text + used, room - used, "; the limit on address space (ulimit -v) is %llu KiB",
                 (unsigned long long)limit.rlim_cur / 1024);
}

static rks_status fill_error(rks_error *err, rks_status status, int64_t cause, const char *suffix,
                             const char *format, va_list arguments)
{
    if (err == NULL)
        return status;
    char text[TEXT_ROOM];
    int size = rks_vsnprintf(text, sizeof(text), format, arguments);
    if (size < 0)
        size = 0;
    size_t used = (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1;
    if (suffix != NULL && (size = snprintf(text + used, sizeof(text) - used, ": %s", suffix)) > 0)
        used += (size_t)size;
    if (status == RKS_ERR_MEMORY)
        add_limit(text, used, sizeof(text));
    memset(err, 0, sizeof(*err));
    err->status = status;
    err->rank = -1;
    err->cause = cause;
    put_text(err, text);
    return status;
}

rks_status rks_fail(rks_error *err, rks_status status, int64_t cause, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fill_error(err, status, cause, NULL, format, arguments);
    va_end(arguments);
    return status;
}

rks_status rks_fail_errno(rks_error *err, int error, const char *format, ...)
{
    char buffer[128];
    const char *reason = strerror_r(error, buffer, sizeof(buffer));
    rks_status status = error == ENOMEM ? RKS_ERR_MEMORY : RKS_ERR_IO;
    va_list arguments;
    va_start(arguments, format);
    fill_error(err, status, error, reason, format, arguments);
    va_end(arguments);
    return status;
}

void rks_error_place(rks_error *err, uint32_t rank, const char *host)
{
    if (err == NULL || err->rank >= 0)
        return;
    err->rank = (int32_t)rank;
    snprintf(err->host, sizeof(err->host), "%s", host == NULL ? "" : host);
    rks_text_clean(err->host);
}

void rks_error_sanitize(rks_error *err)
{
    err->host[sizeof(err->host) - 1] = '\0';
    err->text[sizeof(err->text) - 1] = '\0';
    memset(err->reserved, 0, sizeof(err->reserved));
    if (err->status >= 0 || err->status < RKS_ERR_CANCELLED)
        err->status = RKS_ERR_PEER;
    if (err->rank < -1)
        err->rank = -1;
    rks_text_clean(err->text);
    rks_text_clean(err->host);
}

const char *rks_version(void)
{
    return RKS_VERSION;
}

const char *rks_status_name(rks_status status)
{
    static const char *const names[] = {
        "ok",      "wrong argument", "out of memory", "input/output", "corrupt",     "peer failed",
        "timeout", "wrong state",    "not found",     "bad data",     "unsupported", "cancelled",
    };
    int index = -(int)status;
    if (index < 0 || index >= (int)(sizeof(names) / sizeof(names[0])))
        return "unknown";
    return names[index];
}
