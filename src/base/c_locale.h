/* SPDX-License-Identifier: Apache-2.0
 *
 * c_locale.h: numbers as text, with a point whatever locale the process has set. */
#ifndef RKS_BASE_C_LOCALE_H
#define RKS_BASE_C_LOCALE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* As strtod, snprintf and vsnprintf in the C locale. */
double rks_strtod(const char *text, char **end);
__attribute__((format(printf, 3, 4))) int rks_snprintf(char *text, size_t room, const char *format,
                                                       ...);
__attribute__((format(printf, 3, 0))) int rks_vsnprintf(char *text, size_t room, const char *format,
                                                        va_list arguments);

/* Compares without regard to the case of ASCII letters. */
bool rks_same_ascii(const char *a, const char *b);

#endif
