"""What theory says of workers that share a link."""


def closed_form(workers: int, own_s: float, each_s: float) -> float:
    """Cycles a second of so many that are on their own, then at one of two stations that are shared evenly, then at the
    other: mean value analysis (Reiser & Lavenberg 1980), exact where what they do by themselves is memoryless."""
    there = 0.0
    for number in range(1, workers + 1):
        stay_s = each_s * (1 + there)
        rate = number / (own_s + 2 * stay_s)
        there = rate * stay_s
    return rate
