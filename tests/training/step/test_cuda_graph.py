from contextlib import contextmanager

import pytest
import torch

from captcha_ocr.training.step.cuda_graph import REPEATS, CudaGraph


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
