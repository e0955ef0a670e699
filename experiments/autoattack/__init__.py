"""The strongest attacks at hand beside the proof."""
