/* SPDX-License-Identifier: Apache-2.0
 *
 * member_suffix.h: the names of a column's values as members of an archive: NAME.ENDING. The ending
 * says how to read the member, as in WebDataset:
 *
 *   str   .txt     json  .json     an integer  .cls, decimal     bytes  the column's name
 *   other numbers and arrays  .npy
 *
 * A column whose name ends in this way keeps its name as the ending ("wav", "json", "seg.png").
 * Otherwise the ending follows the name ("text.txt"). Characters other than letters, digits and
 * _-+,=@:~ and space become %XX, and so does a leading dot. A reader that has a schema finds its
 * columns by these endings. */
#ifndef RKS_CODEC_MEMBER_SUFFIX_H
#define RKS_CODEC_MEMBER_SUFFIX_H

#include "base/buffer.h"
#include "shard/schema.h"

enum { RKS_MEMBER_ENDING_MAX = 255 };

/* Members with these endings hold their sample's key, if the member's name cannot. */
#define RKS_MEMBER_KEY_TEXT "__key__.txt"
#define RKS_MEMBER_KEY_BYTES "__key__.bin"

/* Returns "txt", "json", "cls", "npy" or "bin". */
const char *rks_member_type_of(const rks_column *column);
/* Appends the column's ending, and a NUL that `size` does not count. It may be longer than
 * RKS_MEMBER_ENDING_MAX; then readers refuse it. */
rks_status rks_member_ending_of(const rks_column *column, rks_buffer *ending, rks_error *err);
/* Does the same without the type's ending: names arrays of a .npz. */
rks_status rks_member_escape(const char *column, rks_buffer *name, rks_error *err);
bool rks_member_holds_key(const char *ending);

/* Returns the part after the last dot: "png" of "seg.png". */
const char *rks_member_ending(const char *column);

#endif
