#!/bin/sh
# Makes sure of a program that tests need: Debian's package, where it is not there and we may install it.
#   sh tests/debian.sh chromium     the browser journeys: without it this fails. What is fetched is its headless part,
#                                   which starts and draws at less cost, where Debian has it as a package
#   sh tests/debian.sh postgresql   a study in a database: without it those tests are skipped, saying so
set -eu
package=$1
case $package in
  chromium) found="chromium-headless-shell chromium chromium-browser google-chrome" ;;
  postgresql) found="initdb /usr/lib/postgresql/*/bin/initdb" ;;
  *) echo "unknown: $package" >&2; exit 2 ;;
esac
for name in $found; do
  if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if ! command -v apt-get >/dev/null 2>&1; then
  echo "Tests need $package. Install it with your system's packages, then run this again." >&2
  if [ "$package" = chromium ]; then exit 1; else exit 0; fi
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then as_root="sudo"; fi
$as_root apt-get update -qq
if [ "$package" = chromium ] && apt-cache show chromium-headless-shell >/dev/null 2>&1; then
  package=chromium-headless-shell
fi
$as_root apt-get install -y -qq --no-install-recommends "$package"
