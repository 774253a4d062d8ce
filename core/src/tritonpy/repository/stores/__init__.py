"""Places of repositories: on disks, and where plugins open them."""
