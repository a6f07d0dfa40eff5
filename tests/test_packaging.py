"""What is packed, and that it reads where nothing but what a reader needs is installed."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from captcha_ocr.version import __version__

ROOT = Path(__file__).parent.parent
PACKED = (
    "pyproject.toml",
    ".gitignore",
    "README.md",
    "LICENSE",
    "THIRD_PARTY.md",
    "CHANGELOG.md",
    "constraints.txt",
)
SAMPLES = ROOT / "data" / "samples"
BUILD = """
import sys
from hatchling import build
build.build_wheel(sys.argv[1])
build.build_sdist(sys.argv[1])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist, built from a copy of the sources."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in (*PACKED, "requirements-reader.txt"):
        shutil.copy(ROOT / name, source)
    for name in ("captcha_ocr", "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "-c", BUILD, str(out)], cwd=source, check=True, capture_output=True
    )
    return out


def test_the_wheel_and_the_sdist_hold_the_package_and_nothing_else(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        sdist = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    files = (
        path
        for path in (ROOT / "captcha_ocr").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    assert wheel == {path.relative_to(ROOT).as_posix() for path in files}
    assert wheel <= sdist
    assert sdist - wheel == {*PACKED, "requirements-reader.txt", "PKG-INFO"}


def test_the_wheel_has_the_command_the_hooks_and_the_extras(built):
    (wheel,) = distributions(path=[str(path) for path in built.glob("*.whl")])
    facts = wheel.metadata
    named = (facts["Name"], facts["Version"], facts["Requires-Python"])
    assert named == ("captcha-ocr", __version__, ">=3.11")
    extras = {"export", "second", "tensorboard", "web", "browser", "dev"}
    assert set(facts.get_all("Provides-Extra")) == extras
    assert set(facts.get_all("License-File")) == {"LICENSE", "THIRD_PARTY.md"}
    assert [(point.group, point.name, point.value) for point in wheel.entry_points] == [
        ("console_scripts", "captcha-ocr", "captcha_ocr.__main__:run"),
        ("pyinstaller40", "hook-dirs", "captcha_ocr.pyinstaller:get_hook_dirs"),
    ]


def test_an_editable_installation_is_a_path_that_type_checkers_follow(tmp_path):
    code = "import sys; from hatchling import build; build.build_editable(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        (path,) = (name for name in archive.namelist() if ".dist-info/" not in name)
        assert path.endswith(".pth")
        assert Path(archive.read(path).decode().strip()) == ROOT


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")
def test_it_reads_where_only_a_readers_packages_are(built, tmp_path, monkeypatch):
    monkeypatch.delenv("CAPTCHA_OCR_MODEL", raising=False)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    python = bare / "bin" / "python"
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--quiet", str(wheel)], check=True)
    (packages,) = (bare / "lib").glob("python*/site-packages")
    for name in needed(ROOT / "requirements-reader.txt"):
        installed = distribution(name)
        for top in {file.parts[0] for file in installed.files or ()} - {".."}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(installed.locate_file(top))))
    assert not (packages / "torch").exists()
    samples = sorted(SAMPLES.glob("*.png"))
    rows = [f"{path.name},{path.stem.split('-')[1]}\n" for path in samples]
    (tmp_path / "labels.csv").write_text("filename,text\n" + "".join(rows))
    reading = ["eval", "--charset", "upper-alnum", SAMPLES, "--labels", "labels.csv", "--json"]
    how = {"capture_output": True, "text": True, "cwd": tmp_path}
    read = subprocess.run([bare / "bin" / "captcha-ocr", *reading], check=True, **how)
    *_, last = read.stdout.splitlines()
    assert (len(rows), json.loads(last)["summary"]["exact_match"]) == (6, 1.0)
    training = subprocess.run([bare / "bin" / "captcha-ocr", "train"], **how)
    assert (training.returncode, training.stdout) == (1, "")
    assert "--no-deps" in training.stderr
    assert training.stderr.count("\n") == 1


def needed(requirements: Path) -> set[str]:
    """Return the packages that a requirements file asks for, and what these need in turn."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    waiting, found = [line for line in lines if not line.startswith("#")], set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = re.sub("[-_.]+", "-", requirement.name).lower()
        if name not in found:
            found.add(name)
            waiting += distribution(name).requires or []
    return found
