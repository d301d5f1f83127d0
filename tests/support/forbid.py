# SPDX-License-Identifier: Apache-2.0
"""Runs a command in which named system calls fail, as the filters of Docker, gVisor and snap make them:

    python3 forbid.py memfd_create=ENOSYS fallocate=EPERM -- rankstore doctor

The filter (seccomp) holds for all that the command starts, and ends with it. Exits with 77 if this machine cannot make one."""
import ctypes
import errno
import os
import platform
import sys

# Numbers by (x86_64, aarch64): the kernel's asm/unistd.h.
CALLS = {"memfd_create": (319, 279), "fallocate": (285, 47), "mincore": (27, 232), "madvise": (28, 233), "fadvise64": (221, 223),
         "preadv2": (327, 286), "sendfile": (40, 71), "copy_file_range": (326, 285), "renameat2": (316, 276), "eventfd2": (290, 19),
         "io_uring_setup": (425, 425), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "process_vm_readv": (310, 270),
         "userfaultfd": (323, 282), "flock": (73, 32), "sync_file_range": (277, 84), "sched_getaffinity": (204, 123),
         "setpriority": (141, 140), "faccessat2": (439, 439), "statx": (332, 291), "linkat": (265, 37), "close_range": (436, 436),
         "clone": (56, 220), "clone3": (435, 435)}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of CALLS, AUDIT_ARCH_*
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
ALLOW, FAIL = 0x7FFF0000, 0x00050000    # SECCOMP_RET_*
NUMBER, MACHINE = 0, 4                  # places in struct seccomp_data


class Instruction(ctypes.Structure):
    """struct sock_filter."""

    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32)]


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("count", ctypes.c_ushort), ("first", ctypes.POINTER(Instruction))]


def instructions(failing, audit):
    """`failing`: (number of a call, errno). Calls of another architecture's table pass."""
    made = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, audit), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, NUMBER)]
    for number, code in failing:
        made += [(EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL | code)]
    return [*made, (RETURN, 0, 0, ALLOW)]


def install(failing):
    """`failing`: {name of a call: name of an errno}, for this process and all that it starts. OSError: it cannot be done here."""
    column, audit = MACHINES.get(platform.machine(), (None, None))
    if column is None:
        raise OSError(errno.ENOSYS, f"numbers of system calls are not known for {platform.machine()}")
    code = instructions([(CALLS[name][column], getattr(errno, word)) for name, word in failing.items()], audit)
    program = Program(len(code), (Instruction * len(code))(*code))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0)):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main():
    end = sys.argv.index("--")
    try:
        install(dict(word.split("=") for word in sys.argv[1:end]))
    except OSError as why:
        print(f"no filter of system calls can be made here: {why}", file=sys.stderr)
        sys.exit(77)
    os.execvp(sys.argv[end + 1], sys.argv[end + 1:])


if __name__ == "__main__":
    main()
