"""Metrics for TensorBoard: the rows of metrics.jsonl as curves (`tensorboard --logdir runs`)."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from captcha_ocr.errors import check

NAMES = {
    "training_loss": "loss/training",
    "training_exact": "exact/training",
    "validation_loss": "loss/validation",
    "validation_exact": "exact/validation",
    "learning_rate": "learning rate",
    "images_per_s": "images per second",
    "peak_memory_mb": "peak memory (MB)/process",
    "peak_device_memory_mb": "peak memory (MB)/device",
}


class TensorBoardLogger:
    """Writes event files into a folder; what a run that was stopped wrote there after `step` is not shown any more."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder, purge_step=step + 1)

    @staticmethod
    def check_installed() -> None:
        """UsageError where the package is not there."""
        check(
            find_spec("tensorboard") is not None,
            "--tensorboard needs a package more; install it with: pip install tensorboard",
        )

    def write(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows of metrics, the training's as they come and the validation's once an epoch."""
        for row in rows:
            for key, name in NAMES.items():
                value = row.get(key)
                if value is not None and (row["by"] == "step" or key.startswith("validation")):
                    self.writer.add_scalar(name, value, row["step"])
        self.writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()
