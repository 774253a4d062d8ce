from __future__ import annotations

import _ctypes
import os
import shutil
import subprocess
import sys

import pytest
from tritonpy_backend_tensorflow.early_libraries import open_libraries_in
from tritonpy_sdk.testing import DEADLINE_S

# To open a pipe waits until somebody writes to it; nobody could, if the interpreter's lock were held.
OPENED_BESIDE_OTHERS = """
import sys
import threading
from pathlib import Path

from tritonpy_backend_tensorflow.early_libraries import open_libraries_in

folder = Path(sys.argv[1])
opening = threading.Thread(target=open_libraries_in, args=(folder,))
opening.start()
with (folder / "libtensorflow_cc.so.2").open("wb") as pipe:
    pipe.write(b"no library")
opening.join()
print("done")
"""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="opens nothing on this system")


def test_others_go_on_while_a_library_is_opened(tmp_path):
    os.mkfifo(tmp_path / "libtensorflow_cc.so.2")

    command = [sys.executable, "-c", OPENED_BESIDE_OTHERS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)

    assert done.stdout == "done\n"


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not list what is opened")
def test_libraries_are_opened_and_files_that_are_none_left_to_the_import(tmp_path):
    shutil.copy(_ctypes.__file__, tmp_path / "libtensorflow_cc.so.2")
    (tmp_path / "libtensorflow_framework.so.2").write_text("not a library")

    open_libraries_in(tmp_path)
    open_libraries_in(tmp_path / "nowhere")

    with open("/proc/self/maps") as maps:
        opened = maps.read()
    assert f"{tmp_path}/libtensorflow_cc.so.2" in opened
    assert f"{tmp_path}/libtensorflow_framework.so.2" not in opened
