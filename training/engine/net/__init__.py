"""Workers on other machines: frames over TCP, a proxy for each beside the shards, and the end of such a worker.

From the ground up: `wire` (frames), `greeting` (who may come in), `acceptor` and `channel` (the two sides of a
connection), `mirror` (the run's memory as another machine has it), `stand_in` and `remote_end` (what is asked, and who
asks it), `gate` (one port for all), `desk` and `passage` (what machines tell each other beside).
"""
