"""A notebook with all that it has found, as one file for whoever has neither Scalebook nor the workspace.

gather     the notebook -> `Document`: what stands in it, as blocks; `experiments`, `comparisons`, `searches` each give
           the blocks of their part
html_file, markdown_file   a `Document` as text; `notes` renders what people wrote
"""
