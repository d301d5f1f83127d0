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
    /* the size; those of ffmpeg and SoX into a pipe, and of others that could not go back */
    const uint32_t says[] = {120, UINT32_MAX, 0, 0x7ffff000, INT32_MAX, UINT32_MAX - 36};
    for (uint16_t frame = 1; frame <= 6; frame++)
        for (size_t i = 0; i < sizeof(says) / sizeof(says[0]); i++) {
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

/* "RF64" with a chunk "ds64" that says how many bytes of data there are. */
static size_t rf64(uint8_t *bytes, uint64_t says, size_t size)
{
    size_t at = chunk(bytes, "RF64", UINT32_MAX, 4);
    memcpy(bytes + 8, "WAVE", 4);
    rks_store_u64(bytes + at + 16, says);
    at += 8 + 28;
    memcpy(bytes + 12, "ds64", 4);
    rks_store_u32(bytes + 16, 28);
    at += chunk(bytes + at, "fmt ", 16, 16);
    bytes[at - 4] = 2;
    return at + chunk(bytes + at, "data", UINT32_MAX, size);
}

static void rf64_has_its_size_in_ds64(void **state)
{
    (void)state;
    uint8_t bytes[512] = {0};
    uint64_t frames = 0;
    size_t size = rf64(bytes, 120, 140); /* 20 bytes of other chunks come after the data */
    assert_ok(rks_wav_frames(bytes, size, &frames, &err), &err);
    assert_int_equal(frames, 60);
    size = rf64(bytes, 0, 140); /* not known */
    assert_ok(rks_wav_frames(bytes, size, &frames, &err), &err);
    assert_int_equal(frames, 70);
    size = rf64(bytes, (uint64_t)1 << 33, 140);
    assert_fails(RKS_ERR_DATA, rks_wav_frames(bytes, size, &frames, &err));
    assert_contains(err.text, "cut: 140 of 8589934592 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_frames),
        cmocka_unit_test(rf64_has_its_size_in_ds64),
        cmocka_unit_test(refuses_what_does_not_add_up),
    };
    return cmocka_run_group_tests_name("wav", tests, NULL, NULL);
}
