"""A comparison."""


def show(*a):
    pass
