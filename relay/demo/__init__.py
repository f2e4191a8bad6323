"""The main job on a simulated GitHub, to watch: what ``crcr demo`` and ``make demo`` run.

``scene`` says who takes part and what happens, ``stage`` runs the simulator and the real relay, ``watching`` shows
how it goes, ``ending`` shows what a reviewer sees, and ``expectations`` says whether all of it was right.
"""

from relay.demo.play import run_demo

__all__ = ["run_demo"]
