/* SPDX-License-Identifier: Apache-2.0
 *
 * upkeep.c: operations on whole datasets: merge, publish, stage, prune, export, diff. All are
 * collective. */
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "handles.h"

/* ---- directories ----------------------------------------------------------------------------- */

static PyObject *run_merge(PyObject *group_object, const core_texts *sources, const char *directory,
                           const rks_merge_options *options)
{
    rks_group *group = core_group_enter(group_object);
    rks_merge_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_merge(group, sources->texts, sources->count, directory, options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (!core_succeeded(status, &err))
        return NULL;
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:s}", "samples", (unsigned long long)report.samples,
                         "shards", (unsigned long long)report.shards, "linked_bytes",
                         (unsigned long long)report.linked_bytes, "copied_bytes",
                         (unsigned long long)report.copied_bytes, "dataset", report.dataset);
}

static PyObject *merge(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"group", "sources", "directory", "copy", "progress", "no_lock", NULL};
    PyObject *group, *sequence, *progress = NULL, *merged = NULL;
    const char *directory;
    int copy = 0, no_lock = 0;
    core_texts sources = {0};
    core_callbacks calls = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOs|$pOp:merge", names, &group,
                                     &sequence, &directory, &copy, &progress, &no_lock))
        return NULL;
    if (core_texts_take(sequence, "sources", &sources) &&
        core_callable(progress, "progress", &calls.progress)) {
        const rks_merge_options options = {
            .struct_size = sizeof(options),
            .copy = copy != 0,
            .no_lock = no_lock != 0,
            .progress = calls.progress == NULL ? NULL : core_call_progress,
            .progress_user = &calls,
        };
        merged = run_merge(group, &sources, directory, &options);
    }
    core_texts_free(&sources);
    return merged;
}

static PyObject *run_publish(PyObject *group_object, const char *directory, const char *home,
                             const rks_publish_options *options)
{
    rks_group *group = core_group_enter(group_object);
    rks_publish_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_publish(group, directory, home, options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (!core_succeeded(status, &err))
        return NULL;
    return Py_BuildValue(
        "{s:s,s:K,s:K,s:N,s:K,s:K,s:K,s:K}", "dataset", report.dataset, "generation",
        (unsigned long long)report.generation, "before", (unsigned long long)report.before,
        "nothing_to_do", PyBool_FromLong(report.nothing_to_do), "shards",
        (unsigned long long)report.shards, "sent_shards", (unsigned long long)report.sent_shards,
        "sent_bytes", (unsigned long long)report.sent_bytes, "there_bytes",
        (unsigned long long)report.there_bytes);
}

static PyObject *publish(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"group",  "directory",       "home", "dry_run", "progress",
                            "shards", "storage_options", NULL};
    PyObject *group, *progress = NULL, *patterns = NULL, *published;
    const char *directory, *home, *storage_options = NULL;
    int dry_run = 0;
    core_texts shards = {0};
    core_callbacks calls = {0};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Oss|$pOOz:publish", names, &group,
                                     &directory, &home, &dry_run, &progress, &patterns,
                                     &storage_options) ||
        !core_callable(progress, "progress", &calls.progress) ||
        !core_texts_take(patterns, "shards", &shards))
        return NULL;
    const rks_publish_options options = {
        .struct_size = sizeof(options),
        .dry_run = dry_run != 0,
        .progress = calls.progress == NULL ? NULL : core_call_progress,
        .progress_user = &calls,
        .shards = shards.texts,
        .shard_count = shards.count,
        .storage_options = storage_options,
    };
    published = run_publish(group, directory, home, &options);
    core_texts_free(&shards);
    return published;
}

static PyObject *run_stage(PyObject *group_object, const char *home, const char *local,
                           const rks_stage_options *options)
{
    rks_group *group = core_group_enter(group_object);
    rks_stage_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_stage(group, home, local, options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (!core_succeeded(status, &err))
        return NULL;
    return Py_BuildValue(
        "{s:s,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "dataset", report.dataset, "generation",
        (unsigned long long)report.generation, "shards", (unsigned long long)report.shards, "bytes",
        (unsigned long long)report.bytes, "places", (unsigned long long)report.places,
        "wanted_bytes", (unsigned long long)report.wanted_bytes, "here_bytes",
        (unsigned long long)report.here_bytes, "home_bytes", (unsigned long long)report.home_bytes);
}

static PyObject *stage(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"group",      "home",     "local",           "copies", "everywhere",
                            "local_room", "progress", "storage_options", NULL};
    PyObject *group, *progress = NULL, *room = NULL;
    const char *home, *local, *storage_options = NULL;
    unsigned int copies = 0;
    int everywhere = 0;
    core_callbacks calls = {0};
    rks_stage_options options = {.struct_size = sizeof(options)};
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Ozs|$IpOOz:stage", names, &group, &home,
                                     &local, &copies, &everywhere, &room, &progress,
                                     &storage_options) ||
        !core_number(room, "local_room", 0, UINT64_MAX, &options.local_room) ||
        !core_callable(progress, "progress", &calls.progress))
        return NULL;
    options.storage_options = storage_options;
    options.copies = copies;
    options.everywhere = everywhere != 0;
    options.progress = calls.progress == NULL ? NULL : core_call_progress;
    options.progress_user = &calls;
    return run_stage(group, home, local, &options);
}

/* The names of files that a prune removes on this rank, each with a NUL at its end. */
typedef struct core_pruned {
    char *names;
    size_t size;
    bool lacks_memory;
} core_pruned;

static void note_pruned(void *user, const char *file, uint64_t bytes)
{
    core_pruned *pruned = user;
    const size_t size = strlen(file) + 1;
    char *grown = pruned->lacks_memory ? NULL : realloc(pruned->names, pruned->size + size);
    (void)bytes;
    pruned->lacks_memory = grown == NULL;
    if (grown == NULL)
        return;
    memcpy(grown + pruned->size, file, size);
    pruned->names = grown;
    pruned->size += size;
}

static PyObject *pruned_names(const core_pruned *pruned)
{
    PyObject *files = pruned->lacks_memory ? PyErr_NoMemory() : PyList_New(0);
    for (size_t at = 0; files != NULL && at < pruned->size; at += strlen(pruned->names + at) + 1) {
        PyObject *name = PyUnicode_DecodeFSDefault(pruned->names + at);
        if (name == NULL || PyList_Append(files, name) != 0)
            Py_CLEAR(files);
        Py_XDECREF(name);
    }
    return files;
}

static PyObject *prune(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"group",   "directory",       "keep", "dry_run",
                            "no_lock", "storage_options", NULL};
    PyObject *group_object, *keep = NULL;
    const char *directory, *storage_options = NULL;
    int dry_run = 0, no_lock = 0;
    core_pruned pruned = {0};
    rks_prune_options options = {.struct_size = sizeof(options)};
    rks_prune_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Os|$Oppz:prune", names, &group_object,
                                     &directory, &keep, &dry_run, &no_lock, &storage_options) ||
        !core_number(keep, "keep", 1, UINT64_MAX, &options.keep))
        return NULL;
    options.dry_run = dry_run != 0;
    options.no_lock = no_lock != 0;
    options.storage_options = storage_options;
    options.each = note_pruned;
    options.user = &pruned;
    rks_group *group = core_group_enter(group_object);
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_prune(group, directory, &options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    PyObject *files = core_succeeded(status, &err) ? pruned_names(&pruned) : NULL;
    free(pruned.names);
    if (files == NULL)
        return NULL;
    return Py_BuildValue("{s:K,s:K,s:K,s:N}", "generations", (unsigned long long)report.generations,
                         "files", (unsigned long long)report.files, "bytes",
                         (unsigned long long)report.bytes, "names", files);
}

static PyObject *prune_local(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"group", "local", "dry_run", "storage_options", NULL};
    PyObject *group_object;
    const char *local, *storage_options = NULL;
    int dry_run = 0;
    rks_prune_local_options options = {.struct_size = sizeof(options)};
    rks_prune_local_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Os|$pz:prune_local", names,
                                     &group_object, &local, &dry_run, &storage_options))
        return NULL;
    options.dry_run = dry_run != 0;
    options.storage_options = storage_options;
    rks_group *group = core_group_enter(group_object);
    if (group == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_prune_local(group, local, &options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    if (!core_succeeded(status, &err))
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:K,s:K}", "datasets", (unsigned long long)report.datasets, "shards",
        (unsigned long long)report.shards, "arrivals", (unsigned long long)report.arrivals, "files",
        (unsigned long long)report.files, "bytes", (unsigned long long)report.bytes);
}

static PyObject *lost(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *group_object;
    const char *directory;
    PyObject *patterns;
    core_texts shards = {0};
    rks_repair_options options = {.struct_size = sizeof(options)};
    rks_repair_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    if (!PyArg_ParseTuple(arguments, "OsO:lost", &group_object, &directory, &patterns) ||
        !core_texts_take(patterns, "shards", &shards))
        return NULL;
    rks_group *group = core_group_enter(group_object);
    if (group == NULL) {
        core_texts_free(&shards);
        return NULL;
    }
    options.shards = shards.texts;
    options.shard_count = shards.count;
    Py_BEGIN_ALLOW_THREADS
    status = rks_repair(group, directory, NULL, 0, &options, &report, &err);
    Py_END_ALLOW_THREADS
    core_group_leave(group_object);
    core_texts_free(&shards);
    if (!core_succeeded(status, &err))
        return NULL;
    return PyLong_FromUnsignedLongLong(report.lost_shards);
}

/* ---- open stores ----------------------------------------------------------------------------- */

static PyObject *run_export(PyObject *object, const char *target, const rks_export_options *options)
{
    rks_export_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    rks_store *store = core_store_enter(object);
    if (store == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_store_export(store, target, options, &report, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(object);
    if (!core_succeeded(status, &err))
        return NULL;
    return Py_BuildValue(
        "{s:K,s:K,s:K,s:d,s:s,s:K,s:O,s:K}", "samples", (unsigned long long)report.samples,
        "filtered", (unsigned long long)report.filtered, "bytes", (unsigned long long)report.bytes,
        "seconds", report.seconds, "to", report.to, "respelled",
        (unsigned long long)report.respelled, "keys_left", report.keys_left ? Py_True : Py_False,
        "left_out", (unsigned long long)report.left_out);
}

static bool is_store(PyObject *object)
{
    if (!core_is_store(object))
        PyErr_SetString(PyExc_TypeError, "a Store is wanted");
    return PyErr_Occurred() == NULL;
}

static PyObject *export(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"store", "target", "to", "where", "columns", "force", "progress", NULL};
    PyObject *store, *columns = NULL, *progress = NULL, *exported = NULL;
    const char *target;
    int force = 0;
    core_texts chosen = {0};
    core_callbacks calls = {0};
    rks_export_options options;
    rks_export_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Os|$zzOpO:export", names, &store,
                                     &target, &options.to, &options.where, &columns, &force,
                                     &progress) ||
        !is_store(store))
        return NULL;
    if (core_texts_take(columns, "columns", &chosen) &&
        core_callable(progress, "progress", &calls.progress)) {
        options.columns = chosen.texts;
        options.column_count = chosen.count;
        options.force = force != 0;
        options.progress = calls.progress == NULL ? NULL : core_call_progress;
        options.progress_user = &calls;
        exported = run_export(store, target, &options);
    }
    core_texts_free(&chosen);
    return exported;
}

/* An exception stays set and ends the comparison. */
static void on_difference(void *user, rks_difference kind, const void *key, size_t key_size,
                          uint64_t id_a, uint64_t id_b)
{
    PyGILState_STATE state = PyGILState_Ensure();
    if (PyErr_Occurred() == NULL) {
        PyObject *one = Py_BuildValue(
            "iy#NN", (int)kind, (const char *)key, (Py_ssize_t)key_size,
            id_a == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(id_a),
            id_b == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(id_b));
        if (one != NULL)
            PyList_Append(user, one);
        Py_XDECREF(one);
    }
    PyGILState_Release(state);
}

static PyObject *run_diff(PyObject *a, PyObject *b, const rks_diff_options *options,
                          PyObject *differences)
{
    rks_diff_report report = {.struct_size = sizeof(report)};
    rks_error err = {0};
    rks_status status;
    rks_store *one = core_store_enter(a);
    rks_store *other = one == NULL ? NULL : core_store_enter(b);
    if (one != NULL && other == NULL)
        core_store_leave(a);
    if (other == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = rks_diff(one, other, options, on_difference, differences, &report, &err);
    Py_END_ALLOW_THREADS
    core_store_leave(b);
    core_store_leave(a);
    if (!core_succeeded(status, &err))
        return NULL;
    return Py_BuildValue(
        "({s:K,s:K,s:K,s:K,s:s}O)", "same", (unsigned long long)report.same, "only_a",
        (unsigned long long)report.only_a, "only_b", (unsigned long long)report.only_b, "changed",
        (unsigned long long)report.changed, "columns", report.columns, differences);
}

static PyObject *diff(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    (void)self;
    static char *names[] = {"a", "b", "columns", "head", "progress", NULL};
    PyObject *a, *b, *columns = NULL, *head = NULL, *progress = NULL, *compared = NULL;
    core_texts chosen = {0};
    core_callbacks calls = {0};
    rks_diff_options options;
    rks_diff_options_default(&options);
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OO|$OOO:diff", names, &a, &b, &columns,
                                     &head, &progress) ||
        !is_store(a) || !is_store(b) || !core_number(head, "head", 0, UINT64_MAX, &options.head))
        return NULL;
    PyObject *differences = PyList_New(0);
    if (differences != NULL && core_texts_take(columns, "columns", &chosen) &&
        core_callable(progress, "progress", &calls.progress)) {
        options.columns = chosen.texts;
        options.column_count = chosen.count;
        options.progress = calls.progress == NULL ? NULL : core_call_progress;
        options.progress_user = &calls;
        compared = run_diff(a, b, &options, differences);
    }
    core_texts_free(&chosen);
    Py_XDECREF(differences);
    return compared;
}

static PyObject *set_store_helper(PyObject *self, PyObject *list)
{
    (void)self;
    enum { WORDS = 16 };
    core_texts words = {0};
    const char *all[WORDS + 1] = {0};
    rks_error err = {0};
    if (!core_texts_take(list, "words", &words))
        return NULL;
    for (size_t i = 0; i < words.count && i < WORDS; i++)
        all[i] = words.texts[i];
    rks_status status = rks_set_store_helper(all, &err);
    core_texts_free(&words);
    if (!core_succeeded(status, &err))
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef upkeep_functions[] = {
    {"set_store_helper", set_store_helper, METH_O,
     "set_store_helper(words): the program that reaches object stores."},
    {"merge", WITH_KEYWORDS(merge),
     "merge(group, sources, directory, ...): collective; the report."},
    {"stage", WITH_KEYWORDS(stage),
     "stage(group, home, local, *, copies, everywhere, local_room, progress) -> a report"},
    {"publish", WITH_KEYWORDS(publish),
     "publish(group, directory, home, ...): collective; the report."},
    {"prune", WITH_KEYWORDS(prune), "prune(group, directory, ...): collective; the report."},
    {"prune_local", WITH_KEYWORDS(prune_local),
     "prune_local(group, local, ...): collective; the report."},
    {"lost", lost, METH_VARARGS,
     "lost(group, directory, shards): collective; how many shards are on no rank's disk."},
    {"export", WITH_KEYWORDS(export), "export(store, target, ...): collective; the report."},
    {"diff", WITH_KEYWORDS(diff),
     "diff(a, b, ...): collective; (the report, [(kind, key, id in a, id in b), ...])."},
    {0},
};

int core_add_upkeep(PyObject *module)
{
    return PyModule_AddFunctions(module, upkeep_functions);
}
