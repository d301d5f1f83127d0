/* SPDX-License-Identifier: Apache-2.0
 *
 * apart.c: preloaded, it gives each process its own locks of files, as a file system does whose
 * locks hold within one host, to processes of different hosts. */
#include <dlfcn.h>
#include <sys/file.h>
#include <sys/stat.h>

int flock(int fd, int operation)
{
    struct stat info;
    int (*real)(int, int);
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        return 0;
    *(void **)&real = dlsym(RTLD_NEXT, "flock");
    return real(fd, operation);
}
