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
    bar->shown = isatty(STDERR_FILENO) && rks_group_rank(group) == 0;
    bar->ranks = rks_group_size(group);
    bar->begun_ms = now_ms();
}

void cli_bar_update(cli_bar *bar, const char *phase, uint64_t done, uint64_t total,
                    uint64_t samples)
{
    if (!bar->shown)
        return;
    uint64_t passed_ms = now_ms() - bar->begun_ms;
    double seconds = passed_ms == 0 ? 1e-3 : (double)passed_ms / 1e3;
    double part = total == 0 ? 0 : (double)done / (double)total;
    char before[64], after[160], left[32] = "", cells[31];
    if (bar->ranks > 1)
        snprintf(before, sizeof(before), "%s (rank 0 of %u)", phase, bar->ranks);
    else
        snprintf(before, sizeof(before), "%s", phase);
    if (part > 0)
        snprintf(left, sizeof(left), ", %.0f s left", seconds * (1 - part) / part);
    snprintf(after, sizeof(after), "%3.0f %%  %s of %s, %s, %s/s%s", 100 * part, cli_bytes(done),
             cli_bytes(total), cli_counted(samples, "sample"),
             cli_bytes((uint64_t)((double)done / seconds)), left);
    /* A line that wraps could not be drawn over. */
    int room = cli_width() - (int)(strlen(before) + strlen(after)) - 6;
    int width = room < 0 ? 0 : room > 30 ? 30 : room;
    for (int i = 0; i < width; i++)
        cells[i] = i < (int)(part * width) ? '#' : '.';
    cells[width] = '\0';
    fprintf(stderr, "\r%s [%s] %s\033[K", before, cells, after);
}

void cli_bar_part(cli_bar *bar, const char *phase, uint64_t done, uint64_t total)
{
    char cells[31];
    if (bar == NULL || !bar->shown)
        return;
    double part = total == 0 ? 0 : (double)done / (double)total;
    for (int i = 0; i < 30; i++)
        cells[i] = i < (int)(part * 30) ? '#' : '.';
    cells[30] = '\0';
    fprintf(stderr, "\r%-10s [%s] %3.0f %%\033[K", phase, cells, 100 * part);
}

void cli_bar_end(cli_bar *bar)
{
    if (bar->shown)
        fprintf(stderr, "\r\033[K");
    bar->shown = false;
}
