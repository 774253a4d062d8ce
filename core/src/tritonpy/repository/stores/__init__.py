"""Where repositories lie: on disks, and where plugins open them."""
