/* SPDX-License-Identifier: Apache-2.0
 *
 * member_ending.h: what a column's values are called as members of an archive: NAME.ENDING. The
 * ending says how to read the member, as WebDataset does:
 *
 *   str   .txt     json  .json     an integer  .cls, decimal     bytes  the column's name
 *   other numbers and arrays  .npy
 *
 * A column whose name ends so keeps it as its ending ("wav", "json", "seg.png"); else the ending
 * comes behind it ("text.txt"). What is no letter, digit or one of _-+,=@:~ and space, and a dot in
 * front, is %XX. A reader that has a schema finds its columns by these endings. */
#ifndef RKS_CODEC_MEMBER_ENDING_H
#define RKS_CODEC_MEMBER_ENDING_H

#include "base/buffer.h"
#include "shard/schema.h"

enum { RKS_MEMBER_ENDING_MAX = 255 };

/* Members with these endings hold the key of their sample, where its name cannot. */
#define RKS_MEMBER_KEY_TEXT "__key__.txt"
#define RKS_MEMBER_KEY_BYTES "__key__.bin"

/* "txt", "json", "cls", "npy" or "bin". */
const char *rks_member_type_of(const rks_column *column);
/* Appends the column's ending, and a NUL that size does not count. It may be longer than
 * RKS_MEMBER_ENDING_MAX, and is refused by readers then. */
rks_status rks_member_ending_of(const rks_column *column, rks_buffer *ending, rks_error *err);
/* The same without the type's ending: as arrays of a .npz are named. */
rks_status rks_member_escape(const char *column, rks_buffer *name, rks_error *err);
bool rks_member_holds_key(const char *ending);

/* "png" of "seg.png". */
const char *rks_member_ending(const char *column);

#endif
