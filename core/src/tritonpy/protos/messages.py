"""The message classes and the enum of package `inference`, made from the private pool.

`messages.pyi` beside this file tells type checkers what each class looks like.
"""

from __future__ import annotations

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

from tritonpy.protos.pool import FILE_NAMES, POOL

for _file in map(POOL.FindFileByName, FILE_NAMES):
    for _name, _enum in _file.enum_types_by_name.items():
        globals()[_name] = EnumTypeWrapper(_enum)
    for _name, _message in _file.message_types_by_name.items():
        globals()[_name] = GetMessageClass(_message)
