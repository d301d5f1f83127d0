/* SPDX-License-Identifier: Apache-2.0
 *
 * test_search_folders.c: which folders a pattern fits. */
#include "support/check.h"
#include "support/folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "dataset/search_folders.h"

static rks_error err;
static char root[FOLDER_PATH];

static void make(const char *name)
{
    char path[FOLDER_PATH + 64];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_int_equal(mkdir(path, 0755), 0);
}

/* d-0, d-1 (both with r), d-10, .d-2, the file d-3, and a link d-4 to d-0. */
static int make_folders(void **state)
{
    (void)state;
    char path[FOLDER_PATH + 64], target[FOLDER_PATH + 64];
    if (!folder_make_in_memory(root))
        return -1;
    static const char *const names[] = {"d-0", "d-0/r", "d-1", "d-1/r", "d-10", ".d-2"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        make(names[i]);
    snprintf(path, sizeof(path), "%s/d-3", root);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof(path), "%s/d-4", root);
    snprintf(target, sizeof(target), "%s/d-0", root);
    return symlink(target, path);
}

static int remove_folders(void **state)
{
    (void)state;
    folder_remove(root);
    return 0;
}

/* Compares with names below the root, with a space after each. */
static void expect(const char *pattern, const char *names)
{
    char path[FOLDER_PATH + 128], text[1024] = "";
    rks_folders found = {0};
    snprintf(path, sizeof(path), "%s/%s", root, pattern);
    assert_ok(rks_folders_find(&found, path, &err), &err);
    for (size_t i = 0; i < found.count; i++) {
        assert_memory_equal(found.paths[i], root, strlen(root));
        strcat(strcat(text, found.paths[i] + strlen(root) + 1), " ");
    }
    assert_string_equal(text, names);
    rks_folders_free(&found);
}

static void a_star_stands_for_any_text_in_one_part(void **state)
{
    (void)state;
    expect("d-*", "d-0 d-1 d-10 d-4 ");
    expect("d-*/r", "d-0/r d-1/r d-4/r ");
    expect("*-1*", "d-1 d-10 ");
    expect("d-**1*0", "d-10 ");
    expect("*/*", "d-0/r d-1/r d-4/r ");
    expect("d-*/r/", "d-0/r/ d-1/r/ d-4/r/ ");
    expect("e-*", "");
    expect("d-?", "");
    expect("d-[01]", "");
}

static void a_name_without_a_star_is_itself(void **state)
{
    (void)state;
    expect("d-0", "d-0 ");
    expect("d-3", ""); /* a file */
    expect("nothing", "");
}

static void names_that_begin_with_a_dot_must_be_named_so(void **state)
{
    (void)state;
    expect("*2", "");
    expect(".d-*", ".d-2 ");
}

static void a_folder_with_a_star_in_its_name_is_itself(void **state)
{
    (void)state;
    char path[FOLDER_PATH + 64];
    snprintf(path, sizeof(path), "%s/d-*", root);
    assert_true(rks_folders_is_pattern(path));
    make("d-*");
    assert_false(rks_folders_is_pattern(path));
    expect("d-*", "d-* ");
    assert_int_equal(rmdir(path), 0);
}

static void too_many_folders_are_an_error_that_names_the_pattern(void **state)
{
    (void)state;
    char name[64], path[FOLDER_PATH + 64];
    rks_folders found = {0};
    make("many");
    for (int i = 0; i <= RKS_FOLDERS_MAX; i++) {
        snprintf(name, sizeof(name), "many/%d", i);
        make(name);
    }
    snprintf(path, sizeof(path), "%s/many/*", root);
    assert_int_equal(rks_folders_find(&found, path, &err), RKS_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "/many/*: more than 16384 folders"));
    rks_folders_free(&found);
    snprintf(path, sizeof(path), "%s/many/*/*", root); /* none fits, but too many are listed */
    assert_int_equal(rks_folders_find(&found, path, &err), RKS_ERR_ARGUMENT);
    rks_folders_free(&found);
}

static void the_folders_of_the_variable_come_last(void **state)
{
    (void)state;
    char first[FOLDER_PATH + 64], list[3 * FOLDER_PATH + 64];
    char *none = NULL;
    rks_folders found = {0};
    snprintf(first, sizeof(first), "%s/d-10", root);
    snprintf(list, sizeof(list), ":%s/d-1::%s/e-*:%s/d-0", root, root, root);
    setenv("RKS_PATH", list, 1);
    assert_ok(rks_folders_of_shards(&found, NULL, (const char *const[]){first}, 1, &none, &err),
              &err);
    unsetenv("RKS_PATH");
    assert_int_equal(found.count, 3);
    static const char *const ends[] = {"d-10", "d-1", "d-0"};
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(found.paths[i] + strlen(root) + 1, ends[i]);
    assert_non_null(strstr(none, "/e-*"));
    rks_free(none);
    rks_folders_free(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_star_stands_for_any_text_in_one_part),
        cmocka_unit_test(a_name_without_a_star_is_itself),
        cmocka_unit_test(names_that_begin_with_a_dot_must_be_named_so),
        cmocka_unit_test(a_folder_with_a_star_in_its_name_is_itself),
        cmocka_unit_test(the_folders_of_the_variable_come_last),
        cmocka_unit_test(too_many_folders_are_an_error_that_names_the_pattern),
    };
    return cmocka_run_group_tests_name("search_folders", tests, make_folders, remove_folders);
}
