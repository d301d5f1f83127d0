/* SPDX-License-Identifier: Apache-2.0
 *
 * top_read.c: processes show their figures at Unix sockets with abstract names,
 * "rankstore-top-UID-PID", which /proc/net/unix lists. Anyone may take such a name, so what another
 * user's process says is not read, and all is bounded: processes, bytes and time. */
#include "top_read.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 4096, ANSWER = 256 << 10, PATIENCE_MS = 500 };

#define FIGURE(name) {#name, offsetof(top_store, name)}
const top_figure top_figures[] = {
    FIGURE(rank),         FIGURE(ranks),      FIGURE(node),        FIGURE(nodes),
    FIGURE(samples),      FIGURE(bytes),      FIGURE(local_bytes), FIGURE(remote_bytes),
    FIGURE(served_bytes), FIGURE(disk_bytes), FIGURE(disk_reads),  FIGURE(home_bytes),
    FIGURE(wait_ns),      FIGURE(batches),    FIGURE(epoch),       FIGURE(step),
    FIGURE(steps),        FIGURE(ahead),      FIGURE(number),
};
const size_t top_figure_count = sizeof(top_figures) / sizeof(top_figures[0]);

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- one process -------------------------------------------------------------------------- */

static int connect_to(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof(peer);
    size_t length = strlen(name);
    if (length >= sizeof(address.sun_path))
        return -1;
    memcpy(address.sun_path + 1, name, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid())
        return fd;
    close(fd);
    return -1;
}

/* The whole answer, with a NUL; NULL: there is none. */
static char *ask(const char *name)
{
    int fd = connect_to(name);
    char *text = fd < 0 ? NULL : malloc(ANSWER + 1);
    size_t used = 0;
    uint64_t until = now_ms() + PATIENCE_MS;
    while (text != NULL && used < ANSWER && now_ms() < until) {
        struct pollfd one = {fd, POLLIN, 0};
        if (poll(&one, 1, (int)(until - now_ms()) + 1) <= 0)
            break;
        ssize_t got = recv(fd, text + used, ANSWER - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    if (text != NULL)
        text[used] = '\0';
    return text;
}

/* ---- its answer --------------------------------------------------------------------------- */

static void unescape(const char *word, char *text, size_t room)
{
    size_t used = 0;
    while (*word != '\0' && used + 1 < room) {
        char hex[3] = {0};
        if (*word == '%' && word[1] != '\0' && word[2] != '\0') {
            memcpy(hex, word + 1, 2);
            text[used++] = (char)strtoul(hex, NULL, 16);
            word += 3;
        } else {
            text[used++] = *word++;
        }
    }
    text[used] = '\0';
}

static void parse_figure(top_store *store, char *word)
{
    char *value = strchr(word, '=');
    if (value == NULL)
        return;
    *value++ = '\0';
    if (strcmp(word, "group") == 0)
        snprintf(store->group, sizeof(store->group), "%s", value);
    else if (strcmp(word, "dataset") == 0)
        snprintf(store->dataset, sizeof(store->dataset), "%s", value);
    else if (strcmp(word, "directory") == 0)
        unescape(value, store->directory, sizeof(store->directory));
    for (size_t i = 0; i < top_figure_count; i++)
        if (strcmp(word, top_figures[i].name) == 0) {
            uint64_t number = strtoull(value, NULL, 10);
            memcpy((char *)store + top_figures[i].field, &number, sizeof(number));
        }
}

static bool add_store(top_found *found, top_store *store)
{
    top_store *grown = found->stores;
    if ((found->count & (found->count - 1)) == 0) /* it doubles */
        grown = realloc(found->stores, (found->count == 0 ? 1 : 2 * found->count) * sizeof(*grown));
    if (grown == NULL)
        return false;
    found->stores = grown;
    found->stores[found->count++] = *store;
    return true;
}

/* An answer without its last line was cut: its last store may be, too. */
static int parse_answer(top_found *found, char *text)
{
    unsigned long long pid = 0, now = 0;
    char *rest = NULL, *line = strtok_r(text, "\n", &rest);
    if (line == NULL || sscanf(line, "rankstore-top 1 pid=%llu now_ms=%llu", &pid, &now) != 2)
        return 0;
    while ((line = strtok_r(NULL, "\n", &rest)) != NULL) {
        top_store store = {.pid = pid, .now_ms = now};
        char *words = NULL;
        if (strncmp(line, "end left_out=", 13) == 0)
            found->left_out += strtoul(line + 13, NULL, 10);
        if (strncmp(line, "store ", 6) != 0)
            continue;
        for (char *word = strtok_r(line + 6, " ", &words); word != NULL;
             word = strtok_r(NULL, " ", &words))
            parse_figure(&store, word);
        if (!add_store(found, &store))
            return ENOMEM;
    }
    return 0;
}

/* ---- all of them -------------------------------------------------------------------------- */

static int by_place(const void *left, const void *right)
{
    const top_store *a = left, *b = right;
    int by_group = strcmp(a->group, b->group);
    if (by_group != 0)
        return by_group;
    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

int top_read(top_found *found)
{
    char line[512], prefix[48];
    FILE *sockets = fopen("/proc/net/unix", "re");
    int error = 0;
    *found = (top_found){0};
    if (sockets == NULL)
        return errno;
    snprintf(prefix, sizeof(prefix), "@rankstore-top-%u-", (unsigned)geteuid());
    for (size_t asked = 0; error == 0 && asked < PROCESSES && fgets(line, sizeof(line), sockets);) {
        char *name = strstr(line, prefix);
        unsigned long flags = 0;
        /* Num RefCount Protocol Flags ...: a listener has the flag 0x10000. */
        if (name == NULL || sscanf(line, "%*s %*s %*s %lx", &flags) != 1 || (flags & 0x10000) == 0)
            continue;
        name[strcspn(name, "\n")] = '\0';
        char *text = ask(name + 1);
        if (text != NULL)
            error = parse_answer(found, text);
        free(text);
        asked++;
    }
    fclose(sockets);
    if (found->count > 0)
        qsort(found->stores, found->count, sizeof(*found->stores), by_place);
    if (error != 0)
        top_free(found);
    return error;
}

void top_free(top_found *found)
{
    free(found->stores);
    *found = (top_found){0};
}
