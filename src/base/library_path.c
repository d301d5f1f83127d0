/* SPDX-License-Identifier: Apache-2.0
 *
 * library_path.c: finds the library's file by the address of one of its functions. */
#include "base/library_path.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* dladdr may give the program's name without a folder (if PATH found it); then /proc/self/exe has
 * it. */
bool rks_own_folder(char folder[PATH_MAX], uid_t *owner)
{
    struct stat file;
    Dl_info self;
    if (dladdr((void *)(uintptr_t)rks_own_folder, &self) == 0 || self.dli_fname == NULL)
        return false;
    bool has_path = strchr(self.dli_fname, '/') != NULL;
    if (realpath(has_path ? self.dli_fname : "/proc/self/exe", folder) == NULL)
        return false;
    if (stat(folder, &file) != 0)
        return false;
    *owner = file.st_uid;
    *strrchr(folder, '/') = '\0';
    return true;
}

bool rks_belongs_to(uid_t owner, const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 &&
           (file.st_uid == 0 || file.st_uid == geteuid() || file.st_uid == owner);
}
