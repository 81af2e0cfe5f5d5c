"""On pages of the test's own, so that the moment is not left to chance."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from scalebook.app.serving.child import answers
from tests.ports import kernels_choice

pytestmark = pytest.mark.thorough

FRAME = """
import time
import streamlit as st

@st.fragment(run_every=0.4)
def tick():
    st.text("frame")

tick()

def first():
    if st.button("Go"):
        time.sleep(1)  # the frame's timer asks in this page's name meanwhile
        st.switch_page(second)

@st.fragment(run_every=0.5)
def beat():
    st.text("alive")

def second_page():
    for line in range(8):
        st.text(f"line {line}")
    beat()

second = st.Page(second_page, title="Second", url_path="second")
st.navigation([st.Page(first, title="First", url_path="first", default=True), second]).run()
"""
SERVER = """
import sys
from streamlit import App
from scalebook.app.serving.left_pages import leave_out
from scalebook.app.serving.page_server import page_settings

script, port = sys.argv[1:]
leave_out()
sys.argv = [script]
App(script).run(config=page_settings("127.0.0.1", int(port), ()))
"""
DEADLINE_S = 60.0


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    port = kernels_choice()
    (tmp_path / "frame.py").write_text(FRAME)
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, "-P", str(tmp_path / "server.py"), str(tmp_path / "frame.py"), str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while not answers(port, "/_stcore/health"):
                assert time.monotonic() < deadline
                assert server.poll() is None
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=DEADLINE_S)


def test_a_timer_of_the_page_that_was_left_does_not_clear_the_next(page: Page, address: str) -> None:
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_text("line 7")).to_be_visible()
    page.wait_for_timeout(2_000)  # what must not come within it leaves no other trace
    expect(page.get_by_text("line 7")).to_be_visible()
    expect(page.get_by_text("alive")).to_be_visible()
    assert problems == []
