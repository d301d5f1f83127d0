/* SPDX-License-Identifier: Apache-2.0
 *
 * helper_process.c: starts and ends a helper. */
#include "home/helper_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/shared_memory.h"

enum { ARGUMENTS = 8, ARGUMENT = 4096, MEMORY_FD = 3, REAP_MS = 5000 };

extern char **environ;

/* ---- the program ----------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex;
    char texts[ARGUMENTS][ARGUMENT];
    size_t count;
} program = {.mutex = PTHREAD_MUTEX_INITIALIZER};

rks_status rks_helper_set_program(const char *const *arguments, rks_error *err)
{
    size_t count = 0;
    while (arguments != NULL && arguments[count] != NULL) {
        if (count == ARGUMENTS || strlen(arguments[count]) >= ARGUMENT)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "the program for homes: at most %d words of %d bytes", ARGUMENTS,
                            ARGUMENT - 1);
        count++;
    }
    pthread_mutex_lock(&program.mutex);
    program.count = count;
    for (size_t i = 0; i < count; i++)
        strcpy(program.texts[i], arguments[i]);
    pthread_mutex_unlock(&program.mutex);
    return RKS_OK;
}

/* A program's words, and where they lie. */
typedef struct command {
    char texts[ARGUMENTS][ARGUMENT];
    char *words[ARGUMENTS + 1];
} command;

static rks_status choose_program(const char *home, command *c, rks_error *err)
{
    const char *named = getenv("RKS_HOME_HELPER");
    if (named != NULL && named[0] != '\0' && strlen(named) < ARGUMENT) {
        strcpy(c->texts[0], named);
        c->words[0] = c->texts[0];
        return RKS_OK;
    }
    pthread_mutex_lock(&program.mutex);
    memcpy(c->texts, program.texts, sizeof(c->texts));
    for (size_t i = 0; i < program.count; i++)
        c->words[i] = c->texts[i];
    pthread_mutex_unlock(&program.mutex);
    return c->words[0] != NULL
               ? RKS_OK
               : rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                          "%s: an object store is reached through a helper, and there is none: use "
                          "the Python package (pip install 'rankstore[store]'), or name a program "
                          "in RKS_HOME_HELPER",
                          home);
}

/* ---- its surroundings ------------------------------------------------------------------------ */

/* What launchers and this library tell their own processes is not for it. */
static bool is_private(const char *variable)
{
    static const char *const begins[] = {"RKS_SECRET", "OMPI_", "PMI", "PRTE_", "LD_PRELOAD="};
    for (size_t i = 0; i < sizeof(begins) / sizeof(*begins); i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

/* The strings stay the environment's. */
static char **make_environment(rks_error *err)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **made = rks_alloc(count + 1, sizeof(*made), err);
    for (size_t i = 0; made != NULL && i < count; i++)
        if (!is_private(environ[i]))
            made[kept++] = environ[i];
    return made;
}

/* Closes all that this process has open beside the four: locks and sockets would live on in it. */
static int close_others(posix_spawn_file_actions_t *actions)
{
    DIR *all = opendir("/proc/self/fd");
    int code = 0;
    for (struct dirent *entry; all != NULL && code == 0 && (entry = readdir(all)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (fd > MEMORY_FD && fd != dirfd(all))
            code = posix_spawn_file_actions_addclose(actions, fd);
    }
    if (all != NULL)
        closedir(all);
    return code;
}

/* `ends`: input and output, standard error, memory; all above MEMORY_FD. */
static int spawn(const command *c, const int ends[3], char **environment, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return code;
    code = posix_spawnattr_init(&attributes);
    if (code == 0) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &all);
        const int to[][2] = {{ends[0], 0}, {ends[0], 1}, {ends[1], 2}, {ends[2], MEMORY_FD}};
        for (size_t i = 0; code == 0 && i < 4; i++)
            code = posix_spawn_file_actions_adddup2(&actions, to[i][0], to[i][1]);
        if (code == 0)
            code = close_others(&actions);
        if (code == 0)
            code = posix_spawnp(pid, c->words[0], &actions, &attributes, c->words, environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Moves a descriptor above those that the helper gets. */
static bool lift(int *fd)
{
    if (*fd > MEMORY_FD)
        return true;
    int higher = fcntl(*fd, F_DUPFD_CLOEXEC, MEMORY_FD + 1);
    if (higher < 0)
        return false;
    close(*fd);
    *fd = higher;
    return true;
}

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

static rks_status make_memory(uint64_t bytes, int *fd, rks_error *err)
{
    const char *place = getenv("TMPDIR");
    rks_error ignored;
    if (rks_shared_memfd("slots of a home's helper", bytes, fd, &ignored) == RKS_OK)
        return RKS_OK;
    return rks_shared_file("slots of a home's helper", bytes, place == NULL ? "/tmp" : place, fd,
                           err);
}

/* Maps the slots if the helper cannot make the memory smaller, which would end this process. */
static void map_slots(rks_helper_process *helper, uint64_t bytes)
{
    const int seals = fcntl(helper->memory, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, helper->memory, 0);
    if (map == MAP_FAILED)
        return;
    madvise(map, bytes, MADV_DONTFORK);
    helper->slots = map;
    helper->slots_size = bytes;
}

rks_status rks_helper_start(const char *home, uint64_t memory, rks_helper_process *helper,
                            rks_error *err)
{
    enum { OURS, THEIRS, ERRORS, ERRORS_IN, MEMORY, COUNT };
    int fds[COUNT] = {-1, -1, -1, -1, -1};
    command *c = rks_alloc(1, sizeof(*c), err);
    char **environment = c == NULL ? NULL : make_environment(err);
    *helper = (rks_helper_process){.handle = -1, .socket = -1, .errors = -1, .memory = -1};
    rks_hold_standard_files();
    rks_status status = environment == NULL ? RKS_ERR_MEMORY : choose_program(home, c, err);
    if (status == RKS_OK)
        status = make_memory(memory, &fds[MEMORY], err);
    if (status == RKS_OK && (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0 ||
                             pipe2(&fds[ERRORS], O_CLOEXEC) != 0))
        status = rks_fail_errno(err, errno, "%s: starting a helper", home);
    for (size_t i = 0; status == RKS_OK && i < COUNT; i++)
        if (!lift(&fds[i]))
            status = rks_fail_errno(err, errno, "%s: starting a helper", home);
    if (status == RKS_OK) {
        const int ends[] = {fds[THEIRS], fds[ERRORS_IN], fds[MEMORY]};
        int code = spawn(c, ends, environment, &helper->pid);
        if (code != 0)
            status = rks_fail_errno(err, code, "%s: starting its helper, %s", home, c->words[0]);
    }
    rks_free(environment);
    rks_free(c);
    if (status != RKS_OK) {
        helper->pid = 0;
        close_all(fds, COUNT);
        return status;
    }
    close(fds[THEIRS]);
    close(fds[ERRORS_IN]);
    helper->socket = fds[OURS];
    helper->errors = fds[ERRORS];
    helper->memory = fds[MEMORY];
    map_slots(helper, memory);
    fcntl(helper->socket, F_SETFL, O_NONBLOCK); /* this end's file; theirs is another one */
    fcntl(helper->errors, F_SETFL, O_NONBLOCK);
#ifdef SYS_pidfd_open
    helper->handle = (int)syscall(SYS_pidfd_open, helper->pid, 0);
#endif
    return RKS_OK;
}

/* ---- what it says ---------------------------------------------------------------------------- */

bool rks_helper_hear_errors(rks_helper_process *helper)
{
    char some[1024];
    for (;;) {
        ssize_t got = read(helper->errors, some, sizeof(some));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 && errno == EAGAIN;
        size_t size = (size_t)got, over = 0;
        if (helper->said_size + size > sizeof(helper->said))
            over = helper->said_size + size - sizeof(helper->said);
        memmove(helper->said, helper->said + over, helper->said_size - over);
        memcpy(helper->said + helper->said_size - over, some, size);
        helper->said_size += size - over;
    }
}

void rks_helper_last_words(const rks_helper_process *helper, char text[RKS_HELPER_SAID + 1])
{
    size_t size = helper->said_size, first = 0;
    while (size > 0 && helper->said[size - 1] == '\n')
        size--;
    if (helper->said_size == sizeof(helper->said)) /* what lies before is lost: half a word, too */
        while (first < size && helper->said[first] != ' ' && helper->said[first] != '\n')
            first++;
    memcpy(text, helper->said + first, size - first);
    text[size - first] = '\0';
    for (size_t i = 0; i < size - first; i++)
        text[i] = text[i] == '\0' ? '?' : text[i] == '\n' ? ' ' : text[i];
    rks_text_clean(text);
}

/* ---- its end --------------------------------------------------------------------------------- */

static void kill_it(const rks_helper_process *helper)
{
#ifdef SYS_pidfd_send_signal
    if (helper->handle >= 0) {
        syscall(SYS_pidfd_send_signal, helper->handle, SIGKILL, NULL, 0);
        return;
    }
#endif
    kill(helper->pid, SIGKILL);
}

/* Returns true if it has ended, and is reaped: by us, or by a program that waits for all. */
static bool has_ended(const rks_helper_process *helper, char *how, size_t room)
{
    int status = 0;
    pid_t got = waitpid(helper->pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno != ECHILD))
        return false;
    if (got < 0)
        snprintf(how, room, "it has ended");
    else if (WIFSIGNALED(status))
        snprintf(how, room, "signal %d", WTERMSIG(status));
    else
        snprintf(how, room, "exit status %d", WEXITSTATUS(status));
    return true;
}

static bool wait_for_end(const rks_helper_process *helper, uint32_t ms, char *how, size_t room)
{
    uint64_t until = rks_now_ms() + ms;
    bool ended = has_ended(helper, how, room);
    while (!ended && rks_now_ms() < until) {
        if (helper->handle >= 0) {
            struct pollfd one = {.fd = helper->handle, .events = POLLIN};
            poll(&one, 1, 20);
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        }
        ended = has_ended(helper, how, room);
    }
    return ended;
}

void rks_helper_end(rks_helper_process *helper, uint32_t patience_ms, char *how, size_t room)
{
    if (helper->pid == 0)
        return;
    close_all((int[]){helper->socket}, 1);
    snprintf(how, room, "killed");
    if (!wait_for_end(helper, patience_ms, how, room)) {
        char ignored[64];
        kill_it(helper);
        wait_for_end(helper, REAP_MS, ignored, sizeof(ignored));
    }
    if (helper->slots != NULL)
        munmap((void *)(uintptr_t)helper->slots, helper->slots_size);
    close_all((int[]){helper->errors, helper->memory, helper->handle}, 3);
    *helper = (rks_helper_process){.handle = -1, .socket = -1, .errors = -1, .memory = -1};
}
