"""Plays a scenario: a fleet, a gateway, a load, what happens to them, and the bars that must hold nevertheless."""
