/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.c: iterates over the batches of an epoch. */
#include "handles.h"

typedef struct epoch {
    PyObject_HEAD
    PyObject *store;
    PyObject *plan;
    core_epoch entry; /* with the handle */
    PyThread_type_lock lock;
    pid_t pid;
    bool arrays;
} epoch;

static PyTypeObject *epoch_type;

/* ---- open and close -------------------------------------------------------------------------- */

/* Returns -1 with an exception. */
static int open_epoch(epoch *self, const rks_epoch_options *options)
{
    rks_error err = {0};
    rks_status status = RKS_OK;
    rks_store *store = core_store_enter(self->store);
    if (store == NULL)
        return -1;
    rks_plan *plan = core_plan_enter(self->plan);
    if (plan != NULL) {
        Py_BEGIN_ALLOW_THREADS
        status = rks_epoch_open(store, plan, options, &self->entry.handle, &err);
        Py_END_ALLOW_THREADS
        core_plan_leave(self->plan);
        if (status == RKS_OK)
            core_store_add_epoch(self->store, &self->entry);
        else
            core_raise(&err);
    }
    core_store_leave(self->store);
    return plan == NULL || status != RKS_OK ? -1 : 0;
}

static PyObject *epoch_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"store",          "plan",    "epoch",  "first_step", "prefetch_batches",
                            "prefetch_bytes", "collate", "arenas", NULL};
    PyObject *store, *plan, *number = NULL, *first = NULL, *batches = NULL, *bytes = NULL,
                            *collate = Py_None, *arenas = Py_None;
    rks_epoch_options options;
    rks_epoch_options_default(&options);
    uint64_t ahead = options.prefetch_batches;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|$OOOOOO:Epoch", names, &store, &plan,
                                     &number, &first, &batches, &bytes, &collate, &arenas) ||
        !core_number(number, "epoch", 0, UINT64_MAX, &options.epoch) ||
        !core_number(first, "first_step", 0, UINT64_MAX, &options.first_step) ||
        !core_number(batches, "prefetch_batches", 1, UINT32_MAX, &ahead) ||
        !core_number(bytes, "prefetch_bytes", 1, UINT64_MAX, &options.prefetch_bytes))
        return NULL;
    options.prefetch_batches = (uint32_t)ahead;
    if (collate != Py_None && (options.collate = core_collate(collate)) == NULL)
        return NULL;
    if (arenas != Py_None && (options.arenas = core_arenas(arenas)) == NULL)
        return NULL;
    epoch *self = (epoch *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->store = Py_NewRef(store);
    self->plan = Py_NewRef(plan);
    self->pid = core_pid();
    self->arrays = collate != Py_None;
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL)
        PyErr_NoMemory();
    if (self->lock == NULL || open_epoch(self, &options) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void epoch_dealloc(PyObject *object)
{
    epoch *self = (epoch *)object;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (self->entry.handle != NULL)
        core_store_close_epoch(self->store, &self->entry);
    core_free_arenas();
    if (self->lock != NULL && !core_is_foreign(self->pid))
        PyThread_free_lock(self->lock);
    Py_XDECREF(self->plan);
    Py_XDECREF(self->store);
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(NULL);
    PyErr_Restore(type, value, traceback);
    core_free_object(object);
}

static PyObject *epoch_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    epoch *self = (epoch *)object;
    if (!core_is_foreign(self->pid) && core_lock(self->lock) < 0)
        return NULL;
    if (self->entry.handle != NULL)
        core_store_close_epoch(self->store, &self->entry);
    core_free_arenas();
    if (!core_is_foreign(self->pid))
        PyThread_release_lock(self->lock);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the next batch -------------------------------------------------------------------------- */

typedef struct next {
    rks_batch *batch;
    rks_arrays *arrays;
    uint64_t step;
} next;

/* Asks for the next batch. The caller has entered the store and holds the locks of epoch and plan.
 * Returns -1 with an exception. */
static int ask_epoch(epoch *self, next *n)
{
    rks_error err = {0};
    rks_status status;
    rks_epoch *handle = self->entry.handle;
    if (handle == NULL) {
        core_raise_closed("epoch");
        return -1;
    }
    Py_BEGIN_ALLOW_THREADS
    if (self->arrays)
        status = rks_epoch_next_arrays(handle, &n->arrays, &n->step, &err);
    else
        status = rks_epoch_next(handle, &n->batch, &n->step, &err);
    Py_END_ALLOW_THREADS
    if (status != RKS_OK)
        core_raise(&err);
    return status == RKS_OK ? 0 : -1;
}

static int next_batch(epoch *self, next *n)
{
    int result = -1;
    if (core_check_process(self->pid, "epoch") < 0)
        return -1;
    if (core_store_enter(self->store) == NULL)
        return -1;
    if (core_lock(self->lock) == 0) {
        if (core_plan_enter(self->plan) != NULL) {
            result = ask_epoch(self, n);
            core_plan_leave(self->plan);
        }
        PyThread_release_lock(self->lock);
    }
    core_store_leave(self->store);
    return result;
}

static PyObject *epoch_next(PyObject *object)
{
    epoch *self = (epoch *)object;
    next n = {0};
    if (next_batch(self, &n) < 0 || (n.batch == NULL && n.arrays == NULL))
        return NULL; /* without an exception: the end */
    PyObject *made =
        self->arrays ? core_arrays_new(n.arrays) : core_samples_new(self->store, n.batch);
    return made == NULL ? NULL : Py_BuildValue("(KN)", (unsigned long long)n.step, made);
}

static PyMethodDef epoch_methods[] = {
    {"close", epoch_close, METH_NOARGS, "Cancels what is in flight; twice is fine."},
    {0},
};

static PyType_Slot epoch_slots[] = {
    {Py_tp_doc, (void *)"This rank's batches of an epoch in step order, fetched ahead: (step, "
                        "Samples or Arrays)."},
    {Py_tp_new, epoch_new},
    {Py_tp_dealloc, epoch_dealloc},
    {Py_tp_methods, epoch_methods},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, epoch_next},
    {0, NULL},
};

static PyType_Spec epoch_spec = {
    .name = "rankstore._core.Epoch",
    .basicsize = sizeof(epoch),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = epoch_slots,
};

int core_add_epoch(PyObject *module)
{
    return core_add_type(module, &epoch_spec, &epoch_type);
}
