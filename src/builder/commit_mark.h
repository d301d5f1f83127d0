/* SPDX-License-Identifier: Apache-2.0
 *
 * commit_mark.h: the file build.committing. A build writes it before it puts dataset.json into the
 * directory, and removes it when all ranks have made that durable and the home, if there is one,
 * has the dataset. It stays if the build is killed in between, or if one of these steps fails. The
 * same build, called again, knows by it that its own commit was interrupted: it completes the steps
 * and ends well, instead of refusing a finished dataset.
 *
 * The file holds the id of the build, 32 hexadecimal digits. It need not survive a power cut:
 * dataset.json is then whole or not there. The directory's lock guards it. */
#ifndef RKS_BUILDER_COMMIT_MARK_H
#define RKS_BUILDER_COMMIT_MARK_H

#include "base/checksum.h"

#define RKS_COMMIT_MARK "build.committing"

/* Writes DIRECTORY/build.committing. */
rks_status rks_commit_mark_write(const char *directory, rks_digest build_id, rks_error *err);
/* Returns true if DIRECTORY/build.committing is of this build. */
bool rks_commit_mark_is_of(const char *directory, rks_digest build_id);
/* Removes it, if it is there. */
void rks_commit_mark_remove(const char *directory);

#endif
