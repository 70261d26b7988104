"""For the tests of plugins: a scripted worker, a client of raw bytes and a gateway between them."""
