/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h: filling rks_error. The function that notices a problem calls rks_fail(); its
 * callers pass status and error on unchanged. */
#ifndef RKS_BASE_ERROR_H
#define RKS_BASE_ERROR_H

#include "rankstore/base.h"

/* Fills *err (which may be NULL) with status, cause and one line of text, and returns
 * status. Control characters in the text are shown as \xNN; a long text loses its middle. */
rks_status rks_fail(rks_error *err, rks_status status, int64_t cause, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same for a failed system call: appends ": " and the text of errno `error`. ENOMEM becomes
 * RKS_ERR_MEMORY, everything else RKS_ERR_IO. */
rks_status rks_fail_errno(rks_error *err, int error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Replaces control characters (C0, DEL, and C1 in UTF-8) by '?': text of others that goes to a
 * terminal. */
void rks_text_clean(char *text);
/* At most its last `most` bytes, from the beginning of a character on. */
const char *rks_text_end(const char *text, size_t most);
/* As many whole lines of `lines` as fit into `room` bytes, with a NUL; a first line that is too
 * long alone is cut, and ends with "...\n". */
void rks_text_lines(const void *lines, size_t size, char *text, size_t room);

/* Says on which rank and host an error happened, if that is not known yet. */
void rks_error_place(rks_error *err, uint32_t rank, const char *host);

/* An error that came from another process: clamps and terminates what it holds. */
void rks_error_sanitize(rks_error *err);

#endif
