"""What several pages use. Without Streamlit: `words`, `form` (a config as fields), `notebooks`, `drafts`, `links` (into
MLflow). Drawn: `html`, `widgets`, `charts`, `style`, `dialogs` (with every write of a notebook), `notes`, `frame`
(around each page), `what_it_logs`. Begin with `widgets`; what one page alone uses lies with that page.
"""
