/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: writes where a job is in an epoch, as JSON, and resumes from there.
 *
 *   {"format": 1, "planner": 2, "dataset": "32 digits" or null, "samples": N,
 *    "lengths": "16 digits", "options": "16 digits", "seed": "decimal", "epoch": E,
 *    "segments": [[world, steps], ...], "mix": "16 digits", "given": "tail=drop max_tokens=64"}
 *
 * - `segments`: the epoch was planned whole for the first world, which did so many steps. The rest
 *   was planned for the second world, and so on. The job is in the last segment.
 * - `over`: true is present if all steps of the epoch are done: a later generation of the dataset
 *   goes on from such a state.
 * - `lengths` is XXH3-64 of the lengths as little-endian u32: a dataset of one id may have been
 *   built with different length options.
 * - `mix` is present if the plan has one: the digest of that option.
 * - `changes`, for a plan with a mix: [epoch, step, longest, weights], step counted over all
 *   segments.
 * - `skip`: [epoch, segment, first, end] of steps that are skipped, counted in that segment. With
 *   it, `format` is 2, so that a planner that would not skip them refuses the state.
 * - `seed` is text, since many readers end JSON numbers at 2^63.
 * - `given`, if there is room, is only for the message about options that differ.
 *
 * A state is hostile until it is checked: it may come from a damaged checkpoint. */
#include "plan/plan_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_error.h"
#include "base/memory.h"
#include "plan/mix/mix.h"
#include "plan/cache/epoch_cache_area.h"

enum { STATE_FORMAT = 1, STATE_FORMAT_SKIPS = 2 };

typedef struct rks_plan_place {
    uint64_t epoch;
    rks_plan_segment segments[RKS_PLAN_SEGMENTS_MAX];
    size_t count;
    rks_mix_schedule schedule;
} rks_plan_place;

static const char *lengths_digest(rks_plan *plan)
{
    if (plan->lengths_digest[0] == '\0')
        snprintf(plan->lengths_digest, sizeof(plan->lengths_digest), "%016" PRIx64,
                 plan->cache != NULL ? rks_cache_digest(plan)
                                     : rks_checksum64(plan->in.lengths,
                                                      plan->in.count * sizeof(*plan->in.lengths)));
    return plan->lengths_digest;
}

/* A state while it is written. Its segments are at most 64 times 33 bytes. */
typedef struct state_text {
    char text[4096 + RKS_STATE_MAX];
    size_t size;
} state_text;

__attribute__((format(printf, 2, 3))) static void add_text(state_text *made, const char *format,
                                                           ...)
{
    va_list arguments;
    va_start(arguments, format);
    made->size += (size_t)vsnprintf(made->text + made->size, sizeof(made->text) - made->size,
                                    format, arguments);
    va_end(arguments);
}

static void write_identity(rks_plan *plan, uint64_t epoch, state_text *made)
{
    const char *quote = plan->dataset[0] == '\0' ? "" : "\"";
    add_text(made,
             "{\"format\": %d, \"planner\": %d, \"dataset\": %s%s%s, \"samples\": %" PRIu64
             ", \"lengths\": \"%s\", \"options\": \"%s\", \"seed\": \"%" PRIu64
             "\", \"epoch\": %" PRIu64 ", ",
             plan->progress.skip_count > 0 ? STATE_FORMAT_SKIPS : STATE_FORMAT,
             plan->in.mix == NULL ? RKS_PLAN_VERSION : RKS_PLAN_VERSION_MIX, quote,
             plan->dataset[0] == '\0' ? "null" : plan->dataset, quote, plan->in.count,
             lengths_digest(plan), plan->in.config.digest, plan->in.config.seed, epoch);
}

/* Writes the segments of earlier worlds, if `resumed`, and that of this one. */
static void write_segments(const rks_plan *plan, bool resumed, uint64_t step, state_text *made)
{
    add_text(made, "\"segments\": [");
    for (size_t i = 0; resumed && i < plan->progress.done_count; i++)
        add_text(made, "[%" PRIu32 ", %" PRIu64 "], ", plan->progress.done[i].world,
                 plan->progress.done[i].steps);
    add_text(made, "[%" PRIu32 ", %" PRIu64 "]]", plan->in.config.world, step);
}

static void write_schedule(const rks_plan *plan, state_text *made)
{
    const rks_mix *mix = plan->in.mix;
    if (mix != NULL)
        add_text(made, ", \"mix\": \"%s\"", mix->digest);
    if (mix != NULL && plan->progress.schedule.count > 0) {
        add_text(made, ", \"changes\": [");
        made->size += rks_mix_write_changes(mix, &plan->progress.schedule, made->text + made->size,
                                            sizeof(made->text) - made->size);
        add_text(made, "]");
    }
    if (plan->progress.skip_count > 0) {
        add_text(made, ", \"skip\": [");
        made->size += rks_plan_write_skips(&plan->progress, made->text + made->size,
                                           sizeof(made->text) - made->size);
        add_text(made, "]");
    }
}

rks_status rks_plan_state(rks_plan *plan, uint64_t epoch, uint64_t step, char *text,
                          size_t text_size, rks_error *err)
{
    uint64_t steps;
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    if (status != RKS_OK)
        return status;
    if (step > steps)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "step %" PRIu64 ": epoch %" PRIu64 " has %" PRIu64 " steps", step, epoch,
                        steps);
    step -= step % plan->in.config.micro_batches; /* a partial optimizer step begins again */
    if (epoch > INT64_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "epoch %" PRIu64 " is above 2^63 - 1", epoch);

    bool resumed = plan->progress.done_count > 0 && plan->progress.resumed_epoch == epoch;
    state_text made = {.size = 0};
    write_identity(plan, epoch, &made);
    write_segments(plan, resumed, step, &made);
    if (step == steps)
        add_text(&made, ", \"over\": true");
    write_schedule(plan, &made);
    size_t room = text_size < RKS_STATE_MAX ? text_size : RKS_STATE_MAX;
    size_t more = strlen(plan->in.config.words) + sizeof(", \"given\": \"\"}");
    if (made.size + more <= room)
        add_text(&made, ", \"given\": \"%s\"", plan->in.config.words);
    add_text(&made, "}");
    if (made.size >= RKS_STATE_MAX ||
        (resumed && plan->progress.done_count == RKS_PLAN_SEGMENTS_MAX))
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state of epoch %" PRIu64 ": the world changed too often in it (%zu times)",
                        epoch, plan->progress.done_count);
    if (made.size >= text_size)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a state of %zu bytes does not fit into %zu",
                        made.size + 1, text_size);
    memcpy(text, made.text, made.size + 1);
    return RKS_OK;
}

static rks_status wrong(rks_error *err, const char *field, const char *what)
{
    return rks_fail(err, RKS_ERR_STATE, 0, "state: %s: %s", field, what);
}

static rks_status read_number(const json_t *object, const char *field, uint64_t *number,
                              rks_error *err)
{
    const json_t *value = json_object_get(object, field);
    if (value == NULL)
        return wrong(err, field, "missing");
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return wrong(err, field, "not a whole number");
    *number = (uint64_t)json_integer_value(value);
    return RKS_OK;
}

/* Checks that the field is equal to `ours`. */
static rks_status compare_number(const json_t *object, const char *field, uint64_t ours,
                                 rks_error *err)
{
    uint64_t number = 0;
    rks_status status = read_number(object, field, &number, err);
    if (status == RKS_OK && number != ours)
        status = rks_fail(err, RKS_ERR_STATE, 0,
                          "state: %s differs: %" PRIu64 " in the state, %" PRIu64 " in this plan",
                          field, number, ours);
    return status;
}

/* Another planner version makes other batches of the same options. */
static rks_status compare_version(const json_t *object, rks_error *err)
{
    bool mixed = json_object_get(object, "mix") != NULL; /* compare_mix checks the plan's */
    uint64_t ours = mixed ? RKS_PLAN_VERSION_MIX : RKS_PLAN_VERSION, version = 0;
    rks_status status = read_number(object, "planner", &version, err);
    if (status == RKS_OK && version != ours)
        status = rks_fail(err, RKS_ERR_STATE, 0,
                          "state: planner differs: %" PRIu64 " in the state, %" PRIu64
                          " in this version; start the epoch anew, without the state",
                          version, ours);
    return status;
}

static rks_status compare_text(const json_t *object, const char *field, const char *ours,
                               rks_error *err)
{
    const json_t *value = json_object_get(object, field);
    if (value == NULL)
        return wrong(err, field, "missing");
    if (!json_is_string(value) && !json_is_null(value))
        return wrong(err, field, "not a text");
    const char *text = json_is_null(value) ? "" : json_string_value(value);
    if (strcmp(text, ours) != 0)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: %s differs: \"%.40s\" in the state, \"%s\" in this plan", field,
                        text, ours);
    return RKS_OK;
}

/* Returns the value of `name` in "name=value name=value", and its size; "not given" if it is
 * missing. */
static const char *value_of(const char *words, const char *name, size_t name_size, size_t *size)
{
    for (const char *at = words; *at != '\0'; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, name_size) == 0 && at[name_size] == '=') {
            *size = strcspn(at + name_size + 1, " ");
            return at + name_size + 1;
        }
    *size = strlen("not given");
    return "not given";
}

/* Reports the first option of `words` that differs in `others`. Returns false if there is none. */
static bool name_option(const char *words, const char *others, bool swapped, rks_error *err)
{
    for (const char *at = words; *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
        size_t name = strcspn(at, "= "), one_size = 0, other_size = 0;
        const char *one = value_of(words, at, name, &one_size);
        const char *other = value_of(others, at, name, &other_size);
        if (name == 0 || (one_size == other_size && memcmp(one, other, one_size) == 0))
            continue;
        const char *there = swapped ? other : one, *here = swapped ? one : other;
        size_t there_size = swapped ? other_size : one_size;
        size_t here_size = swapped ? one_size : other_size;
        rks_fail(err, RKS_ERR_STATE, 0,
                 "state: options differ: %.*s is %.*s in the state, %.*s in this plan",
                 (int)(name < 40 ? name : 40), at, (int)(there_size < 40 ? there_size : 40), there,
                 (int)(here_size < 40 ? here_size : 40), here);
        return true;
    }
    return false;
}

static rks_status compare_options(const json_t *object, const rks_plan_config *config,
                                  rks_error *err)
{
    const char *given = json_string_value(json_object_get(object, "given"));
    rks_status status = compare_text(object, "options", config->digest, err);
    if (status == RKS_OK || !json_is_string(json_object_get(object, "options")))
        return status;
    if (given != NULL && !name_option(given, config->words, false, err))
        name_option(config->words, given, true, err);
    return status;
}

/* The digest of a mix covers how many samples each source has, so that of an earlier generation is
 * another one. */
static rks_status compare_mix(const json_t *object, const rks_plan_input *in, bool earlier,
                              rks_error *err)
{
    const char *there = json_string_value(json_object_get(object, "mix"));
    if (in->mix != NULL && there != NULL && (earlier || strcmp(there, in->mix->digest) == 0))
        return RKS_OK;
    if (in->mix == NULL && json_object_get(object, "mix") == NULL)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_STATE, 0,
                    "state: mix differs: it was saved %s, and this plan %s; make the plan with the "
                    "same mix, weights and samples, and change weights by a remix afterwards",
                    there == NULL ? "without one" : "with another one",
                    in->mix == NULL ? "has none" : "has one");
}

static rks_status read_segments(const json_t *object, rks_plan_place *place, rks_error *err)
{
    const json_t *list = json_object_get(object, "segments");
    size_t count = json_array_size(list); /* 0 if it is not a list */
    if (count == 0 || count > RKS_PLAN_SEGMENTS_MAX)
        return wrong(err, "segments", "not a list of 1 to 64 pairs");
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *world = json_array_get(pair, 0);
        const json_t *steps = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(world) || !json_is_integer(steps))
            return wrong(err, "segments", "not a pair of whole numbers");
        json_int_t ranks = json_integer_value(world);
        json_int_t done = json_integer_value(steps);
        /* No plan has 2^32 batches, so none has so many steps. */
        if (ranks < 1 || ranks > RKS_PLAN_WORLD_MAX || done < 0 || done > (json_int_t)UINT32_MAX)
            return wrong(err, "segments", "a number of ranks or steps that cannot be");
        if (done == 0 && i + 1 < count)
            return wrong(err, "segments", "one without steps before another");
        place->segments[i].world = (uint32_t)ranks;
        place->segments[i].steps = (uint64_t)done;
    }
    place->count = count;
    return RKS_OK;
}

enum { OPEN_TEXT = 256 };

/* Returns true if the state is of an earlier generation of the plan's dataset. `what` names
 * it, and what to open. */
static bool is_earlier(const json_t *object, const rks_plan *plan, char what[OPEN_TEXT])
{
    const char *text = json_string_value(json_object_get(object, "dataset"));
    const json_t *samples = json_object_get(object, "samples");
    if (text == NULL || strcmp(text, plan->dataset) == 0)
        return false;
    for (size_t i = 0; i < plan->earlier_count; i++)
        if (strcmp(text, plan->earlier[i].dataset) == 0) {
            snprintf(what, OPEN_TEXT, "generation %" PRIu64 ": open DIR@%" PRIu64,
                     plan->earlier[i].number, plan->earlier[i].number);
            return true;
        }
    return plan->finder.find != NULL && json_is_integer(samples) &&
           plan->finder.find(plan->finder.user, (uint64_t)json_integer_value(samples), text, what,
                             OPEN_TEXT);
}

/* Checks that the state's dataset is the plan's. */
static rks_status compare_dataset(const json_t *object, rks_plan *plan, rks_error *err)
{
    rks_status status = compare_text(object, "dataset", plan->dataset, err);
    if (status == RKS_OK)
        status = compare_number(object, "samples", plan->in.count, err);
    return status == RKS_OK ? compare_text(object, "lengths", lengths_digest(plan), err) : status;
}

/* Checks that the state is one of this plan, or of its like for another world. `earlier`: it is of
 * an earlier generation of the dataset. */
static rks_status compare_plan(const json_t *object, rks_plan *plan, bool earlier, rks_error *err)
{
    bool skips = json_object_get(object, "skip") != NULL;
    char seed[24];
    snprintf(seed, sizeof(seed), "%" PRIu64, plan->in.config.seed);
    if (!json_is_object(object))
        return wrong(err, "text", "not a JSON object");
    rks_status status =
        compare_number(object, "format", skips ? STATE_FORMAT_SKIPS : STATE_FORMAT, err);
    if (status == RKS_OK)
        status = compare_version(object, err);
    if (status == RKS_OK && !earlier)
        status = compare_dataset(object, plan, err);
    if (status == RKS_OK)
        status = compare_options(object, &plan->in.config, err);
    if (status == RKS_OK)
        status = compare_mix(object, &plan->in, earlier, err);
    return status == RKS_OK ? compare_text(object, "seed", seed, err) : status;
}

/* Reads where the job is, and adds the state's skips to those of the plan. */
static rks_status read_place(const json_t *object, rks_plan *plan, rks_plan_place *place,
                             rks_error *err)
{
    rks_status status = read_number(object, "epoch", &place->epoch, err);
    if (status == RKS_OK)
        status = read_segments(object, place, err);
    if (status == RKS_OK && plan->in.mix != NULL)
        status = rks_mix_read_changes(&plan->in, &plan->progress.schedule,
                                      json_object_get(object, "changes"), &place->schedule, err);
    if (status != RKS_OK)
        return status;
    status = rks_plan_read_skips(&plan->in, &plan->progress, json_object_get(object, "skip"), err);
    if (status != RKS_OK)
        rks_mix_free_changes(&place->schedule);
    return status;
}

/* Moves a place in an earlier generation to the beginning of a whole epoch of the plan. */
static rks_status leave_generation(const json_t *object, const rks_plan *plan, const char *what,
                                   rks_plan_place *place, rks_error *err)
{
    const bool over = json_is_true(json_object_get(object, "over"));
    if (!over && (place->count > 1 || place->segments[0].steps > 0))
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "the state is of %s; it is within epoch %" PRIu64
                        ", and the larger dataset begins with the next one",
                        what, place->epoch);
    place->epoch += over;
    place->count = 1;
    place->segments[0] = (rks_plan_segment){.world = plan->in.config.world, .steps = 0};
    return RKS_OK;
}

static rks_status read_state(rks_plan *plan, const char *state, rks_plan_place *place,
                             rks_error *err)
{
    size_t size = state == NULL ? 0 : strnlen(state, RKS_STATE_MAX);
    if (size == 0 || size == RKS_STATE_MAX)
        return rks_fail(err, RKS_ERR_STATE, 0, "state: empty, or longer than %d bytes",
                        RKS_STATE_MAX - 1);
    json_error_t where;
    json_t *object = json_loadb(state, size, JSON_REJECT_DUPLICATES, &where);
    if (object == NULL)
        return rks_json_fail(err, RKS_ERR_STATE, "state: not JSON", &where);
    char what[OPEN_TEXT] = "";
    const bool earlier = is_earlier(object, plan, what);
    rks_status status = compare_plan(object, plan, earlier, err);
    if (status == RKS_OK)
        status = read_place(object, plan, place, err);
    if (status == RKS_OK && earlier) {
        status = leave_generation(object, plan, what, place, err);
        if (status != RKS_OK)
            rks_mix_free_changes(&place->schedule);
    }
    json_decref(object);
    return status;
}

/* What the plan keeps of a resume. */
typedef struct rks_plan_rest {
    uint64_t epoch;
    rks_plan_segment done[RKS_PLAN_SEGMENTS_MAX];
    size_t done_count;
    uint64_t steps;
} rks_plan_rest;

static void save_rest(const rks_epoch_progress *progress, rks_plan_rest *rest)
{
    rest->epoch = progress->resumed_epoch;
    rest->done_count = progress->done_count;
    rest->steps = progress->rest_steps;
    memcpy(rest->done, progress->done, sizeof(rest->done));
}

static void set_rest(rks_plan *plan, const rks_plan_rest *rest)
{
    rks_epoch_progress *progress = &plan->progress;
    plan->image.ready = false;
    plan->steps_known = false;
    rks_plan_forget_left_out(plan);
    progress->resumed_epoch = rest->epoch;
    progress->done_count = rest->done_count;
    progress->rest_steps = rest->steps;
    memcpy(progress->done, rest->done, sizeof(progress->done));
}

/* Plans the rest after the first `count` segments for this world, as a check. *steps is its number
 * of steps. */
static rks_status try_rest(rks_plan *plan, const rks_plan_place *place, size_t count,
                           uint64_t *steps, rks_error *err)
{
    rks_plan_rest rest = {.epoch = place->epoch, .done_count = count};
    memcpy(rest.done, place->segments, count * sizeof(rest.done[0]));
    set_rest(plan, &rest);
    rks_status status = rks_plan_prepare(plan, place->epoch, err);
    if (status != RKS_OK)
        return status;
    if (plan->in.mix != NULL)
        return rks_plan_steps(plan, place->epoch, steps, err);
    *steps = plan->image.layout->batches / plan->in.config.world;
    plan->progress.rest_steps = *steps;
    return RKS_OK;
}

/* Decides where to resume: after the first *before segments, at *step of the plan for this world.
 * Returns true if the last of them was another world's. */
static bool choose_place(const rks_plan_place *place, uint32_t world, size_t *before,
                         uint64_t *step)
{
    size_t count = place->count;
    if (place->segments[count - 1].world != world && place->segments[count - 1].steps == 0)
        count--;
    bool ours = count > 0 && place->segments[count - 1].world == world;
    *before = ours ? count - 1 : count;
    *step = ours ? place->segments[count - 1].steps : 0;
    return !ours && count > 0;
}

/* Resumes at `place`, whose changes the plan has already. */
static rks_status resume_at(rks_plan *plan, rks_plan_place place, uint64_t *epoch, uint64_t *step,
                            rks_error *err)
{
    rks_status status = RKS_OK;
    rks_plan_rest old;
    save_rest(&plan->progress, &old);

    size_t before;
    uint64_t next;
    uint64_t steps = 0;
    for (size_t i = 0; i < place.count; i++)
        if (place.segments[i].steps % plan->in.config.micro_batches != 0)
            return wrong(err, "segments", "a step within an optimizer step");
    bool moved = choose_place(&place, plan->in.config.world, &before, &next);
    bool ended = false;
    if (before > 0) {
        status = try_rest(plan, &place, before, &steps, err);
        /* If the other world ended the epoch, the next one is whole. */
        ended = status == RKS_ERR_STATE && plan->image.rest_over && moved;
    }
    if (before == 0 || ended) {
        rks_plan_rest none = {0};
        set_rest(plan, &none);
        place.epoch += ended ? 1 : 0;
        status = rks_plan_steps(plan, place.epoch, &steps, err);
    }
    if (status == RKS_OK && next > steps)
        status = rks_fail(err, RKS_ERR_STATE, 0, "state: segments: step %" PRIu64 " of %" PRIu64,
                          next, steps);
    if (status != RKS_OK) {
        set_rest(plan, &old);
        return status;
    }
    *epoch = place.epoch;
    *step = next;
    return RKS_OK;
}

static void swap_changes(rks_plan *plan, rks_plan_place *place)
{
    rks_mix_schedule kept = plan->progress.schedule;
    plan->progress.schedule = place->schedule;
    place->schedule = kept;
    plan->image.ready = plan->steps_known = false;
    rks_plan_forget_left_out(plan);
}

static rks_status resume(rks_plan *plan, const char *state, uint64_t *epoch, uint64_t *step,
                         rks_error *err)
{
    rks_plan_place place = {0};
    rks_status status = read_state(plan, state, &place, err);
    if (status != RKS_OK || plan->in.mix == NULL)
        return status == RKS_OK ? resume_at(plan, place, epoch, step, err) : status;
    swap_changes(plan, &place);
    status = rks_plan_schedule_fits(&plan->in, &plan->progress, err);
    if (status == RKS_OK)
        status = resume_at(plan, place, epoch, step, err);
    if (status != RKS_OK)
        swap_changes(plan, &place);
    rks_mix_free_changes(&place.schedule);
    return status;
}

rks_status rks_plan_know_earlier(rks_plan *plan, const rks_generation *earlier, size_t count,
                                 rks_error *err)
{
    rks_generation *kept = NULL;
    if (count > 0) {
        kept = rks_alloc_raw(count, sizeof(*kept), err);
        if (kept == NULL)
            return RKS_ERR_MEMORY;
        memcpy(kept, earlier, count * sizeof(*kept));
        for (size_t i = 0; i < count; i++)
            kept[i].dataset[sizeof(kept[i].dataset) - 1] = '\0';
    }
    rks_free(plan->earlier);
    plan->earlier = kept;
    plan->earlier_count = count;
    return RKS_OK;
}

void rks_plan_find_earlier(rks_plan *plan, rks_plan_finder finder)
{
    if (plan->finder.free != NULL)
        plan->finder.free(plan->finder.user);
    plan->finder = finder;
}

/* Adds the state's skips to the plan's first, since the rest of the epoch depends on them. */
rks_status rks_plan_resume(rks_plan *plan, const char *state, uint64_t *epoch, uint64_t *step,
                           rks_error *err)
{
    rks_plan_skip_range *kept = NULL;
    size_t count = plan->progress.skip_count;
    if (count > 0) {
        kept = rks_alloc_raw(count, sizeof(*kept), err);
        if (kept == NULL)
            return RKS_ERR_MEMORY;
        memcpy(kept, plan->progress.skips, count * sizeof(*kept));
    }
    rks_status status = resume(plan, state, epoch, step, err);
    if (status != RKS_OK) {
        plan->progress.skip_count = count;
        if (count > 0)
            memcpy(plan->progress.skips, kept, count * sizeof(*kept));
    }
    rks_free(kept);
    return status;
}
