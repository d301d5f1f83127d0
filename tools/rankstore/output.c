/* SPDX-License-Identifier: Apache-2.0
 *
 * output.c: numbers for people, files, and the progress bar. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "terminal.h"

enum { RING = 16, WIDTH = 48, DIGITS = 32 };

static char *next_text(void)
{
    static char ring[RING][WIDTH];
    static int at;
    at = (at + 1) % RING;
    return ring[at];
}

const char *cli_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    char *text = next_text();
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(text, WIDTH, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

static void write_count(uint64_t count, char text[DIGITS])
{
    char digits[DIGITS], *at = text;
    int size = snprintf(digits, sizeof(digits), "%" PRIu64, count);
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
}

const char *cli_count(uint64_t count)
{
    char *text = next_text();
    write_count(count, text);
    return text;
}

const char *cli_counted(uint64_t count, const char *thing)
{
    char number[DIGITS], *text = next_text();
    const char *many = thing[strlen(thing) - 1] == 'h' ? "es" : "s"; /* batches */
    write_count(count, number);
    snprintf(text, WIDTH, "%s %s%s", number, thing, count == 1 ? "" : many);
    return text;
}

static rks_status fail_file(const char *path, rks_error *err)
{
    int cause = errno;
    *err = (rks_error){.status = RKS_ERR_IO, .rank = -1, .cause = cause};
    snprintf(err->text, sizeof(err->text), "%.140s: %s", path, strerror(cause));
    return RKS_ERR_IO;
}

rks_status cli_output_open(cli_output *output, const char *path, rks_error *err)
{
    struct stat there;
    bool other = stat(path, &there) == 0 && !S_ISREG(there.st_mode);
    size_t size = strlen(path) + 32;
    *output = (cli_output){.path = path};
    if (other) {
        output->file = fopen(path, "we");
        return output->file == NULL ? fail_file(path, err) : RKS_OK;
    }
    output->temporary = malloc(size);
    if (output->temporary == NULL)
        return fail_file(path, err);
    snprintf(output->temporary, size, "%s.%ld.tmp", path, (long)getpid());
    output->file = fopen(output->temporary, "wxe");
    if (output->file != NULL)
        return RKS_OK;
    free(output->temporary);
    output->temporary = NULL;
    return fail_file(path, err);
}

rks_status cli_output_close(cli_output *output, rks_status status, rks_error *err)
{
    bool good = fflush(output->file) == 0 && !ferror(output->file) &&
                (output->temporary == NULL || fsync(fileno(output->file)) == 0);
    if (status == RKS_OK && !good)
        status = fail_file(output->path, err);
    fclose(output->file);
    if (output->temporary == NULL)
        return status;
    if (status == RKS_OK && rename(output->temporary, output->path) != 0)
        status = fail_file(output->path, err);
    if (status != RKS_OK)
        unlink(output->temporary);
    free(output->temporary);
    return status;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void cli_bar_begin(cli_bar *bar, rks_group *group)
{
    bar->terminal = rks_group_rank(group) == 0 ? cli_stderr_terminal() : -1;
    bar->shown = bar->terminal >= 0;
    bar->group = group;
    bar->begun_ms = now_ms();
}

/* "before [####....] after", no wider than the terminal: a line that wraps could not be drawn over.
 * What does not fit is cut off at the end. */
static void draw_bar(const cli_bar *bar, const char *before, double part, const char *after)
{
    enum { CELLS = 30 };
    char cells[CELLS + 1], line[320];
    int width = cli_width(bar->terminal) - 1;
    int room = width - (int)(strlen(before) + strlen(after)) - 4;
    int count = room < 0 ? 0 : room > CELLS ? CELLS : room;
    for (int i = 0; i < count; i++)
        cells[i] = i < (int)(part * count) ? '#' : '.';
    cells[count] = '\0';
    snprintf(line, sizeof(line), "%s [%s] %s", before, cells, after);
    fprintf(stderr, "\r%.*s\033[K", width, line);
}

static double share(uint64_t done, uint64_t total)
{
    return total == 0 ? 0 : (double)done / (double)total;
}

void cli_bar_update(void *user, const char *phase, uint64_t done, uint64_t total, uint64_t samples)
{
    cli_bar *bar = user;
    rks_group_progress all = {.struct_size = sizeof(all)};
    char before[64], after[200], left[32] = "", slowest[48] = "";
    if (!bar->shown)
        return;
    uint32_t ranks = rks_group_size(bar->group);
    rks_group_progress_get(bar->group, &all);
    snprintf(before, sizeof(before), ranks > 1 && all.ranks == 0 ? "%s (rank 0 of %u)" : "%s",
             phase, ranks);
    if (all.ranks == 0)
        all = (rks_group_progress){.done = done,
                                   .total = total,
                                   .samples = samples,
                                   .slowest_done = done,
                                   .slowest_total = total};
    uint64_t passed_ms = now_ms() - bar->begun_ms;
    double seconds = passed_ms == 0 ? 1e-3 : (double)passed_ms / 1e3;
    double last = share(all.slowest_done, all.slowest_total);
    if (last > 0)
        snprintf(left, sizeof(left), ", %.0f s left", seconds * (1 - last) / last);
    if (all.ranks > 1)
        snprintf(slowest, sizeof(slowest), "; slowest: rank %u, %.0f %%", all.slowest_rank,
                 100 * last);
    snprintf(after, sizeof(after), "%3.0f %%%s, %s of %s, %s/s, %s%s",
             100 * share(all.done, all.total), left, cli_bytes(all.done), cli_bytes(all.total),
             cli_bytes((uint64_t)((double)all.done / seconds)), cli_counted(all.samples, "sample"),
             slowest);
    draw_bar(bar, before, share(all.done, all.total), after);
}

void cli_bar_part(cli_bar *bar, const char *phase, uint64_t done, uint64_t total)
{
    char before[16], after[16];
    if (bar == NULL || !bar->shown)
        return;
    snprintf(before, sizeof(before), "%-10s", phase);
    snprintf(after, sizeof(after), "%3.0f %%", 100 * share(done, total));
    draw_bar(bar, before, share(done, total), after);
}

void cli_bar_end(cli_bar *bar)
{
    if (bar->shown)
        fprintf(stderr, "\r\033[K");
    if (bar->shown && bar->terminal != STDERR_FILENO)
        close(bar->terminal);
    bar->shown = false;
}
