/* SPDX-License-Identifier: Apache-2.0
 *
 * test_store_collate.c: arrays from a store, on one rank and from others; views; what outlives a
 * store. */
#include "world.h"

#include <pthread.h>
#include <stdatomic.h>

#include "store/store.h"

static char directory[64], derived[64];

typedef struct job {
    const char *directory;
    bool no_share;
    const rks_collate_options *collate;
    void (*body)(member *m, rks_store *store);
    /* of rank 0 when its store is closed */
    rks_batch *batch;
    rks_view *views[2];
    rks_arrays *arrays;
} job;

/* `id` and `text` named anew, `text` packed as text always is, `vec` padded. */
static const rks_collate_column PADDED[] = {
    {.column = "id", .name = "number"},
    {.column = "text", .name = "bytes", .type = "int32"},
    {.column = "vec", .type = "float64", .pad = -1},
};

static rks_collate_options padded(void)
{
    rks_collate_options options;
    rks_collate_options_default(&options);
    options.columns = PADDED;
    options.column_count = 3;
    options.to_multiple = 8;
    options.mask = "mask";
    return options;
}

static rks_collate_options packed(void)
{
    rks_collate_options options;
    rks_collate_options_default(&options);
    options.layout = "pack";
    options.positions = "positions";
    return options;
}

static void job_rank(member *m)
{
    job *j = m->user;
    rks_store *store = NULL;
    rks_store_options options;
    rks_store_options_default(&options);
    options.no_share = j->no_share;
    if (!world_enter(m, false))
        return;
    EXPECT_OK(rks_store_open(m->group, j->directory, &options, &store, &m->err));
    if (store != NULL)
        j->body(m, store);
    rks_store_close(store, CLOSE_MS);
}

/* ---- what arrays hold ------------------------------------------------------------------------ */

static bool padded_is(const rks_arrays *arrays, size_t i, uint64_t number)
{
    world_sample sample;
    world_make(number, &sample);
    const rks_array *ids = rks_arrays_get(arrays, 0), *text = rks_arrays_get(arrays, 1);
    const rks_array *vec = rks_arrays_get(arrays, 2), *mask = rks_arrays_get(arrays, 3);
    const int32_t *bytes = (const int32_t *)text->data + text->offsets[i];
    const double *floats = (const double *)vec->data + i * vec->dims[1];
    const int64_t *ones = (const int64_t *)mask->data + i * mask->dims[1];
    uint32_t size = world_text_size(number);
    bool good = rks_arrays_ids(arrays)[i] == number && rks_arrays_lengths(arrays)[i] == size &&
                ((const int64_t *)ids->data)[i] == (int64_t)number &&
                text->offsets[i + 1] - text->offsets[i] == size && vec->dims[1] % 8 == 0 &&
                mask->dims[1] == vec->dims[1] && vec->dims[1] >= number % 6;
    for (uint32_t k = 0; good && k < size; k++)
        good = bytes[k] == sample.text[k];
    for (uint64_t k = 0; good && k < vec->dims[1]; k++)
        good = floats[k] == (k < number % 6 ? (double)sample.vec[k] : -1) &&
               ones[k] == (k < number % 6);
    return good;
}

static bool packed_is(const rks_arrays *arrays, size_t i, uint64_t number)
{
    world_sample sample;
    world_make(number, &sample);
    const rks_array *text = rks_arrays_get(arrays, 1), *vec = rks_arrays_get(arrays, 2);
    const rks_array *positions = rks_arrays_get(arrays, 3);
    int64_t from = text->offsets[i], size = text->offsets[i + 1] - from;
    int64_t first = vec->offsets[i], floats = vec->offsets[i + 1] - first;
    bool good = rks_arrays_ids(arrays)[i] == number && size == world_text_size(number) &&
                floats == (int64_t)(number % 6) &&
                memcmp((const char *)text->data + from, sample.text, (size_t)size) == 0 &&
                memcmp((const float *)vec->data + first, sample.vec, 4 * (size_t)floats) == 0;
    for (int64_t k = 0; good && k < floats; k++)
        good = ((const int64_t *)positions->data)[first + k] == k;
    return good;
}

/* ---- whole calls and epochs ------------------------------------------------------------------ */

static void collate_by_ids(member *m, rks_store *store)
{
    const job *j = m->user;
    uint64_t ids[SAMPLES + 2];
    rks_arrays *arrays = NULL, *same = NULL;
    rks_batch *batch = NULL;
    for (uint64_t i = 0; i < SAMPLES + 2; i++)
        ids[i] = i * 101 % SAMPLES; /* some twice */
    EXPECT_OK(rks_store_collate(store, ids, SAMPLES + 2, j->collate, &arrays, &m->err));
    EXPECT_OK(rks_store_fetch(store, ids, SAMPLES + 2, &batch, &m->err));
    EXPECT_OK(rks_batch_collate(batch, j->collate, &same, &m->err));
    bool pack = strcmp(j->collate->layout, "pack") == 0;
    for (size_t i = 0; arrays != NULL && same != NULL && i < SAMPLES + 2; i++) {
        EXPECT(pack ? packed_is(arrays, i, ids[i]) : padded_is(arrays, i, ids[i]));
        EXPECT(pack ? packed_is(same, i, ids[i]) : padded_is(same, i, ids[i]));
        EXPECT(world_is(batch, i, ids[i])); /* which stays as it is */
    }
    rks_arrays_free(arrays);
    rks_arrays_free(same);
    rks_batch_free(batch);
    EXPECT_OK(rks_store_collate(store, NULL, 0, j->collate, &arrays, &m->err));
    EXPECT(rks_arrays_samples(arrays) == 0 && rks_arrays_get(arrays, 0)->size == 0);
    rks_arrays_free(arrays);
    ids[1] = SAMPLES;
    EXPECT(rks_store_collate(store, ids, 2, j->collate, &arrays, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("out of range");
}

static void equal_arrays(member *m, const rks_arrays *a, const rks_arrays *b)
{
    EXPECT(rks_arrays_samples(a) == rks_arrays_samples(b));
    EXPECT(rks_arrays_count(a) == rks_arrays_count(b));
    for (size_t i = 0; i < rks_arrays_count(a); i++) {
        const rks_array *one = rks_arrays_get(a, i), *other = rks_arrays_get(b, i);
        EXPECT(one->size == other->size && memcmp(one->data, other->data, one->size) == 0);
        EXPECT(memcmp(one->dims, other->dims, sizeof(one->dims)) == 0);
    }
    EXPECT(memcmp(rks_arrays_ids(a), rks_arrays_ids(b), 8 * rks_arrays_samples(a)) == 0);
    EXPECT(memcmp(rks_arrays_lengths(a), rks_arrays_lengths(b), 4 * rks_arrays_samples(a)) == 0);
}

static void compare_epochs(member *m, rks_store *store)
{
    const job *j = m->user;
    rks_plan *plan = NULL;
    rks_epoch *plain = NULL, *collated = NULL;
    rks_plan_options plan_options;
    rks_epoch_options options;
    rks_plan_options_default(&plan_options);
    rks_epoch_options_default(&options);
    plan_options.batch_size = 5;
    options.prefetch_batches = 3;
    EXPECT_OK(rks_plan_open(store, &plan_options, &plan, &m->err));
    EXPECT_OK(rks_epoch_open(store, plan, &options, &plain, &m->err));
    options.collate = j->collate;
    EXPECT_OK(rks_epoch_open(store, plan, &options, &collated, &m->err));
    rks_batch *batch = NULL;
    rks_arrays *arrays = NULL, *expected = NULL;
    EXPECT(rks_epoch_next(collated, &batch, NULL, &m->err) == RKS_ERR_STATE);
    EXPECT(rks_epoch_next_arrays(plain, &arrays, NULL, &m->err) == RKS_ERR_STATE);
    for (uint64_t steps = 0;; steps++) {
        uint64_t step = 0, other = 0;
        EXPECT_OK(rks_epoch_next(plain, &batch, &step, &m->err));
        EXPECT_OK(rks_epoch_next_arrays(collated, &arrays, &other, &m->err));
        EXPECT((batch == NULL) == (arrays == NULL));
        if (batch == NULL || arrays == NULL)
            break;
        EXPECT(step == steps && other == steps);
        EXPECT_OK(rks_batch_collate(batch, j->collate, &expected, &m->err));
        if (expected != NULL)
            equal_arrays(m, arrays, expected);
        rks_arrays_free(expected);
        rks_arrays_free(arrays);
        rks_batch_free(batch);
    }
    rks_epoch_close(plain);
    rks_epoch_close(collated);
    rks_plan_free(plan);
}

/* ---- arenas ---------------------------------------------------------------------------------- */

enum { ARENAS_MOST = 16, UNTOUCHED = 0xa5 };

typedef struct owner {
    pthread_mutex_t mutex;
    int added, done;                                       /* guarded by mutex */
    const uint8_t *memory[ARENAS_MOST], *end[ARENAS_MOST]; /* guarded; NULL once it is done */
    int inside;                                            /* batches that lay in one of them */
} owner;

static bool lies_inside(owner *o, const rks_arrays *arrays)
{
    const uint8_t *at = (const uint8_t *)arrays;
    bool found = false;
    pthread_mutex_lock(&o->mutex);
    for (int i = 0; i < o->added; i++)
        found |= at >= o->memory[i] && at < o->end[i];
    pthread_mutex_unlock(&o->mutex);
    return found;
}

/* An arena is malloc's, with its owner in front. */
static void arena_done(void *user)
{
    owner *o = *(owner **)user;
    const uint8_t *memory = (const uint8_t *)((owner **)user + 1);
    pthread_mutex_lock(&o->mutex);
    for (int i = 0; i < ARENAS_MOST; i++)
        if (o->memory[i] == memory)
            o->memory[i] = o->end[i] = NULL;
    o->done++;
    pthread_mutex_unlock(&o->mutex);
    free(user);
}

static void add_wanted(member *m, rks_arenas *arenas, owner *o)
{
    size_t bytes = rks_arenas_wanted(arenas);
    if (bytes == 0)
        return;
    owner **made = malloc(sizeof(*made) + bytes);
    EXPECT(made != NULL && o->added < ARENAS_MOST);
    if (made == NULL)
        return;
    *made = o;
    pthread_mutex_lock(&o->mutex);
    o->memory[o->added] = (const uint8_t *)(made + 1);
    o->end[o->added] = o->memory[o->added] + bytes;
    o->added++;
    pthread_mutex_unlock(&o->mutex);
    EXPECT_OK(rks_arenas_add(arenas, made + 1, bytes, arena_done, made, &m->err));
}

static bool all_done(owner *o)
{
    pthread_mutex_lock(&o->mutex);
    bool done = o->done == o->added;
    pthread_mutex_unlock(&o->mutex);
    return done;
}

static rks_epoch *open_with(member *m, rks_store *store, rks_plan *plan, rks_arenas *arenas)
{
    const job *j = m->user;
    rks_epoch *epoch = NULL;
    rks_epoch_options options;
    rks_epoch_options_default(&options);
    options.prefetch_batches = 3;
    options.collate = j->collate;
    options.arenas = arenas;
    EXPECT_OK(rks_epoch_open(store, plan, &options, &epoch, &m->err));
    return epoch;
}

/* Two batches are held beside the next one: whatever is collated meanwhile leaves them as they are.
 */
static void compare_all(member *m, rks_epoch *plain, rks_epoch *inside, rks_arenas *arenas,
                        owner *o, rks_arrays **last)
{
    rks_arrays *expected[3] = {NULL}, *arrays[3] = {NULL};
    for (int step = 0;; step++) {
        int i = step % 3;
        for (int k = 0; k < 3; k++)
            if (arrays[k] != NULL)
                equal_arrays(m, arrays[k], expected[k]);
        rks_arrays_free(expected[i]);
        rks_arrays_free(arrays[i]);
        expected[i] = arrays[i] = NULL;
        EXPECT_OK(rks_epoch_next_arrays(plain, &expected[i], NULL, &m->err));
        EXPECT_OK(rks_epoch_next_arrays(inside, &arrays[i], NULL, &m->err));
        EXPECT((expected[i] == NULL) == (arrays[i] == NULL));
        if (expected[i] == NULL || arrays[i] == NULL)
            break;
        o->inside += lies_inside(o, arrays[i]);
        add_wanted(m, arenas, o);
    }
    for (int k = 0; k < 3; k++) {
        if (arrays[k] != NULL && *last == NULL)
            *last = arrays[k];
        else
            rks_arrays_free(arrays[k]);
        rks_arrays_free(expected[k]);
    }
}

/* Batches in arenas equal those of the library's memory; few arenas serve all, and they are the
 * caller's again when the epoch is closed and the last arrays are freed. */
static void collate_in_arenas(member *m, rks_store *store)
{
    owner o = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    rks_plan *plan = NULL;
    rks_epoch *none = NULL;
    rks_arenas *arenas = NULL;
    rks_arrays *last = NULL;
    rks_plan_options plan_options;
    rks_epoch_options options;
    rks_plan_options_default(&plan_options);
    rks_epoch_options_default(&options);
    plan_options.batch_size = 2;
    EXPECT_OK(rks_plan_open(store, &plan_options, &plan, &m->err));
    EXPECT_OK(rks_arenas_create(&arenas, &m->err));
    options.arenas = arenas;
    EXPECT(rks_epoch_open(store, plan, &options, &none, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("arenas");
    rks_epoch *plain = open_with(m, store, plan, NULL);
    rks_epoch *inside = open_with(m, store, plan, arenas);
    if (plain != NULL && inside != NULL)
        compare_all(m, plain, inside, arenas, &o, &last);
    EXPECT(o.added >= 1 && o.inside >= 1 && last != NULL);
    bool holds = lies_inside(&o, last); /* unless no arena was free for it */
    rks_arenas_free(arenas);
    rks_epoch_close(inside);
    rks_epoch_close(plain);
    EXPECT(all_done(&o) == !holds);
    rks_arrays_free(last);
    EXPECT(all_done(&o));
    rks_plan_free(plan);
}

/* Left in the midst of it, again and again: what a thread is at work on is written to its end
 * first. */
static void leave_arenas_early(member *m, rks_store *store)
{
    rks_plan *plan = NULL;
    rks_plan_options plan_options;
    rks_plan_options_default(&plan_options);
    plan_options.batch_size = 2;
    EXPECT_OK(rks_plan_open(store, &plan_options, &plan, &m->err));
    for (int round = 0; round < 12; round++) {
        owner o = {.mutex = PTHREAD_MUTEX_INITIALIZER};
        rks_arenas *arenas = NULL;
        EXPECT_OK(rks_arenas_create(&arenas, &m->err));
        rks_epoch *epoch = open_with(m, store, plan, arenas);
        for (int step = 0; epoch != NULL && step < 3 + round % 4; step++) {
            rks_arrays *arrays = NULL;
            EXPECT_OK(rks_epoch_next_arrays(epoch, &arrays, NULL, &m->err));
            add_wanted(m, arenas, &o);
            rks_arrays_free(arrays);
        }
        rks_epoch_close(epoch);
        for (int i = 0; i < 30000 && !all_done(&o); i++) /* fetches that were cancelled end */
            nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
        EXPECT(all_done(&o));
        rks_arenas_free(arenas);
    }
    rks_plan_free(plan);
}

static void note_done(void *user)
{
    atomic_store((atomic_bool *)user, true);
}

/* Behind the close nothing writes there any more, though fetches that were cancelled may go on.
 * Wide batches take long to collate; each round closes a little later. Returns whether the arena
 * was written to. */
static bool close_in_the_midst(member *m, rks_store *store, rks_plan *plan, long wait_ns)
{
    atomic_bool done = false;
    rks_arenas *arenas = NULL;
    rks_arrays *arrays = NULL;
    EXPECT_OK(rks_arenas_create(&arenas, &m->err));
    rks_epoch *epoch = open_with(m, store, plan, arenas);
    EXPECT_OK(rks_epoch_next_arrays(epoch, &arrays, NULL, &m->err));
    rks_arrays_free(arrays);
    size_t bytes = rks_arenas_wanted(arenas);
    uint8_t *memory = malloc(2 * bytes), *copy = memory + bytes;
    memset(memory, UNTOUCHED, bytes);
    EXPECT_OK(rks_arenas_add(arenas, memory, bytes, note_done, &done, &m->err));
    EXPECT_OK(rks_epoch_next_arrays(epoch, &arrays, NULL, &m->err)); /* the next one is begun */
    nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
    rks_arrays_free(arrays);
    rks_epoch_close(epoch);
    memcpy(copy, memory, bytes);
    for (int i = 0; i < 30000 && !atomic_load(&done); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    EXPECT(atomic_load(&done) && memcmp(copy, memory, bytes) == 0);
    bool written = false;
    for (size_t i = 0; i < 4096; i++) /* the arrays' own head */
        written |= memory[i] != UNTOUCHED;
    rks_arenas_free(arenas);
    free(memory);
    return written;
}

static void close_while_a_batch_is_written(member *m, rks_store *store)
{
    rks_plan *plan = NULL;
    rks_plan_options plan_options;
    rks_plan_options_default(&plan_options);
    plan_options.batch_size = SAMPLES / 8;
    EXPECT_OK(rks_plan_open(store, &plan_options, &plan, &m->err));
    int written = 0;
    for (int round = 0; round < 20 || (written == 0 && round < 1000);
         round++) /* on a busy machine */
        written += close_in_the_midst(m, store, plan, round * 100 * 1000);
    EXPECT(written > 0);
    rks_plan_free(plan);
}

static void run_all(void (*body)(member *m, rks_store *store))
{
    const rks_collate_options options[] = {padded(), packed()};
    for (uint32_t i = 0; i < 12; i++) {
        job j = {.directory = i % 2 == 0 ? directory : derived,
                 .no_share = i / 4 == 2,
                 .collate = &options[i / 2 % 2],
                 .body = body};
        on_threads(i / 4 == 0 ? 1 : 2, job_rank, &j);
    }
}

static void samples_by_id_become_arrays(void **state)
{
    (void)state;
    run_all(collate_by_ids);
}

static void epochs_with_collate_equal_those_without(void **state)
{
    (void)state;
    run_all(compare_epochs);
}

static void epochs_in_arenas_equal_those_without(void **state)
{
    (void)state;
    run_all(collate_in_arenas);
}

static void arenas_of_an_epoch_that_is_left_come_back(void **state)
{
    (void)state;
    run_all(leave_arenas_early);
}

static void nothing_is_written_behind_the_close(void **state)
{
    (void)state;
    rks_collate_options wide = padded();
    wide.to_multiple = 4096;
    job j = {.directory = directory, .collate = &wide, .body = close_while_a_batch_is_written};
    on_threads(1, job_rank, &j);
}

static void refuse_options(member *m, rks_store *store)
{
    const job *j = m->user;
    rks_plan *plan = NULL;
    rks_epoch *epoch = NULL;
    rks_arrays *arrays = NULL;
    rks_batch *batch = NULL;
    rks_collate_column column = {.column = "text", .type = "int8"};
    rks_collate_options collate = *j->collate;
    rks_epoch_options options;
    uint64_t id = 0;
    collate.columns = &column;
    collate.column_count = 1;
    rks_epoch_options_default(&options);
    options.collate = &collate;
    EXPECT_OK(rks_plan_open(store, NULL, &plan, &m->err));
    EXPECT(rks_epoch_open(store, plan, &options, &epoch, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_TEXT("\"text\"");
    EXPECT(rks_store_collate(store, &id, 1, &collate, &arrays, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_OK(rks_store_fetch(store, &id, 1, &batch, &m->err));
    EXPECT(rks_batch_collate(batch, &collate, &arrays, &m->err) == RKS_ERR_ARGUMENT);
    rks_batch_free(batch);
    rks_plan_free(plan);
}

static void wrong_options_are_refused_by_every_call(void **state)
{
    (void)state;
    const rks_collate_options options = padded();
    job j = {.directory = directory, .collate = &options, .body = refuse_options};
    on_threads(1, job_rank, &j);
}

/* ---- views ----------------------------------------------------------------------------------- */

static bool view_is(const rks_view *view, uint64_t number)
{
    world_sample sample;
    world_make(number, &sample);
    for (uint32_t column = 0; column < 3; column++) {
        rks_value value;
        if (rks_view_value(view, column, &value, NULL) != RKS_OK ||
            value.size != sample.values[column].size ||
            (value.size > 0 && memcmp(value.data, sample.values[column].data, value.size) != 0))
            return false;
    }
    return true;
}

static void view_all(member *m, rks_store *store)
{
    const job *j = m->user;
    rks_view *view = NULL;
    rks_value value;
    for (uint64_t id = 0; id < SAMPLES; id++) {
        EXPECT_OK(rks_store_view(store, id, &view, &m->err));
        EXPECT(view != NULL && view_is(view, id));
        rks_view_free(view);
        view = NULL;
    }
    EXPECT(rks_store_view(store, SAMPLES, &view, &m->err) == RKS_ERR_ARGUMENT);
    EXPECT_OK(rks_store_view(store, 0, &view, &m->err));
    EXPECT(rks_view_value(view, 3, &value, &m->err) == RKS_ERR_ARGUMENT);
    rks_view_free(view);
    rks_view_free(NULL);
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_store_stats_get(store, &stats);
    EXPECT(stats.samples == SAMPLES + 1);
    EXPECT(j->no_share ? stats.remote_bytes > 0 : stats.remote_bytes == 0);
}

static void views_show_every_sample(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        job j = {.directory = i % 2 == 0 ? directory : derived,
                 .no_share = i / 2 == 1,
                 .body = view_all};
        on_threads(2, job_rank, &j);
    }
}

/* ---- at once --------------------------------------------------------------------------------- */

enum { ROOM = 1 << 16 };

static bool values_are(const rks_value *values, uint64_t number)
{
    world_sample sample;
    world_make(number, &sample);
    for (uint32_t column = 0; column < 3; column++)
        if (values[column].size != sample.values[column].size ||
            (values[column].size > 0 &&
             memcmp(values[column].data, sample.values[column].data, values[column].size) != 0))
            return false;
    return true;
}

/* Where another rank serves a sample, or it does not fit, nothing is read, and nothing allocated.
 */
static void read_all_now(member *m, rks_store *store)
{
    const job *j = m->user;
    _Alignas(64) static _Thread_local uint8_t to[ROOM];
    rks_value values[3];
    bool done = false, all = false;
    /* The first round looks which files are in memory. The system may take pages back meanwhile:
     * then they are looked at anew after a while. */
    for (int round = 0; round < 3000 && !all; round++) {
        uint64_t read = 0;
        for (uint64_t id = 0; id < SAMPLES; id++) {
            long before = rks_memory_in_use();
            EXPECT_OK(rks_store_read_now(store, id, to, ROOM, values, &done, &m->err));
            EXPECT(j->no_share ||
                   rks_memory_in_use() == before); /* else other ranks allocate, too */
            EXPECT(!done || (values_are(values, id) && (const uint8_t *)values[0].data >= to &&
                             (const uint8_t *)values[0].data < to + ROOM));
            EXPECT(!done || !j->no_share || rks_store_owner(store, id) == m->rank);
            read += done;
            EXPECT_OK(rks_store_read_now(store, id, to, 8, values, &done, &m->err));
            EXPECT(!done);
        }
        all = j->no_share ? read > 0 && read < SAMPLES : read == SAMPLES;
        if (round > 0 && !all)
            nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    EXPECT(all);
    EXPECT(rks_store_read_now(store, SAMPLES, to, ROOM, values, &done, &m->err) ==
           RKS_ERR_ARGUMENT);
    EXPECT(!done);
}

static void samples_of_this_node_are_read_at_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        job j = {.directory = i % 2 == 0 ? directory : derived,
                 .no_share = i / 2 == 1,
                 .body = read_all_now};
        on_threads(i / 2 == 1 ? 2 : 1, job_rank, &j);
    }
}

/* ---- what outlives its store ----------------------------------------------------------------- */

static void keep_things(member *m, rks_store *store)
{
    job *j = m->user;
    const uint64_t ids[] = {7, SAMPLES - 1, 43};
    if (m->rank != 0)
        return;
    EXPECT_OK(rks_store_fetch(store, ids, 3, &j->batch, &m->err));
    EXPECT_OK(rks_store_view(store, ids[0], &j->views[0], &m->err));
    EXPECT_OK(rks_store_view(store, ids[1], &j->views[1], &m->err));
    EXPECT_OK(rks_store_collate(store, ids, 3, j->collate, &j->arrays, &m->err));
}

/* on_threads, where memory may stay in use. */
static void run_and_keep(job *j)
{
    member_start start = {job_rank, j};
    rks_error err = {0};
    int code = -1;
    alarm(LIMIT_S);
    assert_ok(rks_launch_threads(2, run_member, &start, &code, &err), &err);
    assert_int_equal(code, 0);
    assert_true(rks_memory_in_use() > 0);
    alarm(0);
}

static void batches_views_and_arrays_outlive_their_store(void **state)
{
    (void)state;
    const uint64_t ids[] = {7, SAMPLES - 1, 43};
    const rks_collate_options options = padded();
    for (uint32_t i = 0; i < 4; i++) {
        rks_error err = {0};
        rks_arrays *again = NULL;
        job j = {.directory = i % 2 == 0 ? directory : derived,
                 .no_share = i / 2 == 1,
                 .collate = &options,
                 .body = keep_things};
        run_and_keep(&j);
        assert_ok(rks_batch_collate(j.batch, &options, &again, &err), &err);
        uint64_t sum[2] = {0, 0};
        rks_batch_digest(j.batch, sum);
        for (size_t k = 0; k < 3; k++) {
            size_t size = 0;
            const void *key = rks_batch_key(j.batch, k, &size);
            assert_true(world_is(j.batch, k, ids[k]));
            assert_true(padded_is(j.arrays, k, ids[k]));
            assert_true(padded_is(again, k, ids[k]));
            assert_non_null(key);
            assert_true(size > 6 && memcmp(key, i % 2 == 0 ? "key " : "part ", 4) == 0);
        }
        rks_batch_free(j.batch);
        assert_true(view_is(j.views[0], ids[0]));
        rks_view_free(j.views[0]);
        assert_true(view_is(j.views[1], ids[1]));
        rks_view_free(j.views[1]);
        assert_true(padded_is(j.arrays, 2, ids[2]));
        memset(rks_arrays_get(again, 1)->data, 0, rks_arrays_get(again, 1)->size); /* writable */
        rks_arrays_free(again);
        rks_arrays_free(j.arrays);
        assert_int_equal(rks_memory_in_use(), 0);
        assert_int_equal(counted_memory(), 0);
    }
}

/* ---- failing allocations --------------------------------------------------------------------- */

static void fail_allocations(member *m, rks_store *store)
{
    const job *j = m->user;
    const uint64_t ids[] = {7, SAMPLES - 1, 43};
    for (int what = 0; what < 2; what++) {
        rks_status status = RKS_ERR_MEMORY;
        long n = 0;
        while (status != RKS_OK) {
            rks_arrays *arrays = NULL;
            rks_view *view = NULL;
            long before = rks_memory_in_use();
            rks_memory_fail_at(++n);
            status = what == 0 ? rks_store_collate(store, ids, 3, j->collate, &arrays, &m->err)
                               : rks_store_view(store, ids[1], &view, &m->err);
            rks_memory_fail_at(0);
            EXPECT(status == RKS_OK || status == RKS_ERR_MEMORY);
            rks_arrays_free(arrays);
            rks_view_free(view);
            EXPECT(j->no_share ||
                   rks_memory_in_use() == before); /* else other ranks allocate, too */
        }
        EXPECT(n > (what == 0 ? 6 : 1));
    }
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const rks_collate_options options = padded();
    job j = {.directory = directory, .collate = &options, .body = fail_allocations};
    on_threads(1, job_rank, &j);
}

/* ---- main ------------------------------------------------------------------------------------ */

static int prepare(void **state)
{
    (void)state;
    world_directory(directory);
    world_directory(derived);
    world_dataset(directory, 2, false);
    world_job build = {.directory = derived};
    world_build_options(&build.options);
    build.options.own_keys = false;
    on_threads(2, world_build_rank, &build);
    return 0;
}

static int finish(void **state)
{
    (void)state;
    world_remove(directory);
    world_remove(derived);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_by_id_become_arrays),
        cmocka_unit_test(epochs_with_collate_equal_those_without),
        cmocka_unit_test(epochs_in_arenas_equal_those_without),
        cmocka_unit_test(arenas_of_an_epoch_that_is_left_come_back),
        cmocka_unit_test(nothing_is_written_behind_the_close),
        cmocka_unit_test(wrong_options_are_refused_by_every_call),
        cmocka_unit_test(views_show_every_sample),
        cmocka_unit_test(samples_of_this_node_are_read_at_once),
        cmocka_unit_test(batches_views_and_arrays_outlive_their_store),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("store_collate", tests, prepare, finish);
}
