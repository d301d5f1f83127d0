/* SPDX-License-Identifier: Apache-2.0
 *
 * record_layer.c: authenticates frames between hosts, and encrypts them if a side asks for it.
 * After the proofs the bytes of a stream, headers and bodies alike, travel in records:
 *
 *   offset  size  field
 *        0     4  n, from 1 to 65,536
 *        4     n  bytes of frames; a frame may start and end anywhere in it
 *    4 + n    16  tag: Poly1305 over n and the bytes, by a key made for this record alone; or, if
 *                 they are encrypted, ChaCha20-Poly1305 with n as additional data
 *
 * Each direction has a key of its own, from the handshake, and counts its records. A record that is
 * changed, repeated, removed or moved has a wrong tag, and ends the connection. No byte is used
 * before its record's tag is checked. */
#include "transport/record_layer.h"

#include <stddef.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "transport/engine_state.h"

enum {
    HEAD = 4,
    RECORD_ROOM = HEAD + RKS_RECORD_BYTES + RKS_TAG_BYTES,
    RECORDS = RKS_RECORD_LAYER_BYTES / RKS_RECORD_BYTES,
    /* each record has a head and a tag, and may end inside a part */
    PARTS = RKS_SLICE_PARTS + 3 * RECORDS,
};

struct rks_record_layer {
    bool encrypts;
    uint8_t out_key[RKS_KEY_SIZE], in_key[RKS_KEY_SIZE];
    uint64_t out_count, in_count;
    /* records to send */
    uint8_t out_heads[RECORDS][HEAD], out_tags[RECORDS][RKS_TAG_BYTES];
    struct iovec parts[PARTS];
    size_t first, end;
    uint8_t *out; /* encrypted bytes; NULL if the layer does not encrypt */
    /* received records; a record may be followed by one more head */
    size_t got;
    size_t opened; /* bytes of the record that was returned last */
    uint8_t in[RECORD_ROOM + HEAD];
};

static bool is_loopback(const rks_address *address)
{
    static const uint8_t one[16] = {[15] = 1};
    if (address->kind == 1)
        return address->ip[0] == 127;
    return address->kind == 2 && memcmp(address->ip, one, sizeof(one)) == 0;
}

uint32_t rks_record_layer_features(const rks_engine *engine, uint32_t rank)
{
    const rks_address *own = &engine->address, *peer = &engine->addresses[rank];
    bool no_network = own->kind == 3 || own->kind == RKS_ADDRESS_UNIX;
    bool one_host = no_network || (is_loopback(own) && is_loopback(peer));
    uint32_t features = 0;
    if (!one_host || engine->options.authenticate)
        features |= RKS_FEATURE_AUTHENTICATE;
    if (!no_network && engine->options.encrypt)
        features |= RKS_FEATURE_ENCRYPT;
    return features;
}

rks_status rks_record_layer_create(const rks_hello *hello, rks_record_layer **made, rks_error *err)
{
    *made = NULL;
    uint32_t features = hello->own_features | hello->peer_features;
    if ((features & (RKS_FEATURE_AUTHENTICATE | RKS_FEATURE_ENCRYPT)) == 0)
        return RKS_OK;
    rks_record_layer *layer = rks_alloc_raw(1, sizeof(*layer), err);
    if (layer == NULL)
        return RKS_ERR_MEMORY;
    memset(layer, 0, offsetof(rks_record_layer, in));
    layer->encrypts = (features & RKS_FEATURE_ENCRYPT) != 0;
    if (layer->encrypts) {
        layer->out = rks_alloc_raw(RKS_RECORD_LAYER_BYTES, 1, err);
        if (layer->out == NULL) {
            rks_free(layer);
            return RKS_ERR_MEMORY;
        }
    }
    rks_hello_frame_keys(hello, layer->out_key, layer->in_key);
    *made = layer;
    return RKS_OK;
}

void rks_record_layer_free(rks_record_layer *layer)
{
    if (layer == NULL)
        return;
    rks_free(layer->out);
    rks_wipe(layer->out_key, sizeof(layer->out_key));
    rks_wipe(layer->in_key, sizeof(layer->in_key));
    rks_free(layer);
}

/* ---- out ------------------------------------------------------------------------------------- */

/* Makes the parts of a record of `size` bytes, starting `*skip` bytes into `*part`. Returns their
 * number. */
static size_t cut_parts(const struct iovec **part, size_t *skip, size_t size, struct iovec *to)
{
    size_t count = 0;
    while (size > 0) {
        size_t left = (*part)->iov_len - *skip, taken = left < size ? left : size;
        to[count++] = (struct iovec){(uint8_t *)(*part)->iov_base + *skip, taken};
        size -= taken;
        *skip = taken < left ? *skip + taken : 0;
        *part += taken == left;
    }
    return count;
}

/* Encrypts the bytes of the parts into `out`, which becomes the only part. */
static void encrypt_parts(rks_record_layer *layer, const uint8_t head[HEAD], struct iovec *parts,
                          size_t count, uint8_t *out, uint8_t tag[RKS_TAG_BYTES])
{
    size_t size = 0;
    for (size_t i = 0; i < count; size += parts[i++].iov_len)
        memcpy(out + size, parts[i].iov_base, parts[i].iov_len);
    rks_encrypt(layer->out_key, layer->out_count, head, HEAD, out, size, tag);
    parts[0] = (struct iovec){out, size};
}

void rks_record_layer_write(rks_record_layer *layer, const struct iovec *parts, size_t size)
{
    /* Makes records of equal size, so that the peer can check the first while the second
     * arrives. */
    size_t records = (size + RKS_RECORD_BYTES - 1) / RKS_RECORD_BYTES;
    size_t most = (size_t)rks_round_up((size + records - 1) / records, 64), skip = 0;
    layer->first = layer->end = 0;
    for (size_t i = 0, done = 0; i < records; i++) {
        size_t bytes = size - done < most ? size - done : most;
        struct iovec *to = layer->parts + layer->end;
        rks_store_u32(layer->out_heads[i], (uint32_t)bytes);
        to[0] = (struct iovec){layer->out_heads[i], HEAD};
        size_t found = cut_parts(&parts, &skip, bytes, to + 1);
        if (layer->encrypts) {
            encrypt_parts(layer, layer->out_heads[i], to + 1, found, layer->out + done,
                          layer->out_tags[i]);
            found = 1;
        } else {
            rks_authenticate(layer->out_key, layer->out_count, to, found + 1, layer->out_tags[i]);
        }
        to[found + 1] = (struct iovec){layer->out_tags[i], RKS_TAG_BYTES};
        layer->end += found + 2;
        layer->out_count++;
        done += bytes;
    }
}

const struct iovec *rks_record_layer_unsent(const rks_record_layer *layer, size_t *count)
{
    *count = layer->end - layer->first;
    return layer->parts + layer->first;
}

bool rks_record_layer_sent(rks_record_layer *layer, size_t bytes)
{
    while (layer->first < layer->end && bytes >= layer->parts[layer->first].iov_len)
        bytes -= layer->parts[layer->first++].iov_len;
    if (layer->first == layer->end)
        return true;
    struct iovec *part = &layer->parts[layer->first];
    *part = (struct iovec){(uint8_t *)part->iov_base + bytes, part->iov_len - bytes};
    return false;
}

/* ---- in -------------------------------------------------------------------------------------- */

/* Returns the size of the record at the start of `in`; 0 if its head is incomplete. */
static size_t record_size(const rks_record_layer *layer)
{
    return layer->got < HEAD ? 0 : HEAD + (size_t)rks_load_u32(layer->in) + RKS_TAG_BYTES;
}

/* Reads at most to the end of the current record and the next head, so that no body has to move. */
void *rks_record_layer_room(rks_record_layer *layer, size_t *size)
{
    size_t whole = record_size(layer);
    *size = (whole == 0 ? RECORD_ROOM : whole) + HEAD - layer->got;
    return layer->in + layer->got;
}

static bool open_record(rks_record_layer *layer, size_t size)
{
    uint8_t *bytes = layer->in + HEAD;
    const uint8_t *tag = bytes + size;
    uint64_t number = layer->in_count++;
    uint8_t expected[RKS_TAG_BYTES];
    if (layer->encrypts)
        return rks_decrypt(layer->in_key, number, layer->in, HEAD, bytes, size, tag);
    const struct iovec whole = {layer->in, HEAD + size};
    rks_authenticate(layer->in_key, number, &whole, 1, expected);
    return rks_tag_equal(expected, tag);
}

void rks_record_layer_received(rks_record_layer *layer, size_t size)
{
    layer->got += size;
}

rks_status rks_record_layer_next(rks_record_layer *layer, const uint8_t **bytes, size_t *size,
                                 rks_error *err)
{
    if (layer->opened != 0) {
        layer->got -= layer->opened;
        memmove(layer->in, layer->in + layer->opened, layer->got);
        layer->opened = 0;
    }
    *bytes = NULL;
    size_t whole = record_size(layer);
    if (whole == 0)
        return RKS_OK;
    size_t inside = whole - HEAD - RKS_TAG_BYTES;
    if (inside == 0 || inside > RKS_RECORD_BYTES)
        return rks_fail(err, RKS_ERR_PEER, 0, "record of %zu bytes, not 1 to %d", inside,
                        RKS_RECORD_BYTES);
    if (layer->got < whole)
        return RKS_OK;
    if (!open_record(layer, inside))
        return rks_fail(err, RKS_ERR_PEER, 0, "bytes were changed in transit (wrong tag)");
    layer->opened = whole;
    *bytes = layer->in + HEAD;
    *size = inside;
    return RKS_OK;
}
