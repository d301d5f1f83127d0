/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: writes messages for a person to stderr. A problem is either logged or returned as an
 * error, never both. RKS_LOG=quiet|info|debug sets the level; the default is info. */
#ifndef RKS_BASE_LOG_H
#define RKS_BASE_LOG_H

/* printf into one line: "rankstore: ", the text, a newline. Longer than 1 KiB is cut; control
 * characters become '?'. */
void rks_log(const char *format, ...) __attribute__((format(printf, 1, 2))); /* level info */
void rks_log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
