"""Where the workers of a pool come from: a list, a watched file, the addresses of a name, sidecars that register.

One `Search` on a host follows all that a configuration names: the supervisor's, or the process's own where there is no
supervisor. What it finds goes to every process as a `Found`, whose `Roster` makes workers of it.
"""
