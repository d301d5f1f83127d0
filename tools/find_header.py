#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the folder where a header of CUDA or NCCL lies, or nothing: a CUDA Toolkit, else NVIDIA's Python packages beside this
interpreter (nvidia-nccl-*, nvidia-cuda-runtime, nvidia-cuda-crt). Called by meson.build.

Usage: tools/find_header.py HEADER
"""
import glob
import os
import sys
import sysconfig


def folders():
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            yield os.path.join(os.environ[name], "include")
    yield "/usr/local/cuda/include"
    site = sysconfig.get_path("purelib")
    yield from sorted(glob.glob(os.path.join(site, "nvidia", "*", "include")), reverse=True)


def main():
    for folder in folders():
        if os.path.exists(os.path.join(folder, sys.argv[1])):
            print(folder)
            return


if __name__ == "__main__":
    main()
