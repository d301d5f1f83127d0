/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler.c: see scheduler.h. A thread runs while it has the baton; whoever has it owns all state
 * below. A mutex and a condition are used as the two structs here, laid over pthread's own bytes:
 * zeroes are an unlocked mutex and a condition that nobody waits for, as pthread initializes them
 * statically. */
#include "scheduler.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RANKS_MOST = 1024,
    STEP_NS = 200, /* what a step takes: whoever polls the clock gets on */
};

#define NEVER UINT64_MAX

typedef enum state { READY, LOCKING, WAITING, SLEEPING, JOINING, OVER } state;

typedef struct task task;
struct task {
    pthread_t real;
    sem_t baton;
    uint32_t number;
    int32_t rank;
    state state;
    const void *on; /* the mutex, condition or thread that it waits for */
    const void *where;
    task *next; /* of those that wait for the same */
    task *joiner;
    uint64_t deadline_ns, turn; /* turn: tells a wait's deadline from an older wait's */
    bool timed_out;
    uint32_t locks; /* held */
    char name[16];
    void *(*run)(void *argument);
    void *argument, *result;
};

typedef struct sim_mutex {
    task *owner, *waiting;
} sim_mutex;

typedef struct sim_cond {
    task *waiting;
} sim_cond;

typedef struct deadline {
    uint64_t at_ns, order, turn;
    task *of;
} deadline;

_Static_assert(sizeof(sim_mutex) <= sizeof(pthread_mutex_t), "fits");
_Static_assert(sizeof(sim_cond) <= sizeof(pthread_cond_t), "fits");

static struct {
    uint64_t random, digest, now_ns, limit_ns, switches, order;
    uint32_t preempt, spurious;
    void (*failing)(void);
    task **all;
    uint32_t count, room, alive;
    task **ready;
    uint32_t ready_count, ready_room;
    deadline *heap;
    uint32_t heap_count, heap_room;
    bool stopped[RANKS_MOST];
    uint32_t stopped_count;
} sim;

static _Thread_local task *self;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_setname_np(pthread_t thread, const char *name);

/* ---- chance and words ------------------------------------------------------------------------ */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t sim_random(void)
{
    sim.random += 0x9e3779b97f4a7c15u;
    return mix(sim.random);
}

uint64_t sim_below(uint64_t limit)
{
    return sim_random() % limit;
}

uint64_t sim_now_ns(void)
{
    return sim.now_ns;
}

uint64_t sim_digest(void)
{
    return sim.digest;
}

void sim_event(uint64_t event)
{
    sim.digest = mix(sim.digest + event + 0x9e3779b97f4a7c15u);
}

uint32_t sim_threads(void)
{
    return sim.alive;
}

uint64_t sim_switches(void)
{
    return sim.switches;
}

void sim_fail(const char *format, ...)
{
    static const char *const words[] = {
        "can run", "waits for a lock", "waits for a condition", "sleeps", "joins", "has ended"};
    va_list arguments;
    va_start(arguments, format);
    printf("failed at %llu us: ", (unsigned long long)(sim.now_ns / 1000));
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    for (uint32_t i = 0; i < sim.count; i++) {
        const task *t = sim.all[i];
        if (t->state == OVER)
            continue;
        printf("  thread %u of rank %d (%s) %s", t->number, t->rank, t->name, words[t->state]);
        if (t->on != NULL)
            printf(" %p", t->on);
        if (t->state == LOCKING && ((const sim_mutex *)t->on)->owner != NULL)
            printf(" of thread %u", ((const sim_mutex *)t->on)->owner->number);
        if (t->deadline_ns != NEVER)
            printf(", at most until %llu us", (unsigned long long)(t->deadline_ns / 1000));
        printf("%s; called from %p\n",
               t->rank >= 0 && sim.stopped[t->rank] ? ", and its rank is stopped" : "", t->where);
    }
    fflush(stdout);
    if (sim.failing != NULL)
        sim.failing();
    _Exit(1);
}

/* ---- who runs -------------------------------------------------------------------------------- */

static void *grow(void *list, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room)
        return list;
    *room = *room == 0 ? 64 : *room * 2;
    list = realloc(list, *room * size);
    if (list == NULL)
        abort();
    return list;
}

static void make_ready(task *t)
{
    t->state = READY;
    t->on = NULL;
    t->deadline_ns = NEVER;
    t->turn++;
    sim.ready = grow(sim.ready, sim.ready_count, &sim.ready_room, sizeof(task *));
    sim.ready[sim.ready_count++] = t;
}

static bool before(const deadline *a, const deadline *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->order < b->order);
}

static void heap_add(deadline d)
{
    sim.heap = grow(sim.heap, sim.heap_count, &sim.heap_room, sizeof(deadline));
    uint32_t at = sim.heap_count++;
    for (; at > 0 && before(&d, &sim.heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim.heap[at] = sim.heap[(at - 1) / 2];
    sim.heap[at] = d;
}

static void heap_drop_first(void)
{
    deadline last = sim.heap[--sim.heap_count];
    uint32_t at = 0;
    while (2 * at + 1 < sim.heap_count) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < sim.heap_count && before(&sim.heap[child + 1], &sim.heap[child]))
            child++;
        if (!before(&sim.heap[child], &last))
            break;
        sim.heap[at] = sim.heap[child];
        at = child;
    }
    if (sim.heap_count > 0)
        sim.heap[at] = last;
}

static void unlink_waiter(task **list, task *t)
{
    while (*list != NULL && *list != t)
        list = &(*list)->next;
    if (*list != NULL)
        *list = t->next;
}

/* Deadlines that are over: their threads can run. */
static void pass_time(void)
{
    while (sim.heap_count > 0) {
        deadline first = sim.heap[0];
        bool stale = first.of->turn != first.turn || first.of->state == OVER;
        if (!stale && first.at_ns > sim.now_ns)
            return;
        heap_drop_first();
        if (stale)
            continue;
        if (first.of->state == WAITING)
            unlink_waiter(&((sim_cond *)(uintptr_t)first.of->on)->waiting, first.of);
        first.of->timed_out = true;
        make_ready(first.of);
    }
}

static bool may_run(const task *t)
{
    return t->rank < 0 || !sim.stopped[t->rank] || t->locks > 0;
}

/* One that can run, by chance; NULL: none. */
static task *draw(void)
{
    uint32_t count = sim.ready_count;
    if (sim.stopped_count > 0) { /* those that may run come first */
        count = 0;
        for (uint32_t i = 0; i < sim.ready_count; i++)
            if (may_run(sim.ready[i])) {
                task *t = sim.ready[i];
                sim.ready[i] = sim.ready[count];
                sim.ready[count++] = t;
            }
    }
    if (count == 0)
        return NULL;
    uint32_t at = count == 1 ? 0 : (uint32_t)sim_below(count);
    task *t = sim.ready[at];
    sim.ready[at] = sim.ready[--sim.ready_count];
    return t;
}

static task *choose(void)
{
    while (true) {
        pass_time();
        task *t = draw();
        if (t != NULL)
            return t;
        if (sim.heap_count == 0)
            sim_fail("nobody can run, and nobody waits for a time");
        sim.now_ns = sim.heap[0].at_ns;
        if (sim.now_ns > sim.limit_ns)
            sim_fail("a wait without end: the run takes longer than %llu ms",
                     (unsigned long long)(sim.limit_ns / 1000000));
    }
}

/* Another thread, perhaps this one again, goes on. */
static void hand_over(void)
{
    task *me = self;
    sim.now_ns += STEP_NS;
    task *next = choose();
    sim.switches++;
    sim_event((uint64_t)next->number << 40 ^ sim.now_ns);
    if (next == me)
        return;
    sem_post(&next->baton);
    while (me->state != OVER && sem_wait(&me->baton) != 0)
        ;
}

static void block(state why, const void *on, uint64_t deadline_ns, const void *where)
{
    self->state = why;
    self->on = on;
    self->where = where;
    self->timed_out = false;
    self->deadline_ns = deadline_ns;
    if (deadline_ns != NEVER)
        heap_add((deadline){deadline_ns, sim.order++, self->turn, self});
    hand_over();
}

static void may_preempt(void)
{
    if (sim.preempt == 0 || sim_below(sim.preempt) != 0)
        return;
    make_ready(self);
    hand_over();
}

static task *task_new(void)
{
    task *t = calloc(1, sizeof(*t));
    if (t == NULL)
        abort();
    sem_init(&t->baton, 0, 0);
    t->deadline_ns = NEVER;
    t->number = sim.count;
    sim.all = grow(sim.all, sim.count, &sim.room, sizeof(task *));
    sim.all[sim.count++] = t;
    sim.alive++;
    return t;
}

void sim_begin(uint64_t seed, uint32_t preempt, uint32_t spurious, uint64_t limit_ns)
{
    sim.random = mix(seed + 1);
    sim.now_ns = 1000000000;
    sim.limit_ns = sim.now_ns + limit_ns;
    sim.preempt = preempt;
    sim.spurious = spurious;
    self = task_new();
    self->rank = SIM_NO_RANK;
    snprintf(self->name, sizeof(self->name), "main");
}

void sim_on_fail(void (*failing)(void))
{
    sim.failing = failing;
}

void sim_belong(int32_t rank)
{
    self->rank = rank;
}

void sim_stop(int32_t rank)
{
    sim.stopped_count += !sim.stopped[rank];
    sim.stopped[rank] = true;
    sim_event((uint64_t)rank << 8 | 1);
}

void sim_go_on(int32_t rank)
{
    sim.stopped_count -= sim.stopped[rank];
    sim.stopped[rank] = false;
    sim_event((uint64_t)rank << 8 | 2);
}

/* ---- what the library calls ------------------------------------------------------------------ */

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes);
int __wrap_pthread_cond_destroy(pthread_cond_t *cond);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_tryjoin_np(pthread_t thread, void **result);
int __wrap_pthread_setname_np(pthread_t thread, const char *name);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
void __wrap_randombytes_buf(void *bytes, size_t size);

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    (void)attributes;
    memset(mutex, 0, sizeof(*mutex));
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex)
{
    const sim_mutex *m = (const sim_mutex *)(void *)mutex;
    if (m->owner != NULL || m->waiting != NULL)
        sim_fail("a mutex that is in use is destroyed");
    return 0;
}

static void lock(sim_mutex *m, const void *where)
{
    if (m->owner == self)
        sim_fail("thread %u locks a mutex twice", self->number);
    while (m->owner != NULL) {
        self->next = m->waiting;
        m->waiting = self;
        block(LOCKING, m, NEVER, where);
    }
    m->owner = self;
    self->locks++;
}

static void unlock(sim_mutex *m)
{
    if (m->owner != self)
        sim_fail("thread %u unlocks a mutex that it does not hold", self->number);
    m->owner = NULL;
    self->locks--;
    while (m->waiting != NULL) {
        task *t = m->waiting;
        m->waiting = t->next;
        make_ready(t);
    }
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    may_preempt();
    lock((sim_mutex *)(void *)mutex, __builtin_return_address(0));
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    sim_mutex *m = (sim_mutex *)(void *)mutex;
    may_preempt();
    if (m->owner != NULL)
        return EBUSY;
    lock(m, __builtin_return_address(0));
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    unlock((sim_mutex *)(void *)mutex);
    may_preempt();
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    (void)attributes;
    memset(cond, 0, sizeof(*cond));
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond)
{
    if (((const sim_cond *)(void *)cond)->waiting != NULL)
        sim_fail("a condition that is waited for is destroyed");
    return 0;
}

static int wait_for(sim_cond *c, sim_mutex *m, uint64_t deadline_ns, const void *where)
{
    unlock(m);
    if (sim.spurious > 0 && sim_below(sim.spurious) == 0) {
        make_ready(self);
        hand_over();
        lock(m, where);
        return 0;
    }
    self->next = c->waiting;
    c->waiting = self;
    block(WAITING, c, deadline_ns, where);
    bool late = self->timed_out;
    lock(m, where);
    return late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return wait_for((sim_cond *)(void *)cond, (sim_mutex *)(void *)mutex, NEVER,
                    __builtin_return_address(0));
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    uint64_t at_ns = (uint64_t)until->tv_sec * 1000000000u + (uint64_t)until->tv_nsec;
    return wait_for((sim_cond *)(void *)cond, (sim_mutex *)(void *)mutex, at_ns,
                    __builtin_return_address(0));
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    sim_cond *c = (sim_cond *)(void *)cond;
    uint32_t count = 0;
    for (task *t = c->waiting; t != NULL; t = t->next)
        count++;
    if (count > 0) {
        task *t = c->waiting;
        for (uint64_t skip = count == 1 ? 0 : sim_below(count); skip > 0; skip--)
            t = t->next;
        unlink_waiter(&c->waiting, t);
        make_ready(t);
    }
    may_preempt();
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    sim_cond *c = (sim_cond *)(void *)cond;
    while (c->waiting != NULL) {
        task *t = c->waiting;
        c->waiting = t->next;
        make_ready(t);
    }
    may_preempt();
    return 0;
}

static void *task_main(void *argument)
{
    self = argument;
    while (sem_wait(&self->baton) != 0)
        ;
    self->result = self->run(self->argument);
    if (self->locks > 0)
        sim_fail("thread %u ends with %u locks", self->number, self->locks);
    self->state = OVER;
    sim.alive--;
    if (self->joiner != NULL)
        make_ready(self->joiner);
    hand_over();
    return self->result;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument)
{
    task *t = task_new();
    t->run = run;
    t->argument = argument;
    t->rank = self->rank;
    snprintf(t->name, sizeof(t->name), "rank");
    int error = __real_pthread_create(&t->real, attributes, task_main, t);
    if (error != 0)
        sim_fail("no thread to be had: %s", strerror(error));
    *thread = t->real;
    make_ready(t);
    may_preempt();
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    task *t = NULL;
    for (uint32_t i = 0; i < sim.count; i++)
        if (pthread_equal(sim.all[i]->real, thread) && sim.all[i]->run != NULL)
            t = sim.all[i];
    if (t == NULL)
        sim_fail("a thread is joined that does not exist");
    if (t->state != OVER) {
        t->joiner = self;
        block(JOINING, t, NEVER, __builtin_return_address(0));
    }
    t->run = NULL; /* its pthread_t may be given out again */
    return __real_pthread_join(thread, result);
}

/* Nothing hangs in the storage here, so a thread that is waited for ends in time. */
int __wrap_pthread_tryjoin_np(pthread_t thread, void **result)
{
    return __wrap_pthread_join(thread, result);
}

int __wrap_pthread_setname_np(pthread_t thread, const char *name)
{
    if (pthread_equal(thread, pthread_self()))
        snprintf(self->name, sizeof(self->name), "%s", name);
    return __real_pthread_setname_np(thread, name);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    sim.now_ns += STEP_NS;
    *now = (struct timespec){(time_t)(sim.now_ns / 1000000000u), (long)(sim.now_ns % 1000000000u)};
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    block(SLEEPING, NULL,
          sim.now_ns + (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec,
          __builtin_return_address(0));
    return 0;
}

void __wrap_randombytes_buf(void *bytes, size_t size)
{
    uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)sim_random();
}
