"""The proof search, compiled. From below: tensor, lowering, minorant, distance, descent, boxes, search."""
