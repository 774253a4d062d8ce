"""Ensembles: graphs of models, whose requests are answered by requests to these models."""
