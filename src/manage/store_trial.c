/* SPDX-License-Identifier: Apache-2.0
 *
 * store_trial.c: requests of each kind, from the one that shows whether the store answers to a put
 * that must be refused. */
#include "manage/store_trial.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/c_locale.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/home_dataset.h"

enum {
    STALL_MS = 5000,
    TIMEOUT_MS = 15000,
    REQUESTS = 7,
    READ_MOST = 32 << 20,
    ROOM = 512,
};

typedef struct trial {
    rks_trial_fn found;
    void *user;
    rks_home *home;
    rks_home_dataset read;
} trial;

static void say(const trial *t, const char *name, bool ok, const char *advice, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

static void say(const trial *t, const char *name, bool ok, const char *advice, const char *format,
                ...)
{
    char value[ROOM];
    va_list arguments;
    va_start(arguments, format);
    rks_vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    t->found(t->user, name, ok, advice, value);
}

static double seconds_since(uint64_t begun_ns)
{
    return (double)(rks_now_ns() - begun_ns) / 1e9;
}

/* ---- where credentials come from ------------------------------------------------------------- */

/* Returns the family of stores that have variables in common; NULL: none is known. */
static const char *family_of(const char *url)
{
    static const char *const families[][2] = {{"s3", "s3"}, {"gs", "gs"}, {"gcs", "gs"},
                                              {"az", "az"}, {"ab", "az"}, {"adl", "az"},
                                              {"hf", "hf"}};
    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
        if (strncmp(url, families[i][0], strlen(families[i][0])) == 0)
            return families[i][1];
    return NULL;
}

/* Names only: what they hold is secret. */
static void try_credentials(const trial *t, const char *url)
{
    static const char *const names[][2] = {
        {"s3", "AWS_ACCESS_KEY_ID"},
        {"s3", "AWS_SESSION_TOKEN"},
        {"s3", "AWS_WEB_IDENTITY_TOKEN_FILE"},
        {"s3", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"},
        {"s3", "AWS_CONTAINER_CREDENTIALS_FULL_URI"},
        {"s3", "AWS_SKIP_SIGNATURE"},
        {"s3", "AWS_ENDPOINT"},
        {"s3", "AWS_ENDPOINT_URL"},
        {"s3", "AWS_REGION"},
        {"s3", "AWS_DEFAULT_REGION"},
        {"gs", "GOOGLE_APPLICATION_CREDENTIALS"},
        {"gs", "GOOGLE_SERVICE_ACCOUNT"},
        {"gs", "GOOGLE_SERVICE_ACCOUNT_KEY"},
        {"az", "AZURE_STORAGE_ACCOUNT_NAME"},
        {"az", "AZURE_STORAGE_ACCOUNT_KEY"},
        {"az", "AZURE_STORAGE_SAS_KEY"},
        {"az", "AZURE_FEDERATED_TOKEN_FILE"},
        {"hf", "HF_TOKEN"},
    };
    char text[ROOM] = "";
    const char *family = family_of(url);
    if (family == NULL)
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(family, names[i][0]) != 0 || getenv(names[i][1]) == NULL)
            continue;
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%s", used == 0 ? "" : ", ", names[i][1]);
    }
    if (text[0] != '\0')
        say(t, "credentials", true, NULL, "of the environment: %s", text);
    else
        say(t, "credentials", true, NULL,
            "none in the environment: those of the machine, container or service, if there are "
            "any");
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns false if the store does not answer. */
static bool try_reach(trial *t)
{
    rks_error err = {0};
    uint64_t begun = rks_now_ns();
    rks_status status = rks_home_dataset_read(t->home, &t->read, &err);
    if (status != RKS_OK && status != RKS_ERR_NOT_FOUND && status != RKS_ERR_CORRUPT) {
        say(t, "store", false, "the page \"Object stores\" says what it needs", "%s", err.text);
        return false;
    }
    say(t, "store", true, NULL, "%s answers, after %.2f s with the start of its helper",
        t->home->name, seconds_since(begun));
    const rks_dataset *dataset = t->read.dataset;
    if (status == RKS_ERR_CORRUPT)
        say(t, "dataset", false, "publish it again, from a directory that is right", "%s",
            err.text);
    else if (dataset == NULL)
        say(t, "dataset", true, NULL, "none; publish puts one here, build reads what lies here");
    else
        say(t, "dataset", true, NULL, "%" PRIu64 " samples in %zu shards", dataset->count,
            dataset->shard_count);
    return true;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void try_requests(const trial *t)
{
    double seconds[REQUESTS];
    for (size_t i = 0; i < REQUESTS; i++) {
        char version[RKS_HOME_VERSION] = "";
        uint64_t size, begun = rks_now_ns();
        rks_error err = {0};
        rks_status status = rks_home_size(t->home, "dataset.json", &size, version, &err);
        if (status != RKS_OK && status != RKS_ERR_NOT_FOUND) {
            say(t, "requests", false, "reads are slow while requests fail", "%s", err.text);
            return;
        }
        seconds[i] = seconds_since(begun);
    }
    qsort(seconds, REQUESTS, sizeof(*seconds), by_size);
    say(t, "requests", true, NULL, "%.1f ms each (median of %d, slowest %.1f ms)",
        seconds[REQUESTS / 2] * 1e3, REQUESTS, seconds[REQUESTS - 1] * 1e3);
}

/* Reads the beginning of the largest shard, as an arrival does: parts of it side by side. */
static void try_ranges(const trial *t)
{
    const rks_dataset *dataset = t->read.dataset;
    const rks_dataset_shard *largest = NULL;
    for (size_t i = 0; dataset != NULL && i < dataset->shard_count; i++)
        if (largest == NULL || dataset->shards[i].bytes > largest->bytes)
            largest = &dataset->shards[i];
    if (largest == NULL)
        return;
    char version[RKS_HOME_VERSION] = "";
    rks_error err = {0};
    uint64_t size = 0;
    char *name = rks_format(&err, "%s.rks", largest->name);
    rks_status status = name == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = rks_home_size(t->home, name, &size, version, &err);
    size = size < READ_MOST ? size : READ_MOST;
    uint8_t *bytes = status == RKS_OK ? rks_alloc_raw((size_t)size + 1, 1, &err) : NULL;
    uint64_t begun = rks_now_ns();
    if (bytes != NULL)
        status = rks_home_fetch(t->home, name, 0, size, bytes, version, &err);
    double seconds = seconds_since(begun);
    if (bytes != NULL && status == RKS_OK)
        say(t, "ranges", true, NULL, "%.1f MB in %.2f s: %.0f MB/s", (double)size / 1e6, seconds,
            (double)size / 1e6 / seconds);
    else
        say(t, "ranges", false, "publish the dataset again: shards are read by ranges", "%s",
            err.text);
    rks_free(bytes);
    rks_free(name);
}

/* ---- writing --------------------------------------------------------------------------------- */

static rks_status give_word(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *err)
{
    (void)err;
    memcpy(to, (const char *)user + first, size);
    return RKS_OK;
}

/* Puts an object twice, which must not be there: the second put must be refused. Publishers know of
 * each other by that. */
static void try_writes(const trial *t)
{
    static const char word[] = "rankstore doctor puts this, and removes it\n";
    const rks_home_ops *ops = t->home->ops;
    const rks_home_bytes bytes = {
        .size = sizeof(word) - 1, .give = give_word, .user = (void *)(uintptr_t)word};
    char version[RKS_HOME_VERSION] = "", again[RKS_HOME_VERSION] = "", name[64];
    rks_error err = {0};
    snprintf(name, sizeof(name), "rankstore.doctor-%" PRIx64 "-%lx", rks_now_ns(), (long)getpid());
    rks_status status = ops->put(t->home->state, name, &bytes, RKS_PUT_ABSENT, version, &err);
    if (status != RKS_OK) {
        say(t, "writes", true, "publish and build(home=) need them", "not possible: %s", err.text);
        return;
    }
    rks_status second = ops->put(t->home->state, name, &bytes, RKS_PUT_ABSENT, again, &err);
    status = ops->remove(t->home->state, name, "", &err);
    if (second != RKS_ERR_STATE)
        say(t, "writes", false, "publish from one place at a time: the store would let two mix",
            "possible, but a condition (If-None-Match) is not kept");
    else if (status != RKS_OK)
        say(t, "writes", false, "remove it; prune needs this right, too",
            "possible, with conditions, but %s was not removed: %s", name, err.text);
    else
        say(t, "writes", true, NULL, "possible, with conditions, and objects can be removed");
}

void rks_store_try(const char *url, rks_trial_fn found, void *user)
{
    const rks_home_limits limits = {.stall_ms = STALL_MS, .timeout_ms = TIMEOUT_MS};
    trial t = {.found = found, .user = user};
    rks_error err = {0};
    if (rks_home_open(url, &limits, &t.home, &err) != RKS_OK) {
        say(&t, "store", false, "name it as s3://bucket/folder", "%s", err.text);
        return;
    }
    try_credentials(&t, url);
    if (try_reach(&t)) {
        try_requests(&t);
        try_ranges(&t);
        try_writes(&t);
    }
    rks_home_dataset_free(&t.read);
    rks_home_close(t.home);
}
