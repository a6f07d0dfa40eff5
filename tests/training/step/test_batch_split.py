import threading

import pytest
import torch
from torch import nn

from captcha_ocr.training.step.batch_split import PART_IMAGES, BatchSplit, count_parts

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_each_thread_has_a_part_that_is_large_enough(two_threads):
    assert count_parts(CPU, 2 * PART_IMAGES) == 2
    assert count_parts(CPU, 2 * PART_IMAGES - 1) == 1
    assert count_parts(CPU, 100 * PART_IMAGES) == 2
    assert count_parts(torch.device("meta"), 100) == 1


def count_images(network, part):
    return len(part[0]), None


def test_a_small_rest_has_fewer_parts(two_threads):
    split = BatchSplit(nn.Linear(1, 1), 2)
    for images, parts in (
        (100, [50, 50]),
        (2 * PART_IMAGES, [PART_IMAGES] * 2),
        (2 * PART_IMAGES - 1, [2 * PART_IMAGES - 1]),
        (2, [2]),
    ):
        counts, _ = split.backward(count_images, torch.zeros(images), torch.zeros(images))
        assert list(counts) == parts


def test_the_model_gets_the_gradients_of_all_parts(two_threads):
    torch.manual_seed(0)
    model, alone = nn.Linear(3, 2), nn.Linear(3, 2)
    alone.load_state_dict(model.state_dict())
    split, images = BatchSplit(model, 2), torch.randn(2 * PART_IMAGES + 1, 3)
    threads, counts = set(), set()

    def work(network, part):
        threads.add(threading.current_thread().name)
        counts.add(torch.get_num_threads())
        network(part[0]).square().sum().backward()
        return part

    for _ in range(2):  # the gradients of the copies begin at 0 each time
        model.zero_grad()
        results = split.backward(work, images, 2 * images)
        assert torch.equal(torch.cat(results[0]), images)
        assert torch.equal(torch.cat(results[1]), 2 * images)
    alone(images).square().sum().backward()
    assert torch.allclose(model.weight.grad, alone.weight.grad, rtol=1e-4)
    assert all(name.startswith("training") for name in threads)
    assert counts == {1}
    assert torch.get_num_threads() == 2


def test_copies_share_the_weights(two_threads):
    model = nn.Linear(3, 2)
    split = BatchSplit(model, 2)
    with torch.no_grad():
        model.weight += 1
    assert torch.equal(split.networks[1].weight, model.weight)


def test_a_single_part_needs_no_thread():
    def name_thread(*_):
        return threading.current_thread(), None

    images = torch.zeros(100)
    threads, _ = BatchSplit(nn.Linear(1, 1), 1).backward(name_thread, images, images)
    assert threads == (threading.main_thread(),)


def test_an_error_in_a_thread_is_raised(two_threads):
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        BatchSplit(nn.Linear(1, 1), 2).backward(fail, torch.zeros(100), torch.zeros(100))
