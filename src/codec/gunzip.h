/* SPDX-License-Identifier: Apache-2.0
 *
 * gunzip.h: reads gzip through zlib, and checks the members' CRC and length, which libarchive does
 * not. */
#ifndef RKS_CODEC_GUNZIP_H
#define RKS_CODEC_GUNZIP_H

#include "codec/input_file.h"

typedef struct rks_gunzip rks_gunzip;

rks_status rks_gunzip_open(const rks_input_file *file, rks_gunzip **unzip, rks_error *err);
/* Like rks_unpack_read(). */
rks_status rks_gunzip_read(rks_gunzip *unzip, void *bytes, size_t size, size_t *got,
                           rks_error *err);
/* Returns the bytes of the file that were consumed. */
uint64_t rks_gunzip_taken(const rks_gunzip *unzip);
void rks_gunzip_close(rks_gunzip *unzip); /* NULL is accepted */

#endif
