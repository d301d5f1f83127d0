/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: Group, and launchers written in Python. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "handles.h"

#include <structmember.h>

typedef struct group_object {
    PyObject_HEAD
    rks_group *group;
    PyObject *allgather, *check; /* NULL if not given */
    pid_t owner;
    unsigned rank, size, node, nodes;
    uint32_t silence_ms;
    int held; /* stores, builders and calls that use the group */
    int parked_count;
    core_parked *parked; /* each holds the group */
    char closed;
    bool is_last; /* the C group ends with the process */
} group_object;

static PyTypeObject *group_type;

/* ---- a launcher written in Python ----------------------------------------------------------- */

static rks_status python_allgather(void *user, const void *record, size_t record_size, void *all,
                                   uint32_t timeout_ms, rks_error *err)
{
    group_object *self = user;
    PyGILState_STATE state = PyGILState_Ensure();
    rks_status status = RKS_OK;
    bool taken = false;
    if (PyErr_Occurred() == NULL) {
        PyObject *list = PyObject_CallFunction(self->allgather, "y#I", (const char *)record,
                                               (Py_ssize_t)record_size, (unsigned)timeout_ms);
        taken = list != NULL && core_records_take(list, self->size, record_size, all);
        Py_XDECREF(list);
    }
    if (!taken)
        status = core_caught("allgather", RKS_ERR_PEER, err);
    PyGILState_Release(state);
    return status;
}

static rks_status python_check(void *user, rks_error *err)
{
    group_object *self = user;
    if (self->is_last) /* the interpreter has ended */
        return RKS_OK;
    PyGILState_STATE state = PyGILState_Ensure();
    rks_status status = RKS_OK;
    if (self->check != NULL && PyErr_Occurred() == NULL) {
        PyObject *answer = PyObject_CallNoArgs(self->check);
        if (answer != NULL && answer != Py_None) {
            const char *text = PyUnicode_AsUTF8AndSize(answer, NULL);
            status = RKS_ERR_PEER;
            if (text != NULL && err != NULL)
                core_set_error(err, status, text);
        }
        if (PyErr_Occurred() != NULL)
            status = core_caught("check", RKS_ERR_PEER, err);
        Py_XDECREF(answer);
    }
    PyGILState_Release(state);
    return status;
}

static rks_status gather_alone(void *user, const void *record, size_t record_size, void *all,
                               uint32_t timeout_ms, rks_error *err)
{
    (void)user;
    (void)timeout_ms;
    (void)err;
    memcpy(all, record, record_size);
    return RKS_OK;
}

/* ---- opening and closing -------------------------------------------------------------------- */

static group_object *group_alloc(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    group_object *self = (group_object *)alloc(type, 0);
    if (self != NULL) {
        self->owner = core_pid();
        self->closed = 1;
    }
    return self;
}

static bool open_group(group_object *self, const rks_group_options *options)
{
    rks_error err = {0};
    rks_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rks_group_open(options, &self->group, &err);
    Py_END_ALLOW_THREADS
    if (status != RKS_OK) {
        core_raise(&err);
        return false;
    }
    self->rank = rks_group_rank(self->group);
    self->size = rks_group_size(self->group);
    self->node = rks_group_node(self->group);
    self->nodes = rks_group_nodes(self->group);
    self->silence_ms = options == NULL ? 15000 : options->silence_ms;
    self->closed = 0;
    return PyErr_Occurred() == NULL;
}

/* ---- stores that other ranks still need ------------------------------------------------------ */

/* Ends a parked store. Returns true if it is gone. With `last`, ends it whatever the other ranks
 * do. */
static bool end_parked(group_object *self, rks_store *store, uint32_t wait_ms, bool last)
{
    bool gone;
    Py_BEGIN_ALLOW_THREADS
    gone = rks_store_leave(store, wait_ms) != 0 || last;
    if (gone)
        rks_store_close(store, 1);
    Py_END_ALLOW_THREADS
    self->held -= gone;
    return gone;
}

static core_parked *pop_parked(group_object *self)
{
    core_parked *first = self->parked;
    if (first != NULL) {
        self->parked = first->next;
        self->parked_count--;
    }
    return first;
}

static void push_parked(group_object *self, core_parked *one)
{
    one->next = self->parked;
    self->parked = one;
    self->parked_count++;
}

static int reap(group_object *self)
{
    core_parked *left = NULL, *one;
    while ((one = pop_parked(self)) != NULL) {
        if (end_parked(self, one->store, 0, false)) {
            PyMem_Free(one);
        } else {
            one->next = left;
            left = one;
        }
    }
    while ((one = left) != NULL) {
        left = one->next;
        push_parked(self, one);
    }
    return self->parked_count;
}

void core_group_reap(PyObject *object)
{
    (void)CORE_HELD(object, reap((group_object *)object));
}

static int park(group_object *self, rks_store *store)
{
    core_parked *one = PyMem_Malloc(sizeof(*one));
    if (one == NULL) { /* out of memory: the other ranks lose the store */
        end_parked(self, store, 0, true);
        return self->parked_count;
    }
    one->store = store;
    push_parked(self, one);
    return reap(self);
}

void core_group_park(PyObject *object, rks_store *store)
{
    (void)CORE_HELD(object, park((group_object *)object, store));
}

uint32_t core_group_silence(PyObject *object)
{
    return ((group_object *)object)->silence_ms;
}

static uint64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Waits as long as the other ranks live: their work may take its time. They cannot wait for this
 * rank meanwhile, since it has left. `briefly` limits the wait to the silence limit, for callers
 * that do not know whether this rank has ended well: others may wait for it outside of Rankstore.
 * Returns -1 with an exception of a signal handler. */
static int wait_for_parked(group_object *self, bool briefly)
{
    enum { SAY_MS = 60000 };
    uint64_t until_ms = clock_ms() + self->silence_ms;
    core_parked *one;
    while ((one = pop_parked(self)) != NULL) {
        bool gone = false;
        while (!gone) {
            uint64_t now_ms = clock_ms(), left_ms = now_ms < until_ms ? until_ms - now_ms : 0;
            gone = end_parked(self, one->store, briefly ? (uint32_t)left_ms : SAY_MS, briefly);
            if (!gone && PyErr_Occurred() != NULL) {
                push_parked(self, one);
                return -1;
            }
            if (!gone && rks_group_must_stop(self->group, NULL) != RKS_OK)
                gone = end_parked(self, one->store, 0, true);
            if (!gone)
                PySys_FormatStderr(
                    "rankstore: rank %u has ended its work and serves a dataset that "
                    "other ranks still use\n",
                    self->rank);
        }
        PyMem_Free(one);
    }
    return 0;
}

/* Ends a group. In a forked child the group belongs to the parent and is only forgotten. */
static void end_group(group_object *self)
{
    rks_group *group = self->group;
    self->group = NULL;
    self->closed = 1;
    if (group == NULL || core_is_foreign(self->owner))
        return;
    for (core_parked *one; (one = pop_parked(self)) != NULL;) {
        end_parked(self, one->store, 0, true);
        PyMem_Free(one);
    }
    Py_BEGIN_ALLOW_THREADS
    rks_group_close(group);
    Py_END_ALLOW_THREADS
}

static bool check_launcher(const group_object *self, const rks_bootstrap *own, bool given,
                           bool solo)
{
    if (solo && self->allgather != NULL)
        PyErr_SetString(PyExc_ValueError, "solo: one rank alone needs no allgather");
    else if (self->allgather == NULL && (given || self->check != NULL))
        PyErr_SetString(PyExc_ValueError,
                        "allgather: it is needed where name, rank, size or check is given");
    else if (own->rank >= own->size)
        PyErr_Format(PyExc_ValueError, "rank: %u is not below size %u", own->rank, own->size);
    return PyErr_Occurred() == NULL;
}

/* Fills options and the launcher from the arguments; texts point into them. */
static bool parse_group_options(group_object *self, PyObject *arguments, PyObject *keywords,
                                rks_group_options *options, rks_bootstrap *own)
{
    static char *names[] = {"name",       "rank",        "size",   "allgather",   "check",
                            "silence_ms", "patience_ms", "listen", "secret_file", "node",
                            "solo",       "arrival_ms",  NULL};
    PyObject *rank = NULL, *size = NULL, *allgather = Py_None, *check = Py_None, *silence = NULL,
             *patience = NULL, *arrival = NULL;
    const char *name = NULL;
    int solo = 0;
    uint64_t ranks = 1, number = 0, silence_ms = options->silence_ms,
             patience_ms = options->patience_ms, arrival_ms = options->arrival_ms;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$zOOOOOOzzzpO:Group", names, &name,
                                     &rank, &size, &allgather, &check, &silence, &patience,
                                     &options->listen, &options->secret_file, &options->node, &solo,
                                     &arrival) ||
        !core_number(rank, "rank", 0, UINT32_MAX - 1, &number) ||
        !core_number(size, "size", 1, UINT32_MAX, &ranks) ||
        !core_number(silence, "silence_ms", 200, 3600000, &silence_ms) ||
        !core_number(patience, "patience_ms", 1, UINT32_MAX, &patience_ms) ||
        !core_number(arrival, "arrival_ms", 1, UINT32_MAX, &arrival_ms) ||
        !core_callable(allgather, "allgather", &self->allgather))
        return false;
    Py_XINCREF(self->allgather);
    if (!core_callable(check, "check", &self->check))
        return false;
    Py_XINCREF(self->check);
    self->size = (unsigned)ranks;
    options->silence_ms = (uint32_t)silence_ms;
    options->patience_ms = (uint32_t)patience_ms;
    options->arrival_ms = (uint32_t)arrival_ms;
    *own = (rks_bootstrap){
        .struct_size = sizeof(*own),
        .name = solo           ? "solo"
                : name == NULL ? "python"
                               : name,
        .rank = (uint32_t)number,
        .size = (uint32_t)ranks,
        .user = self,
        .allgather = solo ? gather_alone : python_allgather,
        .check = self->check == NULL ? NULL : python_check,
    };
    if (self->allgather != NULL || solo)
        options->bootstrap = own;
    return check_launcher(self, own, name != NULL || number != 0 || ranks != 1, solo != 0);
}

static PyObject *group_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    rks_group_options options;
    rks_bootstrap own;
    rks_group_options_default(&options);
    group_object *self = group_alloc(type);
    if (self == NULL)
        return NULL;
    if (!parse_group_options(self, arguments, keywords, &options, &own) ||
        !open_group(self, &options)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* Returns -1 with an exception if anything but parked stores uses the group. */
static int check_unused(const group_object *self)
{
    if (self->held <= self->parked_count)
        return 0;
    core_raise_text(RKS_ERR_STATE,
                    "the group is in use: close its datasets and builders first (%d)",
                    self->held - self->parked_count);
    return -1;
}

static PyObject *close_group(group_object *self, bool briefly)
{
    bool is_ours = self->group != NULL && !core_is_foreign(self->owner);
    if (is_ours && check_unused(self) < 0)
        return NULL;
    if (is_ours && self->parked != NULL) {
        int waited;
        self->held++; /* so that nobody else closes it meanwhile */
        rks_group_leave(self->group, RKS_OK, NULL);
        waited = wait_for_parked(self, briefly);
        self->held--;
        if (waited < 0 || PyErr_Occurred() != NULL) /* a signal came as the last store ended */
            return NULL;
    }
    end_group(self);
    Py_RETURN_NONE;
}

static PyObject *group_close(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"briefly", NULL};
    int briefly = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|p:close", names, &briefly))
        return NULL;
    return CORE_HELD(self, close_group((group_object *)self, briefly != 0));
}

static PyObject *pass_to_exit(group_object *self)
{
    if (self->group == NULL || core_is_foreign(self->owner))
        Py_RETURN_NONE;
    if (check_unused(self) < 0)
        return NULL;
    if (core_close_at_exit(self->group, self->parked, self->silence_ms) < 0)
        return PyErr_NoMemory();
    Py_INCREF((PyObject *)self); /* the group's callbacks use it */
    self->is_last = true;
    self->held -= self->parked_count;
    self->parked = NULL;
    self->parked_count = 0;
    self->group = NULL;
    self->closed = 1;
    Py_RETURN_NONE;
}

static PyObject *group_close_at_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    return CORE_HELD(self, pass_to_exit((group_object *)self));
}

static PyObject *group_leave(group_object *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"status", "text", "rank", "host", NULL};
    const char *text = "", *host = "";
    int given = 0, rank = -1;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|isis:leave", names, &given, &text,
                                     &rank, &host))
        return NULL;
    rks_group *group = core_status(given) ? core_group_enter((PyObject *)self) : NULL;
    if (group == NULL)
        return NULL;
    rks_error err;
    core_set_error(&err, given, text);
    err.rank = rank;
    snprintf(err.host, sizeof(err.host), "%s", host);
    Py_BEGIN_ALLOW_THREADS
    rks_group_leave(group, (rks_status)given, &err);
    Py_END_ALLOW_THREADS
    core_group_leave((PyObject *)self);
    Py_RETURN_NONE;
}

static int group_traverse(group_object *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->allgather);
    Py_VISIT(self->check);
    return 0;
}

static int group_clear(group_object *self)
{
    Py_CLEAR(self->allgather);
    Py_CLEAR(self->check);
    return 0;
}

static void group_dealloc(group_object *self)
{
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &trace);
    end_group(self);
    PyErr_Restore(type, value, trace);
    group_clear(self);
    core_free_object((PyObject *)self);
}

int core_group_check(PyObject *object)
{
    group_object *self = (group_object *)object;
    if (!PyObject_TypeCheck(object, group_type)) {
        PyErr_Format(PyExc_TypeError, "group: a Group, not %R", Py_TYPE(object));
        return -1;
    }
    return core_check_usable(self->group, self->owner, "group");
}

static rks_group *count_holder(group_object *self)
{
    self->held += self->group != NULL;
    return self->group;
}

rks_group *core_group_enter(PyObject *object)
{
    rks_group *group = NULL;
    if (core_group_check(object) == 0 &&
        (group = CORE_HELD(object, count_holder((group_object *)object))) == NULL)
        core_raise_closed("group"); /* by another thread, just now */
    return group;
}

void core_group_leave(PyObject *object)
{
    (void)CORE_HELD(object, ((group_object *)object)->held--);
}

rks_group *core_group_of_readers(PyObject *object)
{
    const group_object *self = (group_object *)object;
    return core_is_foreign(self->owner) ? NULL : self->group;
}

static PyMethodDef group_methods[] = {
    {"agree", WITH_KEYWORDS(core_group_agree),
     "agree(phase, status=0, text=''): collective; a status other than 0 raises on all ranks."},
    {"allgather", WITH_KEYWORDS(core_group_allgather),
     "allgather(phase, data, status=0, text=''): collective; each rank's bytes, in rank order."},
    {"stop", core_group_stop, METH_NOARGS,
     "stop(): tells the others that this rank brings an error to the next collective call."},
    {"must_stop", core_group_must_stop, METH_NOARGS,
     "must_stop() -> bool: another rank has said so, or was lost. Never waits."},
    {"announce", core_group_announce, METH_VARARGS,
     "announce(text): what this rank does before its next collective call. Never waits."},
    {"reading", core_group_reading, METH_VARARGS,
     "reading(reader, plan, changes, epoch, step, is_last): a batch was given; raises if ranks "
     "read "
     "different ones. Never waits."},
    {"reading_ends", core_group_reading_ends, METH_VARARGS,
     "reading_ends(reader, gone): an iteration ended."},
    {"change_begins", core_group_change_begins, METH_VARARGS,
     "change_begins(plan, changes, epoch, step, call): this rank waits in a change of a plan."},
    {"change_ends", core_group_change_ends, METH_VARARGS, "change_ends(plan): it waits no more."},
    {"leave", WITH_KEYWORDS(group_leave),
     "leave(status=0, text='', rank=-1, host=''): this rank makes no further collective call; the "
     "others' fail, with this error if there is one. Never waits."},
    {"close", WITH_KEYWORDS(group_close),
     "Ends this rank's part; RuntimeError where stores or builders are open. Twice is fine."},
    {"close_at_exit", group_close_at_exit, METH_NOARGS,
     "In an atexit function: as close, when the exit code is known; the others hear of it."},
    {0},
};

static PyMemberDef group_members[] = {
    {"rank", T_UINT, offsetof(group_object, rank), READONLY, "This rank."},
    {"size", T_UINT, offsetof(group_object, size), READONLY, "The number of ranks."},
    {"node", T_UINT, offsetof(group_object, node), READONLY, "This rank's node, from 0."},
    {"nodes", T_UINT, offsetof(group_object, nodes), READONLY, "The number of nodes."},
    {"silence_ms", T_UINT, offsetof(group_object, silence_ms), READONLY, "T, in ms."},
    {"closed", T_BOOL, offsetof(group_object, closed), READONLY, "After close()."},
    {0},
};

static PyType_Slot group_slots[] = {
    {Py_tp_doc, "The ranks of a job."}, {Py_tp_new, group_new},
    {Py_tp_dealloc, group_dealloc},     {Py_tp_traverse, group_traverse},
    {Py_tp_clear, group_clear},         {Py_tp_methods, group_methods},
    {Py_tp_members, group_members},     {0, NULL},
};

static PyType_Spec group_spec = {
    .name = "rankstore._core.Group",
    .basicsize = sizeof(group_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = group_slots,
};

PyObject *core_group_open(const rks_group_options *options)
{
    group_object *self = group_alloc(group_type);
    if (self != NULL && !open_group(self, options))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static bool end_if_unused(group_object *self)
{
    bool is_unused = self->held == self->parked_count;
    if (is_unused)
        end_group(self);
    return is_unused;
}

void core_group_end(PyObject *object)
{
    (void)CORE_HELD(object, end_if_unused((group_object *)object));
}

int core_add_group(PyObject *module)
{
    return core_add_type(module, &group_spec, &group_type);
}
