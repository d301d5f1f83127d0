/* SPDX-License-Identifier: Apache-2.0
 *
 * link_rate.c: a moving mean over stretches of a tenth of a second. */
#include "home/link_rate.h"

#include "base/clock.h"

enum { STRETCH_NS = 100000000 };
static const double NEW = 0.4; /* weight of the newest stretch */

void rks_link_rate_ask(rks_link_rate *rate, uint64_t bytes)
{
    if (rate->under_way == 0) {
        rate->since_ns = rks_now_ns();
        rate->came = 0;
    }
    rate->under_way += bytes;
}

void rks_link_rate_end(rks_link_rate *rate, uint64_t asked, uint64_t came)
{
    const uint64_t now = rks_now_ns(), passed = now - rate->since_ns;
    rate->under_way -= asked;
    rate->came += came;
    /* The first stretch is as long as the first bytes take. */
    if (passed == 0 || (passed < STRETCH_NS && rate->bytes_per_s > 0))
        return;
    const double found = (double)rate->came * 1e9 / (double)passed;
    rate->bytes_per_s =
        rate->bytes_per_s == 0 ? found : NEW * found + (1 - NEW) * rate->bytes_per_s;
    rate->since_ns = now;
    rate->came = 0;
}

double rks_link_rate_seconds(const rks_link_rate *rate, uint64_t bytes)
{
    return rate->bytes_per_s == 0 ? 1 : (double)bytes / rate->bytes_per_s;
}
