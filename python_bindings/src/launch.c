/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c: launch, which runs a Python function in forked ranks.
 *
 * rks_launch forks without the GIL, and then supervises. Handlers inform Python of each fork, as
 * os.fork() does; they act only in a thread that is launching:
 *
 *   prepare: take the GIL, PyOS_BeforeFork ─► fork ─┬─► parent: PyOS_AfterFork_Parent, release it
 *                                                   └─► child: PyOS_AfterFork_Child, keep it */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

typedef struct launch_state {
    PyObject *main;
    rks_group_options options;
    PyThreadState *thread;
} launch_state;

static _Thread_local launch_state *launching;

static void before_fork(void)
{
    if (launching == NULL)
        return;
    PyEval_RestoreThread(launching->thread);
    PyOS_BeforeFork();
}

static void after_fork_parent(void)
{
    if (launching == NULL)
        return;
    PyOS_AfterFork_Parent();
    launching->thread = PyEval_SaveThread();
}

static void after_fork_child(void)
{
    if (launching == NULL)
        return;
    launching = NULL;
    PyOS_AfterFork_Child();
}

static void flush(const char *stream)
{
    PyObject *file = PySys_GetObject(stream); /* borrowed */
    if (file == NULL || file == Py_None)
        return;
    PyObject *done = PyObject_CallMethod(file, "flush", NULL);
    Py_XDECREF(done);
    PyErr_Clear();
}

static int exit_code_of(PyObject *value)
{
    if (value == NULL || value == Py_None)
        return 0;
    long code = PyLong_AsLong(value);
    if (PyErr_Occurred() != NULL) {
        PyErr_Clear();
        return 1;
    }
    return (code & 0xff) == 0 && code != 0 ? 1 : (int)(code & 0xff);
}

/* Prints the traceback with one write: sys.stderr writes each word by itself, and ranks may fail
 * together. */
static void print_exception(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *file = Py_XNewRef(PySys_GetObject("stderr")); /* replaced below */
    PyObject *io = PyImport_ImportModule("io");
    PyObject *text = io == NULL ? NULL : PyObject_CallMethod(io, "StringIO", NULL);
    Py_XDECREF(io);
    PyErr_Clear();
    PyErr_Restore(type, value, trace);
    if (file == NULL || text == NULL || PySys_SetObject("stderr", text) < 0) {
        Py_XDECREF(text);
        Py_XDECREF(file);
        PyErr_PrintEx(0);
        return;
    }
    PyErr_PrintEx(0);
    PySys_SetObject("stderr", file);
    PyObject *all = PyObject_CallMethod(text, "getvalue", NULL);
    if (all != NULL && file != Py_None)
        PyFile_WriteObject(all, file, Py_PRINT_RAW);
    PyErr_Clear();
    Py_XDECREF(all);
    Py_DECREF(file);
    Py_DECREF(text);
}

/* Returns the exit code as the interpreter does: sys.exit(3) is 3, sys.exit("text") prints the
 * text, Ctrl-C is 130. */
static int exit_code_of_exception(void)
{
    if (!PyErr_ExceptionMatches(PyExc_SystemExit)) {
        int failed = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) ? 128 + SIGINT : 1;
        print_exception();
        return failed;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject *code = value == NULL ? NULL : PyObject_GetAttrString(value, "code");
    if (code != NULL && code != Py_None && !PyLong_Check(code)) {
        PyObject *text = PyObject_Str(code);
        if (text != NULL)
            PySys_FormatStderr("%U\n", text);
        Py_XDECREF(text);
    }
    int answer = exit_code_of(code);
    Py_XDECREF(code);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return answer;
}

/* Runs a rank in the child, which holds the GIL. The child ends here, as other forked Python
 * processes do, without the parent's exit functions. */
static int run_rank(const rks_bootstrap *bootstrap, void *user)
{
    launch_state *state = user;
    state->options.bootstrap = bootstrap;
    int code = 1;
    PyObject *group = core_group_open(&state->options);
    if (group != NULL) {
        PyObject *answer = PyObject_CallFunctionObjArgs(state->main, group, NULL);
        if (answer != NULL)
            code = exit_code_of(answer);
        Py_XDECREF(answer);
    }
    if (PyErr_Occurred() != NULL)
        code = exit_code_of_exception();
    if (group != NULL)
        core_group_end(group);
    flush("stdout");
    flush("stderr");
    fflush(NULL);
    _exit(code);
}

static PyObject *launch(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"ranks", "main", "silence_ms", NULL};
    PyObject *ranks_object, *silence = NULL, *main;
    launch_state state = {0};
    rks_group_options_default(&state.options);
    uint64_t ranks = 0, silence_ms = state.options.silence_ms;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|$O:launch", names, &ranks_object,
                                     &main, &silence) ||
        !core_number(ranks_object, "ranks", 1, 4096, &ranks) ||
        !core_number(silence, "silence_ms", 200, 3600000, &silence_ms))
        return NULL;
    if (!PyCallable_Check(main) || ranks == 0)
        return PyErr_Format(PyExc_TypeError, "launch takes an int and a callable");
    state.main = main;
    state.options.silence_ms = (uint32_t)silence_ms;
    flush("stdout");
    flush("stderr");
    rks_error err = {0};
    int code = 0;
    launching = &state;
    state.thread = PyEval_SaveThread();
    rks_status status = rks_launch((uint32_t)ranks, run_rank, &state, &code, &err);
    PyEval_RestoreThread(state.thread);
    launching = NULL;
    if (status != RKS_OK)
        return core_raise(&err);
    return PyLong_FromLong(code);
}

static PyMethodDef functions[] = {
    {"launch", WITH_KEYWORDS(launch),
     "launch(ranks, main, *, silence_ms=None): main(group) in forked processes; an exit code."},
    {0},
};

int core_add_launch(PyObject *module)
{
    int error = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    if (error != 0) {
        PyErr_Format(PyExc_OSError, "pthread_atfork: %s", strerror(error));
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}
