/* SPDX-License-Identifier: Apache-2.0
 *
 * input_file.h: opens and reads an input file that was listed before. */
#ifndef RKS_CODEC_INPUT_FILE_H
#define RKS_CODEC_INPUT_FILE_H

#include "base/buffer.h"

enum { RKS_INPUT_NAME_MAX = 490 }; /* bytes of a name, so that "name:row" fits a key */

typedef enum rks_packing {
    RKS_PACKING_NONE,
    RKS_PACKING_GZIP,
    RKS_PACKING_ZSTD,
    RKS_PACKING_XZ,
    RKS_PACKING_BZIP2,
} rks_packing;

typedef struct rks_input_file rks_input_file;

/* Where files lie that are not on a file system. `open`, `read` and `find` may wait. */
typedef struct rks_input_store rks_input_store;
struct rks_input_store {
    rks_status (*open)(const rks_input_store *store, const rks_input_file *file, void **object,
                       rks_error *err);
    /* As rks_input_file_read. RKS_ERR_DATA if it is not the content that was listed. */
    rks_status (*read)(void *object, uint64_t offset, void *bytes, size_t size, size_t *got,
                       rks_error *err);
    void (*until)(void *object, uint64_t end);
    /* As rks_input_file_ahead. */
    void (*ahead)(const rks_input_store *store, const rks_input_file *file, uint64_t first,
                  uint64_t end);
    void (*close)(void *object);
    /* Finds another file there by its path; the caller owns *version. RKS_ERR_NOT_FOUND. */
    rks_status (*find)(const rks_input_store *store, const char *path, uint64_t *size,
                       char **version, rks_error *err);
};

struct rks_input_file {
    char *path;    /* to open it; of a store: its URL */
    char *name;    /* relative to its source, for keys and messages; UTF-8, unique in the list */
    uint64_t size; /* on disk */
    rks_packing packing;          /* how it is packed; readers see the unpacked bytes (unpack.h) */
    uint64_t max_total;           /* most bytes that it may unpack to */
    const rks_input_store *store; /* NULL: it is on a file system; outlives the file */
    char *version; /* of a store's: what another content does not have; NULL without a store */
};

/* An open input file. One thread at a time. */
typedef struct rks_input_handle {
    int fd; /* -1: the file is in a store */
    const rks_input_store *store;
    void *object;
} rks_input_handle;

/* Opens an input file for reading; follows links and never blocks. RKS_ERR_DATA if it is no longer
 * a regular file, or no longer as long as when it was listed. */
rks_status rks_input_file_open(const rks_input_file *file, rks_input_handle **handle,
                               rks_error *err);
void rks_input_file_close(rks_input_handle *handle); /* NULL is accepted */
/* Says that no byte from `end` on will be wanted soon, so that a store does not send it ahead. */
void rks_input_file_until(const rks_input_handle *handle, uint64_t end);
/* Says that the bytes from `first` on, up to `end`, are wanted soon, by a reader that begins with
 * them: a store may begin to send them. Never waits. */
void rks_input_file_ahead(const rks_input_file *file, uint64_t first, uint64_t end);
/* Returns RKS_ERR_DATA if the file is no longer as long as when it was listed. */
rks_status rks_input_file_unchanged(const rks_input_file *file, const rks_input_handle *handle,
                                    rks_error *err);
/* Reads 1 to `size` bytes at `offset`; RKS_ERR_DATA if the file ends there. */
rks_status rks_input_file_read(const rks_input_file *file, const rks_input_handle *handle,
                               uint64_t offset, void *bytes, size_t size, size_t *got,
                               rks_error *err);
/* Reads exactly `size` bytes at `offset`. */
rks_status rks_input_file_read_all(const rks_input_file *file, const rks_input_handle *handle,
                                   uint64_t offset, uint8_t *bytes, size_t size, rks_error *err);
/* The open folder of the file that was loaded last. Start with {0}. */
typedef struct rks_input_folder {
    int fd;
    const char *path; /* the file's path; NULL if none */
    size_t size;      /* bytes of the folder's part of it, with the slash */
} rks_input_folder;

void rks_input_folder_close(rks_input_folder *folder);
/* Loads the whole file into `data`, replacing what it holds; data->data is not NULL afterwards.
 * `folder` keeps the folder open for the next file; `file` must outlive it. */
rks_status rks_input_file_load(const rks_input_file *file, rks_input_folder *folder,
                               rks_buffer *data, rks_error *err);

#endif
