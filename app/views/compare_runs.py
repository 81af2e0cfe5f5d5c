def show(ids):
    pass
