"""Certificates: proven (`certify`), the paper's estimate of one (`estimate`), and one that holds with a probability."""
