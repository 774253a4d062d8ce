"""Model repositories: the files of models, in directories and in stores."""
