"""From queued requests to batches: pure policies that decide, and one driver that acts on the loop."""
