"""What a page's timers have asked for is left out once the browser stands on another page.

A request of theirs may be on its way, or wait its turn, while a click leads elsewhere. Streamlit (1.67) runs it all the
same where the fragment is in the frame around the pages, in the name of the page that was left: server and browser then
take the page for changed, clear it, and what is drawn next into the cleared page ends with a blank one.
"""

from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

_run_script = ScriptRunner._run_script


def leave_out() -> None:
    """From now on, in all sessions of this server."""
    ScriptRunner._run_script = _run_what_is_there  # type: ignore[assignment, method-assign]


def _run_what_is_there(runner: ScriptRunner, rerun_data: RerunData) -> None:
    current_page = runner._pages_manager.current_page_script_hash
    if rerun_data.fragment_id_queue and rerun_data.page_script_hash != current_page:
        return
    _run_script(runner, rerun_data)
