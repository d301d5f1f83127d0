/* SPDX-License-Identifier: Apache-2.0
 *
 * record_layer.h: authenticates and encrypts the frames of a connection. */
#ifndef RKS_TRANSPORT_RECORD_LAYER_H
#define RKS_TRANSPORT_RECORD_LAYER_H

#include <sys/uio.h>

#include "transport/frame.h"

enum {
    RKS_SLICE_PARTS = 256,                         /* most parts of a write */
    RKS_RECORD_BYTES = 65536,                      /* most bytes of frames in a record */
    RKS_RECORD_LAYER_BYTES = 2 * RKS_RECORD_BYTES, /* in records that are sent together */
};

typedef struct rks_engine rks_engine;
typedef struct rks_record_layer rks_record_layer;

/* Returns the feature bits that this rank wants for connections to that rank. */
uint32_t rks_record_layer_features(const rks_engine *engine, uint32_t rank);
/* Creates a layer if either side wants one, else sets *layer to NULL. Both sides must be proven. */
rks_status rks_record_layer_create(const rks_hello *hello, rks_record_layer **layer,
                                   rks_error *err);
void rks_record_layer_free(rks_record_layer *layer); /* NULL is accepted */
/* Makes records from at most RKS_RECORD_LAYER_BYTES in RKS_SLICE_PARTS parts. The parts' bytes must
 * stay in place until all of it is sent. */
void rks_record_layer_write(rks_record_layer *layer, const struct iovec *parts, size_t size);
const struct iovec *rks_record_layer_unsent(const rks_record_layer *layer, size_t *count);
/* Counts `bytes` as sent. Returns true if everything is sent. */
bool rks_record_layer_sent(rks_record_layer *layer, size_t bytes);
void *rks_record_layer_room(rks_record_layer *layer, size_t *size);
/* Counts bytes that were received there. */
void rks_record_layer_received(rks_record_layer *layer, size_t size);
/* Checks the next record. *bytes are the frames' bytes in it until the next call; NULL: the record
 * is not complete. Fails if it has a wrong size or tag. */
rks_status rks_record_layer_next(rks_record_layer *layer, const uint8_t **bytes, size_t *size,
                                 rks_error *err);

#endif
