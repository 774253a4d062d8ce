"""The message classes and the enum of our `.proto` files, made from the private pool.

`messages.pyi` beside this file tells type checkers what each class looks like.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tritonpy.protos.pool import FILE_NAMES, POOL


def _message_class(descriptor: Descriptor) -> type[Message]:
    """The class for a descriptor, with the classes nested in it as attributes."""
    made: type[Message] = GetMessageClass(descriptor)
    for name, nested in descriptor.nested_types_by_name.items():
        if not hasattr(made, name):  # protobuf's pure-Python form leaves this to generated modules
            setattr(made, name, _message_class(nested))
    return made


for _file in map(POOL.FindFileByName, FILE_NAMES):
    for _name, _enum in _file.enum_types_by_name.items():
        globals()[_name] = EnumTypeWrapper(_enum)
    for _name, _descriptor in _file.message_types_by_name.items():
        globals()[_name] = _message_class(_descriptor)
