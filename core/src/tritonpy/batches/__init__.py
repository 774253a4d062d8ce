"""From the requests of a batch to the tensors of one call of a model, and back; for every framework."""
