/* SPDX-License-Identifier: Apache-2.0
 *
 * test_worker_link.c: worker processes ask the process that opened a dataset. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mesh.h"
#include "rankstore/worker.h"

enum { LINKS = 40, ASKS = 20 };

static void nap(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Replies with as many bytes as the request's first u32 says, each of the request's last byte;
 * first it waits for as many milliseconds as the second u32 says. The size UINT32_MAX is an error.
 */
static rks_status serve(void *user, const void *request, size_t size, rks_worker_reply *reply,
                        rks_error *error)
{
    uint32_t wanted[2];
    atomic_fetch_add((atomic_int *)user, 1);
    if (size < sizeof(wanted))
        return rks_fail(error, RKS_ERR_DATA, 0, "too short: %zu bytes", size);
    memcpy(wanted, request, sizeof(wanted));
    nap((int)wanted[1]);
    if (wanted[0] == UINT32_MAX)
        return rks_fail(error, RKS_ERR_NOT_FOUND, 0, "nothing there");
    void *room = rks_worker_reply_room(reply, wanted[0], error);
    if (room == NULL)
        return RKS_ERR_MEMORY;
    memset(room, ((const uint8_t *)request)[size - 1], wanted[0]);
    return RKS_OK;
}

static atomic_int served;
static rks_error err;

static rks_worker_service *open_service(uint32_t silence_ms)
{
    rks_worker_service_options options;
    rks_worker_service *service = NULL;
    rks_worker_service_options_default(&options);
    options.serve = serve;
    options.user = &served;
    options.silence_ms = silence_ms;
    options.max_request = 1 << 20;
    assert_ok(rks_worker_service_open(&options, &service, &err), &err);
    return service;
}

static rks_worker_link *open_link(const rks_worker_service *service, uint32_t silence_ms)
{
    rks_worker_link *link = NULL;
    assert_ok(rks_worker_link_open(rks_worker_service_name(service),
                                   rks_worker_service_token(service), silence_ms, &link, &err),
              &err);
    return link;
}

/* Asks for `size` bytes, and checks them. */
static rks_status ask(rks_worker_link *link, uint32_t size, uint32_t wait_ms, rks_error *error)
{
    uint32_t request[3] = {size, wait_ms, 0x01010101u * (size % 251)};
    void *reply = NULL;
    size_t got = 0;
    rks_status status = rks_worker_link_ask(link, request, sizeof(request), &reply, &got, error);
    if (status != RKS_OK)
        return status;
    assert_int_equal(got, size);
    assert_int_equal((uintptr_t)reply % 16, 0);
    for (size_t i = 0; i < got; i++)
        if (((uint8_t *)reply)[i] != size % 251)
            fail_msg("byte %zu of %zu is wrong", i, got);
    rks_release(reply);
    return status;
}

static void a_link_gets_replies_and_errors(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(15000);
    rks_worker_link *link = open_link(service, 15000);
    static const uint32_t sizes[] = {0, 1, 63, 64, 65536, 1 << 20, 5000001};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_ok(ask(link, sizes[i], 0, &err), &err);
    assert_fails(RKS_ERR_NOT_FOUND, ask(link, UINT32_MAX, 0, &err));
    assert_contains(err.text, "nothing there");
    void *reply = NULL;
    size_t size;
    assert_fails(RKS_ERR_DATA, rks_worker_link_ask(link, "abc", 3, &reply, &size, &err));
    assert_ok(ask(link, 100, 0, &err), &err);
    rks_worker_link_close(link);
    rks_worker_service_close(service);
}

typedef struct asker {
    pthread_t thread;
    const rks_worker_service *service;
    rks_status status;
} asker;

static void *ask_often(void *user)
{
    asker *one = user;
    rks_error error;
    rks_worker_link *link = open_link(one->service, 60000);
    for (int i = 0; i < ASKS && one->status == RKS_OK; i++)
        one->status = ask(link, 1000u * (uint32_t)i, i == 3 ? 20 : 0, &error);
    rks_worker_link_close(link);
    return NULL;
}

static void many_links_ask_at_once(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(60000);
    asker askers[LINKS] = {0};
    for (size_t i = 0; i < LINKS; i++) {
        askers[i].service = service;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_often, &askers[i]), 0);
    }
    for (size_t i = 0; i < LINKS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].status, RKS_OK);
    }
    rks_worker_service_close(service);
}

static void a_slow_service_is_waited_for(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(1000);
    rks_worker_link *link = open_link(service, 1000);
    assert_ok(ask(link, 10, 2500, &err), &err); /* longer than the limit, and it answers pings */
    rks_worker_link_close(link);
    rks_worker_service_close(service);
}

static void a_closed_service_is_named(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(15000);
    rks_worker_link *used = open_link(service, 15000), *unused = open_link(service, 15000);
    assert_ok(ask(used, 10, 0, &err), &err);
    rks_worker_service_close(service);
    assert_fails(RKS_ERR_STATE, ask(used, 10, 0, &err));
    assert_contains(err.text, "has closed it or ended");
    assert_fails(RKS_ERR_STATE, ask(unused, 10, 0, &err));
    assert_contains(err.text, "has closed it or ended");
    rks_worker_link_close(used);
    rks_worker_link_close(unused);
}

static int connect_raw(const rks_worker_service *service)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int size = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "rankstore-workers-%s",
                        rks_worker_service_name(service));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void strangers_are_refused_and_cost_nothing(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(15000);
    rks_worker_link *link = open_link(service, 15000), *stranger = NULL;
    char token[200];
    snprintf(token, sizeof(token), "%s", rks_worker_service_token(service));
    token[strlen(token) - 1] = token[strlen(token) - 1] == '0' ? '1' : '0';
    int before = atomic_load(&served);
    assert_ok(rks_worker_link_open(rks_worker_service_name(service), token, 15000, &stranger, &err),
              &err);
    assert_fails(RKS_ERR_STATE, ask(stranger, 10, 0, &err));
    rks_worker_link_close(stranger);
    static const size_t sizes[] = {1, 24, 88, 4096, 1 << 20};
    uint8_t *bytes = malloc(1 << 20);
    memset(bytes, 0xff, 1 << 20);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        int fd = connect_raw(service);
        assert_true(fd >= 0);
        (void)!send(fd, bytes, sizes[i], MSG_NOSIGNAL);
        assert_ok(ask(link, 10, 0, &err), &err);
        close(fd);
    }
    free(bytes);
    assert_int_equal(atomic_load(&served), before + 5);
    rks_worker_link_close(link);
    rks_worker_service_close(service);
}

static void a_request_above_the_limit_ends_only_its_link(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(15000);
    rks_worker_link *link = open_link(service, 15000), *other = open_link(service, 15000);
    uint8_t *body = calloc(1, (1 << 20) + 1);
    void *reply = NULL;
    size_t size;
    assert_fails(RKS_ERR_STATE,
                 rks_worker_link_ask(link, body, (1 << 20) + 1, &reply, &size, &err));
    free(body);
    assert_ok(ask(other, 10, 0, &err), &err);
    rks_worker_link_close(link);
    rks_worker_link_close(other);
    rks_worker_service_close(service);
}

static void a_malformed_address_is_refused(void **state)
{
    (void)state;
    rks_worker_service *service = open_service(15000);
    rks_worker_link *link = NULL;
    const char *name = rks_worker_service_name(service);
    const char *token = rks_worker_service_token(service);
    assert_fails(RKS_ERR_ARGUMENT, rks_worker_link_open("", token, 1000, &link, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_worker_link_open(name, name, 1000, &link, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_worker_link_open(token, token, 1000, &link, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_worker_link_open("0123456789abcdef0123456789abcdeX", token,
                                                        1000, &link, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_worker_link_open(name, token, 99, &link, &err));
    assert_null(link);
    rks_worker_service_close(service);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* A child that was forked from several threads may start its own: not under the thread sanitizer.
 */
#ifdef __SANITIZE_THREAD__
enum { STARTS_THREADS = 0 };
#else
enum { STARTS_THREADS = 1 };
#endif

/* Runs a worker in a child process that never returns; waits until it writes a byte to `tell`. */
static pid_t start_worker(const rks_worker_service *service, void (*work)(rks_worker_link *, int))
{
    int pipes[2];
    char dot;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child != 0) {
        close(pipes[1]); /* so that its end ends the wait */
        assert_int_equal(read(pipes[0], &dot, 1), 1);
        close(pipes[0]);
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rks_worker_service_forget((rks_worker_service *)(uintptr_t)service);
    work(open_link(service, 15000), pipes[1]);
    _exit(0);
}

static void ask_for_ever(rks_worker_link *link, int tell)
{
    for (int i = 0;; i++) {
        if (ask(link, 100000, 0, &err) != RKS_OK)
            _exit(1);
        if (i == 2 && write(tell, ".", 1) != 1)
            _exit(2);
    }
}

static void killed_workers_leave_the_service_to_others(void **state)
{
    (void)state;
    if (!STARTS_THREADS)
        skip();
    rks_worker_service *service = open_service(15000);
    rks_worker_link *link = open_link(service, 15000);
    for (int i = 0; i < 5; i++) {
        pid_t child = start_worker(service, ask_for_ever);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_ok(ask(link, 10, 0, &err), &err);
    }
    rks_worker_link_close(link);
    rks_worker_service_close(service);
}

static void wait_for_ever(rks_worker_link *link, int tell)
{
    (void)link;
    (void)!write(tell, ".", 1);
    while (true)
        pause();
}

static void a_name_does_not_outlive_its_process_in_forked_children(void **state)
{
    (void)state;
    if (!STARTS_THREADS)
        skip();
    rks_worker_service *service = open_service(15000);
    pid_t child = start_worker(service, wait_for_ever);
    rks_worker_link *late = open_link(service, 15000);
    rks_worker_service_close(service);
    assert_fails(RKS_ERR_STATE, ask(late, 10, 0, &err)); /* at once, not after the silence limit */
    assert_contains(err.text, "has closed it or ended");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    rks_worker_link_close(late);
}

/* Returns when all its threads stand: until then one of them may still answer. */
static void stop(pid_t child)
{
    int status = 0;
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
}

/* The service of a child process that is stopped once it has answered, and then goes on. */
static void a_stopped_service_is_silent(void **state)
{
    (void)state;
    int pipes[2];
    char text[200] = "";
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rks_worker_service *service = open_service(2000);
        dprintf(pipes[1], "%s %s\n", rks_worker_service_name(service),
                rks_worker_service_token(service));
        while (true)
            pause();
    }
    close(pipes[1]);
    for (size_t at = 0; strchr(text, '\n') == NULL; at++)
        assert_int_equal(read(pipes[0], text + at, 1), 1);
    *strchr(text, '\n') = '\0';
    char *token = strchr(text, ' ');
    *token++ = '\0';
    rks_worker_link *link = NULL, *late = NULL;
    assert_ok(rks_worker_link_open(text, token, 2000, &link, &err), &err);
    assert_ok(rks_worker_link_open(text, token, 2000, &late, &err), &err);
    assert_ok(ask(link, 10, 0, &err), &err);
    stop(child);
    assert_fails(RKS_ERR_TIMEOUT, ask(link, 10, 0, &err));
    assert_contains(err.text, "was silent for 2 s");
    assert_fails(RKS_ERR_TIMEOUT, ask(late, 10, 0, &err));
    assert_contains(err.text, "was silent for 2 s");
    kill(child, SIGCONT);
    assert_ok(ask(link, 10, 0, &err), &err);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_fails(RKS_ERR_STATE, ask(link, 10, 0, &err));
    assert_contains(err.text, "has closed it or ended");
    close(pipes[0]);
    rks_worker_link_close(link);
    rks_worker_link_close(late);
}

int main(void)
{
    alarm(300); /* nothing here may hang */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_gets_replies_and_errors),
        cmocka_unit_test(many_links_ask_at_once),
        cmocka_unit_test(a_slow_service_is_waited_for),
        cmocka_unit_test(a_closed_service_is_named),
        cmocka_unit_test(strangers_are_refused_and_cost_nothing),
        cmocka_unit_test(a_request_above_the_limit_ends_only_its_link),
        cmocka_unit_test(a_malformed_address_is_refused),
        cmocka_unit_test(killed_workers_leave_the_service_to_others),
        cmocka_unit_test(a_name_does_not_outlive_its_process_in_forked_children),
        cmocka_unit_test(a_stopped_service_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
