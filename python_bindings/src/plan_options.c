/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_options.c: the options of a plan from Python, and what they bound. */
#include "handles.h"

bool core_plan_take_options(PyObject *arguments, PyObject *keywords, core_plan_arguments *given,
                            rks_plan_options *options)
{
    static char *names[] = {"source",
                            "dataset",
                            "strategy",
                            "batch_size",
                            "max_tokens",
                            "cost",
                            "max_length",
                            "too_long",
                            "tail",
                            "steps",
                            "batch_multiple",
                            "no_shuffle",
                            "world",
                            "seed",
                            "capacity",
                            "length_multiple",
                            "micro_batches",
                            "mixed",
                            "cost_linear",
                            "cost_quadratic",
                            "pack_window",
                            "order",
                            "mix",
                            "balance",
                            "skip",
                            "absent",
                            NULL};
    PyObject *batch_size = NULL, *max_tokens = NULL, *max_length = NULL, *multiple = NULL,
             *world = NULL, *seed = NULL, *capacity = NULL, *unit = NULL, *micro = NULL,
             *window = NULL;
    uint64_t size = 0, longest = 0, of = 1, ranks = 0, room = 0, units = options->length_multiple,
             micros = 1, windows = 0;
    int no_shuffle = 0, mixed = 0;
    const char *strategy = NULL, *cost = NULL, *too_long = NULL, *tail = NULL, *steps = NULL,
               *order = NULL;
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "O|$zzOOzOzzzOpOOOOOpddOzOOOO:Plan", names, &given->source,
            &given->dataset, &strategy, &batch_size, &max_tokens, &cost, &max_length, &too_long,
            &tail, &steps, &multiple, &no_shuffle, &world, &seed, &capacity, &unit, &micro, &mixed,
            &options->cost_linear, &options->cost_quadratic, &window, &order, &given->mix,
            &given->balance, &given->skip, &given->absent) ||
        !core_number(batch_size, "batch_size", 0, UINT32_MAX, &size) ||
        !core_number(max_tokens, "max_tokens", 0, UINT64_MAX, &options->max_tokens) ||
        !core_number(max_length, "max_length", 0, UINT32_MAX, &longest) ||
        !core_number(multiple, "batch_multiple", 1, UINT32_MAX, &of) ||
        !core_number(world, "world", 0, UINT32_MAX, &ranks) ||
        !core_number(seed, "seed", 0, UINT64_MAX, &options->seed) ||
        !core_number(capacity, "capacity", 0, UINT32_MAX, &room) ||
        !core_number(unit, "length_multiple", 1, UINT32_MAX, &units) ||
        !core_number(micro, "micro_batches", 1, UINT32_MAX, &micros) ||
        !core_number(window, "pack_window", 0, UINT32_MAX, &windows))
        return false;
    options->strategy = strategy != NULL ? strategy : options->strategy;
    options->cost = cost != NULL ? cost : options->cost;
    options->too_long = too_long != NULL ? too_long : options->too_long;
    options->tail = tail != NULL ? tail : options->tail;
    options->steps = steps != NULL ? steps : options->steps;
    options->order = order;
    options->pack_window = (uint32_t)windows;
    options->batch_size = (uint32_t)size;
    options->max_length = (uint32_t)longest;
    options->batch_multiple = (uint32_t)of;
    options->world = (uint32_t)ranks;
    options->no_shuffle = no_shuffle;
    options->capacity = (uint32_t)room;
    options->length_multiple = (uint32_t)units;
    options->micro_batches = (uint32_t)micros;
    options->mixed = mixed;
    return true;
}

int core_plan_take_skip(PyObject *skip, rks_plan_options *options)
{
    Py_ssize_t count = skip == NULL || skip == Py_None ? 0 : PySequence_Size(skip);
    if (count <= 0)
        return (int)count;
    rks_step_range *ranges = PyMem_Calloc((size_t)count, sizeof(*ranges));
    options->skip = ranges;
    options->skips = (size_t)count;
    if (ranges == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *entry = PySequence_GetItem(skip, i), *epoch, *first, *last;
        bool good = entry != NULL && PyTuple_Check(entry) &&
                    PyArg_ParseTuple(entry, "OOO:skip", &epoch, &first, &last) &&
                    core_number(epoch, "epoch", 0, UINT64_MAX, &ranges[i].epoch) &&
                    core_number(first, "first", 0, UINT64_MAX, &ranges[i].first) &&
                    core_number(last, "last", 0, UINT64_MAX, &ranges[i].last);
        Py_XDECREF(entry);
        if (!good && PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_TypeError, "skip: tuples of (epoch, first, last) are needed");
        if (!good)
            return -1;
    }
    return 0;
}

PyObject *core_plan_limits(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    core_plan_arguments given = {.mix = Py_None};
    rks_plan_options options;
    rks_plan_limits limits = {.struct_size = sizeof(limits)};
    rks_error err = {0};
    rks_plan_options_default(&options);
    options.length_multiple = 0; /* unless it is given */
    if (!core_plan_take_options(arguments, keywords, &given, &options))
        return NULL;
    if (rks_plan_limits_get(&options, &limits, &err) != RKS_OK)
        return core_raise(&err);
    return Py_BuildValue("{s:I,s:K,s:O,s:I,s:I,s:I,s:I}", "multiple", limits.length_multiple,
                         "budget", (unsigned long long)limits.budget, "sums",
                         limits.sums ? Py_True : Py_False, "cut", limits.cut, "longest",
                         limits.longest, "split", limits.piece, "row", limits.row);
}
