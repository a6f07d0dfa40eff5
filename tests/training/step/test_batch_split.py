import threading

import pytest
import torch
from torch import nn

from captcha_ocr.training.step.batch_split import PART_IMAGES, Replicas, count_parts

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


def test_a_small_rest_has_fewer_parts(two_threads):
    replicas = Replicas(nn.Linear(1, 1), 2)
    counts = [
        replicas.parts_of(images) for images in (100, 2 * PART_IMAGES, 2 * PART_IMAGES - 1, 2)
    ]
    assert counts == [2, 2, 1, 1]


def test_the_model_gets_the_gradients_of_all_parts(two_threads):
    torch.manual_seed(0)
    model, alone = nn.Linear(3, 2), nn.Linear(3, 2)
    alone.load_state_dict(model.state_dict())
    replicas, images = Replicas(model, 2), torch.randn(6, 3)
    threads, counts = set(), set()

    def work(network: nn.Module, part: torch.Tensor) -> int:
        threads.add(threading.current_thread().name)
        counts.add(torch.get_num_threads())
        network(part).square().sum().backward()
        return len(part)

    for _ in range(2):  # the gradients of the copies begin at 0 each time
        model.zero_grad()
        assert replicas.backward(work, images.split([4, 2])) == [4, 2]
    alone(images).square().sum().backward()
    assert torch.allclose(model.weight.grad, alone.weight.grad)
    assert all(name.startswith("training") for name in threads)
    assert counts == {1}
    assert torch.get_num_threads() == 2


def test_copies_share_the_weights(two_threads):
    model = nn.Linear(3, 2)
    replicas = Replicas(model, 2)
    with torch.no_grad():
        model.weight += 1
    assert torch.equal(replicas.networks[1].weight, model.weight)


def test_a_single_part_needs_no_thread():
    names = []
    Replicas(nn.Linear(1, 1), 1).backward(
        lambda *_: names.append(threading.current_thread()), [torch.zeros(1)]
    )
    assert names == [threading.main_thread()]


def test_an_error_in_a_thread_is_raised(two_threads):
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        Replicas(nn.Linear(1, 1), 2).backward(fail, [torch.zeros(1), torch.zeros(1)])
