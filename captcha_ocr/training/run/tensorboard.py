"""The rows of metrics.jsonl as curves in TensorBoard (`tensorboard --logdir runs`)."""

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
    "validation_characters": "characters/validation",
    "learning_rate": "learning rate",
    "images_per_s": "images per second",
    "peak_memory_mb": "peak memory (MB)/process",
    "peak_device_memory_mb": "peak memory (MB)/device",
}


class TensorBoardLogger:
    """Write event files into a folder; those that a stopped run wrote after `step` are hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder, purge_step=step + 1)

    @staticmethod
    def check_installed() -> None:
        """Raise UsageError unless the package is installed."""
        is_installed = find_spec("tensorboard") is not None
        check(
            is_installed,
            "`tensorboard` needs another package; install it with: pip install tensorboard",
        )

    def write(self, rows: Iterable[dict[str, Any]]) -> None:
        """Add rows of metrics: those of training steps, and the validation values of epochs."""
        for row in rows:
            for key, name in NAMES.items():
                value = row.get(key)
                if value is not None and (row["by"] == "step" or key.startswith("validation")):
                    self.writer.add_scalar(name, value, row["step"])
        self.writer.flush()

    def close(self) -> None:
        """Write what is buffered."""
        self.writer.close()
