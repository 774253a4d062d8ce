"""Worker processes: one behind each instance of an isolated model, fed and supervised from the loop."""
