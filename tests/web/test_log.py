import os

from captcha_ocr.web.log import LineLog


def test_lines_are_written_in_their_order(tmp_path):
    path = tmp_path / "log"
    with path.open("w") as file, LineLog(file) as log:
        for number in range(100):
            log.write(f"{number}\n")
    assert path.read_text() == "".join(f"{number}\n" for number in range(100))


def test_a_pipe_that_nobody_reads_holds_nothing_up(monkeypatch):
    monkeypatch.setattr("captcha_ocr.web.log._LAST_S", 0.1)
    reader, writer = os.pipe()
    with open(writer, "w") as stream, LineLog(stream) as log:
        for _ in range(30_000):
            log.write(100 * "x" + "\n")
        log.is_closed.set()
        log.thread.join(0.1)
        assert log.thread.is_alive()
        os.close(reader)  # ends the thread, which waits to write
        log.thread.join()


def test_a_closed_pipe_ends_the_log_and_nothing_else():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream, LineLog(stream) as log:
        log.write("x\n")
        log.thread.join()
        log.write("y\n")
    assert not log.thread.is_alive()


def test_a_process_without_the_stream_prints_nothing():
    with LineLog(None) as log:
        log.write("x\n")
    assert not log.thread.is_alive()
