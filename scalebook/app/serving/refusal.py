"""The page that a browser without the token sees: where the address with the token is found."""

import html
from urllib.parse import parse_qsl

WHERE_IT_IS = (
    "The address with the token is in the terminal where `scalebook ui` runs; "
    "`scalebook ui FOLDER --address` prints it again."
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Scalebook</title>
<style>
:root {{ color-scheme: light dark; --ink: #1c2327; --paper: #fbfbfa; --soft: #5f6a69; --box: #f0f1ef; --line: #dddfdc;
  --own: #0b6e75; --on-own: #ffffff; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e4e8e8; --paper: #14181b; --soft: #9aa6a5; --box: #1d2327;
  --line: #323a3f; --own: #1d8f95; }} }}
body {{ margin: 0; background: var(--paper); color: var(--ink); line-height: 1.55;
  font: 15px/1.55 -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif; }}
main {{ max-width: 36rem; margin: 12vh auto 4rem; padding: 0 1.5rem; }}
h1 {{ font-size: 1.5rem; font-weight: 650; margin: 0 0 .75rem; }}
p {{ margin: .5rem 0; }}
ul {{ padding-left: 1.3rem; margin: 1rem 0; }}
li {{ margin: .9rem 0; }}
pre {{ background: var(--box); border: 1px solid var(--line); border-radius: .45rem;
  padding: .55rem .8rem; margin: .4rem 0;
  overflow-x: auto; font: .83rem/1.5 'SF Mono', Menlo, Consolas, 'Liberation Mono', monospace; }}
form {{ display: flex; gap: .5rem; margin: .4rem 0; }}
input {{ flex: 1; min-width: 0; font: inherit; padding: .45rem .7rem; border: 1px solid var(--line);
  border-radius: .45rem; background: var(--box); color: inherit; }}
button {{ font: inherit; font-weight: 600; padding: .45rem 1.1rem; border: 0; border-radius: .45rem;
  background: var(--own); color: var(--on-own); cursor: pointer; }}
.soft {{ color: var(--soft); font-size: .9rem; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p>{why}</p>
<ul>
<li>Look in the terminal where <b>scalebook ui</b> runs, and open the whole address there:
<pre>{address}/?token=…</pre></li>
<li>Or print it again, where FOLDER holds your notebooks:
<pre>scalebook ui FOLDER --address</pre></li>
<li><label for="token">Or enter the token alone, which is what follows <b>token=</b> in that address:</label>
<form method="get">{asked}<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required>
<button>Open</button></form></li>
</ul>
<p class="soft">This browser is then remembered, also after a restart of Scalebook. The token keeps other users
of this computer and pages of other sites away from your notebooks and runs. Each name is remembered by itself:
127.0.0.1 and localhost are two.</p>
</main>
</body>
</html>
"""


def page(address: str, wrong: bool, query: str = "") -> str:
    """HTML. `wrong`: a token was given, but not that of this server. `query`: that of the address, without the token;
    the form leads to the same path with it."""
    title = "This is not the right token" if wrong else "Scalebook does not know this browser"
    why = (
        "It may be an old one, or that of another folder. There are three ways in:"
        if wrong
        else "It needs an address with a token. There are three ways in:"
    )
    asked = "".join(
        f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
        for name, value in parse_qsl(query, keep_blank_values=True)
    )
    return _PAGE.format(title=title, why=why, address=html.escape(address), asked=asked)
