/* SPDX-License-Identifier: Apache-2.0
 *
 * stored.c: stores, and reading their objects. A reader has the range that it reads from, and while
 * it reads on, the one after it, which comes meanwhile. Ranges grow as reads follow each other. */
#include "ingest/stored.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "home/address.h"
#include "ingest/stored_range.h"

enum {
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
    made->input_bytes = input_bytes == 0          ? RKS_INPUT_BYTES
                        : input_bytes < INT64_MAX ? input_bytes
                                                  : INT64_MAX;
    made->left = (int64_t)made->input_bytes;
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
    rks_range_drop_kept(stores);
    for (rks_stored_root *root = stores->roots, *next; root != NULL; root = next) {
        next = root->next;
        free_root(root);
    }
    rks_found_list_free(&stores->halves);
    rks_buffer_free(&stores->noted);
    pthread_mutex_destroy(&stores->mutex);
    rks_free(stores);
}

bool rks_stores_hold(rks_stores *stores, uint64_t *held, uint64_t bytes)
{
    const int64_t more = (int64_t)bytes - (int64_t)*held;
    pthread_mutex_lock(&stores->mutex);
    const bool fits = more <= 0 || stores->left >= more;
    stores->left -= fits ? more : 0;
    pthread_mutex_unlock(&stores->mutex);
    *held = fits ? bytes : *held;
    return fits;
}

/* ---- an open object -------------------------------------------------------------------------- */

typedef struct object {
    rks_stored_root *root;
    const rks_input_file *file;
    uint64_t until;         /* no byte from here on is sent ahead */
    uint64_t step;          /* size of the next range, if reading goes on */
    rks_stored_range *now;  /* what is read from; NULL: nothing */
    rks_stored_range *next; /* the range after it, started; NULL: none */
} object;

const char *rks_stored_object(const rks_input_file *file)
{
    const rks_stored_root *root = (const rks_stored_root *)file->store;
    return file->path + strlen(root->url) + 1;
}

static rks_status open_object(const rks_input_store *store, const rks_input_file *file,
                              void **opened, rks_error *err)
{
    object *o = rks_alloc(1, sizeof(*o), err);
    if (o == NULL)
        return RKS_ERR_MEMORY;
    o->root = (rks_stored_root *)(uintptr_t)store;
    o->file = file;
    o->until = UINT64_MAX;
    *opened = o;
    return RKS_OK;
}

/* Another reader may come for it; the one that reads units is the last. */
static void leave_range(const object *o, rks_stored_range **range)
{
    if (o->root->all->reads_once)
        rks_range_drop(*range);
    else
        rks_range_keep(*range);
    *range = NULL;
}

static void close_object(void *opened)
{
    object *o = opened;
    leave_range(o, &o->now);
    leave_range(o, &o->next);
    rks_free(o);
}

static uint64_t now_ends(const object *o)
{
    return o->now == NULL ? 0 : o->now->end;
}

/* Starts to fetch what follows, if anything does. If it cannot, the next read fetches it. */
static void look_ahead(object *o)
{
    uint64_t most = o->until < o->file->size ? o->until : o->file->size, from = now_ends(o);
    rks_error ignored;
    if (from >= most || o->next != NULL || rks_range_is_kept(o->root, o->file, from))
        return;
    uint64_t size = most - from < o->step ? most - from : o->step;
    if (rks_range_make(o->root, o->file, from, size, &o->next, &ignored) != RKS_OK)
        return;
    if (!rks_range_start(o->next)) {
        rks_range_drop(o->next);
        o->next = NULL;
    }
}

/* Makes a range that comes, or has come, what is read from. */
static rks_status read_from(object *o, rks_stored_range *range, rks_error *err)
{
    rks_status status = rks_range_wait(range, err);
    if (status != RKS_OK) {
        rks_range_drop(range);
        return status;
    }
    leave_range(o, &o->now);
    o->now = range;
    return RKS_OK;
}

/* Returns how much to read from `offset` on, for a reader that wants `size` bytes now. */
static uint64_t range_size(const object *o, uint64_t offset, size_t size, bool goes_on)
{
    const bool ends = o->until != UINT64_MAX;
    uint64_t wanted = goes_on ? o->step : ends ? UNIT : size < FIRST ? RKS_RANGE_LEAST : FIRST;
    wanted = wanted < size && size <= MOST ? size : wanted;
    if (offset < o->until && o->until - offset < wanted)
        wanted = o->until - offset;
    return wanted < RKS_RANGE_LEAST ? RKS_RANGE_LEAST : wanted;
}

/* Makes `offset` a byte of the range that is read from. */
static rks_status move_to(object *o, uint64_t offset, size_t size, rks_error *err)
{
    bool goes_on = o->now != NULL && offset == o->now->end;
    rks_stored_range *range = NULL;
    if (o->next != NULL && offset == o->next->first) {
        range = o->next;
        o->next = NULL;
        return read_from(o, range, err);
    }
    rks_range_drop(o->next);
    o->next = NULL;
    if (!goes_on)
        o->step = FIRST;
    range = rks_range_take(o->root, o->file, offset);
    if (range != NULL)
        return read_from(o, range, err);
    leave_range(o, &o->now); /* it makes room */
    uint64_t wanted = range_size(o, offset, size, goes_on);
    rks_status status = rks_range_make(o->root, o->file, offset, wanted, &range, err);
    if (status == RKS_OK)
        status = rks_range_fetch(range, err);
    if (status != RKS_OK) {
        rks_range_drop(range);
        return status;
    }
    o->now = range;
    o->step = goes_on ? o->step : wanted;
    return RKS_OK;
}

static rks_status read_object(void *opened, uint64_t offset, void *bytes, size_t size, size_t *got,
                              rks_error *err)
{
    object *o = opened;
    rks_status status = RKS_OK;
    if (offset >= o->file->size)
        return rks_fail(err, RKS_ERR_DATA, 0, "%s: ends at %" PRIu64, o->file->path, o->file->size);
    if (o->now == NULL || offset < o->now->first || offset >= o->now->end) {
        bool known = o->until != UINT64_MAX || (o->now != NULL && offset == o->now->end);
        status = move_to(o, offset, size, err);
        if (status == RKS_OK && known) { /* it is read from start to end */
            if (o->now->end < o->until)
                o->step = o->step < MOST / GROWS ? GROWS * o->step : MOST;
            look_ahead(o);
        }
    }
    if (status != RKS_OK)
        return status;
    uint64_t left = o->now->end - offset;
    *got = left < size ? (size_t)left : size;
    memcpy(bytes, o->now->bytes + (offset - o->now->first), *got);
    return RKS_OK;
}

static void fetch_ahead(const rks_input_store *store, const rks_input_file *file, uint64_t first,
                        uint64_t end)
{
    uint64_t most = end - first < UNIT ? end : first + UNIT;
    rks_range_ahead((rks_stored_root *)(uintptr_t)store, file, first, most);
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
                                    .ahead = fetch_ahead,
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
