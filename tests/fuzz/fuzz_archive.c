/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_archive.c: hostile archives, packed lines, arrays and recordings. The first byte chooses:
 *   0  the rest is an .npy file
 *   1  the rest is a WAV file
 *   2  the rest is a tar, packed or not: a byte of unit size (in 512 bytes), then the file
 *   3  the same, a zip
 *   4  the same, lines of text, packed or not
 *   5  the same, an .npz file
 *   6  the same, rows of an .npy file, packed or not
 *   7  the same, CSV, packed or not
 * Files are cut, counted, inferred and read with what was inferred, malformed samples passed over;
 * what is taken must encode, and cutting changes nothing. */
#include "fuzz_built.h"

#include "codec/npy.h"
#include "ingest/wav.h"

static void fuzz_npy(const uint8_t *bytes, size_t size)
{
    rks_npy npy;
    char type[128];
    if (rks_npy_parse(bytes, size, &npy, NULL) != RKS_OK)
        return;
    rks_npy_type(&npy, type);
    FUZZ_CHECK(npy.begin <= size && strlen(type) < sizeof(type));
    if (npy.size != size - npy.begin)
        return;
    uint8_t *items = malloc(npy.size + 1);
    FUZZ_CHECK(items != NULL);
    memcpy(items, bytes + npy.begin, npy.size);
    rks_npy_arrange(&npy, items, NULL);
    free(items);
}

static void fuzz_wav(const uint8_t *bytes, size_t size)
{
    uint64_t frames = 0;
    uint8_t *exact = malloc(size + 1);
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, bytes, size);
    if (rks_wav_frames(exact, size, &frames, NULL) == RKS_OK)
        FUZZ_CHECK(frames <= size);
    free(exact);
}

static void fuzz_file(const char *format, const uint8_t *bytes, size_t size, uint64_t unit_size)
{
    const char *path = fuzz_file_of(bytes, size);
    fuzz_build(path, format, unit_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"tar", "zip", "text", "npz", "npy", "csv"};
    if (size < 3)
        return 0;
    long before = rks_memory_in_use();
    unsigned what = data[0] % 8;
    if (what == 0)
        fuzz_npy(data + 1, size - 1);
    else if (what == 1)
        fuzz_wav(data + 1, size - 1);
    else
        fuzz_file(formats[what - 2], data + 2, size - 2, (1 + (uint64_t)data[1]) << 9);
    FUZZ_CHECK(rks_memory_in_use() == before);
    return 0;
}
