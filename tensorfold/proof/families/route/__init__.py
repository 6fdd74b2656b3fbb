"""Proof of routing: which experts a row goes to and with what weights."""
