"""Proof of rows normed or not, turned and packed for a cache, in one launch; index queries too."""
