/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest_inputs.c: about TOTAL bytes each, of words or of numbers that pack badly. */
#include "ingest_inputs.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/bytes.h"
#include "base/simdjson.h"
#include "bench.h"

enum { TOTAL = 32 << 20, ROOM = 1 << 20, LINE = 300, LARGE = 100 << 10, SMALL = 8 << 10 };
enum { ROW = 1 << 10, TOKENS = 512, SHARDS = 4, SAMPLES = 4096 };

/* ---- making them ----------------------------------------------------------------------------- */

static void fail(const char *what)
{
    fprintf(stderr, "bench_ingest: %s: %s\n", what, strerror(errno));
    exit(3);
}

/* Words, so that packing has something to find. */
static void fill_words(char *to, size_t size, uint64_t *state)
{
    for (size_t i = 0; i < size; i++) {
        uint64_t random = bench_random(state);
        to[i] = random % 6 == 0 ? ' ' : (char)('a' + (random >> 8) % 8 + (random >> 16) % 8);
    }
}

static char *make_lines(bool json, size_t *size)
{
    char *lines = malloc(TOTAL + 4 * LINE), *at = lines;
    char words[8 * LINE];
    uint64_t state = 1;
    for (int row = 0; at - lines < TOTAL; row++) {
        size_t count = bench_size(&state, LINE, 0.3) % (4 * LINE);
        fill_words(words, count, &state);
        words[count] = '\0';
        if (at - lines + (ptrdiff_t)count + 100 > TOTAL + 4 * LINE)
            break;
        at += json ? sprintf(at, "{\"id\": %d, \"text\": \"%s\", \"ids\": [%d, %d, 3, 4]}\n", row,
                             words, row % 1000, row % 77)
                   : sprintf(at, "%s\n", words);
    }
    *size = (size_t)(at - lines);
    return lines;
}

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0)
        fail(path);
}

static struct archive *begin_archive(const char *path, const char *format, const char *filter)
{
    struct archive *made = archive_write_new();
    int code = archive_write_set_format_by_name(made, format);
    if (code == ARCHIVE_OK && filter != NULL)
        code = archive_write_add_filter_by_name(made, filter);
    if (code == ARCHIVE_OK && filter != NULL && strcmp(filter, "xz") == 0)
        code = archive_write_set_filter_option(made, "xz", "compression-level", "1");
    if (code != ARCHIVE_OK || archive_write_open_filename(made, path) != ARCHIVE_OK)
        fail(archive_error_string(made));
    return made;
}

static void add_member(struct archive *to, const char *name, const char *bytes, size_t size)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (la_int64_t)size);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    if (archive_write_header(to, entry) != ARCHIVE_OK ||
        archive_write_data(to, bytes, size) != (la_ssize_t)size)
        fail(archive_error_string(to));
    archive_entry_free(entry);
}

static void end_archive(struct archive *made)
{
    if (archive_write_close(made) != ARCHIVE_OK)
        fail(archive_error_string(made));
    archive_write_free(made);
}

static uint64_t make_lines_file(const input *in, const char *path)
{
    size_t size = 0;
    char *bytes = make_lines(in->json, &size);
    if (in->format == NULL) {
        write_file(path, bytes, size);
    } else {
        struct archive *made = begin_archive(path, in->format, in->filter);
        add_member(made, "lines", bytes, size);
        end_archive(made);
    }
    free(bytes);
    return size;
}

static uint64_t make_members(const input *in, const char *path)
{
    size_t size = 0;
    char *bytes = make_lines(false, &size), name[64];
    struct archive *made = begin_archive(path, in->format, in->filter);
    for (size_t i = 0; i < TOTAL / in->member; i++) {
        snprintf(name, sizeof(name), "part/%05zu.bin", i);
        add_member(made, name, bytes + i * in->member, in->member);
    }
    end_archive(made);
    free(bytes);
    return TOTAL / in->member * in->member;
}

static void make_directory(const char *path)
{
    if (mkdir(path, 0700) != 0)
        fail(path);
}

static uint64_t make_folder(const input *in, const char *path)
{
    size_t size = 0;
    char *bytes = make_lines(false, &size), name[5000];
    make_directory(path);
    for (size_t i = 0; i < TOTAL / in->member; i++) {
        snprintf(name, sizeof(name), "%s/%05zu.txt", path, i);
        write_file(name, bytes + i * in->member, in->member);
    }
    free(bytes);
    return TOTAL;
}

/* Three columns: a number, words (in quotes each eighth row, with a newline in them), a real. */
static uint64_t make_csv(const input *in, const char *path)
{
    (void)in;
    char *bytes = malloc(TOTAL + 8 * LINE), *at = bytes, words[8 * LINE];
    uint64_t state = 1;
    at += sprintf(at, "id,text,score\n");
    for (int row = 0; at - bytes < TOTAL; row++) {
        size_t count = bench_size(&state, LINE, 0.3) % (4 * LINE);
        fill_words(words, count, &state);
        words[count] = '\0';
        at += sprintf(at, row % 8 == 0 ? "%d,\"%s\n\",%.4f\n" : "%d,%s,%.4f\n", row, words,
                      row / 77.0);
    }
    size_t size = (size_t)(at - bytes);
    write_file(path, bytes, size);
    free(bytes);
    return size;
}

/* Numbers whose lower half is noise. */
static uint8_t *make_numbers(size_t size)
{
    uint8_t *bytes = malloc(size);
    uint64_t state = 1;
    for (size_t i = 0; i < size; i += 4)
        rks_store_u32(bytes + i, (uint32_t)(i >> 8) << 16 | (bench_random(&state) & 0xffff));
    return bytes;
}

/* An array of float32 of rows of `row` bytes, its header in front. */
static uint8_t *make_npy(size_t row, size_t rows, size_t *size)
{
    uint8_t *numbers = make_numbers(row * rows), *bytes = malloc(128 + row * rows);
    memset(bytes, ' ', 128);
    memcpy(bytes, "\x93NUMPY\1\0\x76\0", 10);
    int used =
        sprintf((char *)bytes + 10,
                "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }", rows, row / 4);
    bytes[10 + used] = ' ';
    bytes[127] = '\n';
    memcpy(bytes + 128, numbers, row * rows);
    free(numbers);
    *size = 128 + row * rows;
    return bytes;
}

static uint64_t make_npy_file(const input *in, const char *path)
{
    (void)in;
    size_t size = 0;
    uint8_t *bytes = make_npy(ROW, TOTAL / ROW, &size);
    write_file(path, bytes, size);
    free(bytes);
    return size;
}

/* Two arrays of as many rows; in->filter: how they are packed. */
static uint64_t make_npz(const input *in, const char *path)
{
    size_t wide = 0, narrow = 0;
    uint8_t *x = make_npy(ROW, TOTAL / ROW, &wide), *y = make_npy(16, TOTAL / ROW, &narrow);
    struct archive *made = archive_write_new();
    if (archive_write_set_format_zip(made) != ARCHIVE_OK ||
        (strcmp(in->filter, "store") == 0
             ? archive_write_zip_set_compression_store(made)
             : archive_write_zip_set_compression_deflate(made)) != ARCHIVE_OK ||
        archive_write_open_filename(made, path) != ARCHIVE_OK)
        fail(path);
    add_member(made, "x.npy", (const char *)x, wide);
    add_member(made, "y.npy", (const char *)y, narrow);
    end_archive(made);
    free(x);
    free(y);
    return wide + narrow;
}

static void with_ending(const char *path, const char *ending, char name[5000])
{
    snprintf(name, 5000, "%s%s", path, ending);
}

static uint64_t make_megatron(const input *in, const char *path)
{
    (void)in;
    enum { COUNT = TOTAL / 2 / TOKENS };
    uint8_t *tokens = make_numbers(TOTAL), *index = calloc(1, 34 + 12 * COUNT);
    char name[5000];
    memcpy(index, "MMIDIDX\0\0\1", 10);
    index[17] = 8;
    rks_store_u64(index + 18, COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        rks_store_u32(index + 34 + 4 * i, TOKENS);
        rks_store_u64(index + 34 + 4 * COUNT + 8 * i, 2 * TOKENS * i);
    }
    with_ending(path, ".bin", name);
    write_file(name, tokens, TOTAL);
    with_ending(path, ".idx", name);
    write_file(name, index, 34 + 12 * COUNT);
    free(tokens);
    free(index);
    return TOTAL + 34 + 12 * COUNT;
}

static const char SHARD[] =
    "%s{\"format\":\"mds\",\"samples\":%d,\"column_names\":[\"n\",\"s\"],"
    "\"column_encodings\":[\"int\",\"str\"],\"column_sizes\":[8,null],\"raw_data\":{"
    "\"basename\":\"%s\",\"bytes\":%zu},\"zip_data\":%s}";

/* A shard of `samples` texts and numbers. */
static size_t make_shard(const char *text, size_t each, uint8_t *shard)
{
    size_t place = 4 * (SAMPLES + 2);
    rks_store_u32(shard, SAMPLES);
    for (uint64_t i = 0; i <= SAMPLES; i++) {
        rks_store_u32(shard + 4 + 4 * i, (uint32_t)place);
        if (i == SAMPLES)
            break;
        rks_store_u32(shard + place, (uint32_t)each);
        rks_store_u64(shard + place + 4, i);
        memcpy(shard + place + 12, text + i * each, each);
        place += 12 + each;
    }
    return place;
}

static uint64_t make_mds(const input *in, const char *path)
{
    enum { EACH = TOTAL / SHARDS / SAMPLES };
    size_t size = 0, total = 0;
    char *text = make_lines(false, &size), name[5000], base[64], zip[128] = "null";
    char index[4096] = "{\"version\":2,\"shards\":[";
    uint8_t *shard = malloc(4 * (SAMPLES + 2) + (size_t)SAMPLES * (12 + EACH));
    make_directory(path);
    for (int i = 0; i < SHARDS; i++) {
        size = make_shard(text + (size_t)i * SAMPLES * EACH, EACH, shard);
        total += size;
        snprintf(base, sizeof(base), "shard.%05d.mds", i);
        snprintf(name, sizeof(name), "%s/%s%s", path, base, in->filter == NULL ? "" : ".zstd");
        if (in->filter == NULL) {
            write_file(name, shard, size);
        } else {
            struct archive *made = begin_archive(name, "raw", in->filter);
            add_member(made, "shard", (const char *)shard, size);
            end_archive(made);
            snprintf(zip, sizeof(zip), "{\"basename\":\"%s.zstd\"}", base);
        }
        size_t used = strlen(index);
        snprintf(index + used, sizeof(index) - used, SHARD, i == 0 ? "" : ",", SAMPLES, base, size,
                 zip);
    }
    strcat(index, "]}");
    with_ending(path, "/index.json", name);
    write_file(name, index, strlen(index));
    free(text);
    free(shard);
    return total;
}

/* ---- what the libraries take ----------------------------------------------------------------- */

static char room[ROOM + 8 * LINE + RKS_SIMDJSON_PADDING];

/* Lines of a room; what follows the last newline goes to its front, and how much that is comes
 * back. */
static size_t look_at_lines(size_t filled, bool json)
{
    static rks_simdjson *parser;
    uint64_t *tape;
    const uint8_t *strings;
    const char *why;
    char *at = room, *end = room + filled, *newline;
    if (parser == NULL)
        parser = rks_simdjson_create();
    while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        if (json && rks_simdjson_parse(parser, (const uint8_t *)at, (size_t)(newline - at), &tape,
                                       &strings, &why) != RKS_SIMDJSON_OK)
            fail("simdjson refuses a line");
        at = newline + 1;
    }
    memmove(room, at, (size_t)(end - at));
    return (size_t)(end - at);
}

static void read_plain(const input *in, const char *path)
{
    bool json = in->json;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t left = 0;
    for (ssize_t got; (got = read(fd, room + left, ROOM)) > 0;)
        left = look_at_lines(left + (size_t)got, json);
    close(fd);
}

static void read_gzip(const input *in, const char *path)
{
    bool json = in->json;
    gzFile file = gzopen(path, "rb");
    size_t left = 0;
    gzbuffer(file, 256 << 10);
    for (int got; (got = gzread(file, room + left, ROOM)) > 0;)
        left = look_at_lines(left + (size_t)got, json);
    gzclose(file);
}

/* All members' bytes; or, of a packed file, its lines. */
static void read_archive(const input *in, const char *path)
{
    bool raw = in->format != NULL && strcmp(in->format, "raw") == 0;
    struct archive *reader = archive_read_new();
    struct archive_entry *entry = NULL;
    archive_read_support_filter_all(reader);
    if (raw)
        archive_read_support_format_raw(reader);
    else
        archive_read_support_format_all(reader);
    if (archive_read_open_filename(reader, path, 256 << 10) != ARCHIVE_OK)
        fail(archive_error_string(reader));
    while (archive_read_next_header(reader, &entry) == ARCHIVE_OK) {
        size_t left = 0;
        for (la_ssize_t got; (got = archive_read_data(reader, room + left, ROOM)) > 0;)
            left = raw ? look_at_lines(left + (size_t)got, in->json) : 0;
    }
    archive_read_free(reader);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Listed in an order that does not hang on the disk, as any reader would. */
static void read_folder(const input *in, const char *path)
{
    (void)in;
    struct dirent **entries = NULL;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = scandir(path, &entries, NULL, by_name);
    if (folder < 0 || count < 0)
        fail(path);
    for (int i = 0; i < count; i++) {
        struct stat info;
        int fd = openat(folder, entries[i]->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &info) != 0 ||
            (S_ISREG(info.st_mode) && read(fd, room, ROOM) != (ssize_t)info.st_size))
            fail(entries[i]->d_name);
        close(fd);
        free(entries[i]);
    }
    free(entries);
    close(folder);
}

/* Bytes alone. */
static void read_bytes(const input *in, const char *path)
{
    (void)in;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(path);
    while (read(fd, room, ROOM) > 0)
        continue;
    close(fd);
}

static void read_pair(const input *in, const char *path)
{
    char name[5000];
    with_ending(path, ".idx", name);
    read_bytes(in, name);
    with_ending(path, ".bin", name);
    read_bytes(in, name);
}

static void read_shards(const input *in, const char *path)
{
    char name[5000];
    for (int i = 0; i < SHARDS; i++) {
        snprintf(name, sizeof(name), "%s/shard.%05d.mds%s", path, i,
                 in->filter == NULL ? "" : ".zstd");
        if (in->filter == NULL)
            read_bytes(in, name);
        else
            read_archive(in, name);
    }
}

/* The fields of a room's records, and what its numbers are; what is left comes back. */
static size_t look_at_records(size_t filled)
{
    char *at = room, *end = room + filled;
    static volatile double sink;
    for (;;) {
        char *fields[3], *from = at;
        for (int i = 0; i < 3; i++) {
            fields[i] = from;
            char *after =
                from < end && *from == '"' ? memchr(from + 1, '"', (size_t)(end - from - 1)) : from;
            from = after == NULL || after >= end
                       ? NULL
                       : memchr(after, i < 2 ? ',' : '\n', (size_t)(end - after));
            if (from++ == NULL)
                goto out;
        }
        sink = (double)strtoll(fields[0], NULL, 10) + strtod(fields[2], NULL);
        at = from;
    }
out:
    (void)sink;
    memmove(room, at, (size_t)(end - at));
    return (size_t)(end - at);
}

static void read_csv(const input *in, const char *path)
{
    (void)in;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t left = 0;
    for (ssize_t got; (got = read(fd, room + left, ROOM)) > 0;)
        left = look_at_records(left + (size_t)got);
    close(fd);
}

/* ---- all of them ----------------------------------------------------------------------------- */

const input INPUTS[] = {
    {"lines.jsonl", "read + simdjson", make_lines_file, read_plain, NULL, NULL, true, 0},
    {"lines.jsonl.gz", "zlib + simdjson", make_lines_file, read_gzip, "raw", "gzip", true, 0},
    {"lines.txt", "read + memchr", make_lines_file, read_plain, NULL, NULL, false, 0},
    {"lines.txt.gz", "zlib + memchr", make_lines_file, read_gzip, "raw", "gzip", false, 0},
    {"lines.txt.zst", "libarchive + memchr", make_lines_file, read_archive, "raw", "zstd", false,
     0},
    {"lines.txt.xz", "libarchive + memchr", make_lines_file, read_archive, "raw", "xz", false, 0},
    {"lines.txt.bz2", "libarchive + memchr", make_lines_file, read_archive, "raw", "bzip2", false,
     0},
    {"table.csv", "read + memchr, strtod", make_csv, read_csv, NULL, NULL, false, 0},
    {"folder", "scandir, open, read", make_folder, read_folder, NULL, NULL, false, SMALL},
    {"large.tar", "libarchive", make_members, read_archive, "ustar", NULL, false, LARGE},
    {"small.tar", "libarchive", make_members, read_archive, "ustar", NULL, false, SMALL},
    {"small.tar.gz", "libarchive", make_members, read_archive, "ustar", "gzip", false, SMALL},
    {"small.zip", "libarchive", make_members, read_archive, "zip", NULL, false, SMALL},
    {"rows.npy", "read", make_npy_file, read_bytes, NULL, NULL, false, 0},
    {"stored.npz", "libarchive", make_npz, read_archive, NULL, "store", false, 0},
    {"deflated.npz", "libarchive", make_npz, read_archive, NULL, "deflate", false, 0},
    {"megatron", "read", make_megatron, read_pair, NULL, NULL, false, 0},
    {"mds", "read", make_mds, read_shards, NULL, NULL, false, 0},
    {"mds, zstd", "libarchive", make_mds, read_shards, "raw", "zstd", false, 0},
};
const size_t INPUT_COUNT = sizeof(INPUTS) / sizeof(INPUTS[0]);
