/* SPDX-License-Identifier: Apache-2.0
 *
 * fork_launcher.c: ranks that are processes of this machine, without a launcher. They meet in
 * anonymous shared memory; the parent only supervises: it writes down who was killed, so that the
 * others name it, and ends those that do not end themselves. Everything shared is atomic: a rank
 * may be killed at any instant. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/task_state.h"
#include "base/thread.h"
#include "group/group_state.h"

/* How long the others may take to end by themselves after a rank has failed, and when a line says
 * which ranks are waited for. */
enum { GRACE_MS = 40000, GRACE_MOST_MS = 86400000, SAY_MS = 2000 };

/* RKS_LAUNCH_GRACE_MS changes it. */
static rks_status read_grace(uint64_t *grace_ms, rks_error *err)
{
    const char *text = getenv("RKS_LAUNCH_GRACE_MS");
    *grace_ms = GRACE_MS;
    if (text == NULL)
        return RKS_OK;
    size_t digits = strspn(text, "0123456789");
    *grace_ms = strtoull(text, NULL, 10);
    if (digits == 0 || digits > 8 || text[digits] != '\0' || *grace_ms > GRACE_MOST_MS)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "RKS_LAUNCH_GRACE_MS: '%.32s' is not a whole number from 0 to %d", text,
                        GRACE_MOST_MS);
    return RKS_OK;
}

typedef struct table {
    uint32_t ranks;
    _Atomic uint64_t arrived[2]; /* by parity of the round; never reset */
    _Atomic int64_t dead;        /* 1 + the rank that was killed; 0: none */
    /* followed, by rank (atomic u64), by the rounds that it has reached and how it ended (1 + a
     * wait status; 0: it runs), then by 2 x ranks records */
} table;

typedef struct fork_seat {
    table *t;
    uint32_t rank;
    uint64_t round;
} fork_seat;

static _Atomic uint64_t *rounds_of(table *t)
{
    return (_Atomic uint64_t *)(void *)(t + 1);
}

static _Atomic uint64_t *ends_of(table *t)
{
    return rounds_of(t) + t->ranks;
}

static uint8_t *records_of(table *t, uint64_t round)
{
    uint8_t *first = (uint8_t *)(ends_of(t) + t->ranks);
    return first + (round % 2) * t->ranks * (size_t)RKS_RECORD_MAX;
}

static size_t table_size(uint32_t ranks)
{
    return sizeof(table) + ranks * (2 * sizeof(uint64_t) + 2 * (size_t)RKS_RECORD_MAX);
}

static rks_status fail_ended(table *t, uint32_t rank, rks_error *err)
{
    int how = (int)(atomic_load(&ends_of(t)[rank]) - 1);
    if (WIFSIGNALED(how))
        rks_fail(err, RKS_ERR_PEER, 0, "was killed by signal %d (%s)", WTERMSIG(how),
                 strsignal(WTERMSIG(how)));
    else
        rks_fail(err, RKS_ERR_PEER, 0, "ended with exit code %d", WEXITSTATUS(how));
    err->rank = (int32_t)rank;
    return RKS_ERR_PEER;
}

/* Ranks may end in order at any time. That is an error only for the rank that is asked about. */
static rks_status check_ends(void *user, rks_error *err)
{
    table *t = ((fork_seat *)user)->t;
    int64_t cut_off = err->rank;
    bool ended = cut_off >= 0 && cut_off < t->ranks && atomic_load(&ends_of(t)[cut_off]) != 0;
    int64_t dead = atomic_load(&t->dead);
    if (dead != 0) /* the first one that was killed is the cause of everything else */
        return fail_ended(t, (uint32_t)(dead - 1), err);
    return ended ? fail_ended(t, (uint32_t)cut_off, err) : RKS_OK;
}

/* Names a rank that this round lacks and that will not come: it has ended, or time is up. */
static rks_status name_missing(table *t, uint64_t round, uint32_t late_ms, rks_error *err)
{
    for (uint32_t rank = 0; rank < t->ranks; rank++) {
        bool ended = atomic_load(&ends_of(t)[rank]) != 0;
        if (atomic_load(&rounds_of(t)[rank]) > round || (!ended && late_ms == 0))
            continue;
        if (ended)
            return fail_ended(t, rank, err);
        rks_fail(err, RKS_ERR_TIMEOUT, 0, "did not come within %u ms", late_ms);
        err->rank = (int32_t)rank;
        return RKS_ERR_TIMEOUT;
    }
    return RKS_OK;
}

static rks_status wait_round(fork_seat *s, uint64_t round, uint32_t timeout_ms, rks_error *err)
{
    table *t = s->t;
    struct timespec nap = {0, 200000};
    uint64_t wanted = (round / 2 + 1) * t->ranks, until = rks_now_ms() + timeout_ms;
    while (atomic_load(&t->arrived[round % 2]) < wanted) {
        bool late = rks_now_ms() >= until;
        rks_status status = rks_check_interrupt(err);
        err->rank = -1;
        if (status == RKS_OK)
            status = check_ends(s, err);
        if (status == RKS_OK)
            status = name_missing(t, round, late ? timeout_ms : 0, err);
        if (status != RKS_OK)
            return status;
        nanosleep(&nap, NULL);
        if (nap.tv_nsec < 5000000)
            nap.tv_nsec *= 2;
    }
    return RKS_OK;
}

/* Two sets of records alternate. A rank that writes round k + 2 has seen all arrive at k + 1, and
 * they arrived after they had copied k. */
static rks_status gather_forked(void *user, const void *record, size_t size, void *all,
                                uint32_t timeout_ms, rks_error *err)
{
    fork_seat *s = user;
    if (size > RKS_RECORD_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a record of %zu bytes", size);
    uint64_t round = s->round++;
    uint8_t *records = records_of(s->t, round);
    memcpy(records + s->rank * size, record, size);
    atomic_store(&rounds_of(s->t)[s->rank], round + 1);
    atomic_fetch_add(&s->t->arrived[round % 2], 1);
    rks_status status = wait_round(s, round, timeout_ms, err);
    if (status == RKS_OK)
        memcpy(all, records, s->t->ranks * size);
    return status;
}

/* The caller's signals before the launch; ranks get them, too. */
typedef struct signals {
    sigset_t mask;
    struct sigaction child, interrupt, terminate;
} signals;

static void run_child(table *t, uint32_t rank, pid_t parent, const signals *before,
                      rks_rank_fn main_fn, void *user)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* the parent ended before the line above */
    sigaction(SIGCHLD, &before->child, NULL);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
    fork_seat s = {.t = t, .rank = rank};
    const rks_bootstrap bootstrap = {
        .struct_size = sizeof(bootstrap),
        .name = "fork",
        .rank = rank,
        .size = t->ranks,
        .user = &s,
        .allgather = gather_forked,
        .check = check_ends,
    };
    exit(main_fn(&bootstrap, user));
}

/* ---- the supervisor --------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_end;

/* Ctrl-C in a terminal reaches all processes by itself. Only a signal sent to this process alone is
 * passed on. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code <= 0)
        asked_to_end = number;
}

typedef struct watch {
    table *t;
    pid_t *children;
    uint32_t alive;
    int code;           /* of the first rank that failed */
    int64_t failed;     /* that rank; -1: none, or the caller was asked to end */
    uint64_t failed_ms; /* when it failed; 0: no failure */
    uint64_t grace_ms;
    bool said; /* the line about ranks that are waited for was printed */
    signals before;
    bool ending; /* the remaining ranks are being killed: their ends add nothing */
} watch;

static void note_end(watch *w, uint32_t rank, int how)
{
    w->children[rank] = -1;
    w->alive--;
    if (w->ending)
        return;
    int code = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    atomic_store(&ends_of(w->t)[rank], (uint64_t)(unsigned)how + 1);
    if (WIFSIGNALED(how) && atomic_load(&w->t->dead) == 0)
        atomic_store(&w->t->dead, (int64_t)rank + 1);
    /* A killed rank is the cause of the others' exit codes, whichever is reaped first. */
    if (code != 0 && (w->code == 0 || (WIFSIGNALED(how) && w->code < 128)))
        w->code = code;
    if (code != 0 && w->failed_ms == 0) {
        w->failed_ms = rks_now_ms();
        w->failed = rank;
    }
}

/* Returns true if it is stopped, as by Ctrl-Z or a debugger: it will not end by itself. */
static bool is_stopped(pid_t child)
{
    const char state = rks_task_state((long)child, 0);
    return state == 'T' || state == 't';
}

/* Says that a rank is stopped. The others wait for it, up to the silence limit. */
static void say_stopped(const watch *w, uint32_t rank)
{
    long process = (long)w->children[rank];
    if (w->failed_ms == 0 && is_stopped(w->children[rank])) /* not continued since */
        rks_log(
            "rank %u (process %ld) is stopped, and the others wait for it; kill -CONT %ld lets it "
            "go on",
            rank, process, process);
}

/* Prints one line: the first rank that does not end, and how many more. */
static void say_who_is_left(watch *w)
{
    char more[32] = "", cause[48] = "the end was asked for", at[16] = "";
    uint64_t left_ms = w->grace_ms - (rks_now_ms() - w->failed_ms);
    time_t when = time(NULL) + (time_t)(left_ms / 1000);
    struct tm local;
    uint32_t rank = 0;
    while (rank < w->t->ranks && w->children[rank] <= 0)
        rank++;
    if (rank == w->t->ranks)
        return;
    if (localtime_r(&when, &local) != NULL)
        strftime(at, sizeof(at), "%H:%M:%S", &local);
    if (w->alive > 1)
        snprintf(more, sizeof(more), ", and %u more,", w->alive - 1);
    if (w->failed >= 0)
        snprintf(cause, sizeof(cause), "rank %lld failed", (long long)w->failed);
    rks_log("rank %u (process %ld)%s%s is still running although %s; it is killed at %s", rank,
            (long)w->children[rank], is_stopped(w->children[rank]) ? ", stopped," : "", more, cause,
            at);
}

static void signal_children(const watch *w, int number)
{
    for (uint32_t rank = 0; rank < w->t->ranks; rank++)
        if (w->children[rank] > 0)
            kill(w->children[rank], number);
}

static void supervise(watch *w)
{
    while (w->alive > 0) {
        /* Asks rank by rank, since this process may have other children. */
        for (uint32_t rank = 0; rank < w->t->ranks; rank++) {
            int how = 0;
            if (w->children[rank] <= 0 ||
                waitpid(w->children[rank], &how, WNOHANG | WUNTRACED) <= 0)
                continue;
            if (WIFSTOPPED(how))
                say_stopped(w, rank);
            else
                note_end(w, rank, how);
        }
        if (asked_to_end != 0) {
            signal_children(w, asked_to_end);
            asked_to_end = 0;
            if (w->failed_ms == 0) /* ranks that ignore the signal are ended, too */
                w->failed_ms = rks_now_ms();
        }
        uint64_t passed_ms = w->failed_ms == 0 ? 0 : rks_now_ms() - w->failed_ms;
        if (w->alive > 0 && passed_ms > SAY_MS && passed_ms < w->grace_ms && !w->said) {
            w->said = true;
            say_who_is_left(w);
        }
        if (w->failed_ms != 0 && passed_ms > w->grace_ms) {
            w->ending = true;
            if (w->code == 0 && w->alive > 0)
                w->code = 128 + SIGKILL;
            signal_children(w, SIGKILL);
        }
        struct timespec nap = {0, 5000000};
        nanosleep(&nap, NULL);
    }
}

static rks_status start_children(watch *w, rks_rank_fn main_fn, void *user, rks_error *err)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (uint32_t rank = 0; rank < w->t->ranks; rank++) {
        pid_t child = fork();
        if (child == 0)
            run_child(w->t, rank, parent, &w->before, main_fn, user);
        if (child < 0) {
            rks_status status = rks_fail_start(err, errno, "rank %u", rank);
            signal_children(w, SIGKILL);
            return status;
        }
        w->children[rank] = child;
        w->alive++;
    }
    return RKS_OK;
}

/* Holds signals until all ranks are started: one that came in between would reach only some. */
static void hold_signals(signals *before)
{
    sigset_t held;
    /* If SIGCHLD is ignored, as some parents leave it, ends of children would not be seen. */
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    asked_to_end = 0;
    sigaction(SIGCHLD, &plain, &before->child);
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigaddset(&held, SIGTERM);
    sigprocmask(SIG_BLOCK, &held, &before->mask);
}

static void catch_signals(signals *before)
{
    const struct sigaction action = {.sa_sigaction = on_signal,
                                     .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGINT, &action, &before->interrupt);
    sigaction(SIGTERM, &action, &before->terminate);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

static void give_signals_back(const signals *before)
{
    sigaction(SIGINT, &before->interrupt, NULL);
    sigaction(SIGTERM, &before->terminate, NULL);
    sigaction(SIGCHLD, &before->child, NULL);
}

rks_status rks_launch(uint32_t ranks, rks_rank_fn main_fn, void *user, int *exit_code,
                      rks_error *err)
{
    if (ranks == 0 || ranks > 4096 || main_fn == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "ranks: %u is not from 1 to 4,096", ranks);
    watch w = {.failed = -1};
    rks_hold_standard_files();
    rks_status status = read_grace(&w.grace_ms, err);
    if (status != RKS_OK)
        return status;
    w.children = rks_alloc(ranks, sizeof(*w.children), err);
    if (w.children == NULL)
        return RKS_ERR_MEMORY;
    w.t = mmap(NULL, table_size(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w.t == MAP_FAILED) {
        rks_free(w.children);
        return rks_fail_errno(err, errno, "shared memory for %u ranks", ranks);
    }
    w.t->ranks = ranks;
    hold_signals(&w.before);
    status = start_children(&w, main_fn, user, err);
    catch_signals(&w.before);
    supervise(&w);
    give_signals_back(&w.before);
    munmap(w.t, table_size(ranks));
    rks_free(w.children);
    if (status == RKS_OK && exit_code != NULL)
        *exit_code = w.code;
    return status;
}
