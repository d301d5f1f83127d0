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

enum { PATH_SHOWN = RKS_ORIGIN_MAX - 64 }; /* beside a host's name and a colon */

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
