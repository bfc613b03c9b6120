"""Who runs tickets: `protocol` says what every kind answers; one file or folder a kind."""
