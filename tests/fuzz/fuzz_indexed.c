/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_indexed.c: inputs of two files, of which one says what lies where in the other. The first
 * byte chooses:
 *   even  Megatron's: NAME.idx and NAME.bin
 *   odd   MDS: index.json and shard.mds
 * Then a byte of unit size (in 64 bytes), two of how many bytes the index has, the index, and the
 * other file. */
#include "fuzz_built.h"

#include <unistd.h>

#include "base/bytes.h"

static char folder[64], index_path[2][96], data_path[2][96];

static void remove_folder(void)
{
    for (int i = 0; i < 2; i++) {
        unlink(index_path[i]);
        unlink(data_path[i]);
    }
    rmdir(folder);
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/rks_fuzz_XXXXXX");
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    snprintf(index_path[0], sizeof(index_path[0]), "%s/m.idx", folder);
    snprintf(data_path[0], sizeof(data_path[0]), "%s/m.bin", folder);
    snprintf(index_path[1], sizeof(index_path[1]), "%s/index.json", folder);
    snprintf(data_path[1], sizeof(data_path[1]), "%s/shard.mds", folder);
    atexit(remove_folder);
}

static void write_file(const char *path, const uint8_t *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (folder[0] == '\0')
        make_folder();
    if (size < 4)
        return 0;
    long before = rks_memory_in_use();
    size_t kind = data[0] % 2, rest = size - 4, index = rks_load_u16(data + 2);
    index = index < rest ? index : rest;
    write_file(index_path[kind], data + 4, index);
    write_file(data_path[kind], data + 4 + index, rest - index);
    fuzz_build(kind == 0 ? index_path[0] : folder, kind == 0 ? "megatron" : "mds",
               (1 + (uint64_t)data[1]) << 6);
    FUZZ_CHECK(rks_memory_in_use() == before);
    return 0;
}
