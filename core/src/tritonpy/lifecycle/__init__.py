"""The life of each model: loaded, reloaded, unloaded, and the index of what is there."""
