"""Bundle the font that the captcha package draws with."""

from PyInstaller.utils.hooks import collect_data_files

datas = collect_data_files("captcha")
