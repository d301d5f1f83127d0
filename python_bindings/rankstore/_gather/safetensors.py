# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors files as a stream: u64 size of the header | JSON header, padded with spaces to a multiple of 8 | data.

The header comes first and holds the offset of each tensor, so all sizes must be known before the data.
"""
from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from ..errors import DataError

DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
          "uint64": "U64",
          "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
          "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2", "complex64": "C64"}
HEADER_MAX = 100_000_000  # bytes; readers accept no more


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


class SafetensorsWriter:
    """Writes the header; the caller then writes the tensors' data with `write`, in the order of `tensors`, and calls `end`."""

    def __init__(self, file: IO[bytes], tensors: Sequence[Tensor]) -> None:
        header: dict[str, Any] = {}
        at = 0
        for tensor in tensors:
            if tensor.dtype not in DTYPES:
                raise DataError(f"{tensor.name}: safetensors cannot store {tensor.dtype}; write .npz, or convert it")
            if tensor.name in header or tensor.name == "__metadata__":
                raise DataError(f"{tensor.name}: the file has a tensor of this name already, or the format reserves it; rename the result")
            header[tensor.name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                                   "data_offsets": [at, at + tensor.size]}
            at += tensor.size
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > HEADER_MAX:
            raise DataError(f"{len(header)} tensors make a header of {len(text)} bytes, but readers accept {HEADER_MAX}; "
                            "use stack=True or a directory")
        self._file = file
        self._left = at
        file.write(struct.pack("<Q", len(text)))
        file.write(text)

    def write(self, data: Any) -> None:
        self._left -= memoryview(data).nbytes
        self._file.write(data)

    def end(self) -> None:
        if self._left != 0:
            raise DataError(f"the tensors' data differs from their declared sizes by {-self._left} bytes")
