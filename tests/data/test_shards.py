import gzip
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import safetensors.numpy
from conftest import amend

from captcha_ocr.charset import Charset
from captcha_ocr.data.shards import (
    MANIFEST_FILE,
    Dataset,
    Manifest,
    Shard,
    read_manifest,
    read_shard,
    write_manifest,
    write_shard,
)
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import sha256

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 16), np.uint8)
LABELS = np.array([[0, 1], [1, 1], [1, 0]], np.int16)
EMPTY = Manifest(
    Charset("ab"),
    Lengths(2, 2),
    InputSize(8, 16, 1),
    "images",
    None,
    {"seed": 0},
    sha256(b""),
    left_out=0,
)
FILE = "train-00000.safetensors.gz"


@pytest.fixture
def manifest(tmp_path):
    """The manifest of a folder, tmp_path, with one shard of three images."""
    shard = write_shard(tmp_path / FILE, "train", IMAGES, LABELS)
    manifest = replace(EMPTY, shards=(shard,))
    write_manifest(tmp_path, manifest)
    return manifest


def payload_of(**tensors):
    """The payload of a shard with some tensors replaced, or left out where None."""
    tensors = {"images": IMAGES, "labels": LABELS, **tensors}
    return safetensors.numpy.save(
        {name: value for name, value in tensors.items() if value is not None}
    )


@pytest.mark.parametrize(
    ("shortest", "labels"), [(2, LABELS), (1, np.array([[0, 1], [1, 2], [1, 0]]))]
)
def test_images_and_labels_come_back_as_they_were(tmp_path, shortest, labels):
    shard = write_shard(tmp_path / FILE, "train", IMAGES, labels)
    manifest = replace(EMPTY, lengths=Lengths(shortest, 2), shards=(shard,))
    for read, written in zip(read_shard(tmp_path, manifest, shard), (IMAGES, labels), strict=True):
        assert np.array_equal(read, written)


def test_a_shard_is_a_gzip_file_of_safetensors_and_equal_contents_give_equal_bytes(
    tmp_path, manifest
):
    data = (tmp_path / FILE).read_bytes()
    tensors = safetensors.numpy.load(gzip.decompress(data))
    types = {name: tensor.dtype.name for name, tensor in tensors.items()}
    assert types == {"images": "uint8", "labels": "int16"}
    write_shard(tmp_path / "train-00001.safetensors.gz", "train", IMAGES.copy(), LABELS.copy())
    assert (tmp_path / "train-00001.safetensors.gz").read_bytes() == data


def test_a_manifest_comes_back_with_the_counts_of_its_splits(tmp_path, manifest):
    (shard,) = manifest.shards
    second = replace(shard, file="train-00001.safetensors.gz", count=2)
    third = replace(shard, file="val-00000.safetensors.gz", split="val", count=5)
    manifest = replace(manifest, shards=(shard, second, third))
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert [manifest.count(split) for split in ("train", "val", "test")] == [5, 5, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": {"shortest": 0, "longest": 2}},
        {"charset": {"characters": "aa", "fold": None}},
        {"size": {"height": 8, "width": 16}},
        {"size": {"height": 8, "width": 16, "channels": 2}},
        {"shards": [{"file": FILE}]},
        {"version": 1},
        {"format": "captcha-ocr model"},
    ],
)
def test_a_sealed_manifest_with_an_impossible_value_is_refused(tmp_path, manifest, change):
    amend(tmp_path / MANIFEST_FILE, **change)
    with pytest.raises(DamagedError):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        *({"file": file} for file in ("../" + FILE, "", "..", FILE + "\n")),
        *({"count": count} for count in (0, 2.0, 1001)),
        *({"payload_bytes": size} for size in (0, 2**31)),
        {"split": "valid"},
        {"sha256": None},
    ],
)
def test_a_manifest_cannot_list_a_shard_that_cannot_be(manifest, change):
    document = asdict(manifest.shards[0]) | change
    with pytest.raises(UsageError):
        replace(manifest, shards=(Shard(**document),))


def test_a_manifest_of_an_older_version_is_read_and_what_is_for_people_changes_no_hash(
    manifest, tmp_path
):
    newer = replace(manifest, corrections="fix.csv", reasons=("a.png: damaged",), copies=3)
    write_manifest(tmp_path, newer)
    assert read_manifest(tmp_path) == newer
    content = json.loads((tmp_path / MANIFEST_FILE).read_bytes())
    older = {
        name: value
        for name, value in content.items()
        if name not in ("corrections", "reasons", "copies")
    }
    (tmp_path / MANIFEST_FILE).write_bytes(sealed(older))
    assert read_manifest(tmp_path) == manifest
    assert Dataset((tmp_path,), (newer,)).sha256 == Dataset((tmp_path,), (manifest,)).sha256


PAYLOAD = payload_of()
DATA, SIZE = gzip.compress(PAYLOAD), len(PAYLOAD)
PAYLOADS = {
    "no labels": payload_of(labels=None),
    "no images": payload_of(images=None),
    "fewer images": payload_of(images=IMAGES[:2]),
    "sides swapped": payload_of(images=IMAGES.reshape(3, 1, 16, 8)),
    "float images": payload_of(images=IMAGES.astype(np.float32)),
    "shorter labels": payload_of(labels=LABELS[:, :1]),
    "wide labels": payload_of(labels=LABELS.astype(np.int64)),
    "a class below 0": payload_of(labels=LABELS - np.int16(1)),
    "a class above all": payload_of(labels=LABELS + np.int16(2)),
    "an empty text": payload_of(labels=np.array([[0, 1], [2, 2], [1, 0]], np.int16)),
    "a gap in a text": payload_of(labels=np.array([[0, 1], [2, 0], [1, 0]], np.int16)),
    "no safetensors": b"hello",
}
FILES = {
    "a payload that is larger than the manifest says": (DATA, SIZE - 1),
    "a payload that is smaller": (DATA, SIZE + 1),
    "gzip without its last byte": (DATA[:-1], SIZE),
    "gzip without its end": (DATA[:-9], SIZE),
    "the first bytes of gzip": (DATA[:20], SIZE),
    "gzip with a flipped bit in its header": (bytes([DATA[0] ^ 1]) + DATA[1:], SIZE),
    "no gzip": (PAYLOAD, SIZE),
    **{name: (gzip.compress(payload), len(payload)) for name, payload in PAYLOADS.items()},
}


@pytest.mark.parametrize("name", FILES)
def test_a_shard_of_the_right_hash_that_the_manifest_does_not_describe_is_refused(
    tmp_path, manifest, name
):
    data, payload_bytes = FILES[name]
    (tmp_path / FILE).write_bytes(data)
    shard = replace(manifest.shards[0], sha256=sha256(data), payload_bytes=payload_bytes)
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, replace(manifest, lengths=Lengths(1, 2), shards=(shard,)), shard)
