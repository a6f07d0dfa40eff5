"""The command line: options in, one call, the result out. Heavy imports happen inside the commands.

Results go to stdout, progress and warnings to stderr. Exit 0 done; 1 something failed; 2 usage;
3 a file of ours is damaged; 130 and 143 on Ctrl-C and SIGTERM.
"""

from captcha_ocr.cli.group import main

__all__ = ["main"]
