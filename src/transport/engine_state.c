/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_state.c: what all files of the engine use: its references and its alarm. */
#include "transport/engine_state.h"

#include "base/memory.h"

const char *rks_engine_host(const rks_engine *engine, uint32_t rank)
{
    return engine->addresses[rank].host;
}

void rks_engine_release(rks_engine *engine)
{
    if (atomic_fetch_sub(&engine->references, 1) != 1)
        return;
    pthread_cond_destroy(&engine->handlers_idle);
    pthread_mutex_destroy(&engine->handlers_mutex);
    pthread_mutex_destroy(&engine->mutex);
    rks_free(engine);
}

void rks_engine_alarm_at(rks_engine *engine, uint64_t at_ms)
{
    if (engine->alarm_ms != 0 && engine->alarm_ms <= at_ms)
        return;
    uint64_t now = rks_net_now_ms(engine->net);
    engine->alarm_ms = at_ms > now ? at_ms : now;
    rks_net_alarm(engine->net, engine->alarm_ms - now);
}

void rks_engine_beat(rks_engine *engine)
{
    if (engine->beat_ms == 0)
        engine->beat_ms = rks_net_now_ms(engine->net) + engine->options.silence_ms / 3;
    rks_engine_alarm_at(engine, engine->beat_ms);
}
