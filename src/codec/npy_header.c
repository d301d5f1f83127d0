/* SPDX-License-Identifier: Apache-2.0
 *
 * npy_header.c: writes the header of a .npy file, version 1.0: magic, u16 size of what follows, a
 * Python dict as text, then spaces and a newline up to a multiple of 64. Types that NumPy lacks
 * become bytes of their size (V2, V1). */
#include "codec/npy.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

enum { FRONT = 10, ALIGN = 64 };

static const char *npy_descr_of(rks_kind kind)
{
    static const char *const types[] = {
        [RKS_KIND_BOOL] = "|b1",        [RKS_KIND_INT8] = "|i1",
        [RKS_KIND_INT16] = "<i2",       [RKS_KIND_INT32] = "<i4",
        [RKS_KIND_INT64] = "<i8",       [RKS_KIND_UINT8] = "|u1",
        [RKS_KIND_UINT16] = "<u2",      [RKS_KIND_UINT32] = "<u4",
        [RKS_KIND_UINT64] = "<u8",      [RKS_KIND_FLOAT16] = "<f2",
        [RKS_KIND_FLOAT32] = "<f4",     [RKS_KIND_FLOAT64] = "<f8",
        [RKS_KIND_BFLOAT16] = "|V2",    [RKS_KIND_FLOAT8_E4M3FN] = "|V1",
        [RKS_KIND_FLOAT8_E5M2] = "|V1", [RKS_KIND_COMPLEX64] = "<c8",
        [RKS_KIND_STR] = "|u1",         [RKS_KIND_BYTES] = "|u1",
        [RKS_KIND_JSON] = "|u1",
    };
    return types[kind];
}

rks_status rks_npy_header(rks_kind kind, const uint64_t *dims, uint32_t dim_count,
                          rks_buffer *header, rks_error *err)
{
    size_t begin = header->size;
    uint8_t front[FRONT] = "\x93NUMPY\x01";
    rks_status status = rks_buffer_add(header, front, FRONT, err);
    if (status == RKS_OK)
        status = rks_buffer_print(header, err, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                                  npy_descr_of(kind));
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
