from dataclasses import replace

import pytest
from conftest import TINY

from captcha_ocr.data.shards import Dataset, read_dataset, read_manifest
from captcha_ocr.errors import UsageError
from captcha_ocr.training.run import RunSpec
from captcha_ocr.training.run_folder import find_run


def test_starting_weights_tell_runs_apart_and_the_place_of_the_images_does_not(spec, shards, run, started):
    moved = replace(read_manifest(shards), source="elsewhere", labels="labels.csv")
    assert RunSpec.of(Dataset((shards,), (moved,)), TINY.training) == spec
    begun_elsewhere = RunSpec.of(read_dataset([shards]), TINY.training, run)
    assert spec.init is None
    assert spec == replace(begun_elsewhere, init=None)
    with pytest.raises(UsageError, match="--force"):
        find_run(started, begun_elsewhere, "auto")
    with pytest.raises(UsageError, match="infinity"):  # which JSON as Python reads it has
        RunSpec.from_dict({**spec.to_dict(), "images": {"train": float("inf")}})
