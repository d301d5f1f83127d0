/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_ls.c: rankstore ls: the samples of a dataset, a line each: id, length, key; all of them, or
 * those that a condition holds for, by id, length or key. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "filter.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    cli_store_args store;
    const char *where, *sort;
    const char *split, *part, *by;
    uint64_t split_seed, head;
    bool reverse, json;
} args;

/* ---- a line --------------------------------------------------------------------------------- */

/* The source's name where there are several, else NULL. */
static const char *source_of(const rks_store *store, uint64_t id)
{
    rks_source source = {.struct_size = sizeof(source)};
    if (rks_store_sources(store) < 2)
        return NULL;
    rks_store_source(store, (size_t)rks_store_source_of(store, id), &source, NULL);
    return source.name;
}

static rks_status print_sample(rks_store *store, uint64_t id, bool as_json, rks_error *err)
{
    const char *source = source_of(store, id);
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_status status = rks_store_key(store, id, key, &size, err);
    if (status != RKS_OK)
        return status;
    uint32_t length = rks_store_lengths(store)[id];
    if (as_json) {
        json_t *line = json_pack("{s:I, s:I, s:o, s:I}", "id", (json_int_t)id, "length",
                                 (json_int_t)length, "key", cli_text_json(key, size), "owner",
                                 (json_int_t)rks_store_owner(store, id));
        if (source != NULL)
            json_object_set_new(line, "source", cli_text_json(source, strlen(source)));
        cli_print_json(line, JSON_COMPACT);
    } else {
        printf("#%-10" PRIu64 " %10" PRIu32 "  ", id, length);
        if (source != NULL)
            printf("%s  ", cli_shown(source));
        cli_print_key(stdout, key, size);
        printf("\n");
    }
    return RKS_OK;
}

/* ---- the order ------------------------------------------------------------------------------- */

/* What is sorted; the key's memory is its own, or NULL. */
typedef struct entry {
    uint64_t id;
    uint32_t length, key_size;
    uint8_t *key;
} entry;

/* With a limit, a heap whose root is the last of those that are kept: a sample that comes after it
 * is dropped at once, so that --head N takes memory for N. */
typedef struct entries {
    entry *items;
    size_t count, room, limit; /* 0: no limit */
    bool by_length, by_key, down;
} entries;

static int compare_entry_keys(const entry *a, const entry *b)
{
    uint32_t common = a->key_size < b->key_size ? a->key_size : b->key_size;
    int order = memcmp(a->key, b->key, common);
    return order != 0 ? order : a->key_size < b->key_size ? -1 : a->key_size > b->key_size;
}

/* Equal lengths and keys come by id, in both directions. */
static int compare_entries(const void *one, const void *other, void *user)
{
    const entry *a = one, *b = other;
    const entries *list = user;
    int order = a->id < b->id ? -1 : a->id > b->id, by = 0;
    if (list->by_length)
        by = a->length < b->length ? -1 : a->length > b->length;
    else if (list->by_key)
        by = compare_entry_keys(a, b);
    else
        by = order;
    return by == 0 ? order : list->down ? -by : by;
}

static void swap_entries(entry *a, entry *b)
{
    entry kept = *a;
    *a = *b;
    *b = kept;
}

static void sift_up(entries *list, size_t at)
{
    while (at > 0 && compare_entries(&list->items[at], &list->items[(at - 1) / 2], list) > 0) {
        swap_entries(&list->items[at], &list->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
}

static void sift_down(entries *list)
{
    for (size_t at = 0, child; (child = 2 * at + 1) < list->count; at = child) {
        if (child + 1 < list->count &&
            compare_entries(&list->items[child + 1], &list->items[child], list) > 0)
            child++;
        if (compare_entries(&list->items[at], &list->items[child], list) >= 0)
            return;
        swap_entries(&list->items[at], &list->items[child]);
    }
}

static rks_status out_of_memory(rks_error *err)
{
    *err = (rks_error){.status = RKS_ERR_MEMORY, .rank = -1};
    snprintf(err->text, sizeof(err->text), "out of memory: the samples to sort");
    return RKS_ERR_MEMORY;
}

/* What the list will take more once it is twice as long and sorted, which copies it; a key's
 * allocation has 32 bytes or more. */
static rks_status check_room(const entries *list, size_t room, rks_error *err)
{
    uint64_t each = 2 * sizeof(entry) + (list->by_key ? 32 : 0);
    char what[96];
    snprintf(what, sizeof(what), "sorting the %zu samples so far and as many again", list->count);
    return rks_memory_check(each * room - (each - sizeof(entry)) * list->room, what,
                            "; keep the first ones with --head N, or choose with --where", err);
}

/* A place for one more; NULL: no memory. */
static entry *new_place(entries *list, rks_error *err)
{
    if (list->count == list->room) {
        size_t room = list->room == 0 ? 1024 : 2 * list->room;
        if (list->limit > 0 && room > list->limit)
            room = list->limit;
        if (check_room(list, room, err) != RKS_OK)
            return NULL;
        entry *grown = realloc(list->items, room * sizeof(*grown));
        if (grown == NULL) {
            out_of_memory(err);
            return NULL;
        }
        list->items = grown;
        list->room = room;
    }
    return &list->items[list->count++];
}

static rks_status add_entry(entries *list, rks_store *store, uint64_t id, rks_error *err)
{
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    rks_status status = list->by_key ? rks_store_key(store, id, key, &size, err) : RKS_OK;
    if (status != RKS_OK)
        return status;
    entry made = {id, rks_store_lengths(store)[id], (uint32_t)size, key};
    bool full = list->limit > 0 && list->count == list->limit;
    if (full && compare_entries(&made, &list->items[0], list) >= 0)
        return RKS_OK;
    made.key = list->by_key ? malloc(size == 0 ? 1 : size) : NULL;
    if (list->by_key && made.key == NULL)
        return out_of_memory(err);
    if (list->by_key)
        memcpy(made.key, key, size);
    entry *place = full ? &list->items[0] : new_place(list, err);
    if (place == NULL) {
        free(made.key);
        return RKS_ERR_MEMORY;
    }
    if (full)
        free(place->key);
    *place = made;
    if (full)
        sift_down(list);
    else if (list->limit > 0)
        sift_up(list, list->count - 1);
    return RKS_OK;
}

/* ---- the walk -------------------------------------------------------------------------------- */

typedef struct walk {
    rks_store *store;
    uint16_t *part_of; /* by id; NULL: no --split */
    uint16_t part;     /* the one that is asked for */
    const args *a;
    const char *order; /* "length", "-key", ...; NULL: as they come */
    entries sorted;
    uint64_t printed;
} walk;

static bool enough(const walk *w)
{
    return ferror(stdout) || (w->a->head > 0 && w->printed >= w->a->head);
}

static rks_status keep_entry(void *user, uint64_t id, rks_error *err)
{
    walk *w = user;
    if ((w->part_of != NULL && w->part_of[id] != w->part) || enough(w))
        return RKS_OK;
    if (w->order != NULL)
        return add_entry(&w->sorted, w->store, id, err);
    w->printed++;
    return print_sample(w->store, id, w->a->json, err);
}

static void begin_order(walk *w)
{
    const char *by = w->order + (w->order[0] == '-');
    w->sorted = (entries){.limit = w->a->head,
                          .by_length = strcmp(by, "length") == 0,
                          .by_key = strcmp(by, "key") == 0,
                          .down = (w->order[0] == '-') != w->a->reverse};
}

static rks_status print_sorted(walk *w, rks_error *err)
{
    entries *list = &w->sorted;
    if (list->count > 0)
        qsort_r(list->items, list->count, sizeof(entry), compare_entries, list);
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < list->count && !enough(w); i++, w->printed++) {
        status = cli_check_interrupt(err);
        if (status == RKS_OK)
            status = print_sample(w->store, list->items[i].id, w->a->json, err);
    }
    return status;
}

/* NAME=WEIGHT, cut out of `text`: false if it is none. */
static bool read_part(char *text, rks_split_part *part)
{
    char *sign = strchr(text, '='), *end = NULL;
    if (sign == NULL || sign == text || sign[1] == '\0')
        return false;
    *sign = '\0';
    *part = (rks_split_part){text, strtod(sign + 1, &end)};
    return *end == '\0';
}

static rks_status wrong_split(rks_error *err, const char *what, const char *name)
{
    *err = (rks_error){.status = RKS_ERR_ARGUMENT, .rank = -1};
    snprintf(err->text, sizeof(err->text), "%s%.80s", what, name);
    return RKS_ERR_ARGUMENT;
}

/* --split, --part, --split-by and --split-seed. */
static rks_status choose_part(walk *w, rks_error *err)
{
    enum { PARTS_MOST = 256 };
    rks_split_part parts[PARTS_MOST];
    size_t count = 0, chosen = SIZE_MAX;
    char *text = strdup(w->a->split), *rest = NULL;
    w->part_of = calloc(rks_store_count(w->store) + 1, sizeof(*w->part_of));
    rks_status status = RKS_OK;
    if (text == NULL || w->part_of == NULL) {
        free(text);
        return out_of_memory(err);
    }
    for (char *one = strtok_r(text, ",", &rest); status == RKS_OK && one != NULL;
         one = strtok_r(NULL, ",", &rest)) {
        if (count == PARTS_MOST || !read_part(one, &parts[count]))
            status =
                wrong_split(err, "--split: parts are NAME=WEIGHT,NAME=WEIGHT, not ", w->a->split);
        else if (strcmp(parts[count].name, w->a->part) == 0)
            chosen = count;
        count++;
    }
    if (status == RKS_OK && chosen == SIZE_MAX)
        status = wrong_split(err, "--part: --split has no part ", w->a->part);
    if (status == RKS_OK)
        status =
            rks_store_split(w->store, parts, count, w->a->split_seed, w->a->by, w->part_of, err);
    w->part = (uint16_t)chosen;
    free(text);
    return status;
}

static rks_status list(rks_store *store, const args *a, rks_error *err)
{
    walk w = {.store = store, .a = a, .order = a->sort};
    cli_filter *filter = NULL;
    if (w.order == NULL && a->reverse)
        w.order = "id";
    if (w.order != NULL)
        begin_order(&w);
    rks_status status = cli_filter_open(store, a->where, &filter, err);
    if (status == RKS_OK && a->split != NULL)
        status = choose_part(&w, err);
    uint64_t count = rks_store_count(store);
    uint64_t first = w.order == NULL && a->split == NULL ? a->head : 0;
    for (uint64_t id = 0; status == RKS_OK && id < count && !enough(&w); id += CLI_FILTER_CHUNK) {
        status = cli_check_interrupt(err);
        if (status == RKS_OK)
            status = cli_filter_walk(filter, id, first == 0 ? 0 : first - w.printed, keep_entry, &w,
                                     err);
    }
    if (status == RKS_OK && w.order != NULL)
        status = print_sorted(&w, err);
    if (status == RKS_OK && ferror(stdout))
        status = cli_check_interrupt(err);
    for (size_t i = 0; i < w.sorted.count; i++)
        free(w.sorted.items[i].key);
    free(w.sorted.items);
    free(w.part_of);
    cli_filter_close(filter);
    return status;
}

static int run_ls(rks_group *group, void *user)
{
    const args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    int code = cli_open(group, &a->words, &a->store, &store);
    if (code >= 0)
        return code;
    rks_status status = rks_group_rank(group) == 0 ? list(store, a, &err) : RKS_OK;
    status = rks_group_agree(group, "ls", status, &err);
    rks_store_close(store, 0);
    return status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
}

static void set_ls_defaults(void *user)
{
    rks_store_options_default(&((args *)user)->store.options);
}

static int ls(void *user)
{
    const args *a = user;
    if ((a->split == NULL) != (a->part == NULL))
        return cli_usage(&cli_ls, "--split NAME=WEIGHT,... and --part NAME go together");
    if (a->split == NULL && (a->by != NULL || a->split_seed != 0))
        return cli_usage(&cli_ls, "--split-by and --split-seed need --split");
    return cli_run(1, run_ls, user);
}

static const cli_option options[] = {
    CLI_WHERE(args, where, "list samples that match", ", COLUMN also id or length"),
    {"--sort", "WHAT", CLI_TEXT, offsetof(args, sort), .help = "sort by this; - sorts downwards",
     .choices = "id length key -id -length -key", .normal = "id"},
    {"--reverse", NULL, CLI_FLAG, offsetof(args, reverse), .help = "reverse the order"},
    {"--head", "N", CLI_U64, offsetof(args, head), .help = "list only the first N samples",
     .normal = "all", .least = 1},
    {"--split", "PARTS", CLI_TEXT, offsetof(args, split),
     .help = "split by the hash of keys into NAME=WEIGHT,NAME=WEIGHT,..."},
    {"--part", "NAME", CLI_TEXT, offsetof(args, part), .help = "list this part of --split"},
    {"--split-by", "COLUMN", CLI_TEXT, offsetof(args, by),
     .help = "split by the hash of this column, so that equal values stay together",
     .normal = "the key"},
    {"--split-seed", "N", CLI_U64, offsetof(args, split_seed), .help = "seed of --split",
     .normal = "0"},
    CLI_JSON(args, json,
             "print a JSON object a line: id, length, key, owner, and the source if "
             "there are several"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_ls = {
    .name = "ls",
    .arguments = "DIR...",
    .summary = "List samples: id, length, key",
    .examples = {"rankstore ls store --sort=-length --head 10",
                 "rankstore ls store --where 'length > 5 and text != \"\"' --json"},
    .text =
        "--where reads the samples where it names a column of them; with id and length alone "
        "the index is enough. Equal lengths come by id. --sort with --head N holds N samples in "
        "memory; without, all that fit: 32 bytes each, with --sort key the key, "
        "too.\n\n" CLI_SEVERAL
        " --split puts each sample into a part by the hash of its key: it stays "
        "there when the dataset grows.",
    CLI_OPTIONS(options, args, words),
    CLI_DATASETS,
    .defaults = set_ls_defaults,
    .run = ls,
};
