#!/usr/bin/env bash
# What the slow tests use and pip cannot install: Debian packages, and from npm Azurite, a server of Azure blobs, and
# axe-core, which looks for what people who cannot see a page well stumble over.
# A test whose package is missing says so and skips itself.
set -euo pipefail
cd "$(dirname "$0")/.."
azurite=${VIRTUAL_ENV:-$PWD/.venv}/azurite
axe=${VIRTUAL_ENV:-$PWD/.venv}/axe
missing=()
command -v mkfs.ext4 >/dev/null || missing+=(e2fsprogs)
command -v mkfs.xfs >/dev/null || missing+=(xfsprogs)
compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || missing+=(postgresql)
command -v mariadbd >/dev/null || missing+=(mariadb-server)
command -v mpirun >/dev/null || missing+=(openmpi-bin)
command -v chromium >/dev/null || missing+=(chromium)
from_npm=("$azurite/node_modules/.bin/azurite-blob" "$axe/node_modules/axe-core/axe.min.js")
{ [ -e "${from_npm[0]}" ] && [ -e "${from_npm[1]}" ]; } || command -v npm >/dev/null || missing+=(nodejs npm)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "not root: tests that need ${missing[*]} will skip"
  else
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  fi
fi
if [ ! -x "$azurite/node_modules/.bin/azurite-blob" ] && command -v npm >/dev/null; then
  npm install --prefix "$azurite" --silent --no-audit --no-fund --ignore-scripts --omit=optional azurite@3.35.0 ||
    echo "npm could not install azurite: tests that need it will skip"
fi
if [ ! -e "$axe/node_modules/axe-core/axe.min.js" ] && command -v npm >/dev/null; then
  npm install --prefix "$axe" --silent --no-audit --no-fund --ignore-scripts axe-core@4.14.0 ||
    echo "npm could not install axe-core: tests that need it will skip"
fi
