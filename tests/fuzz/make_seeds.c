/* SPDX-License-Identifier: Apache-2.0
 *
 * make_seeds.c: DIRECTORY/TARGET/...: inputs for the fuzz targets to begin with, cut from shards
 * that the writer makes; lines of JSON; and small archives. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "shard/block.h"
#include "dataset/dataset.h"
#include "dataset/index_file.h"
#include "support/check.h"
#include "support/shards.h"
#include "transport/frame.h"
#include "unit/ingest/npy_file.h"

static const char *out;

static void put(const char *target, const char *name, const void *bytes, size_t size)
{
    char path[512];
    rks_error err;
    snprintf(path, sizeof(path), "%s/%s", out, target);
    assert_ok(rks_directory_make(path, &err), &err);
    snprintf(path, sizeof(path), "%s/%s/%s", out, target, name);
    assert_ok(rks_file_replace(path, bytes, size, &err), &err);
}

/* A first byte that says schema 0 and `what`, then bytes. */
static void put_record(const char *name, unsigned what, const void *bytes, size_t size)
{
    uint8_t *input = malloc(size + 1);
    assert_non_null(input);
    input[0] = (uint8_t)(4 * what);
    memcpy(input + 1, bytes, size);
    put("record", name, input, size + 1);
    free(input);
}

/* Frames after a first byte that says which side hears them. */
static void make_wire(void)
{
    static const uint8_t secret[RKS_SECRET_SIZE], session[16];
    rks_error err;
    for (int connected = 0; connected < 2; connected++) {
        uint8_t input[1024] = {(uint8_t)connected};
        size_t size = 1;
        rks_hello hello = {.session = session,
                           .ranks = 4,
                           .own_rank = 2,
                           .peer_rank = 1,
                           .connected = connected == 0};
        memcpy(hello.key, secret, sizeof(hello.key));
        assert_ok(rks_hello_start(&hello, &err), &err);
        static const uint16_t types[] = {RKS_FRAME_HELLO, RKS_FRAME_PROOF, RKS_FRAME_PING,
                                         RKS_FRAME_REPLY, RKS_FRAME_ERROR, RKS_FRAME_NOTE};
        static const size_t sizes[] = {RKS_HELLO_BODY, RKS_PROOF_SIZE, 0, 7, sizeof(rks_error), 5};
        for (size_t i = 0; i < 6; i++) {
            uint8_t *body = input + size + RKS_FRAME_HEADER;
            if (types[i] == RKS_FRAME_HELLO)
                rks_hello_encode(&hello, body);
            rks_frame_header header = {.size = sizes[i], .id = i, .type = types[i]};
            rks_frame_encode(&header, body, input + size);
            size += RKS_FRAME_HEADER + sizes[i];
        }
        put("wire", connected == 0 ? "accepts" : "connects", input, size);
    }
}

/* Of two builds, the second generation, with samples that do not count; and their list. */
static void put_joined(const char *directory, const char *const names[2])
{
    rks_dataset *parts[2], *joined = NULL;
    rks_excluded_run runs[] = {{1, 2}, {60, 3}};
    rks_buffer bytes = {0};
    rks_error err;
    char *text = NULL;
    size_t size = 0;
    for (int i = 0; i < 2; i++) {
        shards_commit(directory, &names[i], 1);
        assert_ok(rks_dataset_load(directory, &parts[i], &err), &err);
    }
    assert_ok(rks_dataset_join(parts[0], parts[1], &joined, &err), &err);
    joined->excluded = (rks_excluded){.runs = runs, .run_count = 2, .bytes = 9, .duplicates = 3};
    assert_ok(rks_excluded_encode(&joined->excluded, &bytes, &err), &err);
    joined->count -= joined->excluded.samples;
    joined->id = rks_dataset_id(joined);
    assert_ok(rks_dataset_encode(joined, &text, &size, &err), &err);
    put("dataset", "joined", text, size);
    put("dataset", "excluded", bytes.data, bytes.size);
    joined->excluded.runs = NULL; /* not its own */
    rks_free(text);
    rks_buffer_free(&bytes);
    rks_dataset_free(joined);
    rks_dataset_free(parts[0]);
    rks_dataset_free(parts[1]);
    shards_commit(directory, names, 2);
}

/* Index files of three arrays, with one segment and with several. */
static void put_index_files(const char *directory)
{
    static const uint32_t sizes[] = {4, 8, 4};
    static const uint32_t rows[] = {0, 7};
    uint8_t values[8 * 20];
    const uint8_t *const arrays[] = {values, values, values};
    const rks_index_piece piece = {arrays, 20};
    rks_error err;
    for (size_t i = 0; i < sizeof(values); i++)
        values[i] = (uint8_t)i;
    for (size_t i = 0; i < 2; i++) {
        rks_index_file made;
        size_t size = 0;
        rks_index_file_rows(rows[i]);
        assert_ok(
            rks_index_file_write(directory, (rks_index_items){sizes, 3}, &piece, 1, &made, &err),
            &err);
        uint8_t *bytes = shards_load(directory, made.name, &size);
        put("index_file", i == 0 ? "one" : "several", bytes, size);
        free(bytes);
    }
    rks_index_file_rows(0);
}

static void make(void **state)
{
    (void)state;
    char *directory = shards_directory();
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        shards_recipe recipe = {.first = 100 * (uint64_t)i,
                                .samples = 5 + 60 * (uint64_t)i,
                                .first_unit = 3 * (uint64_t)i,
                                .size_most = 50,
                                .wide_every = 40,
                                .index = true};
        shards_write(directory, names[i], &recipe);
    }
    shards_commit(directory, names, 2);
    size_t size = 0;
    uint8_t *bytes = shards_load(directory, "a.json", &size);
    put("manifest", "a", bytes, size);
    free(bytes);
    bytes = shards_load(directory, "b.json", &size);
    put("manifest", "b", bytes, size);
    free(bytes);
    bytes = shards_load(directory, "dataset.json", &size);
    put("dataset", "two", bytes, size);
    free(bytes);
    put_joined(directory, names);
    put_index_files(directory);

    rks_error err;
    rks_shard *shard = shards_open(directory, "a");
    rks_record_view view;
    assert_ok(rks_shard_locate(shard, 0, &view, &err), &err);
    const uint8_t *block = view.record - rks_record_place(RKS_BLOCK_HEADER, view.align);
    put_record("block", 0, block, RKS_BLOCK_HEADER + (size_t)rks_load_u64(block + 32));
    put_record("payload", 1, view.payload, view.payload_size);
    put_record("record", 2, view.record, view.record_size);
    rks_shard_close(shard);
    put("shard", "one", "\0\1\2\0\3", 5);
    put("shard", "two", "\0\1\2\0\3\0\100\0\0\377", 10);
    static const char where[] = "\0n > 3 and s == \"text\"";
    static const char count[] = "\0c = ids != -100";
    static const char line[] = "\1{\"n\": 1, \"x\": 2.5, \"s\": \"a\", \"ids\": [1, 2]}";
    static const char json[] = "\"]} ,1a\\{\"n\": 1, \"x\": [2.5, \"\\ud83d\\ude00\"], \"s\": {}}";
    static const char file[] = "\2\10{\"a\": [1, 2], \"b\": \"c\"}\n{\"a\": [], \"b\": null}\n";
    put("ingest", "where", where, sizeof(where) - 1);
    put("ingest", "count", count, sizeof(count) - 1);
    put("ingest", "line", line, sizeof(line) - 1);
    put("json", "line", json, sizeof(json) - 1);
    put("ingest", "file", file, sizeof(file) - 1);
    static const char csv[] = "\7\100a,b\r\n1,\"x\"\"\n,y\"\n\n,\"\"\nbad\"\n\"2";
    put("csv", "file", csv, sizeof(csv) - 1);
    /* The first byte below 128: a whole state; from 128 on: its segments. */
    static const char whole[] =
        "\4{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 64}";
    static const char segments[] = "\204[[2, 3], [3, 1], [1, 2]]";
    put("plan_state", "whole", whole, sizeof(whole) - 1);
    put("plan_state", "segments", segments, sizeof(segments) - 1);
    /* Odd: home.json. Else words and marks of NAME.pieces. */
    static const char home[] = "\1{\"home\": \"/mnt/lake/tokens\", \"schema_version\": 1}";
    static const char marks[] = "\2\1\0\0\0\0\0\0\0\2\1\0\2\2";
    put("local_copy", "home", home, sizeof(home) - 1);
    put("local_copy", "marks", marks, sizeof(marks) - 1);
    make_wire();
    shards_directory_remove(directory);
}

static void put_text(const char *name, const char *text)
{
    put("ingest", name, text, strlen(text));
}

static void make_texts(void **state)
{
    (void)state;
    put_text("where", "0n == 3 and s >= 'a' and \"j\" != null and x < 1e3 and ok != true");
    put_text("line",
             "1{\"n\": -3, \"u\": 7, \"x\": 0.1, \"h\": 1.5, \"ok\": true, \"s\": \"\\u20ac\", "
             "\"ids\": [1, 2], \"mel\": [[1, 2], [3, 4]], \"any\": [[1], [2]], \"z\": [1, 2], "
             "\"raw\": \"x\", \"q\": 448, \"j\": {\"a\": [1.5, null]}}");
    put_text("file", "2\x07\xef\xbb\xbf{\"a\": 1}\r\n\n{\"a\": null, \"b\": [1, 2.5]}\n"
                     "{\"b\": [], \"c\": {\"x\": [[1, 2], [3, 4]]}}");
}

static void add_member(struct archive *to, const char *name, const void *bytes, size_t size)
{
    struct archive_entry *entry = archive_entry_new();
    archive_entry_set_pathname(entry, name);
    archive_entry_set_size(entry, (la_int64_t)size);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    assert_int_equal(archive_write_header(to, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(to, bytes, size), (la_ssize_t)size);
    archive_entry_free(entry);
}

static void add_array(struct archive *to, const char *name, const char *descr, const char *shape,
                      const void *items, size_t size)
{
    uint8_t bytes[256];
    add_member(to, name, bytes, npy_file(bytes, descr, shape, items, size));
}

/* What fuzz_archive.c takes: `what`, units of 1 KiB, and the file. */
static void put_packed(const char *name, uint8_t what, const char *format, const char *filter)
{
    static const char npy[] = "\x93NUMPY\1\0\x46\0{'descr': '<f4', 'fortran_order': False, "
                              "'shape': (2,), }            \n\0\0\0\0\0\0\x80\x3f";
    static uint8_t input[32 << 10];
    size_t used = 0;
    struct archive *made = archive_write_new();
    input[0] = what;
    input[1] = 1;
    assert_int_equal(archive_write_set_format_by_name(made, format), ARCHIVE_OK);
    if (filter != NULL)
        assert_int_equal(archive_write_add_filter_by_name(made, filter), ARCHIVE_OK);
    archive_write_set_bytes_per_block(made, 0);
    assert_int_equal(archive_write_open_memory(made, input + 2, sizeof(input) - 2, &used),
                     ARCHIVE_OK);
    if (strcmp(format, "raw") == 0) {
        const char *text = what == 7 ? "a,b\r\n1,\"x\"\"\n\"\n,y\n" : "one\ntwo\r\n\nthree";
        add_member(made, "lines", text, strlen(text));
    } else if (what == 5) {
        static const uint8_t offsets[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
                                          0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
        add_array(made, "x.npy", "<f4", "2, 1", offsets, 8);
        add_array(made, "v.npy", ">i2", "2,", offsets + 7, 4);
        add_array(made, "v.offsets.npy", "<i8", "3,", offsets, 24);
        add_array(made, "v.shapes.npy", "<i8", "2, 1", offsets + 8, 16);
        add_array(made, "v.missing.npy", "|b1", "2,", offsets + 7, 2);
    } else {
        add_member(made, "a/1.json", "{\"n\": [1, 2.5], \"s\": \"x\"}", 25);
        add_member(made, "a/1.cls", " 3\n", 3);
        add_member(made, "a/2.npy", npy, sizeof(npy) - 1);
    }
    assert_int_equal(archive_write_close(made), ARCHIVE_OK);
    archive_write_free(made);
    put("archive", name, input, used + 2);
    if (strcmp(name, "tar") == 0) { /* the array alone, too */
        memcpy(input + 1, npy, sizeof(npy) - 1);
        input[0] = 0;
        put("archive", "npy", input, sizeof(npy));
        memmove(input + 2, npy, sizeof(npy) - 1);
        input[0] = 6;
        put("archive", "npy_rows", input, sizeof(npy) + 1);
    }
}

static void make_archives(void **state)
{
    (void)state;
    static const char wav[] = "\1RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0"
                              "\x80\x3e\0\0\2\0\x10\0data\4\0\0\0\1\0\2";
    put("archive", "wav", wav, sizeof(wav)); /* with the NUL at its end */
    put_packed("tar", 2, "ustar", NULL);
    put_packed("tar_pax", 2, "pax", NULL);
    put_packed("tar_gnu", 2, "gnutar", "gzip");
    put_packed("tar_xz", 2, "ustar", "xz");
    put_packed("zip", 3, "zip", NULL);
    put_packed("npz", 5, "zip", NULL);
    put_packed("lines_gz", 4, "raw", "gzip");
    put_packed("csv_bz2", 7, "raw", "bzip2");
    put_packed("lines_zst", 4, "raw", "zstd");
    put_packed("lines_xz", 4, "raw", "xz");
    put_packed("lines_bz2", 4, "raw", "bzip2");
}

/* What fuzz_indexed.c takes. */
static void put_indexed(const char *name, uint8_t what, const void *index, size_t index_size,
                        const void *data, size_t data_size)
{
    uint8_t input[1024] = {what, 0};
    rks_store_u16(input + 2, (uint16_t)index_size);
    memcpy(input + 4, index, index_size);
    memcpy(input + 4 + index_size, data, data_size);
    put("indexed", name, input, 4 + index_size + data_size);
}

static void make_indexed(void **state)
{
    (void)state;
    /* Two sequences of u16: 1 2 3 and 4. */
    static const char tokens[] = "\1\0\2\0\3\0\4";
    static const char mapped[] = "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10\2\0\0\0\0\0\0\0"
                                 "\0\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0"
                                 "\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0";
    static const uint64_t older[] = {1, 8, 2, 2, 2, 0, 0, 1, 2, 0, 3, 4, 3, 1};
    uint8_t bytes[8 + sizeof(older)] = "TNTIDX\0";
    memcpy(bytes + 8, older, sizeof(older));
    put_indexed("megatron", 0, mapped, sizeof(mapped), tokens, sizeof(tokens));
    put_indexed("megatron_older", 0, bytes, sizeof(bytes), tokens, sizeof(tokens));
    static const char index[] =
        "{\"version\":2,\"shards\":[{\"format\":\"mds\",\"samples\":2,"
        "\"column_names\":[\"n\",\"s\",\"a\"],\"column_encodings\":[\"int8\",\"str\","
        "\"ndarray\"],\"column_sizes\":[1,null,null],\"raw_data\":{\"basename\":"
        "\"shard.mds\",\"bytes\":45},\"zip_data\":null}]}";
    static const char shard[] = "\2\0\0\0\20\0\0\0\37\0\0\0\55\0\0\0"
                                "\2\0\0\0\4\0\0\0\7ab\1\4\1\1"
                                "\0\0\0\0\5\0\0\0\11\1\4\2\1\2";
    put_indexed("mds", 1, index, sizeof(index) - 1, shard, sizeof(shard) - 1);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    out = arguments[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(make), cmocka_unit_test(make_texts),
                                       cmocka_unit_test(make_archives),
                                       cmocka_unit_test(make_indexed)};
    return cmocka_run_group_tests_name("seeds", tests, NULL, NULL) == 0 ? 0 : 1;
}
