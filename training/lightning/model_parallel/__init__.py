"""One model over several workers: tensor parallelism, sharding and pipelines, in forked workers.

Begin with `model_parallel.py`, the strategy. `splitting.py` applies what a module says of its split; `parts.py` clips,
gathers and divides what workers have parts of. `pipeline.py` runs a batch through stages, which `stages.py` cuts.
`part_measures.py` measures what each worker holds and sends; `brought_plan.py` reads the plans of transformers'
models.
"""
