/* SPDX-License-Identifier: Apache-2.0
 *
 * test_locale.c: numbers are read and written with a point, and endings compared, whatever locale
 * the process has: a German one, whose point is a comma, and a Turkish one, where I is no capital
 * i. */
#include "scratch.h"

#include <locale.h>
#include <math.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "codec/filter.h"
#include "codec/json_value.h"
#include "ingest/csv_value.h"
#include "ingest/format.h"
#include "ingest/row.h"
#include "plan/mix/mix.h"

static rks_error err;

static int make_locales(void **state)
{
    static const char *const names[] = {"de_DE", "tr_TR"};
    if (scratch_open(state) != 0 || setenv("LOCPATH", scratch_dir, 1) != 0)
        return 1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char command[1024];
        snprintf(command, sizeof(command), "localedef --no-archive -i %s -f UTF-8 %s/%s.UTF-8",
                 names[i], scratch_dir, names[i]);
        if (system(command) != 0)
            return 1;
    }
    return 0;
}

static void enter(const char *name, const char *half)
{
    char text[8];
    assert_non_null(setlocale(LC_ALL, name));
    snprintf(text, sizeof(text), "%.1f", 0.5);
    assert_string_equal(text, half);
}

static int leave(void **state)
{
    (void)state;
    return setlocale(LC_ALL, "C") == NULL;
}

static void fields_of_csv(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double number;
    } cases[] = {{"0.5", 0.5},
                 {"0.12345678901234567890", 0.12345678901234567890},
                 {"1.5e-30", 1.5e-30},
                 {"-1.7976931348623157e308", -1.7976931348623157e308},
                 {"123456789012345678.25", 123456789012345678.25}};
    enter("de_DE.UTF-8", "0,5");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const rks_csv_field field = {.text = cases[i].text, .size = strlen(cases[i].text)};
        double number = 0;
        assert_true(rks_csv_real(&field, &number));
        assert_true(number == cases[i].number);
        assert_true(rks_csv_holds(&field, number));
    }
    const rks_csv_field comma = {.text = "0,5", .size = 3};
    double number;
    assert_false(rks_csv_real(&comma, &number));
}

static void reals_of_json_there_and_back(void **state)
{
    (void)state;
    const char *const texts[] = {"0.5",   "1e22",      "1.5e-7",    "0.30000000000000004",
                                 "1e300", "-2.5e-320", "123456.789"};
    enter("de_DE.UTF-8", "0,5");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        rks_json_parser parser = {0};
        rks_json value = {0};
        rks_buffer text = {0};
        size_t size = strlen(texts[i]);
        assert_ok(rks_json_read(&parser, (const uint8_t *)texts[i], size, size, &value, &err),
                  &err);
        assert_ok(rks_json_print(value, &text, &err), &err);
        assert_null(memchr(text.data, ',', text.size));
        rks_json again = {0};
        double real = rks_json_real(value);
        assert_ok(rks_json_read(&parser, text.data, text.size, text.size, &again, &err), &err);
        assert_true(rks_json_real(again) == real);
        rks_buffer_free(&text);
        rks_json_parser_free(&parser);
    }
}

static void values_of_columns(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    rks_buffer text = {0};
    const float single = 0.1f;
    const double wide[] = {0.5, 1e-300};
    const rks_value values[] = {{.data = &single, .size = 4},
                                {.data = wide, .size = 16, .dims = {2}}};
    enter("de_DE.UTF-8", "0,5");
    assert_ok(rks_schema_parse("a:float32,b:float64[*]", &schema, &err), &err);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(rks_json_print_value(rks_schema_column(schema, i), &values[i], &text, &err),
                  &err);
    assert_int_equal(text.size, strlen("0.1[0.5,1e-300]"));
    assert_memory_equal(text.data, "0.1[0.5,1e-300]", text.size);
    rks_buffer_free(&text);
    rks_schema_free(schema);
}

static void conditions(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    rks_where *where = NULL;
    bool keep = false;
    const double real = 0.25;
    const rks_value value = {.data = &real, .size = sizeof(real)};
    enter("de_DE.UTF-8", "0,5");
    assert_ok(rks_schema_parse("a:float64,b:str", &schema, &err), &err);
    assert_ok(rks_where_parse(schema, "a > 0.125 and a < 2.75e-1", &where, &err), &err);
    assert_ok(rks_where_test(where, &value, &keep, &err), &err);
    assert_true(keep);
    rks_where_free(where);
    assert_fails(RKS_ERR_ARGUMENT, rks_where_parse(schema, "a > 0,125", &where, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_where_parse(schema, "b > 0.5", &where, &err));
    assert_contains(err.text, "quote the value to compare as text");
    rks_schema_free(schema);
}

static void messages_and_descriptions(void **state)
{
    (void)state;
    char text[256];
    rks_buffer made = {0};
    const double weights[] = {0.25, 0.75};
    const uint64_t bounds[] = {0, 1, 2};
    const rks_plan_mix mix = {.sources = 2, .bounds = bounds, .weights = weights, .samples = 2};
    enter("de_DE.UTF-8", "0,5");
    assert_fails(RKS_ERR_DATA, rks_fail(&err, RKS_ERR_DATA, 0, "%g is %.2f", 0.5, 0.5));
    assert_string_equal(err.text, "0.5 is 0.50");
    assert_ok(rks_buffer_print(&made, &err, "%g", 1.5), &err);
    assert_memory_equal(made.data, "1.5", made.size);
    rks_buffer_free(&made);
    rks_mix_describe(&mix, 2, text, sizeof(text), NULL);
    assert_contains(text, "=0.25 ");
    assert_contains(text, "=0.75 ");
}

static void the_thread_keeps_its_locale(void **state)
{
    (void)state;
    char text[8];
    enter("de_DE.UTF-8", "0,5");
    rks_snprintf(text, sizeof(text), "%g", 0.5);
    assert_string_equal(text, "0.5");
    snprintf(text, sizeof(text), "%g", 0.5);
    assert_string_equal(text, "0,5");
}

static void endings_of_names(void **state)
{
    (void)state;
    enter("tr_TR.UTF-8", "0,5");
    assert_true(rks_name_ends("A.ZIP", ".zip"));
    assert_true(rks_name_ends("a.JsonL", ".jsonl"));
    assert_false(rks_name_ends("a.zi", ".zip"));
    assert_false(rks_name_ends("a.zap", ".zip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(fields_of_csv, leave),
        cmocka_unit_test_teardown(reals_of_json_there_and_back, leave),
        cmocka_unit_test_teardown(values_of_columns, leave),
        cmocka_unit_test_teardown(conditions, leave),
        cmocka_unit_test_teardown(messages_and_descriptions, leave),
        cmocka_unit_test_teardown(the_thread_keeps_its_locale, leave),
        cmocka_unit_test_teardown(endings_of_names, leave),
    };
    return cmocka_run_group_tests_name("ingest_locale", tests, make_locales, scratch_close);
}
