"""The shard files and the manifest that lists them.

A shard is a gzip file of a safetensors payload with `images`, (N, C, H, W) uint8, and `labels`, (N,
L) int16 class ids; positions after a text's end hold the number of characters in the alphabet. The
manifest is written last, so a folder without one is unfinished.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from captcha_ocr.charset import Charset, how_they_differ
from captcha_ocr.data.images import find_images
from captcha_ocr.errors import Advice, Command, DamagedError, UsageError, check, is_int
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import SPLITS, Split
from captcha_ocr.system.documents import read_sealed, sealed, to_json
from captcha_ocr.system.files import read_checked, sha256, write_atomic

SAMPLES_PER_SHARD = 1000
MANIFEST_FILE = "manifest.json"
SHARD_FILE = re.compile(r"(train|val|test)-\d{5,9}\.safetensors\.gz")
_MAX_HEADER_BYTES = 10_000  # of a payload, in addition to its arrays
MANIFEST_FORMAT, _MANIFEST_VERSION = "captcha-ocr shards", 2
_NEWER_FIELDS = ("corrections", "reasons", "copies")  # of a manifest
# What the folders of a data set have in common, in words
_COMMON = {"charset": "alphabet", "lengths": "text length", "size": "input size"}
_GZIP_LEVEL = 1  # level 9 takes 15 times as long for 6 % less


@dataclass(frozen=True)
class Shard:
    """One shard file; `payload_bytes` is its decompressed size, which no reader exceeds."""

    file: str
    split: Split
    count: int
    sha256: str
    payload_bytes: int

    def __post_init__(self) -> None:
        has_name = SHARD_FILE.fullmatch(self.file) is not None and self.split in SPLITS
        has_content = is_int(self.count, 1, SAMPLES_PER_SHARD) and isinstance(self.sha256, str)
        check(has_name and has_content, f"{self.file!r} cannot be a shard as it is described")

    @property
    def max_bytes(self) -> int:
        """The maximum size of the file: gzip makes random bytes a little longer."""
        return self.payload_bytes + self.payload_bytes // 1000 + 1000


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of shards; `options` and `inputs_sha256` identify the preparation.

    Its attributes are the keys of the JSON document.
    source, labels, corrections: the folder of images and the tables that were given, for people.
    reasons, copies: why files are left out, a line for each reason, and how many identical
    images, for people. Manifests of older versions lack corrections, reasons and copies.
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
    corrections: str | None = None
    reasons: tuple[str, ...] = ()
    copies: int = 0

    def __post_init__(self) -> None:
        texts = [self.source, self.inputs_sha256, self.labels or "", self.corrections or ""]
        are_texts = all(isinstance(text, str) for text in [*texts, *self.reasons])
        are_counts = is_int(self.left_out, 0, 10**12) and is_int(self.copies, 0, 10**12)
        has_types = are_texts and are_counts and isinstance(self.options, dict)
        check(has_types, "a text, a number or the options are malformed")
        # Bytes a sample
        size = self.size.channels * self.size.height * self.size.width + 2 * self.lengths.longest
        for shard in self.shards:
            check(
                is_int(shard.payload_bytes, 1, shard.count * size + _MAX_HEADER_BYTES),
                f"{shard.file} cannot have {shard.payload_bytes} bytes",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON types.

        Without newer fields that are empty, so that older hashes are the same.
        """
        document = {**asdict(self), "charset": self.charset.to_dict(), "size": self.size.to_dict()}
        return {
            name: value for name, value in document.items() if value or name not in _NEWER_FIELDS
        }

    @property
    def content(self) -> "Manifest":
        """The manifest without what is only for people, which does not distinguish shards."""
        return replace(self, source="", labels="", corrections=None, reasons=(), copies=0)

    def count(self, split: Split) -> int:
        """Return the number of samples in one split."""
        return sum(shard.count for shard in self.shards if shard.split == split)


class ShardRef(NamedTuple):
    """A shard and its folder."""

    folder: Path
    manifest: Manifest
    shard: Shard


@dataclass(frozen=True)
class Dataset:
    """One or more folders of shards that are used as one data set.

    They have one alphabet, text length and size.
    """

    folders: tuple[Path, ...]
    manifests: tuple[Manifest, ...]

    def __post_init__(self) -> None:
        number_of: dict[str, int] = {}
        for number, (folder, manifest) in enumerate(zip(self.folders, self.manifests, strict=True)):
            for name, word in _COMMON.items():
                first, here = getattr(self, name), getattr(manifest, name)
                check(
                    first == here,
                    f"the {word} is {first} in {self.folders[0]} and {here} in {folder}"
                    f"{how_they_differ(str(first), str(here))}; "
                    "name folders in which it is the same",
                )
            # By the hash of the inputs, which may be split in two ways, or of a shard
            for content in (manifest.inputs_sha256, *(shard.sha256 for shard in manifest.shards)):
                other = number_of.setdefault(content, number)
                check(
                    other == number,
                    f"{folder} holds the same images as {self.folders[other]}; name one of them",
                )

    @property
    def sha256(self) -> str:
        """The hash of the manifests, without what is only for people."""
        return sha256(b"".join(to_json(part.content.to_dict()) for part in self.manifests))

    @property
    def charset(self) -> Charset:
        return self.manifests[0].charset

    @property
    def lengths(self) -> Lengths:
        return self.manifests[0].lengths

    @property
    def size(self) -> InputSize:
        return self.manifests[0].size

    @property
    def holds_readings(self) -> bool:
        """Whether some of the texts are a model's readings, which nobody checked."""
        return any(part.options.get("readings") for part in self.manifests)

    @property
    def name(self) -> str:
        """The folders, for people."""
        return ", ".join(map(str, self.folders))

    @property
    def refs(self) -> list[ShardRef]:
        """All shards, folder by folder."""
        return [
            ShardRef(folder, manifest, shard)
            for folder, manifest in zip(self.folders, self.manifests, strict=True)
            for shard in manifest.shards
        ]

    def of_split(self, split: Split) -> list[ShardRef]:
        """Return the shards of one split, folder by folder."""
        return [ref for ref in self.refs if ref.shard.split == split]

    def count(self, split: Split) -> int:
        """Return the number of samples in one split."""
        return sum(manifest.count(split) for manifest in self.manifests)


def read_dataset(folders: Sequence[Path]) -> Dataset:
    """Read the manifests of some folders.

    Errors as `read_manifest`, and UsageError if the folders do not match.
    """
    return Dataset(tuple(folders), tuple(map(read_manifest, folders)))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json, which makes the folder a finished one."""
    head = {"format": MANIFEST_FORMAT, "version": _MANIFEST_VERSION}
    write_atomic(folder / MANIFEST_FILE, sealed(head | manifest.to_dict()))


def read_manifest(folder: Path) -> Manifest:
    """Read manifest.json; UsageError if there is none, DamagedError if it is damaged."""
    path = folder / MANIFEST_FILE
    if not path.exists():
        check(
            not (folder / "fold-1" / MANIFEST_FILE).exists(),
            f"{folder} holds folds; train `cross_validate` takes all of them, "
            f"`data` {folder}/fold-1 one",
        )
        if folder.is_dir() and find_images(folder).images:
            raise UsageError(
                f"{folder} holds images", Advice("make shards with", Command("prepare", (folder,)))
            )
        raise UsageError(
            f"{folder} holds no finished shards; prepare makes them from a folder of images"
        )
    document = read_sealed(path, MANIFEST_FORMAT, _MANIFEST_VERSION)
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
            corrections=document.get("corrections"),
            reasons=tuple(document.get("reasons", ())),
            copies=document.get("copies", 0),
        )
    except (KeyError, TypeError, UsageError) as error:
        raise DamagedError(f"{path} is malformed ({error})") from None


def write_shard(path: Path, split: Split, images: np.ndarray, labels: np.ndarray) -> Shard:
    """Write images, (N, C, H, W) uint8, and labels, (N, L); equal contents give equal bytes."""
    payload = safetensors.numpy.save({"images": images, "labels": labels.astype(np.int16)})
    # Gzip without a time or a name: the same bytes always
    data = zlib.compress(payload, _GZIP_LEVEL, wbits=31)
    write_atomic(path, data)
    return Shard(path.name, split, len(images), sha256(data), len(payload))


def read_shard(folder: Path, manifest: Manifest, shard: Shard) -> tuple[np.ndarray, np.ndarray]:
    """Read the images, (N, C, H, W) uint8, and labels, (N, L) int16, of a shard.

    DamagedError unless the file and its arrays match the manifest.
    """
    path = folder / shard.file
    data = read_checked(path, shard.sha256, shard.max_bytes)
    stream = zlib.decompressobj(wbits=31)
    try:
        payload = stream.decompress(data, shard.payload_bytes + 1)
        check(
            len(payload) == shard.payload_bytes and stream.eof,
            f"{path} does not decompress to {shard.payload_bytes} bytes, as the manifest says",
            DamagedError,
        )
        tensors = safetensors.numpy.load(payload)
        images, labels = tensors["images"], tensors["labels"]
    except zlib.error as error:
        raise DamagedError(f"{path} is not a gzip file ({error})") from None
    except (SafetensorError, KeyError, ValueError) as error:  # ValueError: of a shape, by numpy
        raise DamagedError(f"{path} does not hold images and labels ({error})") from None
    size, lengths, end = manifest.size, manifest.lengths, len(manifest.charset)
    expected = (shard.count, size.channels, size.height, size.width), (shard.count, lengths.longest)
    check(
        (images.shape, labels.shape) == expected
        and images.dtype == np.uint8
        and labels.dtype == np.int16,
        f"{path} does not hold the arrays that the manifest names",
        DamagedError,
    )
    # Nothing follows the end of a text, and every text has characters
    has_texts = (labels[:, : lengths.shortest] < end).all() and (labels >= 0).all()
    has_ends = (labels <= end).all() and (labels[:, 1:][labels[:, :-1] == end] == end).all()
    check(
        bool(has_texts and has_ends),
        f"{path} holds texts that do not have {lengths} characters of the alphabet",
        DamagedError,
    )
    return images, labels


def check_shards(refs: Iterable[ShardRef]) -> None:
    """Raise DamagedError unless each of these shard files has the sha256 of its manifest."""
    for folder, _, shard in refs:
        read_checked(folder / shard.file, shard.sha256, shard.max_bytes)
