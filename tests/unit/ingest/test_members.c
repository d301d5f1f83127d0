/* SPDX-License-Identifier: Apache-2.0
 *
 * test_members.c: tar and zip as samples; what is hostile in them. Archives are written by
 * libarchive; those that it would not write are changed afterwards. */
#include "ingest/format.h"

#include "built.h"
#include "packed.h"

#define MEMBER(name, text) {name, text, sizeof(text) - 1, 0, NULL}

static const packed_member TWO[] = {
    MEMBER("d/", ""),
    MEMBER("d/one.JPG", "\xff\xd8one"),
    MEMBER("d/one.seg.json", "{\"a\": [1,\n 2]}"),
    MEMBER("d/one.txt", "na\xc3\xafve"),
    MEMBER("d/one.cls", " 7\n"),
    MEMBER("d/two.jpg", "\xff\xd8two"),
    MEMBER("d/two.seg.json", "\"text\""),
    MEMBER("d/two.txt", ""),
    MEMBER("d/two.cls", "-12"),
};
enum { TWO_COUNT = sizeof(TWO) / sizeof(TWO[0]) };

static void value_of(const built *out, uint64_t row, const char *column, rks_value *value)
{
    rks_record_view view;
    rks_value values[16];
    int at = rks_schema_find(rks_shard_schema(out->shard), column);
    if (at < 0)
        fail_msg("no column %s", column);
    assert_ok(rks_shard_locate(out->shard, row, &view, &err), &err);
    assert_ok(rks_record_decode(rks_shard_schema(out->shard), view.payload, view.payload_size,
                                values, &err),
              &err);
    *value = values[at];
}

static void check(const built *out, uint64_t row, const char *column, const void *bytes,
                  size_t size)
{
    rks_value value;
    value_of(out, row, column, &value);
    assert_non_null(value.data);
    assert_int_equal(value.size, size);
    assert_memory_equal(value.data, bytes, size);
}

static void check_two(const built *out)
{
    const int64_t classes[] = {7, -12};
    assert_string_equal(rks_schema_text(rks_shard_schema(out->shard)),
                        "{\"__key__\":\"str\",\"jpg\":\"bytes\",\"seg.json\":\"json\",\"txt\":"
                        "\"str\",\"cls\":\"int64\"}");
    assert_int_equal(out->samples, 2);
    assert_int_equal(out->seen, 2);
    check(out, 0, "__key__", "d/one", 5);
    check(out, 1, "__key__", "d/two", 5);
    check(out, 0, "jpg", "\xff\xd8one", 5);
    check(out, 0, "seg.json", "{\"a\":[1,2]}", 11);
    check(out, 1, "seg.json", "\"text\"", 6);
    check(out, 0, "txt", "na\xc3\xafve", 6);
    check(out, 1, "txt", "", 0);
    check(out, 0, "cls", &classes[0], 8);
    check(out, 1, "cls", &classes[1], 8);
}

static void members_of_one_name_are_a_sample(void **state)
{
    (void)state;
    /* A folder's data is none. */
    packed_member members[TWO_COUNT];
    memcpy(members, TWO, sizeof(TWO));
    members[0].type = AE_IFDIR;
    members[0].bytes = NULL;
    for (int kind = -2; kind < PACKED_KINDS; kind++) {
        const char *const names[] = {"t.zip",     "t.tar",    "t.tar.gz",
                                     "t.tar.zst", "t.tar.xz", "t.tbz2"};
        rks_ingest_options options = {0};
        built out;
        assert_ok(build(packed_archive(names[kind + 2], kind, members, TWO_COUNT), &options, &out),
                  &err);
        check_two(&out);
        done(&out);
        /* Without a name the content says it. */
        assert_ok(build(packed_archive("unnamed", kind, members, TWO_COUNT), &options, &out), &err);
        check_two(&out);
        done(&out);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

static void a_schema_decides_the_types(void **state)
{
    (void)state;
    rks_ingest_options options = {.schema = "txt:bytes,cls:uint8?,other:str?", .skip_bad = true};
    built out;
    assert_ok(build(packed_archive("t.tar", -1, TWO + 1, TWO_COUNT - 1), &options, &out), &err);
    assert_int_equal(out.samples, 1);
    assert_int_equal(out.bad, 1); /* -12 is no uint8 */
    check(&out, 0, "txt", "na\xc3\xafve", 6);
    check(&out, 0, "cls", "\7", 1);
    rks_value value;
    value_of(&out, 0, "other", &value);
    assert_null(value.data);
    done(&out);
}

static size_t npy(uint8_t *bytes, const char *dictionary, const void *items, size_t size)
{
    size_t head = strlen(dictionary);
    memcpy(bytes, "\x93NUMPY\1\0", 8);
    bytes[8] = (uint8_t)head;
    bytes[9] = 0;
    memcpy(bytes + 10, dictionary, head);
    memcpy(bytes + 10 + head, items, size);
    return 10 + head + size;
}

static void arrays_have_their_own_types(void **state)
{
    (void)state;
    uint8_t one[256], two[256], three[256];
    const float items[] = {1, 2, 3, 4, 5, 6}, turned[] = {1, 4, 2, 5, 3, 6};
    size_t first =
        npy(one, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", items, 24);
    size_t second =
        npy(two, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", turned, 24);
    size_t third =
        npy(three, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }", items, 24);
    const packed_member same[] = {{"a.npy", one, first, 0, NULL}, {"b.npy", two, second, 0, NULL}};
    const packed_member unlike[] = {{"a.npy", one, first, 0, NULL},
                                    {"b.npy", three, third, 0, NULL}};
    rks_ingest_options options = {0};
    built out;
    assert_ok(build(packed_archive("t.tar", -1, same, 2), &options, &out), &err);
    assert_string_equal(rks_schema_type(rks_shard_schema(out.shard), 1), "float32[*,3]");
    check(&out, 0, "npy", items, 24);
    check(&out, 1, "npy", items, 24);
    done(&out);
    assert_ok(build(packed_archive("t.tar", -1, unlike, 2), &options, &out), &err);
    assert_string_equal(rks_schema_type(rks_shard_schema(out.shard), 1), "float32[*,*]");
    rks_value value;
    value_of(&out, 1, "npy", &value);
    assert_int_equal(value.dims[0], 3);
    assert_int_equal(value.dims[1], 2);
    done(&out);
    options.schema = "npy:float64[*,*]";
    assert_fails(RKS_ERR_DATA, build(packed_archive("t.tar", -1, same, 1), &options, &out));
    assert_contains(err.text, "t.tar: a: column \"npy\" is float64[*,*], the array float32[*,3]");
    done(&out);
    options.schema = NULL;
    const packed_member cut[] = {{"a.npy", one, first - 1, 0, NULL}};
    assert_fails(RKS_ERR_DATA, build(packed_archive("t.tar", -1, cut, 1), &options, &out));
    assert_contains(err.text, "23 bytes of items");
    done(&out);
}

/* A tar in units of any size gives the same samples with the same rows, and each unit ends where a
 * sample does. */
static void a_tar_is_cut_between_samples(void **state)
{
    (void)state;
    enum { SAMPLES = 300 };
    static packed_member members[3 * SAMPLES];
    static char names[3 * SAMPLES][200];
    static uint8_t noise[20000];
    size_t count = 0;
    scratch_seed_print();
    for (size_t i = 0; i < SAMPLES; i++) {
        char folder[160] = "";
        memset(folder, 'd',
               scratch_random(5) == 0 ? 120 : 3); /* long names have headers of their own */
        for (int k = 0; k < 1 + (int)scratch_random(3); k++) {
            snprintf(names[count], sizeof(names[0]), "%s/%04zu.%c", folder, i, 'a' + k);
            members[count] =
                (packed_member){names[count], noise, scratch_random(sizeof(noise)), 0, NULL};
            count++;
        }
    }
    const char *path = packed_archive("many.tar", -1, members, count);
    rks_ingest_options options = {.schema = "__key__:str,a:bytes,b:bytes?,c:bytes?",
                                  .unit_size = UINT64_C(1) << 40};
    built whole, cut;
    assert_ok(build(path, &options, &whole), &err);
    assert_int_equal(whole.samples, SAMPLES);
    const uint64_t sizes[] = {4096, 10000, 100000, 1000000};
    for (size_t i = 0; i < 4; i++) {
        rks_input *input = NULL;
        options.unit_size = sizes[i];
        assert_ok(rks_input_open(&path, 1, &options, &input, &err), &err);
        assert_true(input->unit_count > 1 &&
                    input->unit_count <= 1 + input->files[0].size / sizes[i]);
        uint64_t at = 0;
        for (size_t u = 0; u < input->unit_count; u++) {
            assert_int_equal(input->units[u].offset, at);
            at += input->units[u].size;
        }
        assert_int_equal(at, input->files[0].size);
        rks_input_free(input);
        assert_ok(build(path, &options, &cut), &err);
        assert_int_equal(cut.samples, SAMPLES);
        for (uint64_t row = 0; row < SAMPLES; row++) {
            uint8_t a[RKS_KEY_MAX], b[RKS_KEY_MAX];
            size_t a_size = 0, b_size = 0;
            rks_value name;
            value_of(&whole, row, "__key__", &name);
            check(&cut, row, "__key__", name.data, name.size);
            rks_record_view view;
            assert_ok(rks_shard_locate(whole.shard, row, &view, &err), &err);
            assert_ok(rks_shard_key(whole.shard, row, a, &a_size, &err), &err);
            assert_ok(rks_shard_key(cut.shard, row, b, &b_size, &err), &err);
            assert_int_equal(a_size, b_size);
            assert_memory_equal(a, b, a_size);
        }
        done(&cut);
    }
    done(&whole);
}

static void hostile_members_are_refused_by_name(void **state)
{
    (void)state;
    const struct {
        packed_member member;
        const char *says;
    } cases[] = {
        {MEMBER("/etc/evil.txt", "x"), "/etc/evil.txt: its name is absolute"},
        {MEMBER("a/../../evil.txt", "x"), "a/../../evil.txt: its name goes up"},
        {MEMBER("../evil.txt", "x"), "../evil.txt: its name goes up"},
        {MEMBER("README", "x"), "README: its name has no ending"},
        {MEMBER("b.", "x"), "b.: its name has no ending"},
        {MEMBER("bad\xff.txt", "x"), "its name is not UTF-8"},
        {{"link.txt", NULL, 0, AE_IFLNK, "/etc/passwd"}, "link.txt: a symbolic link"},
        {{"hard.txt", NULL, 0, 0, "ok.txt"}, "hard.txt: a hard link"},
        {{"null.txt", NULL, 0, AE_IFCHR, NULL}, "null.txt: a device"},
        {{"disk.txt", NULL, 0, AE_IFBLK, NULL}, "disk.txt: a device"},
        {{"pipe.txt", NULL, 0, AE_IFIFO, NULL}, "pipe.txt: a FIFO"},
        {MEMBER("ok.txt", "again"), "ok.txt: column \"txt\" appears twice"},
        {MEMBER("n.cls", "seven"), "n: column \"cls\": not a 64-bit integer"},
        {MEMBER("n.cls", "7 8"), "n: column \"cls\": not a 64-bit integer"},
        {MEMBER("n.cls", "99999999999999999999"), "n: column \"cls\": not a 64-bit integer"},
        {MEMBER("n.json", "{"), "n.json: invalid JSON"},
        {MEMBER("n.npy", "\x93NUMPY"), "n.npy: npy: no header"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const packed_member members[] = {MEMBER("ok.txt", "fine"), cases[i].member,
                                         MEMBER("z.txt", "last")};
        rks_ingest_options options = {0};
        built out;
        bool twice = i == 11;
        const char *path = packed_archive("h.tar", -1, members, 3);
        assert_fails(RKS_ERR_DATA, build(path, &options, &out));
        assert_contains(err.text, "h.tar: ");
        assert_contains(err.text, cases[i].says);
        done(&out);
        options.skip_bad = true;
        options.schema = "txt:str?,cls:int64?,json:json?,npy:int8[*]?";
        assert_ok(build(path, &options, &out), &err);
        assert_int_equal(out.bad, 1);
        assert_int_equal(out.samples, twice ? 1 : 2);
        assert_contains((const char *)out.bad_list.data, "h.tar: ");
        done(&out);
    }
}

static void names_may_be_of_any_script(void **state)
{
    (void)state;
    const packed_member members[] = {MEMBER("\xd0\xb6/\xe6\x97\xa5.txt", "x")};
    for (int kind = -2; kind < 0; kind++) {
        rks_ingest_options options = {0};
        built out;
        const char *path = packed_archive("u", kind, members, 1);
        assert_ok(build(path, &options, &out), &err);
        check(&out, 0, "__key__", "\xd0\xb6/\xe6\x97\xa5", 6);
        done(&out);
    }
}

static void limits_hold_for_samples_and_totals(void **state)
{
    (void)state;
    size_t size = 1 << 20;
    uint8_t *zeros = calloc(1, size);
    const packed_member members[] = {
        {"a.x", zeros, size, 0, NULL}, {"a.y", zeros, size, 0, NULL}, {"b.x", zeros, 10, 0, NULL}};
    for (int kind = -2; kind < PACKED_KINDS; kind++) {
        const char *path = packed_archive("big", kind, members, 3);
        rks_ingest_options options = {.max_sample = (1 << 20) + 100, .schema = "x:bytes,y:bytes?"};
        built out;
        assert_fails(RKS_ERR_DATA, build(path, &options, &out));
        assert_contains(err.text, "big: a.y: 1048576 bytes, above max_sample");
        done(&out);
        options.skip_bad = true;
        assert_ok(build(path, &options, &out), &err);
        assert_int_equal(out.samples, 1);
        assert_int_equal(out.bad, 1);
        done(&out);
        options = (rks_ingest_options){.max_total = 2 << 20, .skip_bad = true};
        assert_fails(RKS_ERR_DATA, build(path, &options, &out));
        assert_contains(err.text, "unpacks to more than max_total (2097152 bytes)");
        done(&out);
        options.max_total = (2 << 20) + 10;
        assert_ok(build(path, &options, &out), &err);
        done(&out);
    }
    free(zeros);
}

static uint8_t *load(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, file);
    fclose(file);
    return bytes;
}

/* The header's own sum, anew. */
static void sum_header(uint8_t *head)
{
    unsigned sum = 0;
    memset(head + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += head[i];
    snprintf((char *)head + 148, 7, "%06o", sum);
}

static void a_header_that_lies_is_found(void **state)
{
    (void)state;
    size_t size;
    const packed_member members[] = {MEMBER("a.txt", "one"), MEMBER("b.txt", "two")};
    rks_ingest_options options = {.schema = "txt:str", .skip_bad = true};
    built out;
    uint8_t *bytes = load(packed_archive("t.tar", -1, members, 2), &size);
    /* Cut in a header, in a payload. */
    const size_t cuts[] = {100, 514, 1024 + 100, 1536 + 2};
    for (size_t i = 0; i < 4; i++) {
        assert_fails(RKS_ERR_DATA, build(scratch_bytes("cut.tar", bytes, cuts[i]), &options, &out));
        assert_contains(err.text, "cut.tar: damaged or cut");
        done(&out);
    }
    /* A sum that is wrong, a size that is negative or beyond the file. */
    bytes[1024] ^= 1;
    assert_fails(RKS_ERR_DATA, build(scratch_bytes("sum.tar", bytes, size), &options, &out));
    assert_contains(err.text, "sum.tar: damaged or cut");
    done(&out);
    bytes[1024] ^= 1;
    memcpy(bytes + 1024 + 124, "00100000000", 11);
    sum_header(bytes + 1024);
    assert_fails(RKS_ERR_DATA, build(scratch_bytes("far.tar", bytes, size), &options, &out));
    assert_contains(err.text, "far.tar: damaged or cut");
    done(&out);
    memset(bytes + 1024 + 124, 0xff, 12);
    sum_header(bytes + 1024);
    rks_status status = build(scratch_bytes("minus.tar", bytes, size), &options, &out);
    assert_true(status == RKS_ERR_DATA || out.bad > 0);
    done(&out);
    free(bytes);
}

static void encrypted_members_are_refused_by_name(void **state)
{
    (void)state;
    const packed_member members[] = {MEMBER("a.txt", "one")};
    size_t size;
    uint8_t *bytes = load(packed_archive("t.zip", -2, members, 1), &size);
    bytes[6] |= 1; /* the flag in the local header, and in the directory's */
    for (size_t i = 0; i + 46 < size; i++)
        if (memcmp(bytes + i, "PK\1\2", 4) == 0)
            bytes[i + 8] |= 1;
    rks_ingest_options options = {0};
    built out;
    assert_fails(RKS_ERR_DATA, build(scratch_bytes("e.zip", bytes, size), &options, &out));
    assert_contains(err.text, "e.zip: a.txt: encrypted");
    done(&out);
    free(bytes);
}

static void a_flipped_byte_in_a_zip_is_found(void **state)
{
    (void)state;
    const packed_member members[] = {
        MEMBER("a.txt", "some text that is long enough to be flipped")};
    size_t size;
    uint8_t *bytes = load(packed_archive("t.zip", -2, members, 1), &size);
    rks_ingest_options options = {.schema = "txt:str"};
    built out;
    for (size_t at = 60; at < 70; at++) {
        bytes[at] ^= 4;
        assert_fails(RKS_ERR_DATA, build(scratch_bytes("f.zip", bytes, size), &options, &out));
        assert_contains(err.text, "f.zip: ");
        done(&out);
        bytes[at] ^= 4;
    }
    for (size_t cut = 0; cut < size; cut += RACE_STRIDE) {
        rks_status status = build(scratch_bytes("c.zip", bytes, cut), &options, &out);
        assert_true(status == RKS_ERR_DATA || (status == RKS_OK && cut == 0));
        done(&out);
    }
    free(bytes);
}

static void a_zip_is_not_read_compressed(void **state)
{
    (void)state;
    const char *path = packed_file("a.zip.gz", 0, "PK\3\4", 4);
    rks_ingest_options options = {0};
    rks_input *input = NULL;
    assert_fails(RKS_ERR_DATA, rks_input_open(&path, 1, &options, &input, &err));
    assert_contains(err.text, "a.zip.gz: zip input is not read compressed");
}

/* As an export writes it: columns by their endings, keys that names cannot say in members. */
static const packed_member EXPORTED[] = {
    MEMBER("a%2F.__key__.txt", "a/\0.x"),
    MEMBER("a%2F.Text.txt", "one"),
    MEMBER("a%2F.t%23o.cls", "18446744073709551615"),
    MEMBER("plain.Text.txt", ""),
    MEMBER("plain.t%23o.cls", "0"),
    MEMBER("none.__key__.bin", "none of it"),
};
enum { EXPORTED_COUNT = sizeof(EXPORTED) / sizeof(EXPORTED[0]) };
static const char EXPORTED_SCHEMA[] = "__key__:bytes,Text:str?,t#o:uint64?";

static void expect_bytes(const built *out, uint64_t row, const char *column, const void *bytes,
                         size_t size)
{
    rks_value value;
    value_of(out, row, column, &value);
    assert_int_equal(value.size, size);
    assert_true((value.data == NULL) == (bytes == NULL));
    if (size > 0)
        assert_memory_equal(value.data, bytes, size);
}

static void what_an_export_named_is_found_again(void **state)
{
    (void)state;
    const uint64_t most = UINT64_MAX, zero = 0;
    rks_ingest_options options = {.schema = EXPORTED_SCHEMA, .key = "__key__"};
    built out;
    assert_ok(build(packed_archive("e.tar", -1, EXPORTED, EXPORTED_COUNT), &options, &out), &err);
    expect_bytes(&out, 0, "__key__", "a/\0.x", 5);
    expect_bytes(&out, 0, "Text", "one", 3);
    expect_bytes(&out, 0, "t#o", &most, 8);
    expect_bytes(&out, 1, "__key__", "plain", 5);
    expect_bytes(&out, 1, "Text", "", 0);
    expect_bytes(&out, 1, "t#o", &zero, 8);
    expect_bytes(&out, 2, "__key__", "none of it", 10);
    expect_bytes(&out, 2, "Text", NULL, 0);
    expect_bytes(&out, 2, "t#o", NULL, 0);
    done(&out);
    /* Without a schema the endings are the columns, and keys are no column of their own. */
    options = (rks_ingest_options){0};
    assert_ok(build(packed_archive("e.tar", -1, EXPORTED + 3, 2), &options, &out), &err);
    assert_string_equal(rks_schema_text(rks_shard_schema(out.shard)),
                        "{\"__key__\":\"str\",\"text.txt\":\"str\",\"t%23o.cls\":\"int64\"}");
    done(&out);
}

static void keys_in_members_are_there_once_and_fit(void **state)
{
    (void)state;
    char longer[513];
    memset(longer, 'k', sizeof(longer));
    const struct {
        packed_member members[2];
        const char *text;
    } cases[] = {
        {{MEMBER("x.__key__.txt", "a"), MEMBER("x.__key__.bin", "b")}, "key appears twice"},
        {{MEMBER("x.__key__.txt", ""), MEMBER("x.Text.txt", "")},
         "the key is empty; an empty name as key (key='') makes keys of path and row"},
        {{{.name = "x.__key__.bin", .bytes = longer, .size = 512}, MEMBER("x.Text.txt", "")},
         "a key of 512 bytes"},
        {{MEMBER("x.t%23o.cls", "18446744073709551616"), MEMBER("x.Text.txt", "")},
         "not a 64-bit integer"},
        {{MEMBER("x.t%23o.cls", "-1"), MEMBER("x.Text.txt", "")}, "-1 does not fit uint64"},
    };
    const rks_ingest_options options = {.schema = EXPORTED_SCHEMA, .key = "__key__"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        built out;
        assert_fails(RKS_ERR_DATA,
                     build(packed_archive("k.tar", -1, cases[i].members, 2), &options, &out));
        assert_contains(err.text, cases[i].text);
        done(&out);
    }
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    for (int kind = -3; kind < 2; kind++) {
        bool exported = kind == -3;
        const char *path = exported ? packed_archive("m", -1, EXPORTED, EXPORTED_COUNT)
                                    : packed_archive("m", kind, TWO + 1, TWO_COUNT - 1);
        rks_ingest_options options = {.schema = exported ? EXPORTED_SCHEMA : NULL,
                                      .key = exported ? "__key__" : NULL};
        for (long nth = 1;; nth += RACE_STRIDE) {
            built out;
            rks_memory_fail_at(nth);
            rks_status status = build(path, &options, &out);
            bool failed = rks_memory_fail_left() == 0;
            rks_memory_fail_at(0);
            done(&out);
            assert_int_equal(rks_memory_in_use(), 0);
            if (!failed)
                break;
            assert_true(status == RKS_ERR_MEMORY);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_of_one_name_are_a_sample),
        cmocka_unit_test(a_schema_decides_the_types),
        cmocka_unit_test(arrays_have_their_own_types),
        cmocka_unit_test(a_tar_is_cut_between_samples),
        cmocka_unit_test(hostile_members_are_refused_by_name),
        cmocka_unit_test(names_may_be_of_any_script),
        cmocka_unit_test(limits_hold_for_samples_and_totals),
        cmocka_unit_test(a_header_that_lies_is_found),
        cmocka_unit_test(encrypted_members_are_refused_by_name),
        cmocka_unit_test(a_flipped_byte_in_a_zip_is_found),
        cmocka_unit_test(a_zip_is_not_read_compressed),
        cmocka_unit_test(what_an_export_named_is_found_again),
        cmocka_unit_test(keys_in_members_are_there_once_and_fit),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("members", tests, scratch_open, scratch_close);
}
