"""Compute the gradients of a step on the CPU in threads, each of which takes a part of the batch.

torch's own threads share every layer, and wait for one another after each. Where another program
takes a processor for itself, two of them are slower than one (docs/decisions.md, Speed and memory).
Threads with a part each wait once a step.
"""

import copy
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from captcha_ocr.network.device import one_thread

PART_IMAGES = 25  # at least: batch norm needs some

Part = tuple[Tensor, Tensor]  # images and their targets
Work = Callable[[nn.Module, Part], tuple[Tensor, Tensor]]


def count_parts(device: torch.device, batch_size: int) -> int:
    """Return into how many parts a batch is divided: one for each of torch's threads on the CPU.

    There are fewer if the parts would be too small.
    """
    if device.type != "cpu":
        return 1
    return _limit_parts(torch.get_num_threads(), batch_size)


def _limit_parts(parts: int, images: int) -> int:
    return max(1, min(parts, images // PART_IMAGES))


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
        if count > 1:
            self.pool = ThreadPoolExecutor(count, thread_name_prefix="training")
            weakref.finalize(self, self.pool.shutdown, wait=False)

    def backward(
        self, work: Work, images: Tensor, targets: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Give the model the sum of the gradients that `work` computes for each part of a batch.

        Returns the first and the second results of `work`, of each part.
        """
        count = _limit_parts(len(self.networks), len(images))  # the rest of an epoch has fewer
        if count == 1:
            first, second = work(self.networks[0], (images, targets))
            return (first,), (second,)
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
        firsts, seconds = zip(*results, strict=True)
        return firsts, seconds
