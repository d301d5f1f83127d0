/* SPDX-License-Identifier: Apache-2.0
 *
 * same.c: options that are given alike. A rank sends for each a byte, 1 where it is given, its
 * text, and a NUL. */
#include "group/same.h"

#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

/* The first that differs; `count` where none does. Both end in a NUL. */
static size_t first_difference(const uint8_t *one, size_t one_size, const uint8_t *other,
                               size_t other_size, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t *one_end = memchr(one, '\0', one_size);
        const uint8_t *other_end = memchr(other, '\0', other_size);
        if (one_end == NULL || other_end == NULL || one_end - one != other_end - other ||
            memcmp(one, other, (size_t)(one_end - one)) != 0)
            return i;
        one_size -= (size_t)(one_end + 1 - one);
        other_size -= (size_t)(other_end + 1 - other);
        one = one_end + 1;
        other = other_end + 1;
    }
    return count;
}

rks_status rks_same_on_all(rks_group *group, const char *what, rks_status status,
                           const rks_given *given, size_t count, rks_error *err)
{
    rks_buffer mine = {0};
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        const char *text = given[i].text == NULL ? "" : given[i].text;
        status = rks_buffer_add(&mine, given[i].text == NULL ? "0" : "1", 1, err);
        if (status == RKS_OK)
            status = rks_buffer_add(&mine, text, strlen(text) + 1, err);
    }
    status = rks_group_allgather(group, what, status, mine.data, mine.size, &all, &offsets, err);
    for (uint32_t rank = 1; status == RKS_OK && rank < rks_group_size(group); rank++) {
        size_t at = first_difference(all, (size_t)offsets[1], all + offsets[rank],
                                     (size_t)(offsets[rank + 1] - offsets[rank]), count);
        if (at < count)
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "%s: %s differs between rank 0 and rank %" PRIu32, what,
                              given[at].name, rank);
    }
    rks_buffer_free(&mine);
    rks_free(all);
    rks_free(offsets);
    return status;
}

rks_status rks_given_list(const char *const *names, size_t count, char **text, rks_error *err)
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
