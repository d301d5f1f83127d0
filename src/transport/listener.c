/* SPDX-License-Identifier: Apache-2.0
 *
 * listener.c: opens the listening socket, on one address or interface, never on all of them. */
#include "transport/listener.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

static void put_ipv4(rks_address *address, const struct in_addr *ip)
{
    address->kind = 1;
    memcpy(address->ip, ip, 4);
}

static void put_ipv6(rks_address *address, const struct in6_addr *ip, uint32_t scope)
{
    address->kind = 2;
    address->scope = scope;
    memcpy(address->ip, ip, 16);
}

/* Parses "::1" and "fe80::1%eth0". */
static bool parse_ipv6(const char *where, rks_address *address)
{
    char text[INET6_ADDRSTRLEN + IF_NAMESIZE + 1];
    if (strlen(where) >= sizeof(text))
        return false;
    strcpy(text, where);
    uint32_t scope = 0;
    char *percent = strchr(text, '%');
    if (percent != NULL) {
        *percent = '\0';
        scope = if_nametoindex(percent + 1);
    }
    struct in6_addr ip;
    if (inet_pton(AF_INET6, text, &ip) != 1)
        return false;
    put_ipv6(address, &ip, scope);
    return true;
}

/* Returns how well an address of an interface suits: IPv4 best, then IPv6, then link-local IPv6; 0
 * if it is not an IP address. */
static int rank_address(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return 3;
    if (address->sa_family != AF_INET6)
        return 0;
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)(const void *)address;
    return IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr) ? 1 : 2;
}

static rks_status find_interface(const char *where, rks_address *address, rks_error *err)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return rks_fail_errno(err, errno, "listen %s: list of interfaces", where);
    bool named = false;
    const struct sockaddr *best = NULL;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (strcmp(i->ifa_name, where) != 0)
            continue;
        named = true;
        if (i->ifa_addr != NULL && rank_address(i->ifa_addr) > 0 &&
            (best == NULL || rank_address(i->ifa_addr) > rank_address(best)))
            best = i->ifa_addr;
    }
    rks_status status = RKS_OK;
    if (best == NULL)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "listen %s: %s", where,
                          named ? "the interface has no IP address"
                                : "neither an IP address nor an interface of this machine");
    else if (best->sa_family == AF_INET)
        put_ipv4(address, &((const struct sockaddr_in *)(const void *)best)->sin_addr);
    else
        put_ipv6(address, &((const struct sockaddr_in6 *)(const void *)best)->sin6_addr,
                 ((const struct sockaddr_in6 *)(const void *)best)->sin6_scope_id);
    freeifaddrs(list);
    return status;
}

static bool is_any(const rks_address *address)
{
    static const uint8_t zero[16];
    return memcmp(address->ip, zero, sizeof(zero)) == 0;
}

void rks_address_to_socket(const rks_address *address, struct sockaddr_storage *socket_address)
{
    memset(socket_address, 0, sizeof(*socket_address));
    if (address->kind == 1) {
        struct sockaddr_in *ipv4 = (struct sockaddr_in *)(void *)socket_address;
        ipv4->sin_family = AF_INET;
        ipv4->sin_port = htons(address->port);
        memcpy(&ipv4->sin_addr, address->ip, 4);
    } else {
        struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)(void *)socket_address;
        ipv6->sin6_family = AF_INET6;
        ipv6->sin6_port = htons(address->port);
        ipv6->sin6_scope_id = address->scope;
        memcpy(&ipv6->sin6_addr, address->ip, 16);
    }
}

void rks_address_format(const rks_address *address, char *text, size_t size)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    if (address->kind == 3)
        snprintf(text, size, "a thread of this process");
    else if (address->kind == RKS_ADDRESS_UNIX)
        snprintf(text, size, "a process of this machine");
    else if (address->kind == 1 && inet_ntop(AF_INET, address->ip, ip, sizeof(ip)) != NULL)
        snprintf(text, size, "%s:%u", ip, address->port);
    else if (address->kind == 2 && inet_ntop(AF_INET6, address->ip, ip, sizeof(ip)) != NULL)
        snprintf(text, size, "[%s]:%u", ip, address->port);
    else
        snprintf(text, size, "no address");
}

static socklen_t socket_size(const rks_address *address)
{
    return address->kind == 1 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static rks_status bind_and_listen(int fd, const char *where, rks_address *address, rks_error *err)
{
    struct sockaddr_storage socket_address;
    rks_address_to_socket(address, &socket_address);
    socklen_t size = socket_size(address);
    if (bind(fd, (struct sockaddr *)&socket_address, size) != 0)
        return rks_fail_errno(err, errno, "listen %s", where);
    /* Peers may connect before this rank has joined. The kernel queues them. */
    if (listen(fd, SOMAXCONN) != 0)
        return rks_fail_errno(err, errno, "listen %s", where);
    if (getsockname(fd, (struct sockaddr *)&socket_address, &size) != 0)
        return rks_fail_errno(err, errno, "listen %s", where);
    address->port =
        ntohs(address->kind == 1 ? ((struct sockaddr_in *)(void *)&socket_address)->sin_port
                                 : ((struct sockaddr_in6 *)(void *)&socket_address)->sin6_port);
    return RKS_OK;
}

rks_status rks_listen(const char *where, int *fd, rks_address *address, rks_error *err)
{
    rks_address found = {0};
    struct in_addr ipv4;
    if (where == NULL)
        where = "127.0.0.1";
    rks_status status = RKS_OK;
    if (inet_pton(AF_INET, where, &ipv4) == 1)
        put_ipv4(&found, &ipv4);
    else if (!parse_ipv6(where, &found))
        status = find_interface(where, &found, err);
    if (status != RKS_OK)
        return status;
    if (is_any(&found))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "listen %s: name one address or interface, not all of them", where);

    int made =
        socket(found.kind == 1 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0)
        return rks_fail_errno(err, errno, "listen %s", where);
    status = bind_and_listen(made, where, &found, err);
    if (status != RKS_OK) {
        close(made);
        return status;
    }
    *fd = made;
    found.reserved = address->reserved;
    memcpy(found.host, address->host, sizeof(found.host));
    *address = found;
    return RKS_OK;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

enum {
    SPARE_DESCRIPTORS = 64, /* for files that the program opens later */
    CROSSING = 64,          /* connections that both sides may be opening */
    NEWCOMERS_MIN = 64,     /* unproven connections that must fit */
};

/* Counts the open descriptors. Estimates them if /proc is missing. */
static uint64_t count_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return SPARE_DESCRIPTORS;
    uint64_t count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

rks_status rks_fit_descriptors(const rks_net_options *options, uint32_t *newcomers, rks_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return rks_fail_errno(err, errno, "limit on open files");
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {limit.rlim_max, limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit = raised;
    }
    uint64_t used = count_open() + (options->size - 1) + CROSSING + SPARE_DESCRIPTORS;
    if (limit.rlim_cur < used + NEWCOMERS_MIN)
        return rks_fail(err, RKS_ERR_IO, EMFILE,
                        "a job of %" PRIu32 " ranks needs %" PRIu64
                        " open files in each process, and the limit is %" PRIu64
                        "; raise it (ulimit -Hn, LimitNOFILE)",
                        options->size, used + NEWCOMERS_MIN, (uint64_t)limit.rlim_cur);
    uint64_t room = limit.rlim_cur - used;
    *newcomers = room < options->newcomers ? (uint32_t)room : options->newcomers;
    return RKS_OK;
}
