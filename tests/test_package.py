"""The package as a whole: its layers, and what importing it costs."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import captcha_ocr

PACKAGE = Path(captcha_ocr.__file__).parent
# A folder, or a module beside the folders, imports only from itself and from those before it.
LAYERS = (
    *(
        "version",
        "errors",
        "charset",
        "input_size",
        "options",
        "system",
        "scores",
        "data",
        "pictures",
        "generation",
        "inference",
        "network",
    ),
    *(
        "recognizer",
        "training",
        "experiments",
        "diagnostics",
        "web",
        "audit",
        "cli",
        "__init__",
        "__main__",
        "pyinstaller",
    ),
)
WITHOUT_TORCH = ("system", "data", "pictures", "generation", "inference")


def layer(module: str) -> str:
    """`captcha_ocr.data.images` is in the layer `data`."""
    return module.split(".")[1]


def imports_of_modules() -> dict[str, set[str]]:
    """For each module of the package the full names of what it imports, anywhere in it but for type checking."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        ]
        skipped = {id(node) for block in for_types for node in ast.walk(block)}
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and id(node) not in skipped:
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and id(node) not in skipped:
                names |= {f"{node.module}.{alias.name}" for alias in node.names} | {
                    str(node.module)
                }
        found[".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)] = names
    return found


IMPORTS = imports_of_modules()


def test_every_module_has_a_layer():
    assert {layer(module) for module in IMPORTS} == set(LAYERS)


def test_no_import_points_upwards():
    upwards = [
        f"{module} imports {name}"
        for module, names in IMPORTS.items()
        for name in names & IMPORTS.keys()
        if LAYERS.index(layer(name)) > LAYERS.index(layer(module))
    ]
    assert upwards == []


def test_no_modules_import_each_other_in_a_circle():
    TopologicalSorter(
        {module: names & IMPORTS.keys() for module, names in IMPORTS.items()}
    ).prepare()


def test_the_folders_that_work_without_torch_never_import_it():
    users = {
        layer(module)
        for module, names in IMPORTS.items()
        if any(name.split(".")[0] == "torch" for name in names)
    }
    assert not users & set(WITHOUT_TORCH)


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_help_and_the_package_import_no_heavy_library():
    code = (
        "import sys, captcha_ocr\nfrom captcha_ocr.cli.app import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'PIL', 'matplotlib', 'tqdm', 'jinja2'} & set(sys.modules)))"
    )
    assert run_python(code).endswith("[]\n")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        captcha_ocr.Nothing  # noqa: B018


def test_every_folder_has_its_tests():
    folders = {layer(module) for module in IMPORTS if module.count(".") > 1}
    tests = {path.name for path in Path(__file__).parent.iterdir()}
    assert folders - {"pyinstaller"} <= tests  # see test_freezing.py
