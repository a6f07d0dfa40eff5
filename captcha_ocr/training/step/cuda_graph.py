"""Run the steps of a training on a GPU as one CUDA graph.

A step launches about a thousand small kernels, and launching them takes longer than they do. A
graph is recorded once, and then launched as a whole.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Update = Callable[[Tensor, Tensor, Tensor, int], tuple[Tensor, Tensor]]
REPEATS = 3  # calls that torch needs to choose its algorithms and to allocate the optimiser's state


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
