/* SPDX-License-Identifier: Apache-2.0
 *
 * adopt.h: shards that this node has already, in another folder of its local directory: it built
 * the dataset there and published it, or a user copied it there.
 *
 *   LOCAL/speech/dataset.json   of the same dataset id
 *   LOCAL/speech/NAME.rks       becomes LOCAL/DATASET-ID/NAME.rks, too, by a hard link, with .sums
 *                               and .json
 *
 * A hard link takes no room and no time, and is safe: a sealed shard never changes. Each name can
 * be removed without the other, and arrivals write into no file that has two names
 * (home/arrival.h).
 *
 * Laws. A shard is taken only if its manifest is the one that the dataset names, its sums those of
 * the manifest, and its file as large as the manifest says: what is believed of a sealed shard
 * wherever it lies. Nobody knows what the folder is called in which a node has built a dataset, so
 * all are looked at; dataset.json, which may be large, is read only in one that has a file of a
 * shard's name. No symbolic link is followed below LOCAL. What cannot be linked, as on another
 * file system, comes from home. */
#ifndef RKS_STAGING_ADOPT_H
#define RKS_STAGING_ADOPT_H

#include "dataset/dataset.h"

/* How many folders are looked at. */
enum { RKS_ADOPT_FOLDERS = 1024 };

/* Links the shards of the dataset of which nothing is in LOCAL/FOLDER yet, from the folders
 * directly below LOCAL. A line says from where. Returns how many it has linked. Several processes
 * may do it at once. */
size_t rks_adopt_shards(const char *local, const char *folder, const rks_dataset *dataset);

#endif
