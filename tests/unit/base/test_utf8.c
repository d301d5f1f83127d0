/* SPDX-License-Identifier: Apache-2.0
 *
 * test_utf8.c: which texts are UTF-8, and where others begin to be wrong. */
#include "base/utf8.h"
#include "support/check.h"

static void utf8_is_told_from_what_is_not(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain ascii, longer than 8 bytes",
                                       "\xc3\xa4",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "1234567\xc3\xa4"};
    static const char *const bad[] = {"\x80",
                                      "\xc3",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xff",
                                      "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(rks_utf8_valid(good[i], strlen(good[i]), NULL));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[32] = "twelve bytes";
        size_t at = 0;
        strcat(text, bad[i]);
        assert_false(rks_utf8_valid(text, strlen(text), &at));
        assert_int_equal(at, 12);
    }
}

static void what_is_no_utf8_is_found_at_every_place(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool good;
    } sequences[] = {{"\xc3\xa4", true},
                     {"\xe2\x82\xac", true},
                     {"\xf0\x9f\x98\x80", true},
                     {"\x80", false},
                     {"\xc3", false},
                     {"\xc0\x80", false},
                     {"\xed\xa0\x80", false},
                     {"\xff", false},
                     {"\xe2\x82", false},
                     {"\xf4\x90\x80\x80", false},
                     {"\x7f", true}};
    char text[120];
    for (size_t p = 0; p < sizeof(sequences) / sizeof(sequences[0]); p++)
        for (size_t at = 0; at < 100; at++)
            for (size_t size = at + strlen(sequences[p].bytes); size < at + 12; size += 3) {
                size_t bad = 1000;
                memset(text, 'a', sizeof(text));
                memcpy(text + at, sequences[p].bytes, strlen(sequences[p].bytes));
                assert_int_equal(rks_utf8_valid(text, size, &bad), sequences[p].good);
                assert_int_equal(bad, sequences[p].good ? 1000 : at);
            }
}

/* Long texts are searched by halves, which must not divide a character. */
static void the_place_in_a_long_text_is_exact(void **state)
{
    (void)state;
    static const char *const fillers[] = {"a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    static const char *const wrong[] = {"\x80",         "\xc3",
                                        "\xe2\x82",     "\xed\xa0\x80",
                                        "\xff",         "\x80\x80\x80\x80\x80\x80\x80\x80\x80",
                                        "\xf0\x9f\x98", "\xf4\x90\x80\x80"};
    enum { CHARACTERS = 130 };
    for (size_t f = 0; f < sizeof(fillers) / sizeof(fillers[0]); f++)
        for (size_t w = 0; w < sizeof(wrong) / sizeof(wrong[0]); w++)
            for (size_t place = 0; place <= CHARACTERS; place++) {
                char text[4 * CHARACTERS + 16] = "";
                size_t at = place * strlen(fillers[f]), bad = 0;
                for (size_t i = 0; i <= CHARACTERS; i++)
                    strcat(text, i == place ? wrong[w] : fillers[f]);
                assert_false(rks_utf8_valid(text, strlen(text), &bad));
                assert_int_equal(bad, at);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_is_told_from_what_is_not),
        cmocka_unit_test(what_is_no_utf8_is_found_at_every_place),
        cmocka_unit_test(the_place_in_a_long_text_is_exact),
    };
    return cmocka_run_group_tests_name("utf8", tests, NULL, NULL);
}
