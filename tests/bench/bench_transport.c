/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_transport.c: replies over loopback TCP, as plain frames, authenticated and encrypted,
 * beside a plain socket copy of the same bytes, the runs interleaved, each side on a processor of
 * its own.
 *
 *     bench_transport [runs [milliseconds [shape]]]     default 5 runs of 400 ms, all shapes;
 *                                                       shape: 1 to 5, that one alone
 *
 * What bounds 64 x 1 KB: the owner, which hashes or copies parts that lie here and there in memory,
 * and wakes a thread for each request. Tags add Poly1305 on both sides, 0.3 s/GB of a buffer in the
 * cache, and a copy of what comes.
 *
 * Prints medians: MB/s, and CPU seconds a GB of requester and owner, which are the steadier figure
 * on a machine that is shared. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "transport/engine.h"

enum { RUNS_MAX = 99, DEPTH_MAX = 64, PARTS_MAX = 64, SOURCE_SIZE = 64 << 20 };

typedef struct shape {
    const char *name;
    uint32_t parts; /* of a reply */
    uint32_t part_size;
    uint32_t depth; /* requests in flight */
} shape;

static const shape SHAPES[] = {
    {"64 x 1 KB", 64, 1024, 4},         {"1 x 64 KB", 1, 65536, 4},
    {"1 x 100 KB", 1, 100 * 1024, 16},  {"8 x 100 KB", 8, 100 * 1024, 4},
    {"16 x 100 KB", 16, 100 * 1024, 4},
};
enum { SHAPES_COUNT = sizeof(SHAPES) / sizeof(SHAPES[0]) };

/* Ways to send the same: three pairs of engines, and a socket. */
enum { PLAIN, AUTHENTICATED, ENCRYPTED, ENGINES, COPY = ENGINES, WAYS };
static const char *const WAY_NAMES[WAYS] = {"plain", "authenticated", "encrypted", "socket copy"};

typedef struct figures {
    double mb_s, requester, owner; /* the last two: CPU seconds a GB */
} figures;

static const uint8_t SESSION[16] = "a bench";
static const uint8_t SECRET[RKS_SECRET_SIZE] = "a bench has no secrets";
static uint8_t *source;

static void die(const char *what, const rks_error *err)
{
    fprintf(stderr, "bench_transport: %s: %s\n", what, err == NULL ? "failed" : err->text);
    exit(3);
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set); /* one processor is fine too */
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void transfer(int fd, void *bytes, size_t size, bool out)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = out ? write(fd, (uint8_t *)bytes + done, size - done)
                        : read(fd, (uint8_t *)bytes + done, size - done);
        if (n <= 0)
            die("pipe to the owner", NULL);
        done += (size_t)n;
    }
}

/* ---- owner --------------------------------------------------------------------------------- */

static void serve(void *user, rks_request *request)
{
    (void)user;
    size_t size;
    const uint8_t *body = rks_request_body(request, &size);
    uint32_t head[2];
    struct iovec parts[PARTS_MAX];
    memcpy(head, body, sizeof(head));
    for (uint32_t i = 0; i < head[0]; i++) {
        uint32_t id;
        memcpy(&id, body + 8 + 4 * i, 4);
        parts[i] = (struct iovec){source + (size_t)id * 1024 % (SOURCE_SIZE - head[1]), head[1]};
    }
    rks_request_reply(request, parts, head[0], NULL, NULL);
}

static rks_engine *open_engine(uint32_t rank, int way)
{
    rks_error err;
    rks_engine_options options;
    rks_engine *engine = NULL;
    rks_engine_options_default(&options);
    options.rank = rank;
    options.size = 2;
    options.authenticate = way == AUTHENTICATED;
    options.encrypt = way == ENCRYPTED;
    if (rks_engine_open(&options, &engine, &err) != RKS_OK)
        die("engine", &err);
    return engine;
}

/* Answers 'c' with its CPU seconds so far; ends with the pipe. */
static void run_owner(int from, int to, int raw)
{
    rks_error err;
    rks_address addresses[2];
    rks_engine *engines[ENGINES];
    pin(0);
    for (int way = 0; way < ENGINES; way++) {
        engines[way] = open_engine(1, way);
        rks_engine_serve(engines[way], RKS_SERVICE_FETCH, serve, NULL, NULL);
        addresses[1] = *rks_engine_address(engines[way]);
        transfer(to, &addresses[1], sizeof(addresses[1]), true);
        transfer(from, &addresses[0], sizeof(addresses[0]), false);
        if (rks_engine_join(engines[way], addresses, SESSION, SECRET, &err) != RKS_OK)
            die("join", &err);
    }
    char command;
    while (read(from, &command, 1) == 1) {
        if (command == 'w') { /* a plain copy of this many bytes */
            uint64_t bytes;
            transfer(from, &bytes, sizeof(bytes), false);
            for (uint64_t at = 0; bytes > 0;) {
                size_t size = bytes < 65536 ? bytes : 65536;
                transfer(raw, source + at, size, true);
                bytes -= size;
                at = (at + 65536) % (SOURCE_SIZE - 65536);
            }
        }
        double seconds = cpu_seconds();
        transfer(to, &seconds, sizeof(seconds), true);
    }
    for (int way = 0; way < ENGINES; way++)
        rks_engine_close(engines[way], 0);
    exit(0);
}

/* ---- requester ------------------------------------------------------------------------------- */

typedef struct run {
    const shape *s;
    rks_engine *engine;
    uint64_t until_ns;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t flying; /* guarded by mutex */
    uint64_t bytes;  /* engine thread only, while any is flying */
    uint32_t next;
    bool failed;
    rks_error err;
} run;

typedef struct flight {
    run *r;
    uint8_t *room;
} flight;

static void start(flight *f);

static void *place(void *user, size_t size)
{
    flight *f = user;
    f->r->bytes += size;
    return f->room;
}

static void done(void *user, const rks_error *err)
{
    flight *f = user;
    run *r = f->r;
    if (err != NULL) {
        r->failed = true;
        r->err = *err;
    }
    if (!r->failed && rks_now_ns() < r->until_ns) {
        start(f);
        return;
    }
    pthread_mutex_lock(&r->mutex);
    r->flying--;
    pthread_cond_signal(&r->cond);
    pthread_mutex_unlock(&r->mutex);
}

static void start(flight *f)
{
    run *r = f->r;
    uint32_t body[2 + PARTS_MAX] = {r->s->parts, r->s->part_size};
    for (uint32_t i = 0; i < r->s->parts; i++)
        body[2 + i] = r->next++ * 2654435761u % (SOURCE_SIZE / 1024);
    rks_reply_sink sink = {.place = place, .done = done, .user = f};
    rks_error err;
    if (rks_engine_request(r->engine, 1,
                           &(rks_outgoing){RKS_SERVICE_FETCH, body, 8 + 4 * r->s->parts, "a bench"},
                           &sink, &err) != RKS_OK)
        die("request", &err);
}

static double owner_seconds(int to, int from)
{
    double seconds;
    transfer(to, "c", 1, true);
    transfer(from, &seconds, sizeof(seconds), false);
    return seconds;
}

static uint64_t by_engine(rks_engine *engine, const shape *s, uint8_t *room, uint64_t ms)
{
    run r = {.s = s, .engine = engine, .until_ns = rks_now_ns() + ms * 1000000, .flying = s->depth};
    flight flights[DEPTH_MAX];
    pthread_mutex_init(&r.mutex, NULL);
    rks_cond_init(&r.cond);
    for (uint32_t i = 0; i < s->depth; i++) {
        flights[i] = (flight){&r, room + (size_t)i * s->parts * s->part_size};
        start(&flights[i]);
    }
    pthread_mutex_lock(&r.mutex);
    while (r.flying > 0)
        pthread_cond_wait(&r.cond, &r.mutex);
    pthread_mutex_unlock(&r.mutex);
    if (r.failed)
        die("reply", &r.err);
    return r.bytes;
}

static void by_copy(int to, int from, int raw, const shape *s, uint8_t *room, uint64_t bytes)
{
    size_t reply = (size_t)s->parts * s->part_size;
    double seconds;
    transfer(to, "w", 1, true);
    transfer(to, &bytes, sizeof(bytes), true);
    for (uint64_t got = 0, n = 0; got < bytes; n++) {
        size_t size = bytes - got < reply ? bytes - got : reply;
        transfer(raw, room + n % s->depth * reply, size, false);
        got += size;
    }
    transfer(from, &seconds, sizeof(seconds), false);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(const figures *all, int count, size_t offset)
{
    double values[RUNS_MAX];
    for (int i = 0; i < count; i++)
        memcpy(&values[i], (const uint8_t *)&all[i] + offset, sizeof(double));
    qsort(values, (size_t)count, sizeof(double), by_value);
    return values[count / 2];
}

static figures report(const char *what, const figures *all, int count)
{
    figures f = {median(all, count, offsetof(figures, mb_s)),
                 median(all, count, offsetof(figures, requester)),
                 median(all, count, offsetof(figures, owner))};
    printf("  %-13s %8.0f MB/s   CPU s/GB: requester %.3f, owner %.3f\n", what, f.mb_s, f.requester,
           f.owner);
    return f;
}

static void connect_raw(int pair[2])
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_storage address = {.ss_family = AF_INET};
    socklen_t size = sizeof(address);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        connect(pair[0], (struct sockaddr *)&address, size) != 0)
        die("loopback", NULL);
    pair[1] = accept(listener, NULL, NULL);
    close(listener);
}

int main(int argc, char **argv)
{
    int runs = argc > 1 ? atoi(argv[1]) : 5;
    int ms = argc > 2 ? atoi(argv[2]) : 400;
    int only = argc > 3 ? atoi(argv[3]) : 0;
    if (runs < 1 || runs > RUNS_MAX || ms < 1 || only < 0 || only > SHAPES_COUNT) {
        fprintf(stderr, "usage: bench_transport [runs [milliseconds [shape]]]\n");
        return 2;
    }
    int there[2], back[2], raw[2];
    rks_error err;
    if (pipe(there) != 0 || pipe(back) != 0)
        die("pipe", NULL);
    connect_raw(raw);
    source = mmap(NULL, SOURCE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint8_t *room = calloc(1, 64 << 20);
    if (source == MAP_FAILED || room == NULL)
        die("memory", NULL);
    memset(source, 1, SOURCE_SIZE);
    memset(room, 1, 64 << 20);
    pid_t pid = fork();
    if (pid == 0) {
        close(there[1]);
        run_owner(there[0], back[1], raw[1]);
    }
    close(there[0]);
    pin(1);
    rks_engine *engines[ENGINES];
    for (int way = 0; way < ENGINES; way++) {
        engines[way] = open_engine(0, way);
        rks_address addresses[2] = {*rks_engine_address(engines[way])};
        transfer(back[0], &addresses[1], sizeof(addresses[1]), false);
        transfer(there[1], &addresses[0], sizeof(addresses[0]), true);
        if (rks_engine_join(engines[way], addresses, SESSION, SECRET, &err) != RKS_OK)
            die("join", &err);
    }
    for (int k = 0; k < SHAPES_COUNT; k++) {
        const shape *s = &SHAPES[k];
        if (only != 0 && only != k + 1)
            continue;
        figures all[WAYS][RUNS_MAX];
        uint64_t bytes = 0;
        for (int way = 0; way < ENGINES; way++)
            bytes = by_engine(engines[way], s, room, 50); /* warm */
        for (int i = 0; i < WAYS * runs; i++) {
            int way = i % WAYS;
            double own = cpu_seconds(), owner = owner_seconds(there[1], back[0]);
            uint64_t begin = rks_now_ns();
            if (way < ENGINES)
                bytes = by_engine(engines[way], s, room, (uint64_t)ms);
            else
                by_copy(there[1], back[0], raw[0], s, room, bytes);
            double seconds = (double)(rks_now_ns() - begin) / 1e9;
            all[way][i / WAYS] = (figures){
                (double)bytes / 1e6 / seconds, (cpu_seconds() - own) * 1e9 / (double)bytes,
                (owner_seconds(there[1], back[0]) - owner) * 1e9 / (double)bytes};
        }
        printf("%s a request, %u in flight\n", s->name, s->depth);
        figures found[WAYS];
        for (int way = 0; way < WAYS; way++)
            found[way] = report(WAY_NAMES[way], all[way], runs);
        printf("  of the socket copy: plain %.0f %%, authenticated %.0f %%, encrypted %.0f %%\n",
               100 * found[PLAIN].mb_s / found[COPY].mb_s,
               100 * found[AUTHENTICATED].mb_s / found[COPY].mb_s,
               100 * found[ENCRYPTED].mb_s / found[COPY].mb_s);
    }
    close(there[1]);
    for (int way = 0; way < ENGINES; way++)
        rks_engine_close(engines[way], 0);
    waitpid(pid, NULL, 0);
    return 0;
}
