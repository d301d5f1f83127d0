/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamic_symbol.h: finds functions of a library that is loaded at run time. */
#ifndef RKS_EXCHANGE_DYNAMIC_SYMBOL_H
#define RKS_EXCHANGE_DYNAMIC_SYMBOL_H

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

/* Stores the library's function `name` into the function pointer at `call`. `whose`, for the error:
 * "NCCL". */
static inline rks_status rks_find_call(void *library, const char *whose, const char *name,
                                       void *call, rks_error *err)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "%s has no %s", whose, name);
    memcpy(call, &symbol, sizeof(symbol)); /* ISO C has no cast from data to function */
    return RKS_OK;
}

#endif
