/* SPDX-License-Identifier: Apache-2.0
 *
 * helper.c: the home that a helper reaches: the thread that talks with the helper. */
#include "home/helper.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/thread.h"

enum {
    MINUTE_MS = 60000,
    SECOND_MS = 1000,
    HANGS_MS = 15000,  /* after nobody waits for a request, without an answer */
    SILENT_MS = 60000, /* until a new helper says that it is ready */
    ENDS_MS = 200,     /* for one that ends by itself */
    END_MS = 2000,     /* and for one that still clears up */
    WORDS_SHOWN = 299, /* of the last bytes on its standard error */
};

uint64_t rks_helper_slot_at(size_t slot)
{
    return slot < RKS_HELPER_BIG ? (uint64_t)slot * RKS_HELPER_BIG_BYTES
                                 : (uint64_t)RKS_HELPER_BIG * RKS_HELPER_BIG_BYTES +
                                       (uint64_t)(slot - RKS_HELPER_BIG) * RKS_HELPER_SMALL_BYTES;
}

void rks_helper_tell(const rks_helper *h, const char *name, enum rks_home_kind kind,
                     const char *text, rks_error *err)
{
    /* Hidden before anything cuts it: half a secret would be left. */
    char *shown = rks_strdup(text, NULL);
    if (shown != NULL)
        rks_helper_hide(h->options, shown);
    const rks_status status = kind == RKS_HOME_MISSING   ? RKS_ERR_NOT_FOUND
                              : kind == RKS_HOME_CHANGED ? RKS_ERR_STATE
                                                         : RKS_ERR_IO;
    rks_fail(err, status, 0, "%s%s%s: %s", h->url, name[0] == '\0' ? "" : "/", name,
             shown == NULL ? "out of memory" : shown);
    rks_free(shown);
}

void rks_helper_wake(rks_helper *h)
{
    const uint64_t one = 1;
    ssize_t ignored = write(h->wake, &one, sizeof(one));
    (void)ignored;
}

size_t rks_helper_free_slot(const rks_helper *h, bool big)
{
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++) { /* small ones first */
        size_t slot = (i + RKS_HELPER_BIG) % RKS_HELPER_SLOTS;
        if (h->slots[slot].id == 0 && (!big || slot < RKS_HELPER_BIG))
            return slot;
    }
    return RKS_HELPER_SLOTS;
}

void rks_helper_drop(rks_helper *h, size_t number)
{
    rks_helper_slot *slot = &h->slots[number];
    rks_error ignored;
    slot->task = NULL;
    slot->call = NULL;
    slot->dropped_ms = rks_now_ms();
    rks_buffer_print(&h->out, &ignored, "drop %" PRIu64 "\n", slot->id);
    rks_helper_wake(h);
}

void rks_helper_slow_down(rks_helper *h, uint32_t busy_ms)
{
    uint64_t now = rks_now_ms();
    if (now - h->cut_ms >= SECOND_MS) {
        h->window = h->window > 1 ? h->window / 2 : 1;
        h->cut_ms = h->grown_ms = now;
    }
    if (busy_ms > 0 && now + busy_ms > h->rest_until)
        h->rest_until = now + (busy_ms < MINUTE_MS ? busy_ms : MINUTE_MS);
}

/* ---- what it says -----------------------------------------------------------------------------
 */

/* Of a request for which nobody waits. */
static bool hear_dropped(rks_helper_slot *slot, const rks_helper_line *line)
{
    if (line->word == RKS_HELPER_OK || line->word == RKS_HELPER_FAIL)
        *slot = (rks_helper_slot){0};
    return true;
}

static bool hear_line(rks_helper *h, const rks_helper_line *line)
{
    if (line->word == RKS_HELPER_BAD) {
        rks_helper_tell(h, "", RKS_HOME_DENIED, line->text, &h->refused);
        return true;
    }
    if (line->word == RKS_HELPER_READY || !h->ready) {
        bool first = line->word == RKS_HELPER_READY && !h->ready;
        h->ready = h->ready || first;
        return first;
    }
    rks_helper_slot *slot = NULL;
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++)
        if (line->id != 0 && h->slots[i].id == line->id)
            slot = &h->slots[i];
    if (slot == NULL)
        return false;
    if (line->word == RKS_HELPER_FAIL && line->kind == RKS_HOME_BUSY)
        rks_helper_slow_down(h, line->busy_ms);
    bool good = slot->task != NULL   ? rks_helper_reads_hear(h, slot, line)
                : slot->call != NULL ? rks_helper_hear_call(h, slot, line)
                                     : hear_dropped(slot, line);
    pthread_cond_broadcast(&h->changed);
    return good;
}

/* Reads what the helper has said. Returns false at its end, or if it says what it may not: *why. */
static bool hear_helper(rks_helper *h, const char **why)
{
    ssize_t got = recv(h->process.socket, h->in + h->in_size, sizeof(h->in) - h->in_size, 0);
    *why = "it has closed its output";
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    if (got <= 0)
        return false;
    h->in_size += (size_t)got;
    *why = "it said something that is not an answer";
    for (char *end; (end = memchr(h->in, '\n', h->in_size)) != NULL;) {
        rks_helper_line line;
        size_t size = (size_t)(end - h->in);
        if (size >= RKS_HELPER_LINE || !rks_helper_read_line(h->in, size, &line) ||
            !hear_line(h, &line))
            return false;
        h->in_size -= size + 1;
        memmove(h->in, end + 1, h->in_size);
    }
    return h->in_size < RKS_HELPER_LINE;
}

/* ---- the process ----------------------------------------------------------------------------- */

/* Ends what was under way: `h->broken` or `h->refused` says why. */
static void end_all_under_way(rks_helper *h, bool queued)
{
    const rks_error why = h->refused.status != RKS_OK ? h->refused : h->broken;
    const enum rks_home_kind kind = h->refused.status != RKS_OK ? RKS_HOME_DENIED : RKS_HOME_BROKEN;
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++) {
        rks_helper_slot *slot = &h->slots[i];
        if (slot->task != NULL) {
            rks_helper_reads_fail_part(slot->task, kind, &why);
        } else if (slot->call != NULL) {
            slot->call->ended = true;
            slot->call->kind = kind;
            slot->call->err = why;
        }
        *slot = (rks_helper_slot){0};
    }
    h->broken_times++;
    pthread_cond_broadcast(&h->changed);
    rks_helper_reads_settle(h, queued, kind, &why);
}

/* Ends the process, and says why in h->broken. */
static void end_process(rks_helper *h, const char *why, uint32_t patience_ms)
{
    char how[64] = "", said[RKS_HELPER_SAID + 1], text[RKS_HELPER_TEXT];
    rks_helper_hear_errors(&h->process);
    rks_helper_last_words(&h->process, said);
    rks_helper_hide(h->options, said);
    char *words = strlen(said) > WORDS_SHOWN ? said + strlen(said) - WORDS_SHOWN : said;
    rks_text_clean(words); /* it may begin inside a character */
    rks_helper_process ended = h->process;
    h->process = (rks_helper_process){.handle = -1, .socket = -1, .errors = -1, .memory = -1};
    h->ready = false;
    h->in_size = h->out.size = 0;
    pthread_mutex_unlock(&h->mutex);
    rks_helper_end(&ended, patience_ms, how, sizeof(how));
    pthread_mutex_lock(&h->mutex);
    snprintf(text, sizeof(text), "the helper ended (%s, %s)%s%s", why, how,
             words[0] == '\0' ? "" : "; it said: ", words);
    rks_helper_tell(h, "", RKS_HOME_BROKEN, text, &h->broken);
}

static bool may_start(rks_helper *h)
{
    uint64_t now = rks_now_ms();
    if (h->starts_ms[0] != 0 && now - h->starts_ms[0] < MINUTE_MS)
        return false;
    memmove(h->starts_ms, h->starts_ms + 1, sizeof(h->starts_ms) - sizeof(*h->starts_ms));
    h->starts_ms[RKS_HELPER_STARTS - 1] = now;
    return true;
}

static void start_process(rks_helper *h)
{
    rks_helper_process begun = {0};
    rks_error err = {0};
    const uint64_t memory = rks_helper_slot_at(RKS_HELPER_SLOTS);
    if (!may_start(h)) { /* h->broken says what became of the last one */
        end_all_under_way(h, true);
        return;
    }
    pthread_mutex_unlock(&h->mutex);
    rks_status status = rks_helper_start(h->url, memory, &begun, &err);
    pthread_mutex_lock(&h->mutex);
    h->process = begun;
    h->grown_ms = rks_now_ms();
    if (status == RKS_OK)
        status = rks_helper_write_home(&h->out, h->url, h->options, h->objects, &err);
    if (status == RKS_OK)
        return;
    bool lasting = status == RKS_ERR_UNSUPPORTED || status == RKS_ERR_ARGUMENT ||
                   (status == RKS_ERR_IO && err.cause == ENOENT);
    if (h->process.pid != 0)
        end_process(h, "", 0);
    *(lasting ? &h->refused : &h->broken) = err;
    end_all_under_way(h, true);
}

/* What a wait for the helper is for, and how long. With the mutex. */
static int watch(rks_helper *h, struct pollfd fds[3])
{
    bool up = h->process.pid != 0;
    fds[0] = (struct pollfd){.fd = h->wake, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = up ? h->process.socket : -1,
                             .events = (short)(POLLIN | (h->out.size > 0 ? POLLOUT : 0))};
    fds[2] = (struct pollfd){.fd = up ? h->process.errors : -1, .events = POLLIN};
    return up ? RKS_WAIT_SLICE_MS : -1;
}

static void write_lines(rks_helper *h)
{
    if (h->out.size == 0 || h->process.pid == 0)
        return;
    ssize_t sent = send(h->process.socket, h->out.data, h->out.size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0)
        return;                          /* full; or it has ended, which reading tells */
    rks_wipe(h->out.data, (size_t)sent); /* the first line has secrets */
    memmove(h->out.data, h->out.data + sent, h->out.size - (size_t)sent);
    h->out.size -= (size_t)sent;
}

/* Looks for requests that hang after nobody waits for them, and at the window. */
static const char *look_at_time(rks_helper *h)
{
    uint64_t now = rks_now_ms();
    if (now - h->grown_ms >= SECOND_MS && h->ready) {
        h->grown_ms = now;
        h->window += h->window < h->window_most;
    }
    if (!h->ready && now - h->starts_ms[RKS_HELPER_STARTS - 1] >= SILENT_MS)
        return "it did not say that it is ready";
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++)
        if (h->slots[i].dropped_ms != 0 && now - h->slots[i].dropped_ms >= HANGS_MS)
            return "a request hung";
    return NULL;
}

static bool has_work(const rks_helper *h)
{
    return h->tasks != NULL || h->waiting > 0;
}

/* One turn with a helper that runs; `fds` as they were seen. */
static void talk(rks_helper *h, const struct pollfd fds[3])
{
    const char *why = NULL;
    if (fds[2].revents != 0 && !rks_helper_hear_errors(&h->process)) {
        close(h->process.errors);
        h->process.errors = -1;
    }
    bool lives = (fds[1].revents & ~POLLOUT) == 0 || hear_helper(h, &why);
    if (lives)
        why = look_at_time(h);
    if (h->refused.status != RKS_OK)
        why = "it cannot serve this home";
    if (lives && why == NULL)
        return;
    end_process(h, why, ENDS_MS);
    end_all_under_way(h, false);
}

static bool leaves_something(const rks_helper *h)
{
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++)
        if (h->slots[i].id != 0 && h->slots[i].task == NULL)
            return true;
    return false;
}

static void *helper_main(void *user)
{
    rks_helper *h = user;
    struct pollfd fds[3];
    pthread_mutex_lock(&h->mutex);
    while (!h->closing) {
        if (h->refused.status != RKS_OK && has_work(h))
            end_all_under_way(h, true);
        if (h->process.pid == 0 && h->refused.status == RKS_OK && has_work(h))
            start_process(h);
        if (h->process.pid != 0)
            pthread_cond_broadcast(&h->changed);
        while (h->process.pid != 0 && rks_helper_reads_send(h))
            ;
        write_lines(h);
        int timeout = watch(h, fds);
        pthread_mutex_unlock(&h->mutex);
        uint64_t woken;
        if (poll(fds, 3, timeout) < 0)
            fds[0].revents = fds[1].revents = fds[2].revents = 0;
        if (fds[0].revents != 0) {
            ssize_t ignored = read(h->wake, &woken, sizeof(woken));
            (void)ignored;
        }
        pthread_mutex_lock(&h->mutex);
        if (h->process.pid != 0)
            talk(h, fds);
    }
    rks_fail(&h->broken, RKS_ERR_CANCELLED, 0, "%s: the home is closed", h->url);
    if (h->process.pid != 0) {
        uint32_t patience = leaves_something(h) ? h->patience_ms : 0;
        const rks_error closed = h->broken;
        end_process(h, "the home is closed", patience < END_MS ? patience : END_MS);
        h->broken = closed;
    }
    end_all_under_way(h, true);
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

rks_status rks_helper_check_owner(const rks_helper *h, rks_error *err)
{
    return h->owner == getpid() ? RKS_OK
                                : rks_fail(err, RKS_ERR_STATE, 0,
                                           "%s: was opened by the process that forked this one; "
                                           "ask there",
                                           h->url);
}

rks_status rks_helper_check(const rks_helper *h, const char *name, rks_error *err)
{
    return h->objects ? rks_helper_check_object(name, err) : rks_helper_check_name(name, err);
}

rks_status rks_helper_begin(rks_helper *h, rks_error *err)
{
    if (h->closing)
        return rks_fail(err, RKS_ERR_STATE, 0, "%s: the home is closed", h->url);
    if (h->threaded)
        return RKS_OK;
    int code = rks_thread_start(&h->thread, helper_main, h);
    if (code != 0)
        return rks_fail_start(err, code, "the thread of %s", h->url);
    h->threaded = true;
    return RKS_OK;
}

/* ---- the seam -------------------------------------------------------------------------------- */

static void free_helper(rks_helper *h)
{
    rks_buffer_free(&h->out);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    if (h->wake >= 0)
        close(h->wake);
    if (h->options != NULL)
        rks_wipe(h->options, strlen(h->options));
    rks_free(h->options);
    rks_free(h->url);
    rks_free(h);
}

static rks_status open_helper(const char *url, const rks_home_limits *limits, void **home,
                              rks_error *err)
{
    const char *secret_options = limits->options;
    const uint32_t requests = limits->requests;
    rks_helper *h = rks_alloc(1, sizeof(*h), err);
    if (h == NULL)
        return RKS_ERR_MEMORY;
    h->owner = getpid();
    h->process = (rks_helper_process){.handle = -1, .socket = -1, .errors = -1, .memory = -1};
    h->window_most = RKS_HELPER_SLOTS;
    h->window = requests == 0 || requests > RKS_HELPER_SLOTS ? RKS_HELPER_SLOTS : requests;
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = h->wake < 0 ? errno : pthread_mutex_init(&h->mutex, NULL);
    if (code == 0)
        code = rks_cond_init(&h->changed);
    rks_status status = code == 0 ? RKS_OK : rks_fail_errno(err, code, "%s: opening", url);
    h->url = status == RKS_OK ? rks_strdup(url, err) : NULL;
    h->options = h->url == NULL || secret_options == NULL ? NULL : rks_strdup(secret_options, err);
    if (status == RKS_OK && (h->url == NULL || (secret_options != NULL && h->options == NULL)))
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK) { /* what is no JSON object is refused here */
        rks_buffer line = {0};
        status = rks_helper_write_home(&line, url, secret_options, false, err);
        rks_wipe(line.data, line.size);
        rks_buffer_free(&line);
    }
    if (status != RKS_OK) {
        free_helper(h);
        return status;
    }
    while (strlen(h->url) > 1 && h->url[strlen(h->url) - 1] == '/')
        h->url[strlen(h->url) - 1] = '\0';
    *home = h;
    return RKS_OK;
}

static rks_status open_objects(const char *url, const rks_home_limits *limits, void **home,
                               rks_error *err)
{
    rks_status status = open_helper(url, limits, home, err);
    if (status == RKS_OK)
        ((rks_helper *)*home)->objects = true;
    return status;
}

static void close_helper(void *home, uint32_t patience_ms)
{
    rks_helper *h = home;
    if (h->owner != getpid())
        return; /* a forked copy: the thread and the process are not ours */
    pthread_mutex_lock(&h->mutex);
    h->closing = true;
    h->patience_ms = patience_ms;
    bool threaded = h->threaded;
    rks_helper_wake(h);
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    if (threaded)
        pthread_join(h->thread, NULL);
    free_helper(h);
}

const rks_home_ops rks_home_objects = {
    .far = true,
    .open = open_objects,
    .read = rks_helper_read,
    .give_up = rks_helper_give_up,
    .put = rks_helper_put,
    .list = rks_helper_list,
    .remove = rks_helper_remove,
    .close = close_helper,
};

const rks_home_ops rks_home_helper = {
    .far = true,
    .open = open_helper,
    .read = rks_helper_read,
    .give_up = rks_helper_give_up,
    .put = rks_helper_put,
    .list = rks_helper_list,
    .remove = rks_helper_remove,
    .close = close_helper,
};
