import threading
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from captcha_ocr.training.step.acceleration import (
    PART_IMAGES,
    REPEATS,
    BatchSplit,
    CudaGraph,
    count_parts,
)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_each_thread_has_a_part_that_is_large_enough():
    assert count_parts(2, 2 * PART_IMAGES) == 2
    assert count_parts(2, 2 * PART_IMAGES - 1) == 1
    assert count_parts(2, 100 * PART_IMAGES) == 2


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
        results = split.backward(count_images, torch.zeros(images), torch.zeros(images))
        assert [count for count, _ in results] == parts


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
        firsts, seconds = zip(*results, strict=True)
        assert torch.equal(torch.cat(firsts), images)
        assert torch.equal(torch.cat(seconds), 2 * images)
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
    results = BatchSplit(nn.Linear(1, 1), 1).backward(name_thread, images, images)
    assert results == [(threading.main_thread(), None)]


def test_an_error_in_a_thread_is_raised(two_threads):
    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        BatchSplit(nn.Linear(1, 1), 2).backward(fail, torch.zeros(100), torch.zeros(100))


class Recorded:
    """Stands in for torch.cuda.CUDAGraph, which needs a GPU.

    It repeats what an update would have done.
    """

    def replay(self):
        self.work()


class Model:
    """A weight and an optimiser.

    An update keeps what it has seen, or gives it to the graph that is recorded.
    """

    def __init__(self):
        self.weight = torch.zeros(())
        self.optimizer = torch.optim.SGD([self.weight], lr=0.0)
        self.graph = None
        self.direct = 0  # calls of update that were carried out

    @contextmanager
    def recording(self, graph, **_):
        self.graph = graph
        yield
        self.graph = None

    def update(self, images, targets, labels, global_batch):
        rate, loss = self.optimizer.param_groups[0]["lr"], torch.zeros(())

        def work():
            loss.copy_(images.sum() + targets.sum() + labels.sum())
            self.weight.add_(rate * loss / global_batch)

        if self.graph is None:
            self.direct += 1
            work()
        else:
            self.graph.work = work
        return loss, labels


@pytest.fixture
def model(monkeypatch):
    model = Model()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorded)
    monkeypatch.setattr(torch.cuda, "graph", model.recording)
    return model


def batches(*sizes):
    for number, size in enumerate(sizes, start=1):
        images = torch.full((size, 2), float(number))
        yield images, images + 1, images + 2, size


def train(model, sizes, run):
    losses = []
    for number, batch in enumerate(batches(*sizes), start=1):
        model.optimizer.param_groups[0]["lr"] = 1 / number
        losses.append(run(*batch)[0].item())
    return losses


def test_a_graph_does_what_the_update_does_with_each_batch_and_learning_rate(model):
    sizes = [3] * (REPEATS + 5)
    graph = CudaGraph(model.optimizer)
    losses = train(model, sizes, lambda *batch: graph(model.update, *batch))
    assert model.direct == REPEATS
    plain = Model()
    assert losses == train(plain, sizes, plain.update)
    assert model.weight.item() == pytest.approx(plain.weight.item())


def test_batches_of_another_size_run_as_they_are(model):
    sizes = [1, *[3] * (REPEATS + 1), 2, 3, 2]
    graph = CudaGraph(model.optimizer)
    losses = train(model, sizes, lambda *batch: graph(model.update, *batch))
    assert model.direct == 1 + REPEATS + 2
    plain = Model()
    assert losses == train(plain, sizes, plain.update)


def test_the_optimizer_has_a_number_as_its_rate_after_the_recording(model):
    graph = CudaGraph(model.optimizer)
    train(model, [3] * (REPEATS + 1), lambda *batch: graph(model.update, *batch))
    (group,) = model.optimizer.param_groups
    assert group["lr"] == 1 / (REPEATS + 1)
    assert group["capturable"] is False
