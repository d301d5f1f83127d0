/* SPDX-License-Identifier: Apache-2.0
 *
 * test_wav.c: the length of a recording by its header. */
#include "scratch.h"

#include "base/bytes.h"
#include "ingest/wav.h"

static rks_error err;

static size_t chunk(uint8_t *at, const char *name, uint32_t says, size_t size)
{
    memcpy(at, name, 4);
    rks_store_u32(at + 4, says);
    memset(at + 8, 0, size);
    return 8 + size;
}

/* "RIFF", a format of `frame` bytes a frame, a chunk of odd size, then data. */
static size_t wav(uint8_t *bytes, uint16_t frame, uint32_t says, size_t size)
{
    size_t at = chunk(bytes, "RIFF", 0, 4);
    memcpy(bytes + 8, "WAVE", 4);
    at += chunk(bytes + at, "fmt ", 16, 16);
    bytes[at - 4] = (uint8_t)frame;
    at += chunk(bytes + at, "LIST", 5, 6);
    return at + chunk(bytes + at, "data", says, size);
}

static void counts_frames(void **state)
{
    (void)state;
    uint8_t bytes[512];
    const uint32_t says[] = {120, UINT32_MAX, 0};
    for (uint16_t frame = 1; frame <= 6; frame++)
        for (size_t i = 0; i < 3; i++) {
            uint64_t frames = 0;
            size_t size = wav(bytes, frame, says[i], 120);
            assert_ok(rks_wav_frames(bytes, size, &frames, &err), &err);
            assert_int_equal(frames, 120 / frame);
        }
}

static void refuses_what_does_not_add_up(void **state)
{
    (void)state;
    uint8_t bytes[512];
    uint64_t frames = 77;
    size_t size = wav(bytes, 2, 120, 120);
    for (size_t cut = 0; cut < size; cut++)
        assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, cut, &frames, &err));
    assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, wav(bytes, 7, 120, 120), &frames, &err));
    assert_contains(err.text, "120 bytes of data, in frames of 7");
    assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, wav(bytes, 0, 120, 120), &frames, &err));
    assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, wav(bytes, 2, 122, 120), &frames, &err));
    assert_contains(err.text, "cut: 120 of 122 bytes");
    wav(bytes, 2, 120, 120);
    rks_store_u32(bytes + 16, UINT32_MAX); /* the format's size */
    assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, size, &frames, &err));
    bytes[0] = 'X';
    assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, size, &frames, &err));
    assert_int_equal(frames, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_frames),
        cmocka_unit_test(refuses_what_does_not_add_up),
    };
    return cmocka_run_group_tests_name("wav", tests, NULL, NULL);
}
