/* SPDX-License-Identifier: Apache-2.0
 *
 * own_folder.h: the folder of this library, or of the program that it is part of: what lies beside
 * it may be loaded, if somebody who could change the library as well has put it there. */
#ifndef RKS_BASE_OWN_FOLDER_H
#define RKS_BASE_OWN_FOLDER_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

/* Without links and without a / at its end, and whose the library is; false: it is not known. */
bool rks_own_folder(char folder[PATH_MAX], uid_t *owner);
/* Whether that is root's, this user's or `owner`'s: a folder further up may be anybody's, as /tmp
 * is. */
bool rks_belongs_to(uid_t owner, const char *path);

#endif
