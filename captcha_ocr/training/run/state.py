"""What is in a run folder before a run: refuse what does not fit, and lock the folder."""

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from captcha_ocr.config import PRESETS, TrainConfig
from captcha_ocr.data.prepare import prepare_command
from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.network.resnet import columns_of
from captcha_ocr.system.files import writing_to
from captcha_ocr.training.run.folder import Finished, find_run, may_be_replaced, origin_of
from captcha_ocr.training.run.spec import RunSpec, TrainOptions
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData


@dataclass(frozen=True)
class FolderState:
    """What is in a run folder.

    spec: the run to carry out. finished: how it ended, if it has. replaces: whether it replaces
    another run.
    """

    spec: RunSpec
    finished: Finished | None
    replaces: bool

    def dump(self) -> bytes:
        """Encode for another process."""
        finished = None if self.finished is None else asdict(self.finished)
        return json.dumps([self.spec.to_dict(), finished, self.replaces]).encode()

    @classmethod
    def load(cls, data: bytes) -> "FolderState":
        """Invert `dump`."""
        spec, finished, replaces = json.loads(data)
        ending = None if finished is None else Finished(**finished)
        return cls(RunSpec.from_dict(spec), ending, replaces)


def inspect_folder(
    out: Path,
    dataset: TrainingData,
    config: TrainConfig,
    options: TrainOptions,
    lock: contextlib.ExitStack,
) -> FolderState:
    """Look at what is in `out`, and refuse what does not fit.

    The folder is locked until `lock` is closed, unless the run has finished.
    """
    begun_from = origin_of(out, options.resume)
    spec = replace(RunSpec.of(dataset, config, options.init), begun_from=begun_from)
    _check_fits(dataset, spec)
    finished, replaces = None, False
    try:
        finished = find_run(out, spec, options.resume)
    except CaptchaOcrError:
        replaces = options.force and may_be_replaced(out)
        if not replaces:
            raise
    if finished is None:
        lock.enter_context(writing_to(out))
    return FolderState(spec, finished, replaces)


def _check_fits(dataset: TrainingData, spec: RunSpec) -> None:
    """Refuse images of a size that the network cannot use; name the option that makes others."""
    model, preset, name = spec.model, PRESETS[spec.training.preset], spec.training.preset
    reads_columns = model.network.pool != "global"
    check(
        reads_columns or spec.training.loss != "ctc",
        f"`loss` ctc needs columns, which the preset {name} has not",
    )
    is_fixed = preset.size is not None and preset.size.step is None
    if is_fixed and preset.size != dataset.size:
        reason = f"the preset {name} needs {preset.size}"
    elif reads_columns and columns_of(model) < 2 * model.lengths.longest - 1:  # "aaa" needs blanks
        reason = f"they are too narrow for {model.lengths} characters"
    else:
        return
    if isinstance(dataset, DrawnData):
        raise UsageError(
            f"{dataset.name}: the images are {dataset.size}, but {reason}; "
            "choose other `size` and `channels`"
        )
    folder = dataset.folders[0]
    command = prepare_command(dataset.manifests[0], folder, name)
    raise UsageError(
        f"{folder} holds images of {dataset.size}, but {reason}; make others with: {command}"
    )
