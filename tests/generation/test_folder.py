import csv
import hashlib
import importlib.util
import json
import os
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote

import captcha.image
import pytest
from conftest import CAPTCHAS, contents
from PIL import Image

from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.generation import folder as generation
from captcha_ocr.generation.drawer import TRIES, drawer_of
from captcha_ocr.generation.plan import plan_drawing
from captcha_ocr.options.drawing import CLASSIC_WARP, DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import TEMPORARY

TINY = replace(CAPTCHAS, count=12)
DROID = captcha.image.DEFAULT_FONTS[0]
MATPLOTLIB = Path(
    importlib.util.find_spec("matplotlib").submodule_search_locations[0]
)  # not imported: it is slow
DEJAVU = str(MATPLOTLIB / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf")


def generate(options, *arguments, **settings):
    return generation.generate(plan_drawing(options), *arguments, **settings)


def pictures(folder):
    """Every image of a folder: name -> bytes."""
    return {name: data for name, data in contents(folder).items() if name.endswith(".png")}


def identities(folder):
    """What changes when a file is written again, even with the same bytes."""
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with 12 finished images. Read only."""
    folder = tmp_path_factory.mktemp("data") / "images"
    assert generate(TINY, folder, 1) == (12, 0, 0)
    return folder


@pytest.fixture
def drawn(whole, tmp_path):
    """A copy of them, to change."""
    return shutil.copytree(whole, tmp_path / "images")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_images(tmp_path, whole):
    generate(TINY, tmp_path / "again", 1)
    assert contents(tmp_path / "again") == contents(whole)
    generate(replace(TINY, seed=1), tmp_path / "other", 1)
    assert len({*pictures(tmp_path / "other").values(), *pictures(whole).values()}) == 24


def test_parts_are_the_same_bytes_as_the_whole_for_any_number_of_workers(tmp_path, whole):
    def rows(folder):
        return (folder / "labels.csv").read_text().splitlines()[1:]

    several, end = tmp_path / "several", tmp_path / "end"
    generate(replace(TINY, count=260), several, 2)  # one process draws 250 images at a time
    generate(replace(TINY, start=250, count=10), end, 1)
    assert (pictures(whole) | pictures(end)).items() <= pictures(several).items()
    assert (rows(several)[:12], rows(several)[250:]) == (rows(whole), rows(end))


def test_a_folder_holds_images_labels_and_options(whole):
    images = [
        f"{index:05d}-{drawer_of(plan_drawing(TINY)).draw(index).text}.png" for index in range(12)
    ]
    assert sorted(contents(whole)) == [*images, "generator.json", "labels.csv"]
    assert read_labels(whole / "labels.csv") == ([Label(name, name[6:-4]) for name in images], {})
    with Image.open(whole / images[0]) as image:
        assert (image.size, image.mode, image.format) == ((48, 16), "RGB", "PNG")


def test_odd_characters_give_safe_file_names_that_still_tell_the_text(tmp_path):
    charset = '%/\\:*?"<>|.,-_é'
    generate(
        replace(TINY, count=30, charset=charset, lengths=Lengths(3, 3), font_sizes=(14, 20)),
        tmp_path,
        1,
    )
    with open(tmp_path / "labels.csv", encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["filename"] for row in rows} == pictures(tmp_path).keys()
    assert not set("".join(row["filename"][:-4] for row in rows)) & set('/\\:*?"<>|.')
    assert [unquote(row["filename"][6:-4]) for row in rows] == [row["text"] for row in rows]
    assert set("".join(row["text"] for row in rows)) == set(charset)


def test_the_options_file_names_no_folder_machine_or_time(whole):
    options = json.loads((whole / "generator.json").read_bytes())
    [[name, digest]] = options.pop("fonts")
    assert (name, digest) == (
        "DroidSansMono.ttf",
        hashlib.sha256(Path(DROID).read_bytes()).hexdigest(),
    )
    design = options.pop("design")
    assert (design["canvas"]["width"], design["text"]["size"]) == (48, {"one_of": [14]})
    images = {"count": 12, "start": 0, "length": "2", "charset": "0123456789", "seed": 0}
    ours = {"renderer": "fast", "warp": "package", "captcha_ocr": version("captcha-ocr")}
    assert options == {"format": "captcha-ocr generator", **ours, **images}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"charset": "01中"}, r"(?=.*DroidSansMono\.ttf).*中"),
        (
            {"charset": "0☃", "fonts": (DEJAVU, DROID)},
            r"(?=.*DroidSansMono\.ttf).*☃",
        ),  # only DejaVu has it
        ({"fonts": (__file__,)}, Path(__file__).name),
    ],
)
def test_a_font_that_cannot_be_read_or_lacks_a_glyph_is_refused_by_name(tmp_path, options, named):
    with pytest.raises(UsageError, match=named):
        generate(replace(TINY, **options), tmp_path / "images", 1)
    assert not (tmp_path / "images").exists()


def test_a_finished_folder_is_left_as_it_is(drawn):
    (drawn / "notes.txt").write_text("mine")
    before = identities(drawn)
    assert generate(TINY, drawn, 1) == generate(TINY, drawn, 1, force=True) == (0, 0, 0)
    assert identities(drawn) == before


def test_an_unfinished_folder_goes_on_and_ends_the_same(drawn, whole):
    images = sorted(drawn.glob("*.png"))
    for path in images[3:9]:
        path.rename(
            path.with_name(path.name + TEMPORARY)
        )  # as a kill between writing and renaming leaves it
    images[10].unlink()
    told = []
    assert (
        generate(TINY, drawn, 1, progress=lambda done, total: told.append((done, total))).drawn == 7
    )
    assert told == [(5, 12), (12, 12)]
    assert contents(drawn) == contents(whole)
    images[0].write_bytes(b"")  # as a power cut leaves it
    (drawn / "labels.csv").unlink()
    assert generate(TINY, drawn, 1).drawn == 1
    assert contents(drawn) == contents(whole)


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"count": 13}, {"start": 1}, {"design": CLASSIC_WARP}, {"height": 17}]
)
def test_other_options_are_refused_and_named_in_an_unfinished_folder_too(drawn, options):
    before = contents(drawn)
    for _ in range(2):
        with pytest.raises(UsageError, match=next(iter(options))):
            generate(replace(TINY, **options), drawn, 1)
        assert contents(drawn) == before
        (drawn / "labels.csv").unlink(missing_ok=True)
        before.pop("labels.csv", None)


def test_other_fonts_are_other_options_but_their_folder_is_none(tmp_path):
    first, second, moved = (tmp_path / name / "font.ttf" for name in "abc")
    for source, path in ((DROID, first), (DEJAVU, second), (DROID, moved)):
        path.parent.mkdir()
        shutil.copy(source, path)

    def draw(*fonts):
        return generate(
            replace(TINY, count=2, fonts=tuple(map(str, fonts))), tmp_path / "images", 1
        ).drawn

    draw(first, second)
    assert draw(moved, second) == 0
    for others in ((first,), (second,), ()):
        with pytest.raises(UsageError, match=r"\bfonts\b"):
            draw(*others)


def test_force_replaces_the_images_of_other_options_even_after_an_interruption(
    tmp_path, drawn, monkeypatch
):
    def interrupted(paths):
        next(iter(paths)).unlink()
        raise KeyboardInterrupt

    other = replace(TINY, seed=1, count=10)
    with monkeypatch.context() as patch:
        patch.setattr("captcha_ocr.generation.folder.remove_files", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(other, drawn, 1, force=True)
    assert generate(other, drawn, 1, force=True).drawn == 10
    generate(other, tmp_path / "fresh", 1)
    assert contents(drawn) == contents(tmp_path / "fresh")


def test_force_leaves_the_files_of_others_and_looks_only_at_files_that_exist(drawn):
    others = ("notes.txt", "mine.png", "00000-mine.png")
    for name in others:
        (drawn / name).write_bytes(b"mine")
    options = json.loads((drawn / "generator.json").read_bytes()) | {"count": 10**9}
    (drawn / "generator.json").write_text(json.dumps(options))
    generate(replace(TINY, count=2, seed=5), drawn, 1, force=True)
    assert all((drawn / name).read_bytes() == b"mine" for name in others)
    assert len(list(drawn.glob("*.png"))) == 2 + 2


def test_edited_labels_or_options_are_refused_and_nothing_is_removed(drawn):
    labels, options = drawn / "labels.csv", drawn / "generator.json"
    labels.write_text(labels.read_text() + "mine.png,42\n")
    with pytest.raises(UsageError, match=r"labels\.csv"):
        generate(TINY, drawn, 1)
    options.write_text(options.read_text().replace('"count": 12', '"count": "x"'))
    before = contents(drawn)
    with pytest.raises(DamagedError, match=r"generator\.json"):
        generate(TINY, drawn, 1, force=True)
    assert contents(drawn) == before


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "files",
    [
        {"labels.csv": "mine"},
        {"cat.jpg": "mine"},
        {"sub/cat.jpg": "mine"},
        {"labels.csv": "mine", "generator.json": '{"charset": 5}'},
        {"labels.csv": "mine", "generator.json": '{"count": 12,'},
    ],
)
def test_a_folder_that_generate_did_not_write_is_left_as_it_is(tmp_path, files, force):
    folder = tmp_path / "theirs"
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    with pytest.raises((UsageError, DamagedError), match=rf"(?=.*{list(files)[-1]}).*`out`"):
        generate(TINY, folder, 1, force=force)
    assert contents(folder) == {name: text.encode() for name, text in files.items()}


RANDOM = DrawingOptions(
    count=20, design="random:easy", fonts=(DEJAVU, DROID), charset="digits", seed=1
)


@pytest.mark.parametrize("designs", [None, 3])
def test_random_designs_are_the_same_for_any_number_of_workers_and_again_from_their_file(
    tmp_path, designs, monkeypatch
):
    monkeypatch.setattr("captcha_ocr.generation.folder.IMAGES_PER_JOB", 8)
    config, path = replace(RANDOM, designs=designs), tmp_path / "saved.jsonl"
    first = generate(config, tmp_path / "one", 1)
    assert generate(config, tmp_path / "two", 2) == first
    assert first.drawn == 20
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    generation.save_designs(plan_drawing(config), path, 2)
    lines = path.read_bytes()
    assert lines.count(b"\n") == (designs or 20)
    generation.save_designs(plan_drawing(config), path, 1)
    assert path.read_bytes() == lines
    saved = replace(RANDOM, design=str(path), charset=None)
    generate(saved, tmp_path / "again", 1)
    assert pictures(tmp_path / "again") == pictures(tmp_path / "one")


def test_the_options_file_names_random_designs_and_the_bytes_of_saved_ones(tmp_path):
    config = replace(RANDOM, count=2)
    generate(config, tmp_path / "one", 1)
    options = json.loads((tmp_path / "one" / "generator.json").read_bytes())
    assert (options["design"], options["charset"], options["length"]) == (
        ["random:easy", None],
        "0123456789",
        "1-10",
    )
    generation.save_designs(plan_drawing(config), tmp_path / "saved.jsonl", 1)
    generate(
        replace(config, design=str(tmp_path / "saved.jsonl"), charset=None), tmp_path / "two", 1
    )
    options = json.loads((tmp_path / "two" / "generator.json").read_bytes())
    assert options["design"] == hashlib.sha256((tmp_path / "saved.jsonl").read_bytes()).hexdigest()
    with pytest.raises(UsageError, match="design"):
        generate(replace(config, design="random:hard"), tmp_path / "one", 1)


def test_what_cannot_be_read_is_drawn_again_counted_and_written_all_the_same(tmp_path):
    (tmp_path / "mine.toml").write_text('[text]\ncolor = "canvas"\n')
    config = DrawingOptions(count=3, design=str(tmp_path / "mine.toml"), fonts=(DEJAVU,))
    assert generate(config, tmp_path / "images", 1) == (3, 3 * (TRIES - 1), 3)
    assert len(pictures(tmp_path / "images")) == 3


def test_a_saved_design_whose_font_is_missing_or_another_is_refused_and_nothing_is_written(
    tmp_path,
):
    document = {"fonts": {"faces": ["DejaVuSans.ttf"], "sha256": ["0" * 64]}}
    for faces, name in ((["DejaVuSans.ttf"], "DejaVuSans.ttf"), (["Gone.ttf"], "Gone.ttf")):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(document | {"fonts": document["fonts"] | {"faces": faces}}))
        with pytest.raises(UsageError, match=name):
            generate(DrawingOptions(count=2, design=str(path)), tmp_path / "images", 1)
    assert not (tmp_path / "images").exists()


def test_the_package_draws_the_same_texts_and_its_version_is_written(tmp_path, whole):
    generate(replace(TINY, renderer="package"), tmp_path / "images", 1)
    assert pictures(tmp_path / "images").keys() == pictures(whole).keys()
    options = json.loads((tmp_path / "images" / "generator.json").read_bytes())
    assert (options["renderer"], options["captcha"]) == ("package", version("captcha"))


def test_a_font_whose_name_is_no_text_can_be_drawn_with(tmp_path):
    font = tmp_path / "fonts" / os.fsdecode(b"\xff.ttf")
    font.parent.mkdir()
    shutil.copy(DEJAVU, font)
    config = DrawingOptions(count=2, design="random:easy", fonts=(str(font.parent),))
    assert generate(config, tmp_path / "images", 1).drawn == 2
    generation.save_designs(plan_drawing(config), tmp_path / "saved.jsonl", 1)
    saved = replace(config, design=str(tmp_path / "saved.jsonl"))
    generate(saved, tmp_path / "again", 1)
    assert pictures(tmp_path / "again") == pictures(tmp_path / "images")
