"""A judged claim as text: the columns of its table, and the remarks below it, for every format."""

import math
import time

from scalebook.training.base.files import terminal
from scalebook.training.notebook import number_format
from scalebook.training.notebook.claims.evidence import needs_curve
from scalebook.training.notebook.claims.intervals import Confidence
from scalebook.training.notebook.claims.judging import ClaimRow, Judgement
from scalebook.training.notebook.claims.power import MOST_SEEDS
from scalebook.training.tracking import Estimate, own_metrics

INTERVAL = "95 % interval"


def head(judgement: Judgement) -> list[str]:
    """The columns; those before `figure` are words."""
    figures_ = {plain.figure for plain in judgement.cell.plain}
    figure = next(iter(figures_)).replace("_per_second", "/s") if len(figures_) == 1 else "figure"
    ratio = ["ratio", INTERVAL] if _has_ratio(judgement) else []
    of_ratios = ["of ratios", INTERVAL] if _of_ratios(judgement) else []
    return ["experiment", *_points(judgement), "seeds", figure, *ratio, *of_ratios, "verdict"]


def cells(judgement: Judgement) -> list[list[str]]:
    """A row for each side, in the order of `head`."""
    points, columns, of_ratios = _points(judgement), head(judgement), _of_ratios(judgement)
    rows = []
    for row in judgement.rows:
        ratio = [_times(row.ratio), _interval(row.ratio)] if "ratio" in columns else []
        ratio += [_times(row.claimed), _interval(row.claimed)] if of_ratios else []
        point = [row.evidence.point or number_format.NOTHING] if points else []
        figure = _figure(row) + (f" {row.of.figure.replace('_per_second', '/s')}" if "figure" in columns else "")
        figure += f" {own_metrics.SIGN}" if row.evidence.is_own and row.evidence.amounts else ""
        base = "" if of_ratios and row.ratio is None else "baseline"
        rows.append([row.evidence.label, *point, _seeds(row), figure, *ratio, row.verdict or base])
    return rows


def numeric(judgement: Judgement) -> list[int]:
    """The columns of figures."""
    first = 1 + len(_points(judgement))
    return list(range(first, len(head(judgement)) - 1))


def guessed_directions(judgement: Judgement) -> list[str]:
    """Which metrics have a guessed better direction, and what to write; a page has a button for it."""
    read = {plain.metric for plain in judgement.cell.plain if needs_curve(plain)}
    return [
        f"For {metric}, {better.plain}. This is a guess, because neither the config nor the metric says which "
        f"direction is better. {better.remedy(metric)}"
        for metric, better in judgement.directions.items()
        if metric in read and better.guessed
    ]


def remarks(judgement: Judgement) -> list[str]:
    """What the figures do not show: its lock and its power, why a row is not resolved, runs that missed the target, how
    points were chosen."""
    sentences = [*lock_words(judgement), *outlook(judgement)]
    sentences += [f"{row.evidence.label}: {row.why}" for row in judgement.rows if row.why]
    base = judgement.rows[0] if judgement.rows and judgement.rows[0].verdict is None else None
    if base is not None and base.evidence.lacking and not any(row.why for row in judgement.rows):
        sentences.append(f"{base.evidence.label}: {base.evidence.lacking}")
    sentences += [f"{row.evidence.label}: {row.evidence.lost}" for row in judgement.rows if row.evidence.lost]
    censored = [row for row in judgement.rows if row.censored]
    sentences += [
        f"{row.evidence.label}: {row.censored} of {len(row.evidence.amounts)} runs never reached the target. Each is "
        "counted at the amount it had used when it ended, so the true figure is larger."
        for row in censored
    ]
    at_once = [row for row in judgement.rows if any(amount.at_once for amount in row.evidence.amounts.values())]
    sentences += [
        f"{row.evidence.label}: a run had already reached the target at its first validation, so the true figure may "
        "be smaller. Validate more often."
        for row in at_once
    ]
    chosen = [row.evidence for row in judgement.rows if row.evidence.chosen]
    if chosen:
        how = " and ".join(dict.fromkeys(side.chosen for side in chosen))
        sentences.append(
            f"Each side is compared at its own best point ({how}). The same seeds choose the point and judge the "
            "claim, and the interval allows for this double use."
        )
    if nearest := [side.label for side in chosen if side.none_reached]:
        sentences.append(f"No point reached the target, so the point that came nearest was used: {', '.join(nearest)}.")
    if any(row.ratio is not None and row.ratio.paired for row in judgement.rows):
        sentences.append("Ratios are geometric means over pairs of runs with the same seed.")
    if judgement.beside > 1:
        sentences.append(_family(judgement))
    if any(row.evidence.is_own and row.evidence.amounts for row in judgement.rows):
        sentences.append(f"{own_metrics.SIGN} {own_metrics.WORDS}")
    simulated = {row.evidence.is_simulated for row in judgement.rows if row.evidence.amounts}
    timed = any(plain.figure not in ("updates", "samples", "best") for plain in judgement.cell.plain)
    if len(simulated) > 1 and timed:
        sentences.append("Some seconds are virtual and others are measured.")
    return [*sentences, *_directions(judgement)]


def _directions(judgement: Judgement) -> list[str]:
    """What is better of the metrics whose best values it is about; `guessed_directions` has those that nothing says."""
    read = {plain.metric for plain in judgement.cell.plain if plain.figure == "best"}
    items = judgement.directions.items()
    return [
        f"{better.plain.capitalize()} of {metric}." for metric, better in items if metric in read and not better.guessed
    ]


def verdicts(judgement: Judgement) -> list[str]:
    """The verdict, and the verdict by the locked terms if these have changed."""
    locked = judgement.locked
    return [judgement.verdict, *([] if locked is None else [f"as locked: {locked.verdict}"])]


def lock_words(judgement: Judgement) -> list[str]:
    """When it was locked, what has changed since, and whether it was written after its runs."""
    lock, locked = judgement.lock, judgement.locked
    if lock is None:
        return []
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(lock.began))  # the same wherever an archive is verified
    sentences = []
    if locked is not None:
        changes = ", ".join(lock.changes)
        sentences.append(
            f"This claim was changed after its first run ({day}): {changes}. The locked version of the claim is "
            f"{locked.verdict}: "
        )
        sentences[-1] += f"{locked.statement}."
        sentences += [
            f"Locked version: {why}" for why in (f"{row.evidence.label}: {row.why}" for row in locked.rows if row.why)
        ]
    elif lock.cell is not None:
        sentences.append(f"This claim was locked when its first run started, on {day}.")
    if lock.late:
        sentences.append(f"This claim was written after runs of {', '.join(lock.late)} had started.")
    if lock.unknown:
        sentences.append(
            f"Runs of {', '.join(lock.unknown)} do not record which claims the notebook had when these runs started."
        )
    if lock.more_seeds:
        sentences.append(f"There are more seeds than when the claim was locked ({'; '.join(lock.more_seeds)}).")
    if len(judgement.looks) > 1:
        seeds = ", ".join(str(seeds) for seeds in judgement.looks)
        sentences.append(
            f"This is look {len(judgement.looks)} at the data (numbers of seeds: {seeds}). The intervals allow for "
            "repeated looks."
        )
    if judgement.earlier_verdicts:
        before = ", ".join(f"{verdict} with {seeds} seeds" for seeds, verdict in judgement.earlier_verdicts)
        sentences.append(f"Earlier verdicts: {before}.")
    if judgement.unrecorded:
        sentences.append(
            f"This look could not be recorded ({judgement.unrecorded}), so later looks will not allow for it."
        )
    if lock.deleted:
        sentences.append(
            f"Earlier runs of {', '.join(lock.deleted)} were deleted, together with the claims that they had locked."
        )
    return sentences


def outlook(judgement: Judgement) -> list[str]:
    """Before the runs its power, after them what would resolve it; empty where there is nothing to say."""
    kind = "ratio of ratios" if _of_ratios(judgement) else "ratio" if _has_ratio(judgement) else "figure"
    if (power := judgement.power) is not None:
        enough = (
            f"{power.enough} seeds are needed for 80 %"
            if power.enough
            else f"even {MOST_SEEDS} seeds are too few for 80 %"
        )
        level = f", corrected for {judgement.beside} claims" if judgement.beside > 1 else ""
        source = "measured in the runs so far" if power.measured else "assumed, because there are no runs yet"
        share = f"{100 * power.share:.0f} % of cases"
        true = f"With {power.seeds} seeds, a true {kind} of {power.truth:.3g} would be supported in {share}"
        spread = f"Runs that differ only in the seed vary by {100 * power.spread:.0f} % ({source})."
        return [f"{true}, and {enough}{level}. {spread}"]
    if judgement.resolved_by is not None:
        if not judgement.resolved_by:
            would = f"even {MOST_SEEDS} seeds would resolve it in fewer than 80 % of cases"
        else:
            would = f"{judgement.resolved_by} seeds would resolve it in 80 % of cases"
        return [f"If the true {kind} is as measured, {would}."]
    return []


def text(judgement: Judgement) -> str:
    """Statement, verdict, table and remarks for a terminal; ends without a line end."""
    rows = [head(judgement), *cells(judgement)]
    lines = terminal.aligned(rows, numeric(judgement), rule=1)
    title = f"{judgement.cell.name}: {judgement.sentence}\n{', '.join(verdicts(judgement)).upper()}"
    notes = [*guessed_directions(judgement), *remarks(judgement)]
    return "\n".join([title, "", *lines, *(["", *notes] if notes else [])])


def _family(judgement: Judgement) -> str:
    if judgement.verdict == judgement.alone:
        gone = f", including {judgement.gone} removed after their first run" if judgement.gone else ""
        return f"Verdicts are corrected for the {judgement.beside} claims of this notebook (Holm){gone}."
    return (
        f"Without correction, this claim would be {judgement.alone}. Corrected for all {judgement.beside} claims of "
        "this notebook (Holm), the result is not clear enough."
    )


def _has_ratio(judgement: Judgement) -> bool:
    return any(plain.against is not None for plain in judgement.cell.plain)


def _of_ratios(judgement: Judgement) -> bool:
    """Whether ratios are compared with a ratio."""
    return bool(judgement.cell.ratios) and judgement.cell.against is not None


def _points(judgement: Judgement) -> list[str]:
    return ["at"] if any(row.evidence.point for row in judgement.rows) else []


def _seeds(row: ClaimRow) -> str:
    count = len(row.evidence.amounts)
    return f"{count - row.censored} of {count}" if row.censored else str(count)


def _figure(row: ClaimRow) -> str:
    """`4,311 ± 370`; `> 4,311` where runs were censored; the plain mean where there are too few for an interval."""
    amounts = [amount.value for amount in row.evidence.amounts.values()]
    if not amounts:
        return number_format.NOTHING
    mean = math.fsum(amounts) / len(amounts)
    if row.censored:
        return f"> {number_format.amount(Estimate(mean, None, len(amounts)))}"
    half = row.figure.high - row.figure.value if row.figure else None
    return (
        number_format.metric(Estimate(mean, half, len(amounts)))
        if mean < 100
        else number_format.amount(Estimate(mean, half, 1))
    )


def _times(interval: Confidence | None) -> str:
    if interval is None:
        return number_format.NOTHING
    beyond = "> " if interval.high == math.inf else "< " if interval.low == 0 else ""
    return f"{beyond}{number_format.factor(interval.value)}"


def _interval(interval: Confidence | None) -> str:
    if interval is None:
        return number_format.NOTHING
    if interval.high == math.inf:
        return f"{number_format.factor(interval.low)} or more"
    return (
        f"{number_format.factor(interval.high)} or less"
        if interval.low == 0
        else f"{number_format.factor(interval.low)} – {number_format.factor(interval.high)}"
    )
