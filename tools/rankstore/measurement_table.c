/* SPDX-License-Identifier: Apache-2.0
 *
 * measurement_table.c: the table of figures. */
#include "measurement_table.h"

#include <inttypes.h>
#include <stddef.h>

/* Counters grow while a job runs, gauges go up and down. */
typedef enum figure_kind { COUNTER, GAUGE } figure_kind;

typedef struct figure {
    const char *name; /* ends with its unit, where it has one */
    size_t field;
    bool real; /* a double; else a uint64_t */
    bool sum;  /* over ranks; else the largest */
    figure_kind kind;
    const char *help;
} figure;

#define FIGURE(field) #field, offsetof(cli_measured, field)
static const figure figures[] = {
    {FIGURE(samples), false, true, COUNTER, "Samples delivered."},
    {FIGURE(bytes), false, true, COUNTER, "Column and key bytes delivered."},
    {FIGURE(local_bytes), false, true, COUNTER, "Bytes of them read from maps of this node."},
    {FIGURE(remote_bytes), false, true, COUNTER, "Bytes of them received from other ranks."},
    {FIGURE(served_bytes), false, true, COUNTER, "Bytes sent to other ranks."},
    {FIGURE(disk_bytes), false, true, COUNTER, "Bytes read from the node's disk for samples."},
    {FIGURE(disk_reads), false, true, COUNTER, "Requests to the disk that read them."},
    {FIGURE(home_bytes), false, true, COUNTER, "Bytes of shards read from home."},
    {FIGURE(seconds), true, false, COUNTER, "Time in which epochs were read."},
    {FIGURE(wait_seconds), true, false, COUNTER, "Time in which the reader waited for samples."},
    {FIGURE(peak_anon_bytes), false, false, GAUGE, "Largest anonymous and shared memory seen."},
    {FIGURE(index_bytes_node), false, false, GAUGE, "Index memory of the rank's node."},
    {FIGURE(exchange_bytes), false, false, GAUGE, "Index bytes that the rank's node took in."},
    {FIGURE(quarantined), false, false, GAUGE, "Samples that a quarantine list leaves out."},
    {FIGURE(collectives), false, false, COUNTER, "Collective calls of the group."},
};
enum { FIGURES = sizeof(figures) / sizeof(figures[0]) };

static double real_of(const cli_measured *of, const figure *f)
{
    const char *at = (const char *)of + f->field;
    return f->real ? *(const double *)(const void *)at
                   : (double)*(const uint64_t *)(const void *)at;
}

void cli_measured_add(cli_measured *all, const cli_measured *one)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const figure *f = &figures[i];
        void *into = (char *)all + f->field;
        const void *from = (const char *)one + f->field;
        if (f->real && f->sum)
            *(double *)into += *(const double *)from;
        else if (f->sum)
            *(uint64_t *)into += *(const uint64_t *)from;
        else if (f->real && *(const double *)from > *(double *)into)
            *(double *)into = *(const double *)from;
        else if (!f->real && *(const uint64_t *)from > *(uint64_t *)into)
            *(uint64_t *)into = *(const uint64_t *)from;
    }
}

void cli_measured_json(json_t *object, const cli_measured *all)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const figure *f = &figures[i];
        const void *at = (const char *)all + f->field;
        json_object_set_new(object, f->name,
                            f->real ? json_real(*(const double *)at)
                                    : json_integer((json_int_t) * (const uint64_t *)at));
    }
}

void cli_measured_metrics(FILE *out, const cli_measured *ranks, uint32_t count)
{
    for (size_t i = 0; i < FIGURES; i++) {
        const figure *f = &figures[i];
        const char *end = f->kind == COUNTER ? "_total" : "";
        fprintf(out, "# HELP rankstore_%s%s %s\n# TYPE rankstore_%s%s %s\n", f->name, end, f->help,
                f->name, end, f->kind == COUNTER ? "counter" : "gauge");
        for (uint32_t rank = 0; rank < count; rank++)
            fprintf(out, "rankstore_%s%s{rank=\"%u\"} %.17g\n", f->name, end, rank,
                    real_of(&ranks[rank], f));
    }
}
