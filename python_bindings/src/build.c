/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c: builds a dataset from files; and what build_input shares with that. */
#include <string.h>

#include "build.h"

/* ---- callbacks ------------------------------------------------------------------------------- */

PyObject *core_sample_dict(core_values **columns, const rks_sample *sample)
{
    if (*columns == NULL)
        *columns = core_values_new(sample->schema);
    PyObject *dict = *columns == NULL ? NULL : PyDict_New();
    for (uint32_t i = 0; dict != NULL && i < rks_schema_columns(sample->schema); i++) {
        const core_column *column = core_values_column(*columns, i);
        PyObject *value = core_value_copy(column, &sample->values[i]);
        if (value != NULL && value != Py_None) {
            PyObject *copy = value;
            value = Py_BuildValue("OOs", PyTuple_GetItem(copy, 0), PyTuple_GetItem(copy, 1),
                                  column->type);
            Py_DECREF(copy);
        }
        if (value == NULL || PyDict_SetItemString(dict, column->name, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* Calls the function with the sample; returns NULL with an exception. */
static PyObject *call_selector(core_callbacks *calls, PyObject *function, const rks_sample *sample)
{
    PyObject *dict = PyErr_Occurred() != NULL ? NULL : core_sample_dict(&calls->columns, sample);
    PyObject *answer = dict == NULL ? NULL : PyObject_CallFunctionObjArgs(function, dict, NULL);
    Py_XDECREF(dict);
    return answer;
}

static int call_filter(void *user, const rks_sample *sample, rks_error *err)
{
    core_callbacks *calls = user;
    PyGILState_STATE state = PyGILState_Ensure();
    int keep = -1;
    PyObject *answer = call_selector(calls, calls->filter, sample);
    if (answer != NULL)
        keep = PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (keep < 0)
        core_caught("", RKS_ERR_DATA, err); /* the library says "filter" */
    PyGILState_Release(state);
    return keep;
}

static rks_status call_length(void *user, const rks_sample *sample, uint64_t *length,
                              rks_error *err)
{
    core_callbacks *calls = user;
    rks_status status = RKS_OK;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = call_selector(calls, calls->length_fn, sample);
    if (answer == NULL || !core_number(answer, "length", 0, UINT64_MAX, length))
        status = core_caught("length", RKS_ERR_DATA, err);
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return status;
}

void core_call_progress(void *user, const char *phase, uint64_t done, uint64_t total,
                        uint64_t samples)
{
    core_callbacks *calls = user;
    PyGILState_STATE state = PyGILState_Ensure();
    if (PyErr_Occurred() == NULL) {
        PyObject *answer =
            PyObject_CallFunction(calls->progress, "sKKK", phase, (unsigned long long)done,
                                  (unsigned long long)total, (unsigned long long)samples);
        Py_XDECREF(answer);
    }
    PyGILState_Release(state);
}

/* ---- arguments and report -------------------------------------------------------------------- */

/* Reads the numbers. Those that the library counts in 32 bits have that limit. */
static bool read_numbers(const core_build_given *from, rks_build_options *options)
{
    uint64_t unit = 1, threads = 0, least = 0, most = 0;
    if (!core_number(from->length_unit, "length_unit", 1, UINT32_MAX, &unit) ||
        !core_number(from->max_sample, "max_sample", 1, UINT64_MAX, &options->max_sample) ||
        !core_number(from->max_total, "max_total", 1, UINT64_MAX, &options->max_total) ||
        !core_number(from->unit_size, "unit_size", 1, UINT64_MAX, &options->unit_size) ||
        !core_number(from->max_shard, "max_shard", 1, UINT64_MAX, &options->max_shard) ||
        !core_number(from->input_bytes, "input_bytes", 1, UINT64_MAX, &options->input_bytes) ||
        !core_number(from->block_size, "block_size", 1, UINT64_MAX, &options->block_size) ||
        !core_number(from->threads, "threads", 1, UINT32_MAX, &threads) ||
        !core_number(from->min_length, "min_length", 0, UINT32_MAX, &least) ||
        !core_number(from->max_length, "max_length", 1, UINT32_MAX, &most) ||
        !core_number(from->sample, "sample", 1, UINT32_MAX, &options->sample) ||
        !core_number(from->seed, "seed", 0, INT64_MAX, &options->seed))
        return false;
    options->length_unit = (uint32_t)unit;
    options->threads = (uint32_t)threads;
    options->min_length = (uint32_t)least;
    options->max_length = (uint32_t)most;
    return true;
}

bool core_build_options(core_build_given *from, core_callbacks *calls, rks_build_options *options)
{
    if (!read_numbers(from, options) || !core_texts_take(from->index, "index", &from->names) ||
        !core_texts_take(from->shards, "shards", &from->folders) ||
        !core_texts_take(from->counts, "counts", &from->rules) ||
        (from->filter != NULL && !core_callable(from->filter, "filter", &calls->filter)) ||
        (from->length_fn != NULL &&
         !core_callable(from->length_fn, "length_fn", &calls->length_fn)) ||
        (from->progress != NULL && !core_callable(from->progress, "progress", &calls->progress)))
        return false;
    options->dedup = from->dedup != 0;
    options->flatten = from->flatten != 0;
    options->index = from->names.texts;
    options->index_count = from->names.count;
    options->counts = from->rules.texts;
    options->counts_count = from->rules.count;
    options->shards = from->folders.texts;
    options->shard_count = from->folders.count;
    options->skip_bad = from->skip_bad != 0;
    options->unchecked = from->unchecked != 0;
    options->own_keys = from->own_keys != 0;
    options->replace = from->replace != 0;
    options->append = from->append != 0;
    options->no_lock = from->no_lock != 0;
    options->wait = from->wait != 0;
    options->keep = from->keep != 0;
    options->only_ahead = true; /* the package publishes, after it has written python.json */
    options->own_lengths = from->own_lengths != 0;
    options->length_fn = calls->length_fn == NULL ? NULL : call_length;
    options->callback_user = options->progress_user = calls;
    options->filter = calls->filter == NULL ? NULL : call_filter;
    options->progress = calls->progress == NULL ? NULL : core_call_progress;
    return true;
}

void core_build_given_free(core_build_given *from)
{
    core_texts_free(&from->names);
    core_texts_free(&from->folders);
    core_texts_free(&from->rules);
}

PyObject *core_build_report(const rks_build_report *r)
{
    PyObject *bad_first = PyUnicode_DecodeUTF8(
        r->bad_first, (Py_ssize_t)strnlen(r->bad_first, sizeof(r->bad_first)), "replace");
    if (bad_first == NULL)
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:s,s:N,s:s,s:s,s:s,s:{s:K,s:K,s:"
        "K}}",
        "samples", (unsigned long long)r->samples, "duplicates", (unsigned long long)r->duplicates,
        "sampled_out", (unsigned long long)r->sampled_out, "filtered",
        (unsigned long long)r->filtered, "bad", (unsigned long long)r->bad, "bytes",
        (unsigned long long)r->bytes, "input_bytes", (unsigned long long)r->input_bytes, "units",
        (unsigned long long)r->units, "units_resumed", (unsigned long long)r->units_resumed,
        "shards_rebuilt", (unsigned long long)r->shards_rebuilt, "units_rebuilt",
        (unsigned long long)r->units_rebuilt, "unit_size", (unsigned long long)r->unit_size,
        "collectives", (unsigned long long)r->collectives, "seconds", r->seconds, "dataset",
        r->dataset, "bad_first", bad_first, "json_columns", r->json_columns, "object_columns",
        r->object_columns, "length", r->length, "not_read", "hidden", (unsigned long long)r->hidden,
        "linked_folders", (unsigned long long)r->linked_folders, "special_files",
        (unsigned long long)r->special_files);
}

/* ---- build ----------------------------------------------------------------------------------- */

static PyObject *run_build(PyObject *group_object, const core_texts *sources, const char *directory,
                           const rks_build_options *options)
{
    rks_group *group = core_group_enter(group_object);
    rks_build_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_build(group, sources->texts, sources->count, directory, options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    return core_succeeded(status, &err) ? core_build_report(&report) : NULL;
}

static PyObject *build(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {
        "group",      "sources",     "directory",       "schema",      "format",    "key",
        "length",     "length_unit", "where",           "index",       "filter",    "max_sample",
        "skip_bad",   "replace",     "unit_size",       "block_size",  "progress",  "min_length",
        "max_length", "sample",      "sample_rate",     "seed",        "dedup",     "max_total",
        "append",     "length_fn",   "columns",         "no_lock",     "json_path", "flatten",
        "extra",      "made_from",   "dtype",           "wait",        "threads",   "unchecked",
        "max_shard",  "shards",      "storage_options", "input_bytes", "listing",   "home",
        "counts",     NULL};
    PyObject *group, *sequence, *built = NULL;
    const char *directory;
    core_texts sources = {0};
    core_callbacks calls = {0};
    core_build_given from = {0};
    rks_build_options options;
    rks_build_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(
            arguments, keywords, "OOs|$zzzzOzOOOppOOOOOOdOpOpOzpzpzzzpOpOOzOzzO:build", names,
            &group, &sequence, &directory, &options.schema, &options.format, &options.key,
            &options.length, &from.length_unit, &options.where, &from.index, &from.filter,
            &from.max_sample, &from.skip_bad, &from.replace, &from.unit_size, &from.block_size,
            &from.progress, &from.min_length, &from.max_length, &from.sample, &options.sample_rate,
            &from.seed, &from.dedup, &from.max_total, &from.append, &from.length_fn,
            &options.columns, &from.no_lock, &options.json_path, &from.flatten, &options.extra,
            &options.made_from, &options.dtype, &from.wait, &from.threads, &from.unchecked,
            &from.max_shard, &from.shards, &options.storage_options, &from.input_bytes,
            &options.listing, &options.home, &from.counts))
        return NULL;
    if (core_texts_take(sequence, "sources", &sources) &&
        core_build_options(&from, &calls, &options))
        built = run_build(group, &sources, directory, &options);
    core_texts_free(&sources);
    core_build_given_free(&from);
    core_values_free(calls.columns);
    return built;
}

static PyMethodDef build_functions[] = {
    {"build", WITH_KEYWORDS(build),
     "build(group, sources, directory, ...): collective; the report."},
    {0},
};

int core_add_build(PyObject *module)
{
    return PyModule_AddFunctions(module, build_functions);
}
