/* SPDX-License-Identifier: Apache-2.0
 *
 * python_reader.h: what the Python package alone does: it reads Parquet and Arrow, and reaches
 * object stores. */
#ifndef CLI_PYTHON_READER_H
#define CLI_PYTHON_READER_H

#include "cli.h"

/* "parquet" or "arrow" if the format is that, or if a source is such a file by its name, or a
 * folder of nothing but such files; else NULL. */
const char *cli_python_format(const cli_list *sources, const char *format);

/* Goes on as the Python package's build of these sources, on `processes` ranks (0 or 1: this one).
 * Returns an exit code only if there is no Python to go on with. */
int cli_python_build(const cli_list *sources, const char *directory,
                     const rks_build_options *options, uint32_t copies, uint32_t processes,
                     bool json);

/* Names the Python package's helper as the program that reaches object stores. */
void cli_use_store_helper(void);

#endif
