"""PyInstaller finds the hooks in the package, and what they name makes a bundled program work."""

import runpy
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from captcha_ocr.pyinstaller import get_hook_dirs

pytest.importorskip("PyInstaller")
SAMPLE = Path(__file__).parent.parent / "data" / "samples" / "00000-0ZLA.png"
READER = (
    "import sys; from captcha_ocr import Recognizer; print(Recognizer().predict(sys.argv[1]).text)"
)
COMMANDS = "from captcha_ocr.cli.app import main; main()"


def hook(module: str) -> dict[str, object]:
    (folder,) = get_hook_dirs()
    return runpy.run_path(str(Path(folder, f"hook-{module}.py")))


@pytest.mark.parametrize(
    ("module", "file"),
    [
        ("captcha_ocr", "captcha_ocr/pretrained/model.onnx"),
        ("captcha_ocr", "captcha_ocr/pretrained/model.safetensors"),
        ("captcha_ocr", "captcha_ocr/pretrained/config.json"),
        ("captcha_ocr", "captcha_ocr/pretrained/README.md"),
        ("captcha_ocr", "captcha_ocr/pretrained_captcha/model.onnx"),
        ("captcha_ocr", "captcha_ocr/pretrained_chinese/model.onnx"),
        ("captcha_ocr", "captcha_ocr/pretrained_chinese/model.safetensors"),
        ("captcha_ocr", "captcha_ocr/pretrained_captcha/config.json"),
        ("captcha_ocr", "captcha_ocr/pretrained_chinese/config.json"),
        ("captcha_ocr", "captcha_ocr/pretrained_captcha/README.md"),
        ("captcha_ocr", "captcha_ocr/pretrained_chinese/README.md"),
        ("captcha", "captcha/data/DroidSansMono.ttf"),
    ],
)
def test_a_file_that_is_read_is_bundled(module, file):
    bundled = {f"{folder}/{Path(source).name}" for source, folder in hook(module)["datas"]}
    assert file in {name.replace("\\", "/") for name in bundled}


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("captcha_ocr", "recognizer"),
        ("captcha_ocr", "inference.decoding"),
        ("captcha_ocr.cli.app", "cli.commands.data"),
        ("captcha_ocr.cli.app", "cli.commands.training"),
        ("captcha_ocr.cli.app", "cli.commands.reading"),
        ("captcha_ocr.cli.app", "cli.commands.machine"),
    ],
)
def test_a_module_that_is_imported_by_name_is_bundled(module, imported):
    name = f"captcha_ocr.{imported}"
    assert name in hook(module)["hiddenimports"]
    assert import_module(name)


def test_the_installed_package_names_the_folder_of_the_hooks():
    found = [point.load() for point in entry_points(group="pyinstaller40", name="hook-dirs")]
    assert get_hook_dirs in found


@pytest.mark.parametrize(("program", "words"), [(READER, [SAMPLE]), (COMMANDS, ["eval", SAMPLE])])
def test_a_bundled_program_reads(tmp_path, soak, program, words):
    if not soak:
        pytest.skip("a bundle takes half a minute; make soak")
    (tmp_path / "app.py").write_text(program)
    without = [
        word for name in ("torch", "matplotlib", "onnx") for word in ("--exclude-module", name)
    ]
    command = [
        sys.executable,
        "-m",
        "PyInstaller",
        "--log-level",
        "ERROR",
        "--onedir",
        *without,
        "app.py",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(
        [tmp_path / "dist" / "app" / "app", *words], capture_output=True, text=True, check=True
    )
    assert "0ZLA" in done.stdout
