/* SPDX-License-Identifier: Apache-2.0
 *
 * test_staging.c: what a staging says while shards arrive, and of a home that has them no more. */
#include "support/ranks.h"
#include "support/shards.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "staging/staging.h"

enum { PIECES = 3 }; /* that are here */

static char kept[256], local[256], folder[300];

/* A dataset at home, of which some pieces have come to LOCAL/id. */
static int begin(void **state)
{
    const shards_recipe recipe = {.samples = 1000, .units = 4, .wide_every = 1};
    char command[1024];
    if (shards_begin(state) != 0)
        return -1;
    shards_dataset(&recipe);
    snprintf(kept, sizeof(kept), "%s/kept", shards_here);
    snprintf(local, sizeof(local), "%s/local", shards_here);
    snprintf(folder, sizeof(folder), "%s/id", local);
    snprintf(command, sizeof(command), "mkdir -p '%s' '%s' && cp '%s'/a.* '%s'/dataset.json '%s'",
             kept, folder, shards_here, shards_here, kept);
    return system(command);
}

static int end(void **state)
{
    char command[1024];
    snprintf(command, sizeof(command), "rm -rf '%s' '%s'", kept, local);
    return system(command) != 0 ? -1 : shards_end(state);
}

static void bring_some(member *m, const rks_dataset_shard *shard)
{
    rks_home *home = NULL;
    rks_arrival *arrival = NULL;
    bool whole = false;
    uint64_t brought = 0;
    uint8_t *room = rks_alloc_raw(RKS_PIECE, 1, &m->err);
    EXPECT_OK(rks_home_open(kept, NULL, &home, &m->err));
    const rks_arrival_wish wish = {
        .home = home, .directory = folder, .name = shard->name, .manifest = shard->manifest};
    EXPECT_OK(rks_arrival_open(&wish, &arrival, &whole, &m->err));
    for (uint64_t i = 0; m->failures == 0 && i < PIECES; i++)
        EXPECT_OK(rks_arrival_bring(arrival, i, 1, room, &brought, &m->err));
    rks_arrival_close(arrival);
    rks_home_close(home);
    rks_free(room);
}

typedef struct seen {
    unsigned calls;
    bool wrong;
    uint64_t before, total;
} seen;

static void look(void *user, const char *phase, uint64_t done, uint64_t total, uint64_t samples)
{
    seen *s = user;
    s->wrong = s->wrong || strcmp(phase, "stage") != 0 || done < s->before || done > total ||
               total != s->total || samples != 1000;
    s->before = done;
    s->calls++;
}

static void stage(member *m)
{
    rks_dataset *dataset = NULL;
    rks_staging *staging = NULL;
    EXPECT_OK(open_group_on(m->bootstrap, NULL, 0, &m->group, &m->err));
    EXPECT_OK(rks_dataset_load(kept, &dataset, &m->err));
    if (m->failures > 0)
        return;
    bring_some(m, &dataset->shards[0]);
    seen s = {.before = PIECES * (uint64_t)RKS_PIECE, .total = dataset->shards[0].file_bytes};
    const rks_staging_options options = {
        .home = kept, .local = local, .folder = "id", .everywhere = true};
    EXPECT_OK(rks_staging_begin(m->group, RKS_OK, dataset, &options, &staging, &m->err));
    EXPECT(rks_staging_planned(staging)->mine == s.total);
    EXPECT(rks_staging_planned(staging)->mine_here == s.before);
    EXPECT_OK(rks_staging_wait(staging, RKS_ARRIVALS_WHOLE, look, &s, &m->err));
    EXPECT(s.calls > 0 && !s.wrong && s.before == s.total);
    rks_staging_end(staging);
    rks_dataset_free(dataset);
}

static void a_bar_begins_at_what_is_here(void **state)
{
    (void)state;
    on_threads(1, stage, NULL);
}

/* Home is replaced between the look at its dataset.json and the shards. */
static void stage_too_late(member *m)
{
    rks_dataset *dataset = NULL;
    rks_staging *staging = NULL;
    char says[128], id[RKS_DIGEST_TEXT];
    EXPECT_OK(open_group_on(m->bootstrap, NULL, 0, &m->group, &m->err));
    EXPECT_OK(rks_dataset_load(kept, &dataset, &m->err));
    if (m->failures > 0)
        return;
    rks_digest_format(dataset->id, id);
    snprintf(says, sizeof(says), "; dataset %.8s, generation 1, which this job reads", id);
    EXPECT(rename(kept, shards_path("away")) == 0 && mkdir(kept, 0755) == 0);
    const rks_staging_options options = {
        .home = kept, .local = local, .folder = "id", .everywhere = true};
    EXPECT_OK(rks_staging_begin(m->group, RKS_OK, dataset, &options, &staging, &m->err));
    EXPECT(rks_staging_wait(staging, RKS_ARRIVALS_WHOLE, NULL, NULL, &m->err) == RKS_ERR_NOT_FOUND);
    EXPECT_TEXT("/kept/a.json");
    EXPECT_TEXT(says);
    rks_staging_end(staging);
    rks_dataset_free(dataset);
    EXPECT(rmdir(kept) == 0 && rename(shards_path("away"), kept) == 0);
}

static void an_error_names_the_generation_that_home_has_lost(void **state)
{
    (void)state;
    on_threads(1, stage_too_late, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_bar_begins_at_what_is_here, begin, end),
        cmocka_unit_test_setup_teardown(an_error_names_the_generation_that_home_has_lost, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
