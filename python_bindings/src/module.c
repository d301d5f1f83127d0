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

static PyObject *pid(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return PyLong_FromLong((long)core_pid());
}

static PyMethodDef functions[] = {
    {"pid", pid, METH_NOARGS, "os.getpid() without a system call."},
    {"status_name", status_name, METH_O, "The name of a status of librankstore: \"corrupt\"."},
    {"parse_schema", parse_schema, METH_VARARGS, "parse_schema(text): (text, [(name, type), ...])"},
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

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = core_watch_forks() < 0 ? NULL : PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (PyModule_AddStringConstant(module, "version", rks_version()) < 0 ||
        core_add_group(module) < 0 || core_add_launch(module) < 0 || core_add_build(module) < 0 ||
        core_add_builder(module) < 0 || core_add_reader(module) < 0 ||
        core_add_gather(module) < 0 || core_add_buffer(module) < 0 || core_add_view(module) < 0 ||
        core_add_samples(module) < 0 || core_add_collate(module) < 0 || core_add_rows(module) < 0 ||
        core_add_arenas(module) < 0 || core_add_store(module) < 0 || core_add_plan(module) < 0 ||
        core_add_epoch(module) < 0 || core_add_upkeep(module) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    core_watch_signals();
    return module;
}
