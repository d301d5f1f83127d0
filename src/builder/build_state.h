/* SPDX-License-Identifier: Apache-2.0
 *
 * build_state.h: what a build knows, from the look at its input to the commit; and the first half:
 *
 *   look at the input, on each rank ─► agree on it ─► choose schema, key and length */
#ifndef RKS_BUILDER_BUILD_STATE_H
#define RKS_BUILDER_BUILD_STATE_H

#include <jansson.h>

#include "builder/input.h"
#include "builder/page_cache.h"
#include "builder/parts.h"
#include "ingest/sample_selection.h"
#include "store/store.h"

/* What to build from: files, or the rows of `ops`. */
typedef struct rks_build_source {
    const char *const *paths;
    size_t path_count;
    const rks_input_ops *ops; /* NULL: files */
    void *object;
} rks_build_source;

typedef struct rks_build_state {
    rks_group *group;
    const rks_build_source *source;
    rks_build_options options;
    rks_input *input;
    rks_digest input_digest;
    bool more;                  /* of a stream: there is a unit */
    rks_page_cache *page_cache; /* of the input */
    char *directory;
    char *inferred; /* from this rank's share */
    rks_status infer_status;
    rks_error infer_error;
    char *schema_text; /* inferred from the shares of all ranks */
    char *options_text;
    const char *given_key; /* the key in the caller's options */
    char *length;          /* options.length if none was given */
    rks_schema *schema;
    rks_selector *selector;
    rks_parts *parts;
    rks_send_ahead *ahead;   /* sealed parts to options.home; NULL: there is none */
    rks_found_dataset found; /* append: what this rank's directory holds */
    rks_dataset_description described;
    rks_dataset *base;   /* append: what the directories hold */
    rks_buffer recorded; /* what this rank's directory holds, then all ranks' (resume_state.h) */
    json_t *base_options;
    const char **counts;  /* the rules that these have */
    char *listing;        /* of sources in stores, if this call has asked them */
    uint64_t *first_rows; /* by unit: number of its first row in its file */
    uint32_t *owners;     /* by unit: the rank that reads it; UINT32_MAX if it is finished */
    rks_buffer bad;
    /* Progress of this rank. */
    uint64_t done, total, samples, last_tick_ms;
    uint32_t threads; /* threads of this rank */
} rks_build_state;

/* This rank's own part, before ranks compare. */
rks_status rks_build_look(rks_build_state *b, const char *directory, rks_error *err);
/* COLLECTIVE. Checks that all ranks have the same input and options. */
rks_status rks_build_agree(rks_build_state *b, rks_status status, rks_agreed *agreed,
                           rks_error *err);
/* COLLECTIVE. Chooses what was inferred or inherited. Returns this rank's own status. */
rks_status rks_build_choose(rks_build_state *b, const rks_agreed *agreed, rks_error *err);

#endif
