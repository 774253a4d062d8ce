"""The message classes of `replica.proto`.

`messages.pyi` beside this file tells type checkers what each class looks like.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf.message_factory import GetMessageClass
from tritonpy.protos.pool import load_pool

_POOL, _NAMES = load_pool(Path(__file__).with_name("descriptors.binpb"))

for _file in map(_POOL.FindFileByName, _NAMES):
    for _name, _descriptor in _file.message_types_by_name.items():
        globals()[_name] = GetMessageClass(_descriptor)
