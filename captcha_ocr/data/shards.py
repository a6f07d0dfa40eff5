"""The shard files and the manifest that lists them.

A shard is a gzip file of a safetensors payload with `images`, (N, C, H, W) uint8, and `labels`,
(N, L) int16 class ids, the places after a text's end holding the number of characters in the alphabet. The manifest is
written last: a folder without one is unfinished.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from captcha_ocr.charset import Charset
from captcha_ocr.config import SPLITS, InputSize, Lengths, Split
from captcha_ocr.errors import DamagedError, UsageError, check, is_int
from captcha_ocr.system.documents import read_sealed, sealed
from captcha_ocr.system.files import read_checked, sha256, write_atomic

SAMPLES_PER_SHARD = 1000
MANIFEST_FILE = "manifest.json"
SHARD_FILE = re.compile(r"(train|val|test)-\d{5,9}\.safetensors\.gz")
HEADER_BYTES = 10_000  # of a payload, at most, beside its arrays
MANIFEST_FORMAT, MANIFEST_VERSION = "captcha-ocr shards", 2
GZIP_LEVEL = 1  # level 9 takes 15 times as long for 6 % less


@dataclass(frozen=True)
class Shard:
    """One shard file: `payload_bytes` is its size once decompressed, and the bound on reading it."""

    file: str
    split: Split
    count: int
    sha256: str
    payload_bytes: int

    def __post_init__(self) -> None:
        check(self.split in SPLITS, f"unknown split {self.split!r}")
        check(bool(SHARD_FILE.fullmatch(self.file)), f"{self.file!r} is no shard's name")
        check(is_int(self.count, 1, SAMPLES_PER_SHARD), f"{self.file} cannot hold {self.count} samples")
        check(isinstance(self.sha256, str), f"the sha256 of {self.file} is no text")


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds. `options` and `inputs_sha256` tell one preparation from another.

    source, labels: the folder of images and the labels file that were named, for people.
    """

    charset: Charset
    lengths: Lengths
    size: InputSize
    source: str
    labels: str | None
    options: dict[str, Any]
    inputs_sha256: str
    left_out: int
    shards: tuple[Shard, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        texts = (self.source, self.inputs_sha256, self.labels or "")
        check(all(isinstance(text, str) for text in texts), "source, labels and inputs_sha256 must be texts")
        check(isinstance(self.options, dict) and is_int(self.left_out, 0, 10**12), "options or left_out is malformed")
        size = self.size.channels * self.size.height * self.size.width + 2 * self.lengths.longest  # bytes a sample
        for shard in self.shards:
            most = shard.count * size + HEADER_BYTES
            check(is_int(shard.payload_bytes, 1, most), f"{shard.file} cannot have {shard.payload_bytes} bytes")
        check(len({shard.file for shard in self.shards}) == len(self.shards), "a shard is named twice")

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON types."""
        return {**asdict(self), "charset": self.charset.to_dict()}

    def of_split(self, split: Split) -> tuple[Shard, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)

    def count(self, split: Split) -> int:
        """The number of samples in one split."""
        return sum(shard.count for shard in self.of_split(split))


class ShardRef(NamedTuple):
    """A shard and its folder."""

    folder: Path
    manifest: Manifest
    shard: Shard


@dataclass(frozen=True)
class Dataset:
    """One or several folders of shards that are trained on as one: alike in alphabet, length and size."""

    folders: tuple[Path, ...]
    manifests: tuple[Manifest, ...]

    def __post_init__(self) -> None:
        for folder, manifest in zip(self.folders[1:], self.manifests[1:], strict=True):
            for name, word in (("charset", "alphabet"), ("lengths", "text length"), ("size", "input size")):
                ours, other = getattr(self, name), getattr(manifest, name)
                check(
                    ours == other, f"{folder} does not go with {self.folders[0]}: its {word} is {other}, there {ours}"
                )
        holders: dict[str, int] = {}  # of the same inputs, which may be split otherwise, or of the same shard
        for number, (folder, manifest) in enumerate(zip(self.folders, self.manifests, strict=True)):
            for content in (manifest.inputs_sha256, *(shard.sha256 for shard in manifest.shards)):
                first = holders.setdefault(content, number)
                check(first == number, f"{folder} holds the same images as {self.folders[first]}; name one of them")

    @property
    def charset(self) -> Charset:
        """The alphabet of the labels."""
        return self.manifests[0].charset

    @property
    def lengths(self) -> Lengths:
        """How many characters the texts have."""
        return self.manifests[0].lengths

    @property
    def size(self) -> InputSize:
        """The size of the images."""
        return self.manifests[0].size

    @property
    def name(self) -> str:
        """The folders, for people."""
        return ", ".join(map(str, self.folders))

    def of_split(self, split: Split) -> list[ShardRef]:
        """The shards of one split, folder by folder."""
        folders = zip(self.folders, self.manifests, strict=True)
        return [ShardRef(folder, manifest, shard) for folder, manifest in folders for shard in manifest.of_split(split)]

    def count(self, split: Split) -> int:
        """The number of samples in one split."""
        return sum(manifest.count(split) for manifest in self.manifests)


def read_dataset(folders: Iterable[Path]) -> Dataset:
    """Read and check the manifests of some folders; errors as `read_manifest`, and UsageError if they differ."""
    folders = tuple(folders)
    return Dataset(folders, tuple(read_manifest(folder) for folder in folders))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json: with it the folder is finished."""
    document = {"format": MANIFEST_FORMAT, "version": MANIFEST_VERSION, **manifest.to_dict()}
    write_atomic(folder / MANIFEST_FILE, sealed(document))


def read_manifest(folder: Path) -> Manifest:
    """Read and check manifest.json; UsageError where there is none, DamagedError where it is not whole."""
    path = folder / MANIFEST_FILE
    if not path.exists() and (folder / "fold-1" / MANIFEST_FILE).exists():
        raise UsageError(f"{folder} holds folds; train --cross-validate takes all of them, --data {folder}/fold-1 one")
    if not path.exists():
        raise UsageError(f"{folder} holds no finished shards; make them with: captcha-ocr prepare")
    document = read_sealed(path, MANIFEST_FORMAT, MANIFEST_VERSION)
    try:
        return Manifest(
            charset=Charset.from_dict(document["charset"]),
            lengths=Lengths(**document["lengths"]),
            size=InputSize(**document["size"]),
            source=document["source"],
            labels=document["labels"],
            options=document["options"],
            inputs_sha256=document["inputs_sha256"],
            left_out=document["left_out"],
            shards=tuple(Shard(**shard) for shard in document["shards"]),
        )
    except (KeyError, TypeError, UsageError) as error:
        raise DamagedError(f"{path} is malformed ({error})") from None


def write_shard(path: Path, split: Split, images: np.ndarray, labels: np.ndarray) -> Shard:
    """Write (N, C, H, W) uint8 images and (N, L) labels; equal contents give equal bytes."""
    payload = safetensors.numpy.save({"images": images, "labels": labels.astype(np.int16)})
    data = zlib.compress(payload, GZIP_LEVEL, wbits=31)  # gzip, without time or name, alike in every Python
    write_atomic(path, data)
    return Shard(path.name, split, len(images), sha256(data), len(payload))


def read_shard(folder: Path, manifest: Manifest, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of a shard; DamagedError unless they are what the manifest says."""
    path = folder / shard.file
    payload = decompress(path, read_checked(path, shard.sha256, most_compressed(shard)), shard.payload_bytes)
    size = manifest.size
    image_shape = (shard.count, size.channels, size.height, size.width)
    try:
        tensors = safetensors.numpy.load(payload)
        images, labels = tensors["images"], tensors["labels"]
    except (SafetensorError, KeyError, ValueError) as error:  # the last are numpy's, of shapes that no array has
        raise DamagedError(f"{path} does not hold images and labels ({error})") from None
    fits = images.shape == image_shape and labels.shape == (shard.count, manifest.lengths.longest)
    if not fits or images.dtype != np.uint8 or labels.dtype != np.int16:
        raise DamagedError(f"{path} does not hold the arrays that the manifest names")
    check_labels(path, labels, manifest)
    return images, labels


def check_labels(path: Path, labels: np.ndarray, manifest: Manifest) -> None:
    """Refuse labels (N, L) that no loss may see: outside the alphabet, of another length, or with a gap."""
    characters = labels < len(manifest.charset)
    if labels.min() < 0 or labels.max() > len(manifest.charset):
        raise DamagedError(f"{path} holds labels outside the alphabet")
    lengths = characters.sum(1)
    gaps = bool((characters[:, 1:] & ~characters[:, :-1]).any())
    if gaps or lengths.min() < manifest.lengths.shortest:
        raise DamagedError(f"{path} holds texts that have not {manifest.lengths} characters")


def decompress(path: Path, data: bytes, payload_bytes: int) -> bytes:
    """Decompress one gzip member, never past `payload_bytes`."""
    stream = zlib.decompressobj(wbits=31)
    try:
        payload = stream.decompress(data, payload_bytes + 1)
    except zlib.error as error:
        raise DamagedError(f"{path} is no gzip file ({error})") from None
    if len(payload) != payload_bytes or not stream.eof:
        raise DamagedError(f"{path} does not decompress to the {payload_bytes} bytes that the manifest names")
    return payload


def most_compressed(shard: Shard) -> int:
    """How many bytes a shard's file can have: what gzip makes of chance is a little more than it was."""
    return shard.payload_bytes + shard.payload_bytes // 1000 + 1000


def check_shards(folder: Path, shards: Iterable[Shard]) -> None:
    """Raise DamagedError unless each of these shard files has the manifest's sha256."""
    for shard in shards:
        read_checked(folder / shard.file, shard.sha256, most_compressed(shard))


def check_shard_refs(refs: Iterable[ShardRef]) -> None:
    """As `check_shards`, for shards of several folders."""
    for folder, _, shard in refs:
        check_shards(folder, [shard])
