#!/bin/sh
# Makes sure that a Chromium is there for the journeys: Debian's package, where there is none and we may install it.
set -eu
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if ! command -v apt-get >/dev/null 2>&1; then
  echo "The browser journeys need Chromium. Install it with your system's packages, then run this again." >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then as_root="sudo"; fi
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends chromium
