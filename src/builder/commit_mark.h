/* SPDX-License-Identifier: Apache-2.0
 *
 * commit_mark.h: the file build.committing. It is in a directory while a build puts dataset.json
 * there, and stays if the build is killed then or cannot sync the directory. The same build, called
 * again, knows by it that its own commit was interrupted: it makes dataset.json durable and ends
 * well, instead of refusing a finished dataset. The file holds the id of the build, 32 hexadecimal
 * digits. It need not survive a power cut: what is there afterwards is durable. */
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
