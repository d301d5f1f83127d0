/* SPDX-License-Identifier: Apache-2.0
 *
 * helper_wire.h: what a rank and its helper say to each other: lines of at most RKS_HELPER_LINE
 * bytes, with a space between words, on a socket that is the helper's standard input and output.
 * Bytes of files do not go through it: they lie in memory that both have open, the helper as
 * descriptor 3, where AT counts its bytes.
 *
 *   rank                                          helper
 *   home 1 PID OPTIONS                        ►            the first line, of any length
 *                                             ◄   ready 1
 *                                             ◄   bad TEXT           it cannot serve this home
 *   get ID AT FIRST END VERSION NAME          ►            the file's bytes [FIRST, END), to AT
 *                                             ◄   at ID BYTES        come so far, each second
 *                                             ◄   ok ID BYTES VERSION SIZE
 *   stat ID VERSION NAME                      ►
 *                                             ◄   ok ID 0 VERSION SIZE
 *   put ID SIZE RULE VERSION NAME             ►            RULE: absent, same
 *                                             ◄   more ID            it waits for a part
 *   part ID AT BYTES                          ►            the next part of it is at AT
 *                                             ◄   more ID            AT is free again
 *                                             ◄   ok ID BYTES VERSION SIZE
 *   list ID PREFIX                            ►            it may be ""
 *                                             ◄   item ID SIZE AGE VERSION NAME
 *                                             ◄   ok ID 0 - 0
 *   tree ID PREFIX                            ►            the same, of inputs
 *                                             ◄   item ID SIZE AGE VERSION NAME
 *                                             ◄   ok ID 0 - 0
 *   remove ID VERSION NAME                    ►
 *                                             ◄   ok ID 0 - 0
 *   drop ID                                   ►            nobody waits for it
 *                                             ◄   fail ID KIND TEXT
 *
 * A request ends with `ok` or `fail`, one that was dropped soon. A prefix follows the last space.
 * Names in a `tree`, and what is read of it, have slashes, and lie in all folders below.
 *
 * OPTIONS is a JSON object: {"url": ..., "options": {...}}, with "inputs": true if no home is
 * meant, but objects to build from: then a URL of http is a web server. PID is the rank's: a helper
 * ends when its parent is another process, and at the end of its input. VERSION is a word, "-" for
 * any or none. A `get` beyond the file's end brings what is there, of which SIZE tells; its VERSION
 * is the one wanted, if one was. Requests run at the same time and end in any order, each with one
 * `ok` or `fail`. KIND: missing, changed (another version, or the rule does not hold), denied (it
 * would fail again), busy or busy=MS (the store wants fewer requests, for MS), broken, which any
 * other word means, too. */
#ifndef RKS_HOME_HELPER_WIRE_H
#define RKS_HOME_HELPER_WIRE_H

#include "base/buffer.h"
#include "home/home.h"

enum { RKS_HELPER_LINE = 2048, RKS_HELPER_NAME = 255, RKS_HELPER_TEXT = 600 };

enum rks_helper_word {
    RKS_HELPER_READY,
    RKS_HELPER_BAD,
    RKS_HELPER_AT,
    RKS_HELPER_OK,
    RKS_HELPER_MORE,
    RKS_HELPER_ITEM,
    RKS_HELPER_FAIL,
};

/* A line of the helper. What its word does not have is 0 or "". */
typedef struct rks_helper_line {
    enum rks_helper_word word;
    uint64_t id, bytes, size, age_s;
    enum rks_home_kind kind;
    uint32_t busy_ms;
    char version[RKS_HOME_VERSION]; /* "" for "-" */
    char name[RKS_OBJECT_NAME + 1];
    char text[RKS_HELPER_TEXT]; /* control characters are replaced */
} rks_helper_line;

/* Reads a line of `size` bytes, which may be any. Returns false if it is none of the above. */
bool rks_helper_read_line(const char *bytes, size_t size, rks_helper_line *line);

/* Refuses what cannot be the name of a file there: RKS_ERR_ARGUMENT. */
rks_status rks_helper_check_name(const char *name, rks_error *err);
/* Likewise, of an object of a store: slashes are fine. */
rks_status rks_helper_check_object(const char *name, rks_error *err);
/* "-" for "". */
const char *rks_helper_version(const char *version);

/* Appends the first line. `options`: a JSON object, or NULL. `inputs`: the files are inputs.
 * RKS_ERR_ARGUMENT if it is none. */
rks_status rks_helper_write_home(rks_buffer *to, const char *url, const char *options, bool inputs,
                                 rks_error *err);
/* Replaces by "***" what a text shows of the options' secrets: the values of six bytes or more
 * under names such as "secret_access_key", "sas_token" or "password". */
void rks_helper_hide(const char *options, char *text);

#endif
