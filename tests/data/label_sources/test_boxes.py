import json
from pathlib import Path

import pytest
from conftest import naming

from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.errors import UsageError

TEXTS = {"a.png": "AB", "b.png": "CDE"}


def read(document):
    path = Path("file.dat")
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    rows = read_table(path)
    assert not [row for row in rows if row.problem]
    return {row.filename.removeprefix("s3://"): row.text for row in rows}


def boxes(make, backwards=True):
    """A part for each character of each image, by default from right to left."""
    parts = {
        file: [make(text, 10 + 20 * place) for place, text in enumerate(text)]
        for file, text in TEXTS.items()
    }
    return {file: parts[file][:: -1 if backwards else 1] for file in parts}.items()


def via(text, x):
    shape = {"name": "rect", "x": x, "y": 2, "width": 9}
    return {"shape_attributes": shape, "region_attributes": {"text": text}}


def studio(text, x):
    return {"value": {"x": x, "y": 1, "text": [text]}, "from_name": "transcription", "id": "q"}


def voc(text, x):
    return f"<object><name>{text}</name><bndbox><xmin>{x}</xmin><ymin>3</ymin></bndbox></object>"


def cvat(text, x):
    return f'<box label="{text}" xtl="{x}" ytl="0"/>'


def studio_task(file, parts):
    answers = [{"result": [studio("wrong", 0)]}, {"result": parts, "was_cancelled": False}]
    task = {"image": file, "text": "of another program"}
    return {"id": 7, "data": task, "file_upload": None, "annotations": answers}


@pytest.mark.parametrize(
    "document",
    [
        [studio_task(*image) for image in boxes(studio)],
        "".join(
            f"{file}\t{json.dumps(parts)}\n"
            for file, parts in boxes(
                lambda text, x: {"transcription": text, "points": [[x, 1], [x + 9, 1], [x + 9, 8]]}
            )
        ),
        [
            {"imagePath": file, "version": "5", "imageData": None, "shapes": parts}
            for file, parts in boxes(
                lambda text, x: {"label": text, "points": [[x + 9, 8], [x, 1]], "flags": {}}
            )
        ],
        [
            {"imagePath": file, "shapes": parts, "imageData": None}
            for file, parts in boxes(
                lambda text, x: {"label": "text", "description": text, "points": [[x, 1], [x, 9]]}
            )
        ],
        {
            "_via_img_metadata": {
                f"{file}99": {"filename": file, "size": 99, "regions": parts}
                for file, parts in boxes(via)
            },
            "_via_settings": {"ui": {"text": 1}},
        },
        [
            {"image": file, "annotations": parts}
            for file, parts in boxes(
                lambda text, x: {"label": text, "coordinates": {"x": x, "y": 5, "width": 9}}
            )
        ],
        "<?xml version='1.0'?><all>"
        + "".join(
            f"<annotation><folder>x</folder><filename>{file}</filename>{''.join(parts)}"
            "<size><width>9</width></size></annotation>"
            for file, parts in boxes(voc)
        )
        + "</all>",
        "<annotations><meta><task><name>n</name></task></meta>"
        + "".join(
            f'<image id="0" name="{file}" width="9">{"".join(parts)}</image>'
            for file, parts in boxes(cvat)
        )
        + "</annotations>",
        "<annotations>"
        + "".join(
            f'<image name="{file}"><box label="is"><attribute name="is">{text}</attribute>'
            "</box></image>"
            for file, text in TEXTS.items()
        )
        + "</annotations>",
        "".join(
            json.dumps(
                {"source-ref": f"s3://{file}", "job": 0, "job-metadata": {"class-name": text}}
            )
            + "\n"
            for file, text in TEXTS.items()
        ),
    ],
    ids=[
        *(
            "Label Studio",
            "PPOCRLabel",
            "Labelme",
            "X-AnyLabeling",
            "VIA",
            "CreateML",
            "VOC",
            "CVAT",
            "attributes",
        ),
        "Ground Truth",
    ],
)
def test_the_texts_of_boxes_are_read_from_left_to_right(document):
    assert read(document) == TEXTS


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"images": [{"id": 1, "file_name": "a.png"}], "annotations": [{"bbox": [1]}]}, "CSV"),
        ([{"file": "a.png", "boxes": [{"text": "A"}, {"text": "B"}]}], "'A'"),
        ([["a.png", "AB"], None], "items"),
        ([{"id": "1", "image": "a.png", "conversations": [{"value": "AB"}]}], "conversations"),
        ({"size": {"width": 9}, "objects": [{"classTitle": "A"}], "tags": []}, "CSV"),
        ("text,b.png\n,x,c.png,d.png\n", "text,b.png"),
        ("<annotation><filename>a.png</filename>", "file.dat"),
        ({"a": [1], "annotations": [1], "b": "a.png"}, "file.dat"),
    ],
    ids=[
        *("COCO", "no places", "no row", "LLaVA", "Supervisely", "more fields"),
        *("damaged", "other"),
    ],
)
def test_files_whose_texts_are_not_understood_are_refused(document, words):
    with pytest.raises(UsageError, match=naming("file.dat", words)):
        read(document)
