/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty_home.c: see faulty_home.h. The scheduler draws which reads fail; one that hangs ends when
 * it is given up. */
#include "faulty_home.h"

#include <errno.h>

#include "base/clock.h"
#include "base/error.h"
#include "home/home.h"
#include "scheduler.h"

extern const rks_home_ops __real_rks_home_directory;
extern const rks_home_ops __wrap_rks_home_directory;

static const scenario *of;
static uint64_t begun_ns;

void faulty_home_begin(const scenario *s)
{
    of = s;
    begun_ns = sim_now_ns();
}

static rks_status open_home(const char *url, const rks_home_limits *limits, void **home,
                            rks_error *err)
{
    return __real_rks_home_directory.open(url, limits, home, err);
}

static rks_status end_with(rks_home_read *read, int error)
{
    rks_error why;
    rks_fail_errno(&why, error, "%s: planted", read->name);
    read->done(read, RKS_HOME_BROKEN, &why);
    return RKS_OK;
}

static rks_status read_home(void *home, rks_home_read *read, rks_error *err)
{
    const uint64_t since = rks_now_ns() - begun_ns;
    sim_event(read->first << 20 ^ read->end);
    if (since >= of->away_ns && since < of->back_ns)
        return end_with(read, ESTALE);
    if (of->home_faults == 0 || sim_below(of->home_faults) != 0)
        return __real_rks_home_directory.read(home, read, err);
    if (sim_below(4) != 0)
        return end_with(read, sim_below(2) == 0 ? EIO : ESTALE);
    read->user = read; /* it hangs */
    if (read->come != NULL)
        read->come(read, 0);
    return RKS_OK;
}

static void give_up(void *home, rks_home_read *read)
{
    if (read->user == read)
        (void)end_with(read, ETIMEDOUT);
    else
        __real_rks_home_directory.give_up(home, read);
}

static rks_status put(void *home, const char *name, const rks_home_bytes *bytes,
                      enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err)
{
    return __real_rks_home_directory.put(home, name, bytes, rule, version, err);
}

static rks_status list(void *home, const char *prefix, rks_home_listed_fn each, void *user,
                       rks_error *err)
{
    return __real_rks_home_directory.list(home, prefix, each, user, err);
}

static rks_status remove_file(void *home, const char *name, const char *version, rks_error *err)
{
    return __real_rks_home_directory.remove(home, name, version, err);
}

static void close_home(void *home, uint32_t patience_ms)
{
    __real_rks_home_directory.close(home, patience_ms);
}

const rks_home_ops __wrap_rks_home_directory = {.open = open_home,
                                                .read = read_home,
                                                .give_up = give_up,
                                                .put = put,
                                                .list = list,
                                                .remove = remove_file,
                                                .close = close_home};
