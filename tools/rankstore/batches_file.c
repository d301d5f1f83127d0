/* SPDX-License-Identifier: Apache-2.0
 *
 * batches_file.c:
 *
 *   0        header      96 bytes: magic, version, ranks, epoch, steps, counts, digests
 *   96       options     JSON, zeros up to a multiple of 8
 *            ends        u64 for each batch (step-major, rank-minor): ids up to its end
 *            ids         u32 each
 */
#include "batches_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 96 };

static rks_status batches_error(rks_status status, const char *path, const char *what,
                                rks_error *err)
{
    *err = (rks_error){.status = status, .rank = -1, .cause = errno};
    snprintf(err->text, sizeof(err->text), "%.120s: %s", path, what);
    return status;
}

static void store_number(uint8_t *at, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* 32 digits, high half first, as 16 bytes, low half first. */
static void put_digest(uint8_t *at, const char *digits)
{
    char half[17] = "";
    memcpy(half, digits + 16, 16);
    store_number(at, strtoull(half, NULL, 16), 8);
    memcpy(half, digits, 16);
    store_number(at + 8, strtoull(half, NULL, 16), 8);
}

static const char *or_default(const char *name, const char *fallback)
{
    return name == NULL ? fallback : name;
}

/* A JSON object as text, with a number after its other members, also one above 2^63, which
 * jansson's integers are not. NULL: no memory. Frees `object`. */
static char *dump_with(json_t *object, const char *name, uint64_t number)
{
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT), *whole = NULL;
    size_t size = text == NULL ? 0 : strlen(text) + strlen(name) + 32;
    if (text != NULL)
        whole = malloc(size);
    if (whole != NULL) {
        text[strlen(text) - 1] = '\0'; /* its brace */
        snprintf(whole, size, "%s,\"%s\":%" PRIu64 "}", text, name, number);
    }
    free(text);
    json_decref(object);
    return whole;
}

static char *describe_plan(const cli_figures *figures, const rks_plan_options *options)
{
    return dump_with(
        json_pack(
            "{s:s, s:s, s:I, s:I, s:s, s:I, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:b, s:f, s:f, s:I, "
            "s:s}",
            "version", rks_version(), "strategy", figures->strategy, "batch_size",
            (json_int_t)options->batch_size, "max_tokens", (json_int_t)options->max_tokens, "cost",
            or_default(options->cost, "padded"), "max_length", (json_int_t)options->max_length,
            "too_long", or_default(options->too_long, "error"), "tail",
            or_default(options->tail, "split"), "steps", or_default(options->steps, "constant"),
            "no_shuffle", options->no_shuffle ? 1 : 0, "capacity", (json_int_t)options->capacity,
            "length_multiple", (json_int_t)figures->report.length_multiple, "micro_batches",
            (json_int_t)options->micro_batches, "mixed", options->mixed ? 1 : 0, "cost_linear",
            options->cost_linear, "cost_quadratic", options->cost_quadratic, "pack_window",
            (json_int_t)options->pack_window, "order", or_default(options->order, "plan")),
        "seed", options->seed);
}

typedef struct writer {
    FILE *out;
    const char *path;
    uint64_t samples;
    const char *dataset; /* 32 digits: zeros if there is none */
    const cli_figures *figures;
    uint64_t epoch;
    cli_bar *bar;
    bool gone; /* who read it has left */
} writer;

typedef void (*batch_fn)(writer *w, uint64_t step, uint32_t rank, const uint32_t *ids, size_t count,
                         uint64_t *ended);

/* `each` for every batch, step by step and in it rank by rank. */
static rks_status go_over(writer *w, const char *phase, batch_fn each, rks_error *err)
{
    uint64_t ended = 0, step = 0;
    for (uint64_t done = 0; done < w->figures->report.steps; done++, step++) {
        if (done % 1024 == 0)
            cli_bar_part(w->bar, phase, done, w->figures->report.steps);
        rks_status status = cli_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_plan_next_step(w->figures->plan, w->epoch, step, &step, err);
        if (status != RKS_OK)
            return status;
        for (uint32_t rank = 0; rank < w->figures->world; rank++) {
            const uint32_t *ids;
            size_t count;
            status = rks_plan_batch(w->figures->plan, w->epoch, step, rank, &ids, &count, err);
            if (status != RKS_OK)
                return status;
            each(w, step, rank, ids, count, &ended);
        }
        w->gone = ferror(w->out) && errno == EPIPE;
        if (w->gone)
            return RKS_OK;
        if (ferror(w->out))
            return batches_error(RKS_ERR_IO, w->path, strerror(errno), err);
    }
    return RKS_OK;
}

static void write_end(writer *w, uint64_t step, uint32_t rank, const uint32_t *ids, size_t count,
                      uint64_t *ended)
{
    (void)step, (void)rank, (void)ids;
    *ended += count;
    fwrite(ended, sizeof(*ended), 1, w->out); /* little-endian, as this machine is */
}

static void write_ids(writer *w, uint64_t step, uint32_t rank, const uint32_t *ids, size_t count,
                      uint64_t *ended)
{
    (void)step, (void)rank, (void)ended;
    fwrite(ids, sizeof(*ids), count, w->out);
}

static void write_line(writer *w, uint64_t step, uint32_t rank, const uint32_t *ids, size_t count,
                       uint64_t *ended)
{
    (void)ended;
    fprintf(w->out, "{\"step\":%" PRIu64 ",\"rank\":%" PRIu32 ",\"ids\":[", step, rank);
    for (size_t i = 0; i < count; i++)
        fprintf(w->out, "%s%" PRIu32, i == 0 ? "" : ",", ids[i]);
    fputs("]}\n", w->out);
}

static rks_status write_binary(writer *w, const char *options, rks_error *err)
{
    const cli_figures *figures = w->figures;
    static const uint8_t zeros[8];
    uint8_t header[HEADER] = "RKSPLAN";
    size_t size = strlen(options), padding = (8 - size % 8) % 8;
    uint64_t batches = figures->report.steps * figures->world, ids = figures->report.samples;
    store_number(header + 8, 1, 2);
    store_number(header + 12, figures->world, 4);
    store_number(header + 16, w->epoch, 8);
    store_number(header + 24, figures->report.steps, 8);
    store_number(header + 32, ids, 8);
    store_number(header + 40, w->samples, 8);
    put_digest(header + 48, w->dataset);
    put_digest(header + 64, figures->report.digest);
    store_number(header + 80, HEADER + size + padding + 8 * batches + 4 * ids, 8);
    store_number(header + 88, size, 4);
    fwrite(header, sizeof(header), 1, w->out);
    fwrite(options, size, 1, w->out);
    fwrite(zeros, padding, 1, w->out);
    rks_status status = go_over(w, "batches", write_end, err);
    return status == RKS_OK ? go_over(w, "ids", write_ids, err) : status;
}

static rks_status write_lines(writer *w, const char *options, rks_error *err)
{
    const cli_figures *figures = w->figures;
    char *head =
        dump_with(json_pack("{s:i, s:s, s:s, s:I, s:I, s:I}", "schema_version", 1, "dataset",
                            w->dataset, "digest", figures->report.digest, "world",
                            (json_int_t)figures->world, "steps", (json_int_t)figures->report.steps,
                            "samples", (json_int_t)figures->report.samples),
                  "epoch", w->epoch);
    if (head == NULL)
        return batches_error(RKS_ERR_MEMORY, w->path, "no memory", err);
    fprintf(w->out, "%.*s,\"options\":%s}\n", (int)strlen(head) - 1, head, options);
    free(head);
    return go_over(w, "batches", write_line, err);
}

static rks_status write_to(writer *w, const cli_plan_args *args, bool as_json, rks_error *err)
{
    char *options = describe_plan(w->figures, &args->options);
    if (options == NULL)
        return batches_error(RKS_ERR_MEMORY, w->path, "no memory", err);
    rks_status status = as_json ? write_lines(w, options, err) : write_binary(w, options, err);
    free(options);
    errno = 0;
    bool failed = fflush(w->out) != 0 || ferror(w->out);
    if (failed && (errno == EPIPE || w->gone))
        clearerr(w->out); /* who read it has left: no failure */
    else if (failed && status == RKS_OK)
        status = batches_error(RKS_ERR_IO, w->path, strerror(errno), err);
    return status;
}

rks_status cli_write_batches(rks_store *store, const cli_figures *figures,
                             const cli_plan_args *args, const char *path, bool as_json,
                             cli_bar *bar, rks_error *err)
{
    writer w = {.out = stdout,
                .path = path,
                .samples = store == NULL ? args->count : rks_store_count(store),
                .dataset =
                    store == NULL ? "00000000000000000000000000000000" : rks_store_dataset(store),
                .figures = figures,
                .epoch = args->epoch,
                .bar = bar};
    if (strcmp(path, "-") == 0) {
        w.path = "standard output";
        if (!as_json && isatty(STDOUT_FILENO))
            return batches_error(RKS_ERR_ARGUMENT, path,
                                 "no binary to a terminal; -o FILE, or --json", err);
        return write_to(&w, args, as_json, err);
    }
    cli_output output;
    rks_status status = cli_output_open(&output, path, err);
    if (status != RKS_OK)
        return status;
    w.out = output.file;
    status = write_to(&w, args, as_json, err);
    return cli_output_close(&output, status, err);
}
