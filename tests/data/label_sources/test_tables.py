import os
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.data.label_sources.tables import (
    FileNames,
    Row,
    excerpt,
    read_table,
    readings_to_csv,
)
from captcha_ocr.data.labels import Label, read_labels
from captcha_ocr.errors import UsageError
from captcha_ocr.system.files import detect_encoding

WORDS = [("a.png", "AB"), ("b.png", "é 1")]
CSV = "filename,text\na.png,AB\nb.png,é 1\n"


def read(content):
    """Read a table of the given content."""
    path = Path("table.dat")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path)


def words(rows):
    assert not [row for row in rows if row.problem]
    return [(row.filename, row.text) for row in rows]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_encoding_with_a_mark_and_every_line_end_is_read(encoding, end):
    assert words(read(CSV.replace("\n", end).encode(encoding))) == WORDS
    assert words(read(b"\xfe\xff" + CSV.encode("utf-16-be"))) == WORDS
    assert [detect_encoding(b"a"), detect_encoding(b"a", "cp1252")] == ["utf-8", "cp1252"]


@pytest.mark.parametrize(
    "header",
    [
        *(
            "filename,text",
            "file_name,text",
            "File Name,Text",
            "image,label",
            "path,words",
            "image_path,label",
        ),
        *(
            "file,transcription",
            "img,word",
            "image-name,solution",
            "name,code",
            "ID,ground_truth",
            "filepath,captcha",
        ),
    ],
)
def test_the_usual_names_of_columns_are_known(header):
    assert words(read(f"{header}\na.png,AB\nb.png,é 1\n")) == WORDS


@pytest.mark.parametrize(
    "content",
    [
        "text,filename,author\nAB,a.png,me\né 1,b.png,you\n",
        "filename;text\na.png;AB\nb.png;é 1\n",
        "id,image,answer\n1,a.png,AB\n2,b.png,é 1\n",
        "filename,text\na.png,AB\u200b\nb.png,\u200fé 1\n",
        '{"a.png": "AB\u00a0", "b.png": " \u200fé 1"}',
        "sep=;\r\nfilename;text\r\na.png;AB\r\nb.png;é 1\r\n",
        '{"version": 1, "images": ['
        '{"file": "a.png", "text": "AB"}, {"file": "b.png", "text": "é 1"}]}',
        "filename\ttext\na.png\tAB\nb.png\té 1\n",
        " filename , text \n a.png , AB \n b.png , é 1 \n",
        '"filename", "text"\n"a.png", "AB"\n"b.png", "é 1"\n',
        "\n\nfilename,text\n\na.png,AB\n , \nb.png,é 1\n\n",
        "a.png,AB\nb.png,é 1\n",  # no header
        "AB;a.png\né 1;b.png\n",
        "a.png\tAB\nb.png\té 1\n",
        "a.png AB\nb.png   é 1\n",
        "# what is what\n# [image] [text]\na.png AB\n\n# the rest\nb.png é 1\n",
        "#filename,text\na.png,AB\nb.png,é 1\n",
        "// read by hand\na.png\tAB\n  # and this\nb.png\té 1\n",
        "filename text\na.png AB\nb.png é 1\n",
        "# image | text | who\na.png | AB | me\nb.png | é 1 | you\n",
        "a.png: AB\nb.png: é 1\n",
        "a.png = AB\nb.png -> é 1\n",
        "{'a.png': 'AB', 'b.png': 'é 1'}",
        "[{'file': 'a.png', 'text': 'AB'}, {'file': 'b.png', 'text': 'é 1'},]",
        "[('a.png', 'AB'), ('b.png', 'é 1')]",
        '[["a.png", "AB"], ["b.png", "é 1"]]',
        "Bild;Was da steht\na.png;AB\nb.png;é 1\n",
        "answer,my image,author\nAB,a.png,me\né 1,b.png,you\n",
        '[{"filename": "a.png", "text": "AB"}, {"filename": "b.png", "text": "é 1"}]',
        '{"image": "a.png", "label": "AB"}\n\n{"image": "b.png", "label": "é 1"}\n',
        '{"a.png": "AB", "b.png": "é 1"}',
        '{"path": "a.png", "text": "AB", "confidence": 1}\n{"path": "b.png", "text": "é 1"}\n'
        '{"summary": {"images": 2}}\n',
        '{"a.png": {"text": "AB", "by": "me"}, "b.png": {"text": "é 1", "by": "you"}}',
        '{"text": "a.png", "label": ["AB"]}\n{"text": "b.png", "label": ["é 1"]}\n',  # doccano
        '{"id": 1, "filename": "a.png", "label": ["AB"], "Comments": []}\n'
        '{"id": 2, "filename": "b.png", "label": ["é 1"], "Comments": []}\n',
        '{"source-ref": "a.png", "word": "AB", "word-metadata": {"type": "x"}}\n'
        '{"source-ref": "b.png", "word": "é 1", "word-metadata": {"type": "x"}}\n',
        "HITId,Input.image_url,Answer.text\n1x,a.png,AB\n2x,b.png,é 1\n",  # Mechanical Turk
        "image,captcha_text,width\na.png,AB,90\nb.png,é 1,90\n",
        "image,chars,width,Sample ID\na.png,AB,90,7\nb.png,é 1,80,9\n",
        '[{"id": 8, "image": "a.png", "what": "AB", "lead_time": 3.5, "meta": {"by": "me"}},'
        '{"id": 4, "image": "b.png", "what": "é 1", "lead_time": 2.5, "meta": {"by": "you"}}]',
        "a.png AB  # hard\nb.png é 1\n",
        "a.png: AB #hard\nb.png: é 1 // easy\n",
        "filename,text\na.png,AB # easy\nb.png,é 1\n",
        'filename,text\na.png,"[""AB""]"\nb.png,"{""text"": [""é 1""]}"\n',
        "filename;text\na.png;['AB']\nb.png;[{'start': 0, 'text': 'é 1'}]\n",
        "My captchas,\nfilename,text\na.png,AB\nb.png,é 1\n",
        "Captchas;;\n;;\nwho;image;text\nme;a.png;AB\nme;b.png;é 1\n",
    ],
)
def test_every_form_of_a_table_is_read(content):
    assert words(read(content)) == WORDS


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('filename,text\na.png,"=""0012"""\n', "0012"),
        ("filename,text\na.png,'0012\n", "0012"),
        ("filename,text\na.png,'=3+4\n", "=3+4"),
        ('filename;text\na.png;="1E5"\n', "1E5"),
        ('[{"file": "a.png", "text": 12}]', "12"),
        ("""[{"file": "a.png", "text": "'0012"}]""", "'0012"),
        ("filename,text\na.png,'tis\n", "'tis"),
        ('filename,text\na.png,"a,b"\n', "a,b"),
        ('filename,text\na.png,","""\n', ',"'),
        ("filename;text\na.png;a,b\n", "a,b"),
        *(("a.png ab#12\n", "ab#12"), ("a.png #12\n", "#12"), ("a.png, #12\n", "#12")),
        *((f"a.png,{word}\nb.png,AB\n", word) for word in ("score", "file", "text", "split")),
        *(("a.png a//b\n", "a//b"), ('a.png,"a # b"\n', "a # b"), ("a.png,[12]\n", "[12]")),
        (
            "filename,text,split\na.png,AB\n",
            "AB",
        ),  # fewer fields than the header: the others are empty
    ],
)
def test_a_text_is_neither_cut_nor_changed(content, text):
    assert words(read(content))[0] == ("a.png", text)


@pytest.mark.parametrize(
    "content",
    [
        "filename,text\na.png,A,B\nb.png,CD\n",
        "filename text who\na.png A B me\nb.png CD you\n",
        "filename;text;split\na.png;A;B;train\nb.png;CD;\n",
        "filename\ttext\na.png\tA\tB\nb.png\tCD\n",
        '[{"file": "a.png", "text": 1.5}, {"file": "b.png", "text": "CD"}]',
        '[{"file": "a.png", "text": true}, {"file": "b.png", "text": "CD"}]',
        '{"file": "a.png", "text": ["A", "B"]}\n{"file": "b.png", "text": ["CD"]}\n',
        '{"file": "a.png", "text": {"A": 1}}\n{"file": "b.png", "text": "CD"}\n',
        'filename,text\na.png,"[""A"", ""B""]"\nb.png,CD\n',
        "filename;text\na.png;{'choices': ['AB']}\nb.png;CD\n",
    ],
)
def test_a_row_that_does_not_fit_is_an_error_of_that_row(content):
    first, second = read(content)
    assert (first.filename, bool(first.problem)) == ("a.png", True)
    assert (second.filename, second.text, second.problem) == ("b.png", "CD", None)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("x,y\n1,2\n", "x,y"),
        ("", "''"),
        ("filename^text\na.png^AB\n", "filename^text"),
        ("only words\n", "only words"),
        ("a.png AB 0f3\nb.png CD 1e4\n", "a.png AB 0f3"),
        ("Bild,Wort,Autor\na.png,AB,me\n", "'Wort' and 'Autor'"),
        ("filename,width,height,class,xmin\na.png,90,40,A,12\na.png,90,40,A,31\n" * 9, "Pascal"),
        ('filename,size,region_shape_attributes\na.png,7,"{""x"":1}"\n', "Pascal VOC or JSON"),
        ('filename,text\na.png,"[{""text"": ""A""}, {""text"": ""B""}]"\n', "'A'"),
        ("Bild,Kopie\na.png,b.png\n", "Bild,Kopie"),
        ("# image text\na.png AB 0f3\nb.png CD 1e4\n", "a.png AB 0f3"),
        ("a.png,A,\nb.png,CD\n", "a.png,A,"),  # no header says what the third field is
        ("filename,,split\na.png\n", "filename,,split"),
        *(("filename,split\na.png,AB\n", "split"), ("a.png,A,B\nb.png,CD,E\n", "a.png,A,B")),
        ("y" * 500, "y" * 50),
        ("filename,file,text,text\na.png,b.png,A,B\n", "text"),
        ("path,image,text\na.png,b.png,A\n", "image"),
        ("filename,label,solution_text\na.png,1,AB\n", "solution_text"),
        ("filename,text,Correction\na.png,AB,CD\n", "Correction"),
        ('[{"file": "a.png", "label": "hard", "transcript": "AB"}]', "transcript"),
        ("[1, 2]", "items"),
        (str([{f"{number}.png": "AB"} for number in range(9000)]), "table.dat"),
        ('{"path": "a.png"', "line 1"),
        ('{"a.png": "AB", "a.png": "CD"}', "a.png"),
        ('filename,text\na.png,"A"B"\n', "table.dat"),
        (b"filename,text\na.png,\xe9\n", "UTF-8"),
        (b"PK\x03\x04\xff\xfe", "spreadsheet"),
        ("[" * 200_000, "table.dat"),
    ],
)
def test_what_is_no_table_is_refused_with_its_first_line(content, shown):
    with pytest.raises(UsageError, match=naming("table.dat", shown)) as refusal:
        read(content)
    assert len(str(refusal.value)) < 500


def test_rows_have_the_number_of_their_line():
    assert read("filename,text\na.png,AB\n\nb.png,CD\n") == [
        Row(2, "a.png", "AB"),
        Row(4, "b.png", "CD"),
    ]
    assert (excerpt("short"), len(excerpt("x" * 1000)) < 150) == ("short", True)


@pytest.mark.parametrize(
    "name",
    [
        *("é.png", "e\u0301.png", "é", "é.jpg", "e\u0301.JPEG"),
        *("sub/a.png", "sub\\a.png", "./sub/a", "sub/a.jpg", "a.png"),
    ],
)
def test_a_name_means_an_image_in_any_form(name):
    names = FileNames(None, None if name != "a.png" else "sub", ["e\u0301.png", "sub/a.png"])
    assert names.find(name) == ("sub/a.png" if "a" in name else "e\u0301.png")


@pytest.mark.parametrize("start", ["absolute", ".", "beside"])
def test_a_path_into_the_folder_means_its_image(tmp_path, monkeypatch, start):
    for name in ("images/sub", "beside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "images" / "sub" / "a.png").touch()
    (tmp_path / "beside" / "a.png").touch()
    folder = tmp_path / "images"
    if start != "absolute":
        monkeypatch.chdir(tmp_path / start)
        folder = Path(os.path.relpath(folder))
    outside = os.path.join(folder, "..", "beside", "a.png")
    names = FileNames(folder, None, [])
    assert names.find(str(folder / "sub" / "a.png")) == "sub/a.png"
    assert names.find(outside) == outside
    (tmp_path / "codes.csv").write_text(
        f"filename,text,confidence\n{folder / 'sub' / 'a.png'},AB,0.5\n"
    )
    assert read_labels(tmp_path / "codes.csv", folder) == ([Label("sub/a.png", "AB")], {})


@pytest.mark.parametrize(
    "name", ["a" * 300 + ".png", "/" + "a" * 300, "a\0.png", "b/" * 3000 + "a.png"]
)
def test_an_impossible_file_name_stays_as_it_is(tmp_path, name):
    assert FileNames(tmp_path, None, []).find(name) == name


@pytest.mark.parametrize(
    "name", ["confidence", "Conf", "OCR score", "prob", "probability", "certainty"]
)
def test_confidences_are_shares_or_percentages_and_anything_else_is_none(tmp_path, name):
    values = {"0.5": 0.5, "1": 1.0, "95": 0.95, "900": 0.0, "-3": 0.0, "nan": 0.0, "high": 0.0}
    rows = [f"{number}.png,AB,{value}\n" for number, value in enumerate(values)]
    (tmp_path / "codes.csv").write_text(f"filename,text,{name}\n" + "".join(rows))
    assert [row.confidence for row in read_table(tmp_path / "codes.csv")] == [*values.values()]


@pytest.mark.parametrize(
    "name",
    [
        "/data/upload/4/035efa25-a.png",
        "/data/local-files/?d=some%20where/sub/a.png",
        "https://host/project/sub/a.png?token=1#top",
        "s3://bucket/a.png",
        "/home/somebody/captchas/sub/a.png",
        "C:\\Users\\me\\captchas\\a.png",
        "../train/a.png",
        *("other/folder/a", "other/folder/a.jpg"),
    ],
)
def test_a_table_of_another_folder_or_program_means_the_images_here(tmp_path, name):
    (tmp_path / "table.csv").write_text(f"filename,text\n{name},AB\n/data/b.png,CD\n")
    folder, expected = tmp_path / "images", [Label("a.png", "AB"), Label("b.png", "CD")]
    assert read_labels(tmp_path / "table.csv", folder, ["a.png", "b.png", "c.png"])[0] == expected
    moved = read_labels(tmp_path / "table.csv", folder, ["a.png"])[0]
    assert moved[0].moved_from == name
    # One that is here means that the others are elsewhere.
    labels, _ = read_labels(tmp_path / "table.csv", folder, ["a.png", "/data/b.png"])
    assert Label("a.png", "AB") not in labels


def test_an_image_with_the_name_of_a_column_makes_no_row_of_the_header(tmp_path):
    (tmp_path / "table.csv").write_text("image,text\na.png,AB\nimage.png,CD\n")
    labels, problems = read_labels(tmp_path / "table.csv", tmp_path, ["a.png", "image.png"])
    assert ([label.text for label in labels], problems) == (["AB", "CD"], {})


def test_the_text_is_the_only_column_whose_values_can_be_texts():
    row = "{0},{1},img{0}.png,{2},{3},2024-01-05T12:{0}:11Z,90,{4}\n"
    rows = [
        row.format(
            number,
            8000 + number**2,
            f"{number**3 % 97}A{number}",
            ["me", "you"][number % 2],
            number**2,
        )
        for number in range(10, 50)
    ]
    head = "number,run id,what is meant,picture,who,when,scale,weight\n"
    with pytest.raises(UsageError, match=naming("picture", "weight")):
        read(head + "".join(rows))
    table = read(head.replace("weight", "file size") + "".join(rows))
    assert [row.text for row in table] == [f"{number**3 % 97}A{number}" for number in range(10, 50)]


@pytest.mark.parametrize(
    "text", ["a # b", "ab #", "ab // c", "#ab", "=1", "'12", "a, b", 'a "b" # c']
)
def test_a_text_that_the_program_writes_is_read_again(text):
    assert words(read(readings_to_csv([("a.png", text, 0.5), ("b.png", "AB", 0.9)])))[0] == (
        "a.png",
        text,
    )


@pytest.mark.parametrize(
    ("first", "row", "last"),
    [
        ("number,Bild,text\n", "{0},k{0},AB{0}\n", "20,k20,AB20\n"),
        ("", "k{0} AB{0}\n", "other AB20\n"),
        ("", "k{0},AB{0}\n", "other,AB20\n"),
    ],
)
def test_a_column_is_known_by_the_images_that_it_names(tmp_path, first, row, last):
    rows = "".join(row.format(number) for number in range(20))
    (tmp_path / "table.csv").write_text(first + rows + last)
    images = [f"k{number}.png" for number in range(21)]
    found, problems = read_labels(tmp_path / "table.csv", tmp_path, images)
    assert ([label.text for label in found], problems) == ([f"AB{n}" for n in range(21)], {})
    assert [label.file for label in found[:20]] == images[:20]
