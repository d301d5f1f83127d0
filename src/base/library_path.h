/* SPDX-License-Identifier: Apache-2.0
 *
 * library_path.h: finds the folder of this library, or of the program that it is linked into. A
 * file beside it may be loaded if whoever put it there could change the library as well. */
#ifndef RKS_BASE_LIBRARY_PATH_H
#define RKS_BASE_LIBRARY_PATH_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Finds the folder (an absolute path without symbolic links, without a / at its end) and the user
 * who owns the library. Returns false if they are unknown. */
bool rks_own_folder(char folder[PATH_MAX], uid_t *owner);
/* Returns true if `path` exists and root, this user or `owner` owns it. A folder further up may
 * belong to anybody, as /tmp does. */
bool rks_belongs_to(uid_t owner, const char *path);

#endif
