/* SPDX-License-Identifier: Apache-2.0
 *
 * scale_nodes.c: many ranks on one machine that fetch from each other as if they were nodes. Each
 * has a directory of its own; nodes are made up, and ranks of different nodes share nothing. See
 * USAGE. */
#include <dirent.h>
#include <getopt.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "support/rows.h"
#include "dataset/build_directory.h"

static const char USAGE[] =
    "usage: scale_nodes [OPTION]... DIRECTORY\n"
    "\n"
    "Starts ranks as processes of this machine and names a node for each. The ranks open a "
    "dataset,\n"
    "fetch two epochs from each other, and close. Prints a line for each number of ranks and of\n"
    "ranks a node. Builds the datasets in DIRECTORY, and removes them again.\n"
    "\n"
    "  --ranks N[,N...]     numbers of ranks (16,64,128,256)\n"
    "  --per-node N[,N...]  ranks a node (8,1)\n"
    "  --samples N          in the dataset, of 1 to 15 bytes (1000000)\n"
    "  --batch N            samples in a batch (64)\n"
    "  --batches N          most batches that each rank fetches of an epoch; 0: all (0)\n"
    "  --exchange NAME      of the index: pull, local, auto (pull)\n"
    "  --runs N             of each line; medians are printed (1)\n"
    "  --help               this text\n"
    "\n"
    "Columns, of all ranks together where it says CPU:\n"
    "  group s, open s, epoch s   of the slowest rank; the first epoch\n"
    "  open CPU s                 of rks_store_open\n"
    "  copy CPU s                 of a plain socket copy of the index to each node, into memory "
    "of\n"
    "                             its own, in this run\n"
    "  CPU us/sample              of the first epoch, by samples delivered: it makes the plan's\n"
    "                             first ids and connects the ranks\n"
    "  later                      the same of the second epoch\n"
    "  sockets                    most descriptors of a rank after the epochs, without those "
    "before\n"
    "  good                       runs that opened, fetched what they should, and closed\n"
    "\n"
    "Exits with 0 if all runs were good, else 1.\n";

enum { LIST_MAX = 16, RUNS_MAX = 100 };

static struct {
    uint32_t ranks[LIST_MAX], per_nodes[LIST_MAX];
    size_t rank_count, per_node_count;
    uint64_t samples, batches;
    uint32_t batch, runs;
    const char *exchange;
} wanted = {
    .ranks = {16, 64, 128, 256},
    .per_nodes = {8, 1},
    .rank_count = 4,
    .per_node_count = 2,
    .samples = 1000000,
    .batch = 64,
    .runs = 1,
    .exchange = "pull",
};

/* What a rank measured; or, of a run, the slowest rank's seconds and all ranks' CPU. */
typedef struct figures {
    double group_s, open_s, open_cpu, epoch_s, epoch_cpu, later_cpu;
    uint64_t samples, later_samples, sockets;
} figures;

static char directory[3000];
static uint32_t per_node;
static int results; /* a pipe: rank 0 writes the run's figures */

/* ---- building -------------------------------------------------------------------------------- */

static void name_part(uint32_t rank, char name[4096])
{
    snprintf(name, 4096, "%s/rank-%u", directory, rank);
}

static rks_status make_part(void *user, uint64_t rank, rks_sink *sink, rks_error *err)
{
    const uint32_t *size = user;
    uint64_t begin = wanted.samples * rank / *size, end = wanted.samples * (rank + 1) / *size;
    rks_status status = RKS_OK;
    for (uint64_t i = begin; status == RKS_OK && i < end; i++) {
        uint8_t bytes[15];
        memset(bytes, (int)i, sizeof(bytes));
        rks_value value = {.data = bytes, .size = 1 + i % sizeof(bytes)};
        status = rows_add(sink, &value, NULL, 0, err);
    }
    return status;
}

static int build(const rks_bootstrap *bootstrap, void *user)
{
    rks_error err;
    rks_group *group = NULL;
    uint32_t size = bootstrap->size;
    const made_rows rows = {.make = make_part, .user = &size, .units = size};
    rks_group_options options;
    rks_build_options how;
    char name[4096];
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    bench_must(rks_group_open(&options, &group, &err), &err);
    rks_build_options_default(&how);
    how.schema = "data:bytes";
    name_part(bootstrap->rank, name);
    bench_must(rows_build(group, name, &how, &rows, NULL, &err), &err);
    rks_group_close(group);
    return 0;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Fetches this rank's batches of an epoch. Returns how many samples it got. */
static uint64_t fetch_epoch(rks_store *store, rks_plan *plan, uint64_t number)
{
    rks_error err;
    rks_epoch *epoch = NULL;
    uint64_t steps = 0, samples = 0;
    rks_epoch_options options;
    rks_epoch_options_default(&options);
    options.epoch = number;
    bench_must(rks_epoch_open(store, plan, &options, &epoch, &err), &err);
    bench_must(rks_plan_steps(plan, number, &steps, &err), &err);
    for (uint64_t i = 0; i < steps && (wanted.batches == 0 || i < wanted.batches); i++) {
        rks_batch *batch = NULL;
        bench_must(rks_epoch_next(epoch, &batch, NULL, &err), &err);
        if (batch == NULL) {
            fprintf(stderr, "scale_nodes: the epoch ended before its last step\n");
            exit(3);
        }
        samples += rks_batch_count(batch);
        rks_batch_free(batch);
    }
    rks_epoch_close(epoch);
    return samples;
}

/* The first epoch, and a second one when all ranks have ended the first. */
static void fetch_epochs(rks_group *group, rks_store *store, figures *own)
{
    rks_error err;
    rks_plan *plan = NULL;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.batch_size = wanted.batch;
    bench_must(rks_plan_open(store, &options, &plan, &err), &err);
    double begun = bench_seconds(), used = bench_cpu();
    own->samples = fetch_epoch(store, plan, 0);
    own->epoch_s = bench_seconds() - begun;
    own->epoch_cpu = bench_cpu() - used;
    bench_must(rks_group_agree(group, "first epoch", RKS_OK, &err), &err);
    used = bench_cpu();
    own->later_samples = fetch_epoch(store, plan, 1);
    own->later_cpu = bench_cpu() - used;
    rks_plan_free(plan);
}

static uint64_t open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint64_t count = 0;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

static void larger(double *value, double other)
{
    *value = *value > other ? *value : other;
}

/* Rank 0 sums up. */
static void report(rks_group *group, const figures *own)
{
    rks_error err;
    rks_gathered all = {0};
    figures sum = {0}, one;
    bench_must(rks_group_allgather(group, "figures", RKS_OK, own, sizeof(*own), &all, &err), &err);
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        memcpy(&one, all.bytes + all.offsets[rank], sizeof(one));
        larger(&sum.group_s, one.group_s);
        larger(&sum.open_s, one.open_s);
        larger(&sum.epoch_s, one.epoch_s);
        sum.open_cpu += one.open_cpu;
        sum.epoch_cpu += one.epoch_cpu;
        sum.later_cpu += one.later_cpu;
        sum.samples += one.samples;
        sum.later_samples += one.later_samples;
        sum.sockets = one.sockets > sum.sockets ? one.sockets : sum.sockets;
    }
    rks_release(all.bytes);
    rks_release(all.offsets);
    if (rks_group_rank(group) == 0 && write(results, &sum, sizeof(sum)) != sizeof(sum))
        exit(3);
}

static int run(const rks_bootstrap *bootstrap, void *user)
{
    rks_error err;
    rks_group *group = NULL;
    rks_store *store = NULL;
    rks_group_options options;
    rks_store_options how;
    figures own = {0};
    char node[32], name[4096];
    uint64_t before = open_files();
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    snprintf(node, sizeof(node), "node-%u", bootstrap->rank / per_node);
    options.node = node;
    double begun = bench_seconds();
    bench_must(rks_group_open(&options, &group, &err), &err);
    own.group_s = bench_seconds() - begun;

    rks_store_options_default(&how);
    how.exchange = wanted.exchange;
    name_part(bootstrap->rank, name);
    begun = bench_seconds();
    double used = bench_cpu();
    bench_must(rks_store_open(group, name, &how, &store, &err), &err);
    own.open_s = bench_seconds() - begun;
    own.open_cpu = bench_cpu() - used;

    fetch_epochs(group, store, &own);
    own.sockets = open_files() - before;
    report(group, &own);
    rks_store_close(store, 0);
    rks_group_close(group);
    return 0;
}

/* ---- the floor of an open: the index once through a socket into each node's memory ------------
 */

static int connected(int *other)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        connect(one, (struct sockaddr *)&address, size) != 0)
        exit(3);
    *other = accept(listener, NULL, NULL);
    close(listener);
    return one;
}

static void send_all(int to, uint64_t size)
{
    enum { PIECE = 1 << 20 };
    uint8_t *bytes = calloc(1, PIECE);
    for (uint64_t sent = 0; sent < size;) {
        ssize_t some = write(to, bytes, size - sent < PIECE ? size - sent : PIECE);
        if (some <= 0)
            _exit(3);
        sent += (uint64_t)some;
    }
    _exit(0);
}

/* What the children have used so far, and this process. */
static double cpu_of_all(void)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    return bench_cpu() + (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
           (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) / 1e6;
}

/* To a node: its memory is shared, as the index is. */
static void copy_to_node(uint64_t size)
{
    int to = -1, from = connected(&to);
    uint8_t *index = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (index == MAP_FAILED)
        exit(3);
    pid_t child = fork();
    if (child == 0)
        send_all(to, size);
    for (uint64_t got = 0; got < size;) {
        ssize_t some = read(from, index + got, size - got);
        if (some <= 0)
            exit(3);
        got += (uint64_t)some;
    }
    waitpid(child, NULL, 0);
    munmap(index, size);
    close(from);
    close(to);
}

/* To some nodes, and as much for each of the others. */
static double copy_index(uint32_t nodes)
{
    uint64_t size = 12 * wanted.samples, most = (uint64_t)1 << 30;
    uint32_t copied = nodes;
    while (copied > 1 && copied * size > most)
        copied /= 2;
    double used = cpu_of_all();
    for (uint32_t i = 0; i < copied; i++)
        copy_to_node(size);
    return (cpu_of_all() - used) * nodes / copied;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* False: a rank failed, or it delivered less than it should. */
static bool run_once(uint32_t ranks, figures *found)
{
    rks_error err;
    int code = 0, ends[2];
    memset(found, 0, sizeof(*found));
    if (pipe(ends) != 0)
        return false;
    results = ends[1];
    rks_status status = rks_launch(ranks, run, NULL, &code, &err);
    close(ends[1]);
    bool whole = read(ends[0], found, sizeof(*found)) == sizeof(*found);
    close(ends[0]);
    if (status != RKS_OK)
        fprintf(stderr, "scale_nodes: %s\n", err.text);
    return status == RKS_OK && code == 0 && whole &&
           (wanted.batches != 0 ||
            (found->samples == wanted.samples && found->later_samples == wanted.samples));
}

static int order(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof(*values), order);
    return count == 0 ? 0 : values[count / 2];
}

static bool print_line(uint32_t ranks)
{
    static double group_s[RUNS_MAX], open_s[RUNS_MAX], open_cpu[RUNS_MAX], copy_cpu[RUNS_MAX];
    static double epoch_s[RUNS_MAX], each_us[RUNS_MAX], later_us[RUNS_MAX];
    uint32_t good = 0;
    uint64_t sockets = 0;
    for (uint32_t i = 0; i < wanted.runs; i++) {
        figures found;
        copy_cpu[good] = copy_index((ranks + per_node - 1) / per_node);
        if (!run_once(ranks, &found))
            continue;
        group_s[good] = found.group_s;
        open_s[good] = found.open_s;
        open_cpu[good] = found.open_cpu;
        epoch_s[good] = found.epoch_s;
        each_us[good] = 1e6 * found.epoch_cpu / (double)found.samples;
        later_us[good] = 1e6 * found.later_cpu / (double)found.later_samples;
        sockets = found.sockets > sockets ? found.sockets : sockets;
        good++;
    }
    printf("%6u %9u %8.3f %7.2f %11.2f %11.2f %8.2f %14.2f %6.2f %8llu %5u of %u\n", ranks,
           per_node, median(group_s, good), median(open_s, good), median(open_cpu, good),
           median(copy_cpu, good), median(epoch_s, good), median(each_us, good),
           median(later_us, good), (unsigned long long)sockets, good, wanted.runs);
    fflush(stdout);
    return good == wanted.runs;
}

/* ---- options --------------------------------------------------------------------------------- */

static void usage_error(const char *what)
{
    fprintf(stderr, "scale_nodes: %s; see --help\n", what);
    exit(2);
}

static uint64_t number(const char *text, const char *option)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    char what[200];
    snprintf(what, sizeof(what), "--%s: '%.100s' is not a number", option, text);
    if (end == text || (*end != '\0' && *end != ','))
        usage_error(what);
    return value;
}

static size_t numbers(const char *text, const char *option, uint32_t *list)
{
    size_t count = 0;
    for (const char *at = text; at != NULL && count < LIST_MAX; count++) {
        list[count] = (uint32_t)number(at, option);
        if (list[count] == 0)
            usage_error("ranks and ranks a node start at 1");
        at = strchr(at, ',');
        at = at == NULL ? NULL : at + 1;
    }
    return count;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"ranks", required_argument, NULL, 'r'},
        {"per-node", required_argument, NULL, 'n'},
        {"samples", required_argument, NULL, 's'},
        {"batch", required_argument, NULL, 'b'},
        {"batches", required_argument, NULL, 'k'},
        {"exchange", required_argument, NULL, 'x'},
        {"runs", required_argument, NULL, 'u'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'r')
            wanted.rank_count = numbers(optarg, "ranks", wanted.ranks);
        else if (c == 'n')
            wanted.per_node_count = numbers(optarg, "per-node", wanted.per_nodes);
        else if (c == 's')
            wanted.samples = number(optarg, "samples");
        else if (c == 'b')
            wanted.batch = (uint32_t)number(optarg, "batch");
        else if (c == 'k')
            wanted.batches = number(optarg, "batches");
        else if (c == 'x')
            wanted.exchange = optarg;
        else if (c == 'u')
            wanted.runs = (uint32_t)number(optarg, "runs");
        else if (c == 'h') {
            fputs(USAGE, stdout);
            exit(0);
        } else
            exit(2);
    }
    if (optind != argc - 1)
        usage_error("name one directory");
    if (wanted.runs == 0 || wanted.runs > RUNS_MAX)
        usage_error("--runs is 1 to 100");
    if (wanted.samples == 0 || wanted.batch == 0)
        usage_error("--samples and --batch start at 1");
}

int main(int argc, char **argv)
{
    bool good = true;
    read_options(argc, argv);
    snprintf(directory, sizeof(directory), "%s/scale-nodes-XXXXXX", argv[optind]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    puts(" ranks  per node  group s  open s  open CPU s  copy CPU s  epoch s  CPU us/sample  later "
         " sockets "
         " good");
    for (size_t i = 0; i < wanted.rank_count; i++) {
        rks_error err;
        int code = 0;
        bench_must(rks_launch(wanted.ranks[i], build, NULL, &code, &err), &err);
        if (code != 0)
            return code;
        for (size_t k = 0; k < wanted.per_node_count; k++) {
            per_node = wanted.per_nodes[k];
            good = print_line(wanted.ranks[i]) && good;
        }
        for (uint32_t rank = 0; rank < wanted.ranks[i]; rank++) {
            char name[4096];
            name_part(rank, name);
            rks_directory_remove(name);
        }
    }
    rks_directory_remove(directory);
    return good ? 0 : 1;
}
