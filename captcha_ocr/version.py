"""The version of captcha-ocr."""

__version__ = "0.1.0"
