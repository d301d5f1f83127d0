/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_wire.c: libFuzzer target: any bytes as a row of frames, with a handshake of either side
 * after them. Nobody without the secret may ever prove it. */
#include "fuzz.h"

#include "base/error.h"
#include "transport/frame.h"

enum { MAX_FRAME = 1 << 16 };

static const uint8_t SECRET[RKS_SECRET_SIZE] = "the secret that nobody can guess";
static const uint8_t SESSION[16] = "session";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    rks_error err;
    if (size == 0)
        return 0;
    rks_hello hello = {.session = SESSION,
                       .ranks = 4,
                       .own_rank = 1,
                       .peer_rank = 2,
                       .connected = (bytes[0] & 1) != 0};
    memcpy(hello.key, SECRET, sizeof(hello.key));
    FUZZ_CHECK(rks_hello_start(&hello, &err) == RKS_OK);
    bytes++;
    size--;
    while (size >= RKS_FRAME_HEADER) {
        rks_frame_header header;
        if (rks_frame_decode(bytes, MAX_FRAME, &header, &err) != RKS_OK)
            return 0;
        if (header.size > MAX_FRAME || header.size > size - RKS_FRAME_HEADER)
            return 0;
        const uint8_t *body = bytes + RKS_FRAME_HEADER;
        /* The check of a body is no secret: go on as if it were right. */
        (void)rks_frame_body_good(bytes, body, header.size);
        if (header.type == RKS_FRAME_HELLO) {
            uint8_t proof[RKS_PROOF_SIZE];
            if (rks_hello_receive(&hello, body, &err) == RKS_OK) {
                FUZZ_CHECK(!rks_hello_trusted(&hello));
                rks_hello_prove(&hello, proof);
            }
        } else if (header.type == RKS_FRAME_PROOF) {
            FUZZ_CHECK(!rks_hello_proved(&hello, body));
        } else if (header.type == RKS_FRAME_ERROR) {
            rks_error strange;
            memcpy(&strange, body, sizeof(strange));
            rks_error_sanitize(&strange);
            FUZZ_CHECK(strlen(strange.text) < sizeof(strange.text) && strange.status < 0);
        }
        bytes += RKS_FRAME_HEADER + header.size;
        size -= RKS_FRAME_HEADER + header.size;
    }
    return 0;
}
