/* SPDX-License-Identifier: Apache-2.0
 *
 * wav.c: chunks of a RIFF file, each a name, a size and bytes, padded to an even size:
 *
 *   "RIFF" u32 size "WAVE"; "RF64" instead of "RIFF" if a size has 64 bits
 *   "ds64" u32 size: u64 size of the file, u64 of data, u64 frames, ...; RF64 alone
 *   "fmt " u32 size: u16 coding, u16 channels, u32 frames a second, u32 bytes a second, u16 bytes a
 *                    frame, ...
 *   "data" u32 size: the frames; 2^32 - 1 in RF64: the size of ds64
 *
 * A writer into a pipe cannot go back to the size of data. It leaves 0, or a size near 2^31 or 2^32
 * (SoX 0x7ffff000, ffmpeg 0xffffffff): then the frames are the rest of the file. */
#include "ingest/wav.h"

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

enum { UNKNOWN_FROM = 0x7ffff000 };

/* Returns how many bytes of data there are, of which `left` are in the file. `size`: of the chunk;
 * `wide`: of ds64, 0 if there is none. */
static uint64_t data_size(uint64_t size, uint64_t wide, uint64_t left)
{
    if (size == UINT32_MAX && wide != 0 && wide != UINT64_MAX)
        return wide;
    return size == 0 || (size >= UNKNOWN_FROM && size > left) ? left : size;
}

rks_status rks_wav_frames(const void *bytes, uint64_t size, uint64_t *frames, rks_error *err)
{
    const uint8_t *at = bytes;
    uint32_t frame = 0;
    uint64_t wide = 0;
    if (size < 12 || (memcmp(at, "RIFF", 4) != 0 && memcmp(at, "RF64", 4) != 0) ||
        memcmp(at + 8, "WAVE", 4) != 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "not a WAV file");
    for (uint64_t place = 12; size - place >= 8;) {
        uint64_t chunk = rks_load_u32(at + place + 4), left = size - place - 8;
        const uint8_t *inside = at + place + 8;
        if (memcmp(at + place, "data", 4) == 0) {
            chunk = data_size(chunk, wide, left);
            if (chunk > left)
                return rks_fail(err, RKS_ERR_DATA, 0,
                                "the WAV file is cut: %llu of %llu bytes of data",
                                (unsigned long long)left, (unsigned long long)chunk);
            if (frame == 0 || chunk % frame != 0)
                return rks_fail(err, RKS_ERR_DATA, 0,
                                "the WAV file has %llu bytes of data, in frames of %u",
                                (unsigned long long)chunk, (unsigned)frame);
            *frames = chunk / frame;
            return RKS_OK;
        }
        if (chunk > left)
            break;
        if (memcmp(at + place, "fmt ", 4) == 0 && chunk >= 16)
            frame = rks_load_u16(inside + 12);
        if (memcmp(at + place, "ds64", 4) == 0 && chunk >= 24)
            wide = rks_load_u64(inside + 8);
        place += 8 + chunk + (chunk % 2);
        if (place > size)
            break;
    }
    return rks_fail(err, RKS_ERR_DATA, 0, "the WAV file has no data");
}
