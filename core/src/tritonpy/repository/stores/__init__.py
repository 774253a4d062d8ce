"""Where repositories lie: on disks, in object stores."""
