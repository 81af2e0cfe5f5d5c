"""Skips the reruns that the timers of a page have requested before the browser left it.

Such a request may be on its way, or queued, while a click leads to another page. Streamlit (1.67) runs it all the same
if its fragment is in the frame around the pages, in the name of the page that was left. Server and browser then believe
that the page has changed and clear it, and it stays blank.
"""

from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

_run_script = ScriptRunner._run_script


def leave_out() -> None:
    """Skip them from now on, in all sessions of this server."""
    ScriptRunner._run_script = _run_what_is_there  # type: ignore[assignment, method-assign]


def _run_what_is_there(runner: ScriptRunner, rerun_data: RerunData) -> None:
    current_page = runner._pages_manager.current_page_script_hash
    if rerun_data.fragment_id_queue and rerun_data.page_script_hash != current_page:
        return
    _run_script(runner, rerun_data)
