/* SPDX-License-Identifier: Apache-2.0
 *
 * stored.c: stores, and reading their objects. A reader has the bytes that it reads from, and while
 * it reads on, a thread that fetches those after them. Ranges grow as reads follow each other. */
#include "ingest/stored.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "home/address.h"

enum {
    LEAST = 64 << 10,  /* a range */
    FIRST = 256 << 10, /* one where reading begins */
    UNIT = 4 << 20,    /* the same, if it is known where reading ends */
    MOST = 8 << 20,
    GROWS = 4,
};

/* ---- stores ---------------------------------------------------------------------------------- */

rks_status rks_stores_create(const char *options, const char *listing, uint64_t input_bytes,
                             rks_stores **stores, rks_error *err)
{
    rks_stores *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    int code = pthread_mutex_init(&made->mutex, NULL);
    if (code != 0) {
        rks_free(made);
        return rks_fail_errno(err, code, "preparing to read from a store");
    }
    made->options = options;
    made->listing = listing;
    made->left = (int64_t)(input_bytes == 0          ? RKS_INPUT_BYTES
                           : input_bytes < INT64_MAX ? input_bytes
                                                     : INT64_MAX);
    *stores = made;
    return RKS_OK;
}

static void free_root(rks_stored_root *root)
{
    rks_home_close(root->home);
    rks_free(root->url);
    rks_free(root);
}

void rks_stores_free(rks_stores *stores)
{
    if (stores == NULL)
        return;
    for (rks_stored_root *root = stores->roots, *next; root != NULL; root = next) {
        next = root->next;
        free_root(root);
    }
    rks_found_list_free(&stores->halves);
    rks_buffer_free(&stores->noted);
    pthread_mutex_destroy(&stores->mutex);
    rks_free(stores);
}

/* Takes as much of what is left as is wanted, but at least LEAST, also if nothing is left. */
static uint64_t take_room(rks_stores *stores, uint64_t wanted)
{
    pthread_mutex_lock(&stores->mutex);
    uint64_t taken = stores->left > 0 ? (uint64_t)stores->left : 0;
    taken = taken < wanted ? taken : wanted;
    taken = taken < LEAST ? LEAST : taken;
    stores->left -= (int64_t)taken;
    pthread_mutex_unlock(&stores->mutex);
    return taken;
}

static void give_room(rks_stores *stores, uint64_t taken)
{
    pthread_mutex_lock(&stores->mutex);
    stores->left += (int64_t)taken;
    pthread_mutex_unlock(&stores->mutex);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Bytes [first, end) of an object. */
typedef struct range {
    uint64_t first, end;
    uint64_t room; /* taken for it: twice its size, as a request under way holds it, too */
    uint8_t *bytes;
} range;

typedef struct object {
    rks_stored_root *root;
    const rks_input_file *file;
    uint64_t until; /* no byte from here on is sent ahead */
    uint64_t step;  /* size of the next range, if reading goes on */
    range now;
    /* The range after it. The thread owns what follows until `ended`. */
    pthread_t thread;
    bool ahead; /* there is a thread to join */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ended; /* guarded by the mutex */
    range next;
    rks_status status;
    rks_error err;
} object;

const char *rks_stored_object(const rks_input_file *file)
{
    const rks_stored_root *root = (const rks_stored_root *)file->store;
    return file->path + strlen(root->url) + 1;
}

static void drop_range(object *o, range *one)
{
    if (one->room > 0)
        give_room(o->root->all, one->room);
    rks_free(one->bytes);
    *one = (range){0};
}

/* Prepares a range from `first` on, of about `size` bytes. */
static rks_status begin_range(object *o, uint64_t first, uint64_t size, range *one, rks_error *err)
{
    const uint64_t left = o->file->size - first;
    *one = (range){.first = first, .room = take_room(o->root->all, 2 * size)};
    size = one->room / 2 < size ? one->room / 2 : size;
    size = size < left ? size : left;
    one->end = first + size;
    one->bytes = rks_alloc_raw((size_t)size, 1, err);
    if (one->bytes != NULL)
        return RKS_OK;
    drop_range(o, one);
    return RKS_ERR_MEMORY;
}

static rks_status fetch_range(const object *o, const range *one, rks_error *err)
{
    char version[RKS_HOME_VERSION];
    const char *name = rks_stored_object(o->file);
    rks_error why = {0};
    strcpy(version, o->file->version);
    rks_status status =
        rks_home_fetch(o->root->home, name, one->first, one->end, one->bytes, version, &why);
    if (status == RKS_ERR_STATE || status == RKS_ERR_CORRUPT)
        return rks_fail(err, RKS_ERR_DATA, why.cause, "%s: changed during the build: %s",
                        o->file->path, why.text);
    if (status != RKS_OK && err != NULL)
        *err = why;
    return status;
}

/* ---- the range after it ---------------------------------------------------------------------- */

static void *ahead_main(void *user)
{
    object *o = user;
    rks_interrupt_from(&o->stop);
    o->status = fetch_range(o, &o->next, &o->err);
    pthread_mutex_lock(&o->mutex);
    o->ended = true;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->mutex);
    return NULL;
}

/* Starts to fetch what follows, if anything does. If it cannot, the next read fetches it. */
static void look_ahead(object *o)
{
    uint64_t most = o->until < o->file->size ? o->until : o->file->size;
    rks_error ignored;
    if (o->now.end >= most)
        return;
    uint64_t size = most - o->now.end < o->step ? most - o->now.end : o->step;
    if (begin_range(o, o->now.end, size, &o->next, &ignored) != RKS_OK)
        return;
    o->ended = false;
    o->stop = false;
    o->ahead = rks_thread_start(&o->thread, ahead_main, o) == 0;
    if (!o->ahead)
        drop_range(o, &o->next);
}

static void end_ahead(object *o)
{
    if (o->ahead)
        pthread_join(o->thread, NULL);
    o->ahead = false;
}

/* Waits for what is fetched ahead; it becomes what is read from. */
static rks_status take_ahead(object *o, rks_error *err)
{
    rks_status status = RKS_OK;
    pthread_mutex_lock(&o->mutex);
    while (status == RKS_OK && !o->ended) {
        rks_cond_wait_ms(&o->changed, &o->mutex, RKS_WAIT_SLICE_MS);
        pthread_mutex_unlock(&o->mutex);
        status = rks_check_interrupt(err);
        pthread_mutex_lock(&o->mutex);
    }
    pthread_mutex_unlock(&o->mutex);
    if (status != RKS_OK)
        return status; /* close ends it */
    end_ahead(o);
    if (o->status != RKS_OK) {
        if (err != NULL)
            *err = o->err;
        drop_range(o, &o->next);
        return o->status;
    }
    drop_range(o, &o->now);
    o->now = o->next;
    o->next = (range){0};
    return RKS_OK;
}

static void leave_ahead(object *o)
{
    o->stop = true;
    end_ahead(o);
    drop_range(o, &o->next);
}

/* ---- an open object -------------------------------------------------------------------------- */

static rks_status open_object(const rks_input_store *store, const rks_input_file *file,
                              void **opened, rks_error *err)
{
    object *o = rks_alloc(1, sizeof(*o), err);
    if (o == NULL)
        return RKS_ERR_MEMORY;
    o->root = (rks_stored_root *)(uintptr_t)store;
    o->file = file;
    o->until = UINT64_MAX;
    int code = pthread_mutex_init(&o->mutex, NULL);
    if (code == 0 && (code = rks_cond_init(&o->changed)) != 0)
        pthread_mutex_destroy(&o->mutex);
    if (code != 0) {
        rks_free(o);
        return rks_fail_errno(err, code, "%s: preparing to read", file->path);
    }
    *opened = o;
    return RKS_OK;
}

static void close_object(void *opened)
{
    object *o = opened;
    leave_ahead(o);
    drop_range(o, &o->now);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->mutex);
    rks_free(o);
}

static bool is_in(const range *one, uint64_t offset)
{
    return offset >= one->first && offset < one->end;
}

/* Makes `offset` a byte of the range that is read from. */
static rks_status move_to(object *o, uint64_t offset, size_t size, rks_error *err)
{
    bool goes_on = o->now.end > 0 && offset == o->now.end;
    if (o->ahead && is_in(&o->next, offset))
        return take_ahead(o, err);
    leave_ahead(o);
    drop_range(o, &o->now);
    const bool ends = o->until != UINT64_MAX;
    uint64_t wanted = goes_on ? o->step : ends ? UNIT : size < FIRST ? LEAST : FIRST;
    if (offset < o->until && o->until - offset < wanted)
        wanted = o->until - offset;
    wanted = wanted < size && size <= MOST ? size : wanted;
    wanted = wanted < LEAST ? LEAST : wanted;
    rks_status status = begin_range(o, offset, wanted, &o->now, err);
    if (status == RKS_OK)
        status = fetch_range(o, &o->now, err);
    if (status != RKS_OK)
        drop_range(o, &o->now);
    else if (!goes_on)
        o->step = wanted;
    return status;
}

static rks_status read_object(void *opened, uint64_t offset, void *bytes, size_t size, size_t *got,
                              rks_error *err)
{
    object *o = opened;
    rks_status status = RKS_OK;
    if (offset >= o->file->size)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: ends at %" PRIu64, o->file->path, o->file->size);
    if (!is_in(&o->now, offset)) {
        bool known = o->until != UINT64_MAX || (o->now.end > 0 && offset == o->now.end);
        status = move_to(o, offset, size, err);
        if (status == RKS_OK && known) { /* it is read from start to end */
            if (o->now.end < o->until)
                o->step = o->step < MOST / GROWS ? GROWS * o->step : MOST;
            look_ahead(o);
        }
    }
    if (status != RKS_OK)
        return status;
    uint64_t left = o->now.end - offset;
    *got = left < size ? (size_t)left : size;
    memcpy(bytes, o->now.bytes + (offset - o->now.first), *got);
    return RKS_OK;
}

static void until_byte(void *opened, uint64_t end)
{
    ((object *)opened)->until = end;
}

static rks_status find_half(const rks_input_store *store, const char *path, uint64_t *size,
                            char **version, rks_error *err)
{
    const rks_found_list *halves = &((const rks_stored_root *)store)->all->halves;
    for (size_t i = 0; i < halves->count; i++)
        if (strcmp(halves->found[i].file.path, path) == 0) {
            *size = halves->found[i].file.size;
            *version = rks_strdup(halves->found[i].file.version, err);
            return *version == NULL ? RKS_ERR_MEMORY : RKS_OK;
        }
    return rks_fail(err, RKS_ERR_NOT_FOUND, ENOENT, "%s: no such object", path);
}

/* ---- roots ----------------------------------------------------------------------------------- */

rks_status rks_stores_root(rks_stores *stores, const char *url, rks_stored_root **root,
                           const char **name, rks_error *err)
{
    rks_home_address address;
    rks_status status = rks_home_address_of(url, &address, err);
    if (status != RKS_OK)
        return status;
    const char *host = strstr(url, "://") + 3;
    size_t size = (size_t)(host - url) + strcspn(host, "/");
    *name = url + size + (url[size] == '/');
    for (rks_stored_root *one = stores->roots; one != NULL; one = one->next)
        if (strlen(one->url) == size && memcmp(one->url, url, size) == 0) {
            *root = one;
            return RKS_OK;
        }
    rks_stored_root *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    const rks_home_limits limits = {.objects = true, .options = stores->options};
    made->store = (rks_input_store){.open = open_object,
                                    .read = read_object,
                                    .until = until_byte,
                                    .close = close_object,
                                    .find = find_half};
    made->all = stores;
    made->url = rks_format(err, "%.*s", (int)size, url);
    status =
        made->url == NULL ? RKS_ERR_MEMORY : rks_home_open(made->url, &limits, &made->home, err);
    if (status != RKS_OK) {
        free_root(made);
        return status;
    }
    made->next = stores->roots;
    stores->roots = *root = made;
    return RKS_OK;
}
