"""`python -m captcha_ocr` is `captcha-ocr`."""

from captcha_ocr.cli.app import main

if __name__ == "__main__":
    main()
