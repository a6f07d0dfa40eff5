from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import ONE_WORKER

from captcha_ocr.config import InputSize, PrepareConfig
from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import Dataset, read_dataset, read_manifest, read_shard
from captcha_ocr.errors import CaptchaOcrError, DamagedError
from captcha_ocr.training.batches import BatchPartition, ResidentBatches, StreamedBatches, load_split
from captcha_ocr.training.distributed import ProcessGroup

ALONE = ProcessGroup(torch.device("cpu"))


def numbered(count: int) -> ResidentBatches:
    """Images whose only pixel is their number."""
    numbers = torch.arange(count)
    return ResidentBatches(numbers.to(torch.uint8).view(-1, 1, 1, 1), numbers.view(-1, 1))


def test_a_split_holds_the_samples_of_its_shards_in_order(shards):
    manifest = read_manifest(shards)
    batches = load_split(read_dataset([shards]), "train", ALONE)
    images, labels = read_shard(shards, manifest, manifest.of_split("train")[0])
    assert np.array_equal(batches.images.numpy(), images)
    assert np.array_equal(batches.labels.numpy(), labels)
    assert len(batches) == manifest.count("train") == 48


def in_one(batches) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_batches_hold_every_sample_once_in_order_or_in_that_of_a_generator():
    in_order = list(numbered(7).in_order(3))
    assert [len(images) for images, _ in in_order] == [3, 3, 1]
    assert in_one(in_order)[1].flatten().tolist() == list(range(7))
    images, labels = in_one(numbered(8).shuffled(3, seeded(0)))
    assert sorted(labels.flatten().tolist()) == list(range(8)) != labels.flatten().tolist()
    assert labels.flatten().tolist() == images.flatten().tolist()
    assert torch.equal(labels, in_one(numbered(8).shuffled(3, seeded(0)))[1])


def test_a_tail_of_one_is_left_out_because_batch_norm_needs_two():
    assert [BatchPartition(count, 3, ALONE).steps for count in (1, 2, 6, 7, 8)] == [0, 1, 2, 2, 3]


@pytest.fixture
def several(images, other_images, tmp_path, monkeypatch) -> Dataset:
    """The tiny images in shards of at most 7, 60 in each of two folders."""
    monkeypatch.setattr("captcha_ocr.data.prepare.SAMPLES_PER_SHARD", 7)
    monkeypatch.setattr("captcha_ocr.training.batches.PART_BYTES", 20_000)  # three such shards
    prepare(images, tmp_path / "first", PrepareConfig(preset="tiny"), ONE_WORKER)
    prepare(other_images, tmp_path / "second", PrepareConfig(preset="tiny"), ONE_WORKER)
    return read_dataset([tmp_path / "first", tmp_path / "second"])


def test_a_stream_gives_the_same_samples_as_memory(several):
    resident, streamed = (load_split(several, "train", ALONE, stream=stream) for stream in (False, True))
    assert (type(resident), type(streamed)) == (ResidentBatches, StreamedBatches)
    assert len(streamed) == len(resident) == 96
    for ours, theirs in zip(in_one(streamed.in_order(10)), in_one(resident.in_order(10)), strict=True):
        assert torch.equal(ours, theirs)


def test_a_stream_is_shuffled_by_the_generator_and_each_image_keeps_its_label(several):
    def pairs(batches):
        images, labels = in_one(batches)
        return list(zip((image.numpy().tobytes() for image in images), map(tuple, labels.tolist()), strict=True))

    streamed = load_split(several, "train", ALONE, stream=True)
    first, again, other = (list(streamed.shuffled(10, seeded(seed))) for seed in (1, 1, 2))
    assert [len(images) for images, _ in first] == [10] * 9 + [6]
    assert torch.equal(in_one(first)[0], in_one(again)[0])
    assert not torch.equal(in_one(first)[0], in_one(other)[0])
    shuffled, in_order = pairs(first), pairs(streamed.in_order(10))
    assert sorted(shuffled) == sorted(in_order)
    assert not set(shuffled[:20]) <= set(in_order[:21])  # the shards are in random order, too


def test_a_damaged_shard_of_a_stream_is_found_before_the_first_batch(several):
    path = several.folders[1] / several.manifests[1].of_split("train")[-1].file
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedError, match=path.name):
        load_split(several, "train", ALONE, stream=True)


def test_a_split_larger_than_half_the_memory_is_streamed(several, monkeypatch):
    of_train = 96 * 16 * 48
    monkeypatch.setattr("captcha_ocr.training.batches.memory_of", lambda device: 2 * of_train)
    assert isinstance(load_split(several, "train", ALONE), ResidentBatches)
    monkeypatch.setattr("captcha_ocr.training.batches.memory_of", lambda device: 2 * of_train - 1)
    assert isinstance(load_split(several, "train", ALONE), StreamedBatches)
    assert isinstance(load_split(several, "val", ALONE), ResidentBatches)


def test_a_set_too_large_for_the_memory_is_refused(shards, monkeypatch):
    manifest = read_manifest(shards)
    names = (f"train-{number:05}.safetensors.gz" for number in range(1000))
    shards_of_1000 = tuple(replace(manifest.shards[0], file=name, count=1000) for name in names)
    huge = replace(manifest, size=InputSize(1024, 1024, 3), shards=shards_of_1000)
    monkeypatch.setattr("captcha_ocr.training.batches.memory_of", lambda device: 2**60)
    with pytest.raises(CaptchaOcrError, match="--stream"):
        load_split(Dataset((shards,), (huge,)), "train", ALONE)
