/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.c: wraps libsodium. */
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"

rks_status rks_random(void *bytes, size_t size, rks_error *err)
{
    if (sodium_init() < 0)
        return rks_fail(err, RKS_ERR_IO, 0, "libsodium found no source of random bytes");
    randombytes_buf(bytes, size);
    return RKS_OK;
}

void rks_keyed_hash(const uint8_t secret[RKS_SECRET_SIZE], const void *bytes, size_t size,
                    uint8_t proof[RKS_PROOF_SIZE])
{
    crypto_generichash(proof, RKS_PROOF_SIZE, bytes, size, secret, RKS_SECRET_SIZE);
}

rks_status rks_key_pair(uint8_t private_key[RKS_KEY_SIZE], uint8_t public_key[RKS_KEY_SIZE],
                        rks_error *err)
{
    rks_status status = rks_random(private_key, RKS_KEY_SIZE, err);
    if (status == RKS_OK)
        crypto_scalarmult_base(public_key, private_key);
    return status;
}

rks_status rks_key_agree(const uint8_t private_key[RKS_KEY_SIZE],
                         const uint8_t public_key[RKS_KEY_SIZE], uint8_t shared[RKS_KEY_SIZE],
                         rks_error *err)
{
    if (crypto_scalarmult(shared, private_key, public_key) == 0)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_PEER, 0, "the peer's public key is not valid");
}

static void put_nonce(uint64_t number, uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES])
{
    memset(nonce, 0, crypto_aead_chacha20poly1305_IETF_NPUBBYTES);
    rks_store_u64(nonce + 4, number);
}

/* Poly1305 with a one-time key: the first block of ChaCha20, as in ChaCha20-Poly1305. */
void rks_authenticate(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const struct iovec *parts,
                      size_t count, uint8_t tag[RKS_TAG_BYTES])
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    uint8_t once[crypto_onetimeauth_KEYBYTES];
    crypto_onetimeauth_state state;
    put_nonce(number, nonce);
    crypto_stream_chacha20_ietf(once, sizeof(once), nonce, key);
    crypto_onetimeauth_init(&state, once);
    for (size_t i = 0; i < count; i++)
        crypto_onetimeauth_update(&state, parts[i].iov_base, parts[i].iov_len);
    crypto_onetimeauth_final(&state, tag);
    sodium_memzero(once, sizeof(once));
}

bool rks_tag_equal(const uint8_t a[RKS_TAG_BYTES], const uint8_t b[RKS_TAG_BYTES])
{
    return sodium_memcmp(a, b, RKS_TAG_BYTES) == 0;
}

void rks_encrypt(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const void *head,
                 size_t head_size, uint8_t *bytes, size_t size, uint8_t tag[RKS_TAG_BYTES])
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    put_nonce(number, nonce);
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(bytes, tag, NULL, bytes, size, head,
                                                       head_size, NULL, nonce, key);
}

bool rks_decrypt(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const void *head,
                 size_t head_size, uint8_t *bytes, size_t size, const uint8_t tag[RKS_TAG_BYTES])
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES];
    put_nonce(number, nonce);
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(bytes, NULL, bytes, size, tag, head,
                                                              head_size, nonce, key) == 0;
}

bool rks_proof_equal(const uint8_t a[RKS_PROOF_SIZE], const uint8_t b[RKS_PROOF_SIZE])
{
    return sodium_memcmp(a, b, RKS_PROOF_SIZE) == 0;
}

void rks_wipe(void *bytes, size_t size)
{
    sodium_memzero(bytes, size);
}

rks_status rks_secret_read(const char *path, uint8_t secret[RKS_SECRET_SIZE], rks_error *err)
{
    /* O_NONBLOCK: opening a FIFO must not block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return rks_fail_errno(err, errno, "secret file %s", path);
    struct stat info;
    rks_status status = RKS_OK;
    if (fstat(fd, &info) != 0)
        status = rks_fail_errno(err, errno, "secret file %s", path);
    else if (!S_ISREG(info.st_mode))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "secret file %s: not a regular file", path);
    else if ((info.st_mode & 077) != 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "secret file %s: others may read it (mode %o); chmod 600 it", path,
                          (unsigned)info.st_mode & 0777);
    else if (info.st_uid != geteuid())
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "secret file %s: belongs to user %u", path,
                          (unsigned)info.st_uid);
    else if (read(fd, secret, RKS_SECRET_SIZE) != RKS_SECRET_SIZE)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "secret file %s: needs at least %d bytes", path,
                          RKS_SECRET_SIZE);
    close(fd);
    return status;
}

rks_status rks_base64_encode(const void *bytes, size_t size, rks_buffer *text, rks_error *err)
{
    size_t room = sodium_base64_encoded_len(size, sodium_base64_VARIANT_ORIGINAL); /* with a NUL */
    rks_status status = rks_buffer_reserve(text, room, err);
    if (status != RKS_OK)
        return status;
    sodium_bin2base64((char *)text->data + text->size, room, bytes, size,
                      sodium_base64_VARIANT_ORIGINAL);
    text->size += room - 1;
    return RKS_OK;
}

rks_status rks_base64_decode(const char *text, size_t size, rks_buffer *bytes, bool *good,
                             rks_error *err)
{
    size_t made = 0;
    const char *end = text;
    rks_status status = rks_buffer_reserve(bytes, size / 4 * 3 + 3, err);
    if (status != RKS_OK)
        return status;
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++)
        all |= (uint8_t)text[i];
    *good = all < 0x80 && /* libsodium takes some bytes above for digits */
            sodium_base642bin(bytes->data + bytes->size, size / 4 * 3 + 3, text, size, NULL, &made,
                              &end, sodium_base64_VARIANT_ORIGINAL) == 0 &&
            end == text + size;
    bytes->size += *good ? made : 0;
    return RKS_OK;
}

const char *rks_secret_library(void)
{
    return sodium_version_string();
}
