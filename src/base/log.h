/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: words for a person, on stderr. Nothing is both logged and returned as an error.
 * RKS_LOG=quiet|info|debug chooses; info is the default. */
#ifndef RKS_BASE_LOG_H
#define RKS_BASE_LOG_H

void rks_log(const char *format, ...) __attribute__((format(printf, 1, 2))); /* info */
void rks_log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
