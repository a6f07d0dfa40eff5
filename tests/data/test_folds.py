import shutil
from dataclasses import replace

import pytest
from conftest import ONE_WORKER, contents, naming

from captcha_ocr.data.folds import list_folds, prepare_folds
from captcha_ocr.data.shards import MANIFEST_FILE
from captcha_ocr.errors import UsageError
from captcha_ocr.options.preparation import SPLITS
from captcha_ocr.system.files import LOCK_FILE

from .conftest import SMALL, counts, labelled, numbered, samples, tiny


def test_every_image_is_in_the_test_set_of_one_fold_and_in_no_other_split_of_it(images, tmp_path):
    prepare_folds(images, tmp_path, 4, tiny(), ONE_WORKER)
    tested = []
    for folder in list_folds(tmp_path):
        splits = [samples(folder, split) for split in SPLITS]
        assert [len(split) for split in splits] == [41, 4, 15]
        assert len({pixels for split in splits for pixels, _ in split}) == 60
        tested += splits[2]
    assert len(set(tested)) == 60


def test_folds_ignore_given_splits_and_need_an_image_each(tmp_path):
    images, out = labelled(tmp_path / "images", numbered(6, lambda _: "test")), tmp_path / "folds"
    with pytest.raises(UsageError, match=naming(6, 7)):
        prepare_folds(images, out, 7, SMALL, ONE_WORKER)
    assert not (out / "fold-1").exists()
    prepare_folds(images, out, 2, SMALL, ONE_WORKER)
    assert [counts(folder) for folder in list_folds(out)] == [[2, 1, 3], [2, 1, 3]]


def test_folds_are_not_made_among_shards_or_beside_files_of_others(images, done, tmp_path):
    with pytest.raises(UsageError, match=naming(done, "`out`")):
        prepare_folds(images, done, 2, tiny(), ONE_WORKER)
    out = tmp_path / "folds"
    prepare_folds(images, out, 3, tiny(), ONE_WORKER)
    with pytest.raises(UsageError, match="`force`"):
        prepare_folds(images, out, 2, tiny(), ONE_WORKER)
    (out / "fold-3" / LOCK_FILE).touch()  # as a killed writer leaves it
    prepare_folds(images, out, 2, tiny(), replace(ONE_WORKER, force=True))
    assert sorted(out.iterdir()) == list_folds(out) == [out / "fold-1", out / "fold-2"]
    (out / "fold-3").mkdir()
    (out / "fold-3" / "mine").touch()
    with pytest.raises(UsageError, match="fold-3"):
        prepare_folds(images, out, 2, tiny(), replace(ONE_WORKER, force=True))
    assert [path.name for path in (out / "fold-3").iterdir()] == ["mine"]


def test_unfinished_folds_go_on_but_not_as_others(images, tmp_path):
    out, whole = tmp_path / "folds", tmp_path / "whole"
    prepare_folds(images, whole, 3, tiny(), ONE_WORKER)
    shutil.copytree(whole, out)
    shutil.rmtree(out / "fold-3")
    (out / "fold-2" / MANIFEST_FILE).unlink()
    with pytest.raises(UsageError, match="`force`"):
        prepare_folds(images, out, 2, tiny(), ONE_WORKER)
    prepared = prepare_folds(images, out, 3, tiny(), ONE_WORKER)
    assert [fold.already_there for fold in prepared] == [True, False, False]
    assert all(
        contents(out / f"fold-{number}") == contents(whole / f"fold-{number}")
        for number in (1, 2, 3)
    )
