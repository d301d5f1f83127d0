/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h: what an input format is. A new format is a file of its own with an rks_input_format,
 * and a row of the table in format.c.
 *
 * Found   A file's format is found by its name, else by its first 64 KiB; a folder's by its
 * contents,
 *         else it is "folder". The option `format` overrides both. All files of a build have one
 *         format. */
#ifndef RKS_INGEST_FORMAT_H
#define RKS_INGEST_FORMAT_H

#include "ingest/job.h"

enum { RKS_FORMAT_LOOK = 64 << 10 };

/* A schema is inferred from at most this many rows of a unit, and from rks_infer_bytes(). */
enum { RKS_INFER_ROWS = 1000, RKS_INFER_BYTES = 8 << 20 };
/* Returns how many bytes of a unit a schema is inferred from: RKS_INFER_BYTES of the first unit;
 * 1/32 of each other one, but at least 64 KiB. So the total stays a small part of a large input. */
uint64_t rks_infer_bytes(const rks_input *input, size_t unit);

/* Where the reader of a unit begins. */
enum rks_reads {
    RKS_READS_ANYWHERE, /* with no known byte */
    RKS_READS_ON,       /* with its first byte */
    RKS_READS_LINES,    /* with the byte before it, if there is one (lines.h) */
};

struct rks_input_format {
    const char *name; /* as in the option */
    const char *key;  /* the key column if the user names none and the column exists; NULL: keys are
                       * "name:row" */
    bool packable;    /* its files may be compressed (rks_unpack, rks_archive) */
    bool utf8;        /* its files are UTF-8 text */
    bool takes_columns; /* supports the option `columns` */
    bool has_objects;   /* its rows are JSON objects: supports the option `flatten` */
    enum rks_reads reads;
    bool named_only; /* rows have no keys: needs a key column */

    /* Returns true if a file's name (without folder) belongs to this format. NULL: decided by
     * content alone. */
    bool (*is_named)(const char *name);
    /* Returns the format of a file that has this format's name, by its first bytes (size > 0).
     * NULL: its name decides. */
    const rks_input_format *(*look_closer)(const uint8_t *bytes, size_t size);
    /* Returns true if a file that starts with these bytes is of this format (size > 0). `all` means
     * that the file ends there. NULL: decided by name alone. */
    bool (*looks_like)(const uint8_t *bytes, size_t size, bool all);
    /* Returns the file (rks_free) that a source stands for if there is no file of its name; else
     * NULL. */
    char *(*find_source)(const char *path);
    /* Returns true if this source folder is of this format. NULL: never without the option. */
    bool (*is_folder)(const char *path);

    /* Makes input->units in the order of the files, and sets their numbers. */
    rks_status (*cut)(rks_input *input, uint64_t unit_size, rks_error *err);
    /* Frees input->cut, if `cut` sets it. */
    void (*free_cut)(rks_input *input);
    /* Counts the rows of a unit, for later units of its file (first_of_file false). */
    rks_status (*count_rows)(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);
    /* Like rks_ingest_infer(). With skip_bad, skips what is too large or malformed. */
    rks_status (*infer)(const rks_input *input, size_t unit, char **schema_text, rks_error *err);
    /* Returns RKS_ERR_ARGUMENT for a schema that these files cannot fill. NULL: any schema will
     * do. */
    rks_status (*check_schema)(const rks_schema *schema, rks_error *err);
    /* Reads the job's unit; passes each row to rks_job_emit() and rks_job_row(). */
    rks_status (*read)(rks_job *job, rks_error *err);
};

extern const rks_input_format rks_format_jsonl, rks_format_text, rks_format_folder, rks_format_tar,
    rks_format_zip, rks_format_csv, rks_format_tsv, rks_format_npy, rks_format_megatron,
    rks_format_mds, rks_format_npz, rks_format_json, rks_format_raw;

/* Returns the format's place in the table; places never change. */
size_t rks_format_number(const rks_input_format *format);

/* Returns the path that a missing source stands for, in any format or in the one `asked` for; the
 * caller owns it. NULL if there is none. */
char *rks_format_find_source(const char *path, const char *asked);
/* Finds the format of all files of `list`, which came from `sources`; `asked` is the option, or
 * NULL. Sets the files' packing, and removes the endings that show it (".gz") from their names. */
rks_status rks_format_find(rks_found_list *list, const char *const *sources, const bool *folders,
                           size_t source_count, const char *asked, const rks_input_format **format,
                           rks_error *err);

/* Returns true if the name ends in `ending`, in upper or lower case, and has something before
 * it. */
bool rks_name_ends(const char *name, const char *ending);
/* Returns true for UTF-8 without NUL. If the bytes are not all, the last character may be cut. */
bool rks_bytes_are_text(const uint8_t *bytes, size_t size, bool all);

/* Detects a byte order mark of UTF-16; the macro is advice for such a file. */
bool rks_bytes_are_utf16(const uint8_t *bytes, size_t size);
#define RKS_UTF16_ADVICE "is UTF-16; convert it: iconv -f UTF-16 -t UTF-8"

/* Returns true if a file is read as a whole, from start to end: places to cut it could be found
 * only by reading it. */
static inline bool rks_file_is_whole(const rks_input_file *file)
{
    return file->packing != RKS_PACKING_NONE || file->store != NULL;
}

/* For rks_input_format.cut. Appends a unit; sets its number, and file_count to 1. */
rks_status rks_unit_add(rks_input *input, rks_input_unit unit, uint64_t unit_size, rks_error *err);
/* Appends a whole file as a unit, unless it is empty. */
rks_status rks_unit_of_file(rks_input *input, size_t file, uint64_t unit_size, rks_error *err);
/* Appends bytes [begin, end) of a file as a unit. */
rks_status rks_unit_of_bytes(rks_input *input, size_t file, uint64_t begin, uint64_t end,
                             uint64_t unit_size, rks_error *err);
/* A `cut` that makes each file one unit. */
rks_status rks_cut_by_file(rks_input *input, uint64_t unit_size, rks_error *err);
/* Fails: units of this size would be too many. */
rks_status rks_too_many_units(uint64_t unit_size, rks_error *err);

#endif
