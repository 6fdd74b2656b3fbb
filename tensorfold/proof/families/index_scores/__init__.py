"""Proof of index scores of rows against packed keys by place."""
