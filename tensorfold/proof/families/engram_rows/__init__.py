"""Proof of Engram rows from their bytes, e4m3 codes and UE8M0 scales, to bfloat16."""
