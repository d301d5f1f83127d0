/* SPDX-License-Identifier: Apache-2.0
 *
 * interface.c: the interface that leads to other machines. Host names are not asked: resolving
 * one may take minutes, and often gives a loopback address. */
#include "group/group_state.h"

#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"

/* Reads /proc/net/route: a heading, then name, destination, gateway, flags, ..., metric, mask. */
static bool default_route_ipv4(char name[32])
{
    FILE *routes = fopen("/proc/net/route", "re");
    if (routes == NULL)
        return false;
    char line[256];
    unsigned best = 0;
    bool found = false;
    while (fgets(line, sizeof(line), routes) != NULL) {
        char device[32];
        unsigned destination, flags, metric, mask;
        if (sscanf(line, "%31s %x %*x %x %*d %*d %u %x", device, &destination, &flags, &metric,
                   &mask) != 5 ||
            destination != 0 || mask != 0 || (flags & 1) == 0 || (found && metric >= best))
            continue;
        memcpy(name, device, sizeof(device));
        best = metric;
        found = true;
    }
    fclose(routes);
    return found;
}

static bool usable(const struct ifaddrs *i)
{
    return i->ifa_addr != NULL && (i->ifa_flags & IFF_UP) != 0 &&
           (i->ifa_flags & IFF_LOOPBACK) == 0 &&
           (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
}

rks_status rks_interface_find(char name[32], rks_error *err)
{
    if (default_route_ipv4(name))
        return RKS_OK;
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return rks_fail_errno(err, errno, "list of interfaces");
    const char *only = NULL;
    const char *other = NULL;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (!usable(i))
            continue;
        if (only == NULL)
            only = i->ifa_name;
        else if (strcmp(only, i->ifa_name) != 0)
            other = i->ifa_name;
    }
    rks_status status = RKS_OK;
    if (only == NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "no interface leads to the other nodes; name an address in RKS_LISTEN");
    else if (other != NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "no default route says whether %s or %s leads to the other nodes; name "
                          "one in RKS_LISTEN",
                          only, other);
    else
        snprintf(name, 32, "%s", only);
    freeifaddrs(list);
    return status;
}
