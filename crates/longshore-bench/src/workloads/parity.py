import sys


def compute():
    state, mixed = 12345, 0
    for _ in range(10_000_000):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        mixed ^= state
    print("compute", state, mixed)


MODULES = """argparse ast asyncio base64 bisect calendar cmd code codecs collections concurrent.futures
configparser contextlib copy csv ctypes dataclasses datetime decimal difflib dis doctest email.message
email.parser enum filecmp fractions ftplib functools gettext glob gzip hashlib heapq hmac html.parser
http.client http.server imaplib inspect ipaddress json logging.config lzma mailbox mimetypes
multiprocessing numbers optparse pathlib pdb pickle pickletools pkgutil platform plistlib pprint
profile queue random sched secrets selectors shelve shlex shutil smtplib socketserver sqlite3 ssl
statistics string subprocess tarfile tempfile textwrap threading timeit tokenize traceback typing
unittest unittest.mock urllib.request uuid venv wave weakref webbrowser wsgiref.simple_server
xml.dom.minidom xml.etree.ElementTree xmlrpc.client zipfile zoneinfo""".split()


def small_files(listing):
    import importlib
    import os
    import zlib

    loaded = 0
    for name in MODULES:
        try:
            importlib.import_module(name)
            loaded += 1
        except ImportError:
            pass
    with open(listing, encoding="utf-8", errors="surrogateescape") as lines:
        paths = lines.read().split("\n")
    seen, check = 0, 0
    for _ in range(16):
        for path in paths:
            seen += os.stat(path).st_size
            descriptor = os.open(path, os.O_RDONLY)
            check = zlib.crc32(os.read(descriptor, 4096), check)
            os.close(descriptor)
    print("small-files", loaded, len(paths), seen, check)


if sys.argv[1] == "compute":
    compute()
else:
    small_files(sys.argv[2])
