/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_top.c: rankstore top: running jobs, live. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"
#include "top_read.h"
#include "value.h"

typedef struct args {
    cli_list words; /* none */
    uint32_t interval, count;
    bool json;
} args;

/* Since the table before; known: there was one. */
typedef struct rates {
    bool known;
    double samples, disk, peers, served; /* a second */
    double waiting;                      /* part of the time, 0 to 1 */
} rates;

static rates rates_of(const top_store *now, const top_found *before)
{
    for (size_t i = 0; i < before->count; i++) {
        const top_store *one = &before->stores[i];
        if (one->pid != now->pid || one->number != now->number || one->now_ms >= now->now_ms)
            continue;
        double seconds = (double)(now->now_ms - one->now_ms) / 1000;
        double waiting = (double)(now->wait_ns - one->wait_ns) / 1e9 / seconds;
        return (rates){true,
                       (double)(now->samples - one->samples) / seconds,
                       (double)(now->disk_bytes - one->disk_bytes) / seconds,
                       (double)(now->remote_bytes - one->remote_bytes) / seconds,
                       (double)(now->served_bytes - one->served_bytes) / seconds,
                       waiting > 1 ? 1 : waiting};
    }
    return (rates){0};
}

/* ---- for people --------------------------------------------------------------------------- */

static void print_row(const top_store *one, const rates *r)
{
    char step[48] = "-", epoch[24] = "-", waiting[16] = "-";
    if (one->batches > 0) {
        snprintf(epoch, sizeof(epoch), "%llu", (unsigned long long)one->epoch);
        snprintf(step, sizeof(step), "%s/%s", cli_count(one->step + 1), cli_count(one->steps));
    }
    if (r->known)
        snprintf(waiting, sizeof(waiting), "%.0f %%", 100 * r->waiting);
    printf("%6llu %8llu  %11s %9s/s %9s/s %9s/s %7s %5llu %5s  %s\n", (unsigned long long)one->rank,
           (unsigned long long)one->pid, r->known ? cli_count((uint64_t)r->samples) : "-",
           r->known ? cli_bytes((uint64_t)r->disk) : "-",
           r->known ? cli_bytes((uint64_t)r->peers) : "-",
           r->known ? cli_bytes((uint64_t)r->served) : "-", waiting, (unsigned long long)one->ahead,
           epoch, step);
}

static void print_job(const top_store *one)
{
    printf("job %.8s, node %llu of %llu, %s in all: %s\n", one->group,
           (unsigned long long)one->node, (unsigned long long)one->nodes,
           cli_counted(one->ranks, "rank"), cli_shown(one->directory));
    printf("%6s %8s  %11s %11s %11s %11s %7s %5s %5s  %s\n", "rank", "process", "samples/s", "disk",
           "from peers", "to peers", "waiting", "ahead", "epoch", "step");
}

/* `rows`: at most so many lines; 0: all. */
static void print_table(const top_found *now, const top_found *before, size_t rows)
{
    size_t lines = 0, shown = 0;
    const top_store *last = NULL;
    for (size_t i = 0; i < now->count; i++, shown++) {
        const top_store *one = &now->stores[i];
        bool heads = last == NULL || strcmp(one->group, last->group) != 0 ||
                     one->node != last->node || strcmp(one->directory, last->directory) != 0;
        rates r = rates_of(one, before);
        size_t needed = heads ? 3 : 1;
        if (rows > 0 && lines + needed + 1 > rows)
            break;
        if (heads)
            print_job(one);
        print_row(one, &r);
        lines += needed;
        last = one;
    }
    if (now->count - shown + now->left_out > 0)
        printf("and %zu more\n", now->count - shown + now->left_out);
}

static size_t terminal_rows(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 6 ? size.ws_row - 1u : 23;
}

/* ---- for programs ------------------------------------------------------------------------- */

static json_t *store_json(const top_store *one, const rates *r)
{
    json_t *object = json_pack(
        "{s:I, s:s, s:o, s:s}", "process", (json_int_t)one->pid, "job", one->group, "directory",
        cli_text_json(one->directory, strlen(one->directory)), "dataset", one->dataset);
    for (size_t i = 0; i < top_figure_count; i++) {
        uint64_t number;
        memcpy(&number, (const char *)one + top_figures[i].field, sizeof(number));
        if (strcmp(top_figures[i].name, "wait_ns") == 0)
            json_object_set_new(object, "wait_seconds", json_real((double)number / 1e9));
        else if (strcmp(top_figures[i].name, "number") != 0)
            json_object_set_new(object, top_figures[i].name, json_integer((json_int_t)number));
    }
    const struct {
        const char *name;
        double value;
    } given[] = {{"samples_per_second", r->samples},
                 {"disk_bytes_per_second", r->disk},
                 {"remote_bytes_per_second", r->peers},
                 {"served_bytes_per_second", r->served},
                 {"waiting", r->waiting}};
    for (size_t i = 0; i < CLI_COUNT(given); i++)
        json_object_set_new(object, given[i].name,
                            r->known ? json_real(given[i].value) : json_null());
    return object;
}

static void print_all_json(const top_found *now, const top_found *before)
{
    json_t *list = json_array();
    for (size_t i = 0; i < now->count; i++) {
        rates r = rates_of(&now->stores[i], before);
        json_array_append_new(list, store_json(&now->stores[i], &r));
    }
    cli_print_json(json_pack("{s:i, s:o, s:I}", "schema_version", 1, "stores", list, "left_out",
                             (json_int_t)now->left_out),
                   JSON_COMPACT);
}

/* ---- the command -------------------------------------------------------------------------- */

static void print_once(const args *a, const top_found *now, const top_found *before, bool redraw)
{
    char time_text[32] = "";
    time_t seconds = time(NULL);
    struct tm parts;
    if (a->json) {
        print_all_json(now, before);
        return;
    }
    if (redraw) {
        if (localtime_r(&seconds, &parts) != NULL)
            strftime(time_text, sizeof(time_text), "%H:%M:%S", &parts);
        printf("\033[H\033[Jrankstore top, %s, every %u s; Ctrl-C ends it\n", time_text,
               a->interval);
    }
    print_table(now, before, redraw ? terminal_rows() - 1 : 0);
}

static int nothing_runs(void)
{
    fprintf(stderr, "rankstore top: no process of yours on this machine has a dataset open (one "
                    "with RKS_TOP=off, or in another container, is not seen)\n");
    return cli_finish(CLI_PROBLEM);
}

static int top(void *user)
{
    const args *a = user;
    top_found now = {0}, before = {0};
    bool redraw = !a->json && isatty(STDOUT_FILENO);
    uint64_t count = a->count > 0 ? a->count : redraw ? UINT64_MAX : 1;
    int code = CLI_GOOD;
    for (uint64_t i = 0; i <= count && code == CLI_GOOD; i++) {
        int error = top_read(&now);
        if (error != 0) {
            fprintf(stderr, "rankstore top: %s\n", strerror(error));
            code = cli_finish(CLI_ENVIRONMENT);
        } else if (now.count + now.left_out == 0) {
            code = i <= 1 ? nothing_runs() : cli_finish(CLI_GOOD); /* no table yet */
            break;
        } else if (i > 0) {
            print_once(a, &now, &before, redraw);
            code = fflush(stdout) == 0 ? CLI_GOOD : cli_finish(CLI_GOOD);
        }
        top_free(&before);
        before = now;
        now = (top_found){0};
        if (code == CLI_GOOD && i < count)
            sleep(a->interval);
        if (ferror(stdout))
            break;
    }
    top_free(&before);
    return code == CLI_GOOD ? cli_finish(code) : code;
}

static void set_top_defaults(void *user)
{
    ((args *)user)->interval = 1;
}

static const cli_option options[] = {
    {"--interval", "S", CLI_U32, offsetof(args, interval),
     .help = "seconds between tables, and over which rates are measured", .normal = "1", .least = 1,
     .most = 3600},
    {"--count", "N", CLI_U32, offsetof(args, count), .help = "end after N tables",
     .normal = "endless on a terminal, else 1", .least = 1},
    CLI_JSON(args, json, "print a JSON object for each table; docs/figures.md names its figures"),
};

const cli_command cli_top = {
    .name = "top",
    .arguments = "",
    .summary = "Show running jobs live: samples a second, bytes from disk and peers, waiting",
    .examples = {"rankstore top --help", "rankstore top --json --count 1 || echo nothing runs"},
    .text =
        "Shows each dataset that one of your processes has open on this machine, in any program: "
        "rank, samples a second, bytes a second read from disk, received from other ranks and "
        "sent to them, the share of time that the rank waited for samples, batches fetched ahead, "
        "and the position in the epoch. Run it on each node of a job. Processes answer at a "
        "socket that only their user can open. RKS_TOP=off hides a process; RKS_METRICS=PORT "
        "serves the same figures to Prometheus. The exit code is 1 if nothing runs.",
    CLI_OPTIONS(options, args, words),
    .least = 0,
    .most = 0,
    .needs = "it takes no arguments",
    .defaults = set_top_defaults,
    .run = top,
};
