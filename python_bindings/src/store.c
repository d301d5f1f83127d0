/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: an open store. Calls may run in several threads at once. Each is counted while the GIL
 * or the object is held. Closing waits until none is left, ends the epochs, and passes the store to
 * the group, which frees it once no rank needs it. */
#include "handles.h"

#include <string.h>
#include <time.h>

typedef struct store {
    PyObject_HEAD
    PyObject *group;
    rks_store *handle; /* NULL if closed */
    pid_t pid;
    bool closing;
    size_t users;       /* number of running calls */
    core_epoch *epochs; /* open epochs */
    PyObject
        *index; /* keeps lengths and columns alive, also for plans, after the store is closed */
    uint64_t count;
    PyObject *dataset;
    char *directory; /* as the user gave it */
    PyObject *schema;
    uint32_t columns;
    uint8_t *dim_counts; /* of each column's type */
} store;

static PyTypeObject *store_type;

/* ---- one more user ------------------------------------------------------------------------- */

bool core_is_store(PyObject *object)
{
    return PyObject_TypeCheck(object, store_type);
}

static rks_store *count_user(store *self)
{
    if (core_check_process(self->pid, "store") < 0)
        return NULL;
    if (self->handle == NULL || self->closing)
        return (rks_store *)(void *)core_raise_text(
            RKS_ERR_STATE, "%s: this dataset is closed; open it again", self->directory);
    self->users++;
    return self->handle;
}

rks_store *core_store_enter(PyObject *object)
{
    if (!core_is_store(object))
        return (rks_store *)(void *)PyErr_Format(PyExc_TypeError, "a Store is needed, not %R",
                                                 object);
    return CORE_HELD(object, count_user((store *)object));
}

static void sleep_a_little(void)
{
    const struct timespec little = {0, 1000000};
    Py_BEGIN_ALLOW_THREADS
    nanosleep(&little, NULL);
    Py_END_ALLOW_THREADS
}

/* Returns -1 with an exception of a signal handler. */
static int wait_for_close(const store *self)
{
    while (self->closing) {
        sleep_a_little();
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

static int count_if_open(store *self)
{
    if (wait_for_close(self) < 0)
        return -1;
    self->users += self->handle != NULL;
    return self->handle != NULL;
}

int core_store_try_enter(PyObject *object)
{
    return CORE_HELD(object, count_if_open((store *)object));
}

void core_store_leave(PyObject *object)
{
    (void)CORE_HELD(object, ((store *)object)->users--);
}

PyObject *core_store_index(PyObject *object)
{
    return ((store *)object)->index;
}

uint32_t core_store_columns(PyObject *object)
{
    return ((store *)object)->columns;
}

uint64_t core_store_count(PyObject *object)
{
    return ((store *)object)->count;
}

const uint8_t *core_store_dim_counts(PyObject *object)
{
    return ((store *)object)->dim_counts;
}

static core_epoch *link_epoch(store *self, core_epoch *epoch)
{
    epoch->next = self->epochs;
    epoch->back = &self->epochs;
    if (epoch->next != NULL)
        epoch->next->back = &epoch->next;
    return self->epochs = epoch;
}

void core_store_add_epoch(PyObject *object, core_epoch *epoch)
{
    (void)CORE_HELD(object, link_epoch((store *)object, epoch));
}

static rks_epoch *detach_epoch(core_epoch *epoch)
{
    rks_epoch *handle = epoch->handle;
    if (handle == NULL)
        return NULL;
    epoch->handle = NULL;
    *epoch->back = epoch->next;
    if (epoch->next != NULL)
        epoch->next->back = epoch->back;
    return handle;
}

static rks_epoch *close_epoch(store *self, core_epoch *epoch)
{
    rks_epoch *handle = detach_epoch(epoch);
    self->users++; /* also while the store is being closed, which waits for this */
    Py_BEGIN_ALLOW_THREADS
    rks_epoch_close(handle);
    Py_END_ALLOW_THREADS
    self->users--;
    return handle;
}

void core_store_close_epoch(PyObject *object, core_epoch *epoch)
{
    store *self = (store *)object;
    if (core_is_foreign(self->pid))
        epoch->handle = NULL;
    else
        (void)CORE_HELD(object, close_epoch(self, epoch));
}

/* ---- open and close -------------------------------------------------------------------------- */

/* Returns -1 with an exception of a signal handler; then the store stays open. After the silence
 * limit, calls that wait for samples end. */
static int wait_for_users(store *self)
{
    uint64_t waited_ms = 0, limit_ms = core_group_silence(self->group);
    for (; self->users > 0; waited_ms++) {
        if (waited_ms == limit_ms)
            rks_store_end_reads(self->handle);
        sleep_a_little();
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

/* Waits for the other ranks for at most timeout_ms. The group keeps the store until they have
 * closed it. */
static int close_store(store *self, uint32_t timeout_ms)
{
    if (wait_for_close(self) < 0) /* by another thread */
        return -1;
    if (self->handle == NULL)
        return 0;
    self->closing = true;
    while (self->users > 0 || self->epochs != NULL) {
        if (wait_for_users(self) < 0) {
            self->closing = false;
            return -1;
        }
        if (self->epochs != NULL)
            core_store_close_epoch((PyObject *)self, self->epochs);
    }
    rks_store *handle = self->handle;
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
    rks_store_leave(handle, timeout_ms);
    Py_END_ALLOW_THREADS
    self->closing = false;
    core_group_park(self->group, handle);
    return PyErr_Occurred() ? -1 : 0;
}

static void store_dealloc(PyObject *object)
{
    store *self = (store *)object;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (self->handle != NULL && !core_is_foreign(self->pid)) {
        if (close_store(self, 0) < 0)
            PyErr_WriteUnraisable(NULL);
    }
    PyErr_Restore(type, value, traceback);
    Py_XDECREF(self->index);
    Py_XDECREF(self->dataset);
    Py_XDECREF(self->schema);
    Py_XDECREF(self->group);
    PyMem_Free(self->dim_counts);
    PyMem_Free(self->directory);
    core_free_object(object);
}

static int read_facts(store *self)
{
    const rks_schema *schema = rks_store_schema(self->handle);
    self->count = rks_store_count(self->handle);
    self->columns = rks_schema_columns(schema);
    self->dim_counts = PyMem_Malloc(self->columns + 1);
    self->dataset = PyUnicode_FromString(rks_store_dataset(self->handle));
    self->schema = PyUnicode_FromString(rks_schema_text(schema));
    self->index = core_index_new(rks_store_index(self->handle));
    if (self->dim_counts == NULL)
        PyErr_NoMemory();
    if (PyErr_Occurred())
        return -1;
    for (uint32_t column = 0; column < self->columns; column++)
        self->dim_counts[column] = core_dim_count(rks_schema_type(schema, column));
    return 0;
}

/* The arguments of open: one directory, or several with names. */
typedef struct places {
    core_texts directories, names, columns, shards;
} places;

static bool parse_places(PyObject *directory, PyObject *names, PyObject *columns, PyObject *shards,
                         places *to)
{
    PyObject *one = NULL;
    *to = (places){0};
    if (PyUnicode_Check(directory)) {
        if ((one = PyTuple_Pack(1, directory)) == NULL)
            return false;
        directory = one;
    }
    bool taken = core_texts_take(directory, "directory", &to->directories) &&
                 core_texts_take(names, "names", &to->names) &&
                 core_texts_take(columns, "columns", &to->columns) &&
                 core_texts_take(shards, "shards", &to->shards);
    Py_XDECREF(one);
    if (taken && names != Py_None && to->names.count != to->directories.count) {
        PyErr_Format(PyExc_ValueError, "names: %zu names of %zu datasets", to->names.count,
                     to->directories.count);
        return false;
    }
    return taken;
}

static void free_places(places *of)
{
    core_texts_free(&of->directories);
    core_texts_free(&of->names);
    core_texts_free(&of->columns);
    core_texts_free(&of->shards);
}

/* COLLECTIVE. The newest generation of an open store; *newer stays NULL if it has that. */
static rks_status refresh_store(PyObject *earlier, const places *from,
                                const rks_store_options *options, rks_store **newer, rks_error *err)
{
    rks_store *handle = core_store_enter(earlier);
    rks_status status = RKS_ERR_STATE;
    if (handle == NULL)
        return status;
    Py_BEGIN_ALLOW_THREADS
    status = rks_store_refresh(handle, from->directories.texts, from->directories.count, options,
                               newer, err);
    Py_END_ALLOW_THREADS
    core_store_leave(earlier);
    return status;
}

/* COLLECTIVE. The group is held, so nobody closes it meanwhile. `earlier`: a store of an earlier
 * generation, whose newest one is opened if there is one; NULL: none. */
static int open_store(store *self, const places *from, bool many, const rks_store_options *options,
                      PyObject *earlier)
{
    rks_group *group = core_group_enter(self->group);
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return -1;
    core_group_reap(self->group);
    if (earlier != NULL) {
        status = refresh_store(earlier, from, options, &self->handle, &err);
        if (status == RKS_OK && self->handle != NULL)
            return read_facts(self);
        core_group_leave(self->group);
        if (status != RKS_OK && !PyErr_Occurred())
            core_raise(&err);
        return status == RKS_OK ? 0 : -1;
    }
    Py_BEGIN_ALLOW_THREADS
    if (many)
        status = rks_store_open_many(group, from->directories.texts, from->names.texts,
                                     from->directories.count, options, &self->handle, &err);
    else
        status = rks_store_open(group, from->directories.texts[0], options, &self->handle, &err);
    Py_END_ALLOW_THREADS
    if (status == RKS_OK)
        return read_facts(self);
    core_group_leave(self->group);
    core_raise(&err);
    return -1;
}

static store *create_store(PyTypeObject *type, PyObject *group, const char *directory)
{
    store *self = (store *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->group = Py_NewRef(group);
    self->pid = core_pid();
    self->directory = PyMem_Malloc(strlen(directory) + 1);
    if (self->directory == NULL) {
        PyErr_NoMemory();
        Py_DECREF(self);
        return NULL;
    }
    memcpy(self->directory, directory, strlen(directory) + 1);
    return self;
}

static PyObject *open_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords,
                          PyObject *earlier)
{
    static char *keys[] = {"group",      "directory",       "exchange",   "no_share", "no_check",
                           "missing",    "inflight_bytes",  "quarantine", "names",    "columns",
                           "metrics",    "index_dir",       "shards",     "local",    "copies",
                           "local_room", "storage_options", "room",       NULL};
    PyObject *group, *directory, *inflight = NULL, *room = NULL, *names = Py_None,
                                 *columns = Py_None;
    PyObject *shards = Py_None;
    unsigned int metrics = 0, copies = 0;
    int no_share = 0, no_check = 0;
    rks_store_options options;
    rks_store_options_default(&options);
    const char *exchange = NULL, *missing = NULL, *quarantine = NULL, *index_dir = NULL;
    const char *local = NULL, *storage_options = NULL, *no_room = NULL;
    places from = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|$zppzOzOOIzOzIOzz:Store", keys,
                                     &group, &directory, &exchange, &no_share, &no_check, &missing,
                                     &inflight, &quarantine, &names, &columns, &metrics, &index_dir,
                                     &shards, &local, &copies, &room, &storage_options, &no_room) ||
        !core_number(room, "local_room", 0, UINT64_MAX, &options.local_room) ||
        !core_number(inflight, "inflight_bytes", 0, UINT64_MAX, &options.inflight_bytes))
        return NULL;
    if (exchange != NULL)
        options.exchange = exchange;
    options.no_share = no_share;
    options.no_check = no_check;
    options.missing = missing;
    options.quarantine = quarantine;
    options.metrics_port = metrics;
    options.index_dir = index_dir;
    options.local = local;
    options.room = no_room;
    options.storage_options = storage_options;
    options.copies = copies;
    store *self = NULL;
    if (parse_places(directory, names, columns, shards, &from)) {
        bool many = !PyUnicode_Check(directory) || names != Py_None;
        options.columns = columns == Py_None ? NULL : from.columns.texts;
        options.column_count = from.columns.count;
        options.shards = from.shards.texts;
        options.shard_count = from.shards.count;
        self =
            create_store(type, group, from.directories.count == 0 ? "" : from.directories.texts[0]);
        if (self != NULL && open_store(self, &from, many, &options, earlier) < 0)
            Py_CLEAR(self);
    }
    free_places(&from);
    if (self == NULL || self->handle != NULL)
        return (PyObject *)self;
    Py_DECREF(self);
    Py_RETURN_NONE;
}

static PyObject *store_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    return open_new(type, arguments, keywords, NULL);
}

static PyObject *store_refresh(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    return open_new(store_type, arguments, keywords, object);
}

static PyObject *store_close(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"timeout_ms", NULL};
    store *self = (store *)object;
    PyObject *timeout = NULL;
    uint64_t timeout_ms = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:close", names, &timeout) ||
        !core_number(timeout, "timeout_ms", 0, UINT32_MAX, &timeout_ms))
        return NULL;
    if (core_is_foreign(self->pid)) /* the parent closes it */
        Py_RETURN_NONE;
    if (timeout_ms == 0)
        timeout_ms = core_group_silence(self->group);
    if (CORE_HELD(object, close_store(self, (uint32_t)timeout_ms)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- type ------------------------------------------------------------------------------------ */

static PyObject *get_group(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((store *)object)->group);
}

static PyObject *get_count(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((store *)object)->count);
}

static PyObject *get_dataset(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((store *)object)->dataset);
}

static PyObject *get_schema(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef(((store *)object)->schema);
}

static PyObject *get_closed(PyObject *object, void *unused)
{
    (void)unused;
    store *self = (store *)object;
    return PyBool_FromLong(CORE_HELD(object, self->handle == NULL || self->closing));
}

static PyGetSetDef store_getters[] = {
    {"group", get_group, NULL, "The Group.", NULL},
    {"count", get_count, NULL, "Samples, numbered 0..count-1.", NULL},
    {"dataset", get_dataset, NULL, "The dataset's id: 32 hexadecimal digits.", NULL},
    {"schema", get_schema, NULL, "JSON text.", NULL},
    {"closed", get_closed, NULL, "Has it been closed?", NULL},
    {0},
};

static PyMethodDef store_methods[] = {
    {"lengths", core_store_lengths, METH_NOARGS,
     "uint32[count], read-only; valid while a view is held"},
    {"column", core_store_column, METH_O,
     "column(name) -> (Buffer, type) of an index column, or None"},
    {"owner", core_store_owner, METH_O, "owner(sample) -> the rank that serves it; -1: nobody"},
    {"key", core_store_key, METH_O, "key(sample) -> bytes"},
    {"find", core_store_find, METH_VARARGS, "find(key, source=None) -> sample; KeyError"},
    {"units", core_store_units, METH_NOARGS, "units(): the first id of each unit, as uint64."},
    {"sources", core_store_sources, METH_NOARGS,
     "(name, directory, dataset, first, count, bytes) of each dataset that was opened"},
    {"counted", core_store_counted, METH_NOARGS,
     "(column or None, unit, by a function) of each: what its lengths count"},
    {"split", core_store_split, METH_VARARGS,
     "split(((name, weight), ...), seed, by) -> uint16 of each sample: the number of its part"},
    {"refresh", WITH_KEYWORDS(store_refresh),
     "COLLECTIVE. refresh(group, directory, ...) -> the Store of the newest generation; None: this "
     "one"},
    {"earlier", core_store_earlier, METH_NOARGS,
     "(number, samples, dataset) of earlier generations"},
    {"info", core_store_info, METH_NOARGS, "JSON text"},
    {"placement", core_store_placement, METH_NOARGS, "COLLECTIVE. JSON text"},
    {"stats", core_store_stats, METH_NOARGS, "Figures of this rank since the store was opened"},
    {"fetch", core_store_fetch, METH_O, "fetch(samples) -> Samples; IndexError"},
    {"view", core_store_view, METH_O,
     "view(sample) -> one (Buffer, dims) a column, or None; read-only"},
    {"collate", WITH_KEYWORDS(core_store_collate),
     "collate(samples, collate, pieces=None, bins=None) -> Arrays"},
    {"close", WITH_KEYWORDS(store_close), "COLLECTIVE. Twice is fine."},
    {0},
};

static PyType_Slot store_slots[] = {
    {Py_tp_doc, (void *)"COLLECTIVE. A dataset, open over a group."},
    {Py_tp_new, store_new},
    {Py_tp_dealloc, store_dealloc},
    {Py_tp_methods, store_methods},
    {Py_tp_getset, store_getters},
    {0, NULL},
};

static PyType_Spec store_spec = {
    .name = "rankstore._core.Store",
    .basicsize = sizeof(store),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = store_slots,
};

int core_add_store(PyObject *module)
{
    return core_add_type(module, &store_spec, &store_type);
}
