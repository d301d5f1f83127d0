/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h: fills rks_error. The function that notices a problem calls rks_fail(); its callers pass
 * status and error on unchanged. */
#ifndef RKS_BASE_ERROR_H
#define RKS_BASE_ERROR_H

#include "rankstore/base.h"

/* Fills *err (which may be NULL) with status, cause and one line of text, and returns status. Shows
 * control characters as \xNN. Cuts the middle out of a text that is too long. */
rks_status rks_fail(rks_error *err, rks_status status, int64_t cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Does the same for a failed system call: appends ": " and the text of errno `error`. ENOMEM
 * becomes RKS_ERR_MEMORY, everything else RKS_ERR_IO. */
rks_status rks_fail_errno(rks_error *err, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Replaces control characters (C0, DEL, and C1 in UTF-8) by '?'. Use it on text from other
 * processes before it goes to a terminal. */
void rks_text_clean(char *text);
enum { RKS_SHOWN_MAX = 40, RKS_SHOWN_ROOM = 4 * RKS_SHOWN_MAX + 4 };
/* Writes bytes that may hold NULs, such as a key, as text for a message: NULs as \x00, and "..."
 * after the first RKS_SHOWN_MAX bytes if there are more. Returns `text`. */
const char *rks_text_shown(const void *bytes, size_t size, char text[RKS_SHOWN_ROOM]);
/* Returns the end of `text`: at most its last `most` bytes, starting at a whole UTF-8 character. */
const char *rks_text_end(const char *text, size_t most);
/* Copies as many whole lines of `lines` as fit into `room` bytes, with a NUL. If even the first
 * line is too long, cuts it and ends it with "...\n". */
void rks_text_lines(const void *lines, size_t size, char *text, size_t room);

/* Sets the rank and host where an error happened, if they are not known yet. */
void rks_error_place(rks_error *err, uint32_t rank, const char *host);

/* Makes an error that came from another process safe to use: clamps its numbers, terminates and
 * cleans its texts. */
void rks_error_sanitize(rks_error *err);

#endif
