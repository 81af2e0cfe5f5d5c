"""The headless half of Scalebook: it never imports Streamlit, `app` or `pages`.

Begin with `engine/` for the parameter server, in `lightning/` for the strategies of a Trainer, in `experiments/` for
what a config means, in `jobs/` for how runs are queued, in `notebook/` and `search/` for the files that people write.
"""
