raise ImportError("no such framework")
