"""What is packed, and that it reads where nothing but what a reader needs is installed."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from importlib.metadata import distribution, distributions
from pathlib import Path
from urllib.request import Request, urlopen

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
SAMPLE = SAMPLES / "00000-0ZLA.png"
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
    extras = {"export", "second", "svg", "tensorboard", "web", "browser", "dev"}
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


@pytest.fixture
def install_bare(built, tmp_path, monkeypatch):
    """Return a function that makes an environment with some requirements and the wheel alone."""
    monkeypatch.delenv("CAPTCHA_OCR_MODEL", raising=False)

    def install(requirements) -> Path:
        bare = tmp_path / "bare"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
        (wheel,) = built.glob("*.whl")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        words = ["--python", bare / "bin" / "python", "install", "--no-deps", "--no-index", "-q"]
        subprocess.run([*pip, *words, wheel], check=True)
        (packages,) = (bare / "lib").glob("python*/site-packages")
        for name in needed(requirements):
            installed = distribution(name)
            for top in {file.parts[0] for file in installed.files or ()} - {".."}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(Path(str(installed.locate_file(top))))
        assert not (packages / "torch").exists()
        return bare / "bin"

    return install


READER = [
    line
    for line in (ROOT / "requirements-reader.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")
def test_it_reads_where_only_a_readers_packages_are(install_bare, tmp_path):
    programs = install_bare(READER)
    samples = sorted(SAMPLES.glob("*.png"))
    rows = [f"{path.name},{path.stem.split('-')[1]}\n" for path in samples]
    (tmp_path / "labels.csv").write_text("filename,text\n" + "".join(rows))
    reading = ["eval", "--charset", "upper-alnum", SAMPLES, "--labels", "labels.csv", "--json"]
    how = {"capture_output": True, "text": True, "cwd": tmp_path}
    read = subprocess.run([programs / "captcha-ocr", *reading], check=True, **how)
    *_, last = read.stdout.splitlines()
    assert (len(rows), json.loads(last)["summary"]["exact_match"]) == (6, 1.0)
    training = subprocess.run([programs / "captcha-ocr", "train"], **how)
    assert (training.returncode, training.stdout) == (1, "")
    assert "--no-deps" in training.stderr
    assert training.stderr.count("\n") == 1


def docker_instructions():
    """Return the instructions of the Dockerfile and their words."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.partition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: words.strip() for name, _, words in lines}


def ask(address, path, body=None):
    request = Request(f"{address}{path}", body, {"Authorization": "Bearer a-secret"})
    with urlopen(request, timeout=30) as answer:
        return answer.read().decode()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")
def test_the_steps_of_the_dockerfile_serve_in_a_bare_environment(install_bare, tmp_path):
    steps = docker_instructions()
    extra = steps["RUN"].partition("requirements-reader.txt")[2].partition("&&")[0].split()
    programs = install_bare([*READER, *extra])
    words = json.loads(steps["ENTRYPOINT"]) + json.loads(steps["CMD"]) + ["--port", "0"]
    environment = {"PATH": str(programs), "CAPTCHA_OCR_TOKEN": "a-secret"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment, cwd=tmp_path, **pipes) as process:
        try:
            page = next(line.split()[1] for line in process.stderr if line.startswith("page"))
            port = page.rpartition(":")[2].partition("/")[0]
            text = ask(f"http://127.0.0.1:{port}", "/ocr/b64/text", SAMPLE.read_bytes())
            health = json.loads(steps["HEALTHCHECK"].partition("CMD")[2].replace("8000", port))
            checked = subprocess.run(health, env=environment, capture_output=True, text=True)
        finally:
            process.terminate()
    assert (text, checked.returncode, checked.stderr) == ("0ZLA", 0, "")
    assert steps["USER"] == "nobody"


@pytest.mark.skipif(
    not shutil.which("docker")
    or subprocess.run(["docker", "info"], capture_output=True).returncode,
    reason="there is no builder of containers",
)
def test_the_dockerfile_makes_an_image_that_serves(tmp_path):
    def docker(*words):
        done = subprocess.run(["docker", *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    image = docker("build", "--quiet", ".")
    token = ["--env", "CAPTCHA_OCR_TOKEN=a-secret"]
    container = docker("run", "--detach", "--rm", "--publish", "127.0.0.1::8000", *token, image)
    try:
        address = docker("port", container, "8000/tcp")
        while docker("inspect", "--format", "{{.State.Health.Status}}", container) == "starting":
            time.sleep(1)
        text = ask(f"http://{address}", "/ocr/b64/text", SAMPLE.read_bytes())
        assert (text, docker("exec", container, "whoami")) == ("0ZLA", "nobody")
    finally:
        docker("stop", container)


def needed(requirements) -> set[str]:
    """Return the packages that are required, and what these need in turn."""
    waiting, found = list(requirements), set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = re.sub("[-_.]+", "-", requirement.name).lower()
        if name not in found:
            found.add(name)
            waiting += distribution(name).requires or []
    return found
