import json
import os
import shutil
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote

import pytest
from conftest import CAPTCHAS, contents
from PIL import Image

from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.generation import folder as generation
from captcha_ocr.generation.drawer import TRIES, drawer_of, plan_drawing
from captcha_ocr.options.drawing import CLASSIC_WARP, DrawingOptions
from captcha_ocr.options.model import Lengths
from captcha_ocr.system.files import TEMPORARY, sha256

from .conftest import DEJAVU, DROID

TINY = replace(CAPTCHAS, count=12)


def generate(options, folder, workers=1, **settings):
    return generation.generate(plan_drawing(options), folder, workers, **settings)


def pictures(folder):
    """Every image of a folder: name -> bytes."""
    return {name: data for name, data in contents(folder).items() if name.endswith(".png")}


def options_of(folder):
    return json.loads((folder / "generator.json").read_bytes())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with 12 finished images. Read only."""
    folder = tmp_path_factory.mktemp("data") / "images"
    assert generate(TINY, folder) == (12, 0, 0)
    return folder


@pytest.fixture
def drawn(whole, tmp_path):
    """A copy of them, to change."""
    return shutil.copytree(whole, tmp_path / "images")


def test_parts_are_the_same_bytes_as_the_whole(tmp_path, whole):
    both, end = tmp_path / "both", tmp_path / "end"
    generate(replace(TINY, count=20), both)
    generate(replace(TINY, start=12, count=8), end)
    assert pictures(whole) | pictures(end) == pictures(both)
    labels = [(folder / "labels.csv").read_text() for folder in (whole, end, both)]
    assert labels[0] + labels[1].removeprefix("filename,text\n") == labels[2]


def test_a_folder_holds_images_labels_and_options(whole):
    drawer = drawer_of(plan_drawing(TINY))
    images = [f"{index:05d}-{drawer.draw(index).text}.png" for index in range(12)]
    assert sorted(contents(whole)) == [*images, "generator.json", "labels.csv"]
    assert read_labels(whole / "labels.csv") == ([Label(name, name[6:-4]) for name in images], {})
    with Image.open(whole / images[0]) as image:
        assert (image.size, image.mode, image.format) == ((48, 16), "RGB", "PNG")


def test_odd_characters_give_safe_file_names_that_still_tell_the_text(tmp_path):
    charset = '%/\\:*?"<>|.,-_é'
    options = replace(TINY, count=30, charset=charset, lengths=Lengths(3, 3), font_sizes=(14, 20))
    generate(options, tmp_path)
    labels, _ = read_labels(tmp_path / "labels.csv")
    texts = {label.file: label.text for label in labels}
    assert texts == {name: unquote(name[6:-4]) for name in pictures(tmp_path)}
    assert not {*"".join(name[:-4] for name in texts)} & {*'/\\:*?"<>|.'}
    assert {*"".join(texts.values())} == {*charset}
    assert generate(options, tmp_path).drawn == 0


def test_the_options_file_names_no_folder_machine_or_time(whole):
    options = options_of(whole)
    design = options.pop("design")
    assert (design["canvas"]["width"], design["text"]["size"]) == (48, {"one_of": [14]})
    assert options == {
        "format": "captcha-ocr generator",
        "captcha_ocr": version("captcha-ocr"),
        "renderer": "fast",
        "warp": "package",
        "fonts": [["DroidSansMono.ttf", sha256(Path(DROID).read_bytes())]],
        **{"count": 12, "start": 0, "length": "2", "charset": "0123456789", "seed": 0},
    }
    options = generation.image_options(plan_drawing(replace(TINY, renderer="package")))
    assert (options["renderer"], options["captcha"]) == ("package", version("captcha"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"charset": "01中"}, r"(?=.*DroidSansMono\.ttf).*中"),
        # Only DejaVu has it.
        ({"charset": "0☃", "fonts": (DEJAVU, DROID)}, r"(?=.*DroidSansMono\.ttf).*☃"),
        ({"fonts": (__file__,)}, Path(__file__).name),
    ],
)
def test_a_font_that_is_not_usable_is_refused_by_name_and_nothing_is_written(options, named):
    with pytest.raises(UsageError, match=named):
        generate(replace(TINY, **options), Path("images"))
    assert not Path("images").exists()


def test_a_finished_folder_is_left_as_it_is(drawn):
    def identify():
        return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in drawn.iterdir()}

    (drawn / "notes.txt").write_text("mine")
    before = identify()
    assert generate(TINY, drawn) == generate(TINY, drawn, force=True) == (0, 0, 0)
    assert identify() == before


def test_an_unfinished_folder_goes_on_and_ends_the_same(drawn, whole):
    images = sorted(drawn.glob("*.png"))
    for path in images[3:9]:  # as a kill between writing and renaming leaves it
        path.rename(path.with_name(path.name + TEMPORARY))
    images[10].unlink()
    told = []
    done = generate(TINY, drawn, progress=lambda *counts: told.append(counts))
    assert (done.drawn, told) == (7, [(5, 12), (12, 12)])
    assert contents(drawn) == contents(whole)
    images[0].write_bytes(b"")  # as a power cut leaves it
    (drawn / "labels.csv").unlink()
    assert generate(TINY, drawn).drawn == 1
    assert contents(drawn) == contents(whole)


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"count": 13}, {"start": 1}, {"design": CLASSIC_WARP}, {"height": 17}]
)
def test_other_options_are_refused_and_named_in_an_unfinished_folder_too(drawn, options):
    for _ in range(2):
        before = contents(drawn)
        with pytest.raises(UsageError, match=next(iter(options))):
            generate(replace(TINY, **options), drawn)
        assert contents(drawn) == before
        (drawn / "labels.csv").unlink(missing_ok=True)


def test_other_fonts_are_other_options_but_their_folder_is_none(tmp_path):
    moved = shutil.copy(DROID, tmp_path / Path(DROID).name)

    def draw(*fonts):
        return generate(replace(TINY, count=2, fonts=fonts), tmp_path / "images").drawn

    assert (draw(DROID, DEJAVU), draw(str(moved), DEJAVU)) == (2, 0)
    for fonts in ((DROID,), (DEJAVU,), ()):
        with pytest.raises(UsageError, match=r"\bfonts\b"):
            draw(*fonts)


def test_force_replaces_the_images_of_other_options_even_after_an_interruption(
    tmp_path, drawn, monkeypatch
):
    def interrupted(paths):
        next(iter(paths)).unlink()
        raise KeyboardInterrupt

    other = replace(TINY, seed=1, count=10)
    with monkeypatch.context() as patch:
        patch.setattr(generation, "remove_files", interrupted)
        with pytest.raises(KeyboardInterrupt):
            generate(other, drawn, force=True)
    assert generate(other, drawn, force=True).drawn == 10
    generate(other, tmp_path / "fresh")
    assert contents(drawn) == contents(tmp_path / "fresh")


def test_force_leaves_the_files_of_others_and_looks_only_at_files_that_exist(drawn):
    files = dict.fromkeys(("notes.txt", "mine.png", "00000-mine.png"), b"mine")
    for name, data in files.items():
        (drawn / name).write_bytes(data)
    (drawn / "generator.json").write_text(json.dumps(options_of(drawn) | {"count": 10**9}))
    generate(replace(TINY, count=2, seed=5), drawn, force=True)
    assert contents(drawn).items() >= files.items()
    assert len(pictures(drawn)) == 2 + 2


def test_edited_labels_or_options_are_refused_and_nothing_is_removed(drawn):
    labels, options = drawn / "labels.csv", drawn / "generator.json"
    labels.write_text(labels.read_text() + "mine.png,42\n")
    with pytest.raises(UsageError, match=r"labels\.csv"):
        generate(TINY, drawn)
    options.write_text(options.read_text().replace('"count": 12', '"count": "x"'))
    before = contents(drawn)
    with pytest.raises(DamagedError, match=r"generator\.json"):
        generate(TINY, drawn, force=True)
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
    (tmp_path / "sub").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises((UsageError, DamagedError), match=rf"(?=.*{list(files)[-1]}).*`out`"):
        generate(TINY, tmp_path, force=force)
    assert contents(tmp_path) == {name: text.encode() for name, text in files.items()}


@pytest.mark.parametrize(
    ("designs", "numbers", "workers"), [(None, range(4, 24), 2), (3, range(3), 1)]
)
def test_random_designs_are_the_same_for_any_number_of_workers_and_again_from_their_file(
    tmp_path, designs, numbers, workers, monkeypatch
):
    monkeypatch.setattr(generation, "_IMAGES_PER_JOB", 8)
    (tmp_path / "fonts").mkdir()
    shutil.copy(DEJAVU, tmp_path / "fonts" / os.fsdecode(b"\xff.ttf"))  # its name is no text
    fonts, path = (str(tmp_path / "fonts"), DROID), tmp_path / "saved.jsonl"
    saved = DrawingOptions(design=str(path), count=20, start=4, seed=1, fonts=fonts)
    options = replace(saved, design="random:easy", charset="digits", random_designs=designs)
    first = generate(options, tmp_path / "one")
    assert (first.drawn, generate(options, tmp_path / "two", workers)) == (20, first)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    generation.save_designs(plan_drawing(options), path, workers)
    drawer = drawer_of(plan_drawing(options))
    assert path.read_text().splitlines() == [drawer.random_document(number) for number in numbers]
    generate(saved, tmp_path / "again")
    assert pictures(tmp_path / "again") == pictures(tmp_path / "one")
    expected = {"design": ["random:easy", designs], "charset": "0123456789", "length": "1-12"}
    assert options_of(tmp_path / "one").items() >= expected.items()
    assert options_of(tmp_path / "again")["design"] == sha256(path.read_bytes())
    with pytest.raises(UsageError, match="design"):
        generate(replace(options, design="random:hard"), tmp_path / "one")


def test_what_cannot_be_read_is_drawn_again_counted_and_written_all_the_same(tmp_path):
    Path("mine.toml").write_text('[text]\ncolor = "canvas"\n')
    options = DrawingOptions(count=3, design="mine.toml", fonts=(DEJAVU,))
    assert generate(options, tmp_path / "images") == (3, 3 * (TRIES - 1), 3)
    assert len(pictures(tmp_path / "images")) == 3
