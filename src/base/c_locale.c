/* SPDX-License-Identifier: Apache-2.0
 *
 * c_locale.c: the C library's functions in a locale of the thread's own. */
#include "base/c_locale.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale; /* set once; the C library has it ready, and never fails to give it */

static void find_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double rks_strtod(const char *text, char **end)
{
    pthread_once(&once, find_c_locale);
    return strtod_l(text, end, c_locale);
}

int rks_vsnprintf(char *text, size_t room, const char *format, va_list arguments)
{
    pthread_once(&once, find_c_locale);
    locale_t before = uselocale(c_locale);
    int size = vsnprintf(text, room, format, arguments);
    uselocale(before);
    return size;
}

int rks_snprintf(char *text, size_t room, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = rks_vsnprintf(text, room, format, arguments);
    va_end(arguments);
    return size;
}

static char lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

bool rks_same_ascii(const char *a, const char *b)
{
    while (*a != '\0' && lower(*a) == lower(*b)) {
        a++;
        b++;
    }
    return *a == *b;
}
