/* SPDX-License-Identifier: Apache-2.0
 *
 * agreement.c: facts as bytes, and what is made of all ranks' facts. A rank's facts follow each
 * other:
 *
 *   offset  size  field
 *        0     8  bytes of the fact; 2^64 - 1: none
 *        8     n  the bytes, then NUL up to a multiple of 8
 *
 * Of a value that must be the same and has more than 16 KiB, its first 16 KiB - 16 travel, then the
 * digest of the whole.
 */
#include "group/agreement.h"

#include <assert.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/error.h"
#include "group/group_state.h"

enum { SIZE_FIELD = 8, SAME_MAX = 16 << 10 };
static const uint64_t NONE = UINT64_MAX;

rks_fact rks_fact_same(const char *name, const char *text)
{
    return rks_fact_same_bytes(name, text, text == NULL ? 0 : strlen(text), NULL);
}

static rks_status show_both(const char *name, const char *ours, size_t our_size, const char *theirs,
                            size_t their_size, uint32_t rank, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s differs: rank 0 has %.*s, rank %u has %.*s", name,
                    ours == NULL ? 4 : (int)our_size, ours == NULL ? "none" : ours, rank,
                    theirs == NULL ? 4 : (int)their_size, theirs == NULL ? "none" : theirs);
}

rks_fact rks_fact_same_shown(const char *name, const char *text)
{
    return rks_fact_same_bytes(name, text, text == NULL ? 0 : strlen(text), show_both);
}

rks_status rks_list_text(const char *const *names, size_t count, char **text, rks_error *err)
{
    rks_buffer list = {0};
    rks_status status = RKS_OK;
    *text = NULL;
    if (names == NULL)
        return RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = rks_buffer_print(&list, err, "%zu:%s,", strlen(names[i]), names[i]);
    if (status == RKS_OK)
        status = rks_buffer_add(&list, "", 1, err);
    if (status == RKS_OK)
        *text = (char *)list.data;
    else
        rks_buffer_free(&list);
    return status;
}

/* ---- as bytes -------------------------------------------------------------------------------- */

static size_t padded(size_t size)
{
    return (size + 7) / 8 * 8;
}

/* Returns how many bytes of the fact are sent. */
static size_t carried(const rks_fact *fact)
{
    if (fact->bytes == NULL)
        return 0;
    return fact->kind == RKS_FACT_SAME && fact->size > SAME_MAX ? SAME_MAX : fact->size;
}

size_t rks_facts_size(const rks_fact *facts, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += SIZE_FIELD + padded(carried(&facts[i]));
    return size;
}

uint64_t rks_facts_limit(const rks_fact *facts, size_t count, uint32_t ranks)
{
    uint64_t each = 0, together = 0;
    for (size_t i = 0; i < count; i++) {
        each += SIZE_FIELD;
        if (facts[i].kind == RKS_FACT_BYTES) {
            each += SIZE_FIELD; /* the padding */
            together += facts[i].most;
        } else {
            each += facts[i].kind == RKS_FACT_SAME ? SAME_MAX : padded(facts[i].size);
        }
    }
    return together + ranks * each;
}

void rks_facts_encode(const rks_fact *facts, size_t count, uint8_t *bytes)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = carried(&facts[i]);
        rks_store_u64(bytes, facts[i].bytes == NULL ? NONE : size);
        if (size > 0)
            memcpy(bytes + SIZE_FIELD, facts[i].bytes, size);
        if (size > 0 && size < facts[i].size) {
            const rks_digest whole = rks_checksum128(facts[i].bytes, facts[i].size);
            memcpy(bytes + SIZE_FIELD + size - sizeof(whole), &whole, sizeof(whole));
        }
        memset(bytes + SIZE_FIELD + size, 0, padded(size) - size);
        bytes += SIZE_FIELD + padded(size);
    }
}

bool rks_facts_valid(const rks_fact *facts, size_t count, const uint8_t *bytes, uint64_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (size < SIZE_FIELD)
            return false;
        uint64_t own = rks_load_u64(bytes), left = size - SIZE_FIELD;
        uint64_t room = own == NONE ? 0 : own;
        if (room > left || padded((size_t)room) > left)
            return false;
        bool fixed = facts[i].kind == RKS_FACT_FIXED || facts[i].kind == RKS_FACT_SUM;
        if (fixed && room != (facts[i].bytes == NULL ? 0 : facts[i].size))
            return false;
        if (facts[i].kind == RKS_FACT_SAME && room > SAME_MAX)
            return false;
        if (facts[i].kind == RKS_FACT_OPTIONAL && own != NONE && own != facts[i].size)
            return false;
        bytes += SIZE_FIELD + padded((size_t)room);
        size = left - padded((size_t)room);
    }
    return size == 0;
}

const void *rks_agreed_get(const rks_agreed *agreed, uint32_t rank, size_t fact, size_t *size)
{
    const rks_group *group = agreed->group;
    assert(group->agreed_in == agreed->sequence); /* a later call has replaced these facts */
    const uint8_t *bytes = group->agreed.data + group->places[rank];
    for (; fact > 0; fact--) {
        uint64_t own = rks_load_u64(bytes);
        bytes += SIZE_FIELD + padded(own == NONE ? 0 : (size_t)own);
    }
    uint64_t own = rks_load_u64(bytes);
    if (size != NULL)
        *size = own == NONE ? 0 : (size_t)own;
    return own == NONE ? NULL : bytes + SIZE_FIELD;
}

/* ---- what all brought ------------------------------------------------------------------------ */

static rks_status compare(const rks_agreed *agreed, const rks_fact *fact, size_t number,
                          uint32_t rank, rks_error *err)
{
    size_t our_size = 0, their_size = 0;
    const char *ours = rks_agreed_get(agreed, 0, number, &our_size);
    const char *theirs = rks_agreed_get(agreed, rank, number, &their_size);
    const size_t digest = sizeof(rks_digest);
    if ((ours == NULL) == (theirs == NULL) && our_size == their_size &&
        (our_size == 0 || memcmp(ours, theirs, our_size) == 0))
        return RKS_OK;
    our_size -= our_size == SAME_MAX ? digest : 0; /* the digest is not text */
    their_size -= their_size == SAME_MAX ? digest : 0;
    if (fact->differ != NULL)
        return fact->differ(fact->name, ours, our_size, theirs, their_size, rank, err);
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s differs between rank 0 and rank %u", fact->name,
                    rank);
}

static void add_up(const rks_agreed *agreed, const rks_fact *fact, size_t number)
{
    uint32_t ranks = agreed->group->size;
    for (size_t i = 0; i < fact->size / sizeof(*fact->sums); i++) {
        fact->sums[i] = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            const uint8_t *theirs = rks_agreed_get(agreed, rank, number, NULL);
            fact->sums[i] += theirs == NULL ? 0 : rks_load_u64(theirs + i * sizeof(*fact->sums));
        }
    }
}

rks_status rks_group_agree_on(rks_group *group, const char *phase, rks_status status,
                              const rks_fact *facts, size_t count, rks_agreed *agreed,
                              rks_error *err)
{
    status = rks_group_collect(group, phase, status, facts, count, err);
    if (status != RKS_OK)
        return status;
    const rks_agreed all = {group, group->agreed_in};
    for (uint32_t rank = 1; rank < group->size; rank++)
        for (size_t i = 0; i < count; i++) {
            status =
                facts[i].kind == RKS_FACT_SAME ? compare(&all, &facts[i], i, rank, err) : RKS_OK;
            if (status != RKS_OK)
                return status;
        }
    for (size_t i = 0; i < count; i++)
        if (facts[i].kind == RKS_FACT_SUM)
            add_up(&all, &facts[i], i);
    if (agreed != NULL)
        *agreed = all;
    return RKS_OK;
}
