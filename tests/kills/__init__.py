"""Processes killed at random under load: `make kills-short`, `make kills`."""
