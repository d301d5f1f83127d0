/* SPDX-License-Identifier: Apache-2.0
 *
 * wav.h: how long a WAV file is (RIFF, little-endian). */
#ifndef RKS_INGEST_WAV_H
#define RKS_INGEST_WAV_H

#include "rankstore/base.h"

/* Sample frames (one sample of each channel) in the data, whatever it is coded as, by the header
 * alone: RKS_ERR_DATA where it is no WAV file, or has not all the bytes that it says. */
rks_status rks_wav_frames(const void *bytes, uint64_t size, uint64_t *frames, rks_error *err);

#endif
