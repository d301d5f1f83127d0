/* SPDX-License-Identifier: Apache-2.0
 *
 * lmdb_check.c: the pages of an LMDB 0.9 file, read without LMDB. Numbers are little-endian.
 *
 *   page       pgno (8)  pad (2)  flags (2)  lower (2)  upper (2)  ...
 *              a tree page: offsets of its nodes (2 each) up to lower, nodes from upper on
 *              an overflow page: the number of its pages (4) instead of lower and upper
 *   node       size, low half (2), high half (2)  flags (2)  key size (2)  key  data
 *              in a branch page the first three are the child's page number
 *   database   pad (4)  flags (2)  depth (2)  branch, leaf, overflow pages, entries, root (8 each)
 *   meta page  page header (16)  magic (4)  version (4)  address (8)  map size (8)
 *              database of free pages (48)  main database (48)  last page (8)  transaction (8)
 *
 * Free pages are entries {transaction: count, page numbers in falling order}. */
#include "shard/lmdb_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum {
    PAGE_HEADER = 16,
    NODE_HEADER = 8,
    DB_SIZE = 48,
    META_DBS = PAGE_HEADER + 24,
    META_LAST_PAGE = META_DBS + 2 * DB_SIZE,
    META_SIZE = META_LAST_PAGE + 16,
    PAGE_LEAST = 512,
    PAGE_MOST = 65536,
    PAGE_BRANCH = 1,
    PAGE_LEAF = 2,
    PAGE_OVERFLOW = 4,
    PAGE_META = 8,
    NODE_BIG = 1, /* the data is the number of an overflow page */
    NODE_DB = 2,  /* the data is a database */
    DB_INTEGER_KEYS = 8,
    KEY_MOST = 511,
    DEPTH_MOST = 32,
    META_VERSION = 1,
};

static const uint32_t META_MAGIC = 0xbeefc0de;
static const uint64_t NO_PAGE = UINT64_MAX;
/* LMDB does not write free pages at the file's end. A last page further out than this is damage. */
static const uint64_t UNWRITTEN_MOST = UINT64_C(1) << 20;

typedef struct tree {
    const char *name; /* NULL for the database of free pages */
    bool main;
    unsigned depth;
    uint64_t branches, leaves, overflows, entries, root;
} tree;

typedef struct bytes_view {
    const uint8_t *data; /* NULL if there is no bound */
    size_t size;
} bytes_view;

typedef struct check {
    int fd;
    const char *path;
    rks_lmdb_found_fn visit;
    void *user;
    uint64_t file_size;
    uint64_t last_page;
    uint64_t transaction;
    uint32_t page_size;
    uint8_t *used; /* one bit a page */
    tree counted;  /* counts of the tree that is being walked */
    rks_error *err;
} check;

typedef struct node {
    uint64_t size; /* of the data; in a branch: its child's page */
    uint16_t flags;
    bytes_view key;
    uint64_t at; /* of the data, in the page */
} node;

/* One level of a walk; `page` is its page. */
typedef struct level {
    uint64_t number;
    size_t count;
    uint8_t page[];
} level;

static rks_status damaged(const check *c, uint64_t page, const char *what)
{
    return rks_fail(c->err, RKS_ERR_CORRUPT, 0, "%s: page %" PRIu64 ": %s", c->path, page, what);
}

/* ---- pages ---- */

static rks_status claim_pages(check *c, uint64_t first, uint64_t count)
{
    if (first < 2 || first > c->last_page || count > c->last_page - first + 1)
        return damaged(c, first, "a page number out of range");
    for (uint64_t page = first; page < first + count; page++) {
        uint8_t bit = (uint8_t)(1u << (page % 8));
        if ((c->used[page / 8] & bit) != 0)
            return damaged(c, page, "used twice");
        c->used[page / 8] |= bit;
    }
    return RKS_OK;
}

static rks_status read_tree_page(check *c, uint64_t number, bool leaf, level *into)
{
    rks_status status = claim_pages(c, number, 1);
    if (status != RKS_OK)
        return status;
    status =
        rks_file_read_at(c->fd, c->path, number * c->page_size, into->page, c->page_size, c->err);
    if (status != RKS_OK)
        return status;
    unsigned lower = rks_load_u16(into->page + 12), upper = rks_load_u16(into->page + 14);
    if (rks_load_u64(into->page) != number ||
        rks_load_u16(into->page + 10) != (leaf ? PAGE_LEAF : PAGE_BRANCH))
        return damaged(c, number, leaf ? "is not a leaf of a tree" : "is not a branch of a tree");
    if (lower < PAGE_HEADER || lower % 2 != 0 || upper < lower || upper > c->page_size)
        return damaged(c, number, "its bounds are wrong");
    into->number = number;
    into->count = (lower - PAGE_HEADER) / 2;
    if (into->count < (leaf ? 1u : 2u))
        return damaged(c, number, "too few entries");
    return RKS_OK;
}

static int by_offset(const void *a, const void *b)
{
    return (int)*(const uint16_t *)a - (int)*(const uint16_t *)b;
}

/* Returns the bytes that a node takes; 0 if it does not fit into the page. */
static size_t node_extent(const check *c, const level *at, unsigned offset, bool leaf)
{
    if (offset % 2 != 0 || offset + NODE_HEADER > c->page_size)
        return 0;
    const uint8_t *bytes = at->page + offset;
    size_t size = (size_t)NODE_HEADER + rks_load_u16(bytes + 6);
    if (leaf) {
        uint32_t data = rks_load_u16(bytes) | (uint32_t)rks_load_u16(bytes + 2) << 16;
        size += (rks_load_u16(bytes + 4) & NODE_BIG) != 0 ? 8 : (size_t)data;
    }
    size += size % 2;
    return size > c->page_size - offset ? 0 : size;
}

/* Checks that the nodes lie side by side from `upper` to the page's end: LMDB relies on that when
 * it moves them. */
static rks_status check_nodes(check *c, const level *at, bool leaf)
{
    uint16_t offsets[PAGE_MOST / 2];
    for (size_t i = 0; i < at->count; i++)
        offsets[i] = rks_load_u16(at->page + PAGE_HEADER + 2 * i);
    qsort(offsets, at->count, sizeof(offsets[0]), by_offset);
    size_t end = rks_load_u16(at->page + 14);
    for (size_t i = 0; i < at->count; i++) {
        size_t size = offsets[i] == end ? node_extent(c, at, offsets[i], leaf) : 0;
        if (size == 0)
            return damaged(c, at->number, "its entries overlap or leave gaps");
        end += size;
    }
    return end == c->page_size ? RKS_OK : damaged(c, at->number, "its entries leave a gap");
}

static node node_of(const level *at, size_t i, bool leaf)
{
    unsigned offset = rks_load_u16(at->page + PAGE_HEADER + 2 * i);
    const uint8_t *bytes = at->page + offset;
    node found = {.size = rks_load_u16(bytes) | (uint64_t)rks_load_u16(bytes + 2) << 16,
                  .flags = rks_load_u16(bytes + 4),
                  .key = {bytes + NODE_HEADER, rks_load_u16(bytes + 6)}};
    if (!leaf)
        found.size |= (uint64_t)found.flags << 32;
    found.at = offset + NODE_HEADER + found.key.size;
    return found;
}

/* ---- trees ---- */

static int compare_keys(const tree *db, bytes_view a, bytes_view b)
{
    if (db->name == NULL) {
        uint64_t left = rks_load_u64(a.data), right = rks_load_u64(b.data);
        return left < right ? -1 : left > right;
    }
    int order = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size;
}

static bool key_fits(const tree *db, bytes_view key, bytes_view from, bytes_view below)
{
    if (key.size == 0 || key.size > KEY_MOST || (db->name == NULL && key.size != 8))
        return false;
    return (from.data == NULL || compare_keys(db, key, from) >= 0) &&
           (below.data == NULL || compare_keys(db, key, below) < 0);
}

/* Finds where the data of a leaf's node lies in the file. */
static rks_status find_data(check *c, const level *at, const node *entry, uint64_t *offset)
{
    uint8_t header[PAGE_HEADER];
    *offset = at->number * c->page_size + entry->at;
    if ((entry->flags & NODE_BIG) == 0)
        return RKS_OK;
    uint64_t first = rks_load_u64(at->page + entry->at);
    uint64_t pages = (PAGE_HEADER - 1 + entry->size) / c->page_size + 1;
    rks_status status = claim_pages(c, first, pages);
    if (status != RKS_OK)
        return status;
    if ((first + pages) * c->page_size > c->file_size)
        return damaged(c, first, "lies beyond the file's end");
    *offset = first * c->page_size;
    status = rks_file_read_at(c->fd, c->path, *offset, header, sizeof(header), c->err);
    if (status != RKS_OK)
        return status;
    if (rks_load_u64(header) != first || rks_load_u16(header + 10) != PAGE_OVERFLOW ||
        rks_load_u32(header + 12) != pages)
        return damaged(c, first, "is not the first page of its value");
    c->counted.overflows += pages;
    *offset += PAGE_HEADER;
    return RKS_OK;
}

static rks_status check_free_pages(check *c, const node *entry, uint64_t page, uint64_t offset)
{
    uint64_t count = 0, before = UINT64_MAX;
    if (rks_load_u64(entry->key.data) > c->transaction)
        return damaged(c, page, "its free pages name a future transaction");
    if (entry->size < sizeof(count) || entry->size % 8 != 0)
        return damaged(c, page, "its list of free pages is malformed");
    uint8_t *list = rks_alloc_raw(1, (size_t)entry->size, c->err);
    if (list == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_read_at(c->fd, c->path, offset, list, (size_t)entry->size, c->err);
    if (status == RKS_OK) {
        count = rks_load_u64(list);
        if (count > entry->size / 8 - 1)
            status = damaged(c, page, "its list of free pages is cut short");
    }
    for (uint64_t i = 1; status == RKS_OK && i <= count; i++) {
        uint64_t number = rks_load_u64(list + 8 * i);
        status = number < before ? claim_pages(c, number, 1)
                                 : damaged(c, page, "its list of free pages is not sorted");
        before = number;
    }
    rks_free(list);
    return status;
}

static rks_status walk_tree(check *c, const tree *db);

const uint8_t *rks_lmdb_leaf_find(const uint8_t *page, size_t page_size, const char *key,
                                  size_t size)
{
    size_t key_size = strlen(key), lower = rks_load_u16(page + 12);
    if (rks_load_u16(page + 10) != PAGE_LEAF || lower > page_size)
        return NULL;
    for (size_t i = PAGE_HEADER; i + 2 <= lower; i += 2) {
        size_t offset = rks_load_u16(page + i);
        const uint8_t *bytes = page + offset;
        if (offset + NODE_HEADER + key_size + size > page_size ||
            rks_load_u16(bytes + 6) != key_size || rks_load_u16(bytes + 4) != 0 ||
            (rks_load_u16(bytes) | (uint32_t)rks_load_u16(bytes + 2) << 16) != size ||
            memcmp(bytes + NODE_HEADER, key, key_size) != 0)
            continue;
        return bytes + NODE_HEADER + key_size;
    }
    return NULL;
}

/* Visits an entry of the main database that is not a named database. */
static rks_status visit_main(check *c, const level *at, const node *entry)
{
    rks_lmdb_found found = {.db = "",
                            .key = entry->key.data,
                            .key_size = entry->key.size,
                            .offset = at->number * c->page_size + entry->at,
                            .size = (size_t)entry->size};
    return c->visit(c->user, &found, c->err);
}

/* Walks a named database, from its entry in the main database. */
static rks_status walk_named(check *c, const level *at, const node *entry)
{
    char name[KEY_MOST + 1];
    const uint8_t *bytes = at->page + entry->at;
    if (entry->flags != NODE_DB || entry->size != DB_SIZE || rks_load_u32(bytes) != 0 ||
        rks_load_u16(bytes + 4) != 0)
        return damaged(c, at->number, "is not a list of databases");
    memcpy(name, entry->key.data, entry->key.size);
    name[entry->key.size] = '\0';
    tree named = {.name = name,
                  .depth = rks_load_u16(bytes + 6),
                  .branches = rks_load_u64(bytes + 8),
                  .leaves = rks_load_u64(bytes + 16),
                  .overflows = rks_load_u64(bytes + 24),
                  .entries = rks_load_u64(bytes + 32),
                  .root = rks_load_u64(bytes + 40)};
    tree outer = c->counted;
    rks_status status = walk_tree(c, &named);
    c->counted = outer;
    return status;
}

static rks_status visit_entry(check *c, const tree *db, const level *at, const node *entry)
{
    uint64_t offset = 0;
    c->counted.entries++;
    if (db->main)
        return entry->flags == 0 ? visit_main(c, at, entry) : walk_named(c, at, entry);
    if ((entry->flags & ~NODE_BIG) != 0)
        return damaged(c, at->number, "an entry of an unknown kind");
    rks_status status = find_data(c, at, entry, &offset);
    if (status != RKS_OK)
        return status;
    if (db->name == NULL)
        return check_free_pages(c, entry, at->number, offset);
    rks_lmdb_found found = {.db = db->name,
                            .key = entry->key.data,
                            .key_size = entry->key.size,
                            .offset = offset,
                            .size = (size_t)entry->size};
    return c->visit(c->user, &found, c->err);
}

/* Walks the page `number`, which is `depth` levels above the leaves. Its keys must lie in [from,
 * below). */
static rks_status walk_page(check *c, const tree *db, uint64_t number, unsigned depth,
                            bytes_view from, bytes_view below)
{
    bool leaf = depth == 0;
    level *at = rks_alloc_raw(1, sizeof(*at) + c->page_size, c->err);
    if (at == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = read_tree_page(c, number, leaf, at);
    if (status == RKS_OK)
        status = check_nodes(c, at, leaf);
    if (leaf)
        c->counted.leaves++;
    else
        c->counted.branches++;
    bytes_view before = from;
    for (size_t i = 0; status == RKS_OK && i < at->count; i++) {
        node entry = node_of(at, i, leaf);
        if (!leaf && i == 0)
            entry.key = from; /* LMDB reads no key there */
        else if (!key_fits(db, entry.key, before, below) ||
                 (i > 0 && before.data != NULL && compare_keys(db, entry.key, before) == 0))
            status = damaged(c, number, "its keys are not in order");
        if (status != RKS_OK)
            break;
        before = entry.key;
        if (leaf)
            status = visit_entry(c, db, at, &entry);
        else
            status = walk_page(c, db, entry.size, depth - 1, entry.key,
                               i + 1 < at->count ? node_of(at, i + 1, false).key : below);
    }
    rks_free(at);
    return status;
}

static rks_status walk_tree(check *c, const tree *db)
{
    const char *name = db->name == NULL ? "free pages" : db->name;
    bytes_view none = {NULL, 0};
    c->counted = (tree){.root = db->root};
    if (db->depth > DEPTH_MOST || (db->depth == 0) != (db->root == NO_PAGE))
        return rks_fail(c->err, RKS_ERR_CORRUPT, 0, "%s: database \"%s\": wrong depth or root",
                        c->path, name);
    rks_status status =
        db->depth == 0 ? RKS_OK : walk_page(c, db, db->root, db->depth - 1, none, none);
    if (status == RKS_OK &&
        (c->counted.branches != db->branches || c->counted.leaves != db->leaves ||
         c->counted.overflows != db->overflows || c->counted.entries != db->entries))
        status = rks_fail(c->err, RKS_ERR_CORRUPT, 0,
                          "%s: database \"%s\": its counts do not match its pages", c->path, name);
    return status;
}

/* ---- meta pages ---- */

/* Reads database `i` of a meta page. Returns false if its flags are not those of our environments
 * (no duplicate keys). */
static bool meta_tree(const uint8_t *meta, int i, tree *db)
{
    const uint8_t *bytes = meta + META_DBS + i * DB_SIZE;
    unsigned flags = rks_load_u16(bytes + 4);
    *db = (tree){.name = i == 0 ? NULL : "",
                 .main = i == 1,
                 .depth = rks_load_u16(bytes + 6),
                 .branches = rks_load_u64(bytes + 8),
                 .leaves = rks_load_u64(bytes + 16),
                 .overflows = rks_load_u64(bytes + 24),
                 .entries = rks_load_u64(bytes + 32),
                 .root = rks_load_u64(bytes + 40)};
    return i == 0 ? (flags & 0xff) == DB_INTEGER_KEYS : flags == 0 && rks_load_u32(bytes) == 0;
}

static rks_status read_meta(check *c, int i, uint8_t meta[META_SIZE])
{
    uint64_t at = i == 0 ? 0 : c->page_size;
    rks_status status = rks_file_read_at(c->fd, c->path, at, meta, META_SIZE, c->err);
    if (status != RKS_OK)
        return status;
    uint32_t size = rks_load_u32(meta + META_DBS);
    if ((rks_load_u16(meta + 10) & PAGE_META) == 0 || rks_load_u32(meta + 16) != META_MAGIC ||
        rks_load_u32(meta + 20) != META_VERSION)
        return rks_fail(c->err, RKS_ERR_CORRUPT, 0, "%s: is not an LMDB file", c->path);
    if (size < PAGE_LEAST || size > PAGE_MOST || (size & (size - 1)) != 0 ||
        (i == 1 && size != c->page_size))
        return damaged(c, (uint64_t)i, "its page size is wrong");
    c->page_size = size;
    return RKS_OK;
}

/* Reads both meta pages and takes the databases of the newer one. */
static rks_status read_metas(check *c, tree *free_pages, tree *named)
{
    uint8_t metas[2][META_SIZE];
    for (int i = 0; i < 2; i++) {
        rks_status status = read_meta(c, i, metas[i]);
        if (status != RKS_OK)
            return status;
    }
    uint64_t first = rks_load_u64(metas[0] + META_LAST_PAGE + 8);
    uint64_t second = rks_load_u64(metas[1] + META_LAST_PAGE + 8);
    int newer = first < second ? 1 : 0;
    const uint8_t *meta = metas[newer];
    c->transaction = newer == 1 ? second : first;
    c->last_page = rks_load_u64(meta + META_LAST_PAGE);
    if (c->transaction - (newer == 1 ? first : second) > 1 || c->transaction > INT64_MAX)
        return damaged(c, (uint64_t)newer, "its transaction does not follow the other page's");
    if (c->last_page < 1 || c->last_page > c->file_size / c->page_size + UNWRITTEN_MOST)
        return damaged(c, (uint64_t)newer, "its last page is out of range");
    if (!meta_tree(meta, 0, free_pages) || !meta_tree(meta, 1, named))
        return damaged(c, (uint64_t)newer, "its databases are of another kind");
    return RKS_OK;
}

rks_status rks_lmdb_check(int fd, const char *path, rks_lmdb_found_fn visit, void *user,
                          rks_error *err)
{
    struct stat info;
    tree free_pages, named;
    if (fstat(fd, &info) != 0)
        return rks_fail_errno(err, errno, "%s", path);
    check c = {.fd = fd,
               .path = path,
               .visit = visit,
               .user = user,
               .file_size = (uint64_t)info.st_size,
               .err = err};
    rks_status status = read_metas(&c, &free_pages, &named);
    if (status != RKS_OK)
        return status;
    c.used = rks_alloc((size_t)(c.last_page / 8 + 1), 1, err);
    if (c.used == NULL)
        return RKS_ERR_MEMORY;
    status = walk_tree(&c, &named);
    if (status == RKS_OK)
        status = walk_tree(&c, &free_pages);
    uint64_t last = c.last_page;
    if (status == RKS_OK && last > 1 && (c.used[last / 8] & (1u << (last % 8))) == 0)
        status = damaged(&c, last, "is the last page, but nothing refers to it");
    rks_free(c.used);
    return status;
}

bool rks_lmdb_main_find(int fd, const char *path, const char *key, void *value, size_t size)
{
    struct stat info;
    tree free_pages, named;
    uint8_t page[PAGE_MOST];
    if (fstat(fd, &info) != 0)
        return false;
    check c = {.fd = fd, .path = path, .file_size = (uint64_t)info.st_size};
    if (read_metas(&c, &free_pages, &named) != RKS_OK || named.depth != 1 ||
        named.root >= c.file_size / c.page_size ||
        rks_file_read_at(fd, path, named.root * c.page_size, page, c.page_size, NULL) != RKS_OK)
        return false;
    const uint8_t *found = rks_lmdb_leaf_find(page, c.page_size, key, size);
    if (found != NULL)
        memcpy(value, found, size);
    return found != NULL;
}
