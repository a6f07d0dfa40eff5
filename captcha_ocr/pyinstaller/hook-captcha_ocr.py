"""Bundle the models, the version that doctor prints, and modules that are imported by name."""

from PyInstaller.utils.hooks import collect_data_files, copy_metadata

from captcha_ocr import MODULES

datas = collect_data_files("captcha_ocr") + copy_metadata("captcha-ocr")
hiddenimports = [f"captcha_ocr.{module}" for module in MODULES.values()]
