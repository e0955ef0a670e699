"""The proof search, compiled. From below: tensor, lowering, minorant, distance, descent, boxes, search.

What Python calls is a `kernel`, all else a `part`: see `compiled`.
"""
