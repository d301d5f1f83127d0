/* SPDX-License-Identifier: Apache-2.0
 *
 * simdjson.h: the C interface of simdjson, which is C++; simdjson.cc is the only C++ here. It
 * throws nothing and needs no exceptions. Other files use codec/json.h and utf8.h. */
#ifndef RKS_BASE_SIMDJSON_H
#define RKS_BASE_SIMDJSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes after a text that must be readable; their values do not matter. */
enum { RKS_SIMDJSON_PADDING = 64 };

typedef struct rks_simdjson rks_simdjson;

/* Returns NULL if memory is short. */
rks_simdjson *rks_simdjson_create(void);
void rks_simdjson_free(rks_simdjson *parser); /* NULL is accepted */

typedef enum rks_simdjson_result {
    RKS_SIMDJSON_OK,
    RKS_SIMDJSON_REFUSED,
    RKS_SIMDJSON_NO_MEMORY,
} rks_simdjson_result;

/* Parses a text. The tape and the strings (simdjson's tape format) belong to the parser and are
 * valid until its next call. *why is always set and says in a few words what is wrong. */
rks_simdjson_result rks_simdjson_parse(rks_simdjson *parser, const uint8_t *text, size_t size,
                                       uint64_t **tape, const uint8_t **strings, const char **why);

/* Returns true if the text is well-formed UTF-8; see utf8.h. */
bool rks_simdjson_utf8(const void *text, size_t size);

/* Returns the version of the library's headers. */
const char *rks_simdjson_version(void);

#ifdef __cplusplus
}
#endif

#endif
