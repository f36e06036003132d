"""Rules of this project that no other linter knows: one module a rule, run by ``python -m lint``."""
