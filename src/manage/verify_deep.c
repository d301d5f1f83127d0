/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_deep.c: a shard as LMDB sees it.
 *
 * LMDB trusts the pages that it reads: a crafted file can make it crash or walk in circles. So it
 * is opened in a forked child with a time limit, which tells what it finds through a pipe; a child
 * that dies or takes too long is a finding itself. */
#include "manage/verify.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "shard/lmdb_env.h"

enum { LIMIT_MS = 10000, BYTES_PER_MS = 200 * 1000, TOLD_MOST = 100 };

typedef enum word_kind { WORD_FINDING, WORD_FAILED, WORD_DONE } word_kind;

/* A message through the pipe, at most PIPE_BUF, so it is never torn. */
typedef struct message {
    int32_t kind;
    int32_t reserved;
    uint64_t offset;
    rks_error what; /* with its status if the child could not look */
} message;

/* ---- the child ---------------------------------------------------------------------------- */

typedef struct deep_walk {
    const rks_shard *shard;
    int pipe;
    unsigned told;
    uint64_t row;
    uint64_t blocks;
    uint64_t folded; /* a sum over all values, so that every page is read */
    rks_unit_list units;
} deep_walk;

static void report_deep_damage(deep_walk *deep, word_kind kind, uint64_t offset,
                               const rks_error *what)
{
    message word = {.kind = kind, .offset = offset};
    if (what != NULL)
        word.what = *what;
    if (kind == WORD_FINDING && deep->told++ >= TOLD_MOST)
        return;
    ssize_t put = write(deep->pipe, &word, sizeof(message));
    if (put != (ssize_t)sizeof(message))
        _exit(1);
}

__attribute__((format(printf, 3, 4))) static void tell_text(deep_walk *deep, uint64_t offset,
                                                            const char *format, ...)
{
    rks_error what;
    char text[192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    rks_fail(&what, RKS_ERR_CORRUPT, 0, "%s", text);
    report_deep_damage(deep, WORD_FINDING, offset, &what);
}

static rks_status visit_block(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    deep_walk *deep = user;
    const rks_shard *shard = deep->shard;
    rks_block_info info;
    uint64_t number = 0;
    (void)stop;
    if (entry->key_size == sizeof(number))
        memcpy(&number, entry->key, sizeof(number));
    if (entry->key_size != sizeof(number) || be64toh(number) != deep->blocks++)
        tell_text(deep, entry->offset == UINT64_MAX ? 0 : entry->offset,
                  "block %" PRIu64 " is missing, or has a key of its own", deep->blocks - 1);
    if (entry->offset == UINT64_MAX) { /* a sealed block has overflow pages of its own */
        tell_text(deep, 0, "block %" PRIu64 " lies in a leaf of LMDB", deep->blocks - 1);
        return RKS_OK;
    }
    rks_status status = rks_block_check(entry->value, entry->size, rks_shard_path(shard),
                                        entry->offset, &info, err);
    if (status != RKS_OK) {
        report_deep_damage(deep, WORD_FINDING, entry->offset, err);
        return RKS_OK;
    }
    size_t at = RKS_BLOCK_HEADER;
    for (uint32_t i = 0; i < info.count; i++) {
        rks_record_view view;
        status = rks_block_next(entry->value, entry->size, &at, &view, err);
        if (status != RKS_OK)
            return status;
        uint64_t offset = entry->offset + (uint64_t)(view.record - entry->value);
        if (deep->row >= rks_shard_manifest(shard)->samples ||
            rks_shard_offset(shard, deep->row) != offset)
            tell_text(deep, offset, "row %" PRIu64 ": LMDB has it here, the index does not",
                      deep->row);
        deep->row++;
    }
    return RKS_OK;
}

static rks_status visit_unit(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    deep_walk *deep = user;
    const rks_unit_list *sealed = rks_shard_unit_list(deep->shard);
    rks_unit_stored stored = {0};
    (void)stop;
    rks_status status = rks_unit_decode(entry->value, entry->size, true,
                                        rks_shard_path(deep->shard), &deep->units, &stored, err);
    if (status != RKS_OK)
        return status;
    size_t at = deep->units.count - 1;
    if (sealed->count > 0 &&
        (at >= sealed->count || sealed->summaries[at].unit != deep->units.summaries[at].unit ||
         sealed->summaries[at].samples != deep->units.summaries[at].samples ||
         !rks_digest_equal(sealed->summaries[at].digest, deep->units.summaries[at].digest)))
        tell_text(deep, entry->offset == UINT64_MAX ? 0 : entry->offset,
                  "unit %" PRIu64 " in LMDB is not the one of the unit list",
                  deep->units.summaries[at].unit);
    return RKS_OK;
}

static rks_status visit_index(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    deep_walk *deep = user;
    (void)stop;
    (void)err;
    deep->folded += rks_checksum64(entry->value, entry->size);
    return RKS_OK;
}

/* What LMDB reads follows from the newer of two meta pages. Checks that it is the one that was
 * sealed. */
static rks_status compare_meta(deep_walk *deep, rks_lmdb *env, rks_error *err)
{
    const rks_manifest *manifest = rks_shard_manifest(deep->shard);
    uint64_t main_page = 0;
    if (rks_lmdb_page_size(env) != manifest->page_size)
        tell_text(deep, 0, "pages of %" PRIu32 " bytes, the manifest has %" PRIu32,
                  rks_lmdb_page_size(env), manifest->page_size);
    rks_status status = rks_lmdb_main_page(env, &main_page, err);
    if (status == RKS_OK && main_page != manifest->main_page)
        tell_text(deep, main_page,
                  "the current meta page leads to the main database at %" PRIu64
                  ", the manifest to the one at %" PRIu64,
                  main_page, manifest->main_page);
    return status;
}

static rks_status walk_all(deep_walk *deep, rks_error *err)
{
    rks_lmdb *env = NULL;
    rks_status status = rks_lmdb_open(rks_shard_path(deep->shard), true, &env, err);
    if (status != RKS_OK && err->cause == ENOMEM) { /* a meta page asks for an impossible map */
        tell_text(deep, 0, "LMDB cannot open it: its map has no room in memory");
        return RKS_OK;
    }
    if (status == RKS_OK)
        status = compare_meta(deep, env, err);
    if (status == RKS_OK)
        status = rks_lmdb_walk(env, RKS_LMDB_BLOCKS, NULL, 0, visit_block, deep, err);
    if (status == RKS_OK)
        status = rks_lmdb_walk(env, RKS_LMDB_UNITS, NULL, 0, visit_unit, deep, err);
    if (status == RKS_OK)
        status = rks_lmdb_walk(env, RKS_LMDB_INDEX, NULL, 0, visit_index, deep, err);
    if (status == RKS_OK && deep->row != rks_shard_manifest(deep->shard)->samples)
        tell_text(deep, 0, "LMDB has %" PRIu64 " samples, the manifest %" PRIu64, deep->row,
                  rks_shard_manifest(deep->shard)->samples);
    if (status == RKS_OK && rks_shard_unit_list(deep->shard)->count > 0 &&
        deep->units.count != rks_shard_unit_list(deep->shard)->count)
        tell_text(deep, 0, "LMDB has %zu units, the manifest %zu", deep->units.count,
                  rks_shard_unit_list(deep->shard)->count);
    rks_lmdb_close(env);
    return status;
}

static void be_child(const rks_shard *shard, int pipe, uint64_t limit_ms)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, SIGALRM, SIGPIPE};
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        signal(fatal[i], SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    rks_set_interrupt(NULL, NULL);
    alarm((unsigned)(limit_ms / 1000) + 5); /* in case the parent is gone */
    deep_walk deep = {.shard = shard, .pipe = pipe};
    rks_error err = {0};
    rks_status status = walk_all(&deep, &err);
    report_deep_damage(&deep, status == RKS_OK ? WORD_DONE : WORD_FAILED, 0, &err);
    _exit(0);
}

/* ---- the parent --------------------------------------------------------------------------- */

/* Reads the child's messages until it ends or `limit_ms` are over. *done: its last message came. */
static rks_status listen_to(rks_verify_job *job, const rks_shard *shard, int pipe,
                            uint64_t limit_ms, bool *done, bool *late, rks_error *err)
{
    uint64_t begun = rks_now_ms();
    uint8_t bytes[sizeof(message)];
    size_t have = 0;
    while (true) {
        rks_status status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        if (rks_now_ms() - begun > limit_ms) {
            *late = true;
            return RKS_OK;
        }
        struct pollfd ready = {.fd = pipe, .events = POLLIN};
        int count = poll(&ready, 1, RKS_WAIT_SLICE_MS);
        if (count < 0 && errno != EINTR)
            return rks_fail_errno(err, errno, "waiting for the process that reads %s",
                                  rks_shard_path(shard));
        if (count <= 0)
            continue;
        ssize_t got = read(pipe, bytes + have, sizeof(bytes) - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return RKS_OK;
        have += (size_t)got;
        if (have < sizeof(message))
            continue;
        have = 0;
        message said;
        memcpy(&said, bytes, sizeof(said));
        rks_error_sanitize(&said.what);
        *done = *done || said.kind != WORD_FINDING;
        if (said.kind == WORD_FINDING)
            rks_verify_report(job, rks_shard_path(shard), said.offset, NULL, 0, "LMDB's view: %s",
                              said.what.text);
        if (said.kind == WORD_FAILED) {
            status = rks_verify_absorb(job, rks_shard_path(shard), 0, (rks_status)said.what.status,
                                       &said.what);
            if (status != RKS_OK) {
                *err = said.what;
                return status;
            }
        }
    }
}

rks_status rks_verify_deep(rks_verify_job *job, const rks_shard *shard, rks_error *err)
{
    int ends[2];
    rks_error local;
    if (err == NULL)
        err = &local;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return rks_fail_errno(err, errno, "%s: making a pipe", rks_shard_path(shard));
    uint64_t limit_ms = LIMIT_MS + rks_shard_manifest(shard)->file_size / BYTES_PER_MS;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        be_child(shard, ends[1], limit_ms);
    }
    int cause = errno;
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return rks_fail_errno(err, cause, "%s: starting a process", rks_shard_path(shard));
    }
    bool done = false;
    bool late = false;
    rks_status status = listen_to(job, shard, ends[0], limit_ms, &done, &late, err);
    close(ends[0]);
    if (status != RKS_OK || late)
        kill(child, SIGKILL);
    int how = 0;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        ;
    if (status != RKS_OK)
        return status;
    if (late)
        rks_verify_report(job, rks_shard_path(shard), 0, NULL, 0,
                          "LMDB did not come to an end in %" PRIu64 " ms", limit_ms);
    else if (WIFSIGNALED(how))
        rks_verify_report(job, rks_shard_path(shard), 0, NULL, 0,
                          "reading it with LMDB ends by signal %d", WTERMSIG(how));
    else if (!done)
        rks_verify_report(job, rks_shard_path(shard), 0, NULL, 0,
                          "reading it with LMDB ends with code %d", WEXITSTATUS(how));
    return RKS_OK;
}
