/* SPDX-License-Identifier: Apache-2.0
 *
 * workers.c: WorkerService and WorkerLink, by which worker processes ask the process that opened a
 * dataset. A message is made of parts: each lies at a multiple of 64 bytes, so that arrays in it
 * are aligned. */
#include <string.h>

#include "handles.h"

enum { PART_ALIGN = 64 };

/* ---- messages -------------------------------------------------------------------------------- */

/* The parts of a message, held until parts_release. */
typedef struct parts {
    PyObject *sequence;
    Py_buffer *views;
    Py_ssize_t count;
    size_t size; /* of the message */
} parts;

static size_t aligned(size_t size)
{
    return (size + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

static void parts_release(parts *all)
{
    for (Py_ssize_t i = 0; i < all->count; i++)
        PyBuffer_Release(&all->views[i]);
    PyMem_Free(all->views);
    Py_XDECREF(all->sequence);
}

/* Takes a sequence of bytes-like objects. Returns false with an exception. */
static bool parts_take(PyObject *object, parts *all)
{
    *all = (parts){.sequence = PySequence_List(object)};
    Py_ssize_t count = all->sequence == NULL ? -1 : PyList_Size(all->sequence);
    if (count >= 0)
        all->views = PyMem_Calloc((size_t)count + 1, sizeof(*all->views));
    if (all->views == NULL) {
        if (count >= 0)
            PyErr_NoMemory();
        parts_release(all);
        return false;
    }
    for (; all->count < count; all->count++) {
        Py_buffer *view = &all->views[all->count];
        if (PyObject_GetBuffer(PyList_GetItem(all->sequence, all->count), view, PyBUF_SIMPLE) < 0) {
            parts_release(all);
            return false;
        }
        all->size = aligned(all->size) + (size_t)view->len;
    }
    return true;
}

static void parts_put(const parts *all, uint8_t *to)
{
    size_t at = 0;
    for (Py_ssize_t i = 0; i < all->count; i++) {
        size_t place = aligned(at), size = (size_t)all->views[i].len;
        memset(to + at, 0, place - at);
        if (size > 0)
            memcpy(to + place, all->views[i].buf, size);
        at = place + size;
    }
}

/* ---- WorkerService --------------------------------------------------------------------------- */

typedef struct service_object {
    PyObject_HEAD
    rks_worker_service *handle; /* NULL: closed */
    PyObject *answer;
    pid_t owner;
} service_object;

/* Calls answer(request), which returns the parts of the reply. */
static rks_status answer_request(PyObject *answer, const void *request, size_t size, parts *all,
                                 rks_error *err)
{
    PyObject *answered = PyObject_CallFunction(answer, "y#", request, (Py_ssize_t)size);
    bool good = answered != NULL && parts_take(answered, all);
    Py_XDECREF(answered);
    if (good)
        return RKS_OK;
    rks_status status = core_caught("a worker's request", RKS_ERR_DATA, err);
    PyErr_Clear(); /* this thread returns to no Python code */
    return status;
}

static rks_status serve_worker(void *user, const void *request, size_t size,
                               rks_worker_reply *reply, rks_error *err)
{
    parts all;
    PyGILState_STATE state = PyGILState_Ensure();
    rks_status status = answer_request(((service_object *)user)->answer, request, size, &all, err);
    if (status == RKS_OK) {
        uint8_t *room = rks_worker_reply_room(reply, all.size, err);
        if (room == NULL) {
            status = RKS_ERR_MEMORY;
        } else {
            Py_BEGIN_ALLOW_THREADS
            parts_put(&all, room);
            Py_END_ALLOW_THREADS
        }
        parts_release(&all);
    }
    PyGILState_Release(state);
    return status;
}

static PyObject *service_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"answer", "silence_ms", "max_request", NULL};
    PyObject *answer, *silence = Py_None, *most = Py_None;
    uint64_t silence_ms, max_request;
    rks_worker_service_options options;
    rks_error err = {0};
    rks_worker_service_options_default(&options);
    silence_ms = options.silence_ms;
    max_request = options.max_request;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O|OO:WorkerService", names, &answer,
                                     &silence, &most) ||
        !core_number(silence, "silence_ms", 100, UINT32_MAX, &silence_ms) ||
        !core_number(most, "max_request", 4096, UINT64_MAX / 2, &max_request))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    service_object *self = (service_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->answer = Py_NewRef(answer);
    self->owner = core_pid();
    options.serve = serve_worker;
    options.user = self;
    options.silence_ms = (uint32_t)silence_ms;
    options.max_request = max_request;
    rks_status status = rks_worker_service_open(&options, &self->handle, &err);
    if (status == RKS_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return core_raise(&err);
}

static rks_worker_service *service_take(service_object *self)
{
    rks_worker_service *handle = self->handle;
    self->handle = NULL;
    return handle;
}

/* A forked child lets go of the socket alone: all else is its parent's. */
static void close_service(service_object *self)
{
    rks_worker_service *handle = CORE_HELD(self, service_take(self));
    if (handle == NULL)
        return;
    if (core_is_foreign(self->owner)) {
        rks_worker_service_forget(handle);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    rks_worker_service_close(handle);
    Py_END_ALLOW_THREADS
}

static PyObject *service_close(service_object *self, PyObject *unused)
{
    (void)unused;
    close_service(self);
    Py_RETURN_NONE;
}

static PyObject *service_text(service_object *self,
                              const char *(*text)(const rks_worker_service *service))
{
    return core_check_usable(self->handle, self->owner, "worker service") < 0
               ? NULL
               : PyUnicode_FromString(text(self->handle));
}

static PyObject *service_name(PyObject *self, void *unused)
{
    (void)unused;
    return service_text((service_object *)self, rks_worker_service_name);
}

static PyObject *service_token(PyObject *self, void *unused)
{
    (void)unused;
    return service_text((service_object *)self, rks_worker_service_token);
}

static int service_traverse(service_object *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->answer);
    return 0;
}

static int service_clear(PyObject *object)
{
    close_service((service_object *)object);
    Py_CLEAR(((service_object *)object)->answer);
    return 0;
}

static void service_dealloc(PyObject *object)
{
    PyObject *type, *value, *trace;
    PyObject_GC_UnTrack(object);
    PyErr_Fetch(&type, &value, &trace);
    service_clear(object);
    PyErr_Restore(type, value, trace);
    core_free_object(object);
}

static PyMethodDef service_methods[] = {
    {"close", (PyCFunction)(void (*)(void))service_close, METH_NOARGS,
     "Refuses requests, and waits for those that are being answered. A forked child closes its "
     "descriptor alone. Twice is fine."},
    {0},
};

static PyGetSetDef service_getters[] = {
    {"name", service_name, NULL, "Of the socket.", NULL},
    {"token", service_token, NULL, "What a link needs beside the name.", NULL},
    {0},
};

static PyType_Slot service_slots[] = {
    {Py_tp_doc, (void *)"WorkerService(answer, silence_ms=15000, max_request=4 MiB): calls "
                        "answer(request), which returns the parts of the reply, on threads of its "
                        "own."},
    {Py_tp_new, service_new},
    {Py_tp_dealloc, service_dealloc},
    {Py_tp_traverse, service_traverse},
    {Py_tp_clear, service_clear},
    {Py_tp_methods, service_methods},
    {Py_tp_getset, service_getters},
    {0, NULL},
};

static PyType_Spec service_spec = {
    .name = "rankstore._core.WorkerService",
    .basicsize = sizeof(service_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = service_slots,
};

/* ---- WorkerLink ------------------------------------------------------------------------------ */

typedef struct link_object {
    PyObject_HEAD
    rks_worker_link *handle; /* NULL: closed */
    pid_t owner;
    int asking; /* calls that use the handle */
} link_object;

static PyObject *link_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"name", "token", "silence_ms", NULL};
    const char *name, *token;
    PyObject *silence;
    uint64_t silence_ms = 0;
    rks_error err = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "ssO:WorkerLink", names, &name, &token,
                                     &silence) ||
        !core_number(silence, "silence_ms", 100, UINT32_MAX, &silence_ms))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    link_object *self = (link_object *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->owner = core_pid();
    rks_status status =
        rks_worker_link_open(name, token, (uint32_t)silence_ms, &self->handle, &err);
    if (status == RKS_OK)
        return (PyObject *)self;
    Py_DECREF(self);
    return core_raise(&err);
}

/* Returns the handle for one call; link_leave ends it. NULL with an exception. */
static rks_worker_link *link_enter(link_object *self)
{
    if (core_check_usable(self->handle, self->owner, "worker link") < 0)
        return NULL;
    self->asking++;
    return self->handle;
}

static int link_leave(link_object *self)
{
    self->asking--;
    return 0;
}

static PyObject *link_ask(link_object *self, PyObject *sequence)
{
    parts all;
    void *reply = NULL;
    size_t size = 0;
    rks_error err = {0};
    rks_status status = RKS_OK;
    if (!parts_take(sequence, &all))
        return NULL;
    uint8_t *request = PyMem_Malloc(all.size + 1);
    if (request == NULL)
        PyErr_NoMemory();
    rks_worker_link *handle = request == NULL ? NULL : CORE_HELD(self, link_enter(self));
    if (handle == NULL) {
        PyMem_Free(request);
        parts_release(&all);
        return NULL;
    }
    parts_put(&all, request);
    Py_BEGIN_ALLOW_THREADS
    status = rks_worker_link_ask(handle, request, all.size, &reply, &size, &err);
    Py_END_ALLOW_THREADS(void)
    CORE_HELD(self, link_leave(self));
    PyMem_Free(request);
    parts_release(&all);
    if (!core_succeeded(status, &err)) {
        rks_release(reply);
        return NULL;
    }
    return core_buffer_take(reply, size);
}

/* Takes the handle, unless a call uses it. Returns false with an exception. */
static bool link_take(link_object *self, rks_worker_link **handle)
{
    if (self->asking != 0) {
        PyErr_SetString(PyExc_RuntimeError, "worker link: another thread is asking");
        return false;
    }
    *handle = core_is_foreign(self->owner) ? NULL : self->handle;
    self->handle = NULL;
    return true;
}

static PyObject *link_close(link_object *self, PyObject *unused)
{
    (void)unused;
    rks_worker_link *handle = NULL;
    if (!CORE_HELD(self, link_take(self, &handle)))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    rks_worker_link_close(handle);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static void link_dealloc(PyObject *object)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(link_close((link_object *)object, NULL));
    PyErr_Restore(type, value, trace);
    core_free_object(object);
}

static PyMethodDef link_methods[] = {
    {"ask", (PyCFunction)(void (*)(void))link_ask, METH_O,
     "ask(parts): sends a message of bytes-like parts; the reply, as a Buffer."},
    {"close", (PyCFunction)(void (*)(void))link_close, METH_NOARGS, "Twice is fine."},
    {0},
};

static PyType_Slot link_slots[] = {
    {Py_tp_doc, (void *)"WorkerLink(name, token, silence_ms): asks a WorkerService; threads may "
                        "share it."},
    {Py_tp_new, link_new},
    {Py_tp_dealloc, link_dealloc},
    {Py_tp_methods, link_methods},
    {0, NULL},
};

static PyType_Spec link_spec = {
    .name = "rankstore._core.WorkerLink",
    .basicsize = sizeof(link_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = link_slots,
};

int core_add_workers(PyObject *module)
{
    PyTypeObject *service = NULL, *link = NULL;
    int added = core_add_type(module, &service_spec, &service);
    if (added == 0)
        added = core_add_type(module, &link_spec, &link);
    Py_XDECREF((PyObject *)service);
    Py_XDECREF((PyObject *)link);
    return added;
}
