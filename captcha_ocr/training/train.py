"""Train a network on shards or drawings: check what is in the run folder, set up, resume, run the training loop."""

import contextlib
import copy
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from captcha_ocr.config import PRESETS, TrainConfig
from captcha_ocr.data.prepare import prepare_command
from captcha_ocr.data.shards import Dataset, check_shard_refs, read_dataset
from captcha_ocr.errors import CaptchaOcrError, UsageError, check
from captcha_ocr.inference.model_folder import copy_model, current_path, describe_model
from captcha_ocr.network.device import choose_device, describe_device, enough_memory, set_threads
from captcha_ocr.network.resnet import columns_of, count_parameters
from captcha_ocr.system.console import SECONDS_BETWEEN_NOTES, ProgressBar, counted, duration, say
from captcha_ocr.system.files import writing_to
from captcha_ocr.system.memory import keep_freed_memory
from captcha_ocr.training.distributed import local_device, process_group
from captcha_ocr.training.draw_options import DrawOptions
from captcha_ocr.training.interruption import Interruption
from captcha_ocr.training.loop import TrainingLoop
from captcha_ocr.training.run.folder import (
    BEST,
    REPLACED,
    Finished,
    find_run,
    may_be_replaced,
    origin_of,
    start_run,
)
from captcha_ocr.training.run.resume import resume
from captcha_ocr.training.run.spec import Run, RunSpec, TrainOptions, model_for
from captcha_ocr.training.run.tensorboard import TensorBoardLogger
from captcha_ocr.training.samples.batches import Batches, BatchPartition, load_split, slices_of
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData
from captcha_ocr.training.step.optim import make_optimizer, make_scaler
from captcha_ocr.training.step.trainer import Trainer

TRIAL_STEPS, TRIAL_SECONDS = 30, 4.0  # at most, to estimate how long a run takes


def train(
    data: Sequence[Path] | DrawOptions,
    out: Path,
    config: TrainConfig,
    options: TrainOptions = TrainOptions(),
) -> Finished:
    """Train on the shards in the folders `data`, or on what such options draw; write the best model, curves, metrics
    and run.json to `out`.

    An unfinished run of the same configuration in `out` continues, and so does any run of it with fewer epochs
    (`resume` "auto"; "never" refuses it, a path continues from that checkpoint folder). A finished run is left as it
    is. `force` replaces what is refused with UsageError or DamagedError, such as another run, if train wrote it. The
    test set is scored once, at the end.

    On SIGINT or SIGTERM, training saves a checkpoint between two steps and raises KeyboardInterrupt or SystemExit.
    Under torchrun all processes train together; the main process decides, writes and prints.
    """
    options = options.starting(config)
    set_threads(options.threads)
    device = choose_device(local_device(options.device))
    dataset = DrawnData.of(data, config) if isinstance(data, DrawOptions) else read_dataset(data)
    available = dataset.count("train")
    check(
        (config.images or 0) <= available,
        f"{dataset.name} has only {counted(available, 'training image')}; take fewer --images",
    )
    if options.tensorboard:
        TensorBoardLogger.check_installed()
    with process_group(device) as group, contextlib.ExitStack() as lock:
        found = group.broadcast_from_main(
            lambda: inspect_folder(out, dataset, config, options, lock),
            dump=FolderState.dump,
            load=FolderState.load,
        )
        if found.finished is not None:
            if group.rank == 0:
                say(
                    f"{'finished':10} {out} holds this run already; nothing was trained",
                    options.quiet,
                )
            return found.finished
        spec = found.spec
        # The other processes do not read the model to start from.
        own = replace(RunSpec.of(dataset, config), init=spec.init, model=spec.model)
        changes = spec.changes(own)
        check(
            not changes,
            f"this process was started with other settings than the main one ({'; '.join(changes)})",
        )
        run = Run(out, spec, dataset, group, options, found.replaces)
        with enough_memory(group.device, memory_advice(config.batch_size, dataset, out)):
            return start_or_resume(run)


@dataclass(frozen=True)
class FolderState:
    """What is in a run folder: the run to carry out, how it ended if it has, and whether it replaces another run."""

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
        return cls(
            RunSpec.from_dict(spec), None if finished is None else Finished(**finished), replaces
        )


def inspect_folder(
    out: Path,
    dataset: TrainingData,
    config: TrainConfig,
    options: TrainOptions,
    lock: contextlib.ExitStack,
) -> FolderState:
    """Look at what is in `out` and refuse what does not fit; lock the folder unless the run has finished."""
    spec = replace(
        RunSpec.of(dataset, config, options.init), begun_from=origin_of(out, options.resume)
    )
    check_fits(dataset, spec)
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


def check_fits(dataset: TrainingData, spec: RunSpec) -> None:
    """Refuse images of a size that the network cannot use, and name the option or command that makes others."""
    model, preset = spec.model, PRESETS[spec.training.preset]
    if model.network.pool == "global":
        check(
            spec.training.loss != "ctc",
            f"--loss ctc needs columns, which the preset {spec.training.preset} has not",
        )
    if preset.size is not None and preset.size.step is None and preset.size != dataset.size:
        reason = f"the preset {spec.training.preset} needs {preset.size}"
    elif (
        model.network.pool != "global" and columns_of(model) < 2 * model.lengths.longest - 1
    ):  # "aaa" needs blanks
        reason = f"they are too narrow for {model.lengths} characters"
    else:
        return
    if isinstance(dataset, DrawnData):
        way_out = "choose other --size and --channels"
        raise UsageError(f"{dataset.name}: the images are {dataset.size}, but {reason}; {way_out}")
    folder, manifest = dataset.folders[0], dataset.manifests[0]
    command = prepare_command(manifest, folder, spec.training.preset)
    raise UsageError(
        f"{folder} holds images of {dataset.size}, but {reason}; make others with: {command}"
    )


def memory_advice(batch_size: int, dataset: TrainingData, out: Path) -> str:
    """Say what to try when memory runs out."""
    fewer = "fewer --images" if isinstance(dataset, DrawnData) else "--stream"
    return (
        f"for batches of {batch_size}: try --batch-size {max(2, batch_size // 2)}, --precision bf16 or {fewer}, "
        f"with another --out; a checkpoint in {out}, if there is one, is whole"
    )


def start_or_resume(run: Run) -> Finished:
    """Load images and network, resume where the run was stopped, train and score."""
    dataset, group, config = run.dataset, run.group, run.spec.training
    partition = BatchPartition(config.images or dataset.count("train"), config.batch_size, group)
    check(dataset.count("val") > 0, f"{dataset.name} has no validation images; prepare others")
    check(
        partition.total >= 2,
        f"{dataset.name} has {partition.total} training image; at least 2 are needed",
    )
    check(
        partition.steps > 0,
        f"{dataset.name} has too few training images for {group.world_size} processes",
    )
    if isinstance(dataset, Dataset):
        test = slices_of(dataset.of_split("test"), group.portion(dataset.count("test")))
        check_shard_refs(
            part.ref for part in test
        )  # the test shards are read only at the end, the others now
    keep_freed_memory()
    with contextlib.closing(
        load_split(dataset, "train", group, partition.samples, run.options.stream)
    ) as training:
        return train_on(training, partition, run)


def train_on(training: Batches, partition: BatchPartition, run: Run) -> Finished:
    """Load the network, resume where the run was stopped, train and score."""
    dataset, group, config = run.dataset, run.group, run.spec.training
    validation = load_split(dataset, "val", group, stream=run.options.stream)
    trainer = Trainer(
        run.spec.model, config, partition, run.options.init if group.is_main else None
    )
    tell_settings(run, trainer, training)
    checkpoint = resume(trainer, run)
    trainer.replicate(group.wrap(trainer.model))
    wait_for_images(training, trainer, run)
    run.tell(estimate(trainer, training, dataset.count("val")))
    if group.is_main:
        if run.replaces:
            run.tell(
                f"replaces   the run in {run.out}; {run.out / REPLACED} keeps it until this one has finished"
            )
        start_run(run.out, run.spec, run.replaces, checkpoint)
        if (
            checkpoint is not None
            and trainer.progress.best_exact >= 0
            and not (run.out / BEST).exists()
        ):
            copy_model(current_path(checkpoint.parent / BEST), run.out / BEST)
    with Interruption() as interruption:
        loop = TrainingLoop(run, trainer, training, validation, interruption)
        return loop.finish(loop.run_epochs())


def wait_for_images(training: Batches, trainer: Trainer, run: Run) -> None:
    """Wait for the images of the epoch that comes next, which may have to be drawn."""
    training.show(trainer.progress.epoch, trainer.epochs)
    with ProgressBar("draw", run.options.quiet or not run.group.is_main) as bar:
        while missing := training.wait(SECONDS_BETWEEN_NOTES):
            bar.show(len(training) - missing, len(training))


def tell_settings(run: Run, trainer: Trainer, training: Batches) -> None:
    """Print what the run trains, on what, with what."""
    preset, init = run.spec.training.preset, run.options.init
    processes = "" if run.group.world_size == 1 else f"; {run.group.world_size} processes"
    run.tell(f"device     {describe_device(run.group.device)}, {trainer.precision}{processes}")
    run.tell(
        f"data       {trainer.partition.total:,} training images, {run.dataset.count('val'):,} validation images, "
        f"{run.dataset.size}, {training.location}"
    )
    run.tell(f"network    ResNet-18, {count_parameters(trainer.model):,} parameters")
    run.tell(f"recipe     preset {preset}, for {PRESETS[preset].meant_for}")
    if init is not None:
        frozen = (
            f"; first the classifier alone is trained, for {counted(trainer.frozen_steps, 'step')}"
        )
        run.tell(f"weights    from {describe_model(init)}{frozen * (trainer.frozen_steps > 0)}")


def estimate(trainer: Trainer, training: Batches, validation_images: int) -> str:
    """Estimate how long the run takes."""
    rate = measure_rate(trainer, training)
    epoch_s = (
        epoch_seconds(trainer.partition.total, validation_images, rate) + training.extra_seconds
    )
    patience = counted(trainer.config.patience, "epoch")
    if trainer.epochs is None:
        return (
            f"expected   about {duration(epoch_s)} an epoch ({rate:,.0f} images/s); the run ends when validation "
            f"has not improved for {patience}"
        )
    left = (
        trainer.epochs - trainer.progress.epoch - trainer.progress.batch / trainer.partition.steps
    )
    line = f"expected   about {duration(left * epoch_s)} for {counted(math.ceil(left), 'epoch')} ({rate:,.0f} images/s)"
    if trainer.config.patience >= trainer.epochs:
        return line
    return f"{line}; the run ends sooner if validation does not improve for {patience}"


def epoch_seconds(training_images: int, validation_images: int, rate: float) -> float:
    """Return how long an epoch takes at a rate of training images per second; a step costs three forward passes."""
    return (training_images + validation_images / 3) / rate


def measure_rate(trainer: Trainer, training: Batches) -> float:
    """Measure the training images per second in a few steps on a copy of the network that is then thrown away."""
    trial = copy.copy(trainer)
    trial.model = copy.deepcopy(trainer.model)
    trial.optimizer = make_optimizer(trial.model, trainer.config)
    trial.scaler = make_scaler(trainer.device, trainer.precision)
    trial.replicate(trial.model)
    images, labels = training.first(trainer.partition.local_batch_size)
    global_batch = len(images) * trainer.group.world_size
    seconds: list[float] = []
    while len(seconds) < 4 or (len(seconds) < TRIAL_STEPS and sum(seconds) < TRIAL_SECONDS):
        started = time.perf_counter()
        trial.step(images, labels, global_batch)[0].item()  # waits for the device
        seconds.append(time.perf_counter() - started)
    # The first steps are slow and uneven.
    return global_batch / statistics.median(seconds[len(seconds) // 2 :])


def measure_rate_of(dataset: TrainingData, config: TrainConfig, options: TrainOptions) -> float:
    """Measure the training images per second of a run that is not begun."""
    with process_group(choose_device(local_device(options.device))) as group:
        partition = BatchPartition(
            config.images or dataset.count("train"), config.batch_size, group
        )
        training = load_split(dataset, "train", group, partition.samples, options.stream)
        return measure_rate(
            Trainer(model_for(dataset, config, options.init), config, partition), training
        )
