import io

import numpy as np
import pytest
from hostile import in_format
from PIL import Image

from captcha_ocr.audit.images import call_function

PIXELS = np.full((4, 6, 3), 7, dtype=np.uint8)

PNG = in_format(Image.fromarray(PIXELS))


@pytest.mark.parametrize("image", [PIXELS, Image.fromarray(PIXELS), io.BytesIO(PNG), PNG])
def test_images_of_every_kind_become_files(image):
    with Image.open(io.BytesIO(call_function.to_file(image))) as found:
        assert (np.asarray(found) == PIXELS).all()


def test_what_is_no_image_is_named():
    with pytest.raises(TypeError, match="NoneType"):
        call_function.to_file(None)


def test_a_text_that_fails_is_left_out(tmp_path, monkeypatch, capsys):
    code = "from PIL import Image\ndef draw(text, seed):\n    assert text != 'bad', 'no ink'\n"
    (tmp_path / "brittle.py").write_text(f"{code}    return Image.new('L', (9, 9))\n")
    (tmp_path / "list.csv").write_text("file,text,seed\na.png,bad,1\nb.png,good,2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "sys.argv",
        ["call_function", "brittle:draw", str(tmp_path / "list.csv"), str(tmp_path), "{}"],
    )
    with pytest.raises(SystemExit) as leaving:
        call_function.main()
    assert leaving.value.code == 1
    assert "no ink" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*.png")] == ["b.png"]
