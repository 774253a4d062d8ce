"""Examples of plugins are tested as their authors do it: in their own folder (`sdk/tests/test_new.py`)."""

collect_ignore_glob = ["tritonpy-*", "batching_strategy_*"]
