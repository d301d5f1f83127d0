/* SPDX-License-Identifier: Apache-2.0
 *
 * helper_reads.c: reads by a helper: their parts, and the answers. Only the thread that talks with
 * the helper calls this, but for rks_helper_read and rks_helper_give_up. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "home/helper.h"

enum { OUT_MOST = 256 << 10 }; /* of lines that were not written yet */

struct rks_helper_task {
    rks_home_read *read;
    rks_helper_task *next;
    uint64_t asked, end; /* bytes up to `asked` were asked for, up to `end` are wanted */
    uint64_t came;
    uint32_t parts; /* in slots */
    bool known;     /* the file's size and version: parts may run beside each other */
    bool busy;      /* the thread uses the read without the mutex */
    bool left;      /* it was given up meanwhile */
    bool failed;    /* then kind and err say why */
    enum rks_home_kind kind;
    rks_error err;
};

/* ---- tasks ----------------------------------------------------------------------------------- */

static void unlink_task(rks_helper *h, const rks_helper_task *task)
{
    rks_helper_task **at = &h->tasks;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
}

/* Its parts under way have nobody who waits for them. */
static void drop_parts(rks_helper *h, const rks_helper_task *task)
{
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++)
        if (h->slots[i].id != 0 && h->slots[i].task == task)
            rks_helper_drop(h, i);
}

/* Ends a task; gives the mutex back while `done` runs. */
static void end_task(rks_helper *h, rks_helper_task *task, enum rks_home_kind kind,
                     const rks_error *err)
{
    rks_home_read *read = task->read;
    unlink_task(h, task);
    drop_parts(h, task);
    pthread_mutex_unlock(&h->mutex);
    rks_free(task);
    read->done(read, kind, err);
    pthread_mutex_lock(&h->mutex);
}

static void fail_task(rks_helper_task *task, enum rks_home_kind kind, const rks_error *err)
{
    if (task->failed)
        return;
    task->failed = true;
    task->kind = kind;
    task->err = *err;
}

static void fail_given_up(const rks_helper *h, const rks_home_read *read, rks_error *err)
{
    rks_fail(err, RKS_ERR_CANCELLED, 0, "%s/%s: the read was given up", h->url, read->name);
}

/* Ends a task that has all, or has failed. */
static void settle_task(rks_helper *h, rks_helper_task *task)
{
    const rks_error good = {0};
    if (task->left && !task->failed) {
        rks_error err;
        fail_given_up(h, task->read, &err);
        fail_task(task, RKS_HOME_BROKEN, &err);
    }
    if (task->failed) {
        const rks_error why = task->err;
        end_task(h, task, task->kind, &why);
    } else if (task->known && task->asked >= task->end && task->parts == 0) {
        end_task(h, task, RKS_HOME_OK, &good);
    }
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* Returns true if the part was sent; false if there is no slot. */
static bool send_part(rks_helper *h, rks_helper_task *task)
{
    rks_home_read *read = task->read;
    rks_error ignored;
    bool stat = !read->whole && read->first == read->end;
    uint64_t size = task->end - task->asked;
    size = size < RKS_HELPER_BIG_BYTES ? size : RKS_HELPER_BIG_BYTES;
    size_t number = rks_helper_free_slot(h, size > RKS_HELPER_SMALL_BYTES);
    if (number == RKS_HELPER_SLOTS)
        return false;
    rks_helper_slot *slot = &h->slots[number];
    const char *version = rks_helper_version(read->version);
    *slot = (rks_helper_slot){
        .id = ++h->last_id, .task = task, .first = task->asked, .end = task->asked + size};
    if (stat)
        rks_buffer_print(&h->out, &ignored, "stat %" PRIu64 " %s %s\n", slot->id, version,
                         read->name);
    else
        rks_buffer_print(&h->out, &ignored,
                         "get %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %s\n", slot->id,
                         rks_helper_slot_at(number), slot->first, slot->end, version, read->name);
    task->asked = slot->end;
    task->parts++;
    return true;
}

/* Tells a read that it has begun; gives the mutex back. Returns true if the list may have changed.
 */
static bool tell_come(rks_helper *h, rks_helper_task *task, uint64_t bytes)
{
    if (task->read->come == NULL)
        return false;
    task->busy = true;
    pthread_mutex_unlock(&h->mutex);
    task->read->come(task->read, bytes);
    pthread_mutex_lock(&h->mutex);
    task->busy = false;
    if (task->left)
        settle_task(h, task);
    return true;
}

static uint32_t parts_under_way(const rks_helper *h)
{
    uint32_t count = 0;
    for (size_t i = 0; i < RKS_HELPER_SLOTS; i++)
        count += h->slots[i].id != 0 && h->slots[i].call == NULL;
    return count;
}

bool rks_helper_reads_send(rks_helper *h)
{
    if (h->out.size > OUT_MOST || parts_under_way(h) >= h->window || rks_now_ms() < h->rest_until)
        return false;
    for (rks_helper_task *task = h->tasks; task != NULL; task = task->next) {
        bool begins = task->parts == 0 && task->came == 0;
        bool wants = (!task->known && task->parts == 0) || (task->known && task->asked < task->end);
        if (task->failed || !wants || !send_part(h, task))
            continue;
        if (begins)
            tell_come(h, task, 0);
        return true;
    }
    return false;
}

/* ---- answers --------------------------------------------------------------------------------- */

static enum rks_home_kind fail_short(const rks_helper *h, const rks_home_read *read, uint64_t size,
                                     rks_error *err)
{
    if (read->whole)
        rks_fail(err, RKS_ERR_CORRUPT, 0, "%s/%s: %" PRIu64 " bytes, at most %" PRIu64 " expected",
                 h->url, read->name, size, read->end);
    else
        rks_fail(err, RKS_ERR_CORRUPT, 0,
                 "%s/%s: ends at %" PRIu64 ", bytes up to %" PRIu64 " expected", h->url, read->name,
                 size, read->end);
    return RKS_HOME_BROKEN;
}

static enum rks_home_kind fail_wrong(const rks_helper *h, const rks_home_read *read,
                                     const char *what, uint64_t got, uint64_t wanted,
                                     rks_error *err)
{
    rks_fail(err, RKS_ERR_IO, EPROTO,
             "%s/%s: the helper brought %" PRIu64 " %s, %" PRIu64 " expected", h->url, read->name,
             got, what, wanted);
    return RKS_HOME_BROKEN;
}

/* Compares an answer with what was asked for. */
static enum rks_home_kind check_answer(const rks_helper *h, const rks_helper_task *task,
                                       const rks_helper_slot *slot, const rks_helper_line *line,
                                       rks_error *err)
{
    const rks_home_read *read = task->read;
    bool stat = !read->whole && read->first == read->end;
    if (read->version[0] != '\0' && strcmp(read->version, line->version) != 0) {
        rks_fail(err, RKS_ERR_STATE, 0, "%s/%s: was replaced since it was first read", h->url,
                 read->name);
        return RKS_HOME_CHANGED;
    }
    if (task->known && line->size != read->size)
        return fail_wrong(h, read, "bytes as the size", line->size, read->size, err);
    if (!stat && (read->whole ? line->size > read->end : line->size < read->end))
        return fail_short(h, read, line->size, err);
    uint64_t end = slot->end < line->size ? slot->end : line->size;
    uint64_t wanted = stat || end < slot->first ? 0 : end - slot->first;
    return line->bytes == wanted ? RKS_HOME_OK
                                 : fail_wrong(h, read, "bytes", line->bytes, wanted, err);
}

/* Copies a part out of its slot; gives the mutex back meanwhile. */
static enum rks_home_kind copy_from_slot(rks_helper *h, rks_helper_task *task,
                                         const rks_helper_slot *slot, uint64_t bytes,
                                         rks_error *err)
{
    rks_home_read *read = task->read;
    const int memory = h->process.memory; /* only this thread ends the process */
    const uint8_t *slots = h->process.slots;
    const uint64_t at = rks_helper_slot_at((size_t)(slot - h->slots)), first = slot->first;
    enum rks_home_kind kind = RKS_HOME_OK;
    task->busy = true;
    pthread_mutex_unlock(&h->mutex);
    if (slots != NULL && bytes > 0)
        memcpy(read->to + (first - read->first), slots + at, (size_t)bytes);
    for (uint64_t done = 0; slots == NULL && kind == RKS_HOME_OK && done < bytes;) {
        ssize_t got = pread(memory, read->to + (first - read->first) + done, (size_t)(bytes - done),
                            (off_t)(at + done));
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0 || errno != EINTR)
            kind = fail_wrong(h, read, "bytes in its slot", done, bytes, err);
    }
    pthread_mutex_lock(&h->mutex);
    task->busy = false;
    return kind;
}

/* The first answer says how large the file is, and of which version. */
static void learn_file(rks_helper_task *task, const rks_helper_line *line)
{
    rks_home_read *read = task->read;
    if (task->known)
        return;
    task->known = true;
    read->size = line->size;
    strcpy(read->version, line->version);
    if (read->whole)
        task->end = line->size;
}

static void hear_ok(rks_helper *h, rks_helper_task *task, rks_helper_slot *slot,
                    const rks_helper_line *line)
{
    rks_error err = {0};
    enum rks_home_kind kind = check_answer(h, task, slot, line, &err);
    if (kind == RKS_HOME_OK)
        kind = copy_from_slot(h, task, slot, line->bytes, &err);
    *slot = (rks_helper_slot){0};
    task->parts--;
    if (kind != RKS_HOME_OK) {
        fail_task(task, kind, &err);
    } else {
        task->came += line->bytes;
        learn_file(task, line);
    }
    settle_task(h, task);
}

/* Names the range that was asked for, unless it is the file as a whole. */
static void tell_range(const rks_helper *h, const rks_home_read *read, const rks_helper_slot *slot,
                       const rks_helper_line *line, rks_error *err)
{
    char name[RKS_OBJECT_NAME + 64];
    const bool ranged = !read->whole && slot->end > slot->first;
    snprintf(name, sizeof(name), "%s", read->name);
    if (ranged)
        snprintf(name, sizeof(name), "%s, bytes %" PRIu64 " to %" PRIu64, read->name, slot->first,
                 slot->end - 1);
    rks_helper_tell(h, name, line->kind, line->text, err);
}

bool rks_helper_reads_hear(rks_helper *h, rks_helper_slot *slot, const rks_helper_line *line)
{
    rks_helper_task *task = slot->task;
    rks_error err = {0};
    switch (line->word) {
    case RKS_HELPER_AT:
        if (line->bytes > slot->end - slot->first)
            return false;
        tell_come(h, task, task->came + line->bytes);
        return true;
    case RKS_HELPER_OK:
        hear_ok(h, task, slot, line);
        return true;
    case RKS_HELPER_FAIL:
        tell_range(h, task->read, slot, line, &err);
        *slot = (rks_helper_slot){0};
        task->parts--;
        fail_task(task, line->kind, &err);
        settle_task(h, task);
        return true;
    default:
        return false;
    }
}

void rks_helper_reads_fail_part(rks_helper_task *task, enum rks_home_kind kind,
                                const rks_error *why)
{
    task->parts--;
    fail_task(task, kind, why);
}

void rks_helper_reads_settle(rks_helper *h, bool all, enum rks_home_kind kind, const rks_error *why)
{
    for (rks_helper_task *task = h->tasks; task != NULL;) {
        if (all)
            fail_task(task, kind, why);
        bool ends = task->failed;
        if (ends)
            settle_task(h, task);
        task = ends ? h->tasks : task->next; /* the list may be another one */
    }
}

/* ---- the seam -------------------------------------------------------------------------------- */

rks_status rks_helper_read(void *home, rks_home_read *read, rks_error *err)
{
    rks_helper *h = home;
    rks_status status = rks_helper_check(h, read->name, err);
    if (status == RKS_OK)
        status = rks_helper_check_owner(h, err);
    if (status != RKS_OK)
        return status;
    rks_helper_task *task = rks_alloc(1, sizeof(*task), err);
    if (task == NULL)
        return RKS_ERR_MEMORY;
    task->read = read;
    task->asked = read->first;
    task->end = read->end;
    pthread_mutex_lock(&h->mutex);
    status = rks_helper_begin(h, err);
    if (status == RKS_OK) {
        rks_helper_task **at = &h->tasks;
        while (*at != NULL)
            at = &(*at)->next;
        *at = task;
        rks_helper_wake(h);
    } else {
        rks_free(task);
    }
    pthread_mutex_unlock(&h->mutex);
    return status;
}

void rks_helper_give_up(void *home, rks_home_read *read)
{
    rks_helper *h = home;
    rks_error err;
    if (rks_helper_check_owner(h, &err) != RKS_OK)
        return;
    pthread_mutex_lock(&h->mutex);
    rks_helper_task *task = h->tasks;
    while (task != NULL && task->read != read)
        task = task->next;
    if (task != NULL && task->busy) {
        task->left = true;
    } else if (task != NULL) {
        fail_given_up(h, read, &err);
        end_task(h, task, RKS_HOME_BROKEN, &err);
    }
    pthread_mutex_unlock(&h->mutex);
}
