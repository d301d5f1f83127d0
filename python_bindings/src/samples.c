/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.c: a batch of samples. */
#include "handles.h"

typedef struct samples {
    PyObject_HEAD
    PyObject *store;
    rks_batch *batch;
    PyThread_type_lock lock; /* a batch has one user at a time */
    pid_t pid;
} samples;

static PyTypeObject *samples_type;

PyObject *core_samples_new(PyObject *store, rks_batch *batch)
{
    samples *self = (samples *)PyType_GenericAlloc(samples_type, 0);
    if (self == NULL) {
        rks_batch_free(batch);
        return NULL;
    }
    self->store = Py_NewRef(store);
    self->batch = batch;
    self->pid = core_pid();
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void samples_dealloc(PyObject *object)
{
    samples *self = (samples *)object;
    if (!core_is_foreign(self->pid)) {
        rks_batch_free(self->batch);
        if (self->lock != NULL)
            PyThread_free_lock(self->lock);
    }
    Py_XDECREF(self->store);
    core_free_object(object);
}

static Py_ssize_t samples_length(PyObject *object)
{
    return (Py_ssize_t)rks_batch_count(((samples *)object)->batch);
}

/* Returns -1 with IndexError. */
static Py_ssize_t position(samples *self, PyObject *object)
{
    Py_ssize_t i = PyNumber_AsSsize_t(object, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred())
        return -1;
    size_t count = rks_batch_count(self->batch);
    if (i >= 0 && (size_t)i < count)
        return i;
    PyErr_Format(PyExc_IndexError, "sample %zd of a batch of %zu", i, count);
    return -1;
}

static PyObject *samples_id(PyObject *object, PyObject *at)
{
    samples *self = (samples *)object;
    Py_ssize_t i = position(self, at);
    return i < 0 ? NULL : PyLong_FromUnsignedLongLong(rks_batch_id(self->batch, (size_t)i));
}

static PyObject *samples_sample_length(PyObject *object, PyObject *at)
{
    samples *self = (samples *)object;
    Py_ssize_t i = position(self, at);
    return i < 0 ? NULL : PyLong_FromUnsignedLong(rks_batch_length(self->batch, (size_t)i));
}

/* Takes the batch for one user, in the process that fetched it. Returns -1 with an exception. */
static int enter(samples *self)
{
    if (core_check_process(self->pid, "samples") < 0)
        return -1;
    return core_lock(self->lock);
}

static PyObject *samples_key(PyObject *object, PyObject *at)
{
    samples *self = (samples *)object;
    Py_ssize_t i = position(self, at);
    if (i < 0 || core_check_process(self->pid, "samples") < 0)
        return NULL;
    int entered = core_store_try_enter(self->store); /* deriving keys may need the store */
    if (entered < 0)
        return NULL;
    if (core_lock(self->lock) < 0) {
        if (entered)
            core_store_leave(self->store);
        return NULL;
    }
    size_t size = 0;
    const char *key = rks_batch_key(self->batch, (size_t)i, &size);
    PyObject *bytes = key == NULL ? NULL : PyBytes_FromStringAndSize(key, (Py_ssize_t)size);
    PyThread_release_lock(self->lock);
    if (entered)
        core_store_leave(self->store);
    if (key == NULL)
        return core_raise_text(RKS_ERR_STATE,
                               "samples: the keys are derived, and their store has been closed");
    return bytes;
}

/* Returns core_value of one column; the lock is held. */
static PyObject *value_of(samples *self, size_t i, uint32_t column)
{
    rks_error err = {0};
    rks_value value;
    if (rks_batch_value(self->batch, i, column, &value, &err) != RKS_OK)
        return core_raise(&err);
    return core_value((PyObject *)self, core_store_dim_counts(self->store)[column], &value, true);
}

static PyObject *samples_value(PyObject *object, PyObject *arguments)
{
    samples *self = (samples *)object;
    PyObject *at, *column_number;
    if (!PyArg_ParseTuple(arguments, "OO:value", &at, &column_number))
        return NULL;
    Py_ssize_t i = position(self, at);
    Py_ssize_t column = i < 0 ? -1 : PyNumber_AsSsize_t(column_number, PyExc_IndexError);
    if (i < 0 || (column == -1 && PyErr_Occurred()))
        return NULL;
    uint32_t columns = core_store_columns(self->store);
    if (column < 0 || column >= (Py_ssize_t)columns)
        return PyErr_Format(PyExc_IndexError, "column %zd of %u", column, (unsigned)columns);
    if (enter(self) < 0)
        return NULL;
    PyObject *result = value_of(self, (size_t)i, (uint32_t)column);
    PyThread_release_lock(self->lock);
    return result;
}

static PyObject *samples_values(PyObject *object, PyObject *at)
{
    samples *self = (samples *)object;
    Py_ssize_t i = position(self, at);
    if (i < 0)
        return NULL;
    uint32_t columns = core_store_columns(self->store);
    PyObject *list = PyList_New((Py_ssize_t)columns);
    if (list == NULL)
        return NULL;
    if (enter(self) < 0) {
        Py_DECREF(list);
        return NULL;
    }
    for (uint32_t column = 0; list != NULL && column < columns; column++) {
        PyObject *value = value_of(self, (size_t)i, column);
        if (value == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)column, value);
    }
    PyThread_release_lock(self->lock);
    return list;
}

static PyObject *samples_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    samples *self = (samples *)object;
    unsigned long long sum = 0;
    if (core_check_process(self->pid, "samples") < 0)
        return NULL;
    for (size_t i = 0; i < rks_batch_count(self->batch); i++) {
        size_t size = 0;
        rks_batch_payload(self->batch, i, &size);
        sum += size;
    }
    return PyLong_FromUnsignedLongLong(sum);
}

static PyObject *join(const uint64_t sum[2])
{
    PyObject *low = PyLong_FromUnsignedLongLong(sum[0]),
             *high = PyLong_FromUnsignedLongLong(sum[1]);
    PyObject *bits = PyLong_FromLong(64), *shifted = NULL, *all = NULL;
    if (low != NULL && high != NULL && bits != NULL)
        shifted = PyNumber_Lshift(high, bits);
    if (shifted != NULL)
        all = PyNumber_Or(shifted, low);
    Py_XDECREF(low);
    Py_XDECREF(high);
    Py_XDECREF(bits);
    Py_XDECREF(shifted);
    return all;
}

static PyObject *samples_digest(PyObject *object, PyObject *unused)
{
    (void)unused;
    samples *self = (samples *)object;
    uint64_t sum[2] = {0, 0};
    /* Deriving the keys may need the store. */
    if (core_store_enter(self->store) == NULL)
        return NULL;
    if (enter(self) < 0) {
        core_store_leave(self->store);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    rks_batch_digest(self->batch, sum);
    Py_END_ALLOW_THREADS
    PyThread_release_lock(self->lock);
    core_store_leave(self->store);
    return join(sum);
}

static PyObject *samples_collate(PyObject *object, PyObject *collate)
{
    samples *self = (samples *)object;
    rks_error err = {0};
    rks_status status;
    rks_arrays *arrays = NULL;
    const rks_collate_options *options = core_collate(collate);
    if (options == NULL || enter(self) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_batch_collate(self->batch, options, &arrays, &err);
    Py_END_ALLOW_THREADS
    PyThread_release_lock(self->lock);
    return status == RKS_OK ? core_arrays_new(arrays) : core_raise(&err);
}

static PyMethodDef samples_methods[] = {
    {"id", samples_id, METH_O, "id(i) -> the sample's number in the dataset"},
    {"length", samples_sample_length, METH_O, "length(i) -> its length"},
    {"key", samples_key, METH_O, "key(i) -> its key, bytes"},
    {"value", samples_value, METH_VARARGS,
     "value(i, column) -> (Buffer, dims), or None where it is missing"},
    {"values", samples_values, METH_O, "values(i) -> value(i, column) of all columns"},
    {"digest", samples_digest, METH_NOARGS, "The sum of the samples' digests modulo 2**128"},
    {"collate", samples_collate, METH_O, "collate(Collate) -> Arrays"},
    {0},
};

static PyGetSetDef samples_getters[] = {
    {"nbytes", samples_nbytes, NULL, "Bytes of all columns of all samples.", NULL},
    {0},
};

static PyType_Slot samples_slots[] = {
    {Py_tp_doc, (void *)"A batch of samples: len(), and what each of them has."},
    {Py_tp_dealloc, samples_dealloc},
    {Py_tp_methods, samples_methods},
    {Py_tp_getset, samples_getters},
    {Py_sq_length, samples_length},
    {0, NULL},
};

static PyType_Spec samples_spec = {
    .name = "rankstore._core.Samples",
    .basicsize = sizeof(samples),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = samples_slots,
};

int core_add_samples(PyObject *module)
{
    return core_add_type(module, &samples_spec, &samples_type);
}
