/* SPDX-License-Identifier: Apache-2.0
 *
 * gunzip.h: gzip through zlib, with the members' CRC and length checked, which libarchive does not.
 */
#ifndef RKS_CODEC_GUNZIP_H
#define RKS_CODEC_GUNZIP_H

#include "codec/input_file.h"

typedef struct rks_gunzip rks_gunzip;

rks_status rks_gunzip_open(const rks_input_file *file, rks_gunzip **unzip, rks_error *err);
/* As rks_unpack_read(). */
rks_status rks_gunzip_read(rks_gunzip *unzip, void *bytes, size_t size, size_t *got,
                           rks_error *err);
uint64_t rks_gunzip_taken(const rks_gunzip *unzip);
void rks_gunzip_close(rks_gunzip *unzip); /* NULL is accepted */

#endif
