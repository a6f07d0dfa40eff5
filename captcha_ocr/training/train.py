"""Train a network on shards or drawings, from the options of a run to its test."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from captcha_ocr.data.shards import Dataset, check_shards, read_dataset
from captcha_ocr.errors import check
from captcha_ocr.network.calibration import calibrate
from captcha_ocr.network.device import enough_memory, set_threads
from captcha_ocr.network.resnet import ResNet18, to_device
from captcha_ocr.network.weights import load_model
from captcha_ocr.options.training import DrawOptions, TrainConfig, TrainOptions, decays
from captcha_ocr.scores import Scores, loss_or_infinity
from captcha_ocr.system.console import ProgressBar, counted, duration
from captcha_ocr.system.memory import keep_freed_memory
from captcha_ocr.system.signals import handling
from captcha_ocr.training.distributed import BatchPartition, local_device, process_group
from captcha_ocr.training.early_stopping import ending_rule, finds_end, has_learnt, is_better
from captcha_ocr.training.evaluate import evaluate, evaluation_batch
from captcha_ocr.training.reporting import (
    describe_memory,
    epoch_row,
    estimate,
    head_epochs,
    tell_settings,
)
from captcha_ocr.training.run.checkpoint import resume
from captcha_ocr.training.run.folder import BEST, Finished, inspect_folder, parse_run
from captcha_ocr.training.run.recorder import Recorder
from captcha_ocr.training.run.spec import Run, RunSpec, with_preset_model
from captcha_ocr.training.samples.batches import Batches, load_split, slice_shards
from captcha_ocr.training.samples.dataset import DrawnData, TrainingData
from captcha_ocr.training.step.trainer import Trainer

_TRAINING_BATCHES = 4  # of training images, to score for comparison


def train(
    data: Sequence[Path] | DrawOptions,
    out: Path,
    config: TrainConfig,
    options: TrainOptions = TrainOptions(),
) -> Finished:
    """Train on the shards in the folders `data`, or on what such options draw.

    Write the best model, curves, metrics and run.json to `out`. Score the test set once, at the
    end.

    An unfinished run of the same configuration in `out` continues, and so does any run of it with
    fewer epochs (`resume` "auto"; "never" refuses it, a path continues from that checkpoint
    folder). A finished run is left as it is. `force` replaces what is refused with UsageError or
    DamagedError, such as another run, if train wrote it.

    On SIGINT or SIGTERM, training saves a checkpoint between two steps and raises KeyboardInterrupt
    or SystemExit. Under torchrun all processes train together; the main process decides, writes and
    prints.
    """
    options = with_preset_model(options, config)
    set_threads(options.threads)
    device = local_device(options.device)
    dataset = DrawnData.of(data, config) if isinstance(data, DrawOptions) else read_dataset(data)
    check(
        not options.tensorboard or find_spec("tensorboard") is not None,
        "`tensorboard` needs another package; install it with: pip install tensorboard",
    )
    with process_group(device) as group, contextlib.ExitStack() as stack:
        # The main process alone looks into the folder, and describes the run for all.
        document, _ = group.broadcast_from_main(
            lambda: (inspect_folder(out, dataset, config, options, stack), b"")
        )
        spec, finished = parse_run(document)
        run = Run(out, spec, dataset, group, options, document["replaces"])
        if finished is not None:
            run.tell(f"finished   {out} holds this run already; nothing was trained")
            return finished
        _check_settings(spec, dataset, config)
        stack.enter_context(enough_memory(device, _name_memory_savers(run)))
        training, validation, trainer, recorder = _begin(run, stack)
        progress = trainer.progress

        def between_steps() -> None:
            recorder.record_step()
            run.interruption.leave_after_step(progress.step)

        # Epochs, until a rule ends the run. A signal ends it between steps and between batches.
        rule = ending_rule(trainer)
        if rule is None:
            run.tell(head_epochs(trainer))
        try:
            while rule is None:
                seconds = _show_images(run, training, progress.epoch, trainer.epochs)
                progress.seconds += seconds
                trainer.metrics.recent.seconds += seconds
                row = trainer.run_epoch(training, run.is_silent, between_steps)
                _validate(run, trainer, training, validation, recorder, row)
                rule = ending_rule(trainer)
        except (KeyboardInterrupt, SystemExit):
            recorder.save()
            raise
        return _finish(run, trainer, training, validation, recorder, rule)


def _begin(run: Run, stack: contextlib.ExitStack) -> tuple[Batches, Batches, Trainer, Recorder]:
    """Load the images and the network, which may continue from a checkpoint.

    What is open in a run is closed with `stack`. Refuses too few images with UsageError;
    DamagedError for a damaged shard of the test set, which is read only at the end.
    """
    dataset, group, config, options = run.dataset, run.group, run.spec.training, run.options
    partition = BatchPartition(config.images or dataset.count("train"), config.batch_size, group)
    check(dataset.count("val") > 0, f"{dataset.name} has no validation images; prepare others")
    check(
        partition.steps > 0,
        f"{dataset.name} has {counted(partition.total, 'training image')}, too few for "
        f"{counted(group.world_size, 'process')}: each needs at least 2",
    )
    if isinstance(dataset, Dataset):
        test = slice_shards(dataset.of_split("test"), group.portion(dataset.count("test")))
        check_shards(ref for ref, _ in test)
    keep_freed_memory()
    training = load_split(dataset, "train", group, partition.samples, options.stream)
    stack.callback(training.close)
    validation = load_split(dataset, "val", group, stream=options.stream)
    init = options.init if group.is_main else None
    may_end = finds_end(config, partition.total, dataset.count("val"))
    trainer = Trainer(run.spec.model, config, partition, init, may_end)
    tell_settings(run, trainer, training)
    checkpoint = resume(trainer, run)
    trainer.distribute(group.wrap(trainer.model))
    _show_images(run, training, trainer.progress.epoch, trainer.epochs, run.is_silent)
    run.tell(estimate(trainer, training, dataset.count("val")))
    recorder = Recorder(run, trainer, checkpoint, stack)
    # From here on a signal is only noted, until the run can end.
    stack.enter_context(handling(run.interruption.receive))
    return training, validation, trainer, recorder


def _check_settings(spec: RunSpec, dataset: TrainingData, config: TrainConfig) -> None:
    """Refuse other settings in this process than in the main one, which has described the run."""
    # The other processes do not read the model to start from.
    local = replace(RunSpec.of(dataset, config), init=spec.init, model=spec.model)
    changes = "; ".join(spec.changes(local))
    check(
        not changes, f"this process was started with other settings than the main one ({changes})"
    )


def _name_memory_savers(run: Run) -> str:
    """Say what to try when memory runs out."""
    batch_size = run.spec.training.batch_size
    smaller = "fewer `images`" if isinstance(run.dataset, DrawnData) else "`stream`"
    return (
        f"for batches of {batch_size}: try `batch_size` {max(2, batch_size // 2)}, "
        f"`precision` bf16 or {smaller}, with another `out`; "
        f"a checkpoint in {run.out}, if there is one, is whole"
    )


def _show_images(
    run: Run, training: Batches, epoch: int, epochs: int | None, is_silent: bool = True
) -> float:
    """Wait until all processes have the images of an epoch, or a signal ends the run.

    epochs: of the run, if that is known. Return the seconds.
    """
    started = time.perf_counter()
    with ProgressBar("draw", is_silent) as bar:
        for done, total in run.interruption.watch(training.show(epoch, epochs)):
            bar.show(done, total)
    return time.perf_counter() - started


def _validate(
    run: Run,
    trainer: Trainer,
    training: Batches,
    validation: Batches,
    recorder: Recorder,
    row: dict[str, Any],
) -> None:
    """Score the validation images, and save the best model and a checkpoint.

    row: the metrics of the epoch, which gets the scores. Until the learning rate has decayed to
    zero, a run that finds its end is scored with the average of its weights.
    """
    progress, config, started = trainer.progress, trainer.config, time.perf_counter()
    at_rest = progress.epoch + 1 == trainer.epochs and decays(config)
    sample = trainer.sample(training) if trainer.finds_end and not at_rest else None
    model = trainer.result(None if sample is None else sample[0])
    scores = _score(run, model, validation)
    loss = loss_or_infinity(scores.loss)
    row |= {
        "validation_loss": scores.loss,
        "validation_exact": scores.exact_match,
        "validation_characters": scores.character_accuracy,
    }
    if sample is not None:
        both = scores + evaluate(model, [sample], config.loss, run.group)
        row |= {"average_exact": both.exact, "average_images": both.images}
    at_rest = at_rest or has_learnt(trainer, [*progress.epoch_rows, row])
    if is_better(scores, progress, at_rest):
        if run.group.is_main:
            # The other processes do not calibrate, and so cannot agree on a signal meanwhile.
            batches = validation.in_order(evaluation_batch(model.config))
            if run.group.world_size == 1:
                batches = run.interruption.watch(batches)
            recorder.save_best(calibrate(model, batches), scores)
        progress.best_epoch, progress.best_exact = progress.epoch + 1, scores.exact_match
        progress.best_loss = loss
    progress.seconds += time.perf_counter() - started
    row["seconds"] = progress.seconds
    progress.rows.append({"by": "epoch", **row})
    trainer.end_epoch(loss)
    recorder.record_epoch()
    run.tell(epoch_row(row, trainer))


def _finish(
    run: Run,
    trainer: Trainer,
    training: Batches,
    validation: Batches,
    recorder: Recorder,
    rule: str,
) -> Finished:
    """Score the test set once with the best weights, write the end of the run, and tell it."""
    group, dataset, progress = run.group, run.dataset, trainer.progress
    model = load_model(run.out / BEST) if group.is_main else ResNet18(trainer.model.config)
    model = to_device(model, trainer.device)
    group.broadcast(model.state_dict().values())
    _show_images(run, training, progress.epoch - 1, progress.epoch)
    trained = _score(run, model, training, _TRAINING_BATCHES)
    validated = _score(run, model, validation)
    test, test_scores = None, None
    if dataset.count("test"):
        test = _score(run, model, load_split(dataset, "test", group, stream=run.options.stream))
        test_scores = {**test.summary(), **test.counts()}
        if isinstance(dataset, Dataset) and dataset.holds_readings:
            test_scores["against"] = "readings"
    finished = Finished(
        rule=rule,
        epochs=progress.epoch,
        best_epoch=progress.best_epoch,
        seconds=progress.seconds,
        training=trained.summary(),
        validation=validated.summary(),
        test=test_scores,
    )
    recorder.end(finished, validated, test)
    epochs, memory = counted(progress.epoch, "epoch"), describe_memory(progress.rows[-1])
    run.tell(
        f"ended      {rule}: {epochs} in {duration(progress.seconds)}, "
        f"best epoch {progress.best_epoch}; {memory}"
    )
    return finished


def _score(run: Run, model: ResNet18, batches: Batches, limit: int | None = None) -> Scores:
    """Score a split, or its first batches: every process its part, with the main one's batch norms.

    A signal ends the run between two batches.
    """
    run.group.broadcast(model.buffers())
    some_batches = islice(batches.in_order(evaluation_batch(model.config)), limit)
    watched = run.interruption.watch(some_batches)
    return evaluate(model, watched, run.spec.training.loss, run.group)
