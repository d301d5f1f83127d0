# SPDX-License-Identifier: Apache-2.0
"""Images and audio: stored as they are given, decoded when they are read."""
from __future__ import annotations

import io
import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import rankstore
from rankstore import Lists, Pad

PIL = pytest.importorskip("PIL.Image")
COUNT = 23


def pixels(i: int, height: int = 8, width: int = 6) -> Any:
    return numpy.random.default_rng(i).integers(0, 256, (height, width, 3), numpy.uint8)


def png(array: Any) -> bytes:
    made = io.BytesIO()
    PIL.fromarray(array).save(made, "PNG")
    return made.getvalue()


@pytest.fixture
def ds(tmp_path: Path) -> Iterator[rankstore.Dataset]:
    rows = [{"image": png(pixels(i)), "class": i % 3} for i in range(COUNT)]
    with rankstore.init("solo"), rankstore.build(rows, tmp_path / "store") as opened:
        yield opened


def test_bytes_stay_and_are_decoded_when_they_are_read(ds: rankstore.Dataset) -> None:
    decoded = ds.decode("image")
    for i in range(COUNT):
        assert ds[i]["image"] == png(pixels(i)) and numpy.array_equal(decoded[i]["image"], pixels(i))
        assert decoded[i]["image"].dtype == numpy.uint8 and decoded[i]["image"].flags.writeable and decoded[i]["class"] == i % 3
    assert numpy.array_equal(pickle.loads(pickle.dumps(decoded.select([4])))[0]["image"], pixels(4))
    plan = ds.plan(batch_size=5, seed=1)
    loaders = [ds.loader(plan, collate=Pad(), decode="image"), ds.loader(plan, collate=Pad(), decode={"image": "image"}, threads=3),
               ds.loader(plan, collate=Pad(), decode="image", processes=2), decoded.loader(plan, collate=Pad())]
    for loader in loaders:
        seen = []
        for batch in loader:
            assert list(batch) == ["image", "class"] and batch["image"].dtype == torch.uint8
            assert batch["image"].shape == (len(batch.ids), 8, 6, 3)
            assert all(numpy.array_equal(one, pixels(i)) for one, i in zip(batch["image"].numpy(), batch.ids, strict=True))
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(COUNT))


def test_columns_may_be_chosen_and_renamed(ds: rankstore.Dataset) -> None:
    plan = ds.plan(batch_size=5)
    for loader in (ds.loader(plan, collate=Pad(), decode="image", rename={"image": "x"}),
                   ds.decode("image").loader(plan, collate=Pad(), rename={"image": "x"})):
        batch = next(iter(loader))
        assert list(batch) == ["x", "class"] and numpy.array_equal(batch["x"][0], pixels(int(batch.ids[0])))
    assert list(next(iter(ds.loader(plan, collate=Pad(), decode="image", columns=["class"])))) == ["class"]


def test_decoding_comes_before_every_function(ds: rankstore.Dataset) -> None:
    def bright(sample: dict[str, Any]) -> dict[str, Any]:
        return {"mean": float(sample["image"].mean())}

    wanted = [float(pixels(i).mean()) for i in range(COUNT)]
    for one in (ds.decode("image").map(bright), ds.map(bright).decode("image")):
        assert [one[i]["mean"] for i in range(COUNT)] == wanted
    loader = ds.loader(ds.plan("sequential", batch_size=COUNT), collate=Pad(), decode="image", map=bright)
    assert next(iter(loader))["mean"].tolist() == wanted


def test_images_of_all_modes_and_sizes(tmp_path: Path) -> None:
    random = numpy.random.default_rng(2)
    grey = random.integers(0, 256, (5, 7), numpy.uint8)
    made = [PIL.fromarray(grey), PIL.fromarray(grey).convert("RGB"), PIL.fromarray(grey).convert("RGBA"), PIL.fromarray(grey).convert("LA"),
            PIL.fromarray(grey > 99), PIL.fromarray(grey).convert("P"), PIL.fromarray(pixels(1, 3, 9))]
    with rankstore.init("solo"), rankstore.build([{"image": one} for one in made], tmp_path / "store") as ds:
        assert ds.schema["image"].text == "bytes" and all(one["image"].startswith(b"\x89PNG") for one in ds)
        decoded = ds.decode({"image": "image"})
        for one, found in zip(made, decoded, strict=True):
            assert numpy.array_equal(found["image"], numpy.asarray(one.convert("RGB")))
        batch = next(iter(decoded.loader(decoded.plan("sequential", batch_size=7), collate=Lists())))
        assert [tuple(one.shape) for one in batch["image"]] == [(5, 7, 3)] * 6 + [(3, 9, 3)]
    for mode in ("CMYK", "F", "I"):
        with rankstore.init("solo"), pytest.raises(rankstore.DataError, match=f"PNG has no images of mode {mode}"):
            rankstore.build([{"image": PIL.new(mode, (2, 2))}], tmp_path / mode)


def test_paths_are_stored_as_their_files_and_counted_as_such(tmp_path: Path) -> None:
    paths = []
    for i in range(4):
        paths.append(tmp_path / f"{i}.jpg")
        PIL.fromarray(pixels(i)).save(paths[-1])
    rows = [{"image": path, "name": path.name} for path in paths]
    with rankstore.init("solo"):
        with rankstore.build(rows, tmp_path / "store") as ds:
            assert [one["image"] for one in ds] == [path.read_bytes() for path in paths]
            assert ds.decode("image")[2]["image"].shape == (8, 6, 3)
        rankstore.build(rows, tmp_path / "store").close()  # the same
        paths[1].write_bytes(b"other")
        with pytest.raises(rankstore.ArgumentError, match="the source"):
            rankstore.build(rows, tmp_path / "store")
        images = [{"image": PIL.fromarray(pixels(i))} for i in range(4)]
        rankstore.build(images, tmp_path / "images").close()
        images[2]["image"].putpixel((0, 0), (1, 2, 3))
        with pytest.raises(rankstore.ArgumentError, match="the source"):
            rankstore.build(images, tmp_path / "images")
        with pytest.raises(rankstore.DataError, match=r'column "image": .*none.jpg\' cannot be read: No such file or directory'):
            rankstore.build([{"image": tmp_path / "none.jpg"}], tmp_path / "missing")


def test_what_cannot_be_decoded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, Any]] = [{"k": str(i), "image": png(pixels(i)) if i != 3 else b"nothing", "deep": None, "n": 1} for i in range(6)]
    deep = io.BytesIO()
    PIL.fromarray(numpy.full((2, 2), 7000, numpy.uint16)).save(deep, "PNG")
    rows[4]["deep"] = deep.getvalue()
    with rankstore.init("solo"), rankstore.build(rows, tmp_path / "store", key="k") as ds:
        plan = ds.plan("sequential", batch_size=2)
        for how in ({}, {"processes": 1}):
            with pytest.raises(rankstore.CallbackError) as caught:
                list(ds.loader(plan, collate=Lists(missing="mask"), decode={"image": "image"}, **how))
            assert "rank 0: decode raised UnidentifiedImageError: cannot identify image file" in str(caught.value)
            assert str(caught.value).endswith("(epoch 0, step 1, sample '3')")
        deep_image = r"an image of mode I(;16)? has more than 8 bits a channel; decode it in map= \(sample '4'\)"
        with pytest.raises(rankstore.CallbackError, match=deep_image):
            ds.decode({"deep": "image"})[4]
        assert ds.decode({"deep": "image"})[0]["deep"] is None
        for wrong, says in (({"n": "image"}, "decode: column 'n' is int64, and encoded columns are bytes"),
                            ({"imag": "image"}, "decode: there is no column 'imag'; did you mean 'image'?"),
                            ({"image": "picture"}, "decode: 'picture' of column 'image' is neither 'image' nor 'audio'"),
                            (3, 'decode: "image", "audio", or a dict of them by column, not 3')):
            with pytest.raises(rankstore.ArgumentError, match=says):
                ds.decode(wrong)  # type: ignore[arg-type]
            with pytest.raises(rankstore.ArgumentError, match=says):
                ds.loader(plan, decode=wrong)  # type: ignore[arg-type]
        with pytest.raises(rankstore.ArgumentError, match="decode: column 'image' is decoded by ds.decode already"):
            ds.decode({"image": "image"}).loader(plan, decode={"image": "image"})
        with pytest.raises(rankstore.DataError, match=r"map: column \"x\": Image does not fit into a batch .*; return numpy.asarray"):
            list(ds.loader(plan, collate=Pad(), map=lambda sample: {"x": PIL.new("RGB", (2, 2))}))
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(rankstore.UnsupportedError, match="decode: 'image' needs pillow .*: pip install pillow"):
            ds.decode({"image": "image"})


def test_audio_is_frames_of_floats_with_their_rate(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    rows: list[dict[str, Any]] = []
    waves = [numpy.sin(numpy.arange(100 + 10 * i) * 2 * math.pi / 50)[:, None].repeat(1 + i % 2, 1) / 2 for i in range(6)]
    for i, wave in enumerate(waves):
        made = io.BytesIO()
        soundfile.write(made, wave, 8000 if i % 3 else 16000, format=("WAV", "FLAC")[i % 2], subtype="PCM_16")
        rows.append({"clip": made.getvalue(), "channels": 1 + i % 2})
    with rankstore.init("solo"), rankstore.build(rows, tmp_path / "store") as ds:
        decoded = ds.decode("audio")
        for i, sample in enumerate(decoded):
            assert sample["clip"].dtype == numpy.float32 and sample["clip"].shape == waves[i].shape
            assert abs(sample["clip"] - waves[i]).max() < 1e-4 and sample["clip_rate"] == (8000 if i % 3 else 16000)
        mono = decoded.select([0, 2, 4])
        for batch in mono.loader(mono.plan(batch_size=3), collate=Pad(lengths=["clip"])):
            assert batch["clip"].shape == (3, 140, 1)
            assert batch["clip_rate"].tolist() == [8000 if i % 3 else 16000 for i in batch.ids]
