/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.c: the only file that includes xxhash's headers. */
#include "base/checksum.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>
#ifdef RKS_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* after xxhash.h, whose functions it replaces by name */
#endif

#include "base/error.h"
#include "base/memory.h"
#include "base/cpu_features.h"

struct rks_digester {
    XXH3_state_t *state;
};

static rks_digest from_xxh(XXH128_hash_t hash)
{
    return (rks_digest){hash.low64, hash.high64};
}

enum { VECTORS_FROM = 241 }; /* bytes: XXH3 uses no wide instructions below this */

#ifdef RKS_XXH_DISPATCH
__attribute__((target("avx"))) static void zero_upper_halves(void)
{
    __builtin_ia32_vzeroupper();
}

/* Clears the upper halves of the wide registers, which common builds of libxxhash leave in use.
 * Otherwise each switch between narrow and wide instructions costs as much as hashing 1 KB, here
 * and in the callers. */
static void leave_vectors(size_t size)
{
    if (size >= VECTORS_FROM && rks_has_avx())
        zero_upper_halves();
}
#else
static void leave_vectors(size_t size)
{
    (void)size;
}
#endif

uint64_t rks_checksum64(const void *bytes, size_t size)
{
    uint64_t sum = XXH3_64bits(size == 0 ? "" : bytes, size);
    leave_vectors(size);
    return sum;
}

rks_digest rks_checksum128(const void *bytes, size_t size)
{
    rks_digest sum = from_xxh(XXH3_128bits(size == 0 ? "" : bytes, size));
    leave_vectors(size);
    return sum;
}

rks_digester *rks_digester_create(rks_error *err)
{
    rks_digester *digester = rks_alloc(1, sizeof(*digester), err);
    if (digester == NULL)
        return NULL;
    digester->state = XXH3_createState();
    if (digester->state == NULL) {
        rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: digest state");
        rks_free(digester);
        return NULL;
    }
    rks_digester_reset(digester);
    return digester;
}

void rks_digester_reset(rks_digester *digester)
{
    XXH3_128bits_reset(digester->state);
}

void rks_digester_update(rks_digester *digester, const void *bytes, size_t size)
{
    if (size > 0)
        XXH3_128bits_update(digester->state, bytes, size);
    leave_vectors(VECTORS_FROM); /* earlier pieces may have used them */
}

rks_digest rks_digester_result(const rks_digester *digester)
{
    rks_digest sum = from_xxh(XXH3_128bits_digest(digester->state));
    leave_vectors(VECTORS_FROM);
    return sum;
}

void rks_digester_free(rks_digester *digester)
{
    if (digester == NULL)
        return;
    XXH3_freeState(digester->state);
    rks_free(digester);
}

rks_digest rks_digest_add(rks_digest a, rks_digest b)
{
    rks_digest sum = {a.low + b.low, a.high + b.high};
    sum.high += sum.low < a.low;
    return sum;
}

bool rks_digest_equal(rks_digest a, rks_digest b)
{
    return a.low == b.low && a.high == b.high;
}

void rks_digest_format(rks_digest digest, char text[RKS_DIGEST_TEXT])
{
    snprintf(text, RKS_DIGEST_TEXT, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
}

bool rks_digest_parse(const char *text, rks_digest *digest)
{
    uint64_t halves[2] = {0, 0};
    for (int i = 0; i < 32; i++) {
        const char *digits = "0123456789abcdef";
        const char *at = text[i] == '\0' ? NULL : strchr(digits, text[i]);
        if (at == NULL)
            return false;
        halves[i / 16] = halves[i / 16] << 4 | (uint64_t)(at - digits);
    }
    if (text[32] != '\0')
        return false;
    *digest = (rks_digest){halves[1], halves[0]};
    return true;
}

struct rks_xxhash {
    rks_xxhash_kind kind;
    XXH3_state_t *xxh3;
    XXH64_state_t *xxh64;
    XXH32_state_t *xxh32;
};

rks_xxhash *rks_xxhash_create(rks_xxhash_kind kind, rks_error *err)
{
    rks_xxhash *hash = rks_alloc(1, sizeof(*hash), err);
    if (hash == NULL)
        return NULL;
    *hash = (rks_xxhash){kind, XXH3_createState(), XXH64_createState(), XXH32_createState()};
    if (hash->xxh3 == NULL || hash->xxh64 == NULL || hash->xxh32 == NULL) {
        rks_xxhash_free(hash);
        rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for a hash");
        return NULL;
    }
    if (kind == RKS_XXH3_128)
        XXH3_128bits_reset(hash->xxh3);
    else
        XXH3_64bits_reset(hash->xxh3);
    XXH64_reset(hash->xxh64, 0);
    XXH32_reset(hash->xxh32, 0);
    return hash;
}

void rks_xxhash_update(rks_xxhash *hash, const void *bytes, size_t size)
{
    if (hash->kind == RKS_XXH3_64)
        XXH3_64bits_update(hash->xxh3, bytes, size);
    else if (hash->kind == RKS_XXH3_128)
        XXH3_128bits_update(hash->xxh3, bytes, size);
    else if (hash->kind == RKS_XXH64)
        XXH64_update(hash->xxh64, bytes, size);
    else
        XXH32_update(hash->xxh32, bytes, size);
}

void rks_xxhash_result(const rks_xxhash *hash, char text[RKS_DIGEST_TEXT])
{
    if (hash->kind == RKS_XXH3_64) {
        snprintf(text, RKS_DIGEST_TEXT, "%016" PRIx64, XXH3_64bits_digest(hash->xxh3));
    } else if (hash->kind == RKS_XXH3_128) {
        XXH128_hash_t both = XXH3_128bits_digest(hash->xxh3);
        rks_digest_format((rks_digest){both.low64, both.high64}, text);
    } else if (hash->kind == RKS_XXH64) {
        snprintf(text, RKS_DIGEST_TEXT, "%016" PRIx64, XXH64_digest(hash->xxh64));
    } else {
        snprintf(text, RKS_DIGEST_TEXT, "%08" PRIx32, XXH32_digest(hash->xxh32));
    }
}

void rks_xxhash_free(rks_xxhash *hash)
{
    if (hash == NULL)
        return;
    XXH3_freeState(hash->xxh3);
    XXH64_freeState(hash->xxh64);
    XXH32_freeState(hash->xxh32);
    rks_free(hash);
}

const char *rks_checksum_version(void)
{
    static _Thread_local char text[24];
    unsigned number = XXH_versionNumber(); /* 10000 major + 100 minor + patch */
    snprintf(text, sizeof(text), "%u.%u.%u", number / 10000, number / 100 % 100, number % 100);
    return text;
}
