"""The planner: how fast a system would train with more workers, where adding them stops helping, and why.

A `Profile` is what a system is made of, a `Question` what is asked of it, an `Answer` what was found. None of these,
nor what reads, writes, words and draws them, imports torch. `play` plays a run's timing on the engine itself; `measure`
takes the profile of a config on this machine.
"""
