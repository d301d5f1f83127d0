/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c: the module, and the functions that need no object. */
#include "handles.h"

static PyObject *status_name(PyObject *self, PyObject *argument)
{
    (void)self;
    long status = PyLong_AsLong(argument);
    if (status == -1 && PyErr_Occurred() != NULL)
        return NULL;
    bool known = status <= 0 && status >= RKS_ERR_CANCELLED;
    return PyUnicode_FromString(known ? rks_status_name((rks_status)status) : "unknown");
}

static PyObject *nccl_library(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *path = NULL;
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "z:nccl_library", &path))
        return NULL;
    if (rks_nccl_library(path, &err) != RKS_OK)
        return core_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *parse_schema(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *text;
    rks_schema *schema = NULL;
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "s:parse_schema", &text))
        return NULL;
    if (rks_schema_parse(text, &schema, &err) != RKS_OK)
        return core_raise(&err);
    uint32_t count = rks_schema_columns(schema);
    PyObject *columns = PyList_New((Py_ssize_t)count);
    for (uint32_t i = 0; columns != NULL && i < count; i++) {
        PyObject *pair =
            Py_BuildValue("(ss)", rks_schema_name(schema, i), rks_schema_type(schema, i));
        if (pair == NULL)
            Py_CLEAR(columns);
        else
            PyList_SetItem(columns, (Py_ssize_t)i, pair);
    }
    PyObject *parsed =
        columns == NULL ? NULL : Py_BuildValue("(sN)", rks_schema_text(schema), columns);
    rks_schema_free(schema);
    return parsed;
}

static PyObject *row_schema(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *text;
    PyObject *sequence, *made = NULL;
    int inferred;
    core_texts rules = {0};
    char *rows = NULL;
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "sOp:row_schema", &text, &sequence, &inferred))
        return NULL;
    if (core_texts_take(sequence, "counts", &rules)) {
        if (rks_build_row_schema(text, rules.texts, rules.count, inferred != 0, &rows, &err) ==
            RKS_OK)
            made = PyUnicode_FromString(rows);
        else
            core_raise(&err);
    }
    rks_release(rows);
    core_texts_free(&rules);
    return made;
}

/* Dimensions as a tuple; None for `*`. str, bytes and json have none. */
static PyObject *type_dims(const rks_type_info *info)
{
    uint32_t count = info->item_class >= RKS_CLASS_STR ? 0 : info->dim_count;
    PyObject *dims = PyTuple_New((Py_ssize_t)count);
    for (uint32_t i = 0; dims != NULL && i < count; i++) {
        PyObject *size =
            info->dims[i] == 0 ? Py_NewRef(Py_None) : PyLong_FromUnsignedLong(info->dims[i]);
        if (size == NULL)
            Py_CLEAR(dims);
        else
            PyTuple_SetItem(dims, (Py_ssize_t)i, size);
    }
    return dims;
}

static PyObject *describe_type(PyObject *self, PyObject *arguments)
{
    (void)self;
    static const char *const classes[] = {
        [RKS_CLASS_BOOL] = "bool",   [RKS_CLASS_INT] = "int",         [RKS_CLASS_UINT] = "uint",
        [RKS_CLASS_FLOAT] = "float", [RKS_CLASS_COMPLEX] = "complex", [RKS_CLASS_STR] = "str",
        [RKS_CLASS_BYTES] = "bytes", [RKS_CLASS_JSON] = "json"};
    const char *text;
    rks_type_info info = {.struct_size = sizeof(info)};
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "s:describe_type", &text))
        return NULL;
    if (rks_type_describe(text, &info, &err) != RKS_OK)
        return core_raise(&err);
    PyObject *dims = type_dims(&info);
    return dims == NULL
               ? NULL
               : Py_BuildValue("(ssINOsz)", info.item, classes[info.item_class], info.item_size,
                               dims, info.nullable ? Py_True : Py_False, info.numpy, info.meaning);
}

static PyObject *item_types(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    PyObject *names = PyList_New(0);
    const char *name;
    for (size_t i = 0; names != NULL && (name = rks_type_item(i)) != NULL; i++) {
        PyObject *one = PyUnicode_FromString(name);
        if (one == NULL || PyList_Append(names, one) < 0)
            Py_CLEAR(names);
        Py_XDECREF(one);
    }
    return names;
}

static PyObject *converts(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *from, *to;
    if (!PyArg_ParseTuple(arguments, "ss:converts", &from, &to))
        return NULL;
    return PyBool_FromLong(rks_collate_converts(from, to));
}

static PyObject *dataset_info(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *directory;
    char *json = NULL;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "s:dataset_info", &directory))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_dataset_info_json(directory, &json, &err);
    Py_END_ALLOW_THREADS
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *text = PyUnicode_FromString(json);
    rks_release(json);
    return text;
}

/* An exception stays set and ends the walk. */
static void found(void *user, const rks_finding *finding)
{
    PyGILState_STATE state = PyGILState_Ensure();
    if (PyErr_Occurred() == NULL) {
        PyObject *one = Py_BuildValue(
            "{s:N,s:K,s:y#,s:N,s:O}", "file", PyUnicode_DecodeFSDefault(finding->file), "offset",
            (unsigned long long)finding->offset, "key",
            finding->key_size == 0 ? "" : (const char *)finding->key, (Py_ssize_t)finding->key_size,
            "what", PyUnicode_FromString(finding->what), "leftover",
            finding->leftover ? Py_True : Py_False);
        if (one != NULL)
            PyList_Append(user, one);
        Py_XDECREF(one);
    }
    PyGILState_Release(state);
}

static PyObject *verify(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *path;
    int level;
    if (!PyArg_ParseTuple(arguments, "si:verify", &path, &level))
        return NULL;
    if (level < RKS_VERIFY_FAST || level > RKS_VERIFY_DEEP)
        return PyErr_Format(PyExc_ValueError, "level: %d is not 0 (fast), 1 (full) or 2 (deep)",
                            level);
    PyObject *findings = PyList_New(0);
    if (findings == NULL)
        return NULL;
    uint64_t samples = 0, count = 0;
    rks_error err = {0};
    rks_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rks_verify(path, (rks_verify_level)level, found, findings, &samples, &count, &err);
    Py_END_ALLOW_THREADS
    if (status == RKS_OK && PyErr_Occurred() == NULL)
        return Py_BuildValue("(KN)", (unsigned long long)samples, findings);
    Py_DECREF(findings);
    return status == RKS_OK ? NULL : core_raise(&err);
}

static PyObject *write_quarantine(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *path, *directory;
    PyObject *list;
    if (!PyArg_ParseTuple(arguments, "ssO!:write_quarantine", &path, &directory, &PyList_Type,
                          &list))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    uint64_t *ids = PyMem_Malloc((size_t)(count + 1) * sizeof(*ids));
    if (ids == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++)
        if (!core_number(PyList_GetItem(list, i), "sample", 0, UINT64_MAX, &ids[i])) {
            PyMem_Free(ids);
            return NULL;
        }
    rks_error err = {0};
    rks_status status = rks_quarantine_write(path, directory, ids, NULL, (size_t)count, &err);
    PyMem_Free(ids);
    if (status != RKS_OK)
        return core_raise(&err);
    Py_RETURN_NONE;
}

static PyObject *doctor(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *group_object;
    const char *directory;
    rks_group *group = NULL;
    if (!PyArg_ParseTuple(arguments, "Oz:doctor", &group_object, &directory))
        return NULL;
    if (group_object != Py_None && (group = core_group_enter(group_object)) == NULL)
        return NULL;
    char *json = NULL;
    rks_error err = {0};
    rks_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rks_doctor_json(group, directory, &json, &err);
    Py_END_ALLOW_THREADS
    if (group != NULL)
        core_group_leave(group_object);
    if (status != RKS_OK)
        return core_raise(&err);
    PyObject *text = PyErr_Occurred() != NULL ? NULL : PyUnicode_FromString(json);
    rks_release(json);
    return text;
}

static PyObject *check_interpreter(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    if (core_check_interpreter() < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *pid(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong((long)core_pid());
}

static PyMethodDef functions[] = {
    {"pid", pid, METH_NOARGS, "os.getpid() without a system call."},
    {"check_interpreter", check_interpreter, METH_NOARGS,
     "ImportError in a subinterpreter, which gets the main one's module without PyInit."},
    {"has_other_names", core_has_other_names, METH_O,
     "has_other_names(value): whether a dict in it has a name that is not a str"},
    {"status_name", status_name, METH_O, "The name of a status of librankstore: \"corrupt\"."},
    {"row_schema", row_schema, METH_VARARGS, "row_schema(schema, counts, inferred): the schema"},
    {"parse_schema", parse_schema, METH_VARARGS, "parse_schema(text): (text, [(name, type), ...])"},
    {"describe_type", describe_type, METH_VARARGS,
     "describe_type(type): (item, class, item size, dims, nullable, numpy's name, meaning)"},
    {"item_types", item_types, METH_NOARGS, "item_types(): [name, ...]"},
    {"converts", converts, METH_VARARGS, "converts(from, to): whether a collate may convert them."},
    {"dataset_info", dataset_info, METH_VARARGS, "dataset_info(directory): JSON text"},
    {"plan_limits", WITH_KEYWORDS(core_plan_limits),
     "plan_limits(None, **options of Plan): what bounds the batches"},
    {"nccl_library", nccl_library, METH_VARARGS, "nccl_library(path): the NCCL to load"},
    {"verify", verify, METH_VARARGS, "verify(path, level): (samples, findings)"},
    {"write_quarantine", write_quarantine, METH_VARARGS,
     "write_quarantine(path, directory, [id, ...])"},
    {"doctor", doctor, METH_VARARGS, "doctor(group, directory): JSON text"},
    {"memory_use", core_memory_use, METH_NOARGS, "memory_use(): {kind: (current, peak)}"},
    {"memory_use_all", core_memory_use_all, METH_O,
     "memory_use_all(group): ([{kind: (current, peak)} by rank], "
     "{kind: (current, current_rank, peak, peak_rank, least_peak)}). COLLECTIVE"},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_core",
    .m_doc = "librankstore for Python; private, see rankstore.",
    .m_size = -1,
    .m_methods = functions,
};

/* Each adds the types and functions of a file. */
static int (*const ADDS[])(PyObject *) = {
    core_add_group,       core_add_launch, core_add_build,   core_add_input,   core_add_files,
    core_add_gather,      core_add_buffer, core_add_view,    core_add_samples, core_add_collate,
    core_add_sample_list, core_add_rows,   core_add_arenas,  core_add_store,   core_add_plan,
    core_add_epoch,       core_add_upkeep, core_add_workers,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    if (core_check_interpreter() < 0 || core_watch_forks() < 0)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    int status = PyModule_AddStringConstant(module, "version", rks_version());
    for (size_t i = 0; status == 0 && i < sizeof(ADDS) / sizeof(ADDS[0]); i++)
        status = ADDS[i](module);
    if (status < 0) {
        Py_DECREF(module);
        return NULL;
    }
    core_watch_signals();
    return module;
}
