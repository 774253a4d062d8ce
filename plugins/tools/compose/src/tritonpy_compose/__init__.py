"""Images and environments of tritonpy with the plugins that a model repository needs: `corectl compose`."""
