"""Run the command line: `python -m captcha_ocr` does the same as `captcha-ocr`."""

from captcha_ocr.cli.app import main

if __name__ == "__main__":
    main()
