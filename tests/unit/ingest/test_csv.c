/* SPDX-License-Identifier: Apache-2.0
 *
 * test_csv.c: records and fields of CSV: made ones come back, wherever the file is cut. */
#include "packed.h"

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/csv_value.h"
#include "ingest/ingest.h"
#include "ingest/unpack.h"

static rks_error err;

static rks_input_file file_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (rks_input_file){
        .path = (char *)(uintptr_t)path, .name = (char *)"a.csv", .size = (uint64_t)info.st_size};
}

/* Each record as its fields between < and >, "<a><b>\n"; a malformed one as its error. */
static char *read_range(const rks_input_file *file, uint64_t offset, uint64_t size, uint64_t limit)
{
    rks_csv csv;
    rks_buffer out = {0};
    assert_ok(rks_csv_open(&csv, file, offset, size, limit, &err), &err);
    for (;;) {
        rks_csv_record record;
        rks_csv_field fields[8];
        size_t count = 0;
        assert_ok(rks_csv_next(&csv, &record, &err), &err);
        if (record.text == NULL)
            break;
        if (record.too_long)
            rks_buffer_print(&out, &err, "too long: %zu", record.size);
        else if (rks_csv_fields(&record, ',', fields, 8, &count, &err) != RKS_OK)
            rks_buffer_print(&out, &err, "%s", err.text);
        else
            for (size_t i = 0; i < count && i < 8; i++)
                rks_buffer_print(&out, &err, fields[i].quoted ? "<\"%.*s>" : "<%.*s>",
                                 (int)fields[i].size, fields[i].text);
        rks_buffer_add(&out, "\n", 1, &err);
    }
    rks_csv_close(&csv);
    rks_buffer_add(&out, "", 1, &err);
    char *copy = strdup((const char *)out.data);
    rks_buffer_free(&out);
    return copy;
}

static void expect(const char *text, const char *wanted)
{
    const char *path = scratch_file("a.csv", text);
    rks_input_file file = file_of(path);
    char *found = read_range(&file, 0, file.size, 100);
    assert_string_equal(found, wanted);
    free(found);
}

static void records_are_as_the_rules_say(void **state)
{
    (void)state;
    expect("", "");
    expect("a,b\n1,2\n", "<a><b>\n<1><2>\n");
    expect("a,b\r\n1,2", "<a><b>\n<1><2>\n");
    expect("\xef\xbb\xbfx\n", "<x>\n");
    expect("\"\xc3\xa4\",\"\",\n", "<\"\xc3\xa4><\"><>\n");
    expect("\"a\"\"b\"\"\",\"\"\"\"\n", "<\"a\"b\"><\"\">\n");
    expect("\"two\r\nlines\",x\ny\n", "<\"two\r\nlines><x>\n<y>\n");
    expect("\n,\n", "<>\n<><>\n");
}

static void malformed_fields_are_named(void **state)
{
    (void)state;
    expect("a,b\"c\"\nd\n",
           "field 2: a quote in a field that is not in quotes; put it in quotes, and double "
           "those inside: \"a \"\"x\"\" b\"\n<d>\n");
    expect("\"a\"b,c\n", "field 1: text after its closing quote\n");
    expect("x\n1,\"open\nand on\n", "<x>\nfield 2: its quote is not closed\n");
    char text[400];
    memset(text, 'x', sizeof(text));
    memcpy(text + 150, "\"\n\"", 3);
    memcpy(text + 300, "\nshort\n", 8);
    expect(text, "too long: 300\n<short>\n");
}

static void packed_records_are_those_of_the_plain_file(void **state)
{
    (void)state;
    rks_buffer text = {0};
    rks_buffer_print(&text, &err,
                     "\xef\xbb\xbf"
                     "a,b\r\n");
    for (int row = 0; row < 60000; row++) /* more than a window */
        rks_buffer_print(&text, &err, row % 7 == 0 ? "%d,\"x\"\"\n%0*d\"\n" : "%d,%0*d\n", row,
                         row == 40000 ? 3 << 20 : row % 90, row);
    rks_buffer_print(&text, &err, "9,\"last");
    for (int ends = 0; ends < 2; ends++) {
        const char *path = scratch_bytes("a.csv", text.data, text.size);
        rks_input_file plain = file_of(path);
        char *wanted = read_range(&plain, 0, plain.size, 100);
        assert_contains(wanted, "too long: 31457");
        for (int kind = 0; kind < PACKED_KINDS; kind++) {
            rks_input_file file = file_of(packed_file("a.packed", kind, text.data, text.size));
            file.max_total = UINT64_MAX;
            assert_ok(rks_packing_find(&file, &file.packing, &err), &err);
            char *found = read_range(&file, 0, file.size, 100);
            assert_string_equal(found, wanted);
            free(found);
        }
        free(wanted);
        rks_buffer_print(&text, &err, "\"\n");
    }
    rks_buffer_free(&text);
    assert_int_equal(rks_memory_in_use(), 0);
}

static bool real_of(const char *text, double *number)
{
    const rks_csv_field field = {.text = text, .size = strlen(text)};
    return rks_csv_real(&field, number);
}

static void reals_are_those_of_the_c_library(void **state)
{
    (void)state;
    double number = 0;
    const char *const none[] = {"",      "-",   ".5",  "1.",   "1.e5",  "01",
                                "-01.5", "+1",  "1e",  "1e+",  "1e-",   "1e5x",
                                "0x10",  "inf", "nan", "1,5",  "1e400", "1 ",
                                " 1",    "--1", "1-",  "1.5.", "e5",    "1e9999999"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        if (real_of(none[i], &number))
            fail_msg("'%s' is %g", none[i], number);
    const char *const some[] = {
        "0",
        "-0",
        "0.0",
        "-0.0e5",
        "1",
        "9007199254740993",
        "9007199254740993e-5",
        "1e22",
        "1e23",
        "1e-22",
        "1e-23",
        "123456789012345e22",
        "999999999999999.9",
        "4.9e-324",
        "2e-324",
        "1.7976931348623157e308",
        "0.1",
        "0.30000000000000004",
        "0.10000000000000000000000000000001",
        "1e-9999999",
        "0.000000000000000000000000000001",
        "100000000000000000000000",
        "2.2250738585072011e-308",
    };
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        double wanted = strtod(some[i], NULL);
        assert_true(real_of(some[i], &number));
        assert_memory_equal(&number, &wanted, sizeof(wanted));
    }
    for (int i = 0; i < 200000; i++) {
        char text[80];
        uint64_t digits = scratch_random(UINT64_C(1) << (1 + scratch_random(62)));
        snprintf(text, sizeof(text), i % 2 ? "%s%llu.%0*lluE%d" : "%s%llu.%0*llu", i % 3 ? "" : "-",
                 (unsigned long long)(digits >> scratch_random(63)), (int)scratch_random(20) + 1,
                 (unsigned long long)digits % 1000000, (int)scratch_random(80) - 40);
        double wanted = strtod(text, NULL);
        if (!real_of(text, &number) || memcmp(&number, &wanted, sizeof(wanted)) != 0)
            fail_msg("'%s' is %.17g, not %.17g", text, number, wanted);
    }
}

/* ---- random files ---------------------------------------------------------------------------- */

static void add_random_field(rks_buffer *csv, rks_buffer *wanted)
{
    static const char letters[] = "ab,\"\n\r\tx ";
    char field[40], shown[40];
    size_t size = scratch_random(12), plain = 1;
    for (size_t i = 0; i < size; i++) {
        field[i] = letters[scratch_random(sizeof(letters) - 1)];
        plain = plain && strchr(",\"\n\r", field[i]) == NULL;
    }
    bool quoted = !plain || scratch_random(3) == 0;
    memcpy(shown, field, size);
    rks_buffer_add(wanted, quoted ? "<\"" : "<", quoted ? 2 : 1, &err);
    rks_buffer_add(wanted, shown, size, &err);
    rks_buffer_add(wanted, ">", 1, &err);
    if (quoted)
        rks_buffer_add(csv, "\"", 1, &err);
    for (size_t i = 0; i < size; i++)
        rks_buffer_add(csv, field[i] == '"' ? "\"\"" : &field[i], field[i] == '"' ? 2 : 1, &err);
    if (quoted)
        rks_buffer_add(csv, "\"", 1, &err);
}

typedef struct cuts {
    uint64_t at[4096];
    size_t count;
} cuts;

static rks_status add_cut(void *user, uint64_t offset, rks_error *error)
{
    (void)error;
    cuts *c = user;
    assert_true(c->count == 0 || offset > c->at[c->count - 1]);
    c->at[c->count++] = offset;
    return RKS_OK;
}

static void random_files_come_back_wherever_they_are_cut(void **state)
{
    (void)state;
    scratch_seed_print();
    for (int turn = 0; turn < 60; turn++) {
        rks_buffer csv = {0}, wanted = {0};
        size_t records = scratch_random(60) + 1;
        for (size_t r = 0; r < records; r++) {
            size_t fields = scratch_random(4) + 1;
            for (size_t f = 0; f < fields; f++) {
                if (f > 0)
                    rks_buffer_add(&csv, ",", 1, &err);
                add_random_field(&csv, &wanted);
            }
            bool last = r + 1 == records && scratch_random(2) == 0 && csv.size > 0 &&
                        strchr("\n,", csv.data[csv.size - 1]) == NULL;
            bool crlf = scratch_random(2) == 0;
            if (!last)
                rks_buffer_add(&csv, crlf ? "\r\n" : "\n", crlf ? 2 : 1, &err);
            rks_buffer_add(&wanted, "\n", 1, &err);
        }
        rks_buffer_add(&wanted, "", 1, &err);
        rks_input_file file = file_of(scratch_bytes("a.csv", csv.data, csv.size));
        for (uint64_t unit = 1; unit < 200; unit = unit * 3 + 1) {
            cuts c = {.count = 0};
            rks_buffer joined = {0};
            assert_ok(rks_csv_cuts(&file, unit, add_cut, &c, &err), &err);
            add_cut(&c, file.size, &err);
            for (size_t i = 0; i < c.count; i++) {
                uint64_t begin = i == 0 ? 0 : c.at[i - 1];
                assert_true(i == 0 || begin >= unit);
                char *part = read_range(&file, begin, c.at[i] - begin, 1000);
                rks_buffer_add(&joined, part, strlen(part), &err);
                free(part);
            }
            rks_buffer_add(&joined, "", 1, &err);
            assert_string_equal((char *)joined.data, (char *)wanted.data);
            rks_buffer_free(&joined);
        }
        rks_buffer_free(&csv);
        rks_buffer_free(&wanted);
    }
}

/* ---- schemas --------------------------------------------------------------------------------- */

static void expect_schema(const char *text, const char *columns, const char *wanted)
{
    const char *path = scratch_file("a.csv", text);
    const rks_ingest_options options = {.columns = columns};
    rks_input *input = NULL;
    char *schema = NULL;
    assert_ok(rks_input_open(&path, 1, &options, &input, &err), &err);
    rks_status status = rks_ingest_infer(input, 0, &schema, &err);
    assert_string_equal(status == RKS_OK ? schema : strrchr(err.text, '/'), wanted);
    rks_free(schema);
    rks_input_free(input);
}

static void types_are_what_all_fields_are(void **state)
{
    (void)state;
    expect_schema("i,x,b,s,z,e,n\n1,1.5,true,a,007,\"\",\n-2,3,False,1,1,x,\n", NULL,
                  "{\"i\":\"int64\",\"x\":\"float64\",\"b\":\"bool\",\"s\":\"str\",\"z\":\"str\","
                  "\"e\":\"str\",\"n\":\"json?\"}");
    expect_schema("i,x,b,s\n1,,true,\n,1e3,,a\n", NULL,
                  "{\"i\":\"int64?\",\"x\":\"float64?\",\"b\":\"bool?\",\"s\":\"str?\"}");
    expect_schema("9223372036854775807,9223372036854775808,-9223372036854775808,1.,nan,+1\n",
                  "a,b,c,d,e,f",
                  "{\"a\":\"int64\",\"b\":\"uint64\",\"c\":\"int64\",\"d\":\"str\",\"e\":\"str\","
                  "\"f\":\"str\"}");
    expect_schema("a,b,c,d\n18446744073709551615,18446744073709551616,09223372036854775808,1\n"
                  "5,1,2,18446744073709551615\n,,,\n",
                  NULL, "{\"a\":\"uint64?\",\"b\":\"float64?\",\"c\":\"str?\",\"d\":\"uint64?\"}");
    expect_schema(
        "a\n18446744073709551615\n-5\n-7\n", NULL,
        "/a.csv: column \"a\" has -7 and 18446744073709551615, which no integer type holds "
        "together; give schema with str");
    expect_schema("a\n18446744073709551615\n-5\n1.5\n", NULL, "{\"a\":\"float64\"}");
}

static void headers_are_checked(void **state)
{
    (void)state;
    expect_schema("a,a\n1,2\n", NULL, "/a.csv: two columns are called \"a\"");
    expect_schema("a,,b\n1,2,3\n", NULL,
                  "/a.csv: column 2 has no name; if the first record holds values, give the "
                  "names by columns");
    expect_schema(
        ",b\n1,2\n", NULL,
        "/a.csv: column 1 has no name; if pandas wrote it: to_csv(index=False), or give schema "
        "without it; if there is no header: columns");
    expect_schema("\"a\n1,2\n", NULL, "/a.csv: header: field 1: its quote is not closed");
    expect_schema("a,b\n1,2\n1,2,3\n", NULL, "/a.csv: row 1: 3 fields, there are 2 columns");
}

static void a_header_may_be_longer_than_what_is_first_read(void **state)
{
    (void)state;
    rks_buffer text = {0}, values = {0}, wanted = {0};
    char name[256];
    memset(name, 'n', sizeof(name));
    for (int i = 0; i < 1000; i++) {
        snprintf(name + 240, sizeof(name) - 240, "%d", i);
        rks_buffer_print(&text, &err, "%s%s", i == 0 ? "" : ",", name);
        rks_buffer_print(&values, &err, "%s%d", i == 0 ? "\n" : ",", i);
        rks_buffer_print(&wanted, &err, "%s\"%s\":\"int64\"", i == 0 ? "{" : ",", name);
    }
    rks_buffer_add(&text, values.data, values.size, &err);
    rks_buffer_add(&text, "", 1, &err);
    rks_buffer_add(&wanted, "}", 2, &err);
    expect_schema((const char *)text.data, NULL, (const char *)wanted.data);
    rks_buffer_free(&text);
    rks_buffer_free(&values);
    rks_buffer_free(&wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_as_the_rules_say),
        cmocka_unit_test(reals_are_those_of_the_c_library),
        cmocka_unit_test(packed_records_are_those_of_the_plain_file),
        cmocka_unit_test(malformed_fields_are_named),
        cmocka_unit_test(random_files_come_back_wherever_they_are_cut),
        cmocka_unit_test(types_are_what_all_fields_are),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(a_header_may_be_longer_than_what_is_first_read),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
