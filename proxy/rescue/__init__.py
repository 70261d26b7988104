"""Streams that go on: one whose worker is lost continues on another one, from the tokens that came so far."""
