/* SPDX-License-Identifier: Apache-2.0
 *
 * test_metrics.c: what a process shows live, to whom, and that nothing of it stays, waits or grows.
 */
#include "support/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "metrics/metrics.h"

enum { OTHER_USER = 65534, ANSWER = 1 << 18, SILENT = 40, FEW = 40 };

/* A child that was forked from several threads may start its own: not under the thread sanitizer.
 */
#ifdef __SANITIZE_THREAD__
enum { STARTS_THREADS = 0 };
#else
enum { STARTS_THREADS = 1 };
#endif

static rks_error err;
static char answer[ANSWER];

/* ---- the other side ----------------------------------------------------------------------- */

static void show_number(void *user, rks_metrics *figures)
{
    figures->group = 0xabc;
    figures->ranks = 2;
    figures->samples = (uint64_t)(uintptr_t)user;
    figures->wait_ns = 1500000000;
    snprintf(figures->dataset, sizeof(figures->dataset), "1f");
    snprintf(figures->directory, sizeof(figures->directory), "my \"set\"\n%%");
}

/* -1: nobody listens there. */
static int connect_top(pid_t pid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "rankstore-top-%u-%d",
                        (unsigned)geteuid(), pid);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size)) == 0)
        return fd;
    close(fd);
    return -1;
}

static int connect_port(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A port that nobody has; `fd` NULL, or gets what holds it. */
static uint16_t free_port(int *held)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    if (held != NULL) {
        assert_int_equal(listen(fd, 1), 0);
        *held = fd;
    } else {
        close(fd);
    }
    return ntohs(address.sin_port);
}

/* All that comes until the other side closes; -1: it does not within 10 s. */
static ssize_t read_all(int fd)
{
    size_t used = 0;
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        if (poll(&one, 1, 10000) != 1)
            return -1;
        ssize_t got = recv(fd, answer + used, sizeof(answer) - 1 - used, 0);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    answer[used] = '\0';
    close(fd);
    return (ssize_t)used;
}

static ssize_t ask_port(uint16_t port, const char *request)
{
    int fd = connect_port(port);
    assert_true(fd >= 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    return read_all(fd);
}

static size_t entries_of(const char *path)
{
    size_t count = 0;
    DIR *stream = opendir(path);
    assert_non_null(stream);
    while (readdir(stream) != NULL)
        count++;
    closedir(stream);
    return count;
}

/* Threads of the watch; one that was joined may stay in the list for a moment: up to 5 s until
 * there are `awaited`. */
static size_t threads_of_watch(size_t awaited)
{
    size_t count = 0;
    for (int tries = 0; tries < 500 && (tries == 0 || count != awaited); tries++) {
        DIR *tasks = opendir("/proc/self/task");
        count = 0;
        for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
            char path[300], name[32] = "";
            snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
            FILE *file = fopen(path, "r");
            count += file != NULL && fgets(name, sizeof(name), file) != NULL &&
                     strcmp(name, "rks-metrics\n") == 0;
            if (file != NULL)
                fclose(file);
        }
        closedir(tasks);
        if (count != awaited)
            usleep(10000);
    }
    return count;
}

/* ---- laws --------------------------------------------------------------------------------- */

static void a_process_is_shown_while_it_is_watched(void **state)
{
    (void)state;
    size_t files = entries_of("/proc/self/fd");
    rks_metrics_source one = {.read = show_number, .user = (void *)17}, two = {.read = show_number};
    assert_int_equal(connect_top(getpid()), -1);
    assert_ok(rks_metrics_begin(&one, 0, &err), &err);
    assert_ok(rks_metrics_begin(&two, 0, &err), &err);
    assert_int_equal(threads_of_watch(1), 1);
    assert_true(read_all(connect_top(getpid())) > 0);
    char first[64];
    snprintf(first, sizeof(first), "rankstore-top 1 pid=%d now_ms=", getpid());
    assert_memory_equal(answer, first, strlen(first));
    assert_contains(answer, " group=0000000000000abc rank=0 ranks=2 node=0 nodes=0 samples=17 ");
    assert_contains(answer, " wait_ns=1500000000 ");
    assert_contains(answer, " dataset=1f directory=my%20\"set\"%0a%25\n");
    assert_contains(answer, " samples=0 ");
    assert_contains(answer, "\nend left_out=0\n");
    rks_metrics_end(&one);
    assert_true(read_all(connect_top(getpid())) > 0);
    assert_null(strstr(answer, "samples=17"));
    rks_metrics_end(&two);
    rks_metrics_end(&two);
    assert_int_equal(connect_top(getpid()), -1);
    assert_int_equal(entries_of("/proc/self/fd"), files);
    assert_int_equal(threads_of_watch(0), 0);
}

/* Its exit code: what another user got to read, in bytes, at most 99; 100: no connection. */
static int ask_as_other_user(pid_t pid, const char *name_of)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0)
        return 101;
    int size = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s-%d", name_of, pid);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size)) != 0)
        return 100;
    ssize_t got = read_all(fd);
    return got > 99 ? 99 : (int)got;
}

static void another_user_gets_nothing(void **state)
{
    (void)state;
    int code = 0;
    rks_metrics_source one = {.read = show_number};
    if (geteuid() != 0)
        skip(); /* only root can be somebody else */
    assert_ok(rks_metrics_begin(&one, 0, &err), &err);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        _exit(ask_as_other_user(parent, "rankstore-top-0"));
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    assert_true(read_all(connect_top(parent)) > 0);
    rks_metrics_end(&one);
}

static void a_forked_process_holds_nothing_and_shows_itself(void **state)
{
    (void)state;
    int code = 0, ready[2], go[2];
    char byte;
    uint16_t port = free_port(NULL);
    rks_metrics_source one = {.read = show_number}, own = {.read = show_number, .user = (void *)5};
    assert_int_equal(pipe(ready) | pipe(go), 0);
    assert_ok(rks_metrics_begin(&one, port, &err), &err);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]); /* a parent that fails ends it */
        (void)!write(ready[1], "x", 1);
        (void)!read(go[0], &byte, 1); /* until then it has done nothing with what it inherited */
        rks_metrics_end(&one);        /* its parent's */
        bool alone = connect_top(getpid()) == -1;
        bool good = !STARTS_THREADS ||
                    (rks_metrics_begin(&own, 0, NULL) == RKS_OK &&
                     read_all(connect_top(getpid())) > 0 && strstr(answer, "samples=5 ") != NULL);
        rks_metrics_end(&own);
        _exit(good && alone ? 0 : 1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_true(read_all(connect_top(getpid())) > 0);
    assert_true(ask_port(port, "GET /metrics HTTP/1.1\r\n\r\n") > 0);
    rks_metrics_end(&one);
    assert_int_equal(connect_top(getpid()), -1); /* though the child lives */
    assert_int_equal(connect_port(port), -1);
    assert_int_equal(write(go[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    close(ready[0]);
    close(go[0]);
    close(go[1]);
}

/* The address that a listener at this port has, as the system prints it; 0: there is none. */
static unsigned address_at(uint16_t port)
{
    char line[256];
    unsigned address, number, status, found = 0;
    FILE *file = fopen("/proc/net/tcp", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "%*u: %x:%x %*x:%*x %x", &address, &number, &status) == 3 &&
            number == port && status == 10)
            found = address == 0 ? UINT_MAX : address;
    fclose(file);
    return found;
}

static void metrics_are_text_on_loopback(void **state)
{
    (void)state;
    uint16_t port = free_port(NULL);
    rks_metrics_source one = {.read = show_number, .user = (void *)17}, two = {.read = show_number};
    assert_ok(rks_metrics_begin(&two, 0, &err), &err); /* a port may come later */
    assert_ok(rks_metrics_begin(&one, port, &err), &err);
    assert_int_equal(address_at(port), htonl(INADDR_LOOPBACK));
    assert_true(ask_port(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") > 0);
    assert_memory_equal(answer, "HTTP/1.0 200 OK\r\n", 17);
    const char *body = strstr(answer, "\r\n\r\n");
    char length[64];
    assert_non_null(body);
    snprintf(length, sizeof(length), "Content-Length: %zu\r\n", strlen(body + 4));
    assert_contains(answer, length);
    assert_contains(answer, "# TYPE rankstore_samples_total counter\n");
    assert_contains(answer, ",directory=\"my \\\"set\\\"?%\"} 17\n");
    assert_contains(answer, "# TYPE rankstore_ahead gauge\nrankstore_ahead{");
    assert_contains(answer, "rankstore_wait_seconds_total{rank=\"0\"");
    assert_contains(answer, "\"} 1.500000000\n");
    assert_true(ask_port(port, "GET /other HTTP/1.1\r\n\r\n") > 0);
    assert_contains(answer, "404 Not Found");
    assert_true(ask_port(port, "POST /metrics HTTP/1.1\r\n\r\n") > 0);
    assert_contains(answer, "405 Method Not Allowed");
    rks_metrics_source three = {.read = show_number};
    assert_fails(RKS_ERR_ARGUMENT, rks_metrics_begin(&three, (uint32_t)port - 1, &err));
    assert_contains(err.text, "this process serves port");
    assert_ok(rks_metrics_begin(&three, port, &err), &err);
    rks_metrics_end(&three);
    rks_metrics_end(&one);
    assert_true(read_all(connect_top(getpid())) > 0);
    rks_metrics_end(&two);
    int held;
    port = free_port(&held);
    assert_fails(RKS_ERR_IO, rks_metrics_begin(&one, port, &err));
    assert_contains(err.text, "of 127.0.0.1; choose another port: Address already in use");
    assert_int_equal(connect_top(getpid()), -1);
    close(held);
}

static void clients_that_say_or_read_nothing_disturb_nobody(void **state)
{
    (void)state;
    static char long_line[100000];
    int silent[3 * SILENT];
    uint16_t port = free_port(NULL);
    rks_metrics_source one = {.read = show_number};
    assert_ok(rks_metrics_begin(&one, port, &err), &err);
    memset(long_line, 'x', sizeof(long_line));
    for (int i = 0; i < SILENT; i++) {
        silent[3 * i] = connect_top(getpid());
        silent[3 * i + 1] = connect_port(port);
        silent[3 * i + 2] = connect_port(port);
        assert_true(silent[3 * i] >= 0 && silent[3 * i + 1] >= 0 && silent[3 * i + 2] >= 0);
        (void)!send(silent[3 * i + 2], long_line, sizeof(long_line), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    assert_true(read_all(connect_top(getpid())) > 0);
    assert_contains(answer, "end left_out=0");
    assert_true(ask_port(port, "GET / HTTP/1.1\r\n\r\n") > 0);
    assert_contains(answer, "200 OK");
    /* The last that said nothing are let go, too. */
    assert_int_equal(read_all(silent[3 * SILENT - 2]), 0);
    for (int i = 0; i < 3 * SILENT; i++)
        if (i != 3 * SILENT - 2)
            close(silent[i]);
    rks_metrics_end(&one);
}

static void many_datasets_are_cut_at_a_bound(void **state)
{
    (void)state;
    enum { MANY = 200 };
    static rks_metrics_source many[MANY];
    uint16_t port = free_port(NULL);
    size_t shown = 0;
    for (size_t i = 0; i < MANY; i++) {
        many[i] = (rks_metrics_source){.read = show_number, .user = (void *)i};
        assert_ok(rks_metrics_begin(&many[i], port, &err), &err);
    }
    assert_true(read_all(connect_top(getpid())) > 0);
    for (const char *at = answer; (at = strstr(at, "\nstore ")) != NULL; at++)
        shown++;
    assert_int_equal(shown, 64);
    assert_contains(answer, "\nend left_out=136\n");
    assert_true(ask_port(port, "GET /metrics HTTP/1.0\r\n\r\n") < 100 << 10);
    assert_contains(answer, "samples_total{rank=\"0\",node=\"0\",store=");
    assert_true(answer[strlen(answer) - 1] == '\n');
    for (size_t i = 0; i < MANY; i++)
        rks_metrics_end(&many[i]);
}

/* However little fits: whole lines, and top's last one says how many stores it lacks. */
static void a_text_that_is_cut_is_of_whole_lines(void **state)
{
    (void)state;
    enum { MANY = 5, ROOM = 6000 };
    static rks_metrics many[MANY];
    static char text[ROOM];
    size_t whole = 0;
    for (size_t i = 0; i < MANY; i++)
        many[i] = (rks_metrics){.number = i, .dataset = "d", .directory = "/50% \"a\""};
    for (size_t room = 200; room < ROOM; room += 7) {
        size_t shown = 0, left_out = 0, size = rks_metrics_as_top(many, MANY, 3, text, room);
        assert_true(size < room && strlen(text) == size);
        for (const char *at = text; (at = strstr(at, "\nstore ")) != NULL; at++)
            shown++;
        const char *end = strstr(text, "\nend left_out=");
        assert_non_null(end);
        assert_int_equal(sscanf(end, "\nend left_out=%zu\n", &left_out), 1);
        assert_int_equal(shown + left_out, MANY + 3);
        whole += shown == MANY;
        size = rks_metrics_as_prometheus(many, MANY, text, room);
        assert_true(size < room && strlen(text) == size);
        const char *last = size == 0 ? NULL : strrchr(text, '{');
        assert_true(size == 0 || text[size - 1] == '\n');
        if (last != NULL)
            assert_non_null(strstr(last, "store=\"4\"")); /* a metric has all stores */
        else
            assert_int_equal(size, 0);
    }
    assert_true(whole > 0);
    assert_true(rks_metrics_as_top(many, 1, 0, text, ROOM) > 0);
    assert_contains(text, " directory=/50%25%20\"a\"\n");
    assert_true(rks_metrics_as_prometheus(many, 1, text, ROOM) > 0);
    assert_contains(text, "directory=\"/50% \\\"a\\\"\"} 0\n");
}

/* Context switches of the thread so far, and the signals that it blocks. */
static unsigned long state_of_thread(unsigned long *blocked)
{
    unsigned long switches = 0, number;
    char path[300], line[256];
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            ours = ours || strcmp(line, "Name:\trks-metrics\n") == 0;
            if (ours && sscanf(line, "SigBlk: %lx", &number) == 1)
                *blocked = number;
            if (ours && sscanf(line, "voluntary_ctxt_switches: %lu", &number) == 1)
                switches = number;
        }
        if (file != NULL)
            fclose(file);
    }
    closedir(tasks);
    return switches;
}

static void an_idle_watch_does_nothing(void **state)
{
    (void)state;
    unsigned long blocked = 0;
    rks_metrics_source one = {.read = show_number};
    assert_ok(rks_metrics_begin(&one, 0, &err), &err);
    assert_true(read_all(connect_top(getpid())) > 0);
    unsigned long before = 0, now = state_of_thread(&blocked);
    for (int i = 0; i < 20 && (now == 0 || now != before); i++) { /* it may be on its way to rest */
        before = now;
        usleep(300000);
        now = state_of_thread(&blocked);
    }
    assert_true(before > 0);
    assert_int_equal(blocked & 0x4003, 0x4003); /* SIGHUP, SIGINT, SIGTERM */
    assert_int_equal(now, before);
    rks_metrics_end(&one);
}

static uint64_t cpu_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

/* Its listener at `port`. */
static int listener_of(uint16_t port)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in address = {0};
        socklen_t size = sizeof(address);
        int listens = 0;
        socklen_t room = sizeof(listens);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &room) == 0 && listens != 0 &&
            getsockname(fd, (struct sockaddr *)&address, &size) == 0 &&
            address.sin_family == AF_INET && address.sin_port == htons(port))
            return fd;
    }
    return -1;
}

/* Clients that cannot be let in, for want of descriptors or since the program has closed the
 * socket, take no processor. */
static void what_cannot_be_accepted_takes_no_processor(void **state)
{
    (void)state;
    struct rlimit before, none;
    uint16_t port = free_port(NULL);
    rks_metrics_source one = {.read = show_number, .user = (void *)42};
    assert_ok(rks_metrics_begin(&one, port, &err), &err);
    int web = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), held[FEW], next;
    for (int i = 0; i < FEW; i++)
        held[i] = fcntl(web, F_DUPFD_CLOEXEC, 0); /* poll() takes no more than the limit */
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    next = held[FEW - 1];
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)next, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(web, (struct sockaddr *)&address, sizeof(address)), 0);
    uint64_t begin = cpu_ms();
    usleep(1000000);
    uint64_t used = cpu_ms() - begin;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (int i = 0; i < FEW - 1; i++)
        close(held[i]);
    close(web);
    assert_in_range(used, 0, 500); /* a thread that spins: 1,000 */
    assert_true(ask_port(port, "GET /metrics HTTP/1.0\r\n\r\n") > 0);
    assert_contains(answer, "rankstore_samples_total{");

    close(listener_of(port));
    begin = cpu_ms();
    assert_true(read_all(connect_top(getpid())) > 0); /* the thread looks at all of them */
    usleep(1000000);
    assert_in_range(cpu_ms() - begin, 0, 500);
    rks_metrics_end(&one);
}

static void a_variable_hides_a_process(void **state)
{
    (void)state;
    rks_metrics_source one = {.read = show_number};
    size_t files = entries_of("/proc/self/fd");
    setenv("RKS_TOP", "off", 1);
    assert_ok(rks_metrics_begin(&one, 0, &err), &err);
    assert_int_equal(connect_top(getpid()), -1);
    assert_int_equal(entries_of("/proc/self/fd"), files);
    assert_int_equal(threads_of_watch(0), 0);
    rks_metrics_end(&one);
    unsetenv("RKS_TOP");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_is_shown_while_it_is_watched),
        cmocka_unit_test(another_user_gets_nothing),
        cmocka_unit_test(a_forked_process_holds_nothing_and_shows_itself),
        cmocka_unit_test(metrics_are_text_on_loopback),
        cmocka_unit_test(clients_that_say_or_read_nothing_disturb_nobody),
        cmocka_unit_test(many_datasets_are_cut_at_a_bound),
        cmocka_unit_test(a_text_that_is_cut_is_of_whole_lines),
        cmocka_unit_test(an_idle_watch_does_nothing),
        cmocka_unit_test(what_cannot_be_accepted_takes_no_processor),
        cmocka_unit_test(a_variable_hides_a_process),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
