/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: Plan, which one thread uses at a time. */
#include "handles.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct plan {
    PyObject_HEAD
    rks_plan *handle; /* NULL if closed */
    PyThread_type_lock lock;
    pid_t pid;
    uint32_t world;
    PyObject *lengths; /* keeps them: a store's index, or bytes */
    PyObject *mix;     /* keeps its arrays */
    PyObject *balance; /* costs of samples as bytes, or NULL */
} plan;

static PyTypeObject *plan_type;

rks_plan *core_plan_enter(PyObject *object)
{
    if (!PyObject_TypeCheck(object, plan_type))
        return (rks_plan *)(void *)PyErr_Format(PyExc_TypeError, "plan: a Plan, not %R",
                                                Py_TYPE(object));
    plan *self = (plan *)object;
    if (core_check_process(self->pid, "plan") < 0 || core_lock(self->lock) < 0)
        return NULL;
    if (self->handle != NULL)
        return self->handle;
    PyThread_release_lock(self->lock);
    return (rks_plan *)(void *)core_raise_closed("plan");
}

rks_plan *core_plan_enter_epoch(PyObject *object, PyObject *arguments, PyObject *keywords,
                                const char *format, uint64_t *epoch)
{
    static char *names[] = {"epoch", NULL};
    PyObject *number = NULL;
    *epoch = 0;
    return PyArg_ParseTupleAndKeywords(arguments, keywords, format, names, &number) &&
                   core_number(number, "epoch", 0, UINT64_MAX, epoch)
               ? core_plan_enter(object)
               : NULL;
}

void core_plan_leave(PyObject *object)
{
    PyThread_release_lock(((plan *)object)->lock);
}

uint32_t core_plan_world(PyObject *object)
{
    return ((plan *)object)->world;
}

/* ---- open and close -------------------------------------------------------------------------- */

/* Asks for large pages: with small ones, the system's faults, one for each 4 KiB, take as long as
 * copying. If the system has no large pages, nothing changes. */
PyObject *core_bytes(size_t size)
{
    static const size_t LARGE = 4 << 20;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (bytes != NULL && size >= LARGE) {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t begin = (uintptr_t)PyBytes_AsString(bytes), end = (begin + size) / page * page;
        begin = (begin + page - 1) / page * page;
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    }
    return bytes;
}

/* Copies a list of uint32 to a bytes object, so that nobody changes it under the plan. Returns NULL
 * with an exception. */
static PyObject *copy_lengths(PyObject *source)
{
    Py_buffer view;
    PyObject *bytes = NULL;
    if (PyObject_GetBuffer(source, &view, PyBUF_ND | PyBUF_FORMAT) < 0)
        return NULL;
    const char *format = view.format == NULL ? "B" : view.format;
    const char *code = format + (format[0] == '@' || format[0] == '=' || format[0] == '<');
    bool items = view.itemsize == 4 && (strcmp(code, "I") == 0 || strcmp(code, "L") == 0);
    bool raw = strcmp(code, "B") == 0 && view.len % 4 == 0; /* a Buffer has no type */
    if (view.ndim == 1 && (items || raw))
        bytes = core_bytes((size_t)view.len);
    else
        PyErr_Format(PyExc_TypeError,
                     "lengths: an array of %d dimensions and items \"%s\"; uint32 in one is needed",
                     view.ndim, format);
    if (bytes != NULL) {
        char *to = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS
        memcpy(to, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return bytes;
}

static rks_status open_over_lengths(plan *self, const char *dataset,
                                    const rks_plan_options *options, rks_error *err)
{
    rks_status status;
    const uint32_t *lengths = (const uint32_t *)(void *)PyBytes_AsString(self->lengths);
    uint64_t count = (uint64_t)PyBytes_Size(self->lengths) / sizeof(uint32_t);
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_create(lengths, count, dataset, options, &self->handle, err);
    Py_END_ALLOW_THREADS
    return status;
}

static rks_status open_over_store(plan *self, PyObject *store, rks_store *handle,
                                  const rks_plan_options *options, rks_error *err)
{
    rks_status status;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_open(handle, options, &self->handle, err);
    Py_END_ALLOW_THREADS
    core_store_leave(store);
    return status;
}

/* Puts the costs of `count` samples, if any, into the options. Returns -1 with an exception. */
static int set_balance(plan *self, PyObject *balance, uint64_t count, rks_plan_options *options)
{
    if (balance == NULL || balance == Py_None)
        return 0;
    self->balance = copy_lengths(balance);
    if (self->balance == NULL)
        return -1;
    uint64_t costs = (uint64_t)PyBytes_Size(self->balance) / sizeof(uint32_t);
    if (costs != count) {
        core_raise_text(RKS_ERR_ARGUMENT, "balance: %llu costs for %llu samples",
                        (unsigned long long)costs, (unsigned long long)count);
        return -1;
    }
    options->balance = (const uint32_t *)(void *)PyBytes_AsString(self->balance);
    return 0;
}

/* Opens a plan over lengths. `absent`: runs as uint32, pairs of first and count; NULL: none.
 * Returns -1 with an exception. */
static int open_with_absent(plan *self, const core_plan_arguments *given, rks_plan_options *options,
                            rks_status *status, rks_error *err)
{
    PyObject *runs = NULL;
    if (given->absent != NULL) {
        runs = copy_lengths(given->absent);
        if (runs == NULL)
            return -1;
        options->absent = (const rks_absent_run *)(void *)PyBytes_AsString(runs);
        options->absent_count = (size_t)PyBytes_Size(runs) / sizeof(*options->absent);
    }
    *status = open_over_lengths(self, given->dataset, options, err);
    Py_XDECREF(runs);
    return 0;
}

/* Returns -1 with an exception. */
static int open_plan(plan *self, const core_plan_arguments *given, rks_plan_options *options)
{
    PyObject *source = given->source, *balance = given->balance;
    rks_error err = {0};
    rks_status status;
    if (!core_is_store(source)) {
        self->lengths = copy_lengths(source);
        if (self->lengths == NULL ||
            set_balance(self, balance, (uint64_t)PyBytes_Size(self->lengths) / 4, options) < 0 ||
            open_with_absent(self, given, options, &status, &err) < 0)
            return -1;
    } else if (given->dataset != NULL) {
        PyErr_SetString(PyExc_ValueError, "dataset: a store has its own");
        return -1;
    } else {
        rks_store *store = core_store_enter(source);
        if (store == NULL)
            return -1;
        self->lengths = Py_NewRef(core_store_index(source));
        if (set_balance(self, balance, rks_store_count(store), options) < 0) {
            core_store_leave(source);
            return -1;
        }
        status = open_over_store(self, source, store, options, &err);
    }
    if (status != RKS_OK) {
        core_raise(&err);
        return -1;
    }
    self->world = rks_plan_world(self->handle);
    return PyErr_Occurred() == NULL ? 0 : -1;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    core_plan_arguments given = {.mix = Py_None};
    rks_plan_options options;
    core_mix taken = {0};
    rks_plan_options_default(&options);
    if (!core_plan_take_options(arguments, keywords, &given, &options) ||
        !core_mix_take(given.mix, &taken))
        return NULL;
    options.mix = given.mix == Py_None ? NULL : &taken.options;
    plan *self = (plan *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        core_mix_clear(&taken);
        return NULL;
    }
    self->mix = Py_NewRef(given.mix);
    self->pid = core_pid();
    self->lock = PyThread_allocate_lock();
    if (self->lock == NULL)
        PyErr_NoMemory();
    if (self->lock == NULL || core_plan_take_skip(given.skip, &options) < 0 ||
        open_plan(self, &given, &options) < 0)
        Py_CLEAR(self);
    PyMem_Free((void *)(uintptr_t)options.skip);
    core_mix_clear(&taken);
    return (PyObject *)self;
}

/* Frees the plan. Waits for the epoch that is being made ahead, which may take long. */
static void free_plan(plan *self)
{
    rks_plan *handle = self->handle;
    self->handle = NULL;
    Py_BEGIN_ALLOW_THREADS
    rks_plan_free(handle);
    Py_END_ALLOW_THREADS
}

static void plan_dealloc(PyObject *object)
{
    plan *self = (plan *)object;
    if (!core_is_foreign(self->pid)) {
        free_plan(self);
        if (self->lock != NULL)
            PyThread_free_lock(self->lock);
    }
    Py_XDECREF(self->lengths);
    Py_XDECREF(self->mix);
    Py_XDECREF(self->balance);
    core_free_object(object);
}

static PyObject *plan_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    plan *self = (plan *)object;
    if (core_is_foreign(self->pid))
        Py_RETURN_NONE;
    if (core_lock(self->lock) < 0)
        return NULL;
    free_plan(self);
    PyThread_release_lock(self->lock);
    Py_CLEAR(self->lengths);
    Py_CLEAR(self->mix);
    Py_CLEAR(self->balance);
    Py_RETURN_NONE;
}

/* ---- report and state ------------------------------------------------------------------------ */

static PyObject *plan_report(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    uint64_t epoch;
    rks_plan_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    rks_plan *handle = core_plan_enter_epoch(object, arguments, keywords, "|O:report", &epoch);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_report_get(handle, epoch, &report, &err);
    Py_END_ALLOW_THREADS
    core_plan_leave(object);
    if (status != RKS_OK)
        return core_raise(&err);
    return Py_BuildValue(
        "{sK,sK,sK,sK,sK,sK,sK,sK,sK,sd,sd,sd,ss,sI,sK,sK,sK,sK,sK,sK,sK,sd,sd,sd,sK,sK,sK,sK}",
        "samples", report.samples, "dropped", report.dropped, "repeated", report.repeated,
        "truncated", report.truncated, "steps", report.steps, "batches", report.batches, "tokens",
        report.tokens, "padded_tokens", report.padded_tokens, "largest_batch", report.largest_batch,
        "efficiency", report.efficiency, "balance", report.balance, "tokens_per_step",
        report.tokens_per_step, "digest", report.digest, "largest_batch_rank",
        report.largest_batch_rank, "largest_batch_step", report.largest_batch_step,
        "smallest_batch", report.smallest_batch, "median_batch", report.median_batch, "p95_batch",
        report.p95_batch, "least_largest_of_ranks", report.least_largest_of_ranks,
        "least_largest_of_steps", report.least_largest_of_steps, "bins", report.bins, "fill",
        report.fill, "token_balance", report.token_balance, "lost", report.lost, "pieces",
        report.pieces, "skipped", report.skipped, "absent", report.absent, "left_out",
        report.left_out);
}

/* Changes the plan at a step. If epoch is None, the step counts from the first one of epoch 0.
 * Returns the place in the form of states. */
static PyObject *plan_change(PyObject *object, PyObject *arguments)
{
    PyObject *epoch_number, *step_number, *weights, *longest_number;
    uint64_t epoch = 0, step = 0, longest = 0;
    core_mix taken = {0};
    size_t count = 0;
    rks_error err = {0};
    if (!PyArg_ParseTuple(arguments, "OOOO:change", &epoch_number, &step_number, &weights,
                          &longest_number) ||
        (epoch_number != Py_None && !core_number(epoch_number, "epoch", 0, UINT64_MAX, &epoch)) ||
        !core_number(step_number, "step", 0, UINT64_MAX, &step) ||
        !core_number(longest_number, "max_length", 0, UINT32_MAX, &longest) ||
        (weights != Py_None && !core_mix_weights(weights, &taken, &count)))
        return NULL;
    rks_status status = RKS_OK;
    rks_plan *handle = core_plan_enter(object);
    if (handle != NULL) {
        Py_BEGIN_ALLOW_THREADS
        status = epoch_number == Py_None ? rks_plan_change_after(handle, step, taken.weights, count,
                                                                 (uint32_t)longest, &err)
                                         : rks_plan_change(handle, epoch, step, taken.weights,
                                                           count, (uint32_t)longest, &err);
        if (status == RKS_OK)
            status = rks_plan_last_change(handle, &epoch, &step, &err);
        Py_END_ALLOW_THREADS
        core_plan_leave(object);
    }
    core_mix_clear(&taken);
    if (handle == NULL)
        return NULL;
    return status == RKS_OK
               ? Py_BuildValue("KK", (unsigned long long)epoch, (unsigned long long)step)
               : core_raise(&err);
}

static PyObject *plan_skip(PyObject *object, PyObject *arguments)
{
    PyObject *epoch_number, *first_number, *last_number;
    uint64_t epoch = 0, first = 0, last = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "OOO:skip", &epoch_number, &first_number, &last_number) ||
        !core_number(epoch_number, "epoch", 0, UINT64_MAX, &epoch) ||
        !core_number(first_number, "first", 0, UINT64_MAX, &first) ||
        !core_number(last_number, "last", 0, UINT64_MAX, &last))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_skip(handle, epoch, first, last, &err);
    Py_END_ALLOW_THREADS
    core_plan_leave(object);
    return status == RKS_OK ? Py_NewRef(Py_None) : core_raise(&err);
}

/* Calls `ask` for a step of an epoch. */
static PyObject *ask_of_step(PyObject *object, PyObject *arguments, const char *format,
                             rks_status (*ask)(rks_plan *, uint64_t, uint64_t, uint64_t *,
                                               rks_error *))
{
    PyObject *epoch_number, *step_number;
    uint64_t epoch = 0, step = 0, found = 0;
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, format, &epoch_number, &step_number) ||
        !core_number(epoch_number, "epoch", 0, UINT64_MAX, &epoch) ||
        !core_number(step_number, "step", 0, UINT64_MAX, &step))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = ask(handle, epoch, step, &found, &err);
    Py_END_ALLOW_THREADS
    core_plan_leave(object);
    return status == RKS_OK ? PyLong_FromUnsignedLongLong(found) : core_raise(&err);
}

static PyObject *plan_next_step(PyObject *object, PyObject *arguments)
{
    return ask_of_step(object, arguments, "OO:next_step", rks_plan_next_step);
}

static PyObject *plan_skipped(PyObject *object, PyObject *arguments)
{
    return ask_of_step(object, arguments, "OO:skipped", rks_plan_skipped);
}

static PyObject *plan_sources(PyObject *object, PyObject *number)
{
    uint64_t epoch = 0;
    if (!core_number(number, "epoch", 0, UINT64_MAX, &epoch))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    PyObject *made = core_mix_sources(handle, epoch);
    core_plan_leave(object);
    return made;
}

static PyObject *plan_state(PyObject *object, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"epoch", "step", NULL};
    PyObject *epoch_number, *step_number;
    uint64_t epoch = 0, step = 0;
    char text[RKS_STATE_MAX];
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO:state", names, &epoch_number,
                                     &step_number) ||
        !core_number(epoch_number, "epoch", 0, UINT64_MAX, &epoch) ||
        !core_number(step_number, "step", 0, UINT64_MAX, &step))
        return NULL;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_state(handle, epoch, step, text, sizeof(text), &err);
    Py_END_ALLOW_THREADS
    core_plan_leave(object);
    return status == RKS_OK ? PyUnicode_FromString(text) : core_raise(&err);
}

static PyObject *plan_resume(PyObject *object, PyObject *state)
{
    uint64_t epoch = 0, step = 0;
    rks_error err = {0};
    rks_status status;
    const char *text = PyUnicode_AsUTF8AndSize(state, NULL);
    rks_plan *handle = text == NULL ? NULL : core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_plan_resume(handle, text, &epoch, &step, &err);
    Py_END_ALLOW_THREADS
    core_plan_leave(object);
    if (status != RKS_OK)
        return core_raise(&err);
    return Py_BuildValue("(KK)", (unsigned long long)epoch, (unsigned long long)step);
}

static PyObject *plan_know_earlier(PyObject *object, PyObject *list)
{
    rks_error err = {0};
    Py_ssize_t count = PySequence_Size(list);
    rks_generation *earlier = count < 0 ? NULL : PyMem_Calloc((size_t)count + 1, sizeof(*earlier));
    if (count >= 0 && earlier == NULL)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; earlier != NULL && !PyErr_Occurred() && i < count; i++) {
        unsigned long long number = 0, samples = 0;
        const char *dataset = NULL;
        PyObject *one = PySequence_GetItem(list, i);
        if (one != NULL && PyArg_ParseTuple(one, "KKs", &number, &samples, &dataset)) {
            earlier[i].number = number;
            earlier[i].samples = samples;
            strncpy(earlier[i].dataset, dataset, sizeof(earlier[i].dataset) - 1);
        }
        Py_XDECREF(one);
    }
    rks_plan *handle = PyErr_Occurred() ? NULL : core_plan_enter(object);
    if (handle != NULL) {
        rks_status status = rks_plan_know_earlier(handle, earlier, (size_t)count, &err);
        core_plan_leave(object);
        if (status != RKS_OK)
            core_raise(&err);
    }
    PyMem_Free(earlier);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_world(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(core_plan_world(object));
}

static PyObject *get_mix(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *mix = ((plan *)object)->mix;
    return Py_NewRef(mix == NULL ? Py_None : mix);
}

static PyObject *get_balance(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *balance = ((plan *)object)->balance;
    return Py_NewRef(balance == NULL ? Py_None : balance);
}

static PyObject *get_has_absent(PyObject *object, void *unused)
{
    (void)unused;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    bool absent = rks_plan_has_absent(handle);
    core_plan_leave(object);
    return PyBool_FromLong(absent);
}

static PyObject *get_absent(PyObject *object, void *unused)
{
    (void)unused;
    const rks_absent_run *runs = NULL;
    size_t count = 0;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    rks_plan_absent(handle, &runs, &count);
    PyObject *made =
        PyBytes_FromStringAndSize((const char *)runs, (Py_ssize_t)(count * sizeof(*runs)));
    core_plan_leave(object);
    return made;
}

static PyObject *get_lengths(PyObject *object, void *unused)
{
    (void)unused;
    const uint32_t *lengths = NULL;
    uint64_t count = 0;
    rks_plan *handle = core_plan_enter(object);
    if (handle == NULL)
        return NULL;
    rks_plan_lengths(handle, &lengths, &count);
    PyObject *made = core_bytes((size_t)count * sizeof(*lengths));
    if (made != NULL && count > 0)
        memcpy(PyBytes_AsString(made), lengths, (size_t)count * sizeof(*lengths));
    core_plan_leave(object);
    return made;
}

static PyGetSetDef plan_getters[] = {
    {"absent", get_absent, NULL, "Runs of absent samples as bytes: uint32[n, 2], first and count.",
     NULL},
    {"balance", get_balance, NULL, "Costs of samples, uint32 as bytes; None: by length.", NULL},
    {"has_absent", get_has_absent, NULL, "Some samples cannot be delivered.", NULL},
    {"lengths", get_lengths, NULL, "The lengths that it is over, uint32 as bytes.", NULL},
    {"mix", get_mix, NULL, "The option; None: each sample occurs once.", NULL},
    {"world", get_world, NULL, "Ranks that it is for.", NULL},
    {0},
};

static PyMethodDef plan_methods[] = {
    {"steps", WITH_KEYWORDS(core_plan_steps), "steps(epoch=0): of each rank"},
    {"batch", WITH_KEYWORDS(core_plan_batch), "batch(epoch, step, rank) -> list of sample numbers"},
    {"bins", WITH_KEYWORDS(core_plan_bins),
     "bins(epoch, step, rank) -> bounds of its bins in batch(), int64 as bytes; strategy pack"},
    {"batches", WITH_KEYWORDS(core_plan_batches),
     "batches(epoch, rank, first=0, last=None) -> (indptr int64, ids uint32), bytes; rank -1: all"},
    {"pieces", WITH_KEYWORDS(core_plan_pieces),
     "pieces(epoch, rank, first=0, last=None) -> uint32[n, 3] as bytes: place among the ids of "
     "batches(), start, count"},
    {"report", WITH_KEYWORDS(plan_report), "report(epoch=0) -> dict"},
    {"change", plan_change, METH_VARARGS, "change(epoch, step, weights or None, longest or 0)"},
    {"skip", plan_skip, METH_VARARGS, "skip(epoch, first, last): leaves these steps out"},
    {"next_step", plan_next_step, METH_VARARGS,
     "next_step(epoch, step) -> the first from there on that is not skipped, or steps()"},
    {"skipped", plan_skipped, METH_VARARGS, "skipped(epoch, step) -> how many before it"},
    {"sources", plan_sources, METH_O, "sources(epoch) -> {name: {...}} of a plan with a mix"},
    {"state", WITH_KEYWORDS(plan_state), "state(epoch, step) -> JSON text"},
    {"resume", plan_resume, METH_O, "resume(state) -> (epoch, step) to go on with"},
    {"know_earlier", plan_know_earlier, METH_O,
     "know_earlier(list of (number, samples, dataset)): generations whose states resume accepts"},
    {"close", plan_close, METH_NOARGS, "Twice is fine."},
    {0},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_doc,
     (void *)"Which samples form which batch. COLLECTIVE over a Store, not over lengths."},
    {Py_tp_new, plan_new},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_methods, plan_methods},
    {Py_tp_getset, plan_getters},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "rankstore._core.Plan",
    .basicsize = sizeof(plan),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = plan_slots,
};

int core_add_plan(PyObject *module)
{
    return core_add_type(module, &plan_spec, &plan_type);
}
