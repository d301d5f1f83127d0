/* SPDX-License-Identifier: Apache-2.0
 *
 * collate.c: Collate, which says how samples become arrays, and Arrays. */
#include "handles.h"

/* ---- Collate --------------------------------------------------------------------------------- */

typedef struct collate {
    PyObject_HEAD
    rks_collate_options options; /* its texts lie in `texts` */
    rks_collate_column *columns;
    PyObject *texts;
} collate;

static PyTypeObject *collate_type;

const rks_collate_options *core_collate(PyObject *object)
{
    if (PyObject_TypeCheck(object, collate_type))
        return &((collate *)object)->options;
    return (const rks_collate_options *)(void *)PyErr_Format(
        PyExc_TypeError, "collate: a Collate, not %R", Py_TYPE(object));
}

/* Gets a text that the object keeps alive; NULL for None. Returns -1 with an exception. */
static int keep_text(collate *self, PyObject *object, const char *what, const char **text)
{
    Py_ssize_t size = 0;
    *text = NULL;
    if (object == Py_None)
        return 0;
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: a str or None, not %R", what, Py_TYPE(object));
        return -1;
    }
    *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (*text == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < size; i++)
        if ((*text)[i] == '\0') {
            PyErr_Format(PyExc_ValueError, "%s: %R has a zero byte", what, object);
            return -1;
        }
    return PyList_Append(self->texts, object);
}

static int read_column(collate *self, PyObject *entry, rks_collate_column *column)
{
    PyObject *name, *array, *type, *pad, *first;
    int missing = 0, packed = 0, items = 0, exact = 0;
    PyObject *fields = PySequence_Tuple(entry);
    bool good =
        fields != NULL &&
        PyArg_ParseTuple(fields,
                         "OOOOO|pppp;columns: (column, name, type, pad, first, missing, "
                         "packed, items, exact)",
                         &name, &array, &type, &pad, &first, &missing, &packed, &items, &exact);
    column->mark_missing = missing != 0;
    column->packed = packed != 0;
    column->mark_items = items != 0;
    column->exact = exact != 0;
    if (good && name == Py_None) {
        PyErr_SetString(PyExc_TypeError, "columns: a column's name is a str, not None");
        good = false;
    }
    good = good && keep_text(self, name, "column", &column->column) == 0 &&
           keep_text(self, array, "name", &column->name) == 0 &&
           keep_text(self, type, "type", &column->type) == 0;
    if (good && pad != Py_None)
        column->pad = PyFloat_AsDouble(pad);
    if (good && !PyErr_Occurred() && first != Py_None) {
        column->first = PyFloat_AsDouble(first);
        column->mark_first = true;
    }
    Py_XDECREF(fields);
    return good && !PyErr_Occurred() ? 0 : -1;
}

static int read_columns(collate *self, PyObject *columns)
{
    PyObject *entries = PySequence_Tuple(columns);
    if (entries == NULL)
        return -1;
    Py_ssize_t count = PyTuple_Size(entries);
    self->columns = PyMem_Calloc((size_t)count + 1, sizeof(*self->columns));
    if (self->columns == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; i++)
        read_column(self, PyTuple_GetItem(entries, i), &self->columns[i]);
    Py_DECREF(entries);
    self->options.columns = self->columns;
    self->options.column_count = (size_t)count;
    return PyErr_Occurred() ? -1 : 0;
}

static int read_options(collate *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {
        "layout",        "columns",   "to_multiple", "max_length",    "left",
        "mask",          "positions", "follows",     "cut_by_length", "row_items",
        "each_multiple", "documents", NULL};
    PyObject *layout = Py_None, *columns = Py_None, *multiple = NULL, *longest = NULL,
             *mask = Py_None;
    PyObject *positions = Py_None, *follows = Py_None, *row = NULL, *each = NULL,
             *documents = Py_None;
    int left = 0, by_length = 0;
    const char *chosen = NULL;
    uint64_t to_multiple = 1, max_length = 0, row_items = 0, each_multiple = 1;
    rks_collate_options *options = &self->options;
    rks_collate_options_default(options);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOOpOOOpOOO:Collate", names, &layout,
                                     &columns, &multiple, &longest, &left, &mask, &positions,
                                     &follows, &by_length, &row, &each, &documents) ||
        !core_number(multiple, "to_multiple", 1, UINT32_MAX, &to_multiple) ||
        !core_number(longest, "max_length", 0, UINT32_MAX, &max_length) ||
        keep_text(self, layout, "layout", &chosen) < 0 ||
        keep_text(self, mask, "mask", &options->mask) < 0 ||
        keep_text(self, positions, "positions", &options->positions) < 0 ||
        keep_text(self, follows, "follows", &options->follows) < 0 ||
        keep_text(self, documents, "documents", &options->documents) < 0 ||
        !core_number(row, "row_items", 0, UINT32_MAX, &row_items) ||
        !core_number(each, "each_multiple", 1, UINT32_MAX, &each_multiple))
        return -1;
    if (chosen != NULL)
        options->layout = chosen;
    options->to_multiple = (uint32_t)to_multiple;
    options->max_length = (uint32_t)max_length;
    options->left = left;
    options->cut_by_length = by_length;
    options->row_items = (uint32_t)row_items;
    options->each_multiple = (uint32_t)each_multiple;
    return columns == Py_None ? 0 : read_columns(self, columns);
}

static PyObject *collate_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    collate *self = (collate *)PyType_GenericAlloc(type, 0);
    if (self == NULL)
        return NULL;
    self->texts = PyList_New(0);
    if (self->texts == NULL || read_options(self, arguments, keywords) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void collate_dealloc(PyObject *object)
{
    collate *self = (collate *)object;
    PyMem_Free(self->columns);
    Py_XDECREF(self->texts);
    core_free_object(object);
}

static PyType_Slot collate_slots[] = {
    {Py_tp_doc, (void *)"How samples become arrays. `columns`: (column, name, type, pad, first), "
                        "None for defaults."},
    {Py_tp_new, collate_new},
    {Py_tp_dealloc, collate_dealloc},
    {0, NULL},
};

static PyType_Spec collate_spec = {
    .name = "rankstore._core.Collate",
    .basicsize = sizeof(collate),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = collate_slots,
};

/* ---- Arrays ---------------------------------------------------------------------------------- */

typedef struct arrays {
    PyObject_HEAD
    rks_arrays *handle;
    pid_t pid;
} arrays;

static PyTypeObject *arrays_type;

PyObject *core_arrays_new(rks_arrays *handle)
{
    arrays *self = (arrays *)PyType_GenericAlloc(arrays_type, 0);
    if (self == NULL) {
        rks_arrays_free(handle);
        return NULL;
    }
    self->handle = handle;
    self->pid = core_pid();
    return (PyObject *)self;
}

static void arrays_dealloc(PyObject *object)
{
    arrays *self = (arrays *)object;
    if (!core_is_foreign(self->pid))
        rks_arrays_free(self->handle);
    core_free_arenas();
    core_free_object(object);
}

static PyObject *arrays_ids(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_arrays *handle = ((arrays *)object)->handle;
    void *ids = (void *)(uintptr_t)rks_arrays_ids(handle);
    return core_buffer(object, ids, rks_arrays_samples(handle) * sizeof(uint64_t), false);
}

static PyObject *arrays_lengths(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_arrays *handle = ((arrays *)object)->handle;
    void *lengths = (void *)(uintptr_t)rks_arrays_lengths(handle);
    return core_buffer(object, lengths, rks_arrays_samples(handle) * sizeof(uint32_t), false);
}

static PyObject *arrays_pieces(PyObject *object, PyObject *unused)
{
    (void)unused;
    size_t count;
    const rks_piece *pieces = rks_arrays_pieces(((arrays *)object)->handle, &count);
    if (count == 0)
        Py_RETURN_NONE;
    return core_buffer(object, (void *)(uintptr_t)pieces, count * sizeof(*pieces), false);
}

static PyObject *dims_of(const rks_array *array)
{
    PyObject *dims = PyTuple_New((Py_ssize_t)array->dim_count);
    for (uint32_t i = 0; dims != NULL && i < array->dim_count; i++) {
        PyObject *size = PyLong_FromUnsignedLongLong(array->dims[i]);
        if (size == NULL)
            Py_CLEAR(dims);
        else
            PyTuple_SetItem(dims, (Py_ssize_t)i, size);
    }
    return dims;
}

static PyObject *describe(PyObject *owner, const rks_array *array)
{
    size_t samples = rks_arrays_samples(((arrays *)owner)->handle);
    PyObject *dims = dims_of(array);
    PyObject *data = core_buffer(owner, array->data, array->size, true);
    PyObject *offsets = array->offsets == NULL
                            ? Py_NewRef(Py_None)
                            : core_buffer(owner, (void *)(uintptr_t)array->offsets,
                                          (samples + 1) * sizeof(int64_t), false);
    if (dims != NULL && data != NULL && offsets != NULL)
        return Py_BuildValue("(ssNNN)", array->name, array->type, dims, data, offsets);
    Py_XDECREF(dims);
    Py_XDECREF(data);
    Py_XDECREF(offsets);
    return NULL;
}

static PyObject *arrays_list(PyObject *object, PyObject *unused)
{
    (void)unused;
    rks_arrays *handle = ((arrays *)object)->handle;
    size_t count = rks_arrays_count(handle);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *entry = describe(object, rks_arrays_get(handle, i));
        if (entry == NULL)
            Py_CLEAR(list);
        else
            PyList_SetItem(list, (Py_ssize_t)i, entry);
    }
    return list;
}

static PyObject *get_samples(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(rks_arrays_samples(((arrays *)object)->handle));
}

static PyGetSetDef arrays_getters[] = {
    {"samples", get_samples, NULL, "How many samples.", NULL},
    {0},
};

static PyMethodDef arrays_methods[] = {
    {"ids", arrays_ids, METH_NOARGS, "uint64[samples]"},
    {"lengths", arrays_lengths, METH_NOARGS, "uint32[samples]"},
    {"pieces", arrays_pieces, METH_NOARGS,
     "uint32[pieces, 3]: place, start, count; None if all samples are whole"},
    {"arrays", arrays_list, METH_NOARGS,
     "A list of (name, type, dims, data, offsets: int64[samples + 1] or None)"},
    {0},
};

static PyType_Slot arrays_slots[] = {
    {Py_tp_doc, (void *)"Samples as arrays, which own their memory."},
    {Py_tp_dealloc, arrays_dealloc},
    {Py_tp_methods, arrays_methods},
    {Py_tp_getset, arrays_getters},
    {0, NULL},
};

static PyType_Spec arrays_spec = {
    .name = "rankstore._core.Arrays",
    .basicsize = sizeof(arrays),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = arrays_slots,
};

int core_add_collate(PyObject *module)
{
    if (core_add_type(module, &collate_spec, &collate_type) < 0)
        return -1;
    return core_add_type(module, &arrays_spec, &arrays_type);
}
