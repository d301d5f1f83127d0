/* SPDX-License-Identifier: Apache-2.0
 *
 * test_directory.c: the home that is a directory: what its reads say, reads that hang, files put on
 * a condition, and who wins of several. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "home/directory_files.h"
#include "home/home.h"
#include "support/check.h"
#include "support/folder.h"
#include "unit/home/failing_pread.h"

enum { LARGE = 3 << 20, SLOTS = 64 };

static char place[FOLDER_PATH];
static void *home;
static rks_error err;
static const rks_home_ops *const ops = &rks_home_directory;
static const rks_home_limits limits = {.stall_ms = 60000, .tell_ms = 60000, .timeout_ms = 60000};

/* A read and what became of it. */
typedef struct asked {
    rks_home_read read;
    uint8_t *bytes;
    atomic_ullong came;
    atomic_int ends; /* how often `done` came */
    enum rks_home_kind kind;
    rks_error err;
} asked;

static void count_coming(rks_home_read *read, uint64_t bytes)
{
    atomic_store(&((asked *)read)->came, bytes);
}

static void note_end(rks_home_read *read, enum rks_home_kind kind, const rks_error *why)
{
    asked *a = (asked *)read;
    a->kind = kind;
    a->err = *why;
    atomic_fetch_add(&a->ends, 1);
}

static rks_status ask(asked *a, const char *name, uint64_t first, uint64_t end, const char *version)
{
    free(a->bytes);
    *a = (asked){.bytes = malloc(LARGE)};
    a->read = (rks_home_read){.name = name,
                              .first = first,
                              .end = end,
                              .to = a->bytes,
                              .come = count_coming,
                              .done = note_end};
    strcpy(a->read.version, version);
    return ops->read(home, &a->read, &err);
}

static void wait_end(asked *a)
{
    while (atomic_load(&a->ends) == 0)
        usleep(500);
}

static enum rks_home_kind read_now(asked *a, const char *name, uint64_t first, uint64_t end,
                                   const char *version)
{
    assert_ok(ask(a, name, first, end, version), &err);
    wait_end(a);
    return a->kind;
}

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 31 + (at >> 9));
}

static char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", place, name);
    return path;
}

static void write_file(const char *name, uint64_t size)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    for (uint64_t i = 0; i < size; i++)
        putc(byte_at(i), file);
    assert_int_equal(fclose(file), 0);
}

static int make_place(void **state)
{
    (void)state;
    pread_set(PREAD_WORKS, 0, 0);
    assert_true(folder_make(place));
    assert_ok(ops->open(place, &limits, &home, &err), &err);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    pread_set(PREAD_WORKS, 0, 0);
    if (home != NULL)
        ops->close(home, 10000);
    folder_remove(place);
    return 0;
}

/* ---- reads ---------------------------------------------------------------------------------- */

static void a_range_comes_with_version_and_size(void **state)
{
    (void)state;
    asked a = {0};
    char version[RKS_HOME_VERSION];
    write_file("a", LARGE);
    assert_int_equal(read_now(&a, "a", 0, 0, ""), RKS_HOME_OK);
    assert_int_equal(a.read.size, LARGE);
    strcpy(version, a.read.version);
    assert_int_equal(read_now(&a, "a", 1000, LARGE - 7, version), RKS_HOME_OK);
    for (uint64_t i = 1000; i < LARGE - 7; i++)
        assert_int_equal(a.bytes[i - 1000], byte_at(i));
    assert_int_equal(atomic_load(&a.came), LARGE - 1007);
    assert_string_equal(a.read.version, version);
    free(a.bytes);
}

static void a_whole_file_comes_if_it_is_not_too_large(void **state)
{
    (void)state;
    asked a = {.bytes = malloc(100)};
    write_file("a", 70);
    for (uint64_t most = 69; most <= 100; most += 31) {
        a.read = (rks_home_read){
            .name = "a", .end = most, .whole = true, .to = a.bytes, .done = note_end};
        atomic_store(&a.ends, 0);
        assert_ok(ops->read(home, &a.read, &err), &err);
        wait_end(&a);
        assert_int_equal(a.kind, most < 70 ? RKS_HOME_BROKEN : RKS_HOME_OK);
        assert_int_equal(a.read.size, 70);
    }
    assert_int_equal(a.bytes[69], byte_at(69));
    free(a.bytes);
}

static void what_cannot_be_read_has_its_kind(void **state)
{
    (void)state;
    asked a = {0};
    write_file("a", 100);
    assert_int_equal(mkdir(path_of("folder"), 0777), 0);
    assert_int_equal(read_now(&a, "none", 0, 1, ""), RKS_HOME_MISSING);
    assert_contains(a.err.text, "none: no such file");
    assert_int_equal(read_now(&a, "folder", 0, 1, ""), RKS_HOME_DENIED);
    assert_int_equal(read_now(&a, "../a", 0, 1, ""), RKS_HOME_DENIED);
    assert_contains(a.err.text, "not the name of a file");
    assert_int_equal(read_now(&a, "a", 50, 101, ""), RKS_HOME_BROKEN);
    assert_int_equal(a.err.status, RKS_ERR_CORRUPT);
    assert_contains(a.err.text, "ends at 100");
    assert_int_equal(read_now(&a, "a", 0, 1, "other"), RKS_HOME_CHANGED);
    const struct {
        int with;
        enum rks_home_kind kind;
    } faults[] = {{EIO, RKS_HOME_BROKEN},
                  {ESTALE, RKS_HOME_BROKEN},
                  {EACCES, RKS_HOME_DENIED},
                  {PREAD_ENDS, RKS_HOME_BROKEN}};
    for (size_t i = 0; i < 4; i++) {
        pread_set(faults[i].with, 0, 0);
        assert_int_equal(read_now(&a, "a", 0, 100, ""), faults[i].kind);
        assert_contains(a.err.text, place);
    }
    pread_set(PREAD_WORKS, 0, 0);
    assert_int_equal(read_now(&a, "a", 0, 100, ""), RKS_HOME_OK);
    free(a.bytes);
}

/* A file that is replaced, or written, while it is read, does not come as one. */
static void a_file_that_changes_is_noticed(void **state)
{
    (void)state;
    asked a = {0};
    char version[RKS_HOME_VERSION];
    write_file("a", 100);
    assert_int_equal(read_now(&a, "a", 0, 0, ""), RKS_HOME_OK);
    strcpy(version, a.read.version);
    write_file("b", 100);
    char other[256];
    snprintf(other, sizeof(other), "%s/b", place);
    assert_int_equal(rename(other, path_of("a")), 0);
    assert_int_equal(read_now(&a, "a", 0, 100, version), RKS_HOME_CHANGED);
    pread_set(PREAD_HANGS, 0, 0);
    assert_ok(ask(&a, "a", 0, 100, ""), &err);
    pread_wait_hanging(1);
    write_file("a", 101);
    pread_set(PREAD_WORKS, 0, 0);
    wait_end(&a);
    assert_int_equal(a.kind, RKS_HOME_CHANGED);
    free(a.bytes);
}

/* A file stays open for those who want its version. */
static void a_version_that_was_read_stays_readable(void **state)
{
    (void)state;
    asked a = {0};
    char version[RKS_HOME_VERSION];
    write_file("a", 100);
    assert_int_equal(read_now(&a, "a", 0, 50, ""), RKS_HOME_OK);
    strcpy(version, a.read.version);
    assert_int_equal(unlink(path_of("a")), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(read_now(&a, "a", 50, 100, version), RKS_HOME_OK);
    assert_int_equal(a.bytes[49], byte_at(99));
    assert_int_equal(read_now(&a, "a", 0, 50, ""), RKS_HOME_MISSING);
    write_file("a", 200);
    assert_int_equal(read_now(&a, "a", 0, 50, version), RKS_HOME_OK);
    assert_int_equal(read_now(&a, "a", 0, 150, ""), RKS_HOME_OK);
    assert_string_not_equal(a.read.version, version);
    pread_set(EIO, 0, 0); /* after an error it is opened anew */
    assert_int_equal(read_now(&a, "a", 0, 50, version), RKS_HOME_BROKEN);
    pread_set(PREAD_WORKS, 0, 0);
    assert_int_equal(read_now(&a, "a", 0, 50, version), RKS_HOME_CHANGED);
    free(a.bytes);
}

static void few_files_stay_open(void **state)
{
    (void)state;
    enum { FILES = 100 };
    asked a = {0};
    char names[FILES][16], versions[FILES][RKS_HOME_VERSION];
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof(names[i]), "f%d", i);
        write_file(names[i], 10);
        assert_int_equal(read_now(&a, names[i], 0, 10, ""), RKS_HOME_OK);
        strcpy(versions[i], a.read.version);
    }
    int open = 0;
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(unlink(path_of(names[i])), 0);
        open += read_now(&a, names[i], 0, 10, versions[i]) == RKS_HOME_OK;
    }
    assert_int_equal(open, 32);
    assert_int_equal(a.kind, RKS_HOME_OK); /* the last ones */
    free(a.bytes);
}

/* ---- reads that hang ------------------------------------------------------------------------ */

static void reads_that_hang_are_replaced(void **state)
{
    (void)state;
    asked *hung = calloc(SLOTS, sizeof(*hung)), a = {0};
    write_file("a", 100);
    pread_set(PREAD_HANGS, 0, 0);
    for (int i = 0; i < 24; i++) {
        assert_ok(ask(&hung[i], "a", 0, 100, ""), &err);
        if (i % 8 == 7) {
            pread_wait_hanging(i + 1);
            for (int k = i - 7; k <= i; k++)
                ops->give_up(home, &hung[k].read);
        }
        if (i == 15)
            assert_int_equal(read_now(&a, "none", 0, 1, ""), RKS_HOME_MISSING);
    }
    assert_fails(RKS_ERR_IO, ask(&a, "a", 0, 100, ""));
    assert_contains(err.text, "24 reads hang");
    for (int i = 0; i < 24; i++)
        assert_int_equal(atomic_load(&hung[i].ends), 0);
    pread_set(PREAD_WORKS, 0, 0);
    for (int i = 0; i < 24; i++) {
        wait_end(&hung[i]);
        assert_int_equal(hung[i].kind, RKS_HOME_OK); /* its bytes had come; nobody wants them */
    }
    pread_wait_hanging(0);
    for (int i = 0; i < SLOTS; i++)
        assert_ok(ask(&hung[i], "a", 0, 100, ""), &err);
    for (int i = 0; i < SLOTS; i++) {
        wait_end(&hung[i]);
        assert_int_equal(hung[i].kind, RKS_HOME_OK);
        free(hung[i].bytes);
    }
    free(a.bytes);
    free(hung);
}

static void a_queued_read_ends_when_it_is_given_up(void **state)
{
    (void)state;
    asked all[10] = {0};
    write_file("a", 100);
    pread_set(PREAD_HANGS, 0, 0);
    for (int i = 0; i < 10; i++)
        assert_ok(ask(&all[i], "a", 0, 100, ""), &err);
    pread_wait_hanging(8);
    for (int i = 9; i >= 0; i--)
        if (atomic_load(&all[i].ends) == 0)
            ops->give_up(home, &all[i].read);
    assert_true(atomic_load(&pread_hanging) >= 8);
    pread_set(PREAD_WORKS, 0, 0);
    int broken = 0;
    for (int i = 0; i < 10; i++) {
        wait_end(&all[i]);
        broken += all[i].kind == RKS_HOME_BROKEN;
        assert_int_equal(atomic_load(&all[i].ends), 1);
        free(all[i].bytes);
    }
    assert_int_equal(broken, 2);
}

/* A large read that was given up stops at its next piece. */
static void a_read_that_was_given_up_reads_no_further(void **state)
{
    (void)state;
    asked a = {0};
    write_file("a", LARGE);
    pread_set(PREAD_HANGS, 1 << 20, 0);
    assert_ok(ask(&a, "a", 0, LARGE, ""), &err);
    pread_wait_hanging(1);
    assert_int_equal(atomic_load(&a.came), 1 << 20);
    ops->give_up(home, &a.read);
    ops->give_up(home, &a.read);
    pread_set(PREAD_WORKS, 0, 0);
    wait_end(&a);
    assert_int_equal(a.kind, RKS_HOME_BROKEN);
    assert_contains(a.err.text, "given up");
    assert_int_equal(atomic_load(&a.came), 2 << 20);
    free(a.bytes);
}

static void close_waits_for_no_read_that_hangs(void **state)
{
    (void)state;
    asked all[12] = {0};
    write_file("a", 100);
    pread_set(PREAD_HANGS, 0, 0);
    for (int i = 0; i < 12; i++)
        assert_ok(ask(&all[i], "a", 0, 100, ""), &err);
    pread_wait_hanging(8);
    ops->close(home, 10);
    home = NULL;
    assert_int_equal(atomic_load(&pread_hanging), 8);
    int ended = 0;
    for (int i = 0; i < 12; i++)
        ended += atomic_load(&all[i].ends);
    assert_int_equal(ended, 4);
    pread_set(PREAD_WORKS, 0, 0);
    for (int i = 0; i < 12; i++) {
        wait_end(&all[i]);
        free(all[i].bytes);
    }
    long left;
    for (int tries = 0; (left = rks_memory_in_use()) > 0 && tries < 5000; tries++)
        usleep(1000);
    assert_int_equal(left, 0);
}

/* ---- put ------------------------------------------------------------------------------------- */

typedef struct text {
    const char *text;
    rks_status fails;
} text;

static rks_status give_text(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *why)
{
    const text *of = user;
    if (of->fails != RKS_OK)
        return rks_fail(why, of->fails, 0, "the source ends");
    for (size_t i = 0; i < size; i++)
        to[i] = of->text == NULL ? byte_at(first + i) : (uint8_t)of->text[first + i];
    return RKS_OK;
}

static rks_status put_text(const char *name, const char *of, enum rks_put_rule rule, char *version)
{
    text t = {.text = of};
    const rks_home_bytes bytes = {
        .size = strlen(of), .give = give_text, .user = &t, .claim = "a.2.claim"};
    return ops->put(home, name, &bytes, rule, version, &err);
}

static void expect_text(const char *name, const char *expected)
{
    char found[256];
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    size_t size = fread(found, 1, sizeof(found) - 1, file);
    found[size] = '\0';
    fclose(file);
    assert_string_equal(found, expected);
}

static rks_status count_file(void *user, const rks_home_listed *file, rks_error *why)
{
    (void)file, (void)why;
    (*(int *)user)++;
    return RKS_OK;
}

static int files_of(const char *prefix)
{
    int count = 0;
    assert_ok(ops->list(home, prefix, count_file, &count, &err), &err);
    return count;
}

static void a_file_is_put_once(void **state)
{
    (void)state;
    asked a = {0};
    char version[RKS_HOME_VERSION] = "", again[RKS_HOME_VERSION] = "";
    assert_ok(put_text("a", "first", RKS_PUT_ABSENT, version), &err);
    assert_fails(RKS_ERR_STATE, put_text("a", "second", RKS_PUT_ABSENT, again));
    assert_contains(err.text, "is there already");
    expect_text("a", "first");
    assert_int_equal(read_now(&a, "a", 0, 5, version), RKS_HOME_OK);
    assert_int_equal(files_of(""), 1);
    free(a.bytes);
}

static void a_large_file_is_put_in_pieces(void **state)
{
    (void)state;
    asked a = {0};
    text t = {0};
    char version[RKS_HOME_VERSION] = "";
    const rks_home_bytes bytes = {.size = LARGE - 5, .give = give_text, .user = &t};
    assert_ok(ops->put(home, "a", &bytes, RKS_PUT_ABSENT, version, &err), &err);
    assert_int_equal(read_now(&a, "a", 0, LARGE - 5, version), RKS_HOME_OK);
    for (uint64_t i = 0; i < LARGE - 5; i++)
        assert_int_equal(a.bytes[i], byte_at(i));
    free(a.bytes);
}

static void a_directory_is_made_with_its_first_file(void **state)
{
    (void)state;
    char below[FOLDER_PATH + 16], version[RKS_HOME_VERSION] = "";
    snprintf(below, sizeof(below), "%s/x/y", place);
    ops->close(home, 1000);
    assert_ok(ops->open(below, &limits, &home, &err), &err);
    assert_int_equal(files_of(""), 0);
    assert_ok(put_text("a", "first", RKS_PUT_ABSENT, version), &err);
    expect_text("x/y/a", "first");
}

static void a_source_that_fails_leaves_nothing(void **state)
{
    (void)state;
    text t = {.fails = RKS_ERR_CORRUPT};
    char version[RKS_HOME_VERSION] = "";
    const rks_home_bytes bytes = {.size = 5, .give = give_text, .user = &t};
    assert_fails(RKS_ERR_CORRUPT, ops->put(home, "a", &bytes, RKS_PUT_ABSENT, version, &err));
    assert_contains(err.text, "the source ends");
    assert_int_equal(files_of(""), 0);
    assert_fails(RKS_ERR_ARGUMENT, ops->put(home, "b/a", &bytes, RKS_PUT_ABSENT, version, &err));
    assert_fails(RKS_ERR_ARGUMENT, ops->put(home, "a", &bytes, RKS_PUT_SAME, version, &err));
}

/* A source that gives "first", and whose file is removed on the way as often as *user says. */
static rks_status give_removed(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *why)
{
    int *prunes = user;
    (void)why;
    memcpy(to, &"first"[first], size);
    DIR *stream = (*prunes)-- > 0 ? opendir(place) : NULL;
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;)
        if (strstr(entry->d_name, ".sending") != NULL)
            assert_int_equal(unlinkat(dirfd(stream), entry->d_name, 0), 0);
    if (stream != NULL)
        closedir(stream);
    return RKS_OK;
}

/* A prune removes what is not in place and has no claim, also what a publisher is about to put. */
static void what_prunes_remove_on_the_way_is_put_again(void **state)
{
    (void)state;
    int prunes = 5;
    char version[RKS_HOME_VERSION] = "";
    const rks_home_bytes bytes = {.size = 5, .give = give_removed, .user = &prunes};
    assert_ok(ops->put(home, "a", &bytes, RKS_PUT_ABSENT, version, &err), &err);
    expect_text("a", "first");
    prunes = 1 << 20; /* but not for ever */
    assert_fails(RKS_ERR_IO, ops->put(home, "b", &bytes, RKS_PUT_ABSENT, version, &err));
    assert_int_equal(files_of(""), 1);
}

static void a_version_is_replaced_once(void **state)
{
    (void)state;
    char first[RKS_HOME_VERSION] = "", second[RKS_HOME_VERSION], stale[RKS_HOME_VERSION];
    assert_ok(put_text("a", "first", RKS_PUT_ABSENT, first), &err);
    strcpy(second, first);
    assert_ok(put_text("a", "second", RKS_PUT_SAME, second), &err);
    assert_string_not_equal(first, second);
    expect_text("a", "second");
    strcpy(stale, first);
    assert_fails(RKS_ERR_STATE, put_text("a", "third", RKS_PUT_SAME, stale));
    assert_contains(err.text, "replaced it meanwhile");
    strcpy(stale, "");
    assert_fails(RKS_ERR_STATE, put_text("a", "third", RKS_PUT_SAME, stale));
    assert_int_equal(files_of(""), 1);
}

static void write_claim(const char *digest, long pid)
{
    char host[65];
    FILE *file = fopen(path_of("a.2.claim"), "w");
    assert_non_null(file);
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    fprintf(file, "digest %s\npid %ld on %s\n", digest, pid, host);
    assert_int_equal(fclose(file), 0);
}

static void a_claim_is_for_its_contents(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "", used[RKS_HOME_VERSION], digest[RKS_DIGEST_TEXT];
    assert_ok(put_text("a", "first", RKS_PUT_ABSENT, version), &err);
    strcpy(used, version);
    write_claim("00000000000000000000000000000000", (long)getppid());
    assert_fails(RKS_ERR_STATE, put_text("a", "second", RKS_PUT_SAME, used));
    char who[64];
    snprintf(who, sizeof(who), "changes this home (pid %ld on ", (long)getppid());
    assert_contains(err.text, who);
    assert_contains(err.text, "a.2.claim");
    expect_text("a", "first");
    assert_int_equal(access(path_of("a.2.claim"), F_OK), 0);

    rks_digest_format(rks_checksum128("second", 6), digest); /* of the same contents: goes on */
    write_claim(digest, (long)getppid());
    assert_ok(put_text("a", "second", RKS_PUT_SAME, used), &err);
    assert_int_equal(access(path_of("a.2.claim"), F_OK), 0); /* its holder removes it */
    assert_int_equal(files_of(""), 2);
}

static void a_claim_may_hold_anything(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\n", "digest\npid -1 on x\n", "pid 99999999999 on"};
    char version[RKS_HOME_VERSION] = "";
    assert_ok(put_text("a", "first", RKS_PUT_ABSENT, version), &err);
    for (size_t i = 0; i < 4; i++) {
        FILE *file = fopen(path_of("a.2.claim"), "w");
        assert_non_null(file);
        fputs(texts[i], file);
        assert_int_equal(fclose(file), 0);
        char used[RKS_HOME_VERSION];
        strcpy(used, version);
        assert_fails(RKS_ERR_STATE, put_text("a", "second", RKS_PUT_SAME, used));
        assert_contains(err.text, "remove a.2.claim");
    }
    write_file("a.2.claim", 2000);
    assert_fails(RKS_ERR_CORRUPT, put_text("a", "second", RKS_PUT_SAME, version));
}

enum { PUTTERS = 6, ROUNDS = 40 };

typedef struct putter {
    char name[16], text[16], version[RKS_HOME_VERSION];
    enum rks_put_rule rule;
    rks_status status;
} putter;

static void *put_once(void *user)
{
    putter *p = user;
    text t = {.text = p->text};
    rks_error why;
    const rks_home_bytes bytes = {
        .size = strlen(p->text), .give = give_text, .user = &t, .claim = "a.2.claim"};
    p->status = ops->put(home, p->name, &bytes, p->rule, p->version, &why);
    return NULL;
}

static void of_several_one_wins(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "";
    for (int round = 0; round < ROUNDS; round++) {
        putter all[PUTTERS];
        pthread_t threads[PUTTERS];
        int winner = -1;
        for (int i = 0; i < PUTTERS; i++) {
            all[i] = (putter){.rule = round == 0 ? RKS_PUT_ABSENT : RKS_PUT_SAME, .name = "a"};
            snprintf(all[i].text, sizeof(all[i].text), "%d of %d", i, round);
            strcpy(all[i].version, version);
            assert_int_equal(pthread_create(&threads[i], NULL, put_once, &all[i]), 0);
        }
        for (int i = 0; i < PUTTERS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(all[i].status == RKS_OK || all[i].status == RKS_ERR_STATE);
            assert_true(all[i].status != RKS_OK || winner < 0);
            if (all[i].status == RKS_OK)
                winner = i;
        }
        assert_true(winner >= 0);
        expect_text("a", all[winner].text);
        strcpy(version, all[winner].version);
        assert_int_equal(files_of(""), 1);
    }
}

static void a_file_is_removed_by_version(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "";
    assert_ok(put_text("a", "first", RKS_PUT_ABSENT, version), &err);
    assert_int_equal(files_of("a"), 1);
    assert_int_equal(files_of("b"), 0);
    assert_fails(RKS_ERR_STATE, ops->remove(home, "a", "other", &err));
    assert_ok(ops->remove(home, "a", version, &err), &err);
    assert_ok(ops->remove(home, "a", version, &err), &err);
    assert_int_equal(files_of(""), 0);
}

/* After the rename only the sync of the directory can fail. */
static void survives_each_failing_allocation(void **state)
{
    (void)state;
    for (int nth = 1;; nth++) {
        char version[RKS_HOME_VERSION] = "";
        assert_ok(ops->remove(home, "a", "", &err), &err);
        assert_ok(put_text("a", "first", RKS_PUT_ABSENT, version), &err);
        rks_memory_fail_at(nth);
        rks_status status = put_text("a", "other", RKS_PUT_SAME, version);
        bool all = rks_memory_fail_left() > 0;
        rks_memory_fail_at(0);
        assert_int_equal(files_of(""), 1);
        if (all) {
            assert_ok(status, &err);
            assert_true(nth > 8);
            break;
        }
        assert_fails(RKS_ERR_MEMORY, status);
    }
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(a_range_comes_with_version_and_size),
        WITH_PLACE(a_whole_file_comes_if_it_is_not_too_large),
        WITH_PLACE(what_cannot_be_read_has_its_kind),
        WITH_PLACE(a_file_that_changes_is_noticed),
        WITH_PLACE(a_version_that_was_read_stays_readable),
        WITH_PLACE(few_files_stay_open),
        WITH_PLACE(reads_that_hang_are_replaced),
        WITH_PLACE(a_queued_read_ends_when_it_is_given_up),
        WITH_PLACE(a_read_that_was_given_up_reads_no_further),
        WITH_PLACE(close_waits_for_no_read_that_hangs),
        WITH_PLACE(a_file_is_put_once),
        WITH_PLACE(a_large_file_is_put_in_pieces),
        WITH_PLACE(a_directory_is_made_with_its_first_file),
        WITH_PLACE(a_source_that_fails_leaves_nothing),
        WITH_PLACE(what_prunes_remove_on_the_way_is_put_again),
        WITH_PLACE(a_version_is_replaced_once),
        WITH_PLACE(a_claim_is_for_its_contents),
        WITH_PLACE(a_claim_may_hold_anything),
        WITH_PLACE(of_several_one_wins),
        WITH_PLACE(a_file_is_removed_by_version),
        WITH_PLACE(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("directory", tests, NULL, NULL);
}
