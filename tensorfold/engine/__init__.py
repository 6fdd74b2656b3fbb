"""The engine: rounds over slots, sampling and kept prompts. It knows no layers and no weights."""
