/* SPDX-License-Identifier: Apache-2.0
 *
 * wav.h: finds the length of a WAV file (RIFF, little-endian). */
#ifndef RKS_INGEST_WAV_H
#define RKS_INGEST_WAV_H

#include "rankstore/base.h"

/* Counts the sample frames (one sample of each channel) in the data by the header alone, whatever
 * the coding. RKS_ERR_DATA if it is not a WAV file, or lacks bytes that its header promises. */
rks_status rks_wav_frames(const void *bytes, uint64_t size, uint64_t *frames, rks_error *err);

#endif
