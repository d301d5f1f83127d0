/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: one line of text for a person, kept inside 191 bytes. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* How many bytes of a control character stand here; 0: it is none. */
static size_t control_size(const char *text)
{
    unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    if (first == 0xc2 && second >= 0x80 && second < 0xa0)
        return 2; /* a terminal takes U+009B for ESC [ */
    return (first != '\0' && first < 0x20) || first == 0x7f;
}

void rks_text_clean(char *text)
{
    for (size_t size; *text != '\0'; text += size == 0 ? 1 : size) {
        size = control_size(text);
        memset(text, '?', size);
    }
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

/* Copies text into err->text: control characters are shown, and a text that is too long keeps
 * its beginning and end, since the end holds what was wrong and the beginning where. */
static void put_text(rks_error *err, const char *text)
{
    char shown[4 * 1024];
    size_t size = 0;
    size_t hidden = 0; /* bytes of a control character from here on */
    for (const char *c = text; *c != '\0' && size + 5 < sizeof(shown); c++) {
        hidden = hidden > 0 ? hidden : control_size(c);
        if (hidden > 0) {
            size += (size_t)snprintf(shown + size, 5, "\\x%02x", (unsigned)(unsigned char)*c);
            hidden--;
        } else {
            shown[size++] = *c;
        }
    }
    size_t room = sizeof(err->text) - 1;
    if (size <= room) {
        memcpy(err->text, shown, size);
        err->text[size] = '\0';
        return;
    }
    size_t head = room / 2 - 2;
    size_t tail = room - head - 3;
    while (head > 0 && ((unsigned char)shown[head] & 0xc0) == 0x80)
        head--; /* never through a character */
    while (tail > 0 && ((unsigned char)shown[size - tail] & 0xc0) == 0x80)
        tail--;
    memcpy(err->text, shown, head);
    memcpy(err->text + head, "...", 3);
    memcpy(err->text + head + 3, shown + size - tail, tail);
    err->text[head + 3 + tail] = '\0';
}

static rks_status fill_error(rks_error *err, rks_status status, int64_t cause, const char *suffix,
                             const char *format, va_list arguments)
{
    if (err == NULL)
        return status;
    char text[2048];
    int size = vsnprintf(text, sizeof(text), format, arguments);
    if (size < 0)
        size = 0;
    size_t used = (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1;
    if (suffix != NULL)
        snprintf(text + used, sizeof(text) - used, ": %s", suffix);
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
