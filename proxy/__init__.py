"""The relay core: what every role of Tailrace is built on."""
