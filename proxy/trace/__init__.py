"""What is remembered of calls that are over, and the W3C context in which they were made."""
