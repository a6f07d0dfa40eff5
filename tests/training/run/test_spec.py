from dataclasses import replace

import pytest
from conftest import TINY, naming

from captcha_ocr.data.shards import Dataset, read_dataset, read_manifest
from captcha_ocr.errors import UsageError
from captcha_ocr.options.training import PRESETS
from captcha_ocr.training.run.folder import find_run
from captcha_ocr.training.run.spec import RunSpec


def test_starting_weights_tell_runs_apart_and_the_place_of_the_images_does_not(
    spec, shards, run, started
):
    moved = replace(read_manifest(shards), source="elsewhere", labels="labels.csv")
    assert RunSpec.of(Dataset((shards,), (moved,)), TINY.training) == spec
    begun_elsewhere = RunSpec.of(read_dataset([shards]), TINY.training, run)
    assert spec.init is None
    assert spec == replace(begun_elsewhere, init=None)
    with pytest.raises(UsageError, match="`force`"):
        find_run(started, begun_elsewhere, "auto")
    with pytest.raises(UsageError, match="infinity"):  # which JSON as Python reads it has
        RunSpec.from_dict({**spec.to_dict(), "images": {"train": float("inf")}})


@pytest.mark.parametrize(
    ("options", "named", "unnamed"),
    [
        (
            {"learning_rate": 0.1, "batch_size": 7},
            ["`learning_rate`: 0.004 -> 0.1", "`batch_size`: 10 -> 7"],
            ["weight_decay"],
        ),
        (
            {"preset": "few"},
            ["`preset`: tiny -> few"],
            ["batch", "pool", "patience", "weight_decay", "augment"],
        ),
        ({"preset": "few", "loss": "ce"}, ["`preset`: tiny -> few", "`loss`: bce -> ce"], ["pool"]),
        ({"init": True}, ["`init`"], ["lr", "frozen"]),
        (
            {"smoothing": 0.2},
            ["smoothing: 0.1 -> 0.2"],
            ["`"],
        ),  # of another version: no option sets it
    ],
)
def test_another_run_is_told_apart_by_the_options_that_were_given(
    options, named, unnamed, spec, shards, run, started
):
    training = PRESETS[options.get("preset", "tiny")].training
    init = run if options.pop("init", False) else None
    training = (
        training if init is None else training.for_fine_tuning(on_drawings=False)
    ).with_options(**options)
    other = RunSpec.of(read_dataset([shards]), training, init)
    changes = "; ".join(spec.changes(other))
    assert all(name in changes for name in named), changes
    assert not any(name in changes for name in unnamed), changes
    with pytest.raises(UsageError, match=naming(*named)):
        find_run(started, other, "auto")
