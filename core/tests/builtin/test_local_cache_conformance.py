from tritonpy_sdk.testing import CacheConformance


class TestLocal(
    CacheConformance,
    cache="local",
    settings={"size": "1048576"},
    wrong_settings=[{}, {"size": "many"}, {"size": "0"}, {"size": "1024", "sise": "1"}],
    room=1048576,
): ...
