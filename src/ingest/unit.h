/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.h: the deterministic pieces that input is dealt out in: a byte range of a file that ends at
 * a line's end, or a group of small files. The same list on every rank that sees the same input.
 *
 * Format   A source that is a file: by its name (.jsonl, .ndjson, .json; .txt; .csv; .tsv, .tab;
 *          .npy; .npz; .idx, .bin), else by content (first byte that is no space is '{': jsonl;
 *          UTF-8: text). A source that is a folder: the MDS shards that its index.json speaks
 *          of, else each file below it is a sample ("folder"), unless the option `format` says
 *          otherwise, then all files below it are read as that. One format a build. More in
 *          format.h. A source NAME that is not there stands for Megatron's pair NAME.idx and
 *          NAME.bin.
 * Names    of a file source its base name, of a folder source the path below it. Where two sources
 *          have a name in common, all their names get the folder's base name (for a file: the base
 *          name of the folder it lies in) in front; names that are still equal are an error.
 * Packed   A file of lines, records, rows or members may be compressed (unpack.h). It is one unit,
 *          its size is what it takes on disk, and its name goes without the ending that says so:
 *          keys and lines are those of the file unpacked. In a "folder" files stay as they are.
 * Folders  Hidden names are skipped, and so is all that is neither file nor folder. Links to files
 *          are followed, links to folders are not; a link that leads nowhere is an error.
 */
#ifndef RKS_INGEST_UNIT_H
#define RKS_INGEST_UNIT_H

#include "base/checksum.h"
#include "codec/input_file.h"
#include "ingest/options.h"

typedef struct rks_input_format rks_input_format; /* format.h */

enum {
    RKS_UNIT_FILES_MAX = 4096, /* files in a unit of a folder */
    RKS_UNITS_MAX = 4 << 20,   /* units of an input */
};

typedef struct rks_input_unit {
    uint64_t number;   /* position in the list */
    size_t first_file; /* folder: a run of whole files; else file_count is 1 */
    size_t file_count;
    uint64_t offset; /* nominal byte range; lines that begin inside it are the unit's */
    uint64_t size;
    bool first_of_file;
} rks_input_unit;

/* Names in folders that are passed over. */
typedef struct rks_not_read {
    uint64_t hidden;
    uint64_t linked_folders;
    uint64_t special_files; /* FIFOs, sockets, devices */
} rks_not_read;

typedef struct rks_input {
    rks_input_file *files; /* sorted by name */
    size_t file_count;
    rks_input_unit *units; /* an empty file of lines has none */
    size_t unit_count;
    size_t unit_room;
    uint64_t bytes;
    uint64_t unit_size; /* that it is cut by */
    rks_not_read not_read;
    const rks_input_format *format; /* of all files */
    void *cut;           /* what the format's cut keeps for its other operations, or NULL */
    rks_digest digest;   /* what rks_input_digest gives */
    uint64_t max_sample; /* from the options, with the default filled in */
    bool skip_bad;
    bool flatten;            /* objects in rows make columns "outer.inner" */
    const char *dtype;       /* of a raw file's items; NULL: not said; borrowed */
    const char *json_path;   /* where the array lies in a JSON file; NULL: it is the file; borrowed */
    uint64_t infer_rows;     /* of a unit are looked at for a schema, or so many bytes */
    uint64_t infer_bytes;
    bool infer_all;          /* both are without a limit */
    bool keeps_schema; /* where the options give none: it is that of a dataset, not inferred */
    const char
        *columns; /* names, where CSV has no header; NULL: it has one; borrowed from the options */
} rks_input;

/* Looks at files and folders (recursively, sorted by bytes, links to files followed, hidden names
 * skipped and counted, as are links to folders and special files). RKS_ERR_NOT_FOUND names a
 * missing source, RKS_ERR_DATA an empty folder or a source that is no file, or one of an
 * unknown format. */
rks_status rks_input_open(const char *const *sources, size_t count,
                          const rks_ingest_options *options, rks_input **input, rks_error *err);
void rks_input_free(rks_input *input); /* NULL is accepted */
/* Cuts the input anew. After a failure it has no units until a cut succeeds. */
rks_status rks_input_cut(rks_input *input, uint64_t unit_size, rks_error *err);
/* The unit size for an input of so many bytes: about 1/64 of it in whole MiB, 1 to 64 MiB. */
uint64_t rks_unit_size_for(uint64_t bytes);
/* Over names, sizes and ranges, not over paths: part of the build id. */
rks_digest rks_input_digest(const rks_input *input);
/* The options as this input makes them: `format` is what was found, and for a folder the key is the
 * column "path" where no other is asked for. To be done before a selector is created. */
void rks_input_options(const rks_input *input, rks_ingest_options *options);
/* Deals units to ranks, largest first to the least loaded; owners[unit] is the rank. `done` (may be
 * NULL) marks units that are finished already and go to nobody (UINT32_MAX). Deterministic. */
rks_status rks_input_deal(const rks_input *input, uint32_t ranks, const bool *done,
                          uint32_t *owners, rks_error *err);

/* Lines that begin in a unit, for the row numbers of a file's later units; of a folder, files. */
rks_status rks_unit_count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);

#endif
