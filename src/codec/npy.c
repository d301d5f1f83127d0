/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.c: reads the header's dictionary, a Python literal. It accepts only what NumPy writes: three
 * names in any order, a string, True or False, a tuple of numbers. */
#include "codec/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Finds the kind of items with a letter and a size, "f" and 4. */
static bool set_kind(char letter, uint64_t size, rks_npy *npy)
{
    npy->typeless = letter == 'V';
    if (npy->typeless) {
        npy->kind = size == 1 ? RKS_KIND_FLOAT8_E4M3FN : RKS_KIND_BFLOAT16;
        npy->item = size == 1 ? "V1" : "V2";
        npy->item_size = (uint32_t)size;
        return size == 1 || size == 2;
    }
    for (rks_kind kind = 0; kind < RKS_KIND_STR; kind++) {
        if (rks_kinds[kind].numpy[1] != letter || rks_kinds[kind].size != size)
            continue;
        npy->kind = kind;
        npy->item = rks_kinds[kind].name;
        npy->item_size = rks_kinds[kind].size;
        return true; /* the first: bits of bfloat16 and float8 come after uint16 and uint8 */
    }
    return false;
}

typedef struct text {
    const char *at;
    const char *end;
} text;

static bool accept(text *from, char wanted)
{
    while (from->at < from->end && (*from->at == ' ' || *from->at == '\n'))
        from->at++;
    if (from->at == from->end || *from->at != wanted)
        return false;
    from->at++;
    return true;
}

/* Copies a text in quotes to `room`, with a NUL. */
static bool parse_quoted(text *from, char *room, size_t size)
{
    char quote = accept(from, '\'') ? '\'' : accept(from, '"') ? '"' : 0;
    size_t used = 0;
    if (quote == 0)
        return false;
    while (from->at < from->end && *from->at != quote && used + 1 < size)
        room[used++] = *from->at++;
    room[used] = '\0';
    return from->at < from->end && *from->at++ == quote;
}

static bool accept_word(text *from, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(from->end - from->at) < size || memcmp(from->at, word, size) != 0)
        return false;
    from->at += size;
    return true;
}

static bool accept_number(text *from, uint64_t *number)
{
    const char *begin = from->at;
    for (*number = 0; from->at < from->end && *from->at >= '0' && *from->at <= '9'; from->at++)
        if (__builtin_mul_overflow(*number, 10, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*from->at - '0'), number))
            return false;
    return from->at > begin;
}

static rks_status set_item(const char *descr, rks_npy *npy, rks_error *err)
{
    char order = descr[0];
    uint64_t size = 0;
    text digits = {descr + 2, descr + strlen(descr)};
    if (strlen(descr) >= 3 && strchr("<>|=", order) != NULL && accept_number(&digits, &size) &&
        digits.at == digits.end)
        if (set_kind(descr[1], size, npy)) {
            npy->swapped = order == '>' && size > 1;
            return RKS_OK;
        }
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "npy: items of type '%.40s' are not supported; numbers and bool are", descr);
}

static rks_status parse_npy_shape(text *from, rks_npy *npy, rks_error *err)
{
    bool more = accept(from, '(');
    while (more && !accept(from, ')')) {
        uint64_t size = 0;
        while (accept(from, ' '))
            continue;
        if (!accept_number(from, &size))
            more = false;
        else if (npy->dim_count == RKS_DIMS_MAX || size > UINT32_MAX)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "npy: at most %d dimensions of at most 2^32 - 1 are supported",
                            RKS_DIMS_MAX);
        else
            npy->dims[npy->dim_count++] = size;
        if (more && !accept(from, ',')) {
            more = accept(from, ')');
            break;
        }
    }
    return more ? RKS_OK : rks_fail(err, RKS_ERR_DATA, 0, "npy: the header has no shape");
}

/* What the header's dictionary has said so far. */
typedef struct dictionary {
    rks_npy *npy;
    char descr[64];
    bool order, shape;
} dictionary;

static rks_status fail_malformed(rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "npy: the header is malformed");
}

/* Parses the value after `name` and its colon. */
static rks_status parse_entry(text *from, const char *name, dictionary *found, rks_error *err)
{
    if (strcmp(name, "descr") == 0) {
        if (parse_quoted(from, found->descr, sizeof(found->descr)))
            return RKS_OK;
        /* A list, which describes a structure. */
        return rks_fail(err, RKS_ERR_DATA, 0, "npy: structured items are not supported");
    }
    if (strcmp(name, "fortran_order") == 0) {
        while (accept(from, ' '))
            continue;
        found->npy->fortran = accept_word(from, "True");
        found->order = found->npy->fortran || accept_word(from, "False");
        return found->order ? RKS_OK : fail_malformed(err);
    }
    if (strcmp(name, "shape") != 0 || found->shape)
        return fail_malformed(err);
    found->shape = true;
    return parse_npy_shape(from, found->npy, err);
}

static rks_status parse_dictionary(text from, rks_npy *npy, rks_error *err)
{
    char name[32];
    dictionary found = {.npy = npy};
    bool more = accept(&from, '{');
    if (!more)
        return fail_malformed(err);
    while (more && !accept(&from, '}')) {
        if (!parse_quoted(&from, name, sizeof(name)) || !accept(&from, ':'))
            return fail_malformed(err);
        accept(&from, ' ');
        rks_status status = parse_entry(&from, name, &found, err);
        if (status != RKS_OK)
            return status;
        more = accept(&from, ',');
        if (!more && !accept(&from, '}'))
            return fail_malformed(err);
    }
    if (!found.order || !found.shape || found.descr[0] == '\0')
        return fail_malformed(err);
    return set_item(found.descr, npy, err);
}

rks_status rks_npy_parse(const uint8_t *bytes, size_t size, rks_npy *npy, rks_error *err)
{
    rks_npy parsed = {0};
    if (size < 12 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "npy: no header");
    if (bytes[6] < 1 || bytes[6] > 3)
        return rks_fail(err, RKS_ERR_DATA, 0, "npy: version %d; 1 to 3 are known", bytes[6]);
    size_t begin = bytes[6] == 1 ? 10 : 12;
    uint64_t header = (uint64_t)bytes[8] | (uint64_t)bytes[9] << 8;
    if (begin == 12)
        header |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    if (header > size - begin || header > RKS_NPY_HEADER_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0, "npy: a header of %" PRIu64 " bytes in %zu", header,
                        size);
    text from = {(const char *)bytes + begin, (const char *)bytes + begin + header};
    rks_status status = parse_dictionary(from, &parsed, err);
    if (status != RKS_OK)
        return status;
    parsed.begin = begin + (size_t)header;
    parsed.size = parsed.item_size;
    for (uint32_t i = 0; i < parsed.dim_count; i++)
        if (__builtin_mul_overflow(parsed.size, parsed.dims[i], &parsed.size))
            return rks_fail(err, RKS_ERR_DATA, 0, "npy: the shape is too large");
    *npy = parsed;
    return RKS_OK;
}

static void print_type(const rks_npy *npy, bool fixed, char type[128])
{
    int used = snprintf(type, 128, "%s", npy->item);
    for (uint32_t i = 0; i < npy->dim_count; i++) {
        char size[24] = "*";
        if ((i > 0 || fixed) && npy->dims[i] != 0)
            snprintf(size, sizeof(size), "%" PRIu64, npy->dims[i]);
        used += snprintf(type + used, (size_t)(128 - used), "%s%s", i == 0 ? "[" : ",", size);
    }
    if (npy->dim_count > 0)
        snprintf(type + used, (size_t)(128 - used), "]");
}

void rks_npy_type(const rks_npy *npy, char type[128])
{
    print_type(npy, false, type);
}

void rks_npy_fixed_type(const rks_npy *npy, char type[128])
{
    print_type(npy, true, type);
}

rks_status rks_npy_row(const rks_npy *npy, rks_npy *row, rks_error *err)
{
    rks_npy made = *npy;
    if (npy->dim_count == 0)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "a number without axes; the first axis must be samples");
    if (npy->fortran && npy->dim_count > 1)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "the array is in Fortran order; save it with "
                        "numpy.ascontiguousarray");
    made.fortran = false;
    made.dim_count--;
    made.size = npy->item_size;
    memmove(made.dims, npy->dims + 1, made.dim_count * sizeof(*npy->dims));
    for (uint32_t i = 0; i < made.dim_count; i++)
        if (__builtin_mul_overflow(made.size, made.dims[i], &made.size))
            return rks_fail(err, RKS_ERR_DATA, 0, "the shape is too large");
    if (made.size == 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "its rows have no bytes");
    if (made.size > UINT32_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "rows of %" PRIu64 " bytes; a sample must have less than 4 GiB", made.size);
    *row = made;
    return RKS_OK;
}

rks_status rks_npy_check_typed(const rks_npy *npy, rks_error *err)
{
    return npy->typeless ? rks_fail(err, RKS_ERR_DATA, 0,
                                    "npy: items of %u bytes without a type; give schema "
                                    "(bfloat16, float8_e4m3fn and float8_e5m2 are stored so)",
                                    npy->item_size)
                         : RKS_OK;
}

bool rks_npy_items_fit(const rks_npy *npy, const rks_column *column)
{
    return npy->kind == column->kind ||
           (npy->typeless && npy->item_size == 1 && column->kind == RKS_KIND_FLOAT8_E5M2);
}

bool rks_npy_fits(const rks_npy *npy, const rks_column *column)
{
    bool fits = npy->dim_count == column->dim_count && rks_npy_items_fit(npy, column);
    for (uint32_t i = 0; fits && i < npy->dim_count; i++)
        fits = column->dims[i] == 0 || column->dims[i] == npy->dims[i];
    return fits;
}

static void swap(const rks_npy *npy, uint8_t *items)
{
    size_t step = npy->kind == RKS_KIND_COMPLEX64 ? 4 : npy->item_size;
    for (uint64_t at = 0; at < npy->size; at += step)
        for (size_t i = 0; i < step / 2; i++) {
            uint8_t byte = items[at + i];
            items[at + i] = items[at + step - 1 - i];
            items[at + step - 1 - i] = byte;
        }
}

/* Goes over the items in C order, and computes the place that each has in Fortran's order. */
static void transpose(const rks_npy *npy, const uint8_t *from, uint8_t *to)
{
    uint64_t index[RKS_DIMS_MAX] = {0};
    for (uint64_t at = 0; at < npy->size; at += npy->item_size) {
        uint64_t place = 0;
        for (uint32_t i = npy->dim_count; i-- > 0;)
            place = place * npy->dims[i] + index[i];
        memcpy(to + at, from + place * npy->item_size, npy->item_size);
        for (uint32_t i = npy->dim_count; i-- > 0 && ++index[i] == npy->dims[i];)
            index[i] = 0;
    }
}

rks_status rks_npy_arrange(const rks_npy *npy, uint8_t *items, rks_error *err)
{
    if (npy->swapped)
        swap(npy, items);
    if (!npy->fortran || npy->dim_count < 2 || npy->size == 0)
        return RKS_OK;
    uint8_t *copy = rks_alloc_raw(npy->size, 1, err);
    if (copy == NULL)
        return RKS_ERR_MEMORY;
    memcpy(copy, items, npy->size);
    transpose(npy, copy, items);
    rks_free(copy);
    return RKS_OK;
}
