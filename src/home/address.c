/* SPDX-License-Identifier: Apache-2.0
 *
 * address.c: which kind of home a name means. */
#include "home/address.h"

#include <ctype.h>
#include <string.h>

#include "base/error.h"

/* Returns the length of the scheme, 0 for a path. */
static size_t scheme_of(const char *home)
{
    size_t size = 0;
    while (isalnum((unsigned char)home[size]) ||
           (size > 0 && strchr("+-.", home[size]) != NULL && home[size] != '\0'))
        size++;
    return size > 0 && strncmp(home + size, "://", 3) == 0 ? size : 0;
}

bool rks_home_is_url(const char *home)
{
    return scheme_of(home) > 0;
}

/* Of what follows "SCHEME://". */
static rks_status check_rest(const char *rest, size_t scheme, const char *home, rks_error *err)
{
    size_t host = strcspn(rest, "/?#");
    const char *at = memchr(rest, '@', host);
    if (host == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: names no bucket or host", home);
    if (at != NULL && memchr(rest, ':', (size_t)(at - rest)) != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%.*s://...: has a password in it, which would be shown; give it in "
                        "storage_options, or in the environment",
                        (int)scheme, home);
    if (rest[host + strcspn(rest + host, "?#")] != '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%.*s://%.*s...: has a query (after ? or #), which may hold a secret and "
                        "would be shown; give it in storage_options",
                        (int)scheme, home, (int)(strcspn(rest, "?#")), rest);
    return RKS_OK;
}

rks_status rks_home_address_of(const char *home, rks_home_address *address, rks_error *err)
{
    size_t scheme = scheme_of(home);
    if (home[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "home: give a directory or a URL");
    *address = (rks_home_address){.path = home};
    if (scheme == 0)
        return RKS_OK;
    const char *rest = home + scheme + 3;
    if (scheme == 4 && strncmp(home, "file", 4) == 0) {
        address->path = strncmp(rest, "localhost/", 10) == 0 ? rest + 9 : rest;
        return address->path[0] == '/' ? RKS_OK
                                       : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                                                  "%s: give an absolute path after file://", home);
    }
    address->stored = true;
    return check_rest(rest, scheme, home, err);
}
