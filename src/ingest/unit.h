/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.h: cuts input into units, the deterministic parts that ranks share out: a byte range of a
 * file that ends at a line's end, or a group of small files. Every rank that sees the same input
 * gets the same list.
 *
 * Format   A source that is a file: by its name (.jsonl, .ndjson, .json; .txt; .csv; .tsv, .tab;
 *          .npy; .npz; .idx, .bin), else by content (first byte that is not a space is '{': jsonl;
 *          UTF-8: text). A source that is a folder: the MDS shards that its index.json lists, else
 *          each file below it is a sample ("folder"). The option `format` overrides this: then all
 *          files below the folder are read in that format. One format a build. More in format.h. A
 *          source NAME that does not exist stands for Megatron's pair NAME.idx and NAME.bin.
 * Names    A file source has its base name, a file of a folder source the path below the folder. If
 *          two sources share a name, all their names get the folder's base name (for a file: that
 *          of its folder) as a prefix. Names that are still equal are an error.
 * Packed   A file of lines, records, rows or members may be compressed (unpack.h). It is one unit;
 *          its size is its size on disk, and its name lacks the ending that shows the compression:
 *          keys and lines are those of the unpacked file. In a "folder" files stay as they are.
 * URLs     Objects of stores are like files (stored.h), but their names alone show a compression,
 * and only lines and arrays are cut: an object of any other format is one unit. Folders  Hidden
 * names are skipped, and so is everything that is neither file nor folder. Links to files are
 * followed, links to folders are not. A broken link is an error. */
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
    size_t first_file; /* in a folder: the first of a run of whole files; else file_count is 1 */
    size_t file_count;
    uint64_t offset; /* nominal byte range; lines that start in it belong to the unit */
    uint64_t size;
    bool first_of_file;
} rks_input_unit;

/* Counts of skipped names in folders. */
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
    uint64_t unit_size; /* the unit size that it was cut by */
    rks_not_read not_read;
    const rks_input_format *format; /* of all files */
    void *cut;                 /* what the format's `cut` keeps for its other operations, or NULL */
    struct rks_stores *stores; /* of sources that are URLs; NULL: there are none */
    bool deals_files;          /* see rks_input_choose_deal */
    rks_digest digest;         /* result of rks_input_digest */
    uint64_t max_sample;       /* from the options, with the default filled in */
    bool skip_bad;
    bool unchecked;        /* hashes of the source itself are not verified */
    bool flatten;          /* objects in rows become columns "outer.inner" */
    const char *dtype;     /* type of a raw file's items; NULL: not given; borrowed */
    const char *json_path; /* path of a JSON file's array; NULL: the file is it; borrowed */
    uint64_t infer_rows;   /* most rows of a unit to infer a schema from */
    uint64_t infer_bytes;
    bool infer_all;    /* neither has a limit */
    bool keeps_schema; /* without a schema in the options: it is a dataset's, not inferred */
    const char
        *columns; /* names, where CSV has no header; NULL: it has one; borrowed from the options */
} rks_input;

/* Lists files and folders (recursively, sorted by bytes, links to files followed; hidden names,
 * links to folders and special files skipped and counted). RKS_ERR_NOT_FOUND names a missing
 * source. RKS_ERR_DATA names an empty folder, a source that is not a file or folder, or a file of
 * unknown format. */
rks_status rks_input_open(const char *const *sources, size_t count,
                          const rks_ingest_options *options, rks_input **input, rks_error *err);
void rks_input_free(rks_input *input); /* NULL is accepted */
/* Writes what the stores of an input with some were asked, for the options of other ranks. Free
 * *listing with rks_free. */
rks_status rks_input_listing(const rks_input *input, char **listing, rks_error *err);
/* Refuses options for other formats: RKS_ERR_ARGUMENT. */
rks_status rks_input_refuse_options(const rks_ingest_options *options,
                                    const rks_input_format *format, rks_error *err);
/* Sets what of an input follows from the options and the format. The options' texts are borrowed.
 */
void rks_input_take_options(rks_input *input, const rks_ingest_options *options,
                            const rks_input_format *format);
/* Cuts the input again. After a failure it has no units until a cut succeeds. */
rks_status rks_input_cut(rks_input *input, uint64_t unit_size, rks_error *err);
/* Returns the default unit size for an input of `bytes`: about 1/64 of it in whole MiB, 1 to 64
 * MiB. */
uint64_t rks_unit_size_for(uint64_t bytes);
/* Returns the digest of names, sizes and ranges, but not paths; it is part of the build id. */
rks_digest rks_input_digest(const rks_input *input);
/* Completes the options for this input: sets `format` to the format found and, for a folder, `key`
 * to "path" if the user asked for no other. Call it before you create a selector. */
void rks_input_options(const rks_input *input, rks_ingest_options *options);
/* Decides whether units are dealt by whole files (input->deals_files): some come from a store,
 * where counting the rows of a file's first units could send them twice, and no rank gets more than
 * its share and a quarter of it. */
rks_status rks_input_choose_deal(rks_input *input, uint32_t ranks, rks_error *err);
/* Deals units to ranks, largest first to the least loaded: owners[unit] is the rank. `done` (may be
 * NULL) marks finished units, which get no owner (UINT32_MAX). Deterministic. */
rks_status rks_input_deal(const rks_input *input, uint32_t ranks, const bool *done,
                          uint32_t *owners, rks_error *err);

/* Says that a unit is read soon, first its first `most` bytes: a store may begin to send them.
 * Never waits; does nothing if no source is in a store. */
void rks_unit_ahead(const rks_input *input, size_t unit, uint64_t most);
enum { RKS_LOOK_BYTES = 512 << 10 }; /* of a unit that a store sends at once for a look */
enum { RKS_UNITS_AHEAD = 4, RKS_FILES_AHEAD = 8 }; /* of what is read next, at most */

/* Counts the rows of a unit, for the row numbers of its file's later units; in a folder, its
 * files. */
rks_status rks_unit_count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);

#endif
