"""How the processes of a run share its training images and its batches."""

from dataclasses import dataclass, replace
from functools import cached_property

from captcha_ocr.errors import check
from captcha_ocr.system.console import counted
from captcha_ocr.training.distributed import ProcessGroup


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
        whole_batches = self.total // self.batch_size
        smallest_rest = self.batch_size
        for rank in range(self.group.world_size):
            part = replace(self, group=replace(self.group, rank=rank))
            rest = len(part.samples) - whole_batches * part.local_batch_size
            smallest_rest = min(smallest_rest, rest)
        return whole_batches + (smallest_rest > 1)

    def global_batch_size(self, step: int) -> int:
        """Return the images of a step of an epoch, counted from 0, in all processes."""
        return min(self.batch_size, self.total - step * self.batch_size)
