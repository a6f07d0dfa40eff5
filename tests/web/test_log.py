import os

from captcha_ocr.web.log import LineLog


def test_lines_are_written_in_their_order(tmp_path):
    path = tmp_path / "log"
    with path.open("wb") as file, LineLog(file.fileno()) as log:
        for number in range(100):
            log(f"{number}\n")
    assert path.read_text() == "".join(f"{number}\n" for number in range(100))


def test_a_pipe_that_nobody_reads_holds_nothing_up(monkeypatch):
    monkeypatch.setattr("captcha_ocr.web.log._LAST_S", 0.1)
    reader, writer = os.pipe()
    with LineLog(writer) as log:
        for _ in range(30_000):
            log(100 * "x" + "\n")
    assert not log.lines.empty()
    os.close(reader)  # ends the thread, which waits to write
    log.thread.join()
    os.close(writer)


def test_a_closed_pipe_ends_the_log_and_nothing_else():
    reader, writer = os.pipe()
    os.close(reader)
    with LineLog(writer) as log:
        log("x\n")
        log.thread.join()
        log("y\n")
    os.close(writer)
    assert not log.thread.is_alive()
