import numpy as np
import pytest
import torch

from captcha_ocr.batches import Batches, load_split
from captcha_ocr.errors import CaptchaOcrError
from captcha_ocr.shards import read_manifest, read_shard

CPU = torch.device("cpu")


def numbered(count: int) -> Batches:
    """Images whose only pixel is their number."""
    numbers = torch.arange(count)
    return Batches(numbers.to(torch.uint8).view(-1, 1, 1, 1), numbers.view(-1, 1))


def test_a_split_is_its_shards_in_order(shards):
    manifest = read_manifest(shards)
    batches = load_split(shards, manifest, "train", CPU)
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
    mean, deviation = Batches(images, torch.zeros(4, 1)).pixel_statistics()
    assert mean.item() == pytest.approx(0.5)
    assert deviation.item() == pytest.approx(0.516, abs=1e-3)


def test_pixels_all_alike_do_not_lead_to_a_division_by_zero():
    batches = Batches(torch.full((2, 1, 2, 2), 255, dtype=torch.uint8), torch.zeros(2, 1))
    assert batches.pixel_statistics()[1].item() > 0


def test_a_set_too_large_for_the_memory_is_one_sentence(shards):
    from dataclasses import replace

    manifest = read_manifest(shards)
    huge = replace(manifest, shards=tuple(replace(shard, count=10**6) for shard in manifest.shards * 2000))
    with pytest.raises(CaptchaOcrError, match=r"need .* GB on cpu"):
        load_split(shards, huge, "train", CPU)
