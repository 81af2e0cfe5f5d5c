#!/bin/sh
# Make sure there is a Chromium for the browser journeys; installs Debian's where apt-get and root are at hand.
set -eu
for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    apt-get update -qq
    exec apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
fi
echo "The browser journeys need Chromium: install your system's package 'chromium' and run this again." >&2
exit 1
