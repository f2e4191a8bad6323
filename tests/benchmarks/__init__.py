"""The figures of the README's speed table, measured and printed. Nothing here asserts a time: machines differ.

Relay, simulated GitHub (60 ms to each answer) and load are a process each. CPU per unit of work is the figure to trust,
because it does not depend on what else the machine does.
"""
