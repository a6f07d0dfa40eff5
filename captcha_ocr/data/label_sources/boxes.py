"""Read texts in the files of programs in which people draw boxes around them.

These are Label Studio, PPOCRLabel, Labelme, VGG Image Annotator and CreateML in JSON, and Pascal
VOC (LabelImg) and CVAT in XML; and the classes of SageMaker Ground Truth.
"""

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

FILE_NAME = re.compile(r"\S.*\.(png|jpe?g|jpe|jfif|gif|bmp|webp|tiff?)", re.IGNORECASE)
_TEXT_KEYS = ("transcription", "text", "attribute", "label", "class-name")  # an attribute of CVAT
# What says how far to the right a box is
_PLACE_KEYS = ("x", "xmin", "xtl", "points", "all_points_x")
# Labels that say what is in a box, beside a description that is the text, as of X-AnyLabeling
_CLASSES = {"text", "captcha", "word", "label", "code", "ocr", "plate", "string"}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def parse_xml(element: ElementTree.Element) -> dict[str, Any]:
    """Return an XML document as `json.loads` would return it."""
    parts = {str(number): parse_xml(child) for number, child in enumerate(element)}
    values = {child.tag: child.text for child in element if not len(child)}
    name = {"label": values.get("name")} if element.find("bndbox") is not None else {}
    return {**parts, **values, **name, **element.attrib}


def read_boxes(document: Any) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each image: the texts of its boxes, from left to right.

    Nothing for a plain table of names and texts. ValueError for texts without places.
    """
    for image in _walk(document):
        content: list[Any] = list(image.values())
        task = image.get("data")
        if isinstance(task, dict):  # of Label Studio, where the last of several people counts
            content = [*task.values(), *image.get("annotations", ())[-1:]]
        names = (value for value in content if isinstance(value, str))
        file = next(filter(FILE_NAME.fullmatch, names), None)
        if file is None or _text_of(image):
            continue
        if text := join_texts(content):
            yield file, text


def join_texts(content: Any) -> str:
    """Return the texts of the objects in a JSON document, from left to right; "" without any.

    ValueError for texts without places.
    """
    parts = list(filter(_text_of, _walk(content)))
    if len(parts) > 1:
        parts.sort(key=_place_of)
    return "".join(map(_text_of, parts))


def _walk(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a JSON document."""
    if isinstance(node, dict):
        if "region_attributes" in node:
            node = {**node.get("shape_attributes", {}), **node["region_attributes"]}
        yield node
        node = list(node.values())
    for child in node if isinstance(node, list) else ():
        yield from _walk(child)


def _text_of(part: dict[str, Any]) -> str:
    is_class = str(part.get("label")).lower() in _CLASSES
    for value in map(part.get, ("description", *_TEXT_KEYS) if is_class else _TEXT_KEYS):
        text = value[0] if isinstance(value, list) and value else value
        if text and isinstance(text, str):
            return text
    return ""


def _place_of(part: dict[str, Any]) -> float:
    values = [each[key] for each in _walk(part) for key in _PLACE_KEYS if key in each]
    numbers = _NUMBER.findall(str(values))
    if not numbers:
        raise ValueError(f"it does not say where the text {_text_of(part)!r} is")
    return min(map(float, numbers[::2]))
