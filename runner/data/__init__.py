"""What the network sees."""
