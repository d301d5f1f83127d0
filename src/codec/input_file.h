/* SPDX-License-Identifier: Apache-2.0
 *
 * input_file.h: opening and reading a file that was listed. */
#ifndef RKS_CODEC_INPUT_FILE_H
#define RKS_CODEC_INPUT_FILE_H

#include "base/buffer.h"

enum { RKS_INPUT_NAME_MAX = 490 }; /* bytes of a name, so that "name:row" is a key */

typedef enum rks_packing {
    RKS_PACKING_NONE,
    RKS_PACKING_GZIP,
    RKS_PACKING_ZSTD,
    RKS_PACKING_XZ,
    RKS_PACKING_BZIP2,
} rks_packing;

typedef struct rks_input_file {
    char *path;    /* to open it */
    char *name;    /* relative to its source, for keys and messages; UTF-8, unique in the list */
    uint64_t size; /* on disk */
    rks_packing packing; /* what is read is what this unpacks to (unpack.h) */
    uint64_t max_total;  /* bytes that it may unpack to */
} rks_input_file;

/* Opens an input file for reading (links are followed) without ever blocking. RKS_ERR_DATA where it
 * is no regular file any more, or not as long as it was when it was listed. */
rks_status rks_input_file_open(const rks_input_file *file, int *fd, rks_error *err);
/* RKS_ERR_DATA where the file is not as long as it was when it was listed. */
rks_status rks_input_file_unchanged(const rks_input_file *file, int fd, rks_error *err);
/* Reads at most `size` bytes at `offset`: at least one, or RKS_ERR_DATA where there is none. */
rks_status rks_input_file_read(const rks_input_file *file, int fd, uint64_t offset, void *bytes,
                               size_t size, size_t *got, rks_error *err);
/* Reads all of `size` bytes at `offset`. */
rks_status rks_input_file_read_all(const rks_input_file *file, int fd, uint64_t offset,
                                   uint8_t *bytes, size_t size, rks_error *err);
/* The folder of the file that was loaded last, open. Begins as {0}. */
typedef struct rks_input_folder {
    int fd;
    const char *path; /* the file's; NULL: none */
    size_t size;      /* bytes of it, with the slash */
} rks_input_folder;

void rks_input_folder_close(rks_input_folder *folder);
/* The whole file, in place of what is in `data`, which is not NULL then. `folder` is for the next
 * one; the file lives as long. */
rks_status rks_input_file_load(const rks_input_file *file, rks_input_folder *folder,
                               rks_buffer *data, rks_error *err);

#endif
