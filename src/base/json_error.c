/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_error.h"

#include "base/error.h"

enum { PROBE = 1 << 20 };

bool rks_json_has_memory(void)
{
    json_malloc_t allocate;
    json_free_t release;
    json_get_alloc_funcs(&allocate, &release);
    void *probe = allocate(PROBE);
    release(probe);
    return probe != NULL;
}

bool rks_json_lacked_memory(const json_error_t *where)
{
    return json_error_code(where) == json_error_out_of_memory || where->text[0] == '\0' ||
           !rks_json_has_memory();
}

rks_status rks_json_fail(rks_error *err, rks_status status, const char *what,
                         const json_error_t *where)
{
    if (rks_json_lacked_memory(where))
        return rks_fail(err, RKS_ERR_MEMORY, 0, "%s: out of memory for its JSON", what);
    return rks_fail(err, status, 0, "%s: line %d, column %d: %s", what, where->line, where->column,
                    where->text);
}
