import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from captcha_ocr.batches import ResidentBatches, StreamedBatches, load_split, memory_of
from captcha_ocr.config import PrepareConfig
from captcha_ocr.errors import CaptchaOcrError, DamagedError
from captcha_ocr.prepare import prepare
from captcha_ocr.shards import Dataset, read_dataset, read_manifest, read_shard

CPU = torch.device("cpu")


def numbered(count: int) -> ResidentBatches:
    """Images whose only pixel is their number."""
    numbers = torch.arange(count)
    return ResidentBatches(numbers.to(torch.uint8).view(-1, 1, 1, 1), numbers.view(-1, 1))


def test_a_split_is_its_shards_in_order(shards):
    manifest = read_manifest(shards)
    batches = load_split(read_dataset([shards]), "train", CPU)
    images, labels = read_shard(shards, manifest, manifest.of_split("train")[0])
    assert np.array_equal(batches.images.numpy(), images)
    assert np.array_equal(batches.labels.numpy(), labels)
    assert len(batches) == manifest.count("train") == 48


def test_in_order_gives_every_sample_once_with_its_tail():
    assert [len(images) for images, _ in numbered(7).in_order(3)] == [3, 3, 1]
    assert torch.cat([labels for _, labels in numbered(7).in_order(3)]).flatten().tolist() == list(range(7))


def test_shuffled_gives_every_sample_once_with_its_own_label():
    batches = list(numbered(8).shuffled(3, torch.Generator().manual_seed(0)))
    labels = torch.cat([labels for _, labels in batches]).flatten()
    images = torch.cat([images for images, _ in batches]).flatten()
    assert sorted(labels.tolist()) == list(range(8))
    assert labels.tolist() != list(range(8))
    assert labels.tolist() == images.tolist()


def test_the_same_generator_gives_the_same_order():
    first, second = (list(numbered(8).shuffled(8, torch.Generator().manual_seed(5))) for _ in range(2))
    assert torch.equal(first[0][1], second[0][1])


@pytest.mark.parametrize(("count", "batches"), [(1, 0), (2, 1), (6, 2), (7, 2), (8, 3)])
def test_a_tail_of_one_is_passed_over_since_batch_norm_needs_two(count, batches):
    assert numbered(count).batch_count(3) == batches
    assert len(list(numbered(count).shuffled(3, torch.Generator()))) == batches


def test_pixel_statistics_are_those_of_pixels_between_0_and_1():
    images = torch.tensor([0, 255], dtype=torch.uint8).repeat(8).view(4, 1, 2, 2)
    mean, deviation = ResidentBatches(images, torch.zeros(4, 1)).pixel_statistics()
    assert mean.item() == pytest.approx(0.5)
    assert deviation.item() == pytest.approx(0.516, abs=1e-3)


def test_pixels_all_alike_do_not_lead_to_a_division_by_zero():
    batches = ResidentBatches(torch.full((2, 1, 2, 2), 255, dtype=torch.uint8), torch.zeros(2, 1))
    assert batches.pixel_statistics()[1].item() > 0


@pytest.fixture
def several(images, tmp_path, monkeypatch) -> Dataset:
    """The tiny images in shards of at most 7: as a folder of its own, and with a copy of it as a second folder."""
    monkeypatch.setattr("captcha_ocr.prepare.SAMPLES_PER_SHARD", 7)
    monkeypatch.setattr("captcha_ocr.batches.SHARDS_PER_PART", 3)
    prepare(images, tmp_path / "first", PrepareConfig(preset="tiny"), workers=1)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    return read_dataset([tmp_path / "first", tmp_path / "second"])


def in_one(batches) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def test_a_stream_gives_in_order_what_is_resident(several):
    resident, streamed = (load_split(several, "train", CPU, stream) for stream in (False, True))
    assert (type(resident), type(streamed)) == (ResidentBatches, StreamedBatches)
    assert len(streamed) == len(resident) == 96
    for ours, theirs in zip(in_one(streamed.in_order(10)), in_one(resident.in_order(10)), strict=True):
        assert torch.equal(ours, theirs)
    assert streamed.pixel_statistics()[0].item() == pytest.approx(resident.pixel_statistics()[0].item(), abs=0.01)


def test_a_shuffled_stream_gives_every_sample_once_with_its_own_label(several):
    streamed = load_split(several, "train", CPU, stream=True)
    batches = list(streamed.shuffled(10, torch.Generator().manual_seed(0)))
    assert [len(images) for images, _ in batches] == [10] * 9 + [6]
    images, labels = in_one(batches)
    in_order, labels_in_order = in_one(streamed.in_order(10))

    def pairs(images, labels):
        return sorted(
            (image.numpy().tobytes(), tuple(label.tolist())) for image, label in zip(images, labels, strict=True)
        )

    assert not torch.equal(images, in_order)
    assert pairs(images, labels) == pairs(in_order, labels_in_order)


def test_a_stream_is_shuffled_alike_by_the_same_generator_and_otherwise_by_another(several):
    streamed = load_split(several, "train", CPU, stream=True)
    first, again, other = (in_one(streamed.shuffled(10, torch.Generator().manual_seed(seed)))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_damaged_shard_of_a_stream_is_found_before_the_first_batch(several):
    path = several.folders[1] / several.manifests[1].of_split("train")[-1].file
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedError, match=path.name):
        load_split(several, "train", CPU, stream=True)


def test_what_half_the_memory_does_not_hold_is_streamed(several, monkeypatch):
    of_train = 96 * 16 * 48
    monkeypatch.setattr("captcha_ocr.batches.memory_of", lambda device: 2 * of_train)
    assert isinstance(load_split(several, "train", CPU), ResidentBatches)
    monkeypatch.setattr("captcha_ocr.batches.memory_of", lambda device: 2 * of_train - 1)
    assert isinstance(load_split(several, "train", CPU), StreamedBatches)
    assert isinstance(load_split(several, "val", CPU), ResidentBatches)


def test_this_machine_has_some_memory():
    assert memory_of(CPU) > 2**28


def test_a_set_too_large_for_the_memory_is_one_sentence(shards, monkeypatch):
    manifest = read_manifest(shards)
    huge = replace(manifest, shards=tuple(replace(shard, count=10**6) for shard in manifest.shards * 2000))
    monkeypatch.setattr("captcha_ocr.batches.memory_of", lambda device: 2**60)
    with pytest.raises(CaptchaOcrError, match=r"need .* GB on cpu.*--stream"):
        load_split(Dataset((shards,), (huge,)), "train", CPU)
