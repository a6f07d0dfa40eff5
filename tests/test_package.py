"""The package as a whole: its layers, and what importing it costs."""

import ast
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import captcha_ocr

PACKAGE = Path(captcha_ocr.__file__).parent
LAYERS = [
    {"errors", "files", "charset", "config", "signals"},
    {
        "admission",
        "model_folder",
        "onnx_engine",
        "images",
        "reading",
        "labels",
        "workers",
        "drawing",
        "synth",
        "shards",
        "prepare",
        "progress",
        "interruption",
    },
    {
        "model",
        "losses",
        "metrics",
        "board",
        "device",
        "processes",
        "checkpoint",
        "resume",
        "run",
        "plots",
        "batches",
        "augment",
        "calibrate",
        "difficulty",
        "evaluate",
        "transfer",
        "advice",
        "contact_sheet",
    },
    {"recognizer", "trainer", "continuation"},
    {"train"},
    {"bench", "doctor", "export", "inspection", "cross_validation", "learning_curve"},
    {"cli"},
    {"__init__", "__main__"},
]
WITHOUT_TORCH = LAYERS[0] | LAYERS[1] | {"metrics", "recognizer", "cli", "__init__"}


def imports_of(module: str, anywhere: bool) -> set[str]:
    """The full names that a module, or one in a folder of that name, imports: at its top, or anywhere in it."""
    found = set()
    trees = [ast.parse(source) for source in sources_of(module)]
    for node in chain.from_iterable(ast.walk(tree) if anywhere else tree.body for tree in trees):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def sources_of(module: str) -> list[str]:
    """The source of a module, or of those in a folder of that name."""
    path = PACKAGE / f"{module}.py"
    return [file.read_text(encoding="utf-8") for file in ([path] if path.exists() else (PACKAGE / module).glob("*.py"))]


def modules() -> set[str]:
    """The modules of the package, and its folders."""
    return {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout


def test_every_module_has_a_layer():
    assert modules() == set.union(*LAYERS)


@pytest.mark.parametrize("level", range(7))
def test_imports_point_downwards(level):
    above = set.union(*LAYERS[level + 1 :])
    for module in LAYERS[level]:
        upwards = {name for name in above - {"__init__"} if f"captcha_ocr.{name}" in imports_of(module, anywhere=False)}
        assert not upwards, f"{module} imports {upwards}"


@pytest.mark.parametrize("module", sorted(WITHOUT_TORCH))
def test_reading_and_preparing_do_without_torch_at_the_top(module):
    assert not any(name.split(".")[0] == "torch" for name in imports_of(module, anywhere=False))


def test_only_what_draws_imports_matplotlib():
    users = {module for module in modules() if "matplotlib" in str(imports_of(module, anywhere=True))}
    assert users == {"plots", "contact_sheet"}


@pytest.mark.parametrize("module", sorted(set.union(*LAYERS) - {"__main__"}))
def test_nothing_is_unpickled_anywhere(module):
    assert not {"pickle", "dill", "joblib", "shelve", "marshal"} & imports_of(module, anywhere=True)
    for source in sources_of(module):
        assert not re.search(r"(?<!safetensors\.)torch\.load\b", source)
        assert "allow_pickle" not in source


def test_help_leaves_the_heavy_libraries_alone():
    code = (
        "import sys\nfrom captcha_ocr.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'PIL', 'matplotlib', 'tqdm'} & set(sys.modules)))"
    )
    assert run_python(code).endswith("[]\n")


def test_importing_the_package_loads_nothing_until_it_is_used():
    code = "import sys, captcha_ocr; print('numpy' in sys.modules, 'torch' in sys.modules); captcha_ocr.Recognizer"
    assert run_python(code) == "False False\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        captcha_ocr.Nothing  # noqa: B018
