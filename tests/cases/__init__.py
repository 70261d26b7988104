"""The failure-case bank: one test a case, named after the case's id."""
