"""The proof of a network's Lipschitz bound: norms, rules for each layer, and the walk through a traced forward."""
