# SPDX-License-Identifier: Apache-2.0
"""safetensors files, written as a stream: u64 size of the header | header, JSON, padded with spaces to 8 | data.

The header comes first and says where each tensor lies, so all sizes must be known before the data.
"""
from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from .errors import DataError

DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
          "uint64": "U64",
          "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
          "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2", "complex64": "C64"}
HEADER_MAX = 100_000_000  # what readers take


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int


class SafetensorsWriter:
    """Data follows by `write` in the order of `tensors`."""

    def __init__(self, file: IO[bytes], tensors: Sequence[Tensor]) -> None:
        header: dict[str, Any] = {}
        at = 0
        for tensor in tensors:
            if tensor.dtype not in DTYPES:
                raise DataError(f"{tensor.name}: safetensors has no {tensor.dtype}")
            if tensor.name in header or tensor.name == "__metadata__":
                raise DataError(f"{tensor.name}: this name is taken in the file")
            header[tensor.name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                                   "data_offsets": [at, at + tensor.size]}
            at += tensor.size
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > HEADER_MAX:
            raise DataError(f"{len(header)} tensors make a header of {len(text)} bytes, readers take {HEADER_MAX}; use "
                            "stack=True or a directory")
        self._file = file
        self._left = at
        file.write(struct.pack("<Q", len(text)))
        file.write(text)

    def write(self, data: Any) -> None:
        self._left -= memoryview(data).nbytes
        self._file.write(data)

    def end(self) -> None:
        if self._left != 0:
            raise DataError(f"the tensors' data differs from their sizes by {-self._left} bytes")
