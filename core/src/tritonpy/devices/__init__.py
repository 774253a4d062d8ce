"""What the machine has: its GPUs, and which of its processors instances may run on."""
