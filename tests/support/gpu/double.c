/* SPDX-License-Identifier: Apache-2.0
 *
 * double.c: what the stand-ins of CUDA and NCCL share: faults and figures. */
#include "inside.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct double_world double_world = {
    .mutex = PTHREAD_MUTEX_INITIALIZER, .gpu = 0, .nccl_version = 22809};
_Thread_local struct double_thread double_thread DOUBLE_STATIC_TLS;

static struct {
    const char *call;
    uint64_t nth, seen;
    double_fault fault;
    bool set, happened;
    unsigned asked; /* questions since the last other call, a bit each */
} planned;          /* guarded by the world's mutex */

void double_set_fault(const char *call, uint64_t nth, double_fault fault)
{
    pthread_mutex_lock(&double_world.mutex);
    planned.call = call;
    planned.nth = nth;
    planned.seen = 0;
    planned.asked = 0;
    planned.fault = fault;
    planned.set = nth > 0;
    planned.happened = false;
    double_world.sticky = false;
    pthread_mutex_unlock(&double_world.mutex);
}

bool double_fault_happened(uint64_t *calls)
{
    pthread_mutex_lock(&double_world.mutex);
    bool happened = planned.happened;
    *calls = planned.seen;
    pthread_mutex_unlock(&double_world.mutex);
    return happened;
}

/* Whether a fault that means any call may meet this one. How often a rank asks while it waits is a
 * matter of time: between two other calls, each question counts once. Under the world's mutex. */
static bool counts_as_any(const char *call)
{
    static const char *const questions[] = {"cuEventQuery", "cuStreamQuery",
                                            "ncclCommGetAsyncError"};
    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(questions[i], call) != 0)
            continue;
        bool first = (planned.asked & 1u << i) == 0;
        planned.asked |= 1u << i;
        return first;
    }
    planned.asked = 0;
    return true;
}

int double_enter(const char *call)
{
    pthread_mutex_lock(&double_world.mutex);
    bool counts = planned.call == NULL ? counts_as_any(call) : strcmp(planned.call, call) == 0;
    bool hit = planned.set && counts && ++planned.seen == planned.nth;
    double_fault fault = planned.fault;
    planned.happened |= hit;
    double_world.sticky |= hit && fault == DOUBLE_STICKS;
    bool sticky = double_world.sticky && strncmp(call, "cu", 2) == 0;
    pthread_mutex_unlock(&double_world.mutex);
    if (!hit)
        return sticky ? DOUBLE_FAILS : DOUBLE_GOOD;
    while (fault == DOUBLE_HANGS)
        pause();
    if (fault == DOUBLE_KILLS)
        kill(getpid(), SIGKILL);
    if (fault == DOUBLE_STOPS)
        kill(getpid(), SIGSTOP);
    if (fault == DOUBLE_LATE) {
        nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
        return DOUBLE_GOOD;
    }
    return (int)fault;
}

void double_set_machine(int gpu, int nccl_version, bool capturing, bool virtual_memory)
{
    double_world.gpu = gpu;
    double_world.nccl_version = nccl_version;
    double_world.capturing = capturing;
    double_world.no_virtual_memory = !virtual_memory;
}

void double_get_figures(double_figures *figures)
{
    pthread_mutex_lock(&double_world.mutex);
    *figures = double_world.figures;
    pthread_mutex_unlock(&double_world.mutex);
    figures->pushed = double_thread.pushed;
    figures->capture_mode = double_thread.capture_mode;
}

void double_complain(const char *call, const char *what)
{
    fprintf(stderr, "the stand-in: %s: %s\n", call, what);
    double_count(&double_world.figures.complaints, NULL, 1);
}

void double_needs_context(const char *call)
{
    if (double_thread.pushed == 0)
        double_complain(call, "without a context");
}

void double_count(uint64_t *now, uint64_t *peak, int64_t change)
{
    pthread_mutex_lock(&double_world.mutex);
    *now = (uint64_t)((int64_t)*now + change);
    if (peak != NULL && *now > *peak)
        *peak = *now;
    pthread_mutex_unlock(&double_world.mutex);
}
