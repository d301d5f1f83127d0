/* SPDX-License-Identifier: Apache-2.0
 *
 * open_files.c: a few open files, by name and version. */
#include "home/open_files.h"

#include <string.h>
#include <unistd.h>

#include "base/memory.h"

int rks_open_files_begin(rks_open_files *files)
{
    return pthread_mutex_init(&files->mutex, NULL);
}

static void shut(rks_open_file *file)
{
    close(file->fd);
    rks_free(file->name);
    *file = (rks_open_file){0};
}

void rks_open_files_end(rks_open_files *files)
{
    for (size_t i = 0; i < RKS_OPEN_FILES_MOST; i++)
        if (files->all[i].name != NULL)
            shut(&files->all[i]);
    pthread_mutex_destroy(&files->mutex);
}

static bool is_file_of(const rks_open_file *file, const char *name, const char *version)
{
    return file->name != NULL && !file->failed && strcmp(file->name, name) == 0 &&
           strcmp(file->version, version) == 0;
}

rks_open_file *rks_open_files_take(rks_open_files *files, const char *name, const char *version)
{
    rks_open_file *found = NULL;
    pthread_mutex_lock(&files->mutex);
    for (size_t i = 0; i < RKS_OPEN_FILES_MOST && found == NULL; i++)
        if (is_file_of(&files->all[i], name, version))
            found = &files->all[i];
    if (found != NULL) {
        found->users++;
        found->used = ++files->takes;
    }
    pthread_mutex_unlock(&files->mutex);
    return found;
}

void rks_open_files_leave(rks_open_files *files, rks_open_file *file, bool failed)
{
    pthread_mutex_lock(&files->mutex);
    file->failed = file->failed || failed;
    if (--file->users == 0 && file->failed)
        shut(file);
    pthread_mutex_unlock(&files->mutex);
}

void rks_open_files_keep(rks_open_files *files, const char *name, const char *version, int fd)
{
    rks_open_file *place = NULL;
    char *kept = rks_strdup(name, NULL);
    pthread_mutex_lock(&files->mutex);
    for (size_t i = 0; i < RKS_OPEN_FILES_MOST && kept != NULL; i++) {
        rks_open_file *one = &files->all[i];
        if (is_file_of(one, name, version)) { /* another reader was faster */
            place = NULL;
            break;
        }
        if (one->users == 0 && (place == NULL || one->used < place->used))
            place = one;
    }
    if (place != NULL) {
        if (place->name != NULL)
            shut(place);
        *place = (rks_open_file){.name = kept, .fd = fd, .used = ++files->takes};
        strcpy(place->version, version);
    }
    pthread_mutex_unlock(&files->mutex);
    if (place == NULL) {
        rks_free(kept);
        close(fd);
    }
}
