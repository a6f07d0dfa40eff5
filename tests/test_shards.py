import gzip
import json
import shutil
import tracemalloc
from dataclasses import asdict, replace

import numpy as np
import pytest
import safetensors.numpy

from captcha_ocr.charset import Charset
from captcha_ocr.config import InputSize, Lengths
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.files import seal, sha256, to_json
from captcha_ocr.shards import (
    MANIFEST_FILE,
    Manifest,
    Shard,
    check_shards,
    decompress,
    read_manifest,
    read_shard,
    write_manifest,
    write_shard,
)

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 16), np.uint8)
LABELS = np.array([[0, 1], [1, 1], [1, 0]])
EMPTY = Manifest(
    charset=Charset("ab"),
    lengths=Lengths(2, 2),
    size=InputSize(8, 16, 1),
    source="images",
    labels=None,
    options={"seed": 0},
    inputs_sha256=sha256(b""),
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


def rewritten(folder, manifest, data, **changes):
    """The shard after its file became `data`, under a manifest that has the right sha256."""
    (folder / FILE).write_bytes(data)
    shard = replace(manifest.shards[0], sha256=sha256(data), **changes)
    write_manifest(folder, replace(manifest, shards=(shard,)))
    return read_manifest(folder), shard


def packed(**tensors):
    """The payload with some tensors replaced, or left out where None, and its gzip file."""
    tensors = {"images": IMAGES, "labels": LABELS.astype(np.int16), **tensors}
    payload = safetensors.numpy.save({name: value for name, value in tensors.items() if value is not None})
    return payload, gzip.compress(payload)


def test_images_and_labels_come_back_as_they_were(tmp_path, manifest):
    images, labels = read_shard(tmp_path, manifest, manifest.shards[0])
    assert np.array_equal(images, IMAGES)
    assert np.array_equal(labels, LABELS)


def test_equal_contents_give_equal_bytes(tmp_path):
    for number in (0, 1):
        write_shard(tmp_path / f"train-0000{number}.safetensors.gz", "train", IMAGES.copy(), LABELS.copy())
    first, second = sorted(tmp_path.iterdir())
    assert first.read_bytes() == second.read_bytes()


def test_a_shard_is_a_gzip_file_of_safetensors(tmp_path, manifest):
    tensors = safetensors.numpy.load(gzip.decompress((tmp_path / FILE).read_bytes()))
    assert {name: tensor.dtype.name for name, tensor in tensors.items()} == {"images": "uint8", "labels": "int16"}


def test_a_manifest_comes_back_as_it_was(tmp_path, manifest):
    assert read_manifest(tmp_path) == manifest


def test_counts_are_those_of_the_split(manifest):
    shard = manifest.shards[0]
    second, third = "train-00001.safetensors.gz", "val-00000.safetensors.gz"
    both = replace(
        manifest, shards=(shard, replace(shard, file=second, count=2), replace(shard, file=third, split="val", count=5))
    )
    assert [both.count(split) for split in ("train", "val", "test")] == [5, 5, 0]


def test_a_folder_without_a_manifest_is_unfinished(tmp_path, manifest):
    (tmp_path / MANIFEST_FILE).unlink()
    with pytest.raises(UsageError, match="captcha-ocr prepare"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"), [(b'"longest": 2', b'"longest": 3'), (b'"ab"', b'"ac"'), (b'"count": 3', b'"count": 4')]
)
def test_a_manifest_with_one_changed_character_is_refused(tmp_path, manifest, old, new):
    path = tmp_path / MANIFEST_FILE
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(DamagedError, match=MANIFEST_FILE):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": {"shortest": 0, "longest": 2}},
        {"lengths": 2},
        {"charset": {"characters": "aa", "fold": None}},
        {"charset": "ab"},
        {"size": {"height": 8, "width": 16}},
        {"size": {"height": 8, "width": 16, "channels": 2}},
        {"shards": [{"file": FILE}]},
        {"shards": None},
        {"version": 1},
        {"format": "captcha-ocr model"},
    ],
)
def test_a_sealed_manifest_that_makes_no_sense_is_refused(tmp_path, manifest, change):
    path = tmp_path / MANIFEST_FILE
    path.write_bytes(to_json(seal({**json.loads(path.read_bytes()), **change})))
    with pytest.raises(DamagedError):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../" + FILE},
        {"file": ""},
        {"split": "valid"},
        {"count": 0},
        {"count": 2.0},
        {"count": 1001},
        {"file": ".."},
        {"file": "train-00000.safetensors.gz\n"},
        {"sha256": None},
        {"payload_bytes": 0},
        {"payload_bytes": 2**31},
    ],
)
def test_a_manifest_cannot_list_a_shard_that_cannot_be(tmp_path, manifest, change):
    document = asdict(manifest.shards[0]) | change
    with pytest.raises(UsageError):
        replace(manifest, shards=(Shard(**document),))


def test_a_manifest_cannot_name_a_shard_twice(manifest):
    with pytest.raises(UsageError):
        replace(manifest, shards=manifest.shards * 2)


@pytest.mark.parametrize("place", [0, 10, -1])
def test_a_flipped_bit_in_a_shard_is_refused(tmp_path, manifest, place):
    data = bytearray((tmp_path / FILE).read_bytes())
    data[place] ^= 1
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, manifest, manifest.shards[0])


def test_a_shard_cut_short_is_refused(tmp_path, manifest):
    (tmp_path / FILE).write_bytes((tmp_path / FILE).read_bytes()[:-1])
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, manifest, manifest.shards[0])


def test_a_missing_shard_is_refused(tmp_path, manifest):
    (tmp_path / FILE).unlink()
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, manifest, manifest.shards[0])


@pytest.mark.parametrize("change_by", [-1, 1])
def test_a_payload_of_another_size_than_the_manifest_says_is_refused(tmp_path, manifest, change_by):
    payload, data = packed()
    lying, shard = rewritten(tmp_path, manifest, data, payload_bytes=len(payload) + change_by)
    with pytest.raises(DamagedError, match=str(len(payload) + change_by)):
        read_shard(tmp_path, lying, shard)


def test_a_gzip_bomb_is_not_unpacked(tmp_path):
    bomb = gzip.compress(bytes(50_000_000), 1)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="1000"):
            decompress(tmp_path / FILE, bomb, 1000)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("keep", [-1, -9, 20])
def test_a_gzip_file_cut_before_its_hash_was_taken_is_refused(tmp_path, manifest, keep):
    payload, data = packed()
    cut, shard = rewritten(tmp_path, manifest, data[:keep], payload_bytes=len(payload))
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, cut, shard)


def test_a_shard_that_is_no_gzip_file_is_refused(tmp_path, manifest):
    payload, _ = packed()
    bare, shard = rewritten(tmp_path, manifest, payload, payload_bytes=len(payload))
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, bare, shard)


def test_a_payload_that_is_no_safetensors_file_is_refused(tmp_path, manifest):
    other, shard = rewritten(tmp_path, manifest, gzip.compress(b"hello"), payload_bytes=5)
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, other, shard)


@pytest.mark.parametrize(
    "tensors",
    [
        {"labels": None},
        {"images": None},
        {"images": IMAGES[:2]},
        {"images": IMAGES.reshape(3, 1, 16, 8)},
        {"images": IMAGES.astype(np.float32)},
        {"labels": LABELS[:2].astype(np.int16)},
        {"labels": LABELS[:, :1].astype(np.int16)},
        {"labels": LABELS.astype(np.int64)},
    ],
    ids=["no labels", "no images", "fewer", "sides swapped", "float images", "fewer labels", "shorter", "wide labels"],
)
def test_other_arrays_than_the_manifest_names_are_refused(tmp_path, manifest, tensors):
    payload, data = packed(**tensors)
    other, shard = rewritten(tmp_path, manifest, data, payload_bytes=len(payload))
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, other, shard)


@pytest.mark.parametrize("class_id", [-1, 3])
def test_labels_outside_the_alphabet_are_refused(tmp_path, manifest, class_id):
    labels = LABELS.astype(np.int16)
    labels[2, 1] = class_id
    payload, data = packed(labels=labels)
    other, shard = rewritten(tmp_path, manifest, data, payload_bytes=len(payload))
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, other, shard)


@pytest.mark.parametrize("row", [[2, 2], [2, 0], [0, 2]], ids=["nothing", "a gap", "too short"])
def test_texts_of_a_length_that_the_manifest_does_not_name_are_refused(tmp_path, manifest, row):
    payload, data = packed(labels=np.array([[0, 1], row, [1, 0]], np.int16))
    other, shard = rewritten(tmp_path, manifest, data, payload_bytes=len(payload))
    with pytest.raises(DamagedError, match=FILE):
        read_shard(tmp_path, other, shard)


def test_texts_of_several_lengths_come_back(tmp_path):
    labels = np.array([[0, 1], [1, 2], [1, 0]])
    shard = write_shard(tmp_path / FILE, "train", IMAGES, labels)
    _, read = read_shard(tmp_path, replace(EMPTY, lengths=Lengths(1, 2), shards=(shard,)), shard)
    assert np.array_equal(read, labels)


def test_whole_shards_pass_the_check(shards):
    check_shards(shards, read_manifest(shards).shards)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_check_finds_a_flipped_bit_in_any_shard(shards, tmp_path, number):
    folder = shutil.copytree(shards, tmp_path / "shards")
    manifest = read_manifest(folder)
    path = folder / manifest.shards[number].file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=path.name):
        check_shards(folder, manifest.shards)
