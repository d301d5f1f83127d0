/* SPDX-License-Identifier: Apache-2.0
 *
 * named_hash.c: xxHash's hashes (checksum.h), and SHA-1 and SHA-256 (FIPS 180-4). */
#include "base/named_hash.h"

#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"

enum { BLOCK = 64, WORDS = 8, SHA1_WORDS = 5, SHA1_ROUNDS = 80, SHA256_ROUNDS = 64 };

/* Both take blocks of 64 bytes, and end alike. */
typedef struct sha {
    void (*take)(uint32_t state[WORDS], const uint8_t *block);
    int words;
    uint32_t state[WORDS];
    uint64_t size;
    uint8_t block[BLOCK];
} sha;

static uint32_t rotate(uint32_t word, int bits)
{
    return word << bits | word >> (32 - bits);
}

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void take_sha1(uint32_t state[WORDS], const uint8_t *block)
{
    uint32_t w[SHA1_ROUNDS], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++)
        w[i] = big_endian(block + 4 * i);
    for (int i = 16; i < SHA1_ROUNDS; i++)
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < SHA1_ROUNDS; i++) {
        uint32_t mixed = i < 20   ? (d ^ (b & (c ^ d))) + 0x5a827999
                         : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                         : i < 60 ? ((b & c) | (d & (b | c))) + 0x8f1bbcdc
                                  : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = rotate(a, 5) + mixed + e + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static const uint32_t sha256_constants[SHA256_ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static void take_sha256(uint32_t state[WORDS], const uint8_t *block)
{
    uint32_t w[SHA256_ROUNDS], v[WORDS];
    for (int i = 0; i < 16; i++)
        w[i] = big_endian(block + 4 * i);
    for (int i = 16; i < SHA256_ROUNDS; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 25) ^ rotate(a, 14) ^ a >> 3) + w[i - 7] +
               (rotate(b, 15) ^ rotate(b, 13) ^ b >> 10);
    }
    memcpy(v, state, sizeof(v));
    for (int i = 0; i < SHA256_ROUNDS; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t first = v[7] + (rotate(e, 26) ^ rotate(e, 21) ^ rotate(e, 7)) +
                         ((e & v[5]) ^ (~e & v[6])) + sha256_constants[i] + w[i];
        uint32_t second = (rotate(a, 30) ^ rotate(a, 19) ^ rotate(a, 10)) +
                          ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, sizeof(v) - sizeof(*v));
        v[4] += first;
        v[0] = first + second;
    }
    for (int i = 0; i < WORDS; i++)
        state[i] += v[i];
}

static void sha_begin(sha *s, bool is_sha1)
{
    static const uint32_t sha1[SHA1_WORDS] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476,
                                              0xc3d2e1f0};
    static const uint32_t sha256[WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *s = (sha){.take = is_sha1 ? take_sha1 : take_sha256, .words = is_sha1 ? SHA1_WORDS : WORDS};
    memcpy(s->state, is_sha1 ? sha1 : sha256, (size_t)s->words * sizeof(*sha1));
}

static void sha_update(sha *s, const uint8_t *bytes, size_t size)
{
    size_t held = (size_t)(s->size % BLOCK);
    s->size += size;
    while (size > 0) {
        if (held == 0 && size >= BLOCK) {
            s->take(s->state, bytes);
            bytes += BLOCK;
            size -= BLOCK;
            continue;
        }
        size_t part = BLOCK - held < size ? BLOCK - held : size;
        memcpy(s->block + held, bytes, part);
        bytes += part;
        size -= part;
        held = (held + part) % BLOCK;
        if (held == 0)
            s->take(s->state, s->block);
    }
}

/* Ends the message: a bit, zeros, and its size in bits. */
static void sha_result(sha *s, char *text)
{
    uint64_t bits = 8 * s->size;
    uint8_t end[BLOCK + 8] = {0x80};
    size_t held = (size_t)(s->size % BLOCK);
    size_t zeros = (held < 56 ? 56 : 120) - held;
    for (size_t i = 0; i < 8; i++)
        end[zeros + i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_update(s, end, zeros + 8);
    for (int i = 0; i < s->words; i++)
        snprintf(text + 8 * i, 9, "%08x", s->state[i]);
}

static const struct {
    const char *name;
    bool is_xxhash;
    rks_xxhash_kind kind;
} known[] = {{"xxh3_64", true, RKS_XXH3_64},
             {"xxh3_128", true, RKS_XXH3_128},
             {"xxh128", true, RKS_XXH3_128},
             {"xxh64", true, RKS_XXH64},
             {"xxh32", true, RKS_XXH32},
             {.name = "sha1"},
             {.name = "sha256"}};

struct rks_named_hash {
    rks_xxhash *xxhash; /* NULL: sha */
    sha sha;
};

const char *rks_named_hash_name(size_t i)
{
    return i < sizeof(known) / sizeof(*known) ? known[i].name : NULL;
}

rks_named_hash *rks_named_hash_create(const char *name, rks_error *err)
{
    rks_named_hash *hash = rks_alloc(1, sizeof(*hash), err);
    if (hash == NULL)
        return NULL;
    sha_begin(&hash->sha, strcmp(name, "sha1") == 0);
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (!known[i].is_xxhash || strcmp(known[i].name, name) != 0)
            continue;
        hash->xxhash = rks_xxhash_create(known[i].kind, err);
        if (hash->xxhash == NULL) {
            rks_free(hash);
            return NULL;
        }
    }
    return hash;
}

void rks_named_hash_update(rks_named_hash *hash, const void *bytes, size_t size)
{
    if (hash->xxhash != NULL)
        rks_xxhash_update(hash->xxhash, bytes, size);
    else
        sha_update(&hash->sha, bytes, size);
}

void rks_named_hash_result(rks_named_hash *hash, char text[RKS_NAMED_HASH_TEXT])
{
    if (hash->xxhash != NULL)
        rks_xxhash_result(hash->xxhash, text);
    else
        sha_result(&hash->sha, text);
}

void rks_named_hash_free(rks_named_hash *hash)
{
    if (hash == NULL)
        return;
    rks_xxhash_free(hash->xxhash);
    rks_free(hash);
}
