/* SPDX-License-Identifier: Apache-2.0
 *
 * workers.c: the threads of a fetcher that work on fetches started ahead. */
#include "fetch/workers.h"

#include <sched.h>

#include "base/error.h"
#include "base/thread.h"

static void work_until_closing(rks_fetcher *fetcher, pthread_cond_t *comes)
{
    pthread_mutex_lock(&fetcher->mutex);
    while (!atomic_load(&fetcher->closing))
        if (!fetcher->work_on_next(fetcher))
            pthread_cond_wait(comes, &fetcher->mutex);
    pthread_mutex_unlock(&fetcher->mutex);
}

static void *worker_main(void *user)
{
    rks_fetcher *fetcher = user;
    work_until_closing(fetcher, &fetcher->work_comes);
    return NULL;
}

static void *cold_worker_main(void *user)
{
    rks_fetcher *fetcher = user;
    work_until_closing(fetcher, &fetcher->cold_work_comes);
    return NULL;
}

static void wake_now(rks_fetcher *fetcher)
{
    pthread_cond_signal(&fetcher->work_comes);
    if (!rks_disk_reader_is_cold(&fetcher->disk) || !atomic_load(&fetcher->started) ||
        atomic_load(&fetcher->closing)) /* the close joins only the threads that it sees */
        return;
    while (fetcher->worker_count < RKS_FETCH_COLD_WORKERS &&
           rks_thread_start_reader(&fetcher->workers[fetcher->worker_count], cold_worker_main,
                                   fetcher) == 0)
        fetcher->worker_count++;
    pthread_cond_signal(&fetcher->cold_work_comes);
}

void rks_fetcher_wake_workers(rks_fetcher *fetcher)
{
    if (atomic_load(&fetcher->gathering) != 0)
        fetcher->unwoken++;
    else
        wake_now(fetcher);
}

void rks_fetcher_wake_gathered(rks_fetcher *fetcher)
{
    for (; fetcher->unwoken > 0; fetcher->unwoken--)
        wake_now(fetcher);
}

/* Returns how many workers to start. The waiting thread works, too: with as many workers as cores
 * they would only take turns (measured on 2 cores: 1.2 G padded tokens/s with two, 1.5 G with
 * one). */
static size_t workers_wanted(void)
{
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return count - 1 < 1                   ? 1
           : count - 1 > RKS_FETCH_WORKERS ? RKS_FETCH_WORKERS
                                           : (size_t)count - 1;
}

rks_status rks_fetcher_start_workers(rks_fetcher *fetcher, rks_work_fn work_on_next, rks_error *err)
{
    int error = 0;
    if (atomic_load_explicit(&fetcher->started, memory_order_acquire))
        return RKS_OK;
    pthread_mutex_lock(&fetcher->mutex);
    fetcher->work_on_next = work_on_next;
    if (fetcher->workers_wanted == 0)
        fetcher->workers_wanted = workers_wanted();
    while (error == 0 && fetcher->worker_count < fetcher->workers_wanted) {
        error =
            rks_thread_start_reader(&fetcher->workers[fetcher->worker_count], worker_main, fetcher);
        fetcher->worker_count += error == 0;
    }
    bool none = fetcher->worker_count == 0;
    atomic_store(&fetcher->started, error == 0);
    pthread_mutex_unlock(&fetcher->mutex);
    return none ? rks_fail_start(err, error, "a thread that fetches ahead") : RKS_OK;
}

void rks_fetcher_join_workers(rks_fetcher *fetcher)
{
    pthread_mutex_lock(&fetcher->mutex);
    pthread_cond_broadcast(&fetcher->work_comes);
    pthread_cond_broadcast(&fetcher->cold_work_comes);
    pthread_mutex_unlock(&fetcher->mutex);
    for (size_t i = 0; i < fetcher->worker_count; i++)
        if (!rks_thread_join_within(fetcher->workers[i], rks_fetcher_close_ms(fetcher)))
            atomic_fetch_add(&fetcher->references, 1); /* the thread's, which never comes back */
}
