/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c: the group that a command runs in, errors and exit codes, Ctrl-C. */
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "python_reader.h"
#include "value.h"

static const cli_command *command;
static volatile sig_atomic_t interrupted; /* the signal */

void cli_set_command(const cli_command *running)
{
    command = running;
}

const char *cli_command_name(void)
{
    return command == NULL ? "" : command->name;
}

/* Asked again a second later, it ends at once. A terminal and a supervisor may both pass on one
 * Ctrl-C. */
static void on_interrupt(int number)
{
    static time_t first;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (interrupted != 0 && now.tv_sec > first + 1)
        _exit(CLI_INTERRUPTED);
    if (interrupted != 0)
        return;
    first = now.tv_sec;
    interrupted = number;
}

rks_status cli_check_interrupt(rks_error *err)
{
    if (interrupted == 0)
        return RKS_OK;
    *err = (rks_error){.status = RKS_ERR_CANCELLED, .rank = -1};
    snprintf(err->text, sizeof(err->text), "interrupted");
    return RKS_ERR_CANCELLED;
}

/* Ctrl-C reaches all ranks, and one that has not looked yet may find others gone: that is expected.
 * (SIGTERM is how mpirun ends what a lost rank left; that rank is to be named.) */
static rks_status told_by_ctrl_c(rks_status status, rks_error *err)
{
    bool lost = status == RKS_ERR_PEER || status == RKS_ERR_TIMEOUT;
    return lost && interrupted == SIGINT ? cli_check_interrupt(err) : status;
}

static int is_interrupted(void *user)
{
    (void)user;
    return interrupted != 0;
}

int cli_exit_code(rks_status status)
{
    switch (status) {
    case RKS_OK:
        return CLI_GOOD;
    case RKS_ERR_ARGUMENT:
        return CLI_USAGE;
    case RKS_ERR_CORRUPT:
    case RKS_ERR_DATA:
    case RKS_ERR_NOT_FOUND:
        return CLI_PROBLEM;
    case RKS_ERR_PEER:
    case RKS_ERR_TIMEOUT:
        return CLI_PEER;
    case RKS_ERR_CANCELLED:
        return CLI_INTERRUPTED;
    default:
        return CLI_ENVIRONMENT;
    }
}

/* "[seen by rank 1] rank 2 (host): " */
static void name_rank(const rks_group *group, const rks_error *err, bool lost, char *text,
                      size_t room)
{
    char seen[32] = "";
    bool named = strncmp(err->text, "rank ", 5) == 0; /* it says so itself */
    text[0] = '\0';
    /* Without a group, only one that is not the first says that there are several. */
    if (group != NULL ? rks_group_size(group) < 2 : err->rank <= 0)
        return;
    if (lost && group != NULL)
        snprintf(seen, sizeof(seen), "[seen by rank %u] ", rks_group_rank(group));
    if (named || err->rank < 0)
        snprintf(text, room, "%s", seen);
    else if (err->host[0] != '\0')
        snprintf(text, room, "%srank %d (%s): ", seen, err->rank, err->host);
    else
        snprintf(text, room, "%srank %d: ", seen, err->rank);
}

int cli_fail(rks_group *group, rks_status status, const rks_error *why)
{
    rks_error own = *why, *err = &own;
    status = told_by_ctrl_c(status, err);
    /* All ranks have the same error: one of them says it. The one that lost its group says it too.
     * In one write, since a launcher may mix what several write. */
    bool lost = status == RKS_ERR_PEER || status == RKS_ERR_TIMEOUT;
    char line[1024], who[128];
    if (group == NULL || rks_group_rank(group) == 0 || lost) {
        name_rank(group, err, lost, who, sizeof(who));
        snprintf(line, sizeof(line), "rankstore %s: %s%s\n%s", cli_command_name(), who,
                 cli_shown(err->text),
                 status == RKS_ERR_CORRUPT && strcmp(cli_command_name(), "verify") != 0
                     ? "Try 'rankstore verify --full DIR': it names all that is damaged, and what "
                       "helps.\n"
                     : "");
        fputs(line, stderr);
    }
    return cli_exit_code(status);
}

static int output_cause; /* errno of the first flush of stdout that failed */

void cli_flush(void)
{
    if (fflush(stdout) != 0 && output_cause == 0)
        output_cause = errno;
}

int cli_finish(int code)
{
    if (interrupted != 0 && (code != CLI_GOOD || ferror(stdout))) {
        __fpurge(stdout); /* who reads may do so no more, and would be waited for */
        return CLI_INTERRUPTED;
    }
    cli_flush();
    if (output_cause == EPIPE || (output_cause == 0 && !ferror(stdout)))
        return code;
    const char *name = cli_command_name();
    fprintf(stderr, "rankstore%s%s: write to standard output: %s\n", name[0] == '\0' ? "" : " ",
            name, output_cause == 0 ? "not all could be written" : strerror(output_cause));
    return CLI_ENVIRONMENT;
}

enum { SILENCE_LEAST_MS = 200, SILENCE_MOST_MS = 3600000 };

typedef struct job {
    cli_body body;
    void *user;
    uint32_t silence_ms; /* 0: the default */
} job;

static bool is_srun(void)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    return tasks != NULL && strtoul(tasks, NULL, 10) > 1;
}

const char *cli_launched_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    return rank != NULL ? rank : is_srun() ? getenv("SLURM_PROCID") : NULL;
}

/* torchrun tells its processes where torch's store is, which takes torch to read. */
static bool is_torchrun(void)
{
    const char *world = getenv("WORLD_SIZE");
    return world != NULL && strtoul(world, NULL, 10) > 1 && getenv("TORCHELASTIC_RUN_ID") != NULL;
}

bool cli_meets_others(void)
{
    return cli_launched_rank() != NULL && !is_torchrun();
}

uint32_t cli_lone_rank(void)
{
    static const char *const names[] = {"RANK", "PMIX_RANK", "PMI_RANK"};
    const char *rank = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && rank == NULL; i++)
        rank = getenv(names[i]);
    return rank == NULL ? 0 : (uint32_t)strtoul(rank, NULL, 10);
}

static uint32_t own_rank(const rks_bootstrap *bootstrap)
{
    const char *launched = cli_launched_rank();
    return bootstrap != NULL  ? bootstrap->rank
           : launched != NULL ? (uint32_t)strtoul(launched, NULL, 10)
                              : 0;
}

/* ---- object stores --------------------------------------------------------------------------- */

static char temporary[PATH_MAX]; /* a local directory for looking into a home; "": there is none */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

static void remove_temporary(void)
{
    enum { OPEN_MOST = 16 };
    if (temporary[0] != '\0')
        nftw(temporary, remove_one, OPEN_MOST, FTW_DEPTH | FTW_PHYS);
    temporary[0] = '\0';
}

/* A command that looks into a home in an object store needs no local directory of its own: what it
 * reads lies in a temporary one. */
static void look_from_temporary(const cli_list *words, rks_store_options *options)
{
    const char *named = getenv("RKS_LOCAL"), *place = getenv("TMPDIR");
    bool url = false;
    for (size_t i = 0; i < words->count; i++)
        url = url || strstr(words->items[i], "://") != NULL;
    if (!url || options->local != NULL || (named != NULL && named[0] != '\0'))
        return;
    if (temporary[0] == '\0') {
        snprintf(temporary, sizeof(temporary), "%s/rankstore-XXXXXX",
                 place == NULL || place[0] == '\0' ? "/tmp" : place);
        if (mkdtemp(temporary) == NULL)
            temporary[0] = '\0';
    }
    if (temporary[0] != '\0') {
        options->local = temporary;
        options->on_demand = true;
    }
}

static int run_rank(const rks_bootstrap *bootstrap, void *user)
{
    const job *j = user;
    rks_group *group = NULL;
    rks_error err = {0};
    rks_group_options options;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    options.silence_ms = j->silence_ms > 0 ? j->silence_ms : options.silence_ms;
    rks_set_interrupt(is_interrupted, NULL);
    rks_status status = told_by_ctrl_c(rks_group_open(&options, &group, &err), &err);
    /* Wrong options are known to all ranks, Ctrl-C has reached all, and rank 0 says it. Anything
     * else in the opening may be known to one rank alone. */
    if ((status == RKS_ERR_ARGUMENT || status == RKS_ERR_CANCELLED) && own_rank(bootstrap) != 0)
        return cli_exit_code(status);
    if (status != RKS_OK)
        return cli_fail(NULL, status, &err);
    bool alone = rks_group_size(group) == 1;
    int code = cli_finish(j->body(group, j->user));
    remove_temporary();
    fflush(stderr);
    /* A launcher's own end (MPI_Finalize) would wait for ranks that are gone. */
    if (!alone && code != CLI_GOOD && code != CLI_PROBLEM && code != CLI_USAGE) {
        rks_group_close(group);
        _exit(code);
    }
    rks_group_close(group);
    return code;
}

static bool refuses_torchrun(void)
{
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    if (!is_torchrun())
        return false;
    if (rank == NULL || strtoul(rank, NULL, 10) == 0)
        fprintf(stderr,
                "rankstore %s: torchrun started %s processes of this command, which cannot join "
                "them; use mpirun -n %s, srun -n %s or, on one machine, -j %s; Python programs can "
                "be started by torchrun\n",
                cli_command_name(), cli_shown(world), cli_shown(world), cli_shown(world),
                cli_shown(world));
    return true;
}

/* RKS_SILENCE_MS, in the group's bounds. */
static bool read_silence(uint32_t *silence_ms)
{
    const char *text = getenv("RKS_SILENCE_MS");
    if (text == NULL)
        return true;
    size_t digits = strspn(text, "0123456789");
    unsigned long number = strtoul(text, NULL, 10);
    if (digits == 0 || digits > 9 || text[digits] != '\0' || number < SILENCE_LEAST_MS ||
        number > SILENCE_MOST_MS) {
        fprintf(stderr, "rankstore %s: RKS_SILENCE_MS: '%s' is not a whole number from %s to %s\n",
                cli_command_name(), cli_shown(text), cli_count(SILENCE_LEAST_MS),
                cli_count(SILENCE_MOST_MS));
        return false;
    }
    *silence_ms = (uint32_t)number;
    return true;
}

int cli_run(uint32_t processes, cli_body body, void *user)
{
    job j = {.body = body, .user = user};
    rks_error err = {0};
    int code = 0;
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (!read_silence(&j.silence_ms))
        return CLI_USAGE;
    if (refuses_torchrun())
        return CLI_USAGE;
    cli_use_store_helper();
    if (processes <= 1)
        return run_rank(NULL, &j);
    bool mpirun = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
    if (mpirun || is_srun()) {
        if (own_rank(NULL) == 0)
            fprintf(stderr, "rankstore %s: -j and %s cannot be used together\n", cli_command_name(),
                    mpirun ? "mpirun" : "srun");
        return CLI_USAGE;
    }
    rks_status status = rks_launch(processes, run_rank, &j, &code, &err);
    return status == RKS_OK ? code : cli_fail(NULL, status, &err);
}

/* "NAME=DIR" unless something has that very name: the place of the '=', or NULL. */
static const char *name_sign(const char *word)
{
    const char *sign = strchr(word, '=');
    const char *slash = strchr(word, '/');
    bool named = sign != NULL && sign != word && (slash == NULL || sign < slash);
    return named && access(word, F_OK) != 0 ? sign : NULL;
}

const char *cli_directory(const char *word)
{
    const char *sign = name_sign(word);
    return sign == NULL ? word : sign + 1;
}

static rks_store_options with_shards(const cli_store_args *args)
{
    rks_store_options options = args->options;
    options.shards = args->shards.items;
    options.shard_count = args->shards.count;
    return options;
}

/* A name is that of its word, or the last part of the directory. */
rks_status cli_open_several(rks_group *group, const cli_list *words, const cli_store_args *args,
                            rks_store **store, rks_error *err)
{
    const rks_store_options options = with_shards(args);
    const char **directories = calloc(words->count, sizeof(*directories));
    const char **names = calloc(words->count, sizeof(*names));
    char **made = calloc(words->count, sizeof(*made));
    bool room = directories != NULL && names != NULL && made != NULL;
    for (size_t i = 0; room && i < words->count; i++) {
        const char *word = words->items[i], *sign = name_sign(word);
        const char *end = word + strlen(word), *begin;
        while (end > word + 1 && end[-1] == '/')
            end--;
        for (begin = end; begin > word && begin[-1] != '/';)
            begin--;
        directories[i] = sign == NULL ? word : sign + 1;
        made[i] = sign == NULL ? strndup(begin, (size_t)(end - begin))
                               : strndup(word, (size_t)(sign - word));
        room = made[i] != NULL;
        names[i] = made[i];
    }
    rks_status status = RKS_ERR_MEMORY;
    if (room)
        status = rks_store_open_many(group, directories, names, words->count, &options, store, err);
    else
        snprintf(err->text, sizeof(err->text), "out of memory: names of directories");
    for (size_t i = 0; made != NULL && i < words->count; i++)
        free(made[i]);
    free(made);
    free(names);
    free(directories);
    return status;
}

int cli_open(rks_group *group, const cli_list *words, const cli_store_args *given,
             rks_store **store)
{
    cli_store_args chosen = *given, *args = &chosen;
    look_from_temporary(words, &chosen.options);
    const rks_store_options options = with_shards(args);
    rks_error err = {0};
    rks_status status = words->count == 1
                            ? rks_store_open(group, words->items[0], &options, store, &err)
                            : cli_open_several(group, words, args, store, &err);
    if (status != RKS_OK)
        return cli_fail(group, status, &err);
    rks_store_stats stats = {.struct_size = sizeof(stats)};
    rks_store_stats_get(*store, &stats);
    if (stats.missing_shards > 0 && rks_group_rank(group) == 0)
        fprintf(stderr, "rankstore %s: %s of %s missing: %s of %s left out\n", cli_command_name(),
                cli_count(stats.missing_shards), cli_counted(stats.shards, "shard"),
                cli_count(stats.missing_samples), cli_counted(rks_store_count(*store), "sample"));
    if (options.quarantine != NULL && rks_group_rank(group) == 0)
        fprintf(stderr, "rankstore %s: %s left out, in quarantine\n", cli_command_name(),
                cli_counted(stats.quarantined, "sample"));
    return -1;
}
