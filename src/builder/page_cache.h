/* SPDX-License-Identifier: Apache-2.0
 *
 * page_cache.h: drops a build's input from the page cache, as far as it was not there before.
 *
 * Before the input is read, its files are looked at in granules of 1 MiB. After a unit is built,
 * those of its granules of which no page was in memory are dropped. So reading a large input does
 * not displace other pages, and an input that was in memory stays there. */
#ifndef RKS_BUILDER_PAGE_CACHE_H
#define RKS_BUILDER_PAGE_CACHE_H

#include "ingest/unit.h"

typedef struct rks_page_cache rks_page_cache;

/* Looks at the first 64 GiB of the input's files of 1 MiB or more; the rest stays in memory. Takes
 * some 5 us a MiB. Returns NULL if nothing will be dropped. */
rks_page_cache *rks_page_cache_look(const rks_input *input);
/* Drops the granules of a unit that is read no more. */
void rks_page_cache_drop(const rks_page_cache *cache, const rks_input *input, size_t unit);
/* Drops all granules, after all ranks have read their units. A rank may have looked when another
 * was reading already, and a folio of the page cache may lie in two units. */
void rks_page_cache_drop_all(const rks_page_cache *cache, const rks_input *input);
void rks_page_cache_free(rks_page_cache *cache); /* NULL is accepted */

#endif
