"""Processes of ours, started without waiting a second for their modules: forked from one that has loaded them all."""
