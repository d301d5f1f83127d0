/* SPDX-License-Identifier: Apache-2.0
 *
 * floor_inputs.c: what bounds a build, for inputs.py, as seconds and seconds of processor:
 *
 *   floor_inputs parse FILE           simdjson's DOM over each line of FILE, nothing kept
 *   floor_inputs write FILE BYTES     write() of so many bytes, fdatasync() each 64 MiB and at the
 * end floor_inputs unzip FILE           zlib over a .gz file
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/simdjson.h"
#include "bench.h"

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void parse(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY);
    rks_simdjson *parser = rks_simdjson_create();
    if (fd < 0 || parser == NULL || fstat(fd, &info) != 0)
        fail(path);
    size_t size = (size_t)info.st_size, filled = 0, room = 4 << 20;
    uint8_t *bytes = calloc(room + RKS_SIMDJSON_PADDING, 1);
    if (bytes == NULL)
        fail("memory");
    for (size_t read_bytes = 0; read_bytes < size || filled > 0;) {
        ssize_t got = read(fd, bytes + filled, room - filled);
        if (got < 0)
            fail(path);
        filled += (size_t)got;
        read_bytes += (size_t)got;
        uint8_t *at = bytes, *end = bytes + filled;
        for (uint8_t *newline; (newline = memchr(at, '\n', (size_t)(end - at))) != NULL;
             at = newline + 1) {
            uint64_t *tape;
            const uint8_t *strings;
            const char *why;
            if (rks_simdjson_parse(parser, at, (size_t)(newline - at), &tape, &strings, &why) !=
                RKS_SIMDJSON_OK) {
                fprintf(stderr, "%s: %s\n", path, why);
                exit(1);
            }
        }
        filled = (size_t)(end - at);
        memmove(bytes, at, filled);
        if (got == 0)
            break;
    }
    free(bytes);
    rks_simdjson_free(parser);
    close(fd);
}

static void write_synced(const char *path, uint64_t bytes)
{
    enum { PIECE = 4 << 20, SYNC = 64 << 20 };
    char *piece = malloc(PIECE);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (piece == NULL || fd < 0)
        fail(path);
    for (size_t i = 0; i < PIECE; i++)
        piece[i] = (char)(i * 7919 >> 3);
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done;
        ssize_t wrote = write(fd, piece, left < PIECE ? (size_t)left : PIECE);
        if (wrote <= 0)
            fail(path);
        done += (uint64_t)wrote;
        if ((done % SYNC < PIECE || done == bytes) && fdatasync(fd) != 0)
            fail(path);
    }
    close(fd);
    free(piece);
}

static void unzip(const char *path)
{
    static char piece[1 << 20];
    gzFile file = gzopen(path, "rb");
    if (file == NULL)
        fail(path);
    while (gzread(file, piece, sizeof(piece)) > 0)
        ;
    gzclose(file);
}

int main(int argc, char **argv)
{
    double begun = bench_seconds(), used = bench_cpu();
    if (argc == 3 && strcmp(argv[1], "parse") == 0)
        parse(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "write") == 0)
        write_synced(argv[2], strtoull(argv[3], NULL, 10));
    else if (argc == 3 && strcmp(argv[1], "unzip") == 0)
        unzip(argv[2]);
    else {
        fprintf(stderr, "floor_inputs parse|write|unzip FILE [BYTES]\n");
        return 2;
    }
    printf("{\"seconds\": %.6f, \"cpu\": %.6f}\n", bench_seconds() - begun, bench_cpu() - used);
    return 0;
}
