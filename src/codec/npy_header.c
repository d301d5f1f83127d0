/* SPDX-License-Identifier: Apache-2.0
 *
 * npy_header.c: writes the header of a .npy file, version 1.0: magic, u16 size of what follows, a
 * Python dict as text, then spaces and a newline up to a multiple of 64. Types that NumPy lacks
 * become bytes of their size (V2, V1). */
#include "codec/npy.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/error.h"

enum { FRONT = 10, ALIGN = 64 };

rks_status rks_npy_header(rks_kind kind, const uint64_t *dims, uint32_t dim_count,
                          rks_buffer *header, rks_error *err)
{
    size_t begin = header->size;
    uint8_t front[FRONT] = "\x93NUMPY\x01";
    rks_status status = rks_buffer_add(header, front, FRONT, err);
    char bytes[8];
    snprintf(bytes, sizeof(bytes), "|V%" PRIu32, rks_kinds[kind].size);
    if (status == RKS_OK)
        status = rks_buffer_print(header, err, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                  rks_kind_is_bits(kind) ? bytes : rks_kinds[kind].numpy);
    for (uint32_t i = 0; status == RKS_OK && i < dim_count; i++)
        status = rks_buffer_print(header, err, "%" PRIu64 "%s", dims[i],
                                  dim_count == 1 || i + 1 < dim_count ? ", " : "");
    if (status == RKS_OK)
        status = rks_buffer_print(header, err, "), }");
    while (status == RKS_OK && (header->size - begin + 1) % ALIGN != 0)
        status = rks_buffer_add(header, " ", 1, err);
    if (status == RKS_OK)
        status = rks_buffer_add(header, "\n", 1, err);
    if (status == RKS_OK)
        rks_store_u16(header->data + begin + FRONT - 2, (uint16_t)(header->size - begin - FRONT));
    return status;
}
