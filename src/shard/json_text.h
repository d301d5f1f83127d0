/* SPDX-License-Identifier: Apache-2.0
 *
 * json_text.h: what manifest and dataset.json have in common: canonical text, a format version,
 * a digest of the text in the text, and fields that are checked as they are read. */
#ifndef RKS_SHARD_JSON_TEXT_H
#define RKS_SHARD_JSON_TEXT_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/checksum.h"

enum { RKS_FORMAT_MAJOR = 1, RKS_FORMAT_MINOR = 0 };

/* A JSON string with its quotes; `text` is UTF-8. Escapes only what must be. */
rks_status rks_json_put_string(rks_buffer *json, const char *text, rks_error *err);
/* {"format":{...},"requires":[...] : the beginning of both files. `features` is what a reader must
 * know, ended by NULL; NULL: nothing. */
rks_status rks_json_begin(rks_buffer *json, const char *const *features, rks_error *err);
/* ,"digest":"..."} and a newline: the digest is the XXH3-128 of the whole text, these 32 digits
 * taken as zeros. *digest may be NULL. */
rks_status rks_json_finish(rks_buffer *json, rks_digest *digest, rks_error *err);

/* Parses such a text: JSON, format and features known (`features`, ended by NULL; NULL: none),
 * digest right. json_decref(*root). */
rks_status rks_json_open(const char *text, size_t size, const char *path,
                         const char *const *features, json_t **root, rks_digest *digest,
                         rks_error *err);
bool rks_json_requires(const json_t *root, const char *feature);

/* One field of an object; missing or of another type is RKS_ERR_CORRUPT naming path and field. */
rks_status rks_json_u64(const json_t *object, const char *name, const char *path, uint64_t *value,
                        rks_error *err);
rks_status rks_json_digest(const json_t *object, const char *name, const char *path,
                           rks_digest *value, rks_error *err);
rks_status rks_json_bool(const json_t *object, const char *name, const char *path, bool *value,
                         rks_error *err);
/* Borrowed from `object`. */
rks_status rks_json_string(const json_t *object, const char *name, const char *path,
                           const char **value, rks_error *err);
rks_status rks_json_array(const json_t *object, const char *name, const char *path,
                          const json_t **value, rks_error *err);
/* The object under `name` as canonical text. rks_free(*text). */
rks_status rks_json_object_text(const json_t *object, const char *name, const char *path,
                                char **text, rks_error *err);

#endif
