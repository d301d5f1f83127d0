/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_file.c: each rank brings pieces of PIECE events by a gather; rank 0 writes them as they
 * come, rank by rank.
 *
 *   {"traceEvents":[{"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}},
 *    {"name":"wait","cat":"wait","ph":"X","ts":12.345,"dur":6.789,"pid":0,"tid":1,
 *     "args":{"samples":64,"bytes":4096}},
 *    {"name":"fetch from rank 3","cat":"fetch","ph":"b","id":"0.17",...},{...,"ph":"e",...}],
 *    "displayTimeUnit":"ms","otherData":{"rankstore":"0.2.0","events":..,"dropped":..}} */
#include "trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 4096 };
static const char SCHEMA[] = "origin:uint64,dropped:uint64,events:bytes";

typedef struct writer {
    FILE *file;
    uint64_t events, dropped, asynchronous;
    int64_t rank; /* whose events came last */
} writer;

rks_status cli_trace_start(rks_group *group, uint64_t *origin_ns, rks_error *err)
{
    struct timespec now;
    rks_status status = rks_trace_start(0, err);
    status = rks_group_agree(group, "trace", status, err);
    clock_gettime(CLOCK_MONOTONIC, &now);
    *origin_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return status;
}

/* ---- writing, on rank 0 ---------------------------------------------------------------------- */

static void write_name(writer *w, uint32_t rank)
{
    if (w->rank == rank)
        return;
    fprintf(w->file,
            "%s\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"name\":"
            "\"rank %u\"}}",
            w->rank < 0 ? "" : ",", rank, rank);
    w->rank = rank;
}

static void write_event(writer *w, uint32_t rank, uint64_t origin, const rks_trace_event *event)
{
    const char *name = rks_trace_name(event->kind);
    char shown[64];
    double begin = ((double)event->begin_ns - (double)origin) / 1e3;
    double length = (double)event->duration_ns / 1e3;
    bool overlaps = event->kind == RKS_TRACE_FETCH || event->kind == RKS_TRACE_PREFETCH;
    if (event->peer >= 0)
        snprintf(shown, sizeof(shown), "%s from rank %" PRId64, name, event->peer);
    else
        snprintf(shown, sizeof(shown), "%s", name);
    fprintf(w->file, ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":%" PRIu32 ",", shown,
            name, rank, event->thread);
    if (overlaps)
        fprintf(w->file, "\"ph\":\"b\",\"id\":\"%u.%" PRIu64 "\",\"ts\":%.3f,", rank,
                w->asynchronous, begin);
    else
        fprintf(w->file, "\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,", begin, length);
    fprintf(w->file, "\"args\":{\"samples\":%" PRIu64 ",\"bytes\":%" PRIu64 "}}", event->samples,
            event->bytes);
    if (overlaps)
        fprintf(w->file,
                ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":%" PRIu32
                ",\"ph\":\"e\",\"id\":\"%u.%" PRIu64 "\",\"ts\":%.3f}",
                shown, name, rank, event->thread, rank, w->asynchronous++, begin + length);
}

static rks_status receive(void *user, const rks_gather_item *item, rks_error *err)
{
    writer *w = user;
    uint64_t origin, dropped;
    rks_trace_event event;
    (void)err;
    memcpy(&origin, item->values[0].data, sizeof(origin));
    memcpy(&dropped, item->values[1].data, sizeof(dropped));
    w->dropped += dropped;
    write_name(w, item->rank);
    for (uint64_t at = 0; at + sizeof(event) <= item->values[2].size; at += sizeof(event)) {
        memcpy(&event, (const uint8_t *)item->values[2].data + at, sizeof(event));
        write_event(w, item->rank, origin, &event);
        w->events++;
    }
    return RKS_OK;
}

static rks_status fail_file(const char *path, rks_error *err)
{
    *err = (rks_error){.status = RKS_ERR_IO, .rank = -1, .cause = errno};
    snprintf(err->text, sizeof(err->text), "%.120s: %.60s", path, strerror(errno));
    return RKS_ERR_IO;
}

/* ---- all ranks ------------------------------------------------------------------------------ */

static rks_status add_pieces(rks_gather *gather, uint32_t rank, uint64_t origin, rks_error *err)
{
    rks_trace_event *events = NULL;
    size_t count = 0;
    uint64_t dropped = 0;
    char name[32];
    rks_status status = rks_trace_drain(&events, &count, &dropped, err);
    snprintf(name, sizeof(name), "rank %010u", rank);
    /* One piece at least: the rank is there, and says what it dropped. */
    for (size_t at = 0, piece = 0; status == RKS_OK && (at < count || piece == 0);
         at += PIECE, piece++) {
        size_t many = count - at < PIECE ? count - at : PIECE;
        const rks_value values[] = {
            {.data = &origin, .size = sizeof(origin)},
            {.data = &dropped, .size = sizeof(dropped)},
            {.data = many == 0 ? (const void *)"" : events + at, .size = many * sizeof(*events)},
        };
        status = rks_gather_add(gather, name, piece, values, err);
        dropped = 0;
    }
    rks_release(events);
    return status;
}

static rks_status gather_events(rks_group *group, writer *w, uint64_t origin, rks_status status,
                                rks_error *err)
{
    rks_gather *gather = NULL;
    rks_gather_report report = {.struct_size = sizeof(report)};
    status = rks_group_agree(group, "trace: file", status, err);
    if (status == RKS_OK)
        status = rks_gather_open(group, SCHEMA, NULL, &gather, err);
    if (status != RKS_OK)
        return status;
    status = add_pieces(gather, rks_group_rank(group), origin, err);
    status = rks_gather_run(gather, status, 0, receive, w, &report, err);
    rks_gather_close(gather);
    return status;
}

rks_status cli_trace_write(rks_group *group, const char *path, uint64_t origin_ns, uint64_t *events,
                           uint64_t *dropped, rks_error *err)
{
    writer w = {.rank = -1};
    char part[4096];
    bool writes = rks_group_rank(group) == 0;
    rks_status status = RKS_OK;
    rks_trace_stop();
    snprintf(part, sizeof(part), "%s.%ld.part", path, (long)getpid());
    if (writes && (w.file = fopen(part, "wxe")) == NULL)
        status = fail_file(part, err);
    if (w.file != NULL)
        fprintf(w.file, "{\"traceEvents\":[");
    status = gather_events(group, &w, origin_ns, status, err);
    if (w.file != NULL) {
        fprintf(
            w.file,
            "\n],\"displayTimeUnit\":\"ms\",\"otherData\":{\"rankstore\":\"%s\",\"events\":%" PRIu64
            ",\"dropped\":%" PRIu64 "}}\n",
            rks_version(), w.events, w.dropped);
        bool bad = ferror(w.file) != 0;
        bad = fclose(w.file) != 0 || bad;
        if (status == RKS_OK && (bad || rename(part, path) != 0))
            status = fail_file(path, err);
        if (status != RKS_OK)
            unlink(part);
    }
    *events = w.events;
    *dropped = w.dropped;
    return rks_group_agree(group, "trace: written", status, err);
}
