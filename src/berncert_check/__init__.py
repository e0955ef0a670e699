"""An independent checker of berncert's proof files, in exact arithmetic.

It shares no code with berncert and imports nothing but Python's standard library. Nothing is searched and no decision
rests on floating point: every float64 in a file is a dyadic rational, and is taken as that. What a file claims and why
each reason is sound is written beside the function that checks it; docs/proof-format.md describes the bytes.
"""
