"""From configuration files to the settled configuration of a model."""
from __future__ import annotations
from google.protobuf import json_format, text_format
from tritonpy.errors import InvalidArg
from tritonpy.protos import messages
from tritonpy.protos.pool import POOL

def read_config(directory, bind_backend, auto_complete):
    config = messages.ModelConfig()
    if directory.config_path.exists():
        text_format.Parse(directory.config_path.read_text(), config, descriptor_pool=POOL)
    config.name = directory.name
    if not config.backend:
        v = directory.path / str(directory.versions[0])
        config.backend = "onnxruntime" if (v / "model.onnx").exists() else "python"
    return config

def select_versions(config, versions):
    return list(versions[-1:])

def settle_structure(config):
    return json_format.MessageToDict(config, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

def _ints(d):
    if isinstance(d, dict):
        return {k: _ints(v) for k, v in d.items()}
    if isinstance(d, list):
        return [_ints(v) for v in d]
    if isinstance(d, str) and d.lstrip("-").isdigit():
        return int(d)
    return d

def settle_config(config, attributes):
    m = json_format.ParseDict(config, messages.ModelConfig(), descriptor_pool=POOL)
    if not m.instance_group:
        m.instance_group.add(name=m.name, kind=2, count=1)
    for i, g in enumerate(m.instance_group):
        g.name = g.name or f"{m.name}_{i}"
        g.kind = g.kind or 2
        g.count = g.count or 1
    d = settle_structure(m)
    p = d.pop("parameters", {})
    d = _ints(d)
    d["parameters"] = p
    return d
