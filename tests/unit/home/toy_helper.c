/* SPDX-License-Identifier: Apache-2.0
 *
 * toy_helper.c: a helper over a directory, whose bucket says in which way it fails:
 * "s3://MODE/PATH"; without a path it is TOY_PLACE. It keeps how often it was started in
 * PATH/starts. */
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char mode[64], place[1024];
static int starts, requests;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    char line[4096];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    if (write(1, line, (size_t)size) != size)
        _exit(1);
}

static bool is(const char *name)
{
    return strcmp(mode, name) == 0;
}

static bool take_url(const char *url)
{
    int found = sscanf(url, "s3://%63[^/\"]%1023[^\"]", mode, place);
    if (found == 1 && getenv("TOY_PLACE") != NULL)
        found += snprintf(place, sizeof(place), "%s", getenv("TOY_PLACE")) > 0;
    return found == 2;
}

static void count_start(void)
{
    char path[1100];
    struct stat info;
    snprintf(path, sizeof(path), "%s/starts", place);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd < 0 || write(fd, ".", 1) != 1 || fstat(fd, &info) != 0)
        _exit(1);
    starts = (int)info.st_size;
    close(fd);
}

static int open_file(const char *name, struct stat *info, char version[64])
{
    char path[1400];
    snprintf(path, sizeof(path), "%s/%s", place, name);
    int fd = open(path, O_RDONLY);
    if (fd >= 0 && fstat(fd, info) == 0)
        snprintf(version, 64, "\"%" PRIu64 "-%ld\"", (uint64_t)info->st_size,
                 (long)info->st_mtim.tv_nsec);
    return fd;
}

/* The answers that no helper should give. Returns true if it gave one. */
static bool misbehave(uint64_t id, uint64_t at, uint64_t size)
{
    if (is("dies") && starts == 1)
        _exit(3);
    if (is("talks")) { /* a secret lies across what is shown of it */
        fprintf(stderr, "key hunter2secret%0290d\n", 0);
        _exit(3);
    }
    if (is("always-dies")) {
        fprintf(stderr, "no such region; key hunter2secret\n");
        _exit(3);
    }
    if (is("unknown-id"))
        say("ok %" PRIu64 " 0 - 0\n", id + 1000);
    else if (is("garbage"))
        say("%c%c%c\n", 0, 255, 10);
    else if (is("long"))
        for (int i = 0; i < 100; i++)
            say("%0200d", i);
    else if (is("too-many-bytes"))
        say("ok %" PRIu64 " %" PRIu64 " v 99999999999\n", id, size + 1);
    else if (is("huge"))
        say("ok %" PRIu64 " 99999999999999999999999 v 5\n", id);
    else if (is("at-beyond"))
        say("at %" PRIu64 " %" PRIu64 "\n", id, size + 1);
    else if (is("hangs") && starts == 1)
        return true;
    else if (is("busy") && requests <= 2)
        say("fail %" PRIu64 " busy=10 503 SlowDown\n", id);
    else if (is("denied"))
        say("fail %" PRIu64 " denied 403 for key hunter2secret\n", id);
    else if (is("odd-kind") && requests == 1)
        say("fail %" PRIu64 " whatever it is\n", id);
    else if (is("shrinks") && ftruncate(3, 0) == 0)
        say("ok %" PRIu64 " %" PRIu64 " v %d\n", id, size, 100000);
    else
        return false;
    (void)at;
    return true;
}

static void get(uint64_t id, uint64_t at, uint64_t first, uint64_t end, const char *wanted,
                const char *name)
{
    struct stat info;
    char version[64];
    if (misbehave(id, at, end - first))
        return;
    int fd = open_file(name, &info, version);
    if (fd < 0) {
        say("fail %" PRIu64 " missing 404 NoSuchKey\n", id);
        return;
    }
    if (is("changes") && first > 0)
        snprintf(version, sizeof(version), "other");
    uint64_t size = (uint64_t)info.st_size, done = 0;
    end = end < size ? end : size;
    char *room = malloc(1 << 20);
    while (first + done < end) {
        size_t some = end - first - done < 1 << 20 ? (size_t)(end - first - done) : 1 << 20;
        if (pread(fd, room, some, (off_t)(first + done)) != (ssize_t)some ||
            pwrite(3, room, some, (off_t)(at + done)) != (ssize_t)some)
            _exit(1);
        done += some;
        say("at %" PRIu64 " %" PRIu64 "\n", id, done);
    }
    free(room);
    close(fd);
    if (strcmp(wanted, "-") != 0 && strcmp(wanted, version) != 0)
        say("fail %" PRIu64 " changed 412 PreconditionFailed\n", id);
    else if (is("short") && requests <= 2)
        say("ok %" PRIu64 " %" PRIu64 " %s %" PRIu64 "\n", id, done / 2, version, size);
    else
        say("ok %" PRIu64 " %" PRIu64 " %s %" PRIu64 "\n", id, done, version, size);
}

static void stat_file(uint64_t id, const char *name)
{
    struct stat info;
    char version[64];
    if (misbehave(id, 0, 0))
        return;
    int fd = open_file(name, &info, version);
    if (fd < 0)
        say("fail %" PRIu64 " missing 404\n", id);
    else
        say("ok %" PRIu64 " 0 %s %" PRIu64 "\n", id, version, (uint64_t)info.st_size);
    if (fd >= 0)
        close(fd);
}

/* One put at a time. */
static struct put {
    uint64_t id, size, done;
    char name[256], temporary[1400];
    int fd;
} putting;

static void end_put(void)
{
    struct stat info;
    char path[1400], version[64];
    snprintf(path, sizeof(path), "%s/%s", place, putting.name);
    close(putting.fd);
    if (rename(putting.temporary, path) != 0)
        _exit(1);
    int fd = open_file(putting.name, &info, version);
    close(fd);
    say("ok %" PRIu64 " 0 %s %" PRIu64 "\n", putting.id, version, putting.size);
}

static void put(uint64_t id, uint64_t size, const char *rule, const char *wanted, const char *name)
{
    struct stat info;
    char version[64] = "-";
    if (misbehave(id, 0, size))
        return;
    int fd = open_file(name, &info, version);
    if (fd >= 0)
        close(fd);
    if (strcmp(rule, "absent") == 0 ? fd >= 0 : strcmp(wanted, version) != 0) {
        say("fail %" PRIu64 " changed 412 PreconditionFailed\n", id);
        return;
    }
    putting = (struct put){.id = id, .size = size};
    snprintf(putting.name, sizeof(putting.name), "%s", name);
    snprintf(putting.temporary, sizeof(putting.temporary), "%s/%s.putting", place, name);
    putting.fd = open(putting.temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (size == 0)
        end_put();
    else
        say("more %" PRIu64 "\n", id);
}

static void part(uint64_t id, uint64_t at, uint64_t size)
{
    char *room = malloc(size);
    if (id != putting.id || pread(3, room, size, (off_t)at) != (ssize_t)size ||
        write(putting.fd, room, size) != (ssize_t)size)
        _exit(1);
    free(room);
    if (is("dies-in-put") && starts == 1)
        _exit(3);
    putting.done += size;
    if (putting.done == putting.size)
        end_put();
    else
        say("more %" PRIu64 "\n", id);
}

static void drop(uint64_t id)
{
    if (id == putting.id && unlink(putting.temporary) != 0)
        _exit(1);
    say("fail %" PRIu64 " broken dropped\n", id);
}

int main(void)
{
    static char line[1 << 16], rule[64], version[64], name[256];
    uint64_t id, a, b, c;
    if (fgets(line, sizeof(line), stdin) == NULL)
        return 1;
    const char *url = strstr(line, "s3://");
    if (url == NULL || !take_url(url))
        return 1;
    count_start();
    if (is("bad"))
        say("bad no credentials; looked in the environment\n");
    else if (!is("silent"))
        say("ready 1\n");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        requests++;
        version[0] = name[0] = '\0';
        if (sscanf(line, "get %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %63s %255[^\n]", &id,
                   &a, &b, &c, version, name) == 6)
            get(id, a, b, c, version, name);
        else if (sscanf(line, "stat %" SCNu64 " %63s %255[^\n]", &id, version, name) == 3)
            stat_file(id, name);
        else if (sscanf(line, "put %" SCNu64 " %" SCNu64 " %63s %63s %255[^\n]", &id, &a, rule,
                        version, name) == 5)
            put(id, a, rule, version, name);
        else if (sscanf(line, "part %" SCNu64 " %" SCNu64 " %" SCNu64, &id, &a, &b) == 3)
            part(id, a, b);
        else if (sscanf(line, "drop %" SCNu64, &id) == 1)
            drop(id);
        else if (is("more") && starts == 1 && sscanf(line, "list %" SCNu64, &id) == 1)
            say("more %" PRIu64 "\n", id);
        else if (sscanf(line, "list %" SCNu64 " %255[^\n]", &id, name) >= 1)
            say("item %" PRIu64 " 12 3600 v1 %sone\nitem %" PRIu64 " 7 0 - %stwo words\nok %" PRIu64
                " 0 - 0\n",
                id, name, id, name, id);
        else if (sscanf(line, "remove %" SCNu64 " %63s %255[^\n]", &id, version, name) == 3)
            say(is("more") && starts == 1 ? "more %" PRIu64 "\n"
                : is("changes")           ? "fail %" PRIu64 " changed 412\n"
                                          : "ok %" PRIu64 " 0 - 0\n",
                id);
        else
            return 1;
    }
    return 0;
}
