"""The recorded program: its nodes, decompositions, the algebra of views, and printing.

Imports torch and the rules' registry; runs nothing.
"""
