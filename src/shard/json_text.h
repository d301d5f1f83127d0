/* SPDX-License-Identifier: Apache-2.0
 *
 * json_text.h: what manifest and dataset.json have in common: canonical text, a format version, a
 * digest of the text inside the text, and fields that are checked as they are read. */
#ifndef RKS_SHARD_JSON_TEXT_H
#define RKS_SHARD_JSON_TEXT_H

#include <jansson.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "shard/schema.h"

enum { RKS_FORMAT_MAJOR = 1, RKS_FORMAT_MINOR = 0 };

/* Appends a JSON string with its quotes. `text` is UTF-8; only characters that need it are
 * escaped. */
rks_status rks_json_put_string(rks_buffer *json, const char *text, rks_error *err);
/* Appends {"format":{...},"requires":[...], the start of both files. `features` lists what a reader
 * must support; it ends with NULL. NULL: no features. */
rks_status rks_json_begin(rks_buffer *json, const char *const *features, rks_error *err);
/* Appends ,"digest":"..."} and a newline. The digest is the XXH3-128 of the whole text with zeros
 * for these 32 digits. `digest` may be NULL. */
rks_status rks_json_finish(rks_buffer *json, rks_digest *digest, rks_error *err);

/* Parses such a text and checks JSON, format, features (`features` lists the supported ones, ended
 * by NULL; NULL: none) and digest. Free *root with json_decref. */
rks_status rks_json_open(const char *text, size_t size, const char *path,
                         const char *const *features, json_t **root, rks_digest *digest,
                         rks_error *err);
/* Returns true if the text's "requires" lists `feature`. */
bool rks_json_requires(const json_t *root, const char *feature);

/* Read one field of an object. If it is missing or of another type, return RKS_ERR_CORRUPT naming
 * path and field. */
rks_status rks_json_u64(const json_t *object, const char *name, const char *path, uint64_t *value,
                        rks_error *err);
rks_status rks_json_digest(const json_t *object, const char *name, const char *path,
                           rks_digest *value, rks_error *err);
rks_status rks_json_bool(const json_t *object, const char *name, const char *path, bool *value,
                         rks_error *err);
/* *value lives as long as `object`. */
rks_status rks_json_string(const json_t *object, const char *name, const char *path,
                           const char **value, rks_error *err);
rks_status rks_json_array(const json_t *object, const char *name, const char *path,
                          const json_t **value, rks_error *err);
/* Prints the object under `name` as canonical text. Free *text with rks_free. */
rks_status rks_json_object_text(const json_t *object, const char *name, const char *path,
                                char **text, rks_error *err);

/* Decodes the member "schema" of a manifest or a dataset. RKS_ERR_CORRUPT names the file. */
rks_status rks_json_schema(const json_t *root, const char *path, rks_schema **schema,
                           rks_error *err);

#endif
