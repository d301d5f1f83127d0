/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_origin.c: where a shard was built, for the person who looks for it when it is lost. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/utf8.h"
#include "dataset/dataset.h"

enum {
    PATH_SHOWN = RKS_ORIGIN_MAX - 64, /* beside a host's name and a colon */
    ORIGINS_SHOWN = 3,
};

/* dataset.json is UTF-8; a file's path need not be. */
static void make_printable(char *text)
{
    bool valid = rks_utf8_valid(text, strlen(text), NULL);
    for (char *at = text; *at != '\0'; at++)
        if ((uint8_t)*at < 0x20 || *at == 0x7f || (!valid && (uint8_t)*at > 0x7f))
            *at = '?';
}

void rks_dataset_origin_here(const char *directory, char origin[RKS_ORIGIN_MAX + 1])
{
    char host[64] = "", path[PATH_MAX];
    gethostname(host, sizeof(host) - 1);
    if (realpath(directory, path) == NULL)
        snprintf(path, sizeof(path), "%s", directory);
    make_printable(host);
    make_printable(path);
    size_t size = strlen(path);
    if (size <= PATH_SHOWN) {
        snprintf(origin, RKS_ORIGIN_MAX + 1, "%s:%.*s", host, PATH_SHOWN, path);
        return;
    }
    const char *end = path + size - (PATH_SHOWN - 3);
    while (((uint8_t)*end & 0xc0) == 0x80) /* not inside a character */
        end++;
    snprintf(origin, RKS_ORIGIN_MAX + 1, "%s:...%.*s", host, PATH_SHOWN - 3, end);
}

void rks_dataset_origin_take(const char *text, size_t size, char origin[RKS_ORIGIN_MAX + 1])
{
    bool good = size <= RKS_ORIGIN_MAX && rks_utf8_valid(text, size, NULL);
    for (size_t i = 0; good && i < size; i++)
        good = (uint8_t)text[i] >= 0x20 && text[i] != 0x7f;
    if (good)
        memcpy(origin, text, size);
    origin[good ? size : 0] = '\0';
}

void rks_dataset_put_origins(const rks_dataset *dataset, const uint8_t *chosen, char *text,
                             size_t room)
{
    size_t used = 0, shown = 0;
    text[0] = '\0';
    for (size_t i = 0; i < dataset->shard_count; i++) {
        const char *origin = dataset->shards[i].origin;
        bool before = origin[0] == '\0' || chosen[i] == 0;
        size_t alike = 0;
        for (size_t k = 0; k < dataset->shard_count && !before; k++) {
            bool same = chosen[k] != 0 && strcmp(dataset->shards[k].origin, origin) == 0;
            before = same && k < i;
            alike += same;
        }
        if (before || used >= room)
            continue;
        if (shown++ == ORIGINS_SHOWN) {
            snprintf(text + used, room - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, room - used, "%s%s", shown == 1 ? "" : ", ", origin);
        if (alike > 1 && used < room)
            used += (size_t)snprintf(text + used, room - used, " (%zu)", alike);
    }
}
