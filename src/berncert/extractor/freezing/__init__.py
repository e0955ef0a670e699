"""From a user's network to a frozen one: trace its forward, translate each step, compare the two."""
