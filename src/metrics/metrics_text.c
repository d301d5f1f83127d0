/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_text.c: writes a snapshot as text. For rankstore top:
 *
 *   rankstore-top 1 pid=4711 now_ms=123456
 *   store number=0 group=00ff... rank=0 ranks=2 ... dataset=1f... directory=/data/my%20store
 *   end left_out=0
 *
 * Readers skip names that they do not know. For Prometheus: one metric after the other, with one
 * line for each source. */
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "metrics/metrics.h"

typedef struct figure {
    const char *name; /* without "rankstore_" and "_total" */
    size_t field;
    const char *help;
    bool grows;   /* a counter */
    bool seconds; /* the field counts nanoseconds */
} figure;

static const figure figures[] = {
    {"samples", offsetof(rks_metrics, samples), "samples delivered", true, false},
    {"bytes", offsetof(rks_metrics, bytes), "column and key bytes of them", true, false},
    {"local_bytes", offsetof(rks_metrics, local_bytes), "read from maps of this node", true, false},
    {"remote_bytes", offsetof(rks_metrics, remote_bytes), "received from other ranks", true, false},
    {"served_bytes", offsetof(rks_metrics, served_bytes), "sent to other ranks", true, false},
    {"disk_bytes", offsetof(rks_metrics, disk_bytes), "read from the node's disk for samples", true,
     false},
    {"disk_reads", offsetof(rks_metrics, disk_reads), "requests of such reads", true, false},
    {"home_bytes", offsetof(rks_metrics, home_bytes), "bytes of shards read from home", true,
     false},
    {"wait_seconds", offsetof(rks_metrics, wait_ns), "time in which the reader waited for samples",
     true, true},
    {"batches", offsetof(rks_metrics, batches), "batches of epochs", true, false},
    {"epoch", offsetof(rks_metrics, epoch), "the epoch of the last batch", false, false},
    {"step", offsetof(rks_metrics, step), "its step", false, false},
    {"steps", offsetof(rks_metrics, steps), "steps of its epoch", false, false},
    {"ahead", offsetof(rks_metrics, ahead), "batches that are fetched ahead", false, false},
};
enum { FIGURES = sizeof(figures) / sizeof(figures[0]) };

/* Text that grows by whole lines; what does not fit is left out. */
typedef struct page {
    char *text;
    size_t used, room;
} page;

static bool add_words(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool add_words(page *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(p->text + p->used, p->room - p->used, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= p->room - p->used) {
        p->text[p->used] = '\0';
        return false;
    }
    p->used += (size_t)size;
    return true;
}

static uint64_t figure_of(const rks_metrics *one, const figure *f)
{
    uint64_t value;
    memcpy(&value, (const char *)one + f->field, sizeof(value));
    return value;
}

/* Makes `text` one word of a line: spaces, %, control and non-ASCII bytes become %xx. Cuts the text
 * if it does not fit into `room`. */
static void escape(const char *text, char *word, size_t room)
{
    size_t used = 0;
    for (const char *c = text; *c != '\0' && used + 4 < room; c++)
        if (*c > ' ' && *c < 0x7f && *c != '%')
            word[used++] = *c;
        else
            used += (size_t)snprintf(word + used, room - used, "%%%02x", (unsigned char)*c);
    word[used] = '\0';
}

static bool add_store(page *p, const rks_metrics *one)
{
    char directory[3 * sizeof(one->directory) + 8];
    size_t before = p->used;
    escape(one->directory, directory, sizeof(directory));
    bool good = add_words(p,
                          "store number=%" PRIu64 " group=%016" PRIx64 " rank=%u ranks=%u node=%u "
                          "nodes=%u",
                          one->number, one->group, one->rank, one->ranks, one->node, one->nodes);
    for (size_t i = 0; good && i < FIGURES; i++)
        good = add_words(p, " %s=%" PRIu64, figures[i].seconds ? "wait_ns" : figures[i].name,
                         figure_of(one, &figures[i]));
    good = good && add_words(p, " dataset=%s directory=%s\n", one->dataset, directory);
    if (!good)
        p->text[p->used = before] = '\0';
    return good;
}

size_t rks_metrics_as_top(const rks_metrics *all, size_t count, size_t left_out, char *text,
                          size_t room)
{
    enum { LAST_LINE = 64 };
    page p = {text, 0, room - LAST_LINE};
    add_words(&p, "rankstore-top 1 pid=%ld now_ms=%" PRIu64 "\n", (long)getpid(), rks_now_ms());
    for (size_t i = 0; i < count; i++)
        left_out += !add_store(&p, &all[i]);
    p.room = room;
    add_words(&p, "end left_out=%zu\n", left_out);
    return p.used;
}

/* Writes the value of a label: puts a backslash before quotes and backslashes, and replaces control
 * characters, newlines included, with '?'. Cuts the text if it does not fit into `room`. */
static void label(const char *text, char *word, size_t room)
{
    size_t used = 0;
    for (const char *c = text; *c != '\0' && used + 3 < room; c++) {
        if (*c == '"' || *c == '\\')
            word[used++] = '\\';
        word[used++] = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
    }
    word[used] = '\0';
}

static bool add_metric(page *p, const rks_metrics *one, const figure *f)
{
    char directory[2 * sizeof(one->directory) + 4], value[40];
    uint64_t number = figure_of(one, f);
    label(one->directory, directory, sizeof(directory));
    if (f->seconds)
        snprintf(value, sizeof(value), "%" PRIu64 ".%09" PRIu64, number / 1000000000,
                 number % 1000000000);
    else
        snprintf(value, sizeof(value), "%" PRIu64, number);
    return add_words(
        p,
        "rankstore_%s%s{rank=\"%u\",node=\"%u\",store=\"%" PRIu64 "\",directory=\"%s\"} "
        "%s\n",
        f->name, f->grows ? "_total" : "", one->rank, one->node, one->number, directory, value);
}

size_t rks_metrics_as_prometheus(const rks_metrics *all, size_t count, char *text, size_t room)
{
    page p = {text, 0, room};
    text[0] = '\0';
    for (size_t i = 0; i < FIGURES; i++) {
        const figure *f = &figures[i];
        const char *total = f->grows ? "_total" : "";
        size_t before = p.used;
        bool good = add_words(&p, "# HELP rankstore_%s%s %s\n# TYPE rankstore_%s%s %s\n", f->name,
                              total, f->help, f->name, total, f->grows ? "counter" : "gauge");
        for (size_t k = 0; good && k < count; k++)
            good = add_metric(&p, &all[k], f);
        if (!good) { /* omit the whole metric */
            text[p.used = before] = '\0';
            break;
        }
    }
    return p.used;
}
