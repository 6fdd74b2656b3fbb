"""Text to token ids and back; knows no network and no state."""
