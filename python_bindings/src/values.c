/* SPDX-License-Identifier: Apache-2.0
 *
 * values.c: reads a sample's values from Python objects. Objects that have the column's item type
 * already are only pointed at; others go through rankstore._schema.values.convert once. */
#include <math.h>
#include <string.h>

#include "core.h"

/* Keeps one column's value alive while it is read. */
typedef struct slot {
    PyObject *object;
    Py_buffer view;
    bool viewed;
    uint64_t scalar; /* room for one number */
} slot;

struct core_values {
    uint32_t count;
    core_column *columns;
    slot *slots;
    rks_value *values;
    PyObject *texts; /* a tuple of str: names and types */
    PyObject *convert;
};

typedef enum outcome {
    TAKEN,
    FAILED, /* an exception is set */
    OTHER,  /* another type than the column's: convert handles it */
} outcome;

/* ---- types --------------------------------------------------------------------------------- */

static const core_class CLASSES[] = {
    [RKS_CLASS_BOOL] = CORE_BOOL,       [RKS_CLASS_INT] = CORE_INT,
    [RKS_CLASS_UINT] = CORE_UINT,       [RKS_CLASS_FLOAT] = CORE_FLOAT,
    [RKS_CLASS_COMPLEX] = CORE_COMPLEX, [RKS_CLASS_STR] = CORE_STR,
    [RKS_CLASS_BYTES] = CORE_BYTES,     [RKS_CLASS_JSON] = CORE_JSON,
};

static bool describe_column(core_column *column)
{
    rks_type_info info = {.struct_size = sizeof(info)};
    rks_error err = {0};
    if (rks_type_describe(column->type, &info, &err) != RKS_OK) {
        core_raise(&err);
        return false;
    }
    bool bits = info.item_class == RKS_CLASS_FLOAT && info.numpy[1] == 'u';
    column->class = bits ? CORE_BITS : CLASSES[info.item_class];
    column->item_size = info.item_size;
    if (info.item_class >= RKS_CLASS_STR)
        return true; /* values of these have no shape */
    column->dim_count = info.dim_count;
    column->variable_dims = info.variable_dims;
    memcpy(column->dims, info.dims, sizeof(column->dims));
    return true;
}

/* Copies the names and types of the columns, so that they outlive the schema. */
static bool copy_columns(core_values *values, const rks_schema *schema)
{
    values->texts = PyTuple_New((Py_ssize_t)values->count * 2);
    for (uint32_t i = 0; values->texts != NULL && i < values->count; i++) {
        core_column *column = &values->columns[i];
        PyObject *name = PyUnicode_FromString(rks_schema_name(schema, i));
        PyObject *type = PyUnicode_FromString(rks_schema_type(schema, i));
        column->name = name == NULL ? NULL : PyUnicode_AsUTF8AndSize(name, NULL);
        column->type = type == NULL ? NULL : PyUnicode_AsUTF8AndSize(type, NULL);
        if (name != NULL)
            PyTuple_SetItem(values->texts, (Py_ssize_t)i * 2, name);
        if (type != NULL)
            PyTuple_SetItem(values->texts, (Py_ssize_t)i * 2 + 1, type);
        if (column->name == NULL || column->type == NULL || !describe_column(column))
            return false;
    }
    return values->texts != NULL;
}

core_values *core_values_new(const rks_schema *schema)
{
    core_values *values = PyMem_Calloc(1, sizeof(*values));
    if (values == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    values->count = rks_schema_columns(schema);
    values->columns = PyMem_Calloc(values->count, sizeof(*values->columns));
    values->slots = PyMem_Calloc(values->count, sizeof(*values->slots));
    values->values = PyMem_Calloc(values->count, sizeof(*values->values));
    if (values->columns == NULL || values->slots == NULL || values->values == NULL) {
        PyErr_NoMemory();
    } else if (copy_columns(values, schema)) {
        return values;
    }
    core_values_free(values);
    return NULL;
}

void core_values_free(core_values *values)
{
    if (values == NULL)
        return;
    if (values->slots != NULL)
        core_values_release(values);
    PyMem_Free(values->columns);
    PyMem_Free(values->slots);
    PyMem_Free(values->values);
    Py_XDECREF(values->texts);
    Py_XDECREF(values->convert);
    PyMem_Free(values);
}

void core_values_release(core_values *values)
{
    for (uint32_t i = 0; i < values->count; i++) {
        slot *s = &values->slots[i];
        if (s->viewed)
            PyBuffer_Release(&s->view);
        s->viewed = false;
        Py_CLEAR(s->object);
    }
}

const core_column *core_values_column(const core_values *values, uint32_t column)
{
    return column < values->count ? &values->columns[column] : NULL;
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* Returns the class of a struct-module format of one item, in this machine's order. */
static core_class class_of(const Py_buffer *view)
{
    const char *format = view->format == NULL ? "B" : view->format;
    bool swapped = *format == '>' || *format == '!';
    if (swapped && view->itemsize > 1)
        return CORE_OTHER;
    format += strchr("@=<>!", *format) != NULL;
    if (strcmp(format, "Zf") == 0)
        return CORE_COMPLEX;
    if (format[0] == '\0' || format[1] != '\0')
        return CORE_OTHER;
    return strchr("?", *format) != NULL         ? CORE_BOOL
           : strchr("bhilqn", *format) != NULL  ? CORE_INT
           : strchr("cBHILQN", *format) != NULL ? CORE_UINT
           : strchr("efd", *format) != NULL     ? CORE_FLOAT
                                                : CORE_OTHER;
}

bool core_column_fits(const core_column *column, const Py_buffer *view)
{
    core_class class = class_of(view);
    if (view->itemsize != (Py_ssize_t)column->item_size)
        return false;
    if (column->class == CORE_BYTES)
        return class == CORE_INT || class == CORE_UINT;
    return class == (column->class == CORE_BITS ? CORE_UINT : column->class);
}

static outcome shape_error(const core_column *column, const Py_buffer *view)
{
    PyObject *shape = PyTuple_New(view->ndim);
    for (int i = 0; shape != NULL && i < view->ndim; i++)
        PyTuple_SetItem(shape, i, PyLong_FromSsize_t(view->shape[i]));
    if (shape != NULL)
        PyErr_Format(PyExc_ValueError, "column \"%s\": shape %R is not a value of %s", column->name,
                     shape, column->type);
    Py_XDECREF(shape);
    return FAILED;
}

static outcome read_shape(const core_column *column, const Py_buffer *view, rks_value *value)
{
    bool flat = column->class == CORE_BYTES; /* only its size matters */
    if (view->ndim != (flat ? 1 : (int)column->dim_count))
        return shape_error(column, view);
    for (uint32_t i = 0; i < column->dim_count; i++) {
        uint64_t size = (uint64_t)view->shape[i];
        if (size > UINT32_MAX || (column->dims[i] != 0 && size != column->dims[i]))
            return shape_error(column, view);
        value->dims[i] = (uint32_t)size;
    }
    return TAKEN;
}

static outcome read_buffer(const core_column *column, slot *s, rks_value *value)
{
    if (PyObject_GetBuffer(s->object, &s->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_Exception))
            return FAILED;
        PyErr_Clear(); /* not contiguous, or an item that has no format */
        return OTHER;
    }
    s->viewed = true;
    if (!core_column_fits(column, &s->view)) {
        PyBuffer_Release(&s->view);
        s->viewed = false;
        return OTHER;
    }
    value->data = s->view.buf != NULL ? s->view.buf : &s->scalar; /* NULL would mean missing */
    value->size = (uint64_t)s->view.len;
    return read_shape(column, &s->view, value);
}

/* ---- scalars ------------------------------------------------------------------------------- */

static outcome range_error(const core_column *column, PyObject *object)
{
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "column \"%s\": %S is not a value of %s", column->name, object,
                 column->type);
    return FAILED;
}

static outcome read_int(const core_column *column, slot *s)
{
    uint32_t bits = column->item_size * 8;
    if (column->class == CORE_UINT) {
        unsigned long long number = PyLong_AsUnsignedLongLong(s->object);
        if (PyErr_Occurred() != NULL || (bits < 64 && number >> bits != 0))
            return range_error(column, s->object);
        s->scalar = number;
        return TAKEN;
    }
    int overflow = 0;
    long long number = PyLong_AsLongLongAndOverflow(s->object, &overflow);
    long long most = (long long)(UINT64_MAX >> (65 - bits));
    if (overflow != 0 || number > most || number < -most - 1)
        return range_error(column, s->object);
    s->scalar = (uint64_t)number;
    return TAKEN;
}

/* Reads a float. A float is rounded to the column's precision, since Python has only one; an int
 * must stay exact. */
static outcome read_float(const core_column *column, slot *s)
{
    bool whole = PyLong_Check(s->object);
    double number = PyFloat_AsDouble(s->object);
    if (PyErr_Occurred() != NULL)
        return range_error(column, s->object);
    double stored = column->item_size == 4 ? (double)(float)number : number;
    if (isinf(stored) && !isinf(number))
        return range_error(column, s->object);
    if (whole) {
        PyObject *back = PyLong_FromDouble(stored);
        int same = back == NULL ? -1 : PyObject_RichCompareBool(back, s->object, Py_EQ);
        Py_XDECREF(back);
        if (same != 1)
            return range_error(column, s->object);
    }
    if (column->item_size == 4) {
        float narrow = (float)number;
        memcpy(&s->scalar, &narrow, sizeof(narrow));
    } else {
        memcpy(&s->scalar, &number, sizeof(number));
    }
    return TAKEN;
}

static outcome read_scalar(const core_column *column, slot *s, rks_value *value)
{
    outcome got = OTHER;
    s->scalar = 0;
    if (PyBool_Check(s->object)) {
        if (column->class == CORE_BOOL) {
            s->scalar = s->object == Py_True;
            got = TAKEN;
        }
    } else if (PyLong_Check(s->object) &&
               (column->class == CORE_INT || column->class == CORE_UINT)) {
        got = read_int(column, s);
    } else if ((PyFloat_Check(s->object) || PyLong_Check(s->object)) &&
               column->class == CORE_FLOAT && column->item_size >= 4) {
        got = read_float(column, s);
    }
    if (got == TAKEN) {
        value->data = &s->scalar; /* little-endian: the low bytes come first */
        value->size = column->item_size;
    }
    return got;
}

/* ---- one value ------------------------------------------------------------------------------- */

static outcome read_text(const core_column *column, slot *s, rks_value *value)
{
    Py_ssize_t size = 0;
    value->data = PyUnicode_AsUTF8AndSize(s->object, &size);
    value->size = (uint64_t)size;
    if (value->data != NULL)
        return TAKEN;
    if (PyErr_ExceptionMatches(PyExc_UnicodeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError, "column \"%s\": %A has surrogates, which UTF-8 has not",
                     column->name, s->object);
    }
    return FAILED;
}

/* Returns true for numpy's masked arrays, whose buffer has what stands below the mask. Remembers
 * the last type that has none, since nearly all values are of one type. */
static bool may_have_mask(PyObject *object)
{
    static PyTypeObject *plain;
    PyTypeObject *type = Py_TYPE(object);
    if (type == plain)
        return false;
    if (PyObject_HasAttrString((PyObject *)type, "mask"))
        return true;
    Py_XDECREF((PyObject *)plain);
    plain = (PyTypeObject *)Py_NewRef((PyObject *)type);
    return false;
}

static outcome read_object(const core_column *column, slot *s, rks_value *value)
{
    *value = (rks_value){0};
    if (s->object == Py_None) {
        if (strcmp(column->type, "json") == 0) { /* JSON has its own null */
            value->data = "null";
            value->size = value->dims[0] = 4;
        }
        return TAKEN;
    }
    if (column->class == CORE_JSON)
        return OTHER; /* convert() makes JSON of it: a str is a value, and no JSON text */
    if (column->class == CORE_STR)
        return PyUnicode_Check(s->object) ? read_text(column, s, value) : OTHER;
    if (column->class != CORE_BYTES && column->dim_count == 0) {
        outcome got = read_scalar(column, s, value);
        if (got != OTHER)
            return got;
    }
    return PyObject_CheckBuffer(s->object) && !may_have_mask(s->object)
               ? read_buffer(column, s, value)
               : OTHER;
}

static bool find_convert(core_values *values)
{
    if (values->convert != NULL)
        return true;
    PyObject *module = PyImport_ImportModule("rankstore._schema.values");
    if (module != NULL)
        values->convert = PyObject_GetAttrString(module, "convert");
    Py_XDECREF(module);
    return values->convert != NULL;
}

static bool convert(core_values *values, uint32_t i)
{
    slot *s = &values->slots[i];
    const core_column *column = &values->columns[i];
    if (!find_convert(values))
        return false;
    PyObject *made = PyObject_CallFunctionObjArgs(
        values->convert, PyTuple_GetItem(values->texts, (Py_ssize_t)i * 2),
        PyTuple_GetItem(values->texts, (Py_ssize_t)i * 2 + 1), s->object, NULL);
    if (made == NULL)
        return false;
    Py_DECREF(s->object);
    s->object = made;
    bool text = column->class == CORE_JSON && PyUnicode_Check(made);
    outcome got = text ? read_text(column, s, &values->values[i])
                       : read_object(column, s, &values->values[i]);
    if (got == OTHER)
        PyErr_Format(PyExc_TypeError, "column \"%s\": %R is not a value of %s", column->name,
                     Py_TYPE(made), column->type);
    return got == TAKEN;
}

const rks_value *core_values_read(core_values *values, PyObject *sequence)
{
    if (!PyList_Check(sequence) && !PyTuple_Check(sequence)) {
        PyErr_Format(PyExc_TypeError, "values: a list or tuple, one value a column, not %R",
                     Py_TYPE(sequence));
        return NULL;
    }
    if (PySequence_Size(sequence) != (Py_ssize_t)values->count) {
        PyErr_Format(PyExc_ValueError, "%zd values for %u columns", PySequence_Size(sequence),
                     values->count);
        return NULL;
    }
    for (uint32_t i = 0; i < values->count; i++) {
        slot *s = &values->slots[i];
        s->object = PySequence_GetItem(sequence, (Py_ssize_t)i);
        outcome got =
            s->object == NULL ? FAILED : read_object(&values->columns[i], s, &values->values[i]);
        if (got == FAILED || (got == OTHER && !convert(values, i))) {
            core_values_release(values);
            return NULL;
        }
    }
    return values->values;
}

/* ---- JSON --------------------------------------------------------------------------------- */

/* Returns 1 if a dict in the value has a name that is not a str, 0 if none has, -1 with an
 * exception if the value is too deep. */
static int has_other_names(PyObject *value)
{
    PyObject *name, *one;
    Py_ssize_t at = 0;
    int found = 0;
    bool list = PyList_Check(value), tuple = PyTuple_Check(value);
    if (!list && !tuple && !PyDict_Check(value))
        return 0;
    if (Py_EnterRecursiveCall(" in a value of JSON") != 0)
        return -1;
    if (list || tuple)
        for (; found == 0 && at < (list ? PyList_Size(value) : PyTuple_Size(value)); at++)
            found = has_other_names(list ? PyList_GetItem(value, at) : PyTuple_GetItem(value, at));
    else
        while (found == 0 && PyDict_Next(value, &at, &name, &one))
            found = PyUnicode_Check(name) ? has_other_names(one) : 1;
    Py_LeaveRecursiveCall();
    return found;
}

PyObject *core_has_other_names(PyObject *module, PyObject *value)
{
    (void)module;
    int found = has_other_names(value);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

/* ---- values for Python --------------------------------------------------------------------- */

PyObject *core_value_copy(const core_column *column, const rks_value *value)
{
    if (value->data == NULL)
        Py_RETURN_NONE;
    PyObject *dims = PyTuple_New((Py_ssize_t)column->dim_count);
    for (uint32_t i = 0; dims != NULL && i < column->dim_count; i++) {
        PyObject *size = PyLong_FromUnsignedLong(value->dims[i]);
        if (size == NULL)
            Py_CLEAR(dims);
        else
            PyTuple_SetItem(dims, (Py_ssize_t)i, size);
    }
    if (dims == NULL)
        return NULL;
    return Py_BuildValue("(y#N)", (const char *)value->data, (Py_ssize_t)value->size, dims);
}

PyObject *core_values_copy(const core_values *values, const rks_value *list)
{
    PyObject *copies = PyList_New((Py_ssize_t)values->count);
    for (uint32_t i = 0; copies != NULL && i < values->count; i++) {
        PyObject *copy = core_value_copy(&values->columns[i], &list[i]);
        if (copy == NULL)
            Py_CLEAR(copies);
        else
            PyList_SetItem(copies, (Py_ssize_t)i, copy);
    }
    return copies;
}
