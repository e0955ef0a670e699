"""Attacks: what they break bounds from above what any certificate can prove."""
