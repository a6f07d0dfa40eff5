"""The package as a whole: its layers, its names, its page, and what importing it costs."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import captcha_ocr

PACKAGE = Path(captcha_ocr.__file__).parent
ARCHITECTURE = Path(__file__).parent.parent / "docs" / "architecture.md"
# A folder, or a module beside the folders, imports only from itself and from those before it.
LAYERS = (
    *("version", "errors", "charset", "input_size", "options", "system", "scores", "data"),
    *("pictures", "generation", "inference", "network", "recognizer", "two_readers"),
    *("training", "experiments"),
    *("diagnostics", "web", "audit", "cli", "__init__", "__main__", "pyinstaller"),
)
WITHOUT_TORCH = ("system", "data", "pictures", "generation", "inference")
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for path in PACKAGE.rglob("*.py")
}
COMMAND = "the command, and the function that does its work"
# Public names that two modules define, each with the reason why they may.
SHARED_NAMES = {
    **dict.fromkeys(("adapt", "audit", "evaluate", "generate", "prepare", "train"), COMMAND),
    **dict.fromkeys(("datas", "hiddenimports"), "PyInstaller looks for them in each hook"),
    "main": "the command line, and the program in which the function of an audit is called",
    "run": "the console script; the server",
}


def find_layer(module: str) -> str:
    """Return the layer of a module: `data` of `captcha_ocr.data.images`."""
    return module.split(".")[1]


def find_imports(tree: ast.Module) -> set[str]:
    """Return the full names of what a module imports anywhere, but for type checking."""
    skipped, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            skipped |= set(ast.walk(node))
        elif isinstance(node, ast.Import) and node not in skipped:
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node not in skipped:
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


IMPORTS = {
    f"captcha_ocr.{path.removesuffix('.py').replace('/', '.')}": find_imports(tree)
    for path, tree in TREES.items()
}


def test_every_module_has_a_layer():
    assert {find_layer(module) for module in IMPORTS} == set(LAYERS)


def test_no_import_points_upwards():
    upwards = [
        f"{module} imports {name}"
        for module, names in IMPORTS.items()
        for name in names & IMPORTS.keys()
        if LAYERS.index(find_layer(name)) > LAYERS.index(find_layer(module))
    ]
    assert upwards == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: names & IMPORTS.keys() for module, names in IMPORTS.items()}
    TopologicalSorter(graph).prepare()


def test_the_folders_that_work_without_torch_never_import_it():
    for module, names in IMPORTS.items():
        if find_layer(module) in WITHOUT_TORCH:
            assert "torch" not in {name.split(".")[0] for name in names}, module


def test_a_name_has_one_meaning():
    modules = defaultdict(set)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                modules[node.name].add(path)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in getattr(node, "targets", None) or [node.target]:
                    for name in re.findall(r"\b[A-Za-z]\w*", ast.unparse(target)):
                        modules[name].add(path)
    shared = {name: sorted(modules[name]) for name in modules if len(modules[name]) > 1}
    public = {name: paths for name, paths in shared.items() if not name.startswith("_")}
    assert public.keys() == SHARED_NAMES.keys(), public


def test_the_page_on_the_architecture_lists_every_module():
    page = ARCHITECTURE.read_text(encoding="utf-8")
    tree = page.partition("    captcha_ocr/\n")[2].partition("\n\n")[0]
    listed, folders = set(), {}
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip())
        folders = {place: folder for place, folder in folders.items() if place < depth}
        for name in re.split(" {2,}", line.strip()):
            if name.endswith("/"):
                folders[depth] = name
            elif name.endswith(".py"):
                listed.add("".join(folders.values()) + name)
    assert listed == {
        path for path in TREES if "__init__" not in path and "pyinstaller" not in path
    }


def test_help_and_the_package_import_no_heavy_library():
    code = (
        "import sys, captcha_ocr\nfrom captcha_ocr.cli.app import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "print(sorted({'torch', 'numpy', 'PIL', 'matplotlib', 'tqdm', 'jinja2'} & {*sys.modules}))"
    )
    assert subprocess.check_output([sys.executable, "-c", code]).endswith(b"[]\n")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Nothing"):
        captcha_ocr.Nothing  # noqa: B018


def test_every_folder_has_its_tests():
    folders = {find_layer(module) for module in IMPORTS if module.count(".") > 1}
    tests = {path.name for path in Path(__file__).parent.iterdir()}
    assert folders - {"pyinstaller"} <= tests  # see test_freezing.py
