"""Answers that are kept and given again: which may be, in which form, and how they become what is asked for."""
