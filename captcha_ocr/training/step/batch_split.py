"""Compute the gradients of a step on the CPU in threads, each of which takes a part of the batch.

torch's own threads share every layer, and wait for one another after each. Where another program takes a processor for
itself, two of them are slower than one (docs/lab-notebook.md, 2026-11-27). Threads with a part each wait once a step.
"""

import copy
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import nn

from captcha_ocr.network.device import one_thread

Part = TypeVar("Part")
Result = TypeVar("Result")
PART_IMAGES = 25  # at least: batch norm needs some


def count_parts(device: torch.device, batch_size: int) -> int:
    """Return into how many parts a batch is divided: one for each of torch's threads, if they are large enough."""
    return large_enough(torch.get_num_threads(), batch_size) if device.type == "cpu" else 1


def large_enough(parts: int, images: int) -> int:
    """Return into how many parts to divide so many images, at most `parts`."""
    return max(1, min(parts, images // PART_IMAGES))


class Replicas:
    """A model and copies of it, one for each part of a batch, which share its weights but not its gradients.

    Each part has batch norms of its own. Those of the model itself, which see the first part, are kept.
    """

    def __init__(self, model: nn.Module, count: int) -> None:
        self.networks = [model, *(copy.deepcopy(model) for _ in range(count - 1))]
        for network in self.networks[1:]:
            for own, shared in zip(network.parameters(), model.parameters(), strict=True):
                own.data = shared.data
        if count > 1:
            self.pool = ThreadPoolExecutor(count, thread_name_prefix="training")
            weakref.finalize(self, self.pool.shutdown, wait=False)

    def parts_of(self, images: int) -> int:
        """Return into how many parts to divide so many images, which may be the rest of an epoch."""
        return large_enough(len(self.networks), images)

    def backward(
        self, work: Callable[[nn.Module, Part], Result], parts: Sequence[Part]
    ) -> list[Result]:
        """Return what `work`, which computes gradients, returns for each part; the model gets the sum of gradients."""
        if len(parts) == 1:
            return [work(self.networks[0], parts[0])]
        threads = torch.get_num_threads()

        def in_thread(network: nn.Module, part: Part) -> Result:
            torch.set_num_threads(threads // len(self.networks))
            network.zero_grad(set_to_none=True)
            return work(network, part)

        results = list(self.pool.map(in_thread, self.networks, parts))
        torch.set_num_threads(threads)  # which the threads that are still to come take for theirs
        with one_thread():
            for network in self.networks[1 : len(parts)]:
                for parameter, other in zip(
                    self.networks[0].parameters(), network.parameters(), strict=True
                ):
                    if parameter.grad is not None and other.grad is not None:
                        parameter.grad += other.grad
        return results
