/* SPDX-License-Identifier: Apache-2.0
 *
 * test_json_load.c: the fast reader of plain JSON accepts what jansson accepts, and makes the same
 * values of it. */
#include "shard/json_parse.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_error.h"
#include "support/check.h"
#include "support/seed.h"

static const char *const TEXTS[] = {
    "{}",
    "[]",
    " [ ] \n",
    "{\"a\":1,\"b\":[true,false,null],\"c\":{\"d\":\"e\"}}\n",
    "{\"a\":-0,\"b\":-1,\"c\":999999999999999999,\"d\":9223372036854775807,\"e\":0}",
    "{\"a\":1.5,\"b\":1e3,\"c\":-2E-2}",
    "{\"a\":\"b\\u00e4\\n\",\"\\u0041\":\"\xc3\xa4\",\"\":\"\"}",
    "[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]",
    "{\"a\":1,\"a\":2}",
    "{\"a\":1,}",
    "[1,]",
    "[1 2]",
    "{\"a\" 1}",
    "{\"a\":01}",
    "{\"a\":1}x",
    "{\"a\":tru}",
    "{\"a\":\"\x7f\"}",
    "{\"a\":\"\xff\"}",
    "{\"a\":\"\t\"}",
    "\"text\"",
    "12",
    "",
    "{\"format\":{\"major\":1,\"minor\":0},\"requires\":[\"shard_in_blocks\"],\"samples\":12,"
    "\"derived_keys\":true,\"schema\":{\"id\":\"str\",\"n\":\"int64\"},\"index\":[],\"segments\":["
    "\n[\"lengths\",0,12,4096,48,\"0123456789abcdef\"],\n[\"units\",0,1,8192,96,\"00\"]]}\n",
};

/* The same values, or the same complaint. */
static void compare(const char *text, size_t size)
{
    json_error_t where = {0}, jansson = {0};
    json_t *expected = json_loadb(text, size, JSON_REJECT_DUPLICATES, &jansson);
    json_t *loaded = rks_json_load(text, size, &where);
    assert_int_equal(loaded == NULL, expected == NULL);
    if (loaded == NULL)
        assert_string_equal(where.text, jansson.text);
    else
        assert_true(json_equal(loaded, expected));
    json_decref(loaded);
    json_decref(expected);
}

static void texts_mean_what_they_mean_to_jansson(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        compare(TEXTS[i], strlen(TEXTS[i]));
    compare("{\"a\":1}\0", 8);
    compare("{\"a\0b\":1}", 9);
}

static void every_truncation_too(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++)
        for (size_t size = 0; size < strlen(TEXTS[i]); size++) {
            char *exact = malloc(size == 0 ? 1 : size); /* a sanitizer sees what is read after it */
            assert_non_null(exact);
            memcpy(exact, TEXTS[i], size);
            compare(exact, size);
            free(exact);
        }
}

static void and_texts_with_changed_bytes(void **state)
{
    (void)state;
    static const char signs[] = "{}[]\",:\\ 0123456789-+.eEtfn\n\tax\x7f\xc3";
    uint64_t random = test_seed(1);
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        size_t size = strlen(TEXTS[i]);
        for (int round = 0; size > 0 && round < 400; round++) {
            char text[512];
            assert_true(size < sizeof(text));
            memcpy(text, TEXTS[i], size);
            for (int change = 0; change <= round % 3; change++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                text[(random >> 40) % size] = signs[(random >> 20) % (sizeof(signs) - 1)];
            }
            compare(text, size);
        }
    }
}

static int allocations_left;

static void *allocate(size_t size)
{
    return --allocations_left >= 0 ? malloc(size) : NULL;
}

/* Jansson itself cannot be tried: it ends the process by an assertion if a string cannot grow. */
static void a_lack_of_memory_is_not_called_a_wrong_text(void **state)
{
    (void)state;
    const char *text = TEXTS[sizeof(TEXTS) / sizeof(TEXTS[0]) - 1];
    json_t *loaded = NULL;
    json_set_alloc_funcs(allocate, free);
    for (int allocations = 0; loaded == NULL; allocations++) {
        json_error_t where;
        allocations_left = allocations;
        loaded = rks_json_load(text, strlen(text), &where);
        if (loaded == NULL)
            assert_true(rks_json_lacked_memory(&where));
    }
    assert_int_equal(allocations_left, 0);
    json_set_alloc_funcs(malloc, free);
    json_decref(loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_mean_what_they_mean_to_jansson),
        cmocka_unit_test(every_truncation_too),
        cmocka_unit_test(and_texts_with_changed_bytes),
        cmocka_unit_test(a_lack_of_memory_is_not_called_a_wrong_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
