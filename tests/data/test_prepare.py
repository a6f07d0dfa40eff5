import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import ONE_WORKER, contents, naming
from PIL import Image, ImageOps

import captcha_ocr.data.prepare
from captcha_ocr.charset import Charset
from captcha_ocr.cli.wording import word_command
from captcha_ocr.data.images import to_array
from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.data.prepare import list_folds, prepare_command, prepare_folds, set_preset
from captcha_ocr.data.selection import Selection
from captcha_ocr.data.shards import MANIFEST_FILE, read_manifest
from captcha_ocr.errors import CaptchaOcrError, DamagedError, UsageError
from captcha_ocr.input_size import ImageKind, InputSize
from captcha_ocr.options.model import Lengths
from captcha_ocr.options.preparation import SPLITS, PrepareConfig, PrepareOptions
from captcha_ocr.system.documents import sealed
from captcha_ocr.system.files import LOCK_FILE, TEMPORARY, writing_to

from .conftest import SMALL, counts, draw, labelled, numbered, prepare, prepare_rows, samples, tiny


@pytest.fixture
def own(images, tmp_path):
    """A copy of the 60 images, to change."""
    return shutil.copytree(images, tmp_path / "own")


# --- shards and splits ---------------------------------------------------------------------------


def test_every_image_is_in_one_split_with_its_own_text_in_random_order(images, shards, tiny_preset):
    assert sorted(contents(shards)) == [
        MANIFEST_FILE,
        *(f"{split}-00000.safetensors.gz" for split in sorted(SPLITS)),
    ]
    assert read_manifest(shards).size == tiny_preset.size
    assert counts(shards) == [48, 6, 6]
    labels, _ = read_labels(images / "labels.csv")
    expected = [
        (to_array(images / label.file, tiny_preset.size).tobytes(), label.text) for label in labels
    ]
    assert sorted(samples(shards)) == sorted(expected)
    assert len({pixels for pixels, _ in expected}) == 60
    assert samples(shards, "train") != expected[:48]


def test_shards_show_the_ink_alone_and_remember_it(images, tmp_path, tiny_preset):
    images = shutil.copytree(images, tmp_path / "images")
    for file in images.glob("*.png"):
        ImageOps.colorize(Image.open(file).convert("L"), "red", "white").save(file)
    with pytest.raises(UsageError, match="lime"):
        prepare(images, tmp_path, tiny(ink="lime"))
    prepare(images, tmp_path, tiny(ink="red"))
    size = read_manifest(tmp_path).size
    assert size == replace(tiny_preset.size, ink="red")
    shown = {to_array(file, size).tobytes() for file in images.glob("*.png")}
    assert {pixels for pixels, _ in samples(tmp_path)} == shown
    assert "--ink red" in word_command(prepare_command(read_manifest(tmp_path), tmp_path, "seed"))


def test_the_number_of_jobs_and_workers_changes_no_byte(images, shards, tmp_path, monkeypatch):
    monkeypatch.setattr(
        captcha_ocr.data.prepare, "IMAGES_PER_JOB", 25
    )  # all 60 at once would be left to one process
    told = []
    captcha_ocr.data.prepare.prepare(
        images, tmp_path, tiny(), PrepareOptions(workers=2), lambda *done: told.append(done)
    )
    assert contents(tmp_path) == contents(shards)
    assert told[-1] == (60, 60)


def test_another_seed_gives_another_order_and_smaller_shards_give_the_same(
    images, shards, tmp_path, monkeypatch
):
    prepare(images, tmp_path / "other", tiny(seed=1))
    assert samples(tmp_path / "other", "train") != samples(shards, "train")
    monkeypatch.setattr(captcha_ocr.data.prepare, "SAMPLES_PER_SHARD", 20)
    manifest = prepare(images, tmp_path / "smaller").manifest
    assert [(shard.file[:-15], shard.count) for shard in manifest.shards] == [
        *(("train-00000", 20), ("train-00001", 20), ("train-00002", 8)),
        *(("val-00000", 6), ("test-00000", 6)),
    ]
    assert samples(tmp_path / "smaller", "train") == samples(shards, "train")


@pytest.mark.parametrize(
    ("preset", "size"),
    [("default", InputSize(height=57, width=170, channels=1)), (None, InputSize(64, 192, 3))],
)
def test_without_a_size_of_the_preset_the_input_size_follows_from_the_images(
    tmp_path, preset, size
):
    (tmp_path / "sub").mkdir()  # images are found in folders of a folder, too
    for text, colour in {"ab": "black", "ba": "white", "aab": "grey"}.items():
        Image.new("RGB", (300, 100), colour).save(tmp_path / "sub" / f"{text}.png")
    assert prepare(tmp_path, tmp_path / "out", PrepareConfig(preset)).manifest.size == size


@pytest.mark.parametrize(
    ("labels", "longest", "options", "preset"),
    [
        (999, 4, {}, "finetune"),
        (1000, 4, {}, "default"),
        (50, 12, {}, "finetune"),
        (50, 13, {}, "default"),  # the input is too narrow for them
        (50, 4, {"channels": 1}, "default"),
        (50, 4, {"size": (96, 32)}, "default"),
    ],
)
def test_few_labels_take_the_input_of_the_model_in_the_package_if_it_fits(
    labels, longest, options, preset
):
    learnt = [Label("a.png", "ab", "train")] * labels
    selected = Selection(learnt, Charset("ab"), Lengths(2, longest), {})
    kind = ImageKind(height=50, width=150, channels=1)
    assert set_preset(PrepareConfig(**options), selected, kind).preset == preset


# --- labels --------------------------------------------------------------------------------------


def test_the_same_labels_give_the_same_shards_wherever_they_come_from(own, shards, tmp_path):
    header, *rows = (own / "labels.csv").read_text().splitlines(keepends=True)
    (own / "labels.csv").write_text("".join([header, *rows[::-1]]))
    reversed_rows = prepare(own, tmp_path / "reversed")
    elsewhere = Path(shutil.move(own / "labels.csv", tmp_path / "mine.csv"))
    from_elsewhere = prepare(own, tmp_path / "elsewhere", labels=elsewhere)
    from_names = prepare(own, tmp_path / "names")
    for prepared in (reversed_rows, from_elsewhere, from_names):
        assert prepared.manifest.shards == read_manifest(shards).shards


def test_a_labels_file_that_links_to_nothing_is_not_a_missing_one(own, tmp_path):
    (own / "labels.csv").unlink()
    (own / "labels.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(CaptchaOcrError, match=r"labels\.csv"):
        prepare(own, tmp_path / "out")


def test_corrections_replace_every_other_label_keep_the_split_and_name_images_without_a_label():
    draw(Path("images"), "4.png", 5)
    Path("fixed.csv").write_text("filename,text\n0.png,bbb\n2.png,\n4.png,aab\n")
    rows = [(1, "ab", "test"), (2, "bb", "train"), (3, "aa", "train"), (4, "ba", "val")]
    assert list(prepare_rows(rows, corrections=Path("fixed.csv")).problems) == ["2.png"]
    for split, texts in zip(SPLITS, (["aab", "bb"], ["ba"], ["bbb"]), strict=True):
        assert sorted(text for _, text in samples(Path("out"), split)) == texts


# --- what is left out or refused -----------------------------------------------------------------


def test_a_damaged_file_is_named_and_left_out_and_the_others_keep_their_labels(
    own, shards, tmp_path
):
    empty, cut = sorted(own.glob("*.png"))[:2]
    empty.write_bytes(b"")
    cut.write_bytes(cut.read_bytes()[:200])
    prepared = prepare(own, tmp_path / "out")
    assert (list(prepared.problems), prepared.manifest.left_out) == ([empty.name, cut.name], 2)
    kept = set(samples(tmp_path / "out"))
    assert len(kept) == 58
    assert kept < set(samples(shards))


# --- running it again ----------------------------------------------------------------------------


def test_a_finished_folder_is_left_as_it_is_even_if_the_images_have_moved(own, tmp_path):
    out = tmp_path / "out"
    (own / "labels.csv").unlink()
    draw(own, "a_b-c.png", 0)  # and one has no label
    first = prepare(own, out)
    assert (list(first.problems), first.already_there) == (["a_b-c.png"], False)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in out.iterdir()}
    with writing_to(out), pytest.raises(CaptchaOcrError, match=naming(out)):  # one at a time
        prepare(own, out)
    second = prepare(own.rename(tmp_path / "moved"), out)
    assert (second.already_there, second.manifest) == (True, first.manifest)
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in out.iterdir()} == before


@pytest.mark.parametrize(
    "options",
    [
        *({"seed": 1}, {"split": (60, 20, 20)}, {"max_bytes": 10**6}),
        *({"charset": "digits"}, {"channels": 3}, {"size": (32, 16)}),
    ],
)
def test_other_options_are_refused(images, done, options):
    before = contents(done)
    with pytest.raises(UsageError, match="`force`"):
        prepare(images, done, tiny(**options))
    assert contents(done) == before


@pytest.mark.parametrize("change", ["content", "image", "label"])
def test_other_images_or_labels_are_refused(own, done, change):
    image, table = min(own.glob("*.png")), own / "labels.csv"
    path, content = {
        "content": (image, image.read_bytes()[:-1] + b"!"),  # of the same size
        "image": (own / "new.png", image.read_bytes() + b"!"),  # even without a label
        "label": (table, re.sub(b"png,(.)(.)", rb"png,\2\1", table.read_bytes())),
    }[change]
    path.write_bytes(content)
    with pytest.raises(UsageError, match="`force`"):
        prepare(own, done)


def test_force_replaces_shards_of_other_options_and_leaves_the_files_of_others(
    images, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    others = ("notes.txt", "train.safetensors.gz", "train-00000.safetensors.gz.bak")
    with monkeypatch.context() as patch:  # more files than the second run writes
        patch.setattr(captcha_ocr.data.prepare, "SAMPLES_PER_SHARD", 20)
        prepare(images, out)
    for name in others:
        (out / name).write_bytes(b"mine")
    prepare(images, out, tiny(seed=1), force=True)
    prepare(images, tmp_path / "fresh", tiny(seed=1))
    assert contents(out) == contents(tmp_path / "fresh") | dict.fromkeys(others, b"mine")


def test_an_unfinished_folder_goes_on_and_ends_the_same(images, done, shards):
    (done / MANIFEST_FILE).unlink()
    (done / "val-00000.safetensors.gz").unlink()
    staging = done / f"new{TEMPORARY}"  # as a killed process leaves it
    staging.mkdir()
    (done / "test-00000.safetensors.gz").rename(staging / "test-00000.safetensors.gz")
    (staging / "pixels.npy").write_bytes(b"half")
    assert not prepare(images, done).already_there
    assert contents(done) == contents(shards)


def test_a_damaged_manifest_or_a_lost_shard_is_refused_and_replaced_by_force(images, done, shards):
    manifest, shard = done / MANIFEST_FILE, done / "val-00000.safetensors.gz"
    for path, damage in (
        (manifest, lambda: manifest.write_bytes(manifest.read_bytes()[:100])),
        (shard, shard.unlink),
    ):
        damage()
        with pytest.raises(DamagedError, match=naming(path.name, "`force`")):
            prepare(images, done)
        assert not prepare(images, done, force=True).already_there
        assert contents(done) == contents(shards)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "content", [b'{"name": "a web page", "icons": []}', sealed({"format": "other"})]
)
def test_the_manifest_of_another_program_is_never_replaced(images, tmp_path, content, force):
    (tmp_path / MANIFEST_FILE).write_bytes(content)
    with pytest.raises((DamagedError, UsageError), match=naming(MANIFEST_FILE, "`out`")):
        prepare(images, tmp_path, force=force)
    assert contents(tmp_path) == {MANIFEST_FILE: content}


def test_forced_shards_replace_the_old_ones_only_when_all_are_written(images, done, monkeypatch):
    before = contents(done)
    monkeypatch.setattr(
        captcha_ocr.data.prepare, "write_manifest", Mock(side_effect=KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        prepare(images, done, tiny(seed=1), force=True)
    assert contents(done) == before


def test_the_command_that_makes_the_same_shards_again_repeats_every_option(
    images, shards, tmp_path
):
    command = prepare_command(read_manifest(shards), Path("my shards"), "seed")
    assert word_command(command) == (
        f"captcha-ocr prepare {images.as_posix()} --out 'my shards' --preset seed --force"
    )
    fixed = Path("my fix.csv")
    options = tiny(charset="digits", case_sensitive=True, split=(60, 20, 20), seed=3)
    shutil.copy(images / "labels.csv", fixed)
    prepare(images, tmp_path / "out", options, labels=images / "labels.csv", corrections=fixed)
    command = prepare_command(read_manifest(tmp_path / "out"), Path("out"), "seed")
    assert word_command(command) == (
        f"captcha-ocr prepare {images.as_posix()} --out out --preset seed "
        f"--labels {images.as_posix()}/labels.csv --corrections 'my fix.csv' --charset digits "
        "--case-sensitive --split 60/20/20 --seed 3 --force"
    )


def test_that_command_holds_no_words_of_a_forged_manifest(shards):
    forged = {"fold": 5, "out": "/elsewhere", "force": True, "seed": 7, "split": [1, 2]}
    manifest = replace(
        read_manifest(shards), source="images", options=forged | {"length": {"a": []}}
    )
    words = shlex.split(word_command(prepare_command(manifest, Path("out"), "seed")))
    assert words[:6] == ["captcha-ocr", "prepare", "images", "--out", "out", "--preset"]
    assert words[7:] == ["--length", "{'a': []}", "--split", "1/2", "--seed", "7", "--force"]


# --- folds ----------------------------------------------------------------------------------------


def test_every_image_is_in_the_test_set_of_one_fold_and_in_no_other_split_of_it(images, tmp_path):
    prepare_folds(images, tmp_path, 4, tiny(), ONE_WORKER)
    tested = set()
    for folder in list_folds(tmp_path):
        assert counts(folder) == [41, 4, 15]
        assert len({pixels for pixels, _ in samples(folder)}) == 60
        tested |= set(samples(folder, "test"))
    assert len(tested) == 60


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
    assert contents(out) == contents(whole)
