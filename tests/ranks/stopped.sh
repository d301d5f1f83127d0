#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# stopped.sh PROGRAM MPIRUN...: rank 2 stops in the middle of an exchange; the other three must say
# so in time. mpirun itself then ends badly, as it does whenever a rank is gone.
program=$1
shift
directory=$(mktemp -d) || exit 1
"$@" "$program" "$directory" >"$directory/words" 2>&1
found=$(cd "$directory" && echo [0-9])
[ "$found" = "0 1 3" ] || cat "$directory/words"
rm -r "$directory"
echo "ranks that named the stopped one: $found"
[ "$found" = "0 1 3" ]
