"""The Plan page: training with more workers. Begin with `page.show`; `data` reads a system and writes an answer as
rows, `widgets` has the question, `answer_charts` the charts.
"""
