"""The options of serve and label."""

import re
from dataclasses import dataclass
from pathlib import Path

from captcha_ocr.errors import check
from captcha_ocr.options.declaration import Options, option
from captcha_ocr.options.model import EngineName
from captcha_ocr.options.shared import MAX_THREADS, device_option, engine_option, quiet_option

LABEL_RUN = Path("runs/label")
_MAX_PORT = 65535
# As browsers write it, also of their extensions: without the port that its scheme has by itself
_ORIGIN = re.compile(
    r"(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d+)?"
)


@dataclass(frozen=True, eq=False, repr=False)
class ServeOptions(Options):
    """The options of serve."""

    host: str = option("127.0.0.1", "The address to listen on. Any but the loopback needs a token.")
    port: int = option(8000, "0 takes a free one.", at_least=0, at_most=_MAX_PORT)
    token: str | None = option(
        None,
        "Requests must send it: Authorization: Bearer TOKEN. new makes one.",
        variable="CAPTCHA_OCR_TOKEN",
    )
    token_file: Path | None = option(
        None, "The file that holds the token, instead of that.", path="file"
    )
    allow_origin: tuple[str, ...] = option(
        (), "Pages of this origin may ask, such as https://example.org. Repeatable.", metavar="URL"
    )
    root_path: str = option(
        "", "What a proxy leaves before each path, such as /captcha.", metavar="PATH"
    )
    concurrency: int | None = option(
        None, "Images read at once.", shown="processors", at_least=1, at_most=MAX_THREADS
    )
    engine: EngineName = engine_option()
    device: str = device_option()
    quiet: bool = option(False, "Print no line for each request.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for origin in self.allow_origin:
            check(
                _ORIGIN.fullmatch(origin) is not None,
                f"`allow_origin` {origin} is no origin as browsers send it: https://example.org, "
                "without a path, a * or the usual port",
            )
        is_path = re.fullmatch(r"(/[^/?#]+)*", self.root_path) is not None
        check(is_path, f"`root_path` must be like /captcha, not {self.root_path!r}")


@dataclass(frozen=True, eq=False, repr=False)
class LabelOptions(Options):
    """The options of label."""

    blind: bool = option(
        False, "Show no guesses: measure how well people read. Writes OUT/answers.csv."
    )
    host: str = option("127.0.0.1", "The address to listen on; the page always needs its token.")
    port: int = option(8001, "0 takes a free one.", at_least=0, at_most=_MAX_PORT)
    out: Path | None = option(
        None, "For models and a journal.", shown=f"{LABEL_RUN}/NAME", path="folder"
    )
    device: str = device_option()
    quiet: bool = quiet_option()

    def run_for(self, folder: Path) -> Path:
        """Return the folder for models and a journal of a folder of images.

        It is `out`, else below `LABEL_RUN` as the images are below the current folder, or below
        the root if they lie elsewhere.
        """
        whole = folder.resolve()
        top = Path.cwd() if whole.is_relative_to(Path.cwd()) else whole.anchor
        return self.out or LABEL_RUN / whole.relative_to(top)
