import multiprocessing.synchronize
import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import ONE_WORKER, TINY

from captcha_ocr.data.prepare import prepare
from captcha_ocr.data.shards import Dataset, read_dataset, read_manifest, read_shard
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.input_size import InputSize
from captcha_ocr.options.preparation import PrepareConfig
from captcha_ocr.training.distributed import BatchPartition, ProcessGroup
from captcha_ocr.training.samples.batches import (
    PartBatches,
    WidthBatches,
    keep_in_memory,
    load_split,
)
from captcha_ocr.training.samples.dataset import DrawnData

ALONE = ProcessGroup(torch.device("cpu"))


def numbered(count: int) -> PartBatches:
    """Images whose only pixel is their number."""
    numbers = torch.arange(count)
    images = numbers.to(torch.uint8).view(-1, 1, 1, 1)
    return keep_in_memory(images, numbers.view(-1, 1))


def test_a_split_holds_the_samples_of_its_shards_in_order(shards):
    dataset = read_dataset([shards])
    batches = load_split(dataset, "train", ALONE)
    images, labels = read_shard(*dataset.of_split("train")[0])
    found = batches.first(100)
    assert np.array_equal(found[0].numpy(), images)
    assert np.array_equal(found[1].numpy(), labels)
    assert len(found[0]) == dataset.count("train") == 48


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


def test_batches_of_drawings_have_the_width_of_their_widest():
    widths = torch.tensor([2, 4, 2, 3, 2, 4, 3])
    images = (
        torch.arange(4).expand(7, 1, 1, 4).clamp_max(widths.view(7, 1, 1, 1) - 1)
    )  # the last column is repeated
    batches = WidthBatches(images.to(torch.uint8), torch.arange(7).view(7, 1), widths)
    for found in (list(batches.in_order(2)), list(batches.shuffled(2, seeded(3)))):
        assert sorted(
            in_one((labels, labels) for _, labels in found)[1].flatten().tolist()
        ) == list(range(7))
        for batch, labels in found:
            assert batch.shape[-1] == widths[labels.flatten()].max()
            assert torch.equal(
                batch, images.to(torch.uint8)[labels.flatten(), ..., : batch.shape[-1]]
            )
    assert [images.shape[-1] for images, _ in batches.in_order(2)] == [2, 3, 4, 4]
    assert [len(images) for images, _ in batches.shuffled(2, seeded(3))][-1] == 1
    rest = [labels.tolist() for _, labels in batches.shuffled(2, seeded(3), done=1)]
    assert rest == [labels.tolist() for _, labels in found[1:]]
    assert batches.first(3)[0].shape == (3, 1, 1, 3)


@pytest.fixture
def drawn(drawings):
    """Make batches of drawings, and end their workers."""
    made = []

    def make(group=ALONE, total=24, **options):
        data = DrawnData.of(replace(drawings, **options), TINY.training)
        made.append(load_split(data, "train", group, BatchPartition(total, 10, group).samples))
        return made[-1]

    yield make
    for batches in made:
        batches.close()


def shown(batches, epoch: int, epochs: int | None = None) -> torch.Tensor:
    """Train on an epoch, and return its images in the order in which they are drawn."""
    for _ in batches.show(epoch, epochs):
        pass
    numbers = [len(images) for images, _ in batches.shuffled(10, seeded(0))]
    assert sum(numbers) == len(batches.images) == len(batches.samples)
    return batches.images


def test_every_few_epochs_show_a_block_of_new_drawings_which_is_drawn_meanwhile(drawn):
    batches = drawn()
    blocks = [shown(batches, epoch, 5) for epoch in range(5)]
    assert [torch.equal(one, other) for one, other in pairwise(blocks)] == [
        True,
        False,
        True,
        False,
    ]
    assert not batches.pending  # no epoch shows another block
    for block, images in enumerate(blocks[::2]):
        (job,) = batches.data.jobs("train", range(24), block)
        assert np.array_equal(images.numpy(), batches.data.draw(job)[0])
    open_end = drawn()
    shown(open_end, 0)
    assert [*open_end.pending] == [1]


@pytest.mark.usefixtures("worker_processes")
@pytest.mark.parametrize("has_semaphores", [True, False])
def test_drawings_do_not_depend_on_the_processes_that_draw_them(drawn, monkeypatch, has_semaphores):
    monkeypatch.setattr("captcha_ocr.training.samples.dataset.DRAWINGS_PER_JOB", 5)
    one = drawn()
    if not has_semaphores:
        monkeypatch.setattr(
            multiprocessing.synchronize._multiprocessing, "SemLock", lambda *_: os.stat("nowhere")
        )
    two = drawn(workers=2)
    for epoch in (0, 2, 3):
        assert torch.equal(shown(one, epoch), shown(two, epoch))
        assert torch.equal(one.labels, two.labels)


def test_the_processes_of_a_run_draw_a_block_together(drawn):
    parts = [drawn(replace(ALONE, rank=rank, world_size=2)) for rank in range(2)]
    assert torch.equal(torch.cat([shown(part, 2) for part in parts]), shown(drawn(), 2))


def test_what_is_there_already_is_counted(drawn, monkeypatch):
    monkeypatch.setattr("captcha_ocr.training.samples.dataset.DRAWINGS_PER_JOB", 5)
    monkeypatch.setattr("captcha_ocr.training.samples.batches.DRAWINGS_PER_JOB", 5)
    monkeypatch.setattr(
        multiprocessing.synchronize._multiprocessing, "SemLock", lambda *_: os.stat("nowhere")
    )
    monkeypatch.setattr("captcha_ocr.training.samples.batches.SECONDS_BETWEEN_NOTES", 0.0)
    assert next(drawn().show(0, None)) == (0, 24)


def test_more_drawings_than_fit_into_half_of_the_memory_are_refused(drawn, monkeypatch):
    monkeypatch.setattr(
        "captcha_ocr.training.samples.batches.measure_memory", lambda device: 4 * 24 * 16 * 48 - 1
    )
    with pytest.raises(UsageError, match="`images`"):
        drawn()


def test_a_tail_of_one_is_left_out_because_batch_norm_needs_two():
    assert [BatchPartition(count, 3, ALONE).steps for count in (1, 2, 6, 7, 8)] == [0, 1, 2, 2, 3]


@pytest.fixture
def several(images, other_images, tmp_path, monkeypatch) -> Dataset:
    """The tiny images in shards of at most 7, 60 in each of two folders."""
    monkeypatch.setattr("captcha_ocr.data.prepare.SAMPLES_PER_SHARD", 7)
    monkeypatch.setattr(
        "captcha_ocr.training.samples.batches._PART_BYTES", 20_000
    )  # three such shards
    prepare(images, tmp_path / "first", PrepareConfig(preset="tiny"), ONE_WORKER)
    prepare(other_images, tmp_path / "second", PrepareConfig(preset="tiny"), ONE_WORKER)
    return read_dataset([tmp_path / "first", tmp_path / "second"])


def test_a_stream_gives_the_same_samples_as_memory(several):
    resident, streamed = (
        load_split(several, "train", ALONE, stream=stream) for stream in (False, True)
    )
    assert (resident.location, streamed.location) == ("in memory", "streamed from disk")
    assert len(in_one(resident.in_order(10))[0]) == 96
    for ours, theirs in zip(
        in_one(streamed.in_order(10)), in_one(resident.in_order(10)), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_a_stream_is_shuffled_by_the_generator_and_each_image_keeps_its_label(several):
    def pairs(batches):
        images, labels = in_one(batches)
        return list(
            zip(
                (image.numpy().tobytes() for image in images),
                map(tuple, labels.tolist()),
                strict=True,
            )
        )

    streamed = load_split(several, "train", ALONE, stream=True)
    first, again, other = (list(streamed.shuffled(10, seeded(seed))) for seed in (1, 1, 2))
    assert [len(images) for images, _ in first] == [10] * 9 + [6]
    assert torch.equal(in_one(first)[0], in_one(again)[0])
    assert not torch.equal(in_one(first)[0], in_one(other)[0])
    shuffled, in_order = pairs(first), pairs(streamed.in_order(10))
    assert sorted(shuffled) == sorted(in_order)
    assert not set(shuffled[:20]) <= set(in_order[:21])  # the shards are in random order, too


def test_a_damaged_shard_of_a_stream_is_found_before_the_first_batch(several):
    last = several.of_split("train")[-1]
    path = last.folder / last.shard.file
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedError, match=path.name):
        load_split(several, "train", ALONE, stream=True)


def test_a_split_larger_than_half_the_memory_is_streamed(several, monkeypatch):
    of_train = 96 * 16 * 48
    monkeypatch.setattr(
        "captcha_ocr.training.samples.batches.measure_memory", lambda device: 2 * of_train
    )
    assert load_split(several, "train", ALONE).location == "in memory"
    monkeypatch.setattr(
        "captcha_ocr.training.samples.batches.measure_memory", lambda device: 2 * of_train - 1
    )
    assert load_split(several, "train", ALONE).location == "streamed from disk"
    assert load_split(several, "val", ALONE).location == "in memory"


def test_a_set_too_large_for_the_memory_is_refused(shards, monkeypatch):
    manifest = read_manifest(shards)
    names = (f"train-{number:05}.safetensors.gz" for number in range(1000))
    shards_of_1000 = tuple(replace(manifest.shards[0], file=name, count=1000) for name in names)
    huge = replace(manifest, size=InputSize(1024, 1024, 3), shards=shards_of_1000)
    monkeypatch.setattr("captcha_ocr.training.samples.batches.measure_memory", lambda device: 2**60)
    with pytest.raises(CaptchaOcrError, match="`stream`"):
        load_split(Dataset((shards,), (huge,)), "train", ALONE)
