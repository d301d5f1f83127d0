/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ingest.c: how fast inputs become samples, beside what the library that reads them takes
 * for the same bytes: libarchive for members, zlib or libarchive for what is packed, jansson for
 * JSON, read() for plain files.
 *
 * What is measured is rks_input_open() and rks_ingest_unit() of all units, schema given, on one
 * thread, with the three calls of the shard writer replaced by a count (ld --wrap): writing a shard
 * is bench_shard's. Rates are of unpacked bytes by seconds of that thread's processor, so that
 * other programs disturb little; libarchive's copying of members' bytes is asked of both sides.
 *
 * Usage: bench_ingest DIRECTORY (on a disk with 300 MB to spare; what it makes there is removed) */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/memory.h"
#include "bench.h"
#include "ingest/ingest.h"
#include "store/directory.h"

enum { TOTAL = 32 << 20, ROOM = 1 << 20, LINE = 300, LARGE = 100 << 10, SMALL = 8 << 10 };

static char directory[3000];
static uint64_t samples; /* that came to the writer */

/* ---- the writer's place ---------------------------------------------------------------------- */

rks_status __wrap_rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit,
                                         const char *key_name, uint64_t first_source_row,
                                         rks_error *err);
rks_status __wrap_rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values,
                                       const void *key, size_t key_size, uint32_t length,
                                       uint32_t source_row, rks_error *err);
rks_status __wrap_rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                       uint64_t bad, rks_error *err);

rks_status __wrap_rks_shard_writer_begin(rks_shard_writer *writer, uint64_t unit,
                                         const char *key_name, uint64_t first_source_row,
                                         rks_error *err)
{
    (void)writer, (void)unit, (void)key_name, (void)first_source_row, (void)err;
    return RKS_OK;
}

rks_status __wrap_rks_shard_writer_add(rks_shard_writer *writer, const rks_value *values,
                                       const void *key, size_t key_size, uint32_t length,
                                       uint32_t source_row, rks_error *err)
{
    (void)writer, (void)values, (void)key, (void)key_size, (void)length, (void)source_row,
        (void)err;
    samples++;
    return RKS_OK;
}

rks_status __wrap_rks_shard_writer_end(rks_shard_writer *writer, uint64_t seen, uint64_t filtered,
                                       uint64_t bad, rks_error *err)
{
    (void)writer, (void)seen, (void)filtered, (void)bad, (void)err;
    return RKS_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void fail(const char *what)
{
    fprintf(stderr, "bench_ingest: %s\n", what);
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

static void write_file(const char *path, const char *bytes, size_t size)
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

/* ---- what the libraries take ----------------------------------------------------------------- */

static char room[ROOM + 8 * LINE];

/* Lines of a room; what follows the last newline goes to its front, and how much that is comes
 * back. */
static size_t look_at_lines(size_t filled, bool json)
{
    char *at = room, *end = room + filled, *newline;
    while ((newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        json_t *root = json ? json_loadb(at, (size_t)(newline - at), 0, NULL) : NULL;
        if (json && root == NULL)
            fail("jansson refuses a line");
        json_decref(root);
        at = newline + 1;
    }
    memmove(room, at, (size_t)(end - at));
    return (size_t)(end - at);
}

static void read_plain(const char *path, bool json)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t left = 0;
    for (ssize_t got; (got = read(fd, room + left, ROOM)) > 0;)
        left = look_at_lines(left + (size_t)got, json);
    close(fd);
}

static void read_gzip(const char *path, bool json)
{
    gzFile file = gzopen(path, "rb");
    size_t left = 0;
    gzbuffer(file, 256 << 10);
    for (int got; (got = gzread(file, room + left, ROOM)) > 0;)
        left = look_at_lines(left + (size_t)got, json);
    gzclose(file);
}

/* All members' bytes; or, of a packed file, its lines. */
static void read_archive(const char *path, bool raw, bool json)
{
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
            left = raw ? look_at_lines(left + (size_t)got, json) : 0;
    }
    archive_read_free(reader);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Listed in an order that does not hang on the disk, as any reader would. */
static void read_folder(const char *path)
{
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

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct input {
    const char *name;
    const char *library;
    const char *format; /* libarchive's; NULL: plain */
    const char *filter;
    bool json;
    size_t member; /* bytes of a member; 0: lines */
} input;

static const input INPUTS[] = {
    {"lines.jsonl", "read + jansson", NULL, NULL, true, 0},
    {"lines.jsonl.gz", "zlib + jansson", "raw", "gzip", true, 0},
    {"lines.txt", "read + memchr", NULL, NULL, false, 0},
    {"lines.txt.gz", "zlib + memchr", "raw", "gzip", false, 0},
    {"lines.txt.zst", "libarchive + memchr", "raw", "zstd", false, 0},
    {"lines.txt.xz", "libarchive + memchr", "raw", "xz", false, 0},
    {"folder", "scandir, open, read", NULL, NULL, false, SMALL},
    {"large.tar", "libarchive", "ustar", NULL, false, LARGE},
    {"small.tar", "libarchive", "ustar", NULL, false, SMALL},
    {"small.tar.gz", "libarchive", "ustar", "gzip", false, SMALL},
    {"small.zip", "libarchive", "zip", NULL, false, SMALL},
};
enum { INPUT_COUNT = sizeof(INPUTS) / sizeof(INPUTS[0]) };

static uint64_t make_input(const input *in, const char *path)
{
    size_t size = 0;
    char *bytes = make_lines(in->json, &size);
    if (in->member == 0 && in->format == NULL) {
        write_file(path, bytes, size);
    } else if (in->format == NULL) {
        char name[5000];
        if (mkdir(path, 0700) != 0)
            fail(path);
        for (int i = 0; i < TOTAL / SMALL; i++) {
            snprintf(name, sizeof(name), "%s/%05d.txt", path, i);
            write_file(name, bytes + (size_t)i * SMALL, SMALL);
        }
        size = TOTAL;
    } else {
        struct archive *made = begin_archive(path, in->format, in->filter);
        if (in->member == 0)
            add_member(made, "lines", bytes, size);
        for (size_t i = 0; in->member != 0 && i < TOTAL / in->member; i++) {
            char name[64];
            snprintf(name, sizeof(name), "part/%05zu.bin", i);
            add_member(made, name, bytes + i * in->member, in->member);
        }
        end_archive(made);
        size = in->member == 0 ? size : TOTAL / in->member * in->member;
    }
    free(bytes);
    return size;
}

static void read_by_library(const input *in, const char *path)
{
    if (in->format == NULL && in->member != 0)
        read_folder(path);
    else if (in->format == NULL)
        read_plain(path, in->json);
    else if (in->member == 0 && strcmp(in->filter, "gzip") == 0)
        read_gzip(path, in->json);
    else
        read_archive(path, in->member == 0, in->json);
}

typedef struct plan {
    char *schema_text;
    rks_schema *schema;
} plan;

static void find_schema(const char *path, plan *made)
{
    rks_error err;
    rks_input *opened = NULL;
    rks_build_options options;
    rks_build_options_default(&options);
    bench_must(rks_input_open(&path, 1, &options, &opened, &err), &err);
    bench_must(rks_ingest_infer(opened, 0, &made->schema_text, &err), &err);
    bench_must(rks_schema_parse(made->schema_text, &made->schema, &err), &err);
    rks_input_free(opened);
}

static void read_by_us(const char *path, const plan *with)
{
    rks_error err;
    rks_input *opened = NULL;
    rks_selector *selector = NULL;
    rks_buffer bad = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    options.schema = with->schema_text;
    bench_must(rks_input_open(&path, 1, &options, &opened, &err), &err);
    rks_input_options(opened, &options);
    bench_must(rks_selector_create(with->schema, &options, &selector, &err), &err);
    for (size_t unit = 0; unit < opened->unit_count; unit++)
        bench_must(rks_ingest_unit(opened, unit, 0, with->schema, &options, selector, NULL, &bad,
                                   NULL, &err),
                   &err);
    rks_selector_free(selector);
    rks_buffer_free(&bad);
    rks_input_free(opened);
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void measure(const input *in)
{
    char path[4096];
    struct stat info;
    double ours[ROUNDS], theirs[ROUNDS];
    plan with = {0};
    snprintf(path, sizeof(path), "%s/%s", directory, in->name);
    uint64_t size = make_input(in, path);
    stat(path, &info);
    find_schema(path, &with);
    for (int round = -1; round < ROUNDS; round++) { /* one to warm up */
        double begun = thread_seconds();
        read_by_library(in, path);
        double between = thread_seconds();
        samples = 0;
        read_by_us(path, &with);
        if (round >= 0) {
            theirs[round] = between - begun;
            ours[round] = thread_seconds() - between;
        }
    }
    double mb = (double)size / 1e6, us = bench_median(ours), them = bench_median(theirs);
    printf("%-15s %6.1f %8.1f %8llu %8.0f %8.0f   %-20s %4.0f %%\n", in->name, mb,
           S_ISDIR(info.st_mode) ? mb : (double)info.st_size / 1e6, (unsigned long long)samples,
           mb / us, mb / them, in->library, 100 * them / us);
    fflush(stdout);
    rks_schema_free(with.schema);
    rks_free(with.schema_text);
    if (S_ISDIR(info.st_mode))
        rks_directory_remove(path);
    else
        unlink(path);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_ingest DIRECTORY [INPUT]\n");
        return 2;
    }
    snprintf(directory, sizeof(directory), "%s/rankstore-bench-XXXXXX", argv[1]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    printf("%-15s %6s %8s %8s %8s %8s   %-20s %s\n", "input", "MB", "on disk", "samples", "MB/s",
           "library", "which", "share (reach 70)");
    for (size_t i = 0; i < INPUT_COUNT; i++)
        if (argc == 2 || strcmp(argv[2], INPUTS[i].name) == 0)
            measure(&INPUTS[i]);
    rmdir(directory);
    return 0;
}
