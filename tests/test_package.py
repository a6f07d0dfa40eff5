"""The package as a whole: its layers, and what importing it costs."""

import ast
import subprocess
import sys
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

import captcha_ocr

PACKAGE = Path(captcha_ocr.__file__).parent
LAYERS = [
    {"errors", "files", "charset", "config", "signals"},
    {"admission", "images", "labels", "reading", "model_folder", "onnx_engine", "workers", "progress", "interruption"}
    | {"drawing", "synth", "shards", "prepare"},
    {"model", "losses", "metrics", "device", "processes", "checkpoint", "resume", "run", "batches", "augment"}
    | {"calibrate", "difficulty", "evaluate", "transfer", "advice", "board", "plots", "contact_sheet"},
    {"recognizer", "trainer", "continuation"},
    {"train"},
    {"bench", "doctor", "export", "inspection", "cross_validation", "learning_curve"},
    {"cli"},
    {"__init__", "__main__"},
]
WITHOUT_TORCH = LAYERS[0] | LAYERS[1] | {"metrics", "recognizer", "cli", "__init__"}


@cache
def imports_of(module: str, anywhere: bool = False) -> set[str]:
    """Return the full names that a module, or the modules in a folder, import: at the top, or anywhere."""
    found: set[str] = set()
    path = PACKAGE / f"{module}.py"
    trees = [ast.parse(file.read_bytes()) for file in ([path] if path.exists() else (PACKAGE / module).glob("*.py"))]
    for node in chain.from_iterable(ast.walk(tree) if anywhere else tree.body for tree in trees):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def test_every_module_has_a_layer_and_imports_no_higher_one():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {path.stem for path in PACKAGE.glob("*.py")} | folders == set.union(*LAYERS)
    for level, layer in enumerate(LAYERS[:-1]):
        above = {f"captcha_ocr.{name}" for name in set.union(*LAYERS[level + 1 :]) - {"__init__"}}
        assert {module: imports_of(module) & above for module in layer} == {module: set() for module in layer}


def test_torch_and_matplotlib_are_imported_only_where_needed():
    assert not [name for name in WITHOUT_TORCH if any(part.split(".")[0] == "torch" for part in imports_of(name))]
    users = {name for name in set.union(*LAYERS) if "matplotlib" in str(imports_of(name, anywhere=True))}
    assert users == {"plots", "contact_sheet"}


def test_importing_the_package_and_its_help_load_no_heavy_library():
    code = """
import sys, captcha_ocr, captcha_ocr.cli
captcha_ocr.cli.main(['--help'], standalone_mode=False)
print(sorted({'torch', 'numpy', 'PIL', 'matplotlib', 'tqdm'} & set(sys.modules)), captcha_ocr.Recognizer.__name__)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("[] Recognizer\n")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        captcha_ocr.Nothing  # noqa: B018
