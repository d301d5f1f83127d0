/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_key.c: the key of this rank and another one, and what else goes into their hellos. */
#include <string.h>

#include "base/bytes.h"
#include "transport/peer.h"

enum { PLACE_PORT = 2, PLACE_IP = 4 }; /* offsets in a hello's address; see frame.h */

static void put_place(const rks_address *address, uint8_t place[RKS_PLACE_SIZE])
{
    memset(place, 0, RKS_PLACE_SIZE);
    place[0] = address->kind;
    rks_store_u16(place + PLACE_PORT, address->port);
    memcpy(place + PLACE_IP, address->ip, sizeof(address->ip));
}

/* Makes the key of this rank and another one. Runs on first use, since a key takes 50 us. */
static rks_status make_key(rks_engine *engine, uint32_t rank, rks_error *err)
{
    static const uint8_t what[8] = "RKSPAIR";
    rks_peer *peer = &engine->peers[rank];
    uint8_t bytes[sizeof(what) + 3 * RKS_KEY_SIZE];
    uint32_t own = engine->options.rank;
    if (engine->public_keys == NULL) {
        memcpy(peer->key, engine->secret, sizeof(peer->key));
    } else {
        memcpy(bytes, what, sizeof(what));
        const uint8_t *low = engine->public_keys + RKS_KEY_SIZE * (size_t)(own < rank ? own : rank);
        const uint8_t *high =
            engine->public_keys + RKS_KEY_SIZE * (size_t)(own < rank ? rank : own);
        rks_status status =
            rks_key_agree(engine->private_key, own < rank ? high : low, bytes + sizeof(what), err);
        if (status != RKS_OK)
            return status;
        memcpy(bytes + sizeof(what) + RKS_KEY_SIZE, low, RKS_KEY_SIZE);
        memcpy(bytes + sizeof(what) + 2 * RKS_KEY_SIZE, high, RKS_KEY_SIZE);
        rks_keyed_hash(engine->secret, bytes, sizeof(bytes), peer->key);
        rks_wipe(bytes, sizeof(bytes));
    }
    peer->keyed = true;
    return RKS_OK;
}

rks_status rks_peer_bind(rks_engine *engine, rks_hello *hello, rks_error *err)
{
    rks_peer *peer = &engine->peers[hello->peer_rank];
    rks_status status = peer->keyed ? RKS_OK : make_key(engine, hello->peer_rank, err);
    if (status != RKS_OK)
        return status;
    memcpy(hello->key, peer->key, sizeof(hello->key));
    put_place(&engine->address, hello->own_place);
    put_place(&engine->addresses[hello->peer_rank], hello->peer_place);
    hello->own_features = rks_record_layer_features(engine, hello->peer_rank);
    return RKS_OK;
}
