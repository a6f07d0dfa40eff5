import csv
import importlib.util
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import captcha.image
import pytest
from conftest import CAPTCHAS
from PIL import Image

from captcha_ocr.config import GeneratorConfig, Lengths
from captcha_ocr.drawing import render
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.files import TEMPORARY
from captcha_ocr.labels import Label, read_labels
from captcha_ocr.synth import generate

TINY = GeneratorConfig(count=30, lengths=Lengths(2, 2), charset="digits", width=48, height=16, font_sizes=(14,))
DROID = captcha.image.DEFAULT_FONTS[0]
MATPLOTLIB = Path(importlib.util.find_spec("matplotlib").submodule_search_locations[0])  # not imported: it is slow
DEJAVU = str(MATPLOTLIB / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf")


def contents(folder):
    """Every file below a folder: name -> bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def identities(folder):
    """What changes when a file is written again, even with the same bytes."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.fixture
def drawn(tmp_path):
    """A folder with 30 finished images."""
    generate(TINY, tmp_path / "images", 1)
    return tmp_path / "images"


# --- the same for the same seed ------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes(tmp_path, drawn):
    generate(TINY, tmp_path / "again", 1)
    assert contents(tmp_path / "again") == contents(drawn)


def test_the_number_of_workers_changes_no_byte(tmp_path):
    several_jobs = replace(TINY, count=260)  # 250 images are one job, which one process does
    for workers in (1, 2):
        generate(several_jobs, tmp_path / str(workers), workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_another_seed_gives_other_images(tmp_path, drawn):
    generate(replace(TINY, seed=1), tmp_path / "other", 1)
    assert not set(contents(tmp_path / "other").values()) & set(contents(drawn).values())


def test_parts_are_the_same_bytes_as_the_whole(tmp_path, drawn):
    generate(replace(TINY, count=10), tmp_path / "first", 1)
    generate(replace(TINY, start=10, count=20), tmp_path / "second", 1)
    parts = contents(tmp_path / "first") | contents(tmp_path / "second")
    images = {name: data for name, data in contents(drawn).items() if name.endswith(".png")}
    assert {name: data for name, data in parts.items() if name.endswith(".png")} == images


def test_the_labels_of_the_parts_are_those_of_the_whole(tmp_path, drawn):
    generate(replace(TINY, count=10), tmp_path / "first", 1)
    generate(replace(TINY, start=10, count=20), tmp_path / "second", 1)
    rows = [
        (folder / "labels.csv").read_text().splitlines()[1:] for folder in (tmp_path / "first", tmp_path / "second")
    ]
    assert rows[0] + rows[1] == (drawn / "labels.csv").read_text().splitlines()[1:]


def test_no_two_images_are_the_same(drawn):
    assert len(set(contents(drawn).values())) == 30 + 2


# --- what is drawn -------------------------------------------------------------------------------


def test_files_are_named_by_number_and_text(tmp_path):
    generate(GeneratorConfig(count=2), tmp_path, 1)
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == [f"{index:05d}-{render(GeneratorConfig(), index)[0]}.png" for index in (0, 1)]


def test_a_folder_holds_images_labels_and_options(drawn):
    names = sorted(contents(drawn))
    assert names[30:] == ["generator.json", "labels.csv"]
    assert [name[:6] for name in names[:30]] == [f"{index:05d}-" for index in range(30)]


def test_the_labels_file_names_every_image_and_its_text(drawn):
    labels, problems = read_labels(drawn / "labels.csv")
    assert problems == {}
    assert labels == [Label(path.name, path.stem[6:]) for path in sorted(drawn.glob("*.png"))]


def test_images_have_the_size_that_was_asked_for(drawn):
    with Image.open(next(drawn.glob("*.png"))) as image:
        assert (image.size, image.mode, image.format) == ((48, 16), "RGB", "PNG")


def test_odd_characters_give_safe_file_names_that_still_tell_the_text(tmp_path):
    charset = '%/\\:*?"<>|.,-_é'
    generate(replace(TINY, charset=charset, lengths=Lengths(3, 3), font_sizes=(14, 20)), tmp_path, 1)
    with open(tmp_path / "labels.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["filename"] for row in rows} == {path.name for path in tmp_path.glob("*.png")}
    assert not set("".join(row["filename"][:-4] for row in rows)) & set('/\\:*?"<>|.')
    assert [unquote(row["filename"][6:-4]) for row in rows] == [row["text"] for row in rows]
    assert set("".join(row["text"] for row in rows)) == set(charset)


def test_the_options_file_names_no_folder_machine_or_time(drawn):
    options = json.loads((drawn / "generator.json").read_bytes())
    assert options == {
        "format": "captcha-ocr generator",
        "captcha": options["captcha"],
        "count": 30,
        "start": 0,
        "length": "2",
        "charset": "0123456789",
        "width": 48,
        "height": 16,
        "fonts": [],
        "font_sizes": [14],
        "warp": "package",
        "seed": 0,
    }


def test_progress_ends_with_everything_done(tmp_path):
    told = []
    generate(TINY, tmp_path, 1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (30, 30)


# --- what is refused -----------------------------------------------------------------------------


def test_a_character_without_a_glyph_is_refused_by_name(tmp_path):
    with pytest.raises(UsageError, match=r"(?=.*DroidSansMono\.ttf).*中"):
        generate(replace(TINY, charset="01中"), tmp_path / "images", 1)
    assert not (tmp_path / "images").exists()


def test_every_one_of_several_fonts_needs_the_glyph(tmp_path):
    only_in_dejavu = "☃"
    generate(replace(TINY, count=1, charset="0" + only_in_dejavu, fonts=(DEJAVU,)), tmp_path, 1)
    with pytest.raises(UsageError, match=only_in_dejavu):
        generate(replace(TINY, count=1, charset="0" + only_in_dejavu, fonts=(DEJAVU, DROID)), tmp_path, 1)


@pytest.mark.parametrize("name", ["broken.ttf", "gone.ttf"])
def test_a_font_that_cannot_be_read_is_refused(tmp_path, name):
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    with pytest.raises(UsageError, match=name):
        generate(replace(TINY, fonts=(str(tmp_path / name),)), tmp_path / "images", 1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"width": 63}, "64"),
        ({"lengths": Lengths(1, 2), "width": 31}, "32"),
        ({"count": 0}, "--count"),
        ({"count": -5}, "--count"),
    ],
)
def test_too_narrow_a_width_and_too_small_a_count_are_refused(options, named):
    with pytest.raises(UsageError, match=named):
        GeneratorConfig(**options)


# --- running it again ----------------------------------------------------------------------------


def test_a_fresh_folder_counts_all_images_as_drawn(tmp_path):
    assert generate(TINY, tmp_path / "new" / "images", 1) == 30


def test_a_finished_folder_is_left_as_it_is(drawn):
    before = identities(drawn)
    assert generate(TINY, drawn, 1) == 0
    assert identities(drawn) == before


def test_an_unfinished_folder_goes_on_and_ends_the_same(drawn):
    whole = contents(drawn)
    (drawn / "labels.csv").unlink()
    for path in sorted(drawn.glob("*.png"))[7:20]:
        path.rename(path.with_name(path.name + TEMPORARY))  # as a kill between writing and renaming leaves it
    assert generate(TINY, drawn, 1) == 13
    assert contents(drawn) == whole


def test_an_image_that_was_removed_is_drawn_again(drawn):
    whole = contents(drawn)
    next(drawn.glob("*.png")).unlink()
    assert generate(TINY, drawn, 1) == 1
    assert contents(drawn) == whole


@pytest.mark.parametrize("options", [{"seed": 1}, {"count": 31}, {"start": 1}, {"warp": "classic"}, {"height": 17}])
def test_other_options_are_refused_and_named(drawn, options):
    whole = contents(drawn)
    with pytest.raises(UsageError, match=next(iter(options))):
        generate(replace(TINY, **options), drawn, 1)
    assert contents(drawn) == whole


@pytest.mark.parametrize("finished", [True, False])
def test_an_unfinished_folder_of_other_options_is_refused_too(drawn, finished):
    if not finished:
        (drawn / "labels.csv").unlink()
    with pytest.raises(UsageError, match="seed"):
        generate(replace(TINY, seed=1), drawn, 1)


@pytest.mark.parametrize("others", [(DEJAVU, DROID), (DROID,), (DEJAVU,), ()], ids=["order", "one", "other", "none"])
def test_other_fonts_are_other_options(tmp_path, others):
    config = replace(TINY, count=2, fonts=(DROID, DEJAVU))
    generate(config, tmp_path, 1)
    with pytest.raises(UsageError, match="fonts"):
        generate(replace(config, fonts=others), tmp_path, 1)


@pytest.mark.parametrize("kept", [0, 1])
def test_leaving_out_one_of_two_fonts_with_one_name_is_another_option(tmp_path, kept):
    fonts = (tmp_path / "a" / "font.ttf", tmp_path / "b" / "font.ttf")
    for source, path in zip((DROID, DEJAVU), fonts, strict=True):
        path.parent.mkdir()
        shutil.copy(source, path)
    config = replace(TINY, count=2, fonts=tuple(map(str, fonts)))
    generate(config, tmp_path / "images", 1)
    with pytest.raises(UsageError, match="fonts"):
        generate(replace(config, fonts=(config.fonts[kept],)), tmp_path / "images", 1)


def test_the_folder_of_a_font_is_no_option(tmp_path):
    config = replace(TINY, count=2, fonts=(DEJAVU,))
    generate(config, tmp_path / "images", 1)
    copy = shutil.copy(DEJAVU, tmp_path)
    assert generate(replace(config, fonts=(str(copy),)), tmp_path / "images", 1) == 0


def test_force_replaces_the_images_of_other_options(tmp_path, drawn):
    other = replace(TINY, seed=1, count=20)
    assert generate(other, drawn, 1, force=True) == 20
    generate(other, tmp_path / "fresh", 1)
    assert contents(drawn) == contents(tmp_path / "fresh")


def test_force_interrupted_while_removing_goes_on(tmp_path, drawn, monkeypatch):
    def interrupted(paths):
        next(iter(paths)).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr("captcha_ocr.synth.remove_files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(replace(TINY, seed=1), drawn, 1, force=True)
    monkeypatch.undo()
    generate(replace(TINY, seed=1), drawn, 1, force=True)
    generate(replace(TINY, seed=1), tmp_path / "fresh", 1)
    assert contents(drawn) == contents(tmp_path / "fresh")


def test_an_image_that_a_power_cut_left_empty_is_drawn_again(drawn):
    image = next(drawn.glob("*.png"))
    content = image.read_bytes()
    image.write_bytes(b"")
    assert generate(TINY, drawn, 1) == 1
    assert image.read_bytes() == content


@pytest.mark.parametrize("name", ["notes.txt", "mine.png", "00000-mine.png"])
def test_force_leaves_the_files_of_others(drawn, name):
    (drawn / name).write_bytes(b"mine")
    generate(replace(TINY, seed=1), drawn, 1, force=True)
    assert (drawn / name).read_bytes() == b"mine"


def test_force_on_a_finished_folder_draws_nothing(drawn):
    assert generate(TINY, drawn, 1, force=True) == 0


def test_a_file_of_others_does_not_hinder_going_on(drawn):
    (drawn / "notes.txt").write_text("mine")
    assert generate(TINY, drawn, 1) == 0


def test_an_edited_labels_file_is_refused(drawn):
    path = drawn / "labels.csv"
    path.write_text(path.read_text() + "mine.png,42\n")
    with pytest.raises(UsageError, match=r"labels\.csv"):
        generate(TINY, drawn, 1)
    assert path.read_text().endswith("mine.png,42\n")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["labels.csv", "cat.jpg", "sub/cat.jpg"])
def test_a_folder_of_other_images_or_labels_is_never_written_to(tmp_path, name, force):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=name):
        generate(TINY, tmp_path, 1, force=force)
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]


@pytest.mark.parametrize("options", ['{"name": "a generator of others"}', '{"charset": 5}'])
def test_labels_beside_the_generator_json_of_others_are_never_overwritten(tmp_path, options):
    (tmp_path / "generator.json").write_text(options)
    (tmp_path / "labels.csv").write_text("mine")
    with pytest.raises((UsageError, DamagedError)):
        generate(TINY, tmp_path, 1, force=True)
    assert (tmp_path / "labels.csv").read_text() == "mine"


def test_a_damaged_options_file_is_named(drawn):
    (drawn / "generator.json").write_text('{"count": 30,')
    with pytest.raises(DamagedError, match=r"(?=.*generator\.json).*--out"):
        generate(TINY, drawn, 1)


def test_an_options_file_with_an_impossible_value_is_named(drawn):
    path = drawn / "generator.json"
    path.write_text(re.sub(r'"count": \d+', '"count": "x"', path.read_text()))
    with pytest.raises(DamagedError, match=r"generator\.json"):
        generate(TINY, drawn, 1, force=True)
    assert len(list(drawn.glob("*.png"))) == 30


def test_force_asks_what_is_there_and_not_how_much_there_may_be(tmp_path):
    generate(CAPTCHAS, tmp_path, 1)
    (tmp_path / "00000-mine.png").touch()
    options = json.loads((tmp_path / "generator.json").read_bytes()) | {"count": 10**9}
    (tmp_path / "generator.json").write_text(json.dumps(options))
    generate(replace(CAPTCHAS, count=2, seed=5), tmp_path, 1, force=True)
    assert len(list(tmp_path.glob("*.png"))) == 3
