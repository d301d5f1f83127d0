/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore.h: the whole public interface of librankstore.
 *
 * A store is one dataset spread over the ranks of a job. Each rank serves the sealed
 * shards on its local disk. Every rank knows the index (length, key hash and owner of
 * every sample) and fetches a sample's bytes from its owner only when asked.
 *
 *   group ──► input ──► dataset on disk            (once)
 *   group ──► store ──► plan ──► epoch ──► batch   (each job)
 *
 * Errors     A call that can fail returns rks_status and, if err is not NULL, fills
 *            *err. On failure the other outputs keep the values they had.
 * Collective Calls marked COLLECTIVE are made by all ranks of the group in the same
 *            order; their status is the same on all of them: a failure on one rank is
 *            returned, with that rank's number and text, by every rank.
 * Waiting    No wait is endless. A rank that is silent for `silence_ms` ends the waits of
 *            the others with RKS_ERR_PEER or RKS_ERR_TIMEOUT, naming it; a rank that
 *            is slow but alive is waited for.
 * Threads    A group, store or plan may be shared by threads, but collective calls of one
 *            group come from one thread at a time. A batch and an epoch have one user at a
 *            time.
 * Fork       A child must not use its parent's handles; it opens its own.
 * Units      Sizes are bytes, times are milliseconds, unless a name says otherwise.
 * Options    Structs that begin with `struct_size` are filled by their _default call
 *            first, then changed. 0 and NULL mean the default where not said otherwise.
 *            A program runs with a library that is newer or older than its headers: fields
 *            that one of the two does not know have their defaults.
 * Signals    A shard that is cut while it is read raises SIGBUS; the library has a handler
 *            for it, which makes it an error. A handler that another library installs
 *            later replaces it until it is installed again: at every open, and while
 *            samples are read at most 50 times a second. Nothing closes that gap: the
 *            system tells nobody of a new handler, and asking before each page would
 *            cost a system call for each.
 * Strings    UTF-8, NUL-terminated; keys are any bytes with a size.
 */
#ifndef RANKSTORE_H
#define RANKSTORE_H

#include "rankstore/base.h"
#include "rankstore/batch.h"
#include "rankstore/build.h"
#include "rankstore/collate.h"
#include "rankstore/epoch.h"
#include "rankstore/export.h"
#include "rankstore/gather.h"
#include "rankstore/group.h"
#include "rankstore/home.h"
#include "rankstore/index.h"
#include "rankstore/input.h"
#include "rankstore/manage.h"
#include "rankstore/mix.h"
#include "rankstore/plan.h"
#include "rankstore/schema.h"
#include "rankstore/store.h"
#include "rankstore/verify.h"
#include "rankstore/worker.h"

#endif
