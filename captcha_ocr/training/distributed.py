"""Train in one process, or in several on one machine or many, which torchrun starts.

Processes exchange only tensors: JSON and bytes are sent as uint8, and nothing is pickled.
"""

import contextlib
import inspect
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn  # a later import would keep the process group of that time alive
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.network.device import choose_device
from captcha_ocr.system.console import counted
from captcha_ocr.system.processors import rank_and_world_size
from captcha_ocr.system.signals import handling


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run.

    device: that of this process. local_world_size: the number of processes on this machine.
    """

    device: torch.device
    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process decides, writes and prints for all."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with the weights of the main process.

        Its gradients are averaged over all processes.
        """
        if self.world_size == 1:
            return model
        # Batch norm's running means are broadcast before they are used, and not in every step.
        sync = "forward_sync_buffers"
        if sync not in inspect.signature(DistributedDataParallel).parameters:
            sync = "broadcast_buffers"  # before torch 2.13
        return DistributedDataParallel(model, **{sync: False})  # type: ignore[arg-type]

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Copy the main process's tensors to all processes, in place."""
        if self.world_size > 1:
            for tensor in tensors:
                in_order = tensor.contiguous()  # kernels are in channels-last order
                dist.broadcast(in_order, 0)
                tensor.copy_(in_order)

    def all_reduce(self, *tensors: Tensor) -> None:
        """Replace each tensor, in every process, by its sum over all processes."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def concatenate(self, numbers: Tensor) -> Tensor:
        """Return the integers (N,) of all processes, in the order of their ranks; N may differ."""
        counts = torch.zeros(self.world_size, dtype=torch.int64, device=self.device)
        counts[self.rank] = len(numbers)
        self.all_reduce(counts)
        before, total = int(counts[: self.rank].sum()), int(counts.sum())
        joined = numbers.new_zeros(total)
        joined[before : before + len(numbers)] = numbers
        self.all_reduce(joined)
        return joined

    def maximum(self, *numbers: int) -> list[int]:
        """Return the largest of each number over all processes."""
        if self.world_size == 1:
            return list(numbers)
        largest = torch.tensor(numbers, device=self.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return largest.tolist()

    def portion(self, total: int) -> range:
        """Return this process's part of `total` items; every item is in exactly one part."""
        start, stop = total * self.rank, total * (self.rank + 1)
        return range(start // self.world_size, stop // self.world_size)

    def broadcast_from_main(self, work: Callable[[], tuple[Any, bytes]]) -> tuple[Any, bytes]:
        """Do `work` in the main process alone; return its JSON document and its bytes in all.

        Where it fails, all processes end.
        """
        if self.world_size == 1:
            return work()
        if not self.is_main:
            head, _, content = self._join_bytes(b"").partition(b"\n")
            if head.startswith(b"-"):
                raise SystemExit(int(head[1:]))
            return json.loads(head), content
        try:
            document, content = work()
        except CaptchaOcrError as error:
            self._join_bytes(b"-%d" % error.exit_code)
            raise
        self._join_bytes(json.dumps(document).encode() + b"\n" + content)
        return document, content

    def _join_bytes(self, data: bytes) -> bytes:
        numbers = torch.from_numpy(np.frombuffer(data, np.uint8).copy()).to(self.device)
        return self.concatenate(numbers).cpu().numpy().tobytes()


@dataclass(frozen=True)
class BatchPartition:
    """This process's part of every batch, and so of the `total` images of a split.

    batch_size: the images of a batch in all processes. All processes take the same number of steps
    in an epoch, and no image is in two parts.
    """

    total: int
    batch_size: int
    group: ProcessGroup

    def __post_init__(self) -> None:
        smallest, processes = 2 * self.group.world_size, counted(self.group.world_size, "process")
        check(
            self.batch_size >= smallest, f"`batch_size` must be at least {smallest} for {processes}"
        )

    @property
    def local_batch_size(self) -> int:
        """The images of a full batch in this process."""
        return len(self.group.portion(self.batch_size))

    @property
    def samples(self) -> range:
        """The images of the split in this process."""
        rows = self.group.portion(self.batch_size)
        start = self.total * rows.start // self.batch_size
        return range(start, self.total * rows.stop // self.batch_size)

    @cached_property  # read at every step
    def steps(self) -> int:
        """The steps of an epoch.

        A last batch with less than two images in a process is dropped, for batch norm.
        """
        whole_batches, rest = divmod(self.total, self.batch_size)
        groups = [replace(self.group, rank=rank) for rank in range(self.group.world_size)]
        smallest = min(len(replace(self, total=rest, group=group).samples) for group in groups)
        return whole_batches + (smallest > 1)

    def global_batch_size(self, step: int) -> int:
        """Return the images of a step of an epoch, counted from 0, in all processes."""
        return min(self.batch_size, self.total - step * self.batch_size)


def local_device(name: str) -> torch.device:
    """Return the device that `choose_device` does; under torchrun the GPU of the local rank."""
    if rank_and_world_size()[1] == 1:
        return choose_device(name)
    kind, _, number = name.partition(":")
    check(not number, f"under torchrun every process has its own device; use `device` {kind}")
    device = choose_device(name)
    if device.type in ("cuda", "xpu"):
        return choose_device(f"{device.type}:{os.environ.get('LOCAL_RANK', '0')}")
    return device


def _rendezvous(backend: str) -> tuple[int, int]:
    """Wait until all processes have started; return this one's rank and the world size."""
    try:
        store, rank, count = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    except ValueError as error:
        raise UsageError(
            f"WORLD_SIZE is set without other variables that torchrun sets: {error}"
        ) from None
    has_agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if has_agent_store and os.environ.get("GROUP_WORLD_SIZE") == "1":
        # torchrun keeps one store over all restarts, with the addresses of processes that ended.
        attempt = f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}"
        store = dist.PrefixStore(attempt, store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    return rank, count


@contextlib.contextmanager
def process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, if any.

    CaptchaOcrError when another process is lost.
    """
    if rank_and_world_size()[1] == 1:
        yield ProcessGroup(device)
        return
    try:
        backend = dist.get_default_backend_for_device(device)
    except (ValueError, KeyError):
        raise UsageError(f"torchrun cannot use {device}; use `device` cpu or cuda") from None
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        # This may wait for the other processes for half an hour, and Python runs no handler while
        # torch waits.
        with handling(signal.SIG_DFL):
            rank, count = _rendezvous(backend)
        yield ProcessGroup(device, rank, count, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except (KeyboardInterrupt, SystemExit, CaptchaOcrError):  # in an epoch all processes raise it
        if dist.is_initialized():
            dist.destroy_process_group()
        raise
    except RuntimeError as error:
        if not is_connection_error(error):
            raise
        raise CaptchaOcrError(
            "another process of this run has ended or cannot be reached; see its error, "
            "and run the same command again to resume from the last checkpoint"
        ) from None
    dist.destroy_process_group()


def is_connection_error(error: RuntimeError) -> bool:
    """Tell whether the connection to another process failed."""
    words = ("gloo", "NCCL", "Connection closed by peer", "Socket")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)
