/* SPDX-License-Identifier: Apache-2.0
 *
 * python_reader.c: builds from Parquet and Arrow. Their reader is Arrow's own, in Python: the
 * command becomes a Python that has the package, with the same arguments. */
#include "python_reader.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "value.h"

static const char *format_of(const char *name)
{
    static const char *const endings[][2] = {
        {".parquet", "parquet"}, {".pq", "parquet"}, {".arrow", "arrow"}, {".feather", "arrow"}};
    size_t size = strlen(name);
    for (size_t i = 0; i < CLI_COUNT(endings); i++) {
        size_t ending = strlen(endings[i][0]);
        if (size > ending && strcmp(name + size - ending, endings[i][0]) == 0)
            return endings[i][1];
    }
    return NULL;
}

/* Of a folder: that of all its files, which are in it directly. */
static const char *format_of_folder(const char *path)
{
    const char *found = NULL;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        found = format_of(entry->d_name);
        if (found == NULL)
            break;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

const char *cli_python_format(const cli_list *sources, const char *format)
{
    if (format != NULL)
        return strcmp(format, "parquet") == 0 || strcmp(format, "arrow") == 0 ? format : NULL;
    for (size_t i = 0; i < sources->count; i++) {
        struct stat there;
        const char *path = sources->items[i];
        bool folder = stat(path, &there) == 0 && S_ISDIR(there.st_mode);
        const char *found = folder ? format_of_folder(path) : format_of(path);
        if (found != NULL)
            return found;
    }
    return NULL;
}

/* ---- what is asked for ----------------------------------------------------------------------- */

/* A text that is not UTF-8 makes *bad true. */
static void set_text(json_t *object, const char *name, const char *value, bool *bad)
{
    if (value != NULL && json_object_set_new(object, name, json_string(value)) != 0)
        *bad = true;
}

static void set_number(json_t *object, const char *name, uint64_t value, uint64_t usual)
{
    if (value != usual)
        json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void set_flag(json_t *object, const char *name, bool value)
{
    if (value)
        json_object_set_new(object, name, json_true());
}

static void set_list(json_t *object, const char *name, const char *const *values, size_t count,
                     bool *bad)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        *bad = json_array_append_new(list, json_string(values[i])) != 0 || *bad;
    if (count > 0)
        json_object_set(object, name, list);
    json_decref(list);
}

/* By the names of Python's build(); what is not given is left out. *bad: a text is not UTF-8. */
static json_t *options_of(const rks_build_options *o, bool *bad)
{
    rks_build_options usual;
    rks_build_options_default(&usual);
    json_t *object = json_object();
    set_text(object, "format", o->format, bad);
    set_text(object, "schema", o->schema, bad);
    set_text(object, "extra", o->extra, bad);
    set_text(object, "columns", o->columns, bad);
    set_text(object, "json_path", o->json_path, bad);
    set_text(object, "dtype", o->dtype, bad);
    set_text(object, "key", o->key, bad);
    set_text(object, "length", o->length, bad);
    set_text(object, "where", o->where, bad);
    set_text(object, "home", o->home, bad);
    set_number(object, "length_unit", o->length_unit, usual.length_unit);
    set_number(object, "min_length", o->min_length, usual.min_length);
    set_number(object, "max_length", o->max_length, usual.max_length);
    set_number(object, "seed", o->seed, usual.seed);
    set_number(object, "sample", o->sample, usual.sample);
    set_number(object, "max_sample", o->max_sample, usual.max_sample);
    set_number(object, "max_total", o->max_total, usual.max_total);
    set_number(object, "max_shard", o->max_shard, usual.max_shard);
    set_number(object, "unit_size", o->unit_size, usual.unit_size);
    if (o->sample_rate > 0)
        json_object_set_new(object, "sample", json_real(o->sample_rate));
    set_flag(object, "flatten", o->flatten);
    set_flag(object, "dedup", o->dedup);
    set_flag(object, "skip_bad", o->skip_bad);
    if (o->unchecked)
        json_object_set_new(object, "check_source", json_false());
    set_flag(object, "replace", o->replace);
    set_flag(object, "append", o->append);
    set_flag(object, "no_lock", o->no_lock);
    set_flag(object, "wait", o->wait);
    set_list(object, "index", o->index, o->index_count, bad);
    set_list(object, "count", o->counts, o->counts_count, bad);
    set_list(object, "shards", o->shards, o->shard_count, bad);
    return object;
}

/* ---- a Python -------------------------------------------------------------------------------- */

/* RANKSTORE_PYTHON; else the one beside this program, as in a virtual environment; else PATH's. */
static const char *find_python(char *room, size_t size)
{
    const char *asked = getenv("RANKSTORE_PYTHON");
    if (asked != NULL && asked[0] != '\0')
        return asked;
    ssize_t got = readlink("/proc/self/exe", room, size - sizeof("python3"));
    char *slash = got < 0 ? NULL : memrchr(room, '/', (size_t)got);
    if (slash != NULL) {
        memcpy(slash + 1, "python3", sizeof("python3"));
        if (access(room, X_OK) == 0)
            return room;
    }
    return "python3";
}

int cli_python_build(const cli_list *sources, const char *directory,
                     const rks_build_options *options, uint32_t copies, uint32_t processes,
                     bool json)
{
    static char code[] =
        "import sys\n"
        "sys.path[:1] = [] if sys.path[0] == '' else sys.path[:1]\n" /* not what lies here */
        "try:\n"
        "    import rankstore\n"
        "    if rankstore.__version__ != sys.argv[3]:\n"
        "        sys.exit(sys.stderr.write(f'rankstore build: {sys.argv[1]}: this command has "
        "version "
        "{sys.argv[3]}, and the Python package that reads Parquet and Arrow, in {sys.executable}, "
        "has {rankstore.__version__}: install the same version of both, or set RANKSTORE_PYTHON to "
        "a Python that has it\\n') and 3)\n"
        "    from rankstore._build.cli import main\n"
        "except ImportError as missing:\n"
        "    sys.exit(sys.stderr.write(f'rankstore build: {sys.argv[1]}: the Python package reads "
        "Parquet and Arrow, and {sys.executable} lacks it ({missing}): pip install rankstore "
        "pyarrow, or set RANKSTORE_PYTHON to a Python that has both\\n') and 3)\n"
        "sys.exit(main(sys.argv[2], sys.argv[4:]))\n";
    static char flag[] = "-c";
    char room[PATH_MAX];
    bool bad = false;
    const char *python = find_python(room, sizeof(room));
    for (size_t i = 0; i < sources->count; i++) {
        json_t *name = json_string(sources->items[i]);
        bad = bad || name == NULL;
        json_decref(name);
    }
    json_t *chosen = options_of(options, &bad);
    set_number(chosen, "copies", copies, 0);
    json_t *object = json_pack("{s:s, s:o, s:I, s:b}", "directory", directory, "options", chosen,
                               "processes", (json_int_t)processes, "json", (int)json);
    char *text =
        object == NULL || bad ? NULL : json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    if (text == NULL)
        return cli_usage(&cli_build, "a name or an option is not UTF-8");
    /* Sources as they were given: one argument alone has at most 128 KiB. */
    const char **arguments = calloc(sources->count + 7, sizeof(*arguments));
    if (arguments == NULL) {
        free(text);
        fprintf(stderr, "rankstore build: out of memory: the names of the sources\n");
        return CLI_ENVIRONMENT;
    }
    const char *const first[] = {python, flag, code, sources->items[0], text, rks_version()};
    memcpy(arguments, first, sizeof(first));
    memcpy(arguments + CLI_COUNT(first), sources->items, sources->count * sizeof(*arguments));
    fflush(stdout);
    execvp(python, (char *const *)(uintptr_t)arguments);
    fprintf(stderr,
            "rankstore build: %s: the Python package reads Parquet and Arrow, and %s: %s; set "
            "RANKSTORE_PYTHON to a Python with rankstore and pyarrow\n",
            cli_shown(sources->items[0]), python, strerror(errno));
    free(arguments);
    free(text);
    return CLI_ENVIRONMENT;
}

/* ---- object stores --------------------------------------------------------------------------- */

void cli_use_store_helper(void)
{
    static const char code[] =
        "import os, sys\n"
        "sys.path[:1] = []\n" /* not what lies here */
        "try:\n"
        "    from rankstore.store_helper import main\n"
        "except ImportError as missing:\n"
        "    os.write(1, f'bad {sys.executable} reaches no object store ({missing}): pip install "
        "\"rankstore[store]\", or set RANKSTORE_PYTHON to a Python that has it, or RKS_HOME_HELPER "
        "to another program\\n'.encode())\n"
        "    sys.exit(1)\n"
        "main()\n";
    char room[PATH_MAX];
    rks_error ignored;
    const char *const words[] = {find_python(room, sizeof(room)), "-c", code, NULL};
    rks_set_store_helper(words, &ignored);
}
