/* SPDX-License-Identifier: Apache-2.0
 *
 * test_links.c: faults of the wire between two ranks: real sockets, authenticated frames, and a
 * relay on the path that resets, ends, delays or changes what it passes on. Ranks exchange numbered
 * notes and requests meanwhile: all of them arrive, once and unchanged, or both ranks say why not.
 *
 * RKS_LINK_FAULTS=2000 test_links     tries of the last test; default 40
 * SEED=n                              repeats a run */
#include <arpa/inet.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "stranger.h"

#include "flight.h"
#include "support/seed.h"

enum { T_MS = 6000, NOTES = 40, REQUESTS = 12, ECHO_MOST = 30000, LINKS = 64, TRIES = 40 };

/* ---- the path ---------------------------------------------------------------------------------
 */

/* Comes once, over the first link that carries so much. */
typedef enum wire_fault {
    WIRE_WELL,
    WIRE_FLIP,  /* one bit of what a rank sends is changed */
    WIRE_RESET, /* both sides are reset */
    WIRE_END,   /* both read the end */
    WIRE_ONE,   /* one side is reset; the other one hears nothing of it for a while */
    WIRE_STALL, /* nothing passes from a rank for T / 2 */
    WIRE_IDLE,  /* reset when nothing is on its way */
    WIRE_FAULTS,
} wire_fault;

static const char *const FAULT_NAMES[] = {"none",           "bit changed",     "reset",
                                          "ended",          "reset, one side", "T/2 of silence",
                                          "reset when idle"};

typedef struct wire {
    pthread_t thread;
    int sides[2]; /* the one that connected, the one that accepted */
} wire;

static struct {
    int listeners[2];          /* one for each rank */
    uint16_t ports[2];         /* of these, */
    _Atomic uint16_t ranks[2]; /* and of the ranks; 0: no path */
    wire_fault fault;
    int from;         /* the side whose bytes it concerns */
    uint64_t at;      /* after so many of them */
    atomic_bool idle; /* WIRE_IDLE: now */
    atomic_bool done; /* it has come */
    atomic_bool over;
    wire wires[LINKS];
    uint32_t count;
    pthread_t thread;
} path;

static void reset(int fd)
{
    const struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
}

/* Brings the fault about. Returns false if that is the end of the link. */
static bool strike(wire *w, uint8_t *byte)
{
    if (atomic_exchange(&path.done, true))
        return true;
    switch (path.fault) {
    case WIRE_FLIP:
        *byte ^= (uint8_t)(1 << path.at % 8);
        return true;
    case WIRE_STALL:
        usleep(T_MS / 2 * 1000); /* this thread passes both directions on */
        return true;
    case WIRE_END:
        close(w->sides[0]);
        close(w->sides[1]);
        return false;
    case WIRE_ONE:
        reset(w->sides[path.from]);
        usleep(100000);
        reset(w->sides[1 - path.from]);
        return false;
    default:
        reset(w->sides[0]);
        reset(w->sides[1]);
        return false;
    }
}

/* Passes what a side has sent on to the other one; false: the link is over. */
static bool carry(wire *w, int side, uint64_t *passed)
{
    uint8_t bytes[2048];
    ssize_t size = recv(w->sides[side], bytes, sizeof(bytes), 0);
    if (size <= 0) {
        if (size < 0)
            reset(w->sides[1 - side]);
        else
            close(w->sides[1 - side]);
        close(w->sides[side]);
        return false;
    }
    uint64_t end = *passed + (uint64_t)size;
    if (side == path.from && path.at >= *passed && path.at < end && path.fault != WIRE_IDLE &&
        path.fault != WIRE_WELL && !strike(w, &bytes[path.at - *passed]))
        return false;
    *passed = end;
    stranger_send(w->sides[1 - side], bytes, (size_t)size);
    return true;
}

static void *run_wire(void *argument)
{
    wire *w = argument;
    uint64_t passed[2] = {0};
    while (true) {
        struct pollfd both[2] = {{.fd = w->sides[0], .events = POLLIN},
                                 {.fd = w->sides[1], .events = POLLIN}};
        int ready = poll(both, 2, 20);
        if (path.fault == WIRE_IDLE && ready == 0 && atomic_load(&path.idle) && !strike(w, NULL))
            return NULL;
        for (int side = 0; side < 2; side++)
            if (both[side].revents != 0 && !carry(w, side, &passed[side]))
                return NULL;
    }
}

/* Accepts a link to a rank. */
static void open_wire(int rank)
{
    wire *w = &path.wires[path.count];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(path.ranks[rank]),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    w->sides[0] = accept(path.listeners[rank], NULL, NULL);
    w->sides[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (path.count == LINKS ||
        syscall(SYS_connect, w->sides[1], (struct sockaddr *)&to, sizeof(to)) != 0) {
        reset(w->sides[0]);
        close(w->sides[1]);
        return;
    }
    path.count++;
    pthread_create(&w->thread, NULL, run_wire, w);
}

static void *run_path(void *argument)
{
    (void)argument;
    while (!atomic_load(&path.over)) {
        struct pollfd both[2] = {{.fd = path.listeners[0], .events = POLLIN},
                                 {.fd = path.listeners[1], .events = POLLIN}};
        poll(both, 2, 20);
        for (int rank = 0; rank < 2; rank++)
            if (both[rank].revents != 0)
                open_wire(rank);
    }
    return NULL;
}

/* In the C library's place, also for libuv: who connects to a rank comes to the path, and does not
 * know it. */
__attribute__((visibility("default"))) int connect(int fd, __CONST_SOCKADDR_ARG address,
                                                   socklen_t size)
{
    struct sockaddr_in to;
    memcpy(&to, address.__sockaddr__, size < sizeof(to) ? size : sizeof(to));
    for (int rank = 0; rank < 2; rank++)
        if (path.ranks[rank] != 0 && to.sin_port == htons(path.ranks[rank])) {
            to.sin_port = htons(path.ports[rank]);
            return (int)syscall(SYS_connect, fd, &to, sizeof(to));
        }
    return (int)syscall(SYS_connect, fd, address.__sockaddr__, size);
}

/* Between the ranks of a mesh that have not joined yet. */
static void path_open(const mesh *m, wire_fault fault, int from, uint64_t at)
{
    memset(&path, 0, sizeof(path));
    path.fault = fault;
    path.from = from;
    path.at = at;
    for (int rank = 0; rank < 2; rank++) {
        rks_address address;
        assert_ok(rks_listen(NULL, &path.listeners[rank], &address, &err), &err);
        path.ports[rank] = address.port;
        path.ranks[rank] = m->addresses[rank].port;
    }
    pthread_create(&path.thread, NULL, run_path, NULL);
}

/* The ranks are closed. */
static void path_close(void)
{
    atomic_store(&path.over, true);
    pthread_join(path.thread, NULL);
    for (uint32_t i = 0; i < path.count; i++)
        pthread_join(path.wires[i].thread, NULL);
    for (int rank = 0; rank < 2; rank++) {
        close(path.listeners[rank]);
        path.ranks[rank] = 0;
    }
}

/* ---- what the ranks do ------------------------------------------------------------------------
 */

typedef struct side {
    loss lost;
    event landed; /* requests */
    flight flights[2 * REQUESTS];
    uint8_t *bodies[2 * REQUESTS];
    size_t sizes[2 * REQUESTS];
    uint32_t asked;
    event notes; /* taken */
    _Atomic uint32_t next;
    atomic_bool wrong;
} side;

static size_t note_size(uint32_t number)
{
    return 4 + number * 977 % 9000;
}

static void take_note(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    side *s = user;
    uint32_t number = 0;
    (void)from;
    memcpy(&number, body, size < 4 ? size : 4);
    bool right = number == s->next && size == note_size(number);
    for (size_t i = 4; right && i < size; i++)
        right = body[i] == (uint8_t)(number + i);
    if (!right)
        atomic_store(&s->wrong, true);
    s->next++;
    event_add(&s->notes);
}

/* Half of what a rank does in a try. */
static void send_half(rks_engine *engine, uint32_t peer, side *s, uint32_t half)
{
    uint8_t body[16000];
    for (uint32_t number = half * NOTES; number < (half + 1) * NOTES; number++) {
        for (size_t i = 4; i < note_size(number); i++)
            body[i] = (uint8_t)(number + i);
        memcpy(body, &number, 4);
        rks_engine_note(engine, peer, RKS_SERVICE_GROUP, body, note_size(number), &err);
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t k = s->asked++;
        flight *f = &s->flights[k];
        s->sizes[k] = 4 + (k * 7919u + peer) % ECHO_MOST;
        s->bodies[k] = calloc(1, s->sizes[k]);
        s->bodies[k][0] = 1;
        for (size_t at = 4; at < s->sizes[k]; at++)
            s->bodies[k][at] = (uint8_t)(at * 3 + k);
        f->landed = &s->landed;
        assert_ok(fly(engine, peer, RKS_SERVICE_FETCH, s->bodies[k], s->sizes[k], f), &err);
    }
}

static bool side_is_done(side *s, uint32_t halves)
{
    return event_count(&s->lost.lost) > 0 || (event_count(&s->notes) >= halves * NOTES &&
                                              event_count(&s->landed) >= halves * REQUESTS);
}

/* Waits until both have all, or have heard of the end. */
static bool wait_for_both(side sides[2], uint32_t halves)
{
    uint64_t until = rks_now_ms() + WAIT_MS;
    while (rks_now_ms() < until) {
        if (side_is_done(&sides[0], halves) && side_is_done(&sides[1], halves))
            return true;
        usleep(1000);
    }
    return false;
}

static void *close_soon(void *engine)
{
    rks_engine_close(engine, 2000);
    return NULL;
}

/* ---- a try ------------------------------------------------------------------------------------
 */

typedef struct tally {
    uint32_t tries, survived, named, hung, wrong;
} tally;

static void check_side(side *s, tally *t, bool *survived)
{
    bool wrong = atomic_load(&s->wrong);
    for (uint32_t k = 0; k < s->asked; k++) {
        flight *f = &s->flights[k];
        *survived = *survived && f->done == 1 && f->status == RKS_OK;
        wrong = wrong ||
                (f->done == 1 && f->status == RKS_OK &&
                 (f->size != s->sizes[k] - 4 || memcmp(f->reply, s->bodies[k] + 4, f->size) != 0));
        free(s->bodies[k]);
        free(f->reply);
    }
    t->wrong += wrong;
}

static void one_try(wire_fault fault, int from, uint64_t at, tally *t)
{
    mesh m;
    side sides[2];
    bool survived, hung = false;
    memset(sides, 0, sizeof(sides));
    mesh_open_unjoined(&m, 2, false, T_MS);
    path_open(&m, fault, from, at);
    for (uint32_t rank = 0; rank < 2; rank++) {
        event_init(&sides[rank].lost.lost);
        event_init(&sides[rank].landed);
        event_init(&sides[rank].notes);
        rks_engine_watch(m.engines[rank], on_lost, &sides[rank].lost);
        rks_engine_serve(m.engines[rank], RKS_SERVICE_FETCH, echo, NULL, NULL);
        rks_engine_serve(m.engines[rank], RKS_SERVICE_GROUP, NULL, take_note, &sides[rank]);
    }
    mesh_join(&m, 0);
    mesh_join(&m, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_ok(rks_engine_keep(m.engines[rank], 1 - rank, &err), &err);
    for (uint32_t half = 0; half < 2 && !hung; half++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            send_half(m.engines[rank], 1 - rank, &sides[rank], half);
        hung = !wait_for_both(sides, half + 1);
        atomic_store(&path.idle, true);
        uint64_t until = rks_now_ms() + WAIT_MS;
        while (half == 0 && fault == WIRE_IDLE && !atomic_load(&path.done) && rks_now_ms() < until)
            usleep(1000);
    }
    uint64_t named = event_count(&sides[0].lost.lost) + event_count(&sides[1].lost.lost);
    survived = named == 0;
    pthread_t closers[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        pthread_create(&closers[rank], NULL, close_soon, m.engines[rank]);
    for (uint32_t rank = 0; rank < 2; rank++) {
        pthread_join(closers[rank], NULL);
        m.engines[rank] = NULL;
    }
    path_close();
    for (uint32_t rank = 0; rank < 2; rank++)
        check_side(&sides[rank], t, &survived);
    t->tries++;
    t->hung += hung;
    t->survived += survived;
    t->named += !survived && named == 2;
    if (!survived)
        print_message("%s, rank %d's byte %llu: \"%s\" / \"%s\"\n", FAULT_NAMES[fault], from,
                      (unsigned long long)at, sides[0].lost.err.text, sides[1].lost.err.text);
    mesh_close(&m);
}

static void a_fault_of_the_wire_is_survived_or_named_by_both(void **state)
{
    (void)state;
    static const uint64_t spans[] = {400, 6000, 500000};
    const char *wish = getenv("RKS_LINK_FAULTS");
    uint32_t tries = wish == NULL ? TRIES : (uint32_t)strtoul(wish, NULL, 10);
    uint64_t seed = test_seed(0);
    tally all[WIRE_FAULTS] = {0}, sum = {0};
    setenv("MESH_AUTHENTICATE", "1", 1);
    for (uint32_t i = 0; i < tries; i++) {
        wire_fault fault = (wire_fault)(1 + i % (WIRE_FAULTS - 1));
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = (seed >> 24) % spans[(seed >> 16) % 3];
        one_try(fault, (int)(seed >> 63), at, &all[fault]);
    }
    unsetenv("MESH_AUTHENTICATE");
    print_message("%-20s %6s %9s %6s %5s %6s\n", "fault", "tries", "survived", "named", "hung",
                  "wrong");
    for (int i = 1; i < WIRE_FAULTS; i++) {
        const tally *t = &all[i];
        print_message("%-20s %6u %9u %6u %5u %6u\n", FAULT_NAMES[i], t->tries, t->survived,
                      t->named, t->hung, t->wrong);
        sum.survived += t->survived;
        sum.named += t->named;
        sum.hung += t->hung;
        sum.wrong += t->wrong;
    }
    assert_int_equal(sum.hung, 0);
    assert_int_equal(sum.wrong, 0);
    assert_int_equal(sum.survived + sum.named, tries);
    assert_true(sum.survived >= tries * 3 / 4);
}

/* ---- a long job -------------------------------------------------------------------------------
 */

static void must_hear(mesh *m)
{
    const uint8_t body[] = {1, 0, 0, 0, 5};
    event landed;
    flight f = {.landed = &landed};
    event_init(&landed);
    assert_ok(fly(m->engines[0], 1, RKS_SERVICE_FETCH, body, sizeof(body), &f), &err);
    event_wait(&landed, 1);
    assert_ok(f.status, &f.err);
    free(f.reply);
}

/* More breaks than are forgiven at once. After each the link is well for T. */
static void breaks_that_are_far_apart_do_not_add_up(void **state)
{
    enum { BREAKS = 5, LONG_T_MS = 2500 };
    (void)state;
    mesh m;
    loss lost[2];
    mesh_open_unjoined(&m, 2, false, LONG_T_MS);
    path_open(&m, WIRE_IDLE, 0, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        event_init(&lost[rank].lost);
        rks_engine_watch(m.engines[rank], on_lost, &lost[rank]);
        rks_engine_serve(m.engines[rank], RKS_SERVICE_FETCH, echo, NULL, NULL);
        mesh_join(&m, (int)rank);
    }
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_ok(rks_engine_keep(m.engines[rank], 1 - rank, &err), &err);
    for (int i = 0; i < BREAKS; i++) {
        must_hear(&m);
        usleep((LONG_T_MS + LONG_T_MS / 10) * 1000);
        atomic_store(&path.done, false);
        atomic_store(&path.idle, true);
        for (uint64_t until = rks_now_ms() + WAIT_MS;
             !atomic_load(&path.done) && rks_now_ms() < until;)
            usleep(1000);
        atomic_store(&path.idle, false);
    }
    must_hear(&m);
    assert_int_equal(event_count(&lost[0].lost) + event_count(&lost[1].lost), 0);
    mesh_close(&m);
    path_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_of_the_wire_is_survived_or_named_by_both),
        cmocka_unit_test(breaks_that_are_far_apart_do_not_add_up),
    };
    int failed = cmocka_run_group_tests_name("links", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
