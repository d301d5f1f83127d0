/* SPDX-License-Identifier: Apache-2.0
 *
 * member_names.c: turns keys, which may be any bytes, into file names. */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/utf8.h"
#include "export/export.h"

enum { PART_MOST = 180, PART_KEPT = 150, WHOLE_MOST = 230, WHOLE_KEPT = 200 };

static bool is_plain(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || (byte != 0 && strchr("_-+,=@:~ ", byte) != NULL);
}

/* Returns true for a slash between two parts that are not empty; only that one stays. */
static bool is_separator(const uint8_t *key, size_t size, size_t at)
{
    return key[at] == '/' && at > 0 && at + 1 < size && key[at - 1] != '/' && key[at + 1] != '/';
}

/* The key that a name is made of. */
typedef struct named_key {
    const uint8_t *bytes;
    bool wide; /* characters outside ASCII stay */
    rks_digest hash;
} named_key;

/* Ends the name at `end` and appends the key's hash. */
static rks_status end_in_hash(rks_buffer *name, size_t begin, size_t end, const named_key *key,
                              rks_error *err)
{
    name->size = end;
    while (key->wide && name->size > begin && (name->data[name->size] & 0xc0) == 0x80)
        name->size--; /* do not cut a character */
    return rks_buffer_print(name, err, "~%016" PRIx64, key->hash.low);
}

/* Appends one part, [at, end) of the key. */
static rks_status put_part(const named_key *key, size_t at, size_t end, bool dots, rks_buffer *name,
                           rks_error *err)
{
    const uint8_t *bytes = key->bytes;
    size_t begin = name->size;
    rks_status status = RKS_OK;
    for (size_t i = at; status == RKS_OK && i < end; i++) {
        bool kept = is_plain(bytes[i]) || (key->wide && bytes[i] >= 0x80) ||
                    (dots && bytes[i] == '.' && i > at);
        status = kept ? rks_buffer_add(name, &bytes[i], 1, err)
                      : rks_buffer_print(name, err, "%%%02X", bytes[i]);
    }
    return status == RKS_OK && name->size - begin > PART_MOST
               ? end_in_hash(name, begin, begin + PART_KEPT, key, err)
               : status;
}

rks_status rks_export_name(const void *key, size_t size, bool dots, bool wide, rks_buffer *name,
                           rks_error *err)
{
    const named_key of = {key, wide && rks_utf8_valid(key, size, NULL), rks_checksum128(key, size)};
    size_t begin = name->size;
    rks_status status = RKS_OK;
    for (size_t at = 0; status == RKS_OK && at < size;) {
        size_t end = at;
        while (end < size && !is_separator(of.bytes, size, end))
            end++;
        status = put_part(&of, at, end, dots || end < size, name, err);
        if (status == RKS_OK && end < size)
            status = rks_buffer_add(name, "/", 1, err);
        at = end + 1;
    }
    if (status == RKS_OK && name->size - begin > WHOLE_MOST)
        status = end_in_hash(name, begin, begin + WHOLE_KEPT, &of, err);
    if (status == RKS_OK)
        status = rks_buffer_add(name, "", 1, err);
    if (status == RKS_OK)
        name->size--;
    return status;
}
