"""GPUs, processors and memory nodes of the machine."""
