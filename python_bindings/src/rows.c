/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c: samples as dicts, for `ds[i]`. How each column becomes a Python value is decided once.
 *
 * A small sample of this node that is in memory is read at once, into memory kept for that, with
 * the GIL held: releasing it would take as long. All others are fetched without the GIL. */
#include <stdint.h>
#include <string.h>

#include "handles.h"

typedef struct row_column {
    PyObject *name;     /* interned */
    PyObject *function; /* NULL if this file makes the value */
    PyObject *dtype;
    char kind;
    uint8_t dim_count;
} row_column;

typedef struct rows {
    PyObject_HEAD
    PyObject *store;
    row_column *columns;
    uint32_t count;
    uint64_t samples; /* places */
    Py_buffer ids;    /* uint32 of each place; obj NULL: a place is a sample's id */
    pid_t pid;
    uint8_t *to; /* ROOM bytes, aligned, in `memory` */
    void *memory;
    rks_value *values; /* one a column, in `to` */
    bool busy;         /* in use: a value's function may read another sample */
} rows;

static PyTypeObject *rows_type;

enum { ROOM = 64 << 10, ALIGNED = 64 };

/* ---- values ---------------------------------------------------------------------------------- */

/* Reads a number of one of struct's formats; the bytes may have any alignment. */
static PyObject *number_of(char kind, const void *data)
{
    union {
        int8_t b;
        uint8_t B;
        int16_t h;
        uint16_t H;
        int32_t i;
        uint32_t I;
        int64_t q;
        uint64_t Q;
        float f;
        double d;
    } item;
    switch (kind) {
    case '?':
        return PyBool_FromLong(*(const char *)data);
    case 'b':
        return PyLong_FromLong(*(const int8_t *)data);
    case 'B':
        return PyLong_FromLong(*(const uint8_t *)data);
    case 'h':
        memcpy(&item.h, data, sizeof(item.h));
        return PyLong_FromLong(item.h);
    case 'H':
        memcpy(&item.H, data, sizeof(item.H));
        return PyLong_FromLong(item.H);
    case 'i':
        memcpy(&item.i, data, sizeof(item.i));
        return PyLong_FromLong(item.i);
    case 'I':
        memcpy(&item.I, data, sizeof(item.I));
        return PyLong_FromUnsignedLong(item.I);
    case 'q':
        memcpy(&item.q, data, sizeof(item.q));
        return PyLong_FromLongLong(item.q);
    case 'Q':
        memcpy(&item.Q, data, sizeof(item.Q));
        return PyLong_FromUnsignedLongLong(item.Q);
    case 'f':
        memcpy(&item.f, data, sizeof(item.f));
        return PyFloat_FromDouble((double)item.f);
    default:
        memcpy(&item.d, data, sizeof(item.d));
        return PyFloat_FromDouble(item.d);
    }
}

static PyObject *row_dims(const row_column *column, const rks_value *value)
{
    PyObject *dims = PyTuple_New(column->dim_count);
    for (uint8_t i = 0; dims != NULL && i < column->dim_count; i++) {
        PyObject *size = PyLong_FromUnsignedLong(value->dims[i]);
        if (size == NULL)
            Py_CLEAR(dims);
        else
            PyTuple_SetItem(dims, i, size);
    }
    return dims;
}

/* Calls function(bytes, dtype), function(dims, dtype, bytes) or function(bytes, dims) with a
 * copy. */
static PyObject *called(const row_column *column, const rks_value *value)
{
    PyObject *bytes = core_buffer_copy(value->data, value->size), *dims = NULL, *made = NULL;
    if (bytes != NULL && column->kind == 'V')
        made = PyObject_CallFunctionObjArgs(column->function, bytes, column->dtype, NULL);
    else if (bytes != NULL && (dims = row_dims(column, value)) != NULL)
        made =
            column->kind == 'A'
                ? PyObject_CallFunctionObjArgs(column->function, dims, column->dtype, bytes, NULL)
                : PyObject_CallFunctionObjArgs(column->function, bytes, dims, NULL);
    Py_XDECREF(dims);
    Py_XDECREF(bytes);
    return made;
}

static PyObject *row_value(const row_column *column, const rks_value *value)
{
    PyObject *text, *made;
    if (value->data == NULL)
        Py_RETURN_NONE;
    switch (column->kind) {
    case 'y':
        return PyBytes_FromStringAndSize(value->data, (Py_ssize_t)value->size);
    case 's':
        return PyUnicode_DecodeUTF8(value->data, (Py_ssize_t)value->size, NULL);
    case 'j':
        text = PyUnicode_DecodeUTF8(value->data, (Py_ssize_t)value->size, NULL);
        made = text == NULL ? NULL : PyObject_CallFunctionObjArgs(column->function, text, NULL);
        Py_XDECREF(text);
        return made;
    case 'V':
    case 'A':
    case 'O':
        return called(column, value);
    default:
        return number_of(column->kind, value->data);
    }
}

/* False with an exception. */
static bool add_value(PyObject *row, const row_column *column, const rks_value *value)
{
    PyObject *made = row_value(column, value);
    bool added = made != NULL && PyDict_SetItem(row, column->name, made) == 0;
    Py_XDECREF(made);
    return added;
}

static PyObject *row_of(const rows *self, rks_batch *batch, size_t i)
{
    rks_error err;
    rks_value value;
    PyObject *row = PyDict_New();
    for (uint32_t c = 0; row != NULL && c < self->count; c++) {
        rks_status status = rks_batch_value(batch, i, c, &value, &err);
        if (status != RKS_OK)
            core_raise(&err);
        if (status != RKS_OK || !add_value(row, &self->columns[c], &value))
            Py_CLEAR(row);
    }
    return row;
}

static PyObject *row_now(const rows *self)
{
    PyObject *row = PyDict_New();
    for (uint32_t c = 0; row != NULL && c < self->count; c++)
        if (!add_value(row, &self->columns[c], &self->values[c]))
            Py_CLEAR(row);
    return row;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Returns NULL with an exception. */
static rks_batch *fetch(const rows *self, const uint64_t *ids, size_t count)
{
    rks_batch *batch = NULL;
    rks_error err;
    rks_status status;
    rks_store *handle = core_store_enter(self->store);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_store_fetch(handle, ids, count, &batch, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(self->store);
    if (status != RKS_OK)
        core_raise(&err);
    return batch;
}

/* Reads the sample if that is possible at once; otherwise returns NULL without an exception. The
 * object is held. */
static PyObject *read_now(rows *self, uint64_t id)
{
    bool done = false;
    rks_error err;
    rks_store *handle = self->busy ? NULL : core_store_enter(self->store);
    if (handle == NULL)
        return NULL;
    rks_status status = rks_store_read_now(handle, id, self->to, ROOM, self->values, &done, &err);
    core_store_leave(self->store);
    if (status != RKS_OK)
        return core_raise(&err);
    if (!done)
        return NULL;
    self->busy = true;
    PyObject *row = row_now(self);
    self->busy = false;
    return row;
}

static PyObject *rows_one(PyObject *object, PyObject *number)
{
    rows *self = (rows *)object;
    if (!PyLong_CheckExact(number) || core_is_foreign(self->pid))
        Py_RETURN_NONE;
    long long place = PyLong_AsLongLong(number);
    if (place == -1 && PyErr_Occurred()) { /* beyond 64 bits */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    uint64_t id = (uint64_t)place + (place < 0 ? self->samples : 0);
    if (id >= self->samples)
        Py_RETURN_NONE;
    if (self->ids.obj != NULL)
        id = ((const uint32_t *)self->ids.buf)[id];
    PyObject *row = CORE_HELD(object, read_now(self, id));
    if (row != NULL || PyErr_Occurred())
        return row;
    rks_batch *batch = fetch(self, &id, 1);
    row = batch == NULL ? NULL : row_of(self, batch, 0);
    rks_batch_free(batch);
    return row;
}

static PyObject *rows_many(PyObject *object, PyObject *samples)
{
    const rows *self = (const rows *)object;
    uint64_t *ids = NULL;
    size_t count = 0;
    if (core_samples(samples, core_store_count(self->store), &ids, &count) < 0)
        return NULL;
    rks_batch *batch = fetch(self, ids, count);
    PyMem_Free(ids);
    PyObject *list = batch == NULL ? NULL : PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *row = row_of(self, batch, i);
        if (row == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, row);
    }
    rks_batch_free(batch);
    return list;
}

/* ---- the object ------------------------------------------------------------------------------ */

/* False with an exception. */
static bool parse_column(PyObject *given, row_column *column)
{
    PyObject *name, *function, *dtype;
    int kind, dims;
    if (!PyArg_ParseTuple(given, "UCOOi:Rows", &name, &kind, &function, &dtype, &dims))
        return false;
    column->name = Py_NewRef(name);
    PyUnicode_InternInPlace(&column->name);
    column->function = function == Py_None ? NULL : Py_NewRef(function);
    column->dtype = Py_NewRef(dtype);
    column->kind = (char)kind;
    column->dim_count = (uint8_t)dims;
    bool calls = strchr("jVAO", column->kind) != NULL;
    if (strchr("ysjVAO?bBhHiIqQfd", column->kind) != NULL && calls == (column->function != NULL) &&
        dims >= 0 && dims <= RKS_DIMS_MAX)
        return true;
    PyErr_SetString(PyExc_ValueError, "Rows: a kind that is none, or a function that lacks");
    return false;
}

/* False with an exception. */
static bool parse_columns(rows *self, PyObject *columns)
{
    size_t count = (size_t)PyTuple_Size(columns);
    self->columns = PyMem_Calloc(count + 1, sizeof(*self->columns));
    self->values = PyMem_Calloc(count + 1, sizeof(*self->values));
    self->memory = PyMem_Malloc(ROOM + ALIGNED);
    if (self->columns == NULL || self->values == NULL || self->memory == NULL) {
        PyErr_NoMemory();
        return false;
    }
    uintptr_t place = (uintptr_t)self->memory;
    self->to = (uint8_t *)self->memory + (ALIGNED - place % ALIGNED);
    for (size_t i = 0; i < count; i++) {
        self->count++;
        if (!parse_column(PyTuple_GetItem(columns, (Py_ssize_t)i), &self->columns[i]))
            return false;
    }
    return true;
}

/* Reads a selection: the id of each place, which no other thread changes. */
static bool read_selection(rows *self, PyObject *ids)
{
    uint64_t limit = self->samples;
    if (ids == Py_None)
        return true;
    if (PyObject_GetBuffer(ids, &self->ids, PyBUF_SIMPLE) < 0)
        return false;
    self->samples = (uint64_t)self->ids.len / sizeof(uint32_t);
    for (uint64_t i = 0; i < self->samples; i++)
        if (((const uint32_t *)self->ids.buf)[i] >= limit) {
            PyErr_SetString(PyExc_IndexError, "Rows: an id that is none");
            return false;
        }
    return true;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *store, *columns, *ids = Py_None;
    if (keywords != NULL && PyDict_Size(keywords) != 0)
        return PyErr_Format(PyExc_TypeError, "Rows takes no keywords");
    if (!PyArg_ParseTuple(arguments, "OO!|O:Rows", &store, &PyTuple_Type, &columns, &ids))
        return NULL;
    if (!core_is_store(store) || PyTuple_Size(columns) != (Py_ssize_t)core_store_columns(store))
        return PyErr_Format(PyExc_TypeError, "Rows: a Store and its columns are needed");
    rows *self = (rows *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->store = Py_NewRef(store);
    self->samples = core_store_count(store);
    self->pid = core_pid();
    if (!parse_columns(self, columns) || !read_selection(self, ids))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void rows_dealloc(PyObject *object)
{
    rows *self = (rows *)object;
    for (uint32_t i = 0; i < self->count; i++) {
        Py_XDECREF(self->columns[i].name);
        Py_XDECREF(self->columns[i].function);
        Py_XDECREF(self->columns[i].dtype);
    }
    if (self->ids.obj != NULL)
        PyBuffer_Release(&self->ids);
    PyMem_Free(self->columns);
    PyMem_Free(self->values);
    PyMem_Free(self->memory);
    Py_XDECREF(self->store);
    core_free_object(object);
}

static PyMethodDef rows_methods[] = {
    {"one", rows_one, METH_O,
     "one(i) -> the sample as a dict; None if i is not an int in range, or in a fork"},
    {"many", rows_many, METH_O, "many(samples) -> a list of them"},
    {0},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, (void *)"Samples of a store as dicts."},
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "rankstore._core.Rows",
    .basicsize = sizeof(rows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = rows_slots,
};

/* ---- what has them as its items -------------------------------------------------------------- */

typedef struct indexed {
    PyObject_HEAD
    PyObject *rows; /* NULL: `_item` returns each item */
} indexed;

static PyObject *item_name;

static PyObject *indexed_item(PyObject *object, PyObject *place)
{
    indexed *self = (indexed *)object;
    PyObject *reader = CORE_HELD(object, Py_XNewRef(self->rows));
    if (reader != NULL) {
        PyObject *row = rows_one(reader, place);
        Py_DECREF(reader);
        if (row != Py_None)
            return row;
        Py_DECREF(row);
    }
    return PyObject_CallMethodObjArgs(object, item_name, place, NULL);
}

static PyObject *indexed_rows(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *reader = CORE_HELD(object, Py_XNewRef(((indexed *)object)->rows));
    return reader == NULL ? Py_NewRef(Py_None) : reader;
}

/* Takes `given` over and returns what was there. */
static PyObject *replaced(indexed *self, PyObject *given)
{
    PyObject *before = self->rows;
    self->rows = given;
    return before;
}

static int indexed_set_rows(PyObject *object, PyObject *value, void *unused)
{
    (void)unused;
    indexed *self = (indexed *)object;
    if (value != NULL && value != Py_None && !PyObject_TypeCheck(value, rows_type)) {
        PyErr_Format(PyExc_TypeError, "_rows: Rows or None, not %R", value);
        return -1;
    }
    PyObject *kept = value == NULL || value == Py_None ? NULL : Py_NewRef(value);
    PyObject *before = CORE_HELD(object, replaced(self, kept));
    Py_XDECREF(before);
    return 0;
}

static void indexed_dealloc(PyObject *object)
{
    Py_XDECREF(((indexed *)object)->rows);
    core_free_object(object);
}

static PyGetSetDef indexed_getters[] = {
    {"_rows", indexed_rows, indexed_set_rows, "What reads single samples, or None.", NULL},
    {0},
};

static PyType_Slot indexed_slots[] = {
    {Py_tp_doc, (void *)"Items by place: of `_rows`, or what `_item(place)` returns."},
    {Py_tp_dealloc, indexed_dealloc},
    {Py_tp_getset, indexed_getters},
    {Py_mp_subscript, indexed_item},
    {0, NULL},
};

static PyType_Spec indexed_spec = {
    .name = "rankstore._core.Indexed",
    .basicsize = sizeof(indexed),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = indexed_slots,
};

int core_add_rows(PyObject *module)
{
    PyTypeObject *type;
    item_name = PyUnicode_InternFromString("_item");
    if (item_name == NULL || core_add_type(module, &rows_spec, &rows_type) < 0)
        return -1;
    int added = core_add_type(module, &indexed_spec, &type);
    Py_XDECREF((PyObject *)type);
    return added;
}
