"""The pages in a real browser: Debian's chromium-headless-shell, driven by Playwright.

Without a browser these tests skip, unless BROWSER_TESTS=required.
"""

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import skip_without_small_disks, small_disk

from captcha_ocr.cli.wording import word_command
from captcha_ocr.data.label_sources.tables import read_table
from captcha_ocr.inference.model_folder import PRETRAINED
from captcha_ocr.web.label.service import LabelService
from captcha_ocr.web.reading_service import ReadingService

from .conftest import SAMPLE, SAMPLES, running

BROWSER = shutil.which("chromium-headless-shell")
OPTIONS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)
REBOUND = "--host-resolver-rules=MAP evil.example 127.0.0.1"
PASTE = """([name, data, kind]) => {
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, { type: "image/png" }));
    const event = kind === "paste"
        ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true })
        : new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
    document.querySelector("#drop").dispatchEvent(event);
}"""

if os.environ.get("BROWSER_TESTS") == "required":
    import axe_playwright_python.sync_playwright as axe
    import playwright.sync_api as playwright
else:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
    )
    if BROWSER is None:
        pytest.skip("chromium-headless-shell is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=BROWSER, args=[*OPTIONS.split(), REBOUND])
        yield made
        made.close()


@pytest.fixture
def page(browser):
    """A page; at the end nothing is on its console, and no request went beyond this machine."""
    context = browser.new_context()
    made, said = context.new_page(), []
    made.on("console", lambda message: said.append(message.text))
    made.on("pageerror", lambda error: said.append(str(error)))
    made.asked = []
    made.on("request", lambda request: made.asked.append(request.url))
    made.expected = "nothing"  # what may be on the console: errors of HTTP that a test asks for
    yield made
    context.close()
    assert [text for text in said if not re.search(made.expected, text)] == []
    here = ("http://127.0.0.1:", "blob:http://127.0.0.1:")
    assert [url for url in made.asked if not url.startswith(here)] == []


@pytest.fixture
def labelling(page, session):
    """The server of the page that labels the folder, which is open; its field has the focus."""
    with running(lambda address: LabelService(session, word_command).guard(address)) as service:
        page.goto(service.page)
        expect_focus(page)
        yield service


def expect_focus(page):
    playwright.expect(page.locator("#text")).to_be_focused()


def expect_status(page, text):
    playwright.expect(page.locator("#status")).to_have_text(text)


def enter(page, text):
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def read_labels(folder: Path) -> list[str]:
    return [row.text for row in read_table(folder / "labels.csv")]


def test_images_are_read_by_drop_paste_and_choice_with_a_token_that_no_address_sends(
    recognizer, page
):
    service, paths = ReadingService(PRETRAINED, recognizer, 1), sorted(SAMPLES.glob("*.png"))[:3]
    with running(lambda address: service.guard(address, None), "secret") as serving:
        page.goto(serving.page)
        playwright.expect(page.locator("#model")).to_contain_text("texts of 1 to 12 characters")
        page.set_input_files("#files", [str(paths[0])])
        for path, kind in zip(paths[1:], ("paste", "drop"), strict=True):
            page.evaluate(PASTE, [path.name, base64.b64encode(path.read_bytes()).decode(), kind])
        expect_status(page, "Read 3 images")
    texts = {path.stem.split("-")[1] for path in paths}
    assert set(page.locator("td.text").all_inner_texts()) == texts
    labels = {button.get_attribute("aria-label") for button in page.locator("td button").all()}
    assert labels == {f"Copy {text}" for text in texts}
    assert serving.page.endswith("#token=secret")
    assert not any("secret" in url.partition("#")[0] for url in page.asked)


def test_options_and_errors_are_shown(reading, page, tmp_path):
    page.goto(reading.page)
    page.expected = "422|415"
    page.get_by_label("Characters").fill("digits")
    page.get_by_label("Length").fill("4")
    (tmp_path / "bad.png").write_bytes(b"no image")
    page.set_input_files("#files", [str(SAMPLE), str(tmp_path / "bad.png")])
    playwright.expect(page.locator("td.error")).to_contain_text("not a PNG")
    assert page.locator("td.text").inner_text().isdigit()


@pytest.mark.usefixtures("labelling")
def test_images_are_labelled_by_keyboard(page, folder):
    for number in range(4):
        expect_focus(page)
        enter(page, f"T{number}")
        expect_status(page, f"Saved T{number}")
        assert f"T{number}" in read_labels(folder)  # before the next key
    page.keyboard.press("Control+z")
    expect_status(page, "Taken back")
    page.keyboard.press("Escape")
    expect_status(page, re.compile("Skipped"))
    assert sorted(read_labels(folder)) == ["", "T0", "T1", "T2"]
    count = page.locator("#count").inner_text()
    page.reload()
    playwright.expect(page.locator("#count")).to_have_text(count)
    expect_focus(page)
    page.keyboard.press("Alt+ArrowRight")
    expect_status(page, "The next image")
    for text in ("T4", "T5"):
        enter(page, text)
        expect_status(page, f"Saved {text}")
    playwright.expect(page.locator("#done")).to_be_visible()
    assert sorted(read_labels(folder)) == ["", "T0", "T1", "T2", "T4", "T5"]


@pytest.mark.usefixtures("labelling")
def test_a_held_key_saves_one_image_and_an_early_one_none(page, folder):
    page.evaluate(
        "document.getElementById('text').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true}))"
    )
    page.wait_for_timeout(200)
    assert not (folder / "labels.csv").exists()  # the key ended a composition
    page.keyboard.type("ONE")
    for _ in range(5):
        page.keyboard.down("Enter")  # the second and later ones are repetitions
    expect_status(page, "Saved ONE")
    page.keyboard.type("UNSEEN")
    page.keyboard.down("Enter")  # one more, when the next image is there
    page.keyboard.up("Enter")
    held = []
    page.route("**/v1/images/*", lambda route: held.append(route))
    page.keyboard.type("LATE")
    with page.expect_request("**/v1/images/*"):
        page.keyboard.press("Alt+ArrowLeft")
    page.keyboard.press("Enter")
    held[0].continue_()
    expect_status(page, re.compile("Back at"))
    assert read_labels(folder) == ["ONE"]


def test_a_rebound_name_reads_nothing_and_a_text_stays_where_another_tab_or_no_server_is(
    labelling, page, folder
):
    other = page.context.new_page()
    other.goto(labelling.page)
    expect_focus(other)
    enter(other, "OTHER")
    expect_status(other, "Saved OTHER")
    assert other.goto(labelling.page.replace("127.0.0.1", "evil.example")).status == 421
    page.expected = "409|ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE)"
    page.bring_to_front()
    enter(page, "MINE")
    expect_status(page, re.compile("labelled elsewhere meanwhile: OTHER"))
    assert read_labels(folder) == ["OTHER"]
    labelling.stop()
    page.keyboard.press("Enter")
    expect_status(page, re.compile("does not answer"))
    assert page.locator("#text").input_value() == "MINE"


def test_a_full_disk_is_said_and_the_text_stays(page, tmp_path):
    folder, out = tmp_path / "images", tmp_path / "out"
    folder.mkdir()
    skip_without_small_disks(folder)
    command = (
        f"{sys.executable} -m captcha_ocr label {folder} --port 0 --model pretrained --out {out}"
    )
    fill = f"cp {SAMPLES}/*.png {folder} && ! cat /dev/zero 2>&- > {folder}/zeros && exec {command}"
    with subprocess.Popen(small_disk(folder, fill), stderr=subprocess.PIPE, text=True) as process:
        page.goto(next(line.split()[1] for line in process.stderr if line.startswith("page")))
        expect_focus(page)
        page.expected = "507"
        enter(page, "KEPT")
        expect_status(page, re.compile("disk is full"))
        assert page.locator("#text").input_value() == "KEPT"
        process.terminate()


@pytest.mark.usefixtures("labelling")
def test_markup_in_names_and_labels_is_shown_as_text(reading, page):
    markup, image = "<img src=x onerror=alert(1)>", SAMPLE.read_bytes()
    enter(page, markup)
    expect_status(page, f"Saved {markup}")
    page.goto(reading.page)
    page.set_input_files("#files", {"name": markup, "mimeType": "image/png", "buffer": image})
    expect_status(page, "Read 1 image")
    assert page.locator("td img").get_attribute("alt") == markup
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.usefixtures("labelling")
@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1280)])
def test_the_pages_are_accessible_in_both_schemes_and_do_not_scroll_sideways(
    reading, page, scheme, width
):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    enter(page, "AB12")
    expect_status(page, "Saved AB12")
    check_page(page)
    page.goto(reading.page)
    page.set_input_files("#files", list(map(str, SAMPLES.glob("*.png"))))
    expect_status(page, "Read 6 images")
    check_page(page)


def check_page(page):
    """Assert what axe-core finds, and that all fits into the width."""
    assert axe.Axe().run(page).response["violations"] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
