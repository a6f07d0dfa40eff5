import pytest
from conftest import contents, naming

from captcha_ocr.errors import DamagedError, UsageError
from captcha_ocr.inference.model_folder import (
    CONFIG_FILE,
    backup_path,
    find_model_folder,
    read_config,
    restore_backup,
    swap_in,
)


def test_a_best_model_that_stepped_aside_is_found_and_comes_back_unless_its_successor_is_there(
    tmp_path,
):
    best, stepped_aside = tmp_path / "best", backup_path(tmp_path / "best")
    stepped_aside.mkdir()
    assert find_model_folder(tmp_path) == stepped_aside
    assert list(tmp_path.iterdir()) == [stepped_aside]  # a reader leaves it there
    restore_backup(best)
    assert list(tmp_path.iterdir()) == [best]
    assert find_model_folder(tmp_path) == find_model_folder(best) == best
    (best / "new").touch()
    stepped_aside.mkdir()
    restore_backup(best)
    assert (best / "new").exists()


@pytest.mark.parametrize("below", ["", "captcha_ocr/pretrained", "a/b/c/d"])
def test_a_model_in_an_archive_is_to_be_unpacked(tmp_path, below):
    archive = tmp_path / "libs.zip"
    archive.touch()
    with pytest.raises(UsageError, match=naming(str(archive), "" if not below else "unpack")):
        read_config(archive / below)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"version https://git-lfs.github.com/spec/v1\nsize 1\n", "git lfs pull"),
        (b" " * 4_000_001, "4,000,000"),
    ],
)
def test_a_configuration_that_is_a_pointer_or_too_large_is_refused(tmp_path, content, named):
    (tmp_path / CONFIG_FILE).write_bytes(content)
    with pytest.raises(DamagedError, match=naming(CONFIG_FILE, named)):
        read_config(tmp_path)


def test_a_folder_that_is_put_in_place_replaces_a_folder_or_a_link_and_nothing_else(tmp_path):
    for name in ("elsewhere", "new", "newer"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    for name in ("best", backup_path(tmp_path / "best").name):
        (tmp_path / name).symlink_to("elsewhere")
    swap_in(tmp_path / "new", tmp_path / "best")
    assert (tmp_path / "best" / "new").exists()
    swap_in(tmp_path / "newer", tmp_path / "best")
    assert contents(tmp_path) == {"best/newer": b"", "elsewhere/elsewhere": b""}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "elsewhere"]
