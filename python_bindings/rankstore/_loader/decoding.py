# SPDX-License-Identifier: Apache-2.0
"""Decodes images and audio: bytes columns, which are stored as they are, become arrays when a sample is read."""
from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._batching.layouts import check_name
from .._schema.types import Column
from ..errors import ArgumentError, UnsupportedError


def _image(data: bytes) -> dict[str, Any]:
    import numpy
    from PIL import Image
    with Image.open(io.BytesIO(data)) as opened:
        if opened.mode == "F" or opened.mode.startswith("I"):
            raise ValueError(f"an image of mode {opened.mode} has more than 8 bits a channel; decode it in map=")
        return {"": numpy.array(opened if opened.mode == "RGB" else opened.convert("RGB"))}  # convert copies what is RGB already


def _audio(data: bytes) -> dict[str, Any]:
    import soundfile
    samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    return {"": samples, "_rate": int(rate)}


# encoding -> (the module and the package that decode it, what makes a column's values: by what follows the column's name)
ENCODINGS: dict[str, tuple[str, str, Callable[[bytes], dict[str, Any]]]] = {
    "image": ("PIL.Image", "pillow", _image), "audio": ("soundfile", "soundfile", _audio)}


class Decoder:
    """A function of a sample, before all others: columns -> their encodings."""

    what = "decode"

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = dict(columns)

    def __repr__(self) -> str:
        return f"decode({self.columns})"

    def renamed(self, rename: Mapping[str, str], chosen: Sequence[str]) -> Decoder:
        """Return the decoder of the chosen columns under their new names."""
        return Decoder({rename.get(name, name): encoding for name, encoding in self.columns.items() if name in chosen})

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        made = dict(sample)
        for name, encoding in self.columns.items():
            if made[name] is not None:
                made.update({name + ending: value for ending, value in ENCODINGS[encoding][2](made[name]).items()})
        return made


def decoder_of(decode: str | Mapping[str, str], schema: Mapping[str, Column], done: Sequence[Any] = ()) -> Decoder:
    """Return the Decoder for an option `decode`. done: functions of the dataset, of which some may be decoders.

    ArgumentError if it names no encoding, or a column that is not of bytes; UnsupportedError if a package is missing."""
    if isinstance(decode, str):
        decode = {name: decode for name, column in schema.items() if column.item == "bytes"}
        if not decode:
            raise ArgumentError("decode: the dataset has no column of bytes")
    if not isinstance(decode, Mapping):
        raise ArgumentError(f'decode: "image", "audio", or a dict of them by column, not {decode!r}')
    for name, encoding in decode.items():
        check_name("decode", name, schema, {})
        if schema[name].item != "bytes":
            raise ArgumentError(f"decode: column {name!r} is {schema[name].text}, and encoded columns are bytes")
        if encoding not in ENCODINGS:
            raise ArgumentError(f"decode: {encoding!r} of column {name!r} is neither 'image' nor 'audio'")
        if any(name in one.columns for one in done if isinstance(one, Decoder)):
            raise ArgumentError(f"decode: column {name!r} is decoded by ds.decode already")
        _need(encoding)
    return Decoder(decode)


def _need(encoding: str) -> None:
    from importlib import import_module
    module, package, _ = ENCODINGS[encoding]
    try:
        import_module(module)
    except ImportError as missing:
        raise UnsupportedError(f"decode: {encoding!r} needs {package} ({missing}): pip install {package}") from None
