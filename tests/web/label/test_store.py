import csv
import os
import shutil
import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.data.labels import find_labels
from captcha_ocr.errors import CaptchaOcrError, UsageError
from captcha_ocr.web.label.store import Conflict, LabelStore


def rows(folder):
    return [(row.filename, row.text, row.split) for row in read_table(folder / "labels.csv")]


def write_elsewhere(table, text):
    """Write a table as another program that has ended."""
    table.write_text(text)
    os.utime(table, (0, 0))


def test_a_label_is_on_the_disk_and_one_image_in_five_is_held_out(folder):
    store = LabelStore(folder)
    saved = store.save(3, " AB12 ", 0)
    assert (saved.file, saved.text, saved.version) == ("3.png", "AB12", 1)
    table = (folder / "labels.csv").read_text()
    assert table.splitlines() == ["filename,text,split", f"3.png,AB12,{saved.split}"]
    again = LabelStore(folder)
    assert (again.entries[3].text, again.drawn) == ("AB12", store.drawn)
    assert [entry.number for entry in store.entries if entry.split == "test"] == store.drawn[:1]
    for number in range(6, 12):
        shutil.copy(folder / "0.png", folder / f"{number}.png")
    (folder / "labels.csv").unlink()
    splits = Counter(entry.split for entry in LabelStore(folder).entries)
    assert splits == {"train": 9, "test": 2, "val": 1}


def test_prepare_takes_the_table_and_leaves_out_what_nobody_can_read(folder):
    store = LabelStore(folder)
    for number, text in enumerate(("=1", "'0012", "", "a,b", "é")):
        store.save(number, text, 0)
    found = find_labels(folder)
    texts = {"0.png": "=1", "1.png": "'0012", "3.png": "a,b", "4.png": "é"}
    assert {label.file: label.text for label in found.labels} == texts
    assert set(found.problems) == {"2.png", "5.png"}
    assert {label.split for label in found.labels} <= {"train", "val", "test"}


def test_what_another_program_writes_is_noticed_and_kept(folder):
    store = LabelStore(folder)
    store.save(0, "A", 0)
    store.save(3, "D", 0)  # a row that the other program removes
    write_elsewhere(
        folder / "labels.csv",
        "filename,text,split\n0.png,Z,train\n1.png,Y,val\nelsewhere/x.png,X,test\n",
    )
    with pytest.raises(Conflict, match=r"labels\.csv"):
        store.save(2, "C", 0)
    first, second = store.entries[:2]
    assert (first.text, first.version, second.split) == ("Z", 2, "val")
    store.save(2, "C", 0)
    texts = {"0.png": "Z", "1.png": "Y", "2.png": "C", "elsewhere/x.png": "X"}
    assert {file: text for file, text, _ in rows(folder)} == texts


def test_labels_of_two_tabs_at_once_are_both_kept(folder):
    store = LabelStore(folder)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(store.save, range(6), "ABCDEF", [0] * 6))
    assert [row[1] for row in rows(folder)] == [*"ABCDEF"]


def test_undo_takes_one_label_after_the_other_back_but_not_of_another_program(folder):
    store = LabelStore(folder)
    store.save(0, "A", 0)
    with pytest.raises(Conflict, match=r"0\.png"):
        store.save(0, "B", 0)  # the image changed meanwhile
    store.save(0, "B", 1)
    assert [store.undo().text, store.undo().text, rows(folder)] == ["A", None, []]
    store.save(0, "A", 4)
    write_elsewhere(folder / "labels.csv", "filename,text,split\n0.png,Z,train\n")
    for error in (Conflict, Conflict, UsageError):
        with pytest.raises(error):
            store.undo()
    assert [row[:2] for row in rows(folder)] == [("0.png", "Z")]


TABLES = {
    b"filename,text,author\n0.png,A,me\n": "other columns",
    b"filename,text,confidence\n0.png,A,0.5\n": "other columns",
    b"filename,text\n0.png,A\n0,B\n": "two texts",
    b"filename,text,split\n0.png,A,foo\n": "'foo'",
    "filename,text\n0.png,ä\n".encode("latin-1"): "UTF-8",
}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_a_label_would_spoil_is_left_alone(folder, table):
    store = LabelStore(folder)
    store.save(1, "B", 0)
    (folder / "labels.csv").write_bytes(table)
    os.utime(folder / "labels.csv", (0, 0))
    for attempt in (LabelStore, lambda _: store.save(2, "C", 0), lambda _: store.save(2, "C", 0)):
        with pytest.raises(UsageError, match=TABLES[table]):
            attempt(folder)
    assert (folder / "labels.csv").read_bytes() == table


def test_names_are_understood_as_prepare_does(folder):
    (folder / "labels.csv").write_text("filename,text,split\n0,A,valid\n./1.png,B,train\n")
    store = LabelStore(folder)
    first, second = store.entries[:2]
    assert (first.text, first.split, second.text, second.split) == ("A", "val", "B", "train")


def test_a_folder_without_images_or_with_another_table_is_refused(folder, tmp_path):
    (folder / "labels.json").write_text('{"0.png": "A"}')
    (tmp_path / "empty").mkdir()
    for place, named in ((folder, r"labels\.json"), (tmp_path / "empty", "no images")):
        with pytest.raises(UsageError, match=named):
            LabelStore(place)


def test_names_that_no_table_can_hold_are_left_out(folder):
    odd = [b" lead.png", b"line\nbreak.png", b"\xfcmlaut.png"]
    for name in odd:
        shutil.copy(folder / "0.png", os.path.join(os.fsencode(folder), name))
    store = LabelStore(folder)
    assert (sorted(map(os.fsencode, store.left_out)), len(store.entries)) == (sorted(odd), 6)


@pytest.mark.parametrize(
    ("number", "text"), [(6, "A"), (-1, "A"), (0, "a\nb"), (0, "x" * 65), (0, "\x00")]
)
def test_what_cannot_be_a_label_is_refused(folder, number, text):
    with pytest.raises(UsageError):
        LabelStore(folder).save(number, text, 0)
    assert not (folder / "labels.csv").exists()


def test_a_full_disk_loses_neither_the_table_nor_what_is_known(folder, monkeypatch):
    store = LabelStore(folder)
    store.save(0, "A", 0)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(CaptchaOcrError, match="disk is full"):
        store.save(1, "B", 0)
    monkeypatch.undo()
    assert ([row[1] for row in rows(folder)], store.entries[1].text) == (["A"], None)
    store.save(1, "B", 0)
    assert [row[1] for row in rows(folder)] == ["A", "B"]


def test_a_table_that_another_program_is_writing_is_left_alone(folder):
    table, store = folder / "labels.csv", LabelStore(folder)
    for half in ("", "filename,text\n", "filename,text,split\n0.png,A,train\n"):
        table.write_text(half)  # just now
        with pytest.raises(Conflict, match="is writing"):
            store.save(5, "F", 0)
        assert table.read_text() == half


@pytest.mark.parametrize(
    "row", [("x.png", "X", "train"), ("5.png", "F", "train"), ("5", "", "val")]
)
def test_a_row_that_is_appended_while_a_label_is_saved_stays(folder, monkeypatch, row):
    table, fsync, store = folder / "labels.csv", os.fsync, LabelStore(folder)
    store.save(0, "A", 0)

    def append_meanwhile(descriptor):
        fsync(descriptor)
        write_elsewhere(table, f"{table.read_text()}{','.join(row)}\n")

    monkeypatch.setattr(os, "fsync", append_meanwhile)
    with pytest.raises(Conflict):
        store.save(1, "B", 0)
    monkeypatch.undo()
    store.save(1, "B", 0)
    assert row[1:] in [found[1:] for found in rows(folder)]
    assert [found[:2] for found in rows(folder)][:2] == [("0.png", "A"), ("1.png", "B")]


@pytest.mark.parametrize("link", ["labels.csv", "loop.csv"])
def test_a_table_that_links_to_itself_is_refused_by_name(folder, link):
    (folder / "loop.csv").symlink_to("labels.csv")
    (folder / "labels.csv").symlink_to(link)
    with pytest.raises(UsageError, match=str(folder)):
        LabelStore(folder)


@pytest.mark.parametrize("link", ["../mine.csv", "mine.csv", "new.csv", "../images/../mine.csv"])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
def test_the_table_behind_a_link_gets_the_labels_and_keeps_its_mode(folder, link, mode):
    (folder / link).write_text("filename,text,split\n1.png,B,train\n")
    (folder / link).chmod(mode)
    (folder / "labels.csv").symlink_to(link)
    LabelStore(folder).save(0, "AB12", 0)
    assert (folder / "labels.csv").is_symlink()
    assert "AB12" in (folder / link).read_text()
    assert stat.S_IMODE((folder / link).stat().st_mode) == mode


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(1)", '=A("x")', "'0012", '="x"', "+a,b"]
)
def test_a_label_that_a_spreadsheet_would_compute_is_marked_and_reads_back(folder, text):
    LabelStore(folder).save(0, text, 0)
    assert (LabelStore(folder).entries[0].text, find_labels(folder).labels[0].text) == (text, text)
    row = (folder / "labels.csv").read_text().splitlines()[1]
    assert next(csv.reader([row]))[1] == f'="{text}"'
