"""Steps in less time: the parts of a batch in threads on a CPU, or one CUDA graph on a GPU.

torch's own threads share every layer, and wait for one another after each. Where another program
takes a processor for itself, two of them are slower than one (docs/decisions.md, Speed and memory).
Threads with a part each wait once a step.

On a GPU a step launches about a thousand small kernels, and launching them takes longer than they
do. A graph is recorded once, and then launched as a whole.
"""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from captcha_ocr.network.device import one_thread

PART_IMAGES = 25  # at least: batch norm needs some

Part = tuple[Tensor, Tensor]  # images and their targets
Work = Callable[[nn.Module, Part], tuple[Tensor, Tensor]]
Update = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
REPEATS = 3  # calls that torch needs to choose its algorithms and to allocate the optimiser's state


def count_parts(threads: int, images: int) -> int:
    """Return into how many parts a batch of so many images is divided.

    One for each thread, or fewer if the parts would be too small.
    """
    return max(1, min(threads, images // PART_IMAGES))


class BatchSplit:
    """A model and copies of it, one for each part of a batch.

    They share its weights but not its gradients. Each part has batch norms of its own. Those of the
    model itself, which see the first part, are kept.
    """

    def __init__(self, model: nn.Module, count: int) -> None:
        self.networks = [model, *(copy.deepcopy(model) for _ in range(count - 1))]
        for network in self.networks[1:]:
            for parameter, shared in zip(network.parameters(), model.parameters(), strict=True):
                parameter.data = shared.data
        self.pool = ThreadPoolExecutor(count, thread_name_prefix="training")

    def backward(self, work: Work, images: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Give the model the sum of the gradients that `work` computes for each part of a batch.

        Returns the results of `work`, of each part.
        """
        count = count_parts(len(self.networks), len(images))  # the rest of an epoch has fewer
        if count == 1:
            return [work(self.networks[0], (images, targets))]
        threads = torch.get_num_threads()

        def work_in_thread(network: nn.Module, part: Part) -> tuple[Tensor, Tensor]:
            torch.set_num_threads(threads // len(self.networks))
            network.zero_grad(set_to_none=True)
            return work(network, part)

        parts = zip(images.chunk(count), targets.chunk(count), strict=True)
        results = list(self.pool.map(work_in_thread, self.networks, parts))
        torch.set_num_threads(threads)  # which the threads that are still to come take for theirs
        with one_thread():
            for network in self.networks[1 : len(results)]:
                pairs = zip(self.networks[0].parameters(), network.parameters(), strict=True)
                for parameter, copied in pairs:
                    if parameter.grad is not None and copied.grad is not None:
                        parameter.grad += copied.grad
        return results


class CudaGraph:
    """The update of a model as a CUDA graph.

    It is recorded once `REPEATS` calls in a row had tensors of the same shapes. Calls with other
    shapes, such as the last batch of an epoch, run as they are. What a call returns is overwritten
    by the next one. The optimiser's learning rate may change from call to call.

    kind: of the calls that the graph is for; until there is one, of the last call.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.graph: torch.cuda.CUDAGraph | None = None
        self.kind: object = None
        self.calls = 0

    def __call__(
        self, update: Update, images: Tensor, targets: Tensor, labels: Tensor, global_batch: int
    ) -> tuple[Tensor, Tensor]:
        """Update the model; returns what the update does."""
        tensors = images, targets, labels
        kind = [(tensor.shape, tensor.dtype) for tensor in tensors], global_batch
        if self.graph is None:
            self.calls = self.calls + 1 if kind == self.kind else 1
            self.kind = kind
            if self.calls > REPEATS:
                self._record(update, tensors, global_batch)
        if self.graph is None or kind != self.kind:
            return update(*tensors, global_batch)
        for static, tensor in zip(self.inputs, tensors, strict=True):
            static.copy_(tensor)
        self.rate.fill_(self.optimizer.param_groups[0]["lr"])
        self.graph.replay()
        return self.outputs

    def _record(
        self, update: Update, tensors: tuple[Tensor, Tensor, Tensor], global_batch: int
    ) -> None:
        """Record the update, without carrying it out."""
        (group,) = self.optimizer.param_groups
        rate = group["lr"]
        images, targets, labels = tensors
        self.inputs = images.clone(), targets.clone(), labels.clone()
        self.rate = torch.tensor(rate, device=images.device)
        group.update(lr=self.rate, capturable=True)  # a number would be recorded as it is now
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may read images and pin their memory meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.outputs = update(*self.inputs, global_batch)
        group.update(lr=rate, capturable=False)
        self.graph = graph
