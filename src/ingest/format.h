/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h: what an input format is. A new one is a file of its own with an rks_input_format in it,
 * and a row of the table in format.c.
 *
 * Found   A file's format by its name, else by its first 64 KiB; a folder's by what is in it, else
 *         "folder". The option `format` overrides both. One format a build. */
#ifndef RKS_INGEST_FORMAT_H
#define RKS_INGEST_FORMAT_H

#include "ingest/job.h"

enum { RKS_FORMAT_LOOK = 64 << 10 };

/* What of a unit is looked at for a schema: at most so many rows, and rks_infer_bytes(). */
enum { RKS_INFER_ROWS = 1000, RKS_INFER_BYTES = 8 << 20 };
/* RKS_INFER_BYTES of the first unit, of others 1/32 and at least 64 KiB: so all of it together
 * stays a small part of a large input. */
uint64_t rks_infer_bytes(const rks_input *input, size_t unit);

struct rks_input_format {
    const char *name; /* as the option has it */
    const char *key;  /* column that is the key where no other is asked for, and it is there; NULL:
                       * "name:row" */
    bool packable; /* its files may be compressed, and are read through rks_unpack or rks_archive */
    bool utf8;     /* its files are UTF-8 text */
    bool takes_columns; /* the option `columns` names them */
    bool has_objects;   /* its rows are JSON objects: the option `flatten` */
    bool named_only;    /* rows have no keys of their own: a key column is needed */

    /* The file's name (without a folder) is one of this format's. NULL: by content alone. */
    bool (*is_named)(const char *name);
    /* What a file of this format by its name is by its first bytes. size > 0. NULL: what its name
     * says. */
    const rks_input_format *(*look_closer)(const uint8_t *bytes, size_t size);
    /* A file that begins with these bytes, and ends there where `all` is set, is of this format.
     * size > 0. NULL: by name alone. */
    bool (*looks_like)(const uint8_t *bytes, size_t size, bool all);
    /* The file (rks_free) that a source stands for which is not there by its own name, or NULL. */
    char *(*find_source)(const char *path);
    /* A source that is this folder is of this format. NULL: never by itself. */
    bool (*is_folder)(const char *path);

    /* Makes input->units, in the order of the files; their numbers are set. */
    rks_status (*cut)(rks_input *input, uint64_t unit_size, rks_error *err);
    /* Frees input->cut, where `cut` sets it. */
    void (*free_cut)(rks_input *input);
    /* Rows of a unit, where a later unit of its file (first_of_file false) needs to know. */
    rks_status (*count_rows)(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);
    /* As rks_ingest_infer(); what is too large or malformed is passed over with skip_bad. */
    rks_status (*infer)(const rks_input *input, size_t unit, char **schema_text, rks_error *err);
    /* RKS_ERR_ARGUMENT for a schema that these files cannot fill. NULL: any. */
    rks_status (*check_schema)(const rks_schema *schema, rks_error *err);
    /* Reads the job's unit: each row through rks_job_offer() and rks_job_row(). */
    rks_status (*read)(rks_job *job, rks_error *err);
};

extern const rks_input_format rks_format_jsonl, rks_format_text, rks_format_folder, rks_format_tar,
    rks_format_zip, rks_format_csv, rks_format_tsv, rks_format_npy, rks_format_megatron,
    rks_format_mds, rks_format_npz, rks_format_json, rks_format_raw;

/* `number` is the format's place in the table, which never changes. NULL where there is none. */
const rks_input_format *rks_format_at(size_t number);
size_t rks_format_number(const rks_input_format *format);

/* What a source that is not there stands for in any format, or the one `asked` for: a path that the
 * caller owns, or NULL. */
char *rks_format_find_source(const char *path, const char *asked);
/* The format of all files of `list`, which came from `sources`; `asked` is the option, or NULL.
 * Sets the files' packing, and takes the endings that say so off their names. */
rks_status rks_format_find(rks_found_list *list, const char *const *sources, const bool *folders,
                           size_t source_count, const char *asked, const rks_input_format **format,
                           rks_error *err);

/* The name ends so, in any case of letters, and has something in front. */
bool rks_name_ends(const char *name, const char *ending);
/* UTF-8 without NUL; a character may be cut where the bytes are not all. */
bool rks_bytes_are_text(const uint8_t *bytes, size_t size, bool all);

/* A byte order mark of UTF-16, and advice for such a file. */
bool rks_bytes_are_utf16(const uint8_t *bytes, size_t size);
#define RKS_UTF16_ADVICE "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"

/* For rks_input_format.cut. Behind the other units; number and file_count 1 are set. */
rks_status rks_unit_add(rks_input *input, rks_input_unit unit, uint64_t unit_size, rks_error *err);
/* A file as a whole, if there is something in it. */
rks_status rks_unit_of_file(rks_input *input, size_t file, uint64_t unit_size, rks_error *err);
/* Bytes [begin, end) of a file. */
rks_status rks_unit_of_bytes(rks_input *input, size_t file, uint64_t begin, uint64_t end,
                             uint64_t unit_size, rks_error *err);
/* Each of them: a `cut`. */
rks_status rks_cut_by_file(rks_input *input, uint64_t unit_size, rks_error *err);
/* Too many units of this size. */
rks_status rks_too_many_units(uint64_t unit_size, rks_error *err);

#endif
