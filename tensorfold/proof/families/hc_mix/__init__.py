"""Proof of the mixing weights of a row's streams: partial products of chunks, then what is made of them."""
