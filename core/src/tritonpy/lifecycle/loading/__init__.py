"""From the files of a model version to one that takes requests."""
