"""The response cache: keys of requests, entries of responses, and plugins that keep them."""
