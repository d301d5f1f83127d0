/* SPDX-License-Identifier: Apache-2.0
 *
 * lengths_file.c: lengths from .npy or text. */
#include "lengths_file.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "value.h"

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, HEADER_MOST = 1 << 16, READ = 1 << 20 };
#define LONGEST (UINT32_MAX - 1) /* the largest number stands for a sample that is not there */

typedef struct reading {
    const char *path;
    FILE *in;
    uint32_t *lengths;
    uint64_t count, room;
    rks_error *err;
} reading;

static rks_status refuse_file(reading *r, rks_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static rks_status refuse_file(reading *r, rks_status status, const char *format, ...)
{
    char text[100];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    *r->err = (rks_error){.status = status, .rank = -1};
    snprintf(r->err->text, sizeof(r->err->text), "%.80s: %s",
             strcmp(r->path, "-") == 0 ? "standard input" : cli_shown(r->path), text);
    return status;
}

static rks_status add_length(reading *r, uint64_t length)
{
    if (length > LONGEST)
        return refuse_file(r, RKS_ERR_DATA,
                           "length %" PRIu64 " of sample %" PRIu64 " is above 2^32 - 2", length,
                           r->count);
    if (r->count == r->room) {
        uint64_t room = r->room == 0 ? 1 << 16 : 2 * r->room;
        uint32_t *grown = realloc(r->lengths, room * sizeof(*grown));
        if (grown == NULL)
            return refuse_file(r, RKS_ERR_MEMORY, "no memory for %" PRIu64 " lengths", room);
        r->lengths = grown;
        r->room = room;
    }
    r->lengths[r->count++] = (uint32_t)length;
    return RKS_OK;
}

/* The value of `name` in the dict of a .npy header. */
static const char *header_value(const char *header, const char *name)
{
    const char *at = strstr(header, name);
    at = at == NULL ? NULL : strchr(at, ':');
    return at == NULL ? "" : at + 1 + strspn(at + 1, " ");
}

static uint64_t little_endian(const uint8_t *bytes, size_t size)
{
    uint64_t number = 0;
    for (size_t i = size; i-- > 0;)
        number = number << 8 | bytes[i];
    return number;
}

static rks_status read_array(reading *r, uint64_t count, size_t size, bool is_signed)
{
    uint8_t item[8];
    for (uint64_t i = 0; i < count; i++) {
        if (fread(item, size, 1, r->in) != 1)
            return refuse_file(r, RKS_ERR_DATA, "ends after %" PRIu64 " of %" PRIu64 " lengths", i,
                               count);
        if (is_signed && item[size - 1] >= 0x80)
            return refuse_file(r, RKS_ERR_DATA, "sample %" PRIu64 " has a negative length", i);
        rks_status status = add_length(r, little_endian(item, size));
        if (status != RKS_OK)
            return status;
    }
    return getc(r->in) == EOF ? RKS_OK : refuse_file(r, RKS_ERR_DATA, "goes on after its array");
}

/* Reads what comes after the magic: version, size of the header, header. Free *header, also after
 * an error. */
static rks_status read_header(reading *r, char **header)
{
    uint8_t head[6];
    if (fread(head, 4, 1, r->in) != 1 || (head[0] > 1 && fread(head + 4, 2, 1, r->in) != 1))
        return refuse_file(r, RKS_ERR_DATA, "ends in the header of a .npy file");
    uint64_t size = little_endian(head + 2, head[0] > 1 ? 4 : 2);
    if (head[0] < 1 || head[0] > 3 || size > HEADER_MOST)
        return refuse_file(r, RKS_ERR_DATA, "a .npy header of version %u and %" PRIu64 " bytes",
                           head[0], size);
    *header = calloc(1, size + 1);
    if (*header == NULL)
        return refuse_file(r, RKS_ERR_MEMORY, "no memory for its header");
    if (fread(*header, 1, size, r->in) != size)
        return refuse_file(r, RKS_ERR_DATA, "ends in the header of a .npy file");
    return RKS_OK;
}

/* Reads header and items. */
static rks_status read_npy(reading *r)
{
    char *header = NULL, kind = 0, *end = NULL;
    unsigned bytes = 0;
    rks_status status = read_header(r, &header);
    if (status != RKS_OK) {
        free(header);
        return status;
    }
    const char *type = header_value(header, "'descr'"), *shape = header_value(header, "'shape'");
    bool integer = sscanf(type, "'%*1[<|]%c%u'", &kind, &bytes) == 2 &&
                   (kind == 'i' || kind == 'u') &&
                   (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
    uint64_t count =
        *shape == '(' && isdigit((unsigned char)shape[1]) ? strtoull(shape + 1, &end, 10) : 0;
    bool line = end != NULL && *end == ',' && end[1 + strspn(end + 1, " ")] == ')';
    if (!integer || !line)
        status = refuse_file(r, RKS_ERR_DATA,
                             "type %.*s, shape %.*s); little-endian integers in one dimension are "
                             "needed",
                             (int)strcspn(type, ","), type, (int)strcspn(shape, ")"), shape);
    free(header);
    return status == RKS_OK ? read_array(r, count, bytes, kind == 'i') : status;
}

static rks_status read_text(reading *r)
{
    uint64_t number = 0, line = 1;
    bool inside = false;
    for (int c;; line += c == '\n') {
        c = getc(r->in);
        if (c >= '0' && c <= '9' && number <= LONGEST) {
            number = 10 * number + (uint64_t)(c - '0');
            inside = true;
            continue;
        }
        if (c != EOF && !isspace(c) && !(c >= '0' && c <= '9'))
            return refuse_file(r, RKS_ERR_DATA, "line %" PRIu64 ": '%c' is not a digit of a length",
                               line, isprint(c) ? c : '?');
        if (inside) {
            rks_status status = add_length(r, number);
            if (status != RKS_OK)
                return status;
        }
        inside = false;
        number = 0;
        if (c == EOF)
            return RKS_OK;
    }
}

rks_status cli_read_lengths(const char *path, uint32_t **lengths, uint64_t *count, rks_error *err)
{
    reading r = {.path = path, .err = err};
    char first[MAGIC];
    r.in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (r.in == NULL)
        return refuse_file(&r, RKS_ERR_IO, "%s", strerror(errno));
    setvbuf(r.in, NULL, _IOFBF, READ);
    int c = getc(r.in);
    rks_status status;
    if (c == (unsigned char)magic[0]) {
        bool is_npy =
            fread(first, MAGIC - 1, 1, r.in) == 1 && memcmp(first, magic + 1, MAGIC - 1) == 0;
        status = is_npy ? read_npy(&r) : refuse_file(&r, RKS_ERR_DATA, "neither text nor .npy");
    } else {
        if (c != EOF)
            ungetc(c, r.in);
        status = read_text(&r);
    }
    if (status == RKS_OK && ferror(r.in))
        status = refuse_file(&r, RKS_ERR_IO, "%s", strerror(errno));
    if (r.in != stdin)
        fclose(r.in);
    if (status != RKS_OK) {
        free(r.lengths);
        return status;
    }
    *lengths = r.lengths;
    *count = r.count;
    return RKS_OK;
}
