import csv
import os
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import captcha_ocr.prepare
from captcha_ocr.config import SPLITS, InputSize, Lengths, PrepareConfig
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.files import LOCK_FILE, seal, to_json, writing_to
from captcha_ocr.images import to_array
from captcha_ocr.labels import read_labels
from captcha_ocr.prepare import STAGING, folds_in, prepare, prepare_command, prepare_folds
from captcha_ocr.shards import MANIFEST_FILE, read_manifest, read_shard

SMALL = PrepareConfig(width=16, height=8)
AB_OR_BA = ("ab", "ba")


def tiny(**options):
    """The configuration that made the shards of conftest.py (its preset exists only while tests run)."""
    return PrepareConfig(preset="tiny", **options)


def names(*words):
    """What a message matches that holds all these words, in any order."""
    return "".join(f"(?=.*{re.escape(str(word))})" for word in words)


def contents(folder):
    """Every file of a folder: name -> bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def identities(folder):
    """What changes when a file is written again, even with the same bytes."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def samples(folder, split):
    """What the shards of one split hold: [(pixels as bytes, text)]."""
    manifest = read_manifest(folder)
    pairs = []
    for shard in manifest.of_split(split):
        images, labels = read_shard(folder, manifest, shard)
        pairs += zip((image.tobytes() for image in images), manifest.charset.decode(labels), strict=True)
    return pairs


def greys(folder, split):
    """The grey values of flat images in one split, sorted."""
    return sorted(pixels[0] for pixels, _ in samples(folder, split))


def draw(folder, name, grey):
    """A flat image; equal greys give equal bytes."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (16, 8), grey).save(folder / name)


def write_labels(folder, rows, header=("filename", "text", "split")):
    with open(folder / "labels.csv", "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])


def labelled(folder, rows):
    """A folder of flat images and its labels.csv from rows of (grey, text[, split]): 0.png, 1.png, …"""
    for number, (grey, *_) in enumerate(rows):
        draw(folder, f"{number}.png", grey)
    write_labels(folder, [(f"{number}.png", *rest) for number, (_, *rest) in enumerate(rows)])
    return folder


@pytest.fixture
def own(images, tmp_path):
    """A copy of the 60 images, to change."""
    return shutil.copytree(images, tmp_path / "own")


# --- the same from the same ----------------------------------------------------------------------


def test_two_runs_give_the_same_bytes(images, shards, tmp_path):
    prepare(images, tmp_path / "again", tiny(), workers=1)
    assert contents(tmp_path / "again") == contents(shards)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_jobs_and_workers_changes_no_byte(images, shards, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(captcha_ocr.prepare, "IMAGES_PER_JOB", 25)  # all 60 at once would be left to one process
    prepare(images, tmp_path, tiny(), workers=workers)
    assert contents(tmp_path) == contents(shards)


def test_the_order_of_rows_in_the_labels_file_changes_no_shard(own, shards, tmp_path):
    header, *rows = (own / "labels.csv").read_text().splitlines(keepends=True)
    (own / "labels.csv").write_text("".join([header, *rows[::-1]]))
    prepare(own, tmp_path / "out", tiny(), workers=1)
    assert read_manifest(tmp_path / "out").shards == read_manifest(shards).shards


def test_another_seed_shuffles_otherwise(images, shards, tmp_path):
    prepare(images, tmp_path, tiny(seed=1), workers=1)
    assert samples(tmp_path, "train") != samples(shards, "train")


# --- splits --------------------------------------------------------------------------------------


def test_80_10_10_is_the_split_by_default(shards):
    assert [read_manifest(shards).count(split) for split in SPLITS] == [48, 6, 6]


@pytest.mark.parametrize(("split", "counts"), [((50, 30, 20), [30, 18, 12]), ((98, 1, 1), [58, 1, 1])])
def test_other_percentages_are_kept_and_no_split_is_empty(images, tmp_path, split, counts):
    manifest = prepare(images, tmp_path, tiny(split=split), workers=1).manifest
    assert [manifest.count(name) for name in SPLITS] == counts


def test_every_image_is_there_once_with_its_own_text(images, shards):
    size = read_manifest(shards).size
    labels, _ = read_labels(images / "labels.csv")
    expected = [(to_array(images / label.file, size).tobytes(), label.text) for label in labels]
    found = [sample for split in SPLITS for sample in samples(shards, split)]
    assert sorted(found) == sorted(expected)


def test_no_image_stands_in_two_splits(shards):
    train, val, test = ({pixels for pixels, _ in samples(shards, split)} for split in SPLITS)
    assert [train & val, train & test, val & test] == [set()] * 3


def test_training_images_are_shuffled(images, shards):
    labels, _ = read_labels(images / "labels.csv")
    texts = [text for _, text in samples(shards, "train")]
    assert texts != [label.text for label in labels][: len(texts)]


def test_a_given_split_is_kept(tmp_path):
    rows = [(grey, AB_OR_BA[grey % 2], SPLITS[grey % 3]) for grey in range(12)]
    prepare(labelled(tmp_path / "images", rows), tmp_path / "out", SMALL, workers=1)
    assert {split: greys(tmp_path / "out", split) for split in SPLITS} == {
        "train": [0, 3, 6, 9],
        "val": [1, 4, 7, 10],
        "test": [2, 5, 8, 11],
    }


def test_a_tenth_of_train_is_drawn_to_validate_on_where_none_is_given(tmp_path):
    rows = [(grey, AB_OR_BA[grey % 2], "train" if grey < 40 else "test") for grey in range(50)]
    prepare(labelled(tmp_path / "images", rows), tmp_path / "out", SMALL, workers=1)
    train, val = greys(tmp_path / "out", "train"), greys(tmp_path / "out", "val")
    assert (len(val), sorted(train + val)) == (4, list(range(40)))
    assert greys(tmp_path / "out", "test") == list(range(40, 50))


def test_no_test_set_is_drawn_where_splits_are_given(tmp_path):
    rows = [(grey, AB_OR_BA[grey % 2], "val" if grey == 9 else "train") for grey in range(10)]
    prepare(labelled(tmp_path / "images", rows), tmp_path / "out", SMALL, workers=1)
    assert [read_manifest(tmp_path / "out").count(split) for split in SPLITS] == [9, 1, 0]


def test_every_image_is_in_the_test_set_of_one_fold_and_in_no_other_split_of_it(images, tmp_path):
    prepare_folds(images, tmp_path / "folds", 4, tiny(), workers=1)
    tested = []
    for folder in folds_in(tmp_path / "folds"):
        splits = [samples(folder, split) for split in SPLITS]
        assert [len(split) for split in splits] == [41, 4, 15]
        assert len({pixels for split in splits for pixels, _ in split}) == 60
        tested += splits[2]
    assert len(set(tested)) == 60


def test_folds_do_not_heed_given_splits(tmp_path):
    images = labelled(tmp_path / "images", [(grey, AB_OR_BA[grey % 2], "test") for grey in range(6)])
    prepared = prepare_folds(images, tmp_path / "folds", 2, SMALL, workers=1)
    assert [[each.manifest.count(split) for split in SPLITS] for each in prepared] == [[2, 1, 3], [2, 1, 3]]


def test_more_folds_than_images_are_refused_and_nothing_is_left(tmp_path):
    images = labelled(tmp_path / "images", [(grey, AB_OR_BA[grey % 2]) for grey in range(3)])
    with pytest.raises(UsageError, match=names(3, 5)):
        prepare_folds(images, tmp_path / "folds", 5, SMALL, workers=1)
    assert not (tmp_path / "folds" / "fold-1").exists()


def test_folds_and_a_split_exclude_each_other(images, tmp_path):
    with pytest.raises(UsageError, match="--split"):
        prepare_folds(images, tmp_path / "folds", 3, tiny(split=(50, 25, 25)), workers=1)


def test_serial_numbers_in_the_names_are_no_texts(tmp_path):
    for number in range(10):
        draw(tmp_path / "images", f"{number:04}_{AB_OR_BA[number % 2]}.png", number)
    with pytest.raises(UsageError, match="--label-pattern"):
        prepare(tmp_path / "images", tmp_path / "out", SMALL, workers=1)
    by_pattern = replace(SMALL, label_pattern="_(.+)[.]")
    assert prepare(tmp_path / "images", tmp_path / "out", by_pattern, workers=1).manifest.charset.characters == "ab"


@pytest.mark.parametrize("option", ["labels_file", "corrections"])
def test_a_table_that_names_none_of_the_images_is_refused(images, tmp_path, option):
    (tmp_path / "other.csv").write_text("filename,text\nelsewhere/a.png,ab\n../b.png,ba\n")
    with pytest.raises(UsageError, match=names("other.csv", "elsewhere/a.png")):
        prepare(images, tmp_path / "out", tiny(), workers=1, **{option: tmp_path / "other.csv"})
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_read_in_a_text_is_said(tmp_path):
    images = labelled(tmp_path / "images", [(0, "ab"), (1, "ba"), (2, "bb"), (3, "a b")])
    assert "' '" in prepare(images, tmp_path / "out", SMALL, workers=1).problems["3.png"]


def test_an_image_of_one_pixel_spoils_nothing(tmp_path):
    images = labelled(tmp_path / "images", [(grey, AB_OR_BA[grey % 2]) for grey in range(4)])
    Image.new("RGB", (1, 1), "red").save(images / "0.png")
    assert prepare(images, tmp_path / "out", SMALL, workers=1).problems == {}


def test_another_number_of_folds_is_refused_and_forced(images, tmp_path):
    out = tmp_path / "folds"
    prepare_folds(images, out, 3, tiny(), workers=1)
    with pytest.raises(UsageError, match="--force"):
        prepare_folds(images, out, 2, tiny(), workers=1)
    prepare_folds(images, out, 2, tiny(), workers=1, force=True)
    assert sorted(out.iterdir()) == folds_in(out) == [out / "fold-1", out / "fold-2"]


def test_folds_that_were_begun_go_on_but_not_as_others(images, tmp_path, monkeypatch):
    out, whole = tmp_path / "folds", tmp_path / "whole"
    prepare_folds(images, whole, 4, tiny(), workers=1)
    shutil.copytree(whole, out)
    shutil.rmtree(out / "fold-4")
    (out / "fold-3" / MANIFEST_FILE).unlink()
    with pytest.raises(UsageError, match="--force"):
        prepare_folds(images, out, 3, tiny(), workers=1)
    prepared = prepare_folds(images, out, 4, tiny(), workers=1)
    assert [fold.already_there for fold in prepared] == [True, True, False, False]
    assert all(contents(out / f"fold-{n}") == contents(whole / f"fold-{n}") for n in range(1, 5))


def test_folds_too_many_go_with_what_a_killed_writer_left_but_not_with_what_is_a_strangers(images, tmp_path):
    out = tmp_path / "folds"
    prepare_folds(images, out, 4, tiny(), workers=1)
    (out / "fold-4" / LOCK_FILE).touch()
    prepare_folds(images, out, 3, tiny(), workers=1, force=True)
    assert folds_in(out) == [out / f"fold-{number}" for number in (1, 2, 3)]
    (out / "fold-3" / "mine").touch()
    with pytest.raises(UsageError, match="fold-3"):
        prepare_folds(images, out, 2, tiny(), workers=1, force=True)
    assert [path.name for path in (out / "fold-3").iterdir()] == ["mine"]


def test_a_strangers_options_are_no_commands(shards):
    options = {"fold": 5, "out": "/elsewhere", "force": True, "seed": 7, "split": [1, 2], "length": {"a": []}}
    manifest = replace(read_manifest(shards), source="images", options=options)
    words = shlex.split(prepare_command(manifest, Path("out"), "seed"))
    assert words[:6] == ["captcha-ocr", "prepare", "images", "--out", "out", "--preset"]
    assert words[7:] == ["--split", "1/2", "--seed", "7", "--length", "{'a': []}", "--force"]


def test_a_labels_file_that_leads_nowhere_is_no_missing_one(tmp_path):
    images = labelled(tmp_path / "images", [(0, "ab"), (1, "ba")])
    (images / "labels.csv").unlink()
    (images / "labels.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
        prepare(images, tmp_path / "out", SMALL, workers=1)


def test_folds_are_not_made_among_shards(images, shards):
    with pytest.raises(UsageError, match=names(shards, "--out")):
        prepare_folds(images, shards, 2, tiny(), workers=1)


def test_corrections_come_before_every_other_label_and_keep_the_split(tmp_path):
    images = labelled(
        tmp_path / "images", [(1, "ab", "test"), (2, "bb", "train"), (3, "aa", "train"), (4, "ba", "val")]
    )
    (tmp_path / "fixed.csv").write_text("filename,text,confidence\n0.png,bbb,0.1\n2.png,,0.2\n")
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1, corrections=tmp_path / "fixed.csv")
    assert list(prepared.problems) == ["2.png"]
    assert [[text for _, text in samples(tmp_path / "out", split)] for split in SPLITS] == [["bb"], ["ba"], ["bbb"]]


def test_corrections_can_name_what_had_no_label(tmp_path):
    images = tmp_path / "images"
    for number, name in enumerate(("a_b-c.png", "aa.png", "bb.png")):
        draw(images, name, number)
    (tmp_path / "fixed.csv").write_text("filename,text\na_b-c.png,ab\n")
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1, corrections=tmp_path / "fixed.csv")
    assert prepared.problems == {}
    assert prepared.manifest.count("train") == 1


def test_three_images_are_enough(tmp_path):
    prepare(
        labelled(tmp_path / "images", [(grey, AB_OR_BA[grey % 2]) for grey in range(3)]),
        tmp_path / "out",
        SMALL,
        workers=1,
    )
    assert [read_manifest(tmp_path / "out").count(split) for split in SPLITS] == [1, 1, 1]


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_images_are_a_clear_error(tmp_path, count):
    images = labelled(tmp_path / "images", [(grey, "ab"[grey] + "b") for grey in range(count)])
    with pytest.raises(CaptchaOcrError, match=str(count)):
        prepare(images, tmp_path / "out", SMALL, workers=1)
    assert not (tmp_path / "out").exists()


def test_images_that_all_have_the_same_text_are_refused(tmp_path):
    images = labelled(tmp_path / "images", [(grey, text) for grey, text in enumerate(["Ab", "ab", "aB"])])
    with pytest.raises(UsageError, match=names(3, "'Ab'")):
        prepare(images, tmp_path / "out", SMALL, workers=1)
    assert not (tmp_path / "out").exists()


# --- shards --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_a_split_is_cut_into_shards_and_the_tail_kept(images, tmp_path, monkeypatch, workers):
    monkeypatch.setattr(captcha_ocr.prepare, "SAMPLES_PER_SHARD", 20)
    manifest = prepare(images, tmp_path, tiny(), workers=workers).manifest
    assert [(shard.file, shard.count) for shard in manifest.shards] == [
        ("train-00000.safetensors.gz", 20),
        ("train-00001.safetensors.gz", 20),
        ("train-00002.safetensors.gz", 8),
        ("val-00000.safetensors.gz", 6),
        ("test-00000.safetensors.gz", 6),
    ]


def test_the_size_of_shards_changes_no_sample_and_no_order(images, shards, tmp_path, monkeypatch):
    monkeypatch.setattr(captcha_ocr.prepare, "SAMPLES_PER_SHARD", 20)
    prepare(images, tmp_path, tiny(), workers=1)
    assert samples(tmp_path, "train") == samples(shards, "train")


def test_a_shard_has_a_thousand_samples():
    assert captcha_ocr.prepare.SAMPLES_PER_SHARD == 1000


def test_nothing_but_shards_and_the_manifest_stays(shards):
    assert sorted(contents(shards)) == [MANIFEST_FILE, *(f"{split}-00000.safetensors.gz" for split in sorted(SPLITS))]


def test_the_input_size_is_that_of_the_preset(shards, tiny_preset):
    assert read_manifest(shards).size == tiny_preset.size


def test_without_a_recipe_of_its_own_the_input_size_follows_from_the_images(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number, text in enumerate(("ab", "ba", "aab")):
        Image.new("RGB", (300, 100), (number, number, number)).save(images / f"{text}.png")
    manifest = prepare(images, tmp_path / "out", PrepareConfig(), workers=1).manifest
    assert manifest.size == InputSize(height=57, width=170, channels=1)


def test_progress_ends_with_everything_decoded(images, tmp_path):
    told = []
    prepare(images, tmp_path, tiny(), workers=1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (60, 60)


# --- labels --------------------------------------------------------------------------------------


def test_labels_come_from_file_names_where_there_is_no_labels_file(own, shards, tmp_path):
    (own / "labels.csv").unlink()
    prepare(own, tmp_path / "out", tiny(), workers=1)
    assert samples(tmp_path / "out", "test") == samples(shards, "test")


def test_a_labels_file_may_lie_elsewhere(own, shards, tmp_path):
    labels_file = Path(shutil.move(own / "labels.csv", tmp_path / "mine.csv"))
    prepare(own, tmp_path / "out", tiny(), labels_file, workers=1)
    assert samples(tmp_path / "out", "test") == samples(shards, "test")


def test_a_pattern_wins_over_the_labels_file_of_the_folder(own, tmp_path):
    manifest = prepare(own, tmp_path / "out", tiny(label_pattern=r"-(\d)"), workers=1).manifest
    assert manifest.lengths == Lengths(1, 1)


def test_a_labels_file_and_a_pattern_exclude_each_other(images, tmp_path):
    with pytest.raises(UsageError, match=names("--labels", "--label-pattern")):
        prepare(images, tmp_path, tiny(label_pattern="x"), images / "labels.csv")


def test_images_in_folders_are_found_by_their_path(tmp_path):
    for number in range(3):
        draw(tmp_path / "images", f"sub/{number}-{AB_OR_BA[number % 2]}.png", number)
    assert prepare(tmp_path / "images", tmp_path / "out", SMALL, workers=1).problems == {}


def test_labels_of_both_cases_are_folded(tmp_path):
    images = labelled(tmp_path / "images", [(0, "Ab"), (1, "aB"), (2, "bb")])
    manifest = prepare(images, tmp_path / "out", SMALL, workers=1).manifest
    assert (manifest.charset.characters, manifest.charset.fold) == ("ab", "lower")


def test_case_sensitive_keeps_both_cases(tmp_path):
    images = labelled(tmp_path / "images", [(0, "Ab"), (1, "aB"), (2, "bb")])
    config = PrepareConfig(width=16, height=8, case_sensitive=True)
    assert prepare(images, tmp_path / "out", config, workers=1).manifest.charset.characters == "ABab"


# --- what is left out ----------------------------------------------------------------------------


def test_a_damaged_file_is_named_counted_and_left_out(own, tmp_path):
    damaged = sorted(own.glob("*.png"))[5]
    damaged.write_bytes(damaged.read_bytes()[:200])
    prepared = prepare(own, tmp_path / "out", tiny(), workers=1)
    assert list(prepared.problems) == [damaged.name]
    assert prepared.manifest.left_out == 1
    assert sum(prepared.manifest.count(split) for split in SPLITS) == 59


def test_a_damaged_file_shifts_no_label_of_the_others(own, shards, tmp_path):
    sorted(own.glob("*.png"))[0].write_bytes(b"")
    prepare(own, tmp_path / "out", tiny(), workers=1)
    found = {sample for split in SPLITS for sample in samples(tmp_path / "out", split)}
    assert found < {sample for split in SPLITS for sample in samples(shards, split)}


def test_a_row_without_its_file_and_a_file_without_its_row_are_reported(own, tmp_path):
    files = sorted(path.name for path in own.glob("*.png"))
    (own / files[0]).unlink()
    lines = (own / "labels.csv").read_text().splitlines(keepends=True)
    (own / "labels.csv").write_text("".join(line for line in lines if files[1] not in line))
    problems = prepare(own, tmp_path / "out", tiny(), workers=1).problems
    assert sorted(problems) == files[:2]
    assert "labels.csv" in problems[files[1]]


def test_texts_of_several_lengths_are_kept(tmp_path):
    images = labelled(tmp_path / "images", [(0, "abc"), (1, "a"), (2, "ba"), (3, "aa")])
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1)
    assert prepared.problems == {}
    assert prepared.manifest.lengths == Lengths(1, 3)
    assert sorted(text for split in SPLITS for _, text in samples(tmp_path / "out", split)) == ["a", "aa", "abc", "ba"]


def test_a_length_that_hardly_any_text_has_is_left_out_with_a_reason(tmp_path):
    images = labelled(tmp_path / "images", [(0, "abc"), *((grey, AB_OR_BA[grey % 2]) for grey in range(1, 101))])
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1)
    assert list(prepared.problems) == ["0.png"]
    assert re.search(names("'abc'", "--length"), prepared.problems["0.png"])
    assert prepared.manifest.lengths == Lengths(2, 2)


def test_lengths_can_be_given(tmp_path):
    images = labelled(tmp_path / "images", [(0, "abc"), (1, "a"), (2, "ba"), (3, "aa"), (4, "ab")])
    prepared = prepare(images, tmp_path / "out", replace(SMALL, lengths=Lengths(2, 4)), workers=1)
    assert list(prepared.problems) == ["1.png"]
    assert re.search(names("'a'", "--length", "2-4"), prepared.problems["1.png"])
    assert prepared.manifest.lengths == Lengths(2, 4)


def test_a_text_outside_the_given_alphabet_is_left_out_with_a_reason(tmp_path):
    images = labelled(tmp_path / "images", [(0, "ax"), (1, "ab"), (2, "ba"), (3, "aa")])
    prepared = prepare(images, tmp_path / "out", PrepareConfig(width=16, height=8, charset="ab"), workers=1)
    assert list(prepared.problems) == ["0.png"]
    assert "'x'" in prepared.problems["0.png"]


@pytest.mark.parametrize("text", ["a b", "a\tb", "a\u200bb"], ids=["space", "tab", "zero width"])
def test_a_text_that_no_alphabet_can_hold_is_left_out_and_the_rest_goes_on(tmp_path, text):
    images = labelled(tmp_path / "images", [(0, text), (1, "abc"), (2, "cba"), (3, "abb")])
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1)
    assert list(prepared.problems) == ["0.png"]
    assert prepared.manifest.charset.characters == "abc"


def test_byte_identical_copies_are_dropped_and_counted(own, tmp_path):
    (own / "labels.csv").unlink()
    for path in list(own.glob("*.png")):
        shutil.copy(path, own / f"copy-of-{path.name}")
    prepared = prepare(own, tmp_path / "out", tiny(), workers=1)
    assert (prepared.copies, prepared.problems) == (60, {})
    assert sum(prepared.manifest.count(split) for split in SPLITS) == 60


@pytest.mark.parametrize("order", [("train", "val", "test"), ("test", "val", "train"), ("val", "test", "train")])
def test_of_copies_in_several_splits_the_one_in_test_wins(tmp_path, order):
    rows = [(200, "ab", split) for split in order] + [(grey, AB_OR_BA[grey % 2], SPLITS[grey % 3]) for grey in range(9)]
    prepare(labelled(tmp_path / "images", rows), tmp_path / "out", SMALL, workers=1)
    assert [200 in greys(tmp_path / "out", split) for split in SPLITS] == [False, False, True]


def test_of_copies_in_train_and_val_the_one_in_val_wins(tmp_path):
    rows = [(200, "ab", "train"), (200, "ab", "val")] + [
        (grey, AB_OR_BA[grey % 2], SPLITS[grey % 3]) for grey in range(9)
    ]
    prepare(labelled(tmp_path / "images", rows), tmp_path / "out", SMALL, workers=1)
    assert [200 in greys(tmp_path / "out", split) for split in SPLITS] == [False, True, False]


def test_identical_images_with_different_texts_are_reported(tmp_path):
    images = labelled(tmp_path / "images", [(0, "ab"), (0, "ba"), (1, "ab"), (2, "ab"), (3, "ab")])
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1)
    assert list(prepared.problems) == ["0.png", "1.png"]
    assert all(re.search(names("0.png", "1.png"), reason) for reason in prepared.problems.values())
    assert prepared.manifest.left_out == 2


def test_identical_images_whose_texts_differ_in_a_folded_case_are_mere_copies(tmp_path):
    images = labelled(tmp_path / "images", [(0, "ab"), (0, "AB"), (1, "ab"), (2, "ba"), (3, "ab")])
    prepared = prepare(images, tmp_path / "out", SMALL, workers=1)
    assert (prepared.problems, prepared.copies) == ({}, 1)


# --- what cannot be prepared ---------------------------------------------------------------------


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="gone"):
        prepare(tmp_path / "gone", tmp_path / "out", SMALL)


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(UsageError, match=names(tmp_path)):
        prepare(tmp_path, tmp_path / "out", SMALL)


def test_a_folder_in_which_no_image_has_a_label_is_refused(images, tmp_path):
    with pytest.raises(UsageError, match="00000-"):
        prepare(images, tmp_path / "out", tiny(label_pattern="nothing"))


def test_a_folder_in_which_no_label_fits_the_alphabet_is_refused(images, tmp_path):
    with pytest.raises(UsageError, match="xyz"):
        prepare(images, tmp_path / "out", tiny(charset="xyz"))


def test_texts_longer_than_a_network_can_read_are_refused(tmp_path):
    images = labelled(tmp_path / "images", [(grey, "a" * 65) for grey in range(3)])
    with pytest.raises(UsageError, match="64"):
        prepare(images, tmp_path / "out", SMALL)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_folder_whose_name_is_no_text_can_be_prepared(images, tmp_path):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    prepare(shutil.copytree(images, odd), tmp_path / "out", tiny(), workers=1)
    assert read_manifest(tmp_path / "out").count("train") == 48


# --- running it again ----------------------------------------------------------------------------


@pytest.fixture
def done(shards, tmp_path):
    """A copy of the finished shards, to change."""
    return shutil.copytree(shards, tmp_path / "done")


def test_a_first_run_is_not_already_there(images, tmp_path):
    assert not prepare(images, tmp_path, tiny(), workers=1).already_there


def test_a_finished_folder_is_left_as_it_is(images, done):
    before = identities(done)
    prepared = prepare(images, done, tiny(), workers=1)
    assert (prepared.already_there, prepared.manifest) == (True, read_manifest(done))
    assert identities(done) == before


def test_moved_images_are_still_the_same_inputs(own, done):
    assert prepare(own, done, tiny(), workers=1).already_there


def test_a_finished_folder_with_files_left_out_is_already_there_too(own, tmp_path):
    (own / "labels.csv").unlink()
    draw(own, "a_b-c.png", 0)
    assert list(prepare(own, tmp_path / "out", tiny(), workers=1).problems) == ["a_b-c.png"]
    assert prepare(own, tmp_path / "out", tiny(), workers=1).already_there


@pytest.mark.parametrize(
    "options",
    [{"seed": 1}, {"split": (60, 20, 20)}, {"charset": "digits"}, {"width": 32, "height": 16}, {"channels": 3}],
)
def test_other_options_are_refused(images, done, options):
    whole = contents(done)
    with pytest.raises(UsageError, match="--force"):
        prepare(images, done, tiny(**options), workers=1)
    assert contents(done) == whole


def test_other_images_are_refused(own, done):
    next(own.glob("*.png")).write_bytes(b"changed")
    with pytest.raises(UsageError, match="--force"):
        prepare(own, done, tiny(), workers=1)


def test_one_more_image_is_another_input_even_without_a_label(own, done):
    draw(own, "new.png", 0)
    with pytest.raises(UsageError, match="--force"):
        prepare(own, done, tiny(), workers=1)


def test_other_labels_are_refused(own, done):
    path = own / "labels.csv"
    rows = list(csv.reader(path.read_text().splitlines()))[1:]
    write_labels(own, [[rows[0][0], "00" if rows[0][1] != "00" else "11"], *rows[1:]], header=("filename", "text"))
    with pytest.raises(UsageError, match="--force"):
        prepare(own, done, tiny(), workers=1)


def test_force_replaces_shards_of_other_options(images, tmp_path, monkeypatch):
    monkeypatch.setattr(captcha_ocr.prepare, "SAMPLES_PER_SHARD", 20)  # more files than the second run writes
    prepare(images, tmp_path / "out", tiny(), workers=1)
    monkeypatch.undo()
    other = tiny(seed=1)
    prepare(images, tmp_path / "out", other, workers=1, force=True)
    prepare(images, tmp_path / "fresh", other, workers=1)
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("name", ["notes.txt", "train.safetensors.gz", "train-00000.safetensors.gz.bak"])
def test_force_leaves_the_files_of_others(images, done, name):
    (done / name).write_text("mine")
    prepare(images, done, tiny(seed=1), workers=1, force=True)
    assert (done / name).read_text() == "mine"


def test_an_unfinished_folder_goes_on_and_ends_the_same(images, done, shards):
    (done / MANIFEST_FILE).unlink()
    (done / "val-00000.safetensors.gz").unlink()
    (done / STAGING).mkdir()
    (done / "test-00000.safetensors.gz").rename(done / STAGING / "test-00000.safetensors.gz")
    (done / STAGING / "pixels").write_bytes(b"half")
    assert not prepare(images, done, tiny(), workers=1).already_there
    assert contents(done) == contents(shards)


def test_a_damaged_manifest_is_refused(images, done):
    path = done / MANIFEST_FILE
    path.write_bytes(path.read_bytes().replace(b'"longest": 2', b'"longest": 3'))
    with pytest.raises(DamagedError, match=MANIFEST_FILE):
        prepare(images, done, tiny(), workers=1)


def test_force_replaces_a_damaged_manifest(images, done, shards):
    (done / MANIFEST_FILE).write_bytes((done / MANIFEST_FILE).read_bytes()[:100])
    prepare(images, done, tiny(), workers=1, force=True)
    assert contents(done) == contents(shards)


@pytest.mark.parametrize("content", [b'{"name": "a web page", "icons": []}', to_json(seal({"format": "other"}))])
def test_the_manifest_of_another_program_is_refused(images, tmp_path, content):
    (tmp_path / MANIFEST_FILE).write_bytes(content)
    with pytest.raises((DamagedError, UsageError)):
        prepare(images, tmp_path, tiny(), workers=1)
    assert contents(tmp_path) == {MANIFEST_FILE: content}


def test_the_temporary_pixels_are_removed_after_a_failure_too(tmp_path):
    images = labelled(tmp_path / "images", [(0, "ab"), (1, "ba")])
    with pytest.raises(CaptchaOcrError):
        prepare(images, tmp_path / "out", SMALL, workers=1)
    assert not (tmp_path / "out").exists()


def test_a_lost_shard_is_noticed_and_made_again_with_force(images, done, shards):
    (done / "val-00000.safetensors.gz").unlink()
    with pytest.raises(DamagedError, match=names("val-00000", "--force")):
        prepare(images, done, tiny(), workers=1)
    assert not prepare(images, done, tiny(), workers=1, force=True).already_there
    assert contents(done) == contents(shards)


def test_other_pixels_in_a_file_of_the_same_size_are_other_images(tmp_path):
    images = tmp_path / "images"
    for number in range(12):
        draw(images, f"{AB_OR_BA[number % 2]}_{number}.bmp", number)
    prepare(images, tmp_path / "out", SMALL, workers=1)
    path = next(images.iterdir())
    data = bytearray(path.read_bytes())
    data[-8] ^= 255
    path.write_bytes(data)
    with pytest.raises(UsageError, match="--force"):
        prepare(images, tmp_path / "out", SMALL, workers=1)


def test_a_full_disk_is_an_error_that_names_the_bytes_needed(images, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(CaptchaOcrError, match="46,080"):
        prepare(images, tmp_path / "out", tiny(), workers=1)
    assert not (tmp_path / "out").exists()


def test_force_spares_another_programs_manifest(images, tmp_path):
    (tmp_path / MANIFEST_FILE).write_text('{"name": "a web page"}')
    with pytest.raises(UsageError, match=MANIFEST_FILE):
        prepare(images, tmp_path, tiny(), workers=1, force=True)
    assert (tmp_path / MANIFEST_FILE).read_text() == '{"name": "a web page"}'


def test_the_command_that_makes_shards_anew_repeats_every_option(images, shards, tmp_path):
    assert prepare_command(read_manifest(shards), Path("my shards"), "seed") == (
        f"captcha-ocr prepare {images.as_posix()} --out 'my shards' --preset seed --force"
    )
    options = tiny(charset="digits", case_sensitive=True, split=(60, 20, 20), seed=3)
    prepare(images, tmp_path / "out", options, images / "labels.csv", workers=1)
    assert prepare_command(read_manifest(tmp_path / "out"), Path("out"), "seed") == (
        f"captcha-ocr prepare {images.as_posix()} --out out --preset seed --labels {images.as_posix()}/labels.csv "
        "--charset digits --case-sensitive --split 60/20/20 --seed 3 --force"
    )


def test_larger_files_are_left_out_unless_they_are_asked_for(images, tmp_path):
    largest = max(path.stat().st_size for path in images.glob("*.png"))
    small = prepare(images, tmp_path / "small", PrepareConfig(preset="tiny", max_bytes=largest - 1), workers=1)
    assert small.problems
    assert all("--max-bytes" in reason for reason in small.problems.values())
    assert small.manifest.options["max_bytes"] == largest - 1
    with pytest.raises(UsageError, match="--force"):
        prepare(images, tmp_path / "small", PrepareConfig(preset="tiny", max_bytes=largest), workers=1)


def test_two_do_not_write_to_one_folder_at_a_time(images, done):
    with writing_to(done), pytest.raises(CaptchaOcrError, match=names(done)):
        prepare(images, done, tiny(), workers=1)
    assert prepare(images, done, tiny(), workers=1).already_there
    assert not (done / LOCK_FILE).exists()


def test_forced_shards_take_the_place_of_the_old_ones_only_when_all_are_there(images, done, monkeypatch):
    before = contents(done)
    write_shard, written = captcha_ocr.prepare.write_shard, []

    def killed(path, *what):
        if written:
            raise KeyboardInterrupt
        written.append(path)
        return write_shard(path, *what)

    monkeypatch.setattr(captcha_ocr.prepare, "write_shard", killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(images, done, replace(tiny(), seed=1), workers=1, force=True)
    assert contents(done) == before
